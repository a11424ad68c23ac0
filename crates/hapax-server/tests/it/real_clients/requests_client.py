"""A POST with `requests` and the retries of urllib3: URL, key. One line of JSON."""

import json
import sys

import requests
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

url, key = sys.argv[1], sys.argv[2]
retry = Retry(total=8, allowed_methods=None, status_forcelist=[409, 502, 503, 504], backoff_factor=0.05)
session = requests.Session()
session.mount("http://", HTTPAdapter(max_retries=retry))
headers = {"Authorization": "Bearer requests", "Idempotency-Key": f'"{key}"'}
answer = session.post(f"{url}/charges", json={"amount": 1}, headers=headers, timeout=20)
said = {"status": answer.status_code, "id": answer.json().get("id"), "replayed": answer.headers.get("Idempotent-Replayed")}
print(json.dumps(said))
