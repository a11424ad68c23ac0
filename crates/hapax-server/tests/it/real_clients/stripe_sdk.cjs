// One payment per call with the official SDK: URL, calls, retries, timeout in seconds. One line of JSON per call.
// No key is given: the SDK makes its own, and retries by itself.
const Stripe = require('stripe');

const [url, calls, retries, timeout] = process.argv.slice(2);
const { hostname, port } = new URL(url);
const stripe = new Stripe('sk_test_node', {
  host: hostname,
  port: Number(port),
  protocol: 'http',
  maxNetworkRetries: Number(retries),
  timeout: Number(timeout) * 1000,
});

async function pay(call) {
  try {
    const intent = await stripe.paymentIntents.create({ amount: 100 + call, currency: 'eur' });
    const { statusCode, headers } = intent.lastResponse;
    return { ok: true, status: statusCode, id: intent.id, replayed: headers['idempotent-replayed'] ?? null };
  } catch (error) {
    const body = JSON.stringify(error.raw ?? null) + ' ' + error.message;
    return { ok: false, status: error.statusCode ?? null, error: error.type ?? error.name, body };
  }
}

(async () => {
  for (let call = 0; call < Number(calls); call += 1) {
    console.log(JSON.stringify(await pay(call)));
  }
  process.exit(0);
})();
