//! Real clients through the proxy: the official Stripe SDKs, curl, requests, fetch, h2load.
//!
//! They make their own keys and retry by themselves, each in its way; answers are lost on purpose on both sides of the
//! proxy, and the upstream's ledger says how often each payment was made. Two losses differ:
//!
//! - Between proxy and client: the answer is recorded, so the SDK's own retry gets it, and nobody notices. (When half of
//!   the answer has come, the SDKs do not retry: the caller sees an error, after one payment.)
//! - Between upstream and proxy: nobody can know whether the payment was made, so the call ends in an error that
//!   says so (504, then 409 `outcome-unknown`), and it is never made again.
//!
//! `without_the_proxy_…` shows that the same loss charges twice otherwise: that the other tests can fail.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use hapax_testkit::hapax::Hapax;
use hapax_testkit::ledger::{Behaviour, Entry, Ledger};
use hapax_testkit::tcp_proxy::TcpProxy;
use hapax_testkit::{clients, needs_clients, tokens};
use serde_json::Value;

/// More than any scenario needs; the SDKs wait between 0.5 s and 5 s before each.
const RETRIES: u32 = 6;

fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it lies in the build directory")
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/real_clients").join(name)
}

fn start() -> (Ledger, Hapax) {
    let ledger = Ledger::start();
    let hapax = Hapax::builder(env!("CARGO_BIN_EXE_hapax")).with_upstream(&ledger.url()).start();
    (ledger, hapax)
}

/// An official SDK.
#[derive(Clone, Copy)]
enum Sdk {
    Python,
    Node,
}

/// How a script calls.
struct Calls {
    count: u32,
    retries: u32,
    timeout_s: u32,
}

const ONE_CALL: Calls = Calls { count: 1, retries: RETRIES, timeout_s: 20 };

impl Sdk {
    /// Makes payments and returns what the caller of the SDK saw.
    fn pay(self, to: SocketAddr, calls: &Calls) -> Vec<Value> {
        let mut command = match self {
            Sdk::Python => clients::python(target(), &script("stripe_sdk.py")),
            Sdk::Node => clients::node(target(), &script("stripe_sdk.cjs")),
        };
        let numbers = [calls.count, calls.retries, calls.timeout_s].map(|number| number.to_string());
        lines(command.arg(format!("http://{to}")).args(numbers))
    }

    fn pay_once(self, to: SocketAddr) -> Value {
        self.pay(to, &ONE_CALL).remove(0)
    }
}

