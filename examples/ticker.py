"""An API to try hapax with: every POST is a new payment, and the answer says which."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Ticker(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    payments = 0

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        Ticker.payments += 1
        answer = json.dumps({"payment": Ticker.payments}).encode()
        self.send_response(201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


ThreadingHTTPServer(("127.0.0.1", 3000), Ticker).serve_forever()
