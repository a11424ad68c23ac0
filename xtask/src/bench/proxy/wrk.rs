//! The load generator: wrk, with a script that writes the requests and prints its counts as JSON.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use hapax_testkit::tokens;
use serde_json::Value;

/// Keys that replays go round.
pub(super) const REPLAY_KEYS: u32 = 2_000;

/// The body of every POST.
pub(super) const BODY: &str = r#"{"amount":100,"currency":"eur","customer":"cus_00000001"}"#;

/// A key of the replays; the script spells it in the same way.
pub(super) fn replay_key(number: u32) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Load {
    /// GETs.
    Get,
    /// POSTs, each with a new random key.
    First,
    /// POSTs with keys that were used before.
    Replay,
    /// Each of these in turn.
    Mixed,
}

impl Load {
    fn name(self) -> &'static str {
        match self {
            Load::Get => "get",
            Load::First => "first",
            Load::Replay => "replay",
            Load::Mixed => "mixed",
        }
    }
}

/// One run of the load generator.
pub(super) struct Run {
    pub(super) load: Load,
    pub(super) connections: u32,
    pub(super) length: Duration,
}

/// What it counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Counted {
    pub(super) requests: u64,
    pub(super) per_s: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
}

impl Run {
    /// Runs it.
    ///
    /// # Panics
    ///
    /// When an answer was missing or no success: such a run measured something else.
    pub(super) fn against(&self, address: SocketAddr) -> Counted {
        let mut script = tempfile::Builder::new().suffix(".lua").tempfile().expect("a file for the script");
        script.write_all(SCRIPT.as_bytes()).expect("the file is writable");
        let seed = u32::from_be_bytes(std::array::from_fn(|at| tokens::random()[at])) / 2;
        let mut wrk = Command::new("wrk");
        wrk.args(["-t1", &format!("-c{}", self.connections), &format!("-d{}s", self.length.as_secs().max(1))]);
        wrk.args(["--timeout", "30s", "-s"]).arg(script.path()).arg(format!("http://{address}/charges"));
        wrk.args(["--", self.load.name(), &seed.to_string(), BODY]);
        let output = wrk.output().expect("wrk is missing: install it");
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().find_map(|line| line.strip_prefix("counted "));
        let json = line.unwrap_or_else(|| panic!("wrk: {text}{}", String::from_utf8_lossy(&output.stderr)));
        counted(json).unwrap_or_else(|| panic!("{} requests failed: {json}", self.load.name()))
    }
}

/// `None` where something failed.
fn counted(json: &str) -> Option<Counted> {
    let json: Value = serde_json::from_str(json).ok()?;
    let number = |name: &str| json[name].as_f64();
    let failed = number("not_2xx")? + number("socket_errors")?;
    let requests = json["requests"].as_u64()?;
    let per_s = requests as f64 / (number("duration_us")? / 1e6);
    let (p50_ms, p99_ms) = (number("p50_us")? / 1000.0, number("p99_us")? / 1000.0);
    (failed == 0.0 && requests > 0).then_some(Counted { requests, per_s, p50_ms, p99_ms })
}

/// The requests are put together from three parts, so that the generator costs little. `wrk` calls `done` at the end.
const SCRIPT: &str = r#"
local mode, before, after, get
local turn = 0

function init(args)
  mode = args[1]
  math.randomseed(tonumber(args[2]))
  local body = args[3]
  local host = "Host: " .. wrk.host .. ":" .. wrk.port .. "\r\n"
  get = "GET /charges HTTP/1.1\r\n" .. host .. "\r\n"
  before = "POST /charges HTTP/1.1\r\n" .. host .. "Authorization: Bearer bench\r\nContent-Type: application/json\r\n" ..
    "Content-Length: " .. #body .. "\r\nIdempotency-Key: "
  after = "\r\n\r\n" .. body
end

local random, format = math.random, string.format

local function first()
  local key = format("%08x-%04x-4%03x-8%03x-%06x%06x", random(0, 0x7fffffff), random(0, 0xffff), random(0, 0xfff),
    random(0, 0xfff), random(0, 0xffffff), random(0, 0xffffff))
  return before .. key .. after
end

local function replay()
  return before .. format("00000000-0000-4000-8000-%012d", turn % 2000) .. after
end

function request()
  turn = turn + 1
  local kind = mode
  if mode == "mixed" then
    kind = ({ "get", "first", "replay" })[turn % 3 + 1]
  end
  if kind == "get" then return get end
  if kind == "first" then return first() end
  return replay()
end

function done(summary, latency)
  local errors = summary.errors
  io.write(format('counted {"requests":%d,"duration_us":%d,"p50_us":%.1f,"p99_us":%.1f,"not_2xx":%d,"socket_errors":%d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), errors.status,
    errors.connect + errors.read + errors.write + errors.timeout))
end
"#;

#[cfg(test)]
mod tests {
    use super::{REPLAY_KEYS, SCRIPT, counted, replay_key};

    const LINE: &str =
        r#"{"requests":1000,"duration_us":500000,"p50_us":1500.0,"p99_us":9000.0,"not_2xx":0,"socket_errors":0}"#;

    #[test]
    fn a_rate_is_requests_by_time() {
        let counted = counted(LINE).unwrap();
        assert_eq!((counted.per_s, counted.p50_ms, counted.p99_ms), (2000.0, 1.5, 9.0));
    }

    #[test]
    fn a_run_with_a_failure_does_not_count() {
        assert_eq!(counted(&LINE.replace("\"not_2xx\":0", "\"not_2xx\":1")), None);
        assert_eq!(counted(&LINE.replace("\"socket_errors\":0", "\"socket_errors\":2")), None);
        assert_eq!(counted(&LINE.replace("1000", "0")), None);
    }

    #[test]
    fn the_script_goes_round_the_keys_that_were_primed() {
        assert_eq!(replay_key(7), "00000000-0000-4000-8000-000000000007");
        assert!(SCRIPT.contains(&format!("turn % {REPLAY_KEYS})")));
    }
}