fn lines(command: &mut Command) -> Vec<Value> {
    clients::run(command).lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// The one execution there was.
#[track_caller]
fn only(ledger: &Ledger) -> Entry {
    let mut all = ledger.all();
    assert_eq!(all.len(), 1, "executed once: {all:#?}");
    all.remove(0)
}

#[track_caller]
fn assert_paid(said: &Value, entry: &Entry) {
    assert_eq!((&said["ok"], &said["id"]), (&Value::from(true), &Value::from(entry.id.as_str())), "{said}");
}

fn every_call_has_its_own_key_and_one_payment(sdk: Sdk) {
    let (ledger, hapax) = start();
    let said = sdk.pay(hapax.address(), &Calls { count: 5, ..ONE_CALL });
    ledger.assert_each_once(5);
    for (said, entry) in said.iter().zip(ledger.all()) {
        assert_paid(said, &entry);
        assert_eq!(said["replayed"], Value::Null);
        assert_eq!((entry.path.as_str(), entry.attempt.as_deref()), ("/v1/payment_intents", Some("1")));
    }
}

#[test]
fn python_sdk_every_call_has_its_own_key_and_one_payment() {
    needs_clients!();
    every_call_has_its_own_key_and_one_payment(Sdk::Python);
}

#[test]
fn node_sdk_every_call_has_its_own_key_and_one_payment() {
    needs_clients!();
    every_call_has_its_own_key_and_one_payment(Sdk::Node);
}

fn an_answer_lost_on_its_way_to_the_client_is_replayed(sdk: Sdk) {
    let (ledger, hapax) = start();
    let line = TcpProxy::in_front_of(hapax.address());
    line.cut_after_server_bytes(0);
    let said = sdk.pay_once(line.address());
    assert_paid(&said, &only(&ledger));
    assert_eq!(said["replayed"], "true");
    assert_eq!(line.counts().connections, 2, "the SDK has retried by itself");
}

#[test]
fn python_sdk_an_answer_lost_on_its_way_to_the_client_is_replayed() {
    needs_clients!();
    an_answer_lost_on_its_way_to_the_client_is_replayed(Sdk::Python);
}

#[test]
fn node_sdk_an_answer_lost_on_its_way_to_the_client_is_replayed() {
    needs_clients!();
    an_answer_lost_on_its_way_to_the_client_is_replayed(Sdk::Node);
}

/// Neither SDK retries when the answer breaks off inside its body: the caller sees an error, after one payment.
fn half_an_answer_is_an_error_after_one_payment(sdk: Sdk) {
    let (ledger, hapax) = start();
    let line = TcpProxy::in_front_of(hapax.address());
    assert_eq!(sdk.pay_once(line.address())["ok"], true);
    line.cut_after_server_bytes(line.counts().server_bytes - 20);
    let said = sdk.pay_once(line.address());
    assert_eq!(said["ok"], false, "{said}");
    ledger.assert_each_once(2);
}

#[test]
fn python_sdk_half_an_answer_is_an_error_after_one_payment() {
    needs_clients!();
    half_an_answer_is_an_error_after_one_payment(Sdk::Python);
}

#[test]
fn node_sdk_half_an_answer_is_an_error_after_one_payment() {
    needs_clients!();
    half_an_answer_is_an_error_after_one_payment(Sdk::Node);
}

fn without_the_proxy_the_same_loss_charges_twice(sdk: Sdk) {
    let ledger = Ledger::start();
    let line = TcpProxy::in_front_of(ledger.address());
    line.cut_after_server_bytes(0);
    let said = sdk.pay_once(line.address());
    assert_eq!(said["ok"], true, "{said}");
    let all = ledger.all();
    assert_eq!(all.len(), 2, "charged twice: {all:#?}");
    assert_eq!(all[0].key, all[1].key);
}

#[test]
fn python_sdk_without_the_proxy_the_same_loss_charges_twice() {
    needs_clients!();
    without_the_proxy_the_same_loss_charges_twice(Sdk::Python);
}

#[test]
fn node_sdk_without_the_proxy_the_same_loss_charges_twice() {
    needs_clients!();
    without_the_proxy_the_same_loss_charges_twice(Sdk::Node);
}

/// The caller must get an error, not an object that is none: an SDK may take any JSON for a payment.
fn a_payment_whose_answer_the_upstream_lost_is_an_error_and_never_made_again(sdk: Sdk) {
    let (ledger, hapax) = start();
    ledger.next("*", Behaviour::Drop);
    let said = sdk.pay(hapax.address(), &Calls { retries: 2, ..ONE_CALL }).remove(0);
    assert_eq!((&said["ok"], &said["status"]), (&Value::from(false), &Value::from(409)), "{said}");
    assert!(said["body"].as_str().unwrap().contains("outcome-unknown"), "{said}");
    assert_eq!(only(&ledger).treated, "drop");
}

#[test]
fn python_sdk_a_payment_whose_answer_the_upstream_lost_is_an_error_and_never_made_again() {
    needs_clients!();
    a_payment_whose_answer_the_upstream_lost_is_an_error_and_never_made_again(Sdk::Python);
}

#[test]
fn node_sdk_a_payment_whose_answer_the_upstream_lost_is_an_error_and_never_made_again() {
    needs_clients!();
    a_payment_whose_answer_the_upstream_lost_is_an_error_and_never_made_again(Sdk::Node);
}

/// By default a complete 500 says that nothing was done, so the SDK's retry may try again, as the second attempt.
fn a_failure_that_the_upstream_reports_is_tried_again(sdk: Sdk) {
    let (ledger, hapax) = start();
    ledger.next("*", Behaviour::answer(500, "{\"error\":{\"type\":\"api_error\",\"message\":\"try again\"}}"));
    let said = sdk.pay_once(hapax.address());
    let all = ledger.all();
    let attempts: Vec<_> = all.iter().map(|entry| (entry.treated.as_str(), entry.attempt.as_deref())).collect();
    assert_eq!(attempts, [("answer 500", Some("1")), ("echo", Some("2"))]);
    assert_eq!(all[0].key, all[1].key);
    assert_paid(&said, &all[1]);
}

#[test]
fn python_sdk_a_failure_that_the_upstream_reports_is_tried_again() {
    needs_clients!();
    a_failure_that_the_upstream_reports_is_tried_again(Sdk::Python);
}

#[test]
fn node_sdk_a_failure_that_the_upstream_reports_is_tried_again() {
    needs_clients!();
    a_failure_that_the_upstream_reports_is_tried_again(Sdk::Node);
}

/// In Stripe's dialect a failure is recorded, too, and the SDK is told not to ask for it again.
fn in_its_own_dialect_a_failure_is_recorded(sdk: Sdk) {
    let ledger = Ledger::start();
    let hapax = Hapax::builder(env!("CARGO_BIN_EXE_hapax")).with_upstream(&ledger.url());
    let hapax = hapax.with_flag("--dialect", "stripe").start();
    ledger.next("*", Behaviour::answer(500, "{\"error\":{\"type\":\"api_error\",\"message\":\"no\"}}"));
    let said = sdk.pay_once(hapax.address());
    assert_eq!((&said["ok"], &said["status"]), (&Value::from(false), &Value::from(500)), "{said}");
    assert_eq!(only(&ledger).treated, "answer 500");
}

#[test]
fn python_sdk_in_its_own_dialect_a_failure_is_recorded() {
    needs_clients!();
    in_its_own_dialect_a_failure_is_recorded(Sdk::Python);
}

#[test]
fn node_sdk_in_its_own_dialect_a_failure_is_recorded() {
    needs_clients!();
    in_its_own_dialect_a_failure_is_recorded(Sdk::Node);
}

/// The SDK gives up waiting and asks again while the first attempt still runs: 409, and at last the recorded answer.
fn an_impatient_client_gets_the_answer_of_its_first_request(sdk: Sdk) {
    let (ledger, hapax) = start();
    ledger.on("*", Behaviour::Delay(Duration::from_millis(2500)));
    let said = sdk.pay(hapax.address(), &Calls { timeout_s: 1, ..ONE_CALL }).remove(0);
    assert_paid(&said, &only(&ledger));
    assert_eq!(said["replayed"], "true");
}

#[test]
fn python_sdk_an_impatient_client_gets_the_answer_of_its_first_request() {
    needs_clients!();
    an_impatient_client_gets_the_answer_of_its_first_request(Sdk::Python);
}

#[test]
fn node_sdk_an_impatient_client_gets_the_answer_of_its_first_request() {
    needs_clients!();
    an_impatient_client_gets_the_answer_of_its_first_request(Sdk::Node);
}

/// A script that posts with a key until it has an answer, over a line that loses the first one.
fn a_script_gets_the_recorded_answer(mut command: Command) {
    let (ledger, hapax) = start();
    let line = TcpProxy::in_front_of(hapax.address());
    line.cut_after_server_bytes(0);
    let key = tokens::name("key");
    let said = lines(command.arg(format!("http://{}", line.address())).arg(&key)).remove(0);
    ledger.assert_once(&key);
    assert_eq!((&said["status"], &said["replayed"]), (&Value::from(201), &Value::from("true")), "{said}");
    assert_eq!(said["id"], only(&ledger).id.as_str());
}

#[test]
fn requests_gets_the_recorded_answer() {
    needs_clients!();
    a_script_gets_the_recorded_answer(clients::python(target(), &script("requests_client.py")));
}

#[test]
fn fetch_gets_the_recorded_answer() {
    needs_clients!();
    a_script_gets_the_recorded_answer(clients::node(target(), &script("fetch_client.mjs")));
}

/// Head and body of curl's answer to a POST with this key and body.
fn curl(to: SocketAddr, key: &str, body: &str) -> String {
    let mut command = clients::program("curl");
    command.args(["-sS", "-i", "--retry", "5", "--retry-all-errors", "--max-time", "60", "--user", "curl:secret"]);
    command.args(["-H", &format!("Idempotency-Key: {key}"), "-d", body, &format!("http://{to}/charges")]);
    clients::run(&mut command).to_ascii_lowercase()
}

#[test]
fn curl_gets_the_recorded_answer_and_a_refusal_for_another_body() {
    needs_clients!();
    let (ledger, hapax) = start();
    let line = TcpProxy::in_front_of(hapax.address());
    line.cut_after_server_bytes(0);
    let answer = curl(line.address(), "k-1", "amount=1");
    assert!(answer.starts_with("http/1.1 201"), "{answer}");
    assert!(answer.contains("idempotent-replayed: true"), "{answer}");
    assert!(answer.contains(&only(&ledger).id), "{answer}");
    let quoted = curl(line.address(), "\"k-1\"", "amount=1");
    assert!(quoted.contains(&only(&ledger).id), "a quoted key is the same key: {quoted}");
    let other = curl(line.address(), "k-1", "amount=2");
    assert!(other.starts_with("http/1.1 422") && other.contains("urn:hapax:problem:key-reused"), "{other}");
    ledger.assert_once("k-1");
}

/// What h2load counted: 2xx, 4xx, and those without an answer.
fn h2load(to: SocketAddr, requests: u32, protocol: &[&str]) -> (u32, u32, u32) {
    let body = tempfile::NamedTempFile::new().expect("a file for the body");
    std::fs::write(body.path(), "amount=1").expect("the file is writable");
    let mut command = clients::program("h2load");
    command.args(protocol).args(["-n", &requests.to_string(), "-c", "10", "-H", "authorization: Bearer h2load"]);
    command.args(["-H", "idempotency-key: k-h2load", "-H", "content-type: text/plain"]);
    command.arg("-d").arg(body.path()).arg(format!("http://{to}/charges"));
    let text = clients::run(&mut command);
    let number = |before: &str, after: &str| -> u32 {
        let line = text.lines().find(|line| line.starts_with(before)).unwrap_or_else(|| panic!("{before}: {text}"));
        let words: Vec<&str> = line.split([' ', ',']).filter(|word| !word.is_empty()).collect();
        let at = words.iter().position(|word| *word == after).unwrap_or_else(|| panic!("{after}: {line}"));
        words[at - 1].parse().expect("a number")
    };
    let lost = number("requests:", "errored") + number("requests:", "timeout");
    (number("status codes:", "2xx"), number("status codes:", "4xx"), lost)
}

/// Duplicates at the same time, then replays, then over the other protocol.
#[test]
fn h2load_makes_one_payment_with_one_key_over_both_protocols() {
    needs_clients!();
    let (ledger, hapax) = start();
    let (paid, refused, lost) = h2load(hapax.address(), 500, &["-m", "10"]);
    ledger.assert_once("k-h2load");
    assert!(paid >= 1, "the first has its answer");
    assert_eq!((paid + refused, lost), (500, 0), "the others the same, or 409");
    assert_eq!(h2load(hapax.address(), 2000, &["-m", "10"]), (2000, 0, 0));
    assert_eq!(h2load(hapax.address(), 2000, &["--h1"]), (2000, 0, 0));
    ledger.assert_once("k-h2load");
}
