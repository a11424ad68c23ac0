// Node's HTTP server as it is out of the box, which closes a connection that has been idle for 5 s, without a word and
// without looking whether a request is on its way. It counts how often each key was executed.
//
//   node server.js            prints the port it listens on
//   POST /payments            executes; 201 and a small answer
//   POST /stall?ms=N          prints "stalling", and the whole server does nothing else for N ms, as in a long computation
//   GET  /count               {"executed": N, "keys": N, "twice": N, "connections": N}

const fs = require("node:fs");
const http = require("node:http");

const executions = new Map();
let executed = 0;
let connections = 0;

function execute(key) {
  executed += 1;
  executions.set(key, (executions.get(key) ?? 0) + 1);
  return executed;
}

function count() {
  const twice = [...executions.values()].filter((times) => times > 1).length;
  return { executed, keys: executions.size, twice, connections };
}

function stall(url) {
  fs.writeSync(1, "stalling\n");
  const until = Date.now() + Number(new URL(url, "http://localhost").searchParams.get("ms"));
  while (Date.now() < until);
}

const server = http.createServer((request, response) => {
  request.resume();
  request.on("end", () => {
    const answer = request.method === "GET" ? count() : { id: execute(request.headers["idempotency-key"]) };
    if (request.url.startsWith("/stall")) stall(request.url);
    const body = JSON.stringify(answer);
    response.writeHead(request.method === "GET" ? 200 : 201, {
      "Content-Type": "application/json",
      "Content-Length": Buffer.byteLength(body),
    });
    response.end(body);
  });
});

server.on("connection", () => { connections += 1; });
server.listen(0, "127.0.0.1", () => console.log(`listening on ${server.address().port}`));
