"""An API to try hapax with: every POST is a new payment, and the answer says which. A GET says how many there are."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Ticker(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    payments = 0

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        Ticker.payments += 1
        self.answer(201, {"payment": Ticker.payments})

    def do_GET(self):
        self.answer(200, {"payments": Ticker.payments})

    def answer(self, status, content):
        answer = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


ThreadingHTTPServer(("127.0.0.1", 3000), Ticker).serve_forever()
