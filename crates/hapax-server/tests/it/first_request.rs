//! The request that the start screen prints: run by a shell as it is printed, it does what the screen says, whatever is
//! configured.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use hapax_testkit::hapax::Hapax;
use hapax_testkit::ledger::{Answer, Behaviour, Ledger};
use hapax_testkit::needs_clients;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};

const SECRET: &str = "a secret that only the issuer and hapax know";

fn start(ledger: &Ledger, config: &str) -> Hapax {
    let builder = Hapax::builder(env!("CARGO_BIN_EXE_hapax")).with_upstream(&ledger.url());
    let builder = if config.contains("scope =") { builder.with_scope("") } else { builder };
    // The screen is for people, and nobody reads along here.
    builder.with_config(config).with_env("HAPAX_LOG_FORMAT", "pretty").start()
}

/// All that it says at start.
fn screen(hapax: &Hapax) -> String {
    hapax.line_with("curl -i");
    hapax.stdout()
}

/// What the printed command prints, with that token in the variable that it may ask for.
fn run(hapax: &Hapax, token: &str) -> String {
    let printed = hapax.line_with("curl -i");
    let out = Command::new("sh").args(["-c", printed.trim()]).env("TOKEN", token).output().unwrap();
    String::from_utf8(out.stdout).unwrap()
}

#[track_caller]
fn replays(hapax: &Hapax, token: &str) {
    let said = screen(hapax);
    assert!(said.contains("; the second answer is the first one, replayed:"), "{said}");
    let (first, second) = (run(hapax, token), run(hapax, token));
    assert!(first.starts_with("HTTP/1.1 20"), "{said}\n{first}");
    assert!(!first.contains("idempotent-replayed"), "{first}");
    assert!(second.starts_with("HTTP/1.1 20") && second.contains("idempotent-replayed: true"), "{said}\n{second}");
}

#[test]
fn it_is_replayed_whatever_keys_and_requests_must_look_like() {
    needs_clients!();
    for config in [
        "[keys]\nsyntax = \"strict\"\n",
        "[keys]\nheaders = [\"X-Request-Key\", \"Idempotency-Key\"]\n",
        "[defaults]\nkey_format = \"uuid\"\n",
        "[defaults]\nkey_format = \"uuidv7\"\nkey_age_max = \"1h\"\n[keys]\nsyntax = \"strict\"\n",
        "[defaults]\nkey_length_min = 40\n",
        "[defaults]\nrequest_age_max = \"1m\"\nrequest_time_header = \"X-Time\"\n",
        "[defaults]\nrequired = false\n",
    ] {
        let ledger = Ledger::start();
        replays(&start(&ledger, config), "");
        assert_eq!(ledger.all().len(), 1, "{config}");
    }
}

#[test]
fn it_is_replayed_however_callers_are_told_apart() {
    needs_clients!();
    for config in [
        "scope = \"credential:X-Api-Key\"\n",
        "scope = [\"credential:cookie:a\", \"credential:cookie:b\", \"header:X-Tenant\"]\n",
        "scope = \"single\"\n",
    ] {
        let ledger = Ledger::start();
        replays(&start(&ledger, config), "");
    }
}

#[test]
fn it_takes_a_token_from_the_shell_where_tokens_are_verified() {
    needs_clients!();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("secret");
    fs::write(&file, SECRET).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let claims = serde_json::json!({ "sub": "alice", "exp": 4_000_000_000_u64 });
    let token = encode(&Header::new(Algorithm::HS256), &claims, &EncodingKey::from_secret(SECRET.as_bytes())).unwrap();
    let jwt = format!("[jwt]\nalgorithms = \"HS256\"\nkey_file = \"{}\"\n", file.display());
    for config in [
        format!("scope = \"jwt\"\n{jwt}"),
        format!("scope = [\"credential\", \"jwt\"]\n{jwt}token_in = \"header:X-Token\"\n"),
        format!("scope = [\"credential:cookie:a\", \"jwt\"]\n{jwt}token_in = \"cookie:t\"\n"),
    ] {
        let ledger = Ledger::start();
        let hapax = start(&ledger, &config);
        assert!(screen(&hapax).contains("With a token in TOKEN, try it twice;"), "{}", screen(&hapax));
        replays(&hapax, &token);
    }
}

#[test]
fn it_takes_a_token_from_the_shell_where_somebody_is_asked_and_shows_no_query() {
    needs_clients!();
    let doorman = Ledger::start();
    let headers = vec![("X-Tenant".to_owned(), "acme".to_owned())];
    doorman.on("*", Behaviour::Answer(Answer { status: 200, headers, ..Answer::default() }));
    let ask = format!("[ask]\nurl = \"{}/who?api_key=hunter2\"\n", doorman.url());
    for config in [
        format!("scope = \"ask\"\n{ask}"),
        format!("scope = \"ask\"\n{ask}pass_headers = [\"X-Api-Key\"]\n"),
        format!("scope = \"ask\"\n{ask}pass_headers = [\"Cookie\"]\n"),
        format!("scope = \"credential\"\n{ask}[defaults]\nreplay_check = \"ask\"\n"),
    ] {
        let ledger = Ledger::start();
        let hapax = start(&ledger, &config);
        assert!(!screen(&hapax).contains("hunter2"), "{}", screen(&hapax));
        replays(&hapax, "sesame");
    }
}

#[test]
fn it_goes_to_a_route_that_is_protected_where_not_all_are() {
    needs_clients!();
    for (config, goes_to, protects) in [
        (
            "[defaults]\nprotect = false\n[[route]]\nmethods = [\"PUT\"]\npath = \"/things/{id}\"\n",
            "-X PUT http://127.0.0.1:",
            "protects   only 1 route (`hapax routes` shows it)\n",
        ),
        (
            "[defaults]\nmode = \"observe\"\n[[route]]\npath = \"/pay\"\nmode = \"enforce\"\n[[route]]\npath = \"/b\"\n",
            "/pay -d",
            "protects   only 1 route (`hapax routes` shows it); other POST and PATCH are OBSERVED ONLY",
        ),
        (
            "[[route]]\npath = \"/\"\nprotect = false\n[[route]]\npath = \"/v1/{*rest}\"\n",
            "/v1/1 -d",
            "2 routes of their own",
        ),
    ] {
        let ledger = Ledger::start();
        let hapax = start(&ledger, config);
        let said = screen(&hapax);
        assert!(said.contains(goes_to) && said.contains(protects), "{said}");
        replays(&hapax, "");
        assert_eq!(ledger.all().len(), 1, "{config}");
    }
}

#[test]
fn it_promises_no_replay_where_there_is_none() {
    needs_clients!();
    for (config, outcome, protects) in [
        ("mode = \"observe\"\n", "; both run, and /metrics counts what would have been:", "OBSERVING ONLY"),
        (
            "[defaults]\nmode = \"observe\"\n",
            "; both run, and /metrics counts what would have been:",
            "protects   nothing; POST and PATCH are OBSERVED ONLY",
        ),
        ("[defaults]\nprotect = false\n", "; both run, for nothing is protected:", "protects   nothing\n"),
    ] {
        let ledger = Ledger::start();
        let hapax = start(&ledger, config);
        let said = screen(&hapax);
        assert!(said.contains(outcome) && said.contains(protects) && !said.contains("happen once"), "{said}");
        for _ in 0..2 {
            let answer = run(&hapax, "");
            assert!(answer.starts_with("HTTP/1.1 201") && !answer.contains("idempotent-replayed"), "{answer}");
        }
        assert_eq!(ledger.all().len(), 2, "{config}");
    }
}
