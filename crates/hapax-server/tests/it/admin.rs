//! The admin listener over real sockets, the metrics it serves, and the logs: what operators see, and what they must not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hapax_server::abuse::breaker::Breaker;
use hapax_server::abuse::callers::{Callers, What};
use hapax_server::admin::{self, Access, CONNECTIONS_MAX, Check, Readiness, Role, State};
use hapax_server::desk::view::{
    AuditView, ChangeView, Filter, PageView, PurgeRequest, PurgeView, RecordView, ResolutionRequest, StatusView,
};
use hapax_server::desk::{Desk, DeskError, DeskErrorKind};
use hapax_server::logs::{self, Format, Style};
use hapax_server::telemetry::{self, ALL, Kind};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Answers with these checks; `None` never answers.
struct Fixed(Option<Vec<Check>>);

impl Readiness for Fixed {
    async fn checks(&self) -> Vec<Check> {
        match &self.0 {
            Some(checks) => checks.clone(),
            None => std::future::pending().await,
        }
    }
}

/// A desk where nobody sits.
struct Nobody;

impl Desk for Nobody {
    async fn status(&self) -> Result<StatusView, DeskError> {
        away()
    }

    async fn list(&self, _: &Filter, _: Option<&str>, _: u32) -> Result<PageView, DeskError> {
        std::future::pending().await
    }

    async fn show(&self, _: &str, _: bool) -> Result<RecordView, DeskError> {
        away()
    }

    async fn resolve(&self, _: &ResolutionRequest, _: &str) -> Result<ChangeView, DeskError> {
        away()
    }

    async fn purge(&self, _: &PurgeRequest, _: &str) -> Result<PurgeView, DeskError> {
        away()
    }

    async fn audit(&self, _: Option<&str>, _: Option<u64>, _: u32) -> Result<AuditView, DeskError> {
        away()
    }
}

fn away<T>() -> Result<T, DeskError> {
    Err(DeskError::new(DeskErrorKind::Unavailable, "The store cannot be reached."))
}

struct Admin {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    served: JoinHandle<std::io::Result<()>>,
}

fn state(checks: Option<Vec<Check>>) -> State<Fixed, Nobody> {
    State {
        readiness: Fixed(checks),
        metrics: recorded(telemetry::begin),
        callers: Arc::new(Callers::new()),
        access: Arc::default(),
        hosts: Vec::new(),
        desk: Nobody,
    }
}

/// What a recorder of its own saw while `emit` ran.
fn recorded(emit: impl FnOnce()) -> PrometheusHandle {
    let recorder = telemetry::builder().unwrap().build_recorder();
    let handle = recorder.handle();
    ::metrics::with_local_recorder(&recorder, emit);
    handle
}

async fn serve(state: State<Fixed, Nobody>, bind: &str) -> Admin {
    let listener = TcpListener::bind(bind).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (stop, stopped) = oneshot::channel();
    let shutdown = async { drop(stopped.await) };
    let served = tokio::spawn(admin::serve(listener, Arc::new(state), shutdown));
    Admin { address: SocketAddr::from(([127, 0, 0, 1], port)), stop, served }
}

async fn serve_ready(bind: &str) -> Admin {
    serve(state(Some(vec![Check::passed("store", "sqlite")])), bind).await
}

struct Answer {
    status: u16,
    /// In lower case.
    head: String,
    body: String,
}

