// A POST with the fetch that Node brings, tried again after a failure or a 409: URL, key. One line of JSON.
const [url, key] = process.argv.slice(2);
const headers = { Authorization: 'Bearer fetch', 'Idempotency-Key': `"${key}"`, 'Content-Type': 'application/json' };

async function post() {
  try {
    const answer = await fetch(`${url}/charges`, { method: 'POST', headers, body: '{"amount":1}' });
    const body = await answer.json();
    return { status: answer.status, id: body.id ?? null, replayed: answer.headers.get('idempotent-replayed') };
  } catch (error) {
    return { status: 0, error: String(error.cause ?? error) };
  }
}

let tries = 0;
let said;
do {
  said = { ...(await post()), tries: (tries += 1) };
} while ((said.status === 0 || said.status === 409) && tries < 8);
console.log(JSON.stringify(said));
process.exit(0);
