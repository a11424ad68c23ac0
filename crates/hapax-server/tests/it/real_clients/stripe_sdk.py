"""One payment per call with the official SDK: URL, calls, retries, timeout in seconds. One line of JSON per call.

No key is given: the SDK makes its own, and retries by itself.
"""

import json
import sys

import stripe

url, calls, retries, timeout = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
client = stripe.StripeClient(
    "sk_test_python",
    base_addresses={"api": url},
    max_network_retries=retries,
    http_client=stripe.RequestsClient(timeout=timeout),
)
for call in range(calls):
    try:
        intent = client.v1.payment_intents.create({"amount": 100 + call, "currency": "eur"})
        answer = intent.last_response
        said = {"ok": True, "status": answer.code, "id": intent.id, "replayed": answer.headers.get("Idempotent-Replayed")}
    except stripe.StripeError as error:
        body = error.http_body.decode() if isinstance(error.http_body, bytes) else error.http_body
        said = {"ok": False, "status": error.http_status, "error": type(error).__name__, "body": body or str(error)}
    print(json.dumps(said), flush=True)