impl Admin {
    async fn get(&self, target: &str, fields: &str) -> Answer {
        self.send(&format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n")).await
    }

    async fn send(&self, request: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = Vec::new();
        // A reset after an early refusal is as good as an end.
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut text)).await.expect("an answer, and its end");
        let text = String::from_utf8(text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head in {text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }
}

#[tokio::test]
async fn livez_and_healthz_answer_whatever_the_store_does() {
    let admin = serve(state(None), "127.0.0.1:0").await;
    for target in ["/livez", "/healthz", "/livez?x=1"] {
        let answer = admin.get(target, "").await;
        assert_eq!((answer.status, &*answer.body), (200, "alive\n"));
        assert!(answer.head.contains("cache-control: no-store"), "{}", answer.head);
    }
}

#[tokio::test]
async fn readyz_says_ready_or_what_is_not() {
    let ready = serve_ready("127.0.0.1:0").await;
    let answer = ready.get("/readyz", "").await;
    assert_eq!((answer.status, &*answer.body), (200, "ready\n"));

    let checks = vec![
        Check::passed("clock", "steady"),
        Check::failed("store", "refused\nfor a reason"),
        Check::failed("draining", "since a moment"),
    ];
    let not_ready = serve(state(Some(checks)), "127.0.0.1:0").await;
    let answer = not_ready.get("/readyz", "").await;
    assert_eq!((answer.status, &*answer.body), (503, "not ready: store, draining\n"));
    let answer = not_ready.get("/readyz?verbose", "").await;
    let expected = "[+] clock: steady\n[-] store: refused\\u000afor a reason\n[-] draining: since a moment\n\
        not ready: store, draining\n";
    assert_eq!((answer.status, &*answer.body), (503, expected));
}

#[tokio::test]
async fn other_machines_are_told_what_is_wrong_only_with_a_token() {
    let checks = || Some(vec![Check::passed("clock", "steady"), Check::failed("store", "db-7 refused alice")]);
    let plain = (503, "not ready: store\n".to_owned());
    let verbose = (503, "[+] clock: steady\n[-] store: db-7 refused alice\nnot ready: store\n".to_owned());
    let ask = async |state: State<Fixed, Nobody>, bind: &str, fields: &str| {
        let answer = serve(state, bind).await.get("/readyz?verbose", fields).await;
        (answer.status, answer.body)
    };
    let with_token = || {
        let state = state(checks());
        state.access.store(Arc::new(Access::new(false).with("board", Role::Viewer, "looks-only-1234567")));
        state
    };
    assert_eq!(ask(state(checks()), "127.0.0.1:0", "").await, verbose);
    assert_eq!(ask(with_token(), "127.0.0.1:0", "").await, verbose);
    assert_eq!(ask(state(checks()), "0.0.0.0:0", "").await, plain, "nobody has a token");
    assert_eq!(ask(with_token(), "0.0.0.0:0", "").await, plain);
    let token = "Authorization: Bearer looks-only-1234567\r\n";
    assert_eq!(ask(with_token(), "0.0.0.0:0", token).await, verbose);
}

#[tokio::test]
async fn checks_that_hang_are_not_ready() {
    let admin = serve(state(None), "127.0.0.1:0").await;
    let answer = admin.get("/readyz?verbose=1", "").await;
    assert_eq!(answer.status, 503);
    assert!(answer.body.contains("[-] checks: no answer within 2 s"), "{}", answer.body);
}

#[tokio::test]
async fn other_paths_and_methods_are_refused_as_problems() {
    let admin = serve_ready("127.0.0.1:0").await;
    for target in ["/", "/livez/", "/LIVEZ", "/metrics%00", "//metrics", "/debug/pprof", "*"] {
        let answer = admin.get(target, "").await;
        assert_eq!(answer.status, 404, "{target}");
        assert!(answer.head.contains("content-type: application/problem+json"), "{}", answer.head);
        let problem: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!((&problem["status"], &problem["title"]), (&404.into(), &"Not Found".into()));
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"] {
        let request = format!("{method} /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let answer = admin.send(&request).await;
        assert_eq!(answer.status, 405, "{method}");
        assert!(answer.head.contains("allow: get, head"), "{}", answer.head);
    }
}

#[tokio::test]
async fn head_is_get_without_the_body() {
    let admin = serve_ready("127.0.0.1:0").await;
    let answer = admin.send("HEAD /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    assert_eq!((answer.status, &*answer.body), (200, ""));
    assert!(answer.head.contains("content-length: 6"), "{}", answer.head);
}

#[tokio::test]
async fn a_rebound_name_reads_nothing_from_a_loopback_listener() {
    let mut known = state(Some(Vec::new()));
    known.hosts.push("hapax.internal".to_owned());
    let admin = serve(known, "127.0.0.1:0").await;
    for (host, status) in [
        ("Host: evil.example\r\n", 421),
        ("Host: evil.example:9180\r\n", 421),
        ("", 421),
        ("Host: localhost\r\nHost: evil.example\r\n", 421),
        ("Host: hapax.internal:9180\r\n", 200),
        ("Host: 127.0.0.1\r\n", 200),
    ] {
        let answer = admin.send(&format!("GET /metrics HTTP/1.1\r\n{host}Connection: close\r\n\r\n")).await;
        assert_eq!(answer.status, status, "{host}");
        assert_eq!(answer.body.contains("hapax_"), status == 200, "{host}");
    }
    let absolute = "GET http://evil.example/metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert_eq!(admin.send(absolute).await.status, 421);
}

#[tokio::test]
async fn callers_are_listed_by_digest() {
    let state = state(Some(Vec::new()));
    state.callers.count("tenant-canary", What::Duplicate);
    let admin = serve(state, "127.0.0.1:0").await;
    let answer = admin.get("/callers", "").await;
    assert_eq!(answer.status, 200);
    let listed: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    let expected = serde_json::json!({ "callers": [{
        "caller": logs::digest_of_caller("tenant-canary"),
        "duplicates": 1, "mismatches": 0, "refusals": 0, "uncertain": 0,
    }]});
    assert_eq!(listed, expected);
    assert_eq!(admin.get("/callers?n=0", "").await.body, r#"{"callers":[]}"#);
    for n in ["1000000000", "-1", "x", "", "99999999999999999999999"] {
        assert_eq!(admin.get(&format!("/callers?n={n}"), "").await.status, 400, "{n}");
    }
}

#[tokio::test]
async fn callers_need_the_token_where_there_is_one() {
    for bind in ["127.0.0.1:0", "0.0.0.0:0"] {
        let closed = state(Some(Vec::new()));
        closed.access.store(Arc::new(Access::new(false).with("board", Role::Viewer, "s3cret-canary")));
        let admin = serve(closed, bind).await;
        for fields in ["", "Authorization: Bearer wrong\r\n", "Authorization: Basic s3cret-canary\r\n"] {
            let answer = admin.get("/callers", fields).await;
            assert_eq!(answer.status, 401);
            assert!(answer.head.contains("www-authenticate: bearer"), "{}", answer.head);
            assert!(!answer.body.contains("canary"), "{}", answer.body);
        }
        assert_eq!(admin.get("/callers", "Authorization: Bearer s3cret-canary\r\n").await.status, 200);
        assert_eq!(admin.get("/metrics", "").await.status, 200, "a scraper needs none");
    }
}

#[tokio::test]
async fn callers_are_closed_to_other_machines_without_a_token() {
    let admin = serve_ready("0.0.0.0:0").await;
    assert_eq!(admin.get("/callers", "").await.status, 403);
    assert_eq!(admin.get("/callers", "Authorization: Bearer \r\n").await.status, 403);
    let by_name = "GET /readyz HTTP/1.1\r\nHost: hapax.svc\r\nConnection: close\r\n\r\n";
    assert_eq!(admin.send(by_name).await.status, 200, "a name is fine where it is not loopback");
}

#[tokio::test]
async fn probes_are_answered_while_the_api_is_busy() {
    let admin = Arc::new(serve_ready("127.0.0.1:0").await);
    let mut waiting = Vec::new();
    // The desk never answers a list; each of these holds a turn.
    loop {
        let mut stream = TcpStream::connect(admin.address).await.unwrap();
        stream.write_all(b"GET /v1/keys HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        waiting.push(stream);
        let answer = admin.get("/v1/status", "").await;
        assert_eq!(answer.status, 503, "the store is away, or nobody has a turn");
        if answer.body.contains("Too many") {
            assert!(answer.head.contains("retry-after: 1"), "{}", answer.head);
            break;
        }
        assert!(waiting.len() < CONNECTIONS_MAX / 2, "places are left for others");
    }
    assert_eq!(admin.get("/livez", "").await.status, 200);
    assert_eq!(admin.get("/metrics", "").await.status, 200);
    drop(waiting);
    let patient = async { while admin.get("/v1/status", "").await.body.contains("Too many") {} };
    tokio::time::timeout(PATIENCE, patient).await.expect("turns are given back");
}

#[tokio::test]
async fn heads_that_are_too_large_are_refused() {
    let admin = serve_ready("127.0.0.1:0").await;
    let long = format!("X-Long: {}\r\n", "a".repeat(10_000));
    assert_eq!(admin.get("/livez", &long).await.status, 431);
    let many: String = (0..100).map(|nth| format!("X-{nth}: a\r\n")).collect();
    assert_eq!(admin.get("/livez", &many).await.status, 431);
    assert_eq!(admin.get("/livez", "").await.status, 200, "others are served");
}

#[tokio::test]
async fn a_body_that_nobody_asked_for_does_not_put_the_connection_out_of_step() {
    let admin = serve_ready("127.0.0.1:0").await;
    let hidden = "GET /callers HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let request = format!(
        "GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{hidden}\
        HEAD /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        hidden.len()
    );
    let answer = admin.send(&request).await;
    assert_eq!(answer.status, 200);
    assert!(answer.body.starts_with("alive\n") && !answer.body.contains("callers"), "{}", answer.body);
    let smuggled = format!(
        "GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\nContent-Length: 0\r\n\r\n{hidden}",
        hidden.len()
    );
    assert_eq!(admin.send(&smuggled).await.status, 400);
}

#[tokio::test]
async fn silent_connections_hold_all_places_only_for_a_moment() {
    let admin = serve_ready("127.0.0.1:0").await;
    let began = Instant::now();
    let mut silent = Vec::new();
    for nth in 0..CONNECTIONS_MAX {
        let mut stream = TcpStream::connect(admin.address).await.unwrap();
        // Half of them begin a head and never end it.
        if nth % 2 == 0 {
            stream.write_all(b"GET /livez HT").await.unwrap();
        }
        silent.push(stream);
    }
    // Accepted in order, so this one comes after all of them; the time limit of heads makes room for it.
    assert_eq!(admin.get("/livez", "").await.status, 200);
    for stream in &mut silent {
        let mut rest = Vec::new();
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("closed by the server");
    }
    // Five seconds, and time to spare on a busy machine; hyper's own limit is 30.
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[tokio::test]
async fn shutdown_ends_it_in_spite_of_an_open_connection() {
    let admin = serve_ready("127.0.0.1:0").await;
    let mut open = TcpStream::connect(admin.address).await.unwrap();
    open.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut first = [0; 12];
    open.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    let began = Instant::now();
    admin.stop.send(()).unwrap();
    tokio::time::timeout(PATIENCE, admin.served).await.unwrap().unwrap().unwrap();
    assert!(began.elapsed() < Duration::from_secs(3), "an idle connection is not waited for: {:?}", began.elapsed());
    assert!(TcpStream::connect(admin.address).await.is_err());
}

/// Series by metric, after a strict reading of the text format.
fn parsed(text: &str) -> BTreeMap<String, Vec<(String, f64)>> {
    let (mut types, mut helps) = (BTreeMap::new(), BTreeSet::new());
    let mut series: BTreeMap<String, Vec<(String, f64)>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(help) = line.strip_prefix("# HELP ") {
            assert!(helps.insert(help.split_once(' ').unwrap().0.to_owned()), "described twice: {line}");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(types.insert(name.to_owned(), kind.to_owned()).is_none(), "typed twice: {line}");
        } else {
            let (name_and_labels, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = name_and_labels.split_once('{').unwrap_or((name_and_labels, "}"));
            assert!(labels.ends_with('}'), "{line}");
            let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let base = histogram.filter(|base| types.get(*base).is_some_and(|kind| kind == "histogram"));
            let base = base.unwrap_or(name);
            assert!(types.contains_key(base) && helps.contains(base), "no type or help before {line}");
            series.entry(base.to_owned()).or_default().push((name_and_labels.to_owned(), value.parse().unwrap()));
        }
    }
    for (name, rows) in &series {
        let distinct: BTreeSet<&String> = rows.iter().map(|(row, _)| row).collect();
        assert_eq!(distinct.len(), rows.len(), "a series of {name} is there twice");
    }
    series
}

/// Emits every metric once, as the proxy would.
fn emit_everything() {
    telemetry::begin();
    for metric in ALL {
        let labels: Vec<(&str, &str)> = metric.labels.iter().map(|(name, _)| (*name, "example")).collect();
        match metric.kind {
            Kind::Counter => ::metrics::counter!(metric.name, &labels).increment(1),
            Kind::Gauge => ::metrics::gauge!(metric.name, &labels).set(1.0),
            Kind::Histogram(_) => ::metrics::histogram!(metric.name, &labels).record(0.004),
        }
    }
    telemetry::set_durability("sqlite", "disk", Some("none"));
}

#[tokio::test]
async fn a_scrape_is_well_formed_and_whole() {
    let mut state = state(Some(Vec::new()));
    state.metrics = recorded(emit_everything);
    let admin = serve(state, "127.0.0.1:0").await;
    let answer = admin.get("/metrics", "").await;
    assert!(answer.head.contains("content-type: text/plain; version=0.0.4"), "{}", answer.head);
    let series = parsed(&answer.body);
    let names: BTreeSet<&str> = series.keys().map(String::as_str).collect();
    assert_eq!(names, ALL.iter().map(|metric| metric.name).collect());
    let has = |row: &str| series.values().flatten().any(|(given, _)| given == row);
    assert!(has(r#"hapax_claims_total{outcome="replayed"}"#));
    assert!(has(&format!("hapax_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"))));
    assert!(has(r#"hapax_durability_info{store="sqlite",level="disk"}"#));
    assert!(has(r#"hapax_store_seconds_bucket{op="example",le="0.005"}"#), "buckets, not quantiles");
    // Left for `promtool check metrics`.
    std::fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("scrape.txt"), &answer.body).unwrap();
}

#[test]
fn what_can_begin_at_zero_does() {
    let series = parsed(&recorded(telemetry::begin).render());
    for metric in ALL {
        let known_values = metric.labels.iter().all(|(_, values)| !values.is_empty());
        if known_values && !matches!(metric.kind, Kind::Histogram(_)) {
            let expected: usize = metric.labels.iter().map(|(_, values)| values.len()).product();
            let rows = &series[metric.name];
            assert_eq!(rows.len(), expected, "{}", metric.name);
            assert!(rows.iter().all(|(_, value)| *value == 0.0), "{}", metric.name);
        }
    }
}

#[test]
fn a_fresh_node_shows_every_refusal_and_every_reason_to_pass() {
    let rendered = recorded(telemetry::begin).render();
    for row in ["hapax_refused_total{reason=\"key-missing\"} 0", "hapax_passed_through_total{why=\"no-key\"} 0"] {
        assert!(rendered.contains(row), "{row}: {rendered}");
    }
}

#[test]
fn the_breaker_shows_in_its_gauge() {
    let handle = recorded(|| {
        telemetry::begin();
        let breaker = Breaker::new(1, PATIENCE);
        breaker.admit().unwrap().report(false);
        assert!(breaker.admit().is_err());
    });
    assert!(handle.render().contains("\nhapax_breaker_open 1\n"), "{}", handle.render());
}

#[test]
fn a_second_recorder_is_refused() {
    telemetry::install().unwrap();
    assert!(telemetry::install().is_err());
}

#[test]
fn names_and_labels_follow_the_rules() {
    for metric in ALL {
        assert!(metric.name.starts_with("hapax_"), "{}", metric.name);
        assert_eq!(metric.name.ends_with("_total"), matches!(metric.kind, Kind::Counter), "{}", metric.name);
        for (label, _) in metric.labels {
            let telling = ["key", "tenant", "scope", "caller", "path", "host", "body", "request_id"];
            assert!(!telling.contains(label), "{} must not be split by {label}", metric.name);
        }
    }
}

#[test]
fn the_documentation_lists_the_same_metrics() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("docs/metrics.md")).unwrap();
    let table = text.lines().filter(|line| line.starts_with("| `hapax_"));
    let documented: Vec<[String; 3]> = table
        .map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            [cells[1].replace('`', ""), cells[2].to_owned(), cells[3].replace('`', "")]
        })
        .collect();
    let listed: Vec<[String; 3]> = ALL
        .iter()
        .map(|metric| {
            let kind = match metric.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram(_) => "histogram",
            };
            let labels: Vec<&str> = metric.labels.iter().map(|(name, _)| *name).collect();
            [metric.name.to_owned(), kind.to_owned(), labels.join(", ")]
        })
        .collect();
    assert_eq!(documented, listed);
    for value in ALL.iter().flat_map(|metric| metric.labels).flat_map(|(_, values)| *values) {
        assert!(text.contains(&format!("`{value}`")), "docs/metrics.md does not explain the value `{value}`");
    }
}

/// The names given to the facade's macros in a source text.
fn emitted(source: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for emits in ["counter!(", "gauge!(", "histogram!("] {
        for (at, _) in source.match_indices(emits) {
            let argument = source[at + emits.len()..].trim_start();
            names.extend(argument.strip_prefix('"').and_then(|rest| rest.split('"').next()));
        }
    }
    names
}

fn rust_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_crate_emits_a_metric_that_is_not_listed() {
    assert_eq!(emitted("gauge!(\n \"a\").set(1.0); metrics::counter!(\"b\", \"c\" => d)"), ["b", "a"]);
    let mut files = Vec::new();
    for package in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap() {
        rust_files(&package.unwrap().path().join("src"), &mut files);
    }
    assert!(files.len() > 50, "the sources are where they were");
    for file in files {
        for name in emitted(&std::fs::read_to_string(&file).unwrap()) {
            assert!(ALL.iter().any(|metric| metric.name == name), "{} emits {name}", file.display());
        }
    }
}

/// The lines that `emit` logs.
fn logged(style: Style, filter: &str, emit: impl FnOnce()) -> String {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&lines);
    let sink = Arc::new(move |line: &[u8]| kept.lock().unwrap().extend_from_slice(line));
    tracing::subscriber::with_default(logs::subscriber(style, filter, sink).unwrap(), emit);
    let lines = std::mem::take(&mut *lines.lock().unwrap());
    String::from_utf8(lines).unwrap()
}

const STYLES: [Style; 3] = [Style::Plain, Style::Coloured, Style::Json];

#[test]
fn no_secret_reaches_the_log_through_what_we_log() {
    let store = hapax_postgres::Options::new("postgres://hapax:canary-1@localhost/hapax");
    let token = Access::new(false).with("ops", Role::Operator, "canary-2");
    for style in STYLES {
        let text = logged(style, "trace", || {
            tracing::info!(?store, ?token, "started");
            let callers = Callers::new();
            callers.count("canary-3", What::Mismatch);
            tracing::info!(?callers, "busy");
            let breaker = Breaker::new(1, PATIENCE);
            breaker.admit().unwrap().report(false);
            tracing::info!(?breaker, "broken");
        });
        assert_eq!(text.lines().count(), 5, "{text}");
        assert!(text.contains("started") && text.contains("uses known keys"), "{text}");
        assert!(!text.contains("canary"), "{text}");
    }
}

#[test]
fn no_filter_brings_out_what_drivers_log_about_requests() {
    for filter in ["trace", "tokio_postgres=trace,h2=trace,hapaxes=trace,info", "debug"] {
        let text = logged(Style::Json, filter, || {
            tracing::debug!(target: "tokio_postgres::query", "executing with parameters: canary");
            tracing::trace!(target: "h2::codec", "authorization: canary");
            tracing::debug!(target: "hapaxes", "canary");
            tracing::info!(target: "h2", "kept");
        });
        assert!(!text.contains("canary") && text.contains("kept"), "{filter}: {text}");
    }
    let ours = logged(Style::Json, "debug", || tracing::debug!(target: "hapax::http", "kept"));
    assert!(ours.contains("kept"), "{ours}");
}

/// Set for a child process that logs to its real standard error.
const CHILD: &str = "HAPAX_TEST_LOGS_CHILD";

#[test]
fn a_process_without_a_terminal_logs_json_to_standard_error() {
    if std::env::var_os(CHILD).is_some() {
        logs::init(Format::Auto, "info", None).unwrap();
        tracing::info!("begun");
        let again = logs::init(Format::Auto, "info", None).unwrap_err();
        tracing::warn!(%again, "refused");
        return;
    }
    let name = "admin::a_process_without_a_terminal_logs_json_to_standard_error";
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    let output = child.args(["--exact", name, "--nocapture"]).env(CHILD, "1").output().unwrap();
    assert!(output.status.success());
    let lines = String::from_utf8(output.stderr).unwrap();
    let events: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.len(), 2, "{lines}");
    assert_eq!((&events[0]["message"], &events[1]["message"]), (&"begun".into(), &"refused".into()));
    assert!(!String::from_utf8(output.stdout).unwrap().contains("begun"));
}

const HOSTILE: &str = "a\nlevel=ERROR forged\r\x1b[31mred\x1b]0;title\x07\u{9b}2J\u{7f}\0\u{2028}\u{202e}b\\n\"";

fn is_harmful(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{2028}' | '\u{202e}')
}

#[test]
fn a_value_cannot_forge_a_line_or_touch_the_terminal() {
    for style in [Style::Plain, Style::Json] {
        let text = logged(style, "info", || {
            let _span = tracing::info_span!("request", from = HOSTILE).entered();
            tracing::info!(plain = HOSTILE, shown = %HOSTILE, debugged = ?HOSTILE, "{HOSTILE}");
        });
        let line = text.strip_suffix('\n').expect("a line feed at its end");
        assert!(!line.chars().any(is_harmful), "{line:?}");
        if style == Style::Json {
            let event: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(event["plain"], HOSTILE, "escaped, not lost");
        }
    }
}

#[test]
fn only_the_colour_of_the_level_is_ours() {
    let text = logged(Style::Coloured, "info", || tracing::error!(value = %HOSTILE, "{HOSTILE}"));
    let line = text.strip_prefix("\x1b[31m").unwrap().strip_suffix("\x1b[0m\n").unwrap();
    assert!(!line.chars().any(is_harmful), "{line:?}");
    assert!(line.contains("ERROR") && line.contains("forged"), "{line}");
}

#[test]
fn json_lines_have_utc_times_flat_fields_and_the_request() {
    let text = logged(Style::Json, "info,hapax=debug", || {
        let _span = tracing::info_span!("request", request_id = "r-1").entered();
        tracing::debug!("not for this target");
        tracing::warn!(status = 409, "refused");
    });
    let event: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&event["level"], &event["status"]), (&"WARN".into(), &409.into()));
    assert_eq!((&event["message"], &event["span"]["request_id"]), (&"refused".into(), &"r-1".into()));
    assert!(event["timestamp"].as_str().unwrap().ends_with('Z'), "{text}");
}

#[test]
fn a_filter_or_format_that_is_none_is_refused() {
    for filter in ["loud", "hapax=loud", "a=b=c", "info,debugg", ""] {
        let error = logs::subscriber(Style::Json, filter, Arc::new(|_: &[u8]| {})).err();
        assert!(error.is_some_and(|error| error.to_string().contains(filter)), "{filter}");
    }
    for filter in ["info", "OFF", "info,hapax=debug", "warn, hapax[request]=info"] {
        assert!(logs::subscriber(Style::Json, filter, Arc::new(|_: &[u8]| {})).is_ok(), "{filter}");
    }
    assert_eq!("json".parse::<Format>().unwrap(), Format::Json);
    let error = "yaml".parse::<Format>().unwrap_err().to_string();
    assert_eq!(error, "`yaml` is no format of logs; use auto, pretty or json");
}

#[test]
fn a_caller_is_logged_as_the_start_of_its_sha256() {
    // printf %s order-1 | sha256sum | cut -c1-12
    assert_eq!(logs::digest_of_caller("order-1"), "0bafe22156d2");
    assert_ne!(logs::digest_of_caller("order-1"), logs::digest_of_caller("order-2"));
}

#[test]
fn request_ids_are_short_and_never_the_same() {
    let ids: BTreeSet<String> = (0..100_000).map(|_| hapax_proxy::request_id::next().to_string()).collect();
    assert_eq!(ids.len(), 100_000);
    assert!(ids.iter().all(|id| id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit())));
}
