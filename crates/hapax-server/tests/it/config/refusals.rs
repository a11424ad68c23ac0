//! Bad input 87 to 102, and what else is refused outside of policies and scopes.

use crate::config::setup::{Setup, file, problem, without_file};

#[test]
fn an_unknown_key_is_refused_with_its_line_and_what_was_meant() {
    assert_eq!(
        problem("[defaults]\nretentoin = \"1h\"\n"),
        "hapax.toml:2: unknown key `retentoin` in [defaults]; did you mean `retention`?"
    );
    assert_eq!(
        problem("[[route]]\npath = \"/a\"\nmethod = \"POST\"\n"),
        "hapax.toml:3: unknown key `method` in [[route]]; did you mean `methods`?"
    );
    assert_eq!(
        problem("[sever]\nfrom = \"127.0.0.1:1\"\n"),
        "hapax.toml:1: unknown key `sever` at the top; did you mean `server`?"
    );
}

#[test]
fn a_key_in_the_wrong_section_is_refused_with_the_right_one() {
    assert_eq!(
        problem("retention = \"1h\"\n"),
        "hapax.toml:1: unknown key `retention` at the top; did you mean `defaults.retention`?"
    );
    assert_eq!(
        problem("[server]\nanswer_timeout = \"1s\"\n"),
        "hapax.toml:2: unknown key `answer_timeout` in [server]; did you mean `upstream.answer_timeout`?"
    );
}

#[test]
fn a_key_by_the_name_it_has_elsewhere_is_refused_with_the_one_it_has_here() {
    for (text, key, place, meant) in [
        ("listen = \"x\"", "listen", "at the top", "server.from"),
        ("[server]\nport = 1", "port", "in [server]", "server.from"),
        ("[defaults]\nttl = 1", "ttl", "in [defaults]", "retention"),
        ("[[route]]\npath = \"/a\"\nttl = 1", "ttl", "in [[route]]", "retention"),
        ("[[route]]\npath = \"/a\"\nretention_time = 1", "retention_time", "in [[route]]", "retention"),
    ] {
        let line = text.lines().count();
        let why = format!("hapax.toml:{line}: unknown key `{key}` {place}; did you mean `{meant}`?");
        assert_eq!(problem(text), why);
    }
}

#[test]
fn every_other_name_leads_to_a_key() {
    let keys = hapax_server::config::keys();
    for name in ["to", "target", "from", "listen", "bind", "port", "address", "dsn", "database_url", "ttl", "expiry"] {
        let found = problem(&format!("[log]\n{name} = 1\n"));
        assert!(keys.iter().any(|key| found.ends_with(&format!("did you mean `{key}`?"))), "{found}");
    }
}

#[test]
fn an_unknown_key_that_is_like_no_other_is_refused_with_where_to_look() {
    assert_eq!(
        problem("[log]\ncolour_of_the_sky = 1\n"),
        "hapax.toml:2: unknown key `colour_of_the_sky` in [log]; `hapax config default` lists every key"
    );
}

#[test]
fn every_section_refuses_keys_it_does_not_know() {
    let sections =
        ["server", "cors", "upstream", "store", "keys", "jwt", "ask", "fingerprint", "admin", "log", "defaults"];
    for section in sections {
        let found = problem(&format!("[{section}]\nqqqqqqqqqq = 1\n"));
        assert!(found.starts_with(&format!("hapax.toml:2: unknown key `qqqqqqqqqq` in [{section}]")), "{found}");
    }
}

#[test]
fn a_wrong_type_is_refused_with_what_to_write() {
    for (text, why) in [
        (
            "[defaults]\nretention = 30",
            "`defaults.retention` must be a duration with a unit, such as \"30s\" or \"24h\", not 30",
        ),
        ("[defaults]\nrequired = \"yes\"", "`defaults.required` must be true or false, not \"yes\""),
        ("[server]\nfrom = 8080", "`server.from` must be an address and a port, such as \"127.0.0.1:8080\", not 8080"),
        (
            "[server]\nconnections_max = \"many\"",
            "`server.connections_max` must be a whole number above 0, not \"many\"",
        ),
        ("[server]\nconnections_max = 0", "`server.connections_max` must be a whole number above 0, not 0"),
        (
            "[server]\nheader_bytes_max = \"32\"",
            "`server.header_bytes_max` must be a size with a unit, such as \"64KiB\" or \"1MiB\", not \"32\"",
        ),
        (
            "[server]\ntrusted_peers = [\"10.1.2.3/8\"]",
            "`server.trusted_peers` must be a list, each item a network such as \"10.0.0.0/8\", or one address, not \
             \"10.1.2.3/8\"",
        ),
        (
            "[log]\nformat = \"jsno\"",
            "`log.format` must be \"auto\", \"pretty\" or \"json\", not \"jsno\"; did you mean `json`?",
        ),
        (
            "[keys]\nheaders = [\"a b\"]",
            "`keys.headers` must be a list, each item a header name such as \"X-Api-Key\", not \"a b\"",
        ),
        (
            "[defaults]\nnot_stored = [700]",
            "`defaults.not_stored` must be a list, each item a status from 400 to 499, not 700",
        ),
        (
            "[defaults]\nnot_stored = [200]",
            "`defaults.not_stored` must be a list, each item a status from 400 to 499, not 200",
        ),
    ] {
        assert_eq!(problem(text), format!("hapax.toml:2: {why}"));
    }
    assert_eq!(problem("server = 1"), "hapax.toml:1: `server` must be a table, [server], not 1");
    assert_eq!(
        problem("[route]\npath = \"/a\""),
        "hapax.toml:1: routes are written [[route]], not [route]; double the brackets"
    );
}

#[test]
fn a_secret_of_a_wrong_type_is_refused_without_showing_it() {
    assert_eq!(
        problem("[admin]\ntoken = 4711471147114711"),
        "hapax.toml:2: `admin.token` must be a text that is not empty"
    );
    assert_eq!(problem("[admin]\ntoken = \"\""), "hapax.toml:2: `admin.token` must be a text that is not empty");
}

#[test]
fn a_duplicate_table_or_key_is_refused_with_its_line() {
    assert_eq!(problem("[log]\n[server]\n[log]\n"), "hapax.toml:3: not TOML: duplicate key; correct this line");
    assert_eq!(
        problem("mode = \"enforce\"\nmode = \"observe\"\n"),
        "hapax.toml:2: not TOML: duplicate key; correct this line"
    );
}

#[test]
fn what_is_not_toml_is_refused_with_its_line_and_without_its_text() {
    let problems = file("[admin]\ntoken = hunter2hunter2hunter2\nfrom = \n").problems();
    assert!(problems[0].starts_with("hapax.toml:2: not TOML: "), "{problems:?}");
    assert!(problems.iter().any(|problem| problem.starts_with("hapax.toml:3: ")), "{problems:?}");
    assert!(!problems.concat().contains("hunter2"), "{problems:?}");
}

#[test]
fn all_problems_are_told_in_one_go_and_in_the_order_of_the_file() {
    let text = "mode = \"enforced\"\n[server]\nform = \"x\"\n[defaults]\nlease = 5\n[[route]]\nretention = \"1s\"\n";
    let setup = file(text).variable("HAPAX_LOG_LEVLE", "info").flag("--from", "server.from", "nowhere");
    let told: Vec<String> =
        setup.problems().iter().map(|p| p.split(": ").next().unwrap_or_default().to_owned()).collect();
    // What the lease should have been is not known, so nothing is said of the retention beside it.
    assert_eq!(told[..5], ["hapax.toml:1", "hapax.toml:3", "hapax.toml:5", "hapax.toml:6", "hapax.toml:7"]);
    assert_eq!(told[5..], ["HAPAX_LOG_LEVLE", "--from"]);
}

#[test]
fn an_upstream_that_is_hapax_itself_is_refused() {
    let same = |from: &str, to: &str| {
        let setup = without_file().without_flags().flag("--from", "server.from", from).flag("--to", "upstream.to", to);
        hapax_server::config::load(&setup.sources).map(|_| ()).map_err(|errors| errors.to_string())
    };
    assert_eq!(
        same("127.0.0.1:8080", "http://127.0.0.1:8080"),
        Err("--to: `upstream.to` is 127.0.0.1:8080, where hapax itself listens (`server.from`), so requests would go \
             round; name the API's address"
            .to_owned())
    );
    for (from, to) in [
        ("127.0.0.1:8080", "http://localhost:8080"),
        ("0.0.0.0:8080", "http://127.0.0.1:8080"),
        ("[::]:8080", "http://[::1]:8080"),
        ("[::]:8080", "http://127.0.0.1:8080"),
        ("127.0.0.1:80", "http://127.0.0.1"),
        ("127.0.0.1:443", "https://127.0.0.1"),
        ("127.0.0.1:8080", "http://0.0.0.0:8080"),
    ] {
        assert!(same(from, to).is_err(), "{from} {to}");
    }
    for (from, to) in [("127.0.0.1:8080", "http://127.0.0.1:8081"), ("127.0.0.1:8080", "http://127.0.0.2:8080")] {
        assert_eq!(same(from, to), Ok(()), "{from} {to}");
    }
}

#[test]
fn the_admin_listener_has_an_address_of_its_own() {
    assert_eq!(
        problem("[admin]\nfrom = \"0.0.0.0:8080\""),
        "hapax.toml:2: `admin.from` and `server.from` are both at port 8080; choose another port"
    );
    assert_eq!(
        problem("[admin]\nfrom = \"127.0.0.1:3000\""),
        "--to: `upstream.to` is the address of the admin listener (`admin.from`); name the API's address"
    );
}

#[test]
fn a_missing_upstream_is_refused_with_how_to_name_one() {
    let setup = without_file().without_flags();
    assert_eq!(setup.problems(), ["no upstream is named; pass --to URL or set `upstream.to`"]);
}

#[test]
fn an_upstream_with_a_path_or_a_password_is_refused() {
    let of = |to: &str| without_file().without_flags().flag("--to", "upstream.to", to).problems().concat();
    assert_eq!(
        of("http://api.example/v1"),
        "--to: `upstream.to` has a path; name scheme, host and port only, since paths are passed on as they come"
    );
    assert_eq!(
        of("http://me:hunter2@api.example"),
        "--to: `upstream.to` must not hold a user or password; leave out what stands before the @"
    );
    assert_eq!(
        of("api.example:3000"),
        "--to: `upstream.to` must be a URL such as \"http://127.0.0.1:3000\", not \"api.example:3000\""
    );
}

#[test]
fn a_store_url_that_cannot_be_read_is_refused_without_its_password() {
    for url in ["postgres://me:hunter2@db:x/app", "postgres://me:hunter2@", "postgres:me:hunter2@db"] {
        let why = problem(&format!("[store]\nurl = \"{url}\""));
        assert_eq!(
            why,
            "hapax.toml:2: `store.url` is not a PostgreSQL URL; write postgres://user:password@host:5432/database, \
             with special characters of the password percent-encoded"
        );
    }
    assert_eq!(
        problem("[store]\nurl = \"postgers://me:hunter2@db/app\""),
        "hapax.toml:2: `store.url` must begin with sqlite:, postgres:// or memory:; did you mean `postgres`?"
    );
    let sound = file("[store]\nurl = \"postgres://me:hunter2@db/app?password=hunter2\"");
    assert!(!format!("{:?}", sound.load()).contains("hunter2"));
    assert_eq!(sound.told("store.url"), "\"postgres://me:***@db/app\" # hapax.toml:2");
}

#[test]
fn a_store_in_memory_is_never_chosen_silently() {
    for url in ["sqlite::memory:", "sqlite:file:x?mode=memory"] {
        let why = problem(&format!("[store]\nurl = \"{url}\""));
        assert_eq!(
            why,
            "hapax.toml:2: `store.url` names a store that forgets everything at exit; if that is meant, write memory:"
        );
    }
    assert_eq!(
        problem("[store]\nurl = \"memory\""),
        "hapax.toml:2: `store.url` must begin with sqlite:, postgres:// or memory:; for a file write sqlite:PATH"
    );
    assert_eq!(problem("[store]\nurl = \"sqlite:\""), "hapax.toml:2: `store.url` names no file; write sqlite:hapax.db");
    let chosen = file("[store]\nurl = \"memory:\"").load();
    assert_eq!(chosen.warnings(), ["the store is in memory: a restart forgets every key, and retries run again"]);
}

#[test]
fn strict_refuses_a_store_that_loses_records() {
    assert_eq!(
        problem("[store]\nstrict = true\nurl = \"memory:\""),
        "hapax.toml:3: `store.strict` asks for a store that loses nothing, and `memory:` loses all at exit; choose \
         another store"
    );
}

#[test]
fn a_store_that_is_waited_for_without_end_is_refused() {
    for (timeout, shown) in [("11m", "11m"), ("25d", "25d"), ("3650d", "3650d")] {
        assert_eq!(
            problem(&format!("[store]\ntimeout = \"{timeout}\"")),
            format!(
                "hapax.toml:2: `store.timeout` is {shown}, above 10m; requests would wait that long for a store that \
                 hangs, so lower it"
            )
        );
    }
    file("[store]\ntimeout = \"10m\"").load();
}

#[test]
fn an_sslmode_that_is_none_is_refused_with_those_that_are() {
    for mode in ["allow", "verify_full", "hunter2"] {
        assert_eq!(
            problem(&format!("[store]\nurl = \"postgres://me@db/app?sslmode={mode}\"")),
            "hapax.toml:2: `store.url`: sslmode must be disable, prefer, require, verify-ca or verify-full"
        );
    }
    for mode in ["disable", "prefer", "require", "verify-ca", "verify-full"] {
        file(&format!("[store]\nurl = \"postgres://me@db/app?sslmode={mode}\"")).load();
    }
}

#[test]
fn an_authority_beside_a_url_without_tls_is_refused() {
    let setup = without_file();
    let authority = setup.write("ca.pem", "", 0o600);
    let text = format!("[store]\nurl = \"postgres://me@db/app?sslmode=disable\"\nca_file = {authority:?}\n");
    assert_eq!(
        problem(&text),
        "hapax.toml:2: `store.ca_file` asks for TLS, and `store.url` turns it off (sslmode=disable); remove one"
    );
}

#[test]
fn a_store_on_another_host_without_tls_is_warned_of_without_its_password() {
    let setup = without_file();
    let authority = setup.write("ca.pem", "", 0o600);
    for mode in ["", "?sslmode=prefer", "?sslmode=disable"] {
        let config = file(&format!("[store]\nurl = \"postgres://me:hunter2@db/app{mode}\"")).load();
        assert_eq!(
            config.warnings(),
            [
                "the store at postgres://me:***@db/app may be talked to without TLS: passwords and recorded answers can be \
              read on the way; add sslmode=require to `store.url`"
            ]
        );
    }
    for url in [
        "postgres://me:hunter2@db/app?sslmode=require",
        "postgres://me:hunter2@db/app?sslmode=verify-full",
        "postgres://me:hunter2@127.0.0.1/app",
        "postgres://me:hunter2@localhost/app",
        "postgres://me:hunter2@%2Frun%2Fpostgresql/app",
    ] {
        assert_eq!(file(&format!("[store]\nurl = \"{url}\"")).load().warnings(), [""; 0], "{url}");
    }
    let with_authority = format!("[store]\nurl = \"postgres://me:hunter2@db/app\"\nca_file = {authority:?}");
    assert_eq!(file(&with_authority).load().warnings(), [""; 0]);
}

#[test]
fn a_store_in_a_directory_that_does_not_exist_is_refused() {
    assert_eq!(
        problem("[store]\nurl = \"sqlite:/no/such/place/hapax.db\""),
        "hapax.toml:2: `store.url`: the directory `/no/such/place` does not exist; create it"
    );
    assert_eq!(
        problem("[store]\nschema = \"Hapax\""),
        "hapax.toml:2: `store.schema` must be up to 63 lower-case letters, digits and underscores, not beginning with \
         a digit or pg_"
    );
}

#[test]
fn a_file_that_cannot_be_read_is_refused_and_nothing_else_is_told() {
    let mut setup = without_file();
    setup.sources.file = Some(setup.directory.path().join("none.toml"));
    assert_eq!(setup.problems(), ["`none.toml` does not exist; create it or name another file"]);
    setup.sources.file = Some(setup.directory.path().to_owned());
    assert!(setup.problems().concat().ends_with("is a directory; name a file"));
    std::fs::write(setup.directory.path().join("latin.toml"), b"mode = \"\xff\"").unwrap();
    setup.sources.file = Some(setup.directory.path().join("latin.toml"));
    assert_eq!(setup.problems(), ["`latin.toml` is not UTF-8 text; name another file"]);
}

/// A file `secret` beside the configuration, named by `admin.token_file`.
fn with_token_file(text: &str, mode: u32) -> Setup {
    let setup = file("");
    let path = setup.write("secret", text, mode);
    std::fs::write(setup.sources.file.as_ref().unwrap(), format!("[admin]\ntoken_file = \"{}\"\n", path.display()))
        .unwrap();
    setup
}

#[test]
fn a_secret_is_read_from_a_file_without_its_line_end() {
    let setup = with_token_file("hunter2hunter2hunter2\n", 0o640);
    assert_eq!(setup.load().admin.token.unwrap().expose(), "hunter2hunter2hunter2");
    assert_eq!(setup.told("admin.token"), "\"(hidden)\" # hapax.toml:2");
    assert!(!format!("{:?}", setup.explain()).contains("hunter2"));
}

#[test]
fn a_secret_file_that_anyone_can_read_is_refused() {
    assert_eq!(
        with_token_file("hunter2hunter2hunter2", 0o644).problems(),
        ["hapax.toml:2: `admin.token_file`: anyone on this machine can read `secret`, which holds a secret; run \
             `chmod o-rwx secret`"]
    );
}

#[test]
fn a_secret_file_that_is_empty_or_missing_is_refused() {
    assert_eq!(
        with_token_file("\n", 0o600).problems(),
        ["hapax.toml:2: `admin.token_file`: `secret` is empty; write the secret into it"]
    );
    let gone = with_token_file("x", 0o600);
    std::fs::remove_file(gone.directory.path().join("secret")).unwrap();
    assert_eq!(
        gone.problems(),
        ["hapax.toml:2: `admin.token_file`: `secret` does not exist; create it or name another file"]
    );
}

#[test]
fn a_configuration_with_a_secret_in_it_must_not_be_readable_by_everybody() {
    let text = "[admin]\ntoken = \"hunter2hunter2hunter2\"\n[store]\nurl = \"postgres://me:hunter2@db/app\"\n";
    let setup = file(text);
    setup.load();
    setup.write("hapax.toml", text, 0o644);
    assert_eq!(
        setup.problems(),
        [
            "hapax.toml:2: `admin.token` is a secret, and anyone on this machine can read `hapax.toml`; run `chmod \
             o-rwx hapax.toml` or set `admin.token_file`",
            "hapax.toml:4: `store.url` is a secret, and anyone on this machine can read `hapax.toml`; run `chmod o-rwx \
             hapax.toml` or set `store.url_file`",
        ]
    );
    setup.write("hapax.toml", "[store]\nurl = \"sqlite:hapax.db\"\n", 0o644);
    setup.load();
    // As `hapax config default` writes it: a file for the secret that is "off" holds none.
    setup.write("hapax.toml", &text.replace("[store]", "token_file = \"off\"\n[store]\nurl_file = \"off\""), 0o644);
    assert_eq!(setup.problems().len(), 2, "{:?}", setup.problems());
    for (url, is_secret) in [
        ("postgres://me@db/app", false),
        ("postgres://db/app?user=me&password=hunter2", true),
        ("postgres://me:hunter2@db/app", true),
    ] {
        setup.write("hapax.toml", &format!("[admin]\ntoken = \"off\"\n[store]\nurl = \"{url}\"\n"), 0o644);
        let refused = hapax_server::config::load(&setup.sources).is_err();
        assert_eq!(refused, is_secret, "{url}");
    }
}

#[test]
fn a_short_token_is_refused() {
    assert_eq!(
        problem("[admin]\ntoken = \"hunter2\""),
        "hapax.toml:2: `admin.token` has fewer than 16 characters and could be guessed; use a longer one"
    );
}

#[test]
fn a_private_key_needs_its_certificate_and_a_private_file() {
    assert_eq!(
        problem("[server]\ntls_cert = \"a.pem\""),
        "hapax.toml:2: `server.tls_cert` needs `server.tls_key`; name the key's file"
    );
    assert_eq!(
        problem("[server]\ntls_key = \"a.pem\""),
        "hapax.toml:2: `server.tls_key` needs `server.tls_cert`; name the certificate's file"
    );
    let setup = file("");
    let (cert, key) = (setup.write("cert.pem", "x", 0o644), setup.write("key.pem", "x", 0o644));
    let text = format!("[server]\ntls_cert = \"{}\"\ntls_key = \"{}\"\n", cert.display(), key.display());
    setup.write("hapax.toml", &text, 0o644);
    assert_eq!(
        setup.problems(),
        ["hapax.toml:3: `server.tls_key`: anyone on this machine can read `key.pem`, which holds a secret; run \
             `chmod o-rwx key.pem`"]
    );
    setup.write("key.pem", "x", 0o600);
    assert_eq!(setup.load().server.tls.unwrap().cert, cert);
}

#[test]
fn a_fingerprint_key_needs_an_id_and_enough_bytes() {
    assert_eq!(
        problem("[fingerprint]\nkey = \"0123456789abcdef\""),
        "hapax.toml:2: `fingerprint.key` needs `fingerprint.key_id`, which records name it by; choose one, such as \
         \"2026\""
    );
    assert_eq!(
        problem("[fingerprint]\nkey_id = \"a\""),
        "hapax.toml:2: `fingerprint.key_id` names no key; set `fingerprint.key_file`"
    );
    assert_eq!(
        problem("[fingerprint]\nkey = \"short\"\nkey_id = \"a\""),
        "hapax.toml:2: the fingerprint key `a` is not accepted: an HMAC key has at least 16 bytes"
    );
    let setup = file("");
    let old = setup.write("old", "0123456789abcdef", 0o600);
    let text = format!(
        "[fingerprint]\nkey = \"fedcba9876543210\"\nkey_id = \"b\"\nolder_key_files = {{ a = \"{}\" }}\n",
        old.display()
    );
    setup.write("hapax.toml", &text, 0o600);
    let keys = setup.load().fingerprint;
    assert_eq!((keys.current.unwrap().id.as_str(), keys.older[0].id.as_str()), ("b", "a"));
    setup.write("hapax.toml", &text.replace("{ a =", "{ b ="), 0o600);
    assert_eq!(setup.problems(), ["hapax.toml:2: two fingerprint keys are called `b`; give each its own id"]);
    setup.write("hapax.toml", &text, 0o600);
    setup.write("old", "0123456789abcdef", 0o644);
    let why = "anyone on this machine can read `old`, which holds a secret; run `chmod o-rwx old`";
    assert_eq!(setup.problems(), [format!("hapax.toml:4: `fingerprint.older_key_files`: {why}")]);
}

#[test]
fn a_timeout_of_nothing_or_of_centuries_is_refused() {
    assert_eq!(
        problem("[upstream]\nconnect_timeout = \"0s\""),
        "hapax.toml:2: `upstream.connect_timeout` is 0; write a duration above 0"
    );
    assert_eq!(
        problem("[server]\nkeep_alive = \"365000d\""),
        "hapax.toml:2: `server.keep_alive` is 365000d, more than ten years; check its unit"
    );
}

#[test]
fn a_log_level_that_does_not_exist_is_refused() {
    assert_eq!(
        problem("[log]\nlevel = \"inof\""),
        "hapax.toml:2: `log.level` must be off, error, warn, info, debug, trace, or such as \
         \"info,hapax_server=debug\", not \"inof\"; did you mean `info`?"
    );
    assert_eq!(file("[log]\nlevel = \"info,hapax_server=debug\"").load().log.level, "info,hapax_server=debug");
}

#[test]
fn browsers_refuse_credentials_for_any_origin_and_so_does_the_configuration() {
    assert_eq!(
        problem("[cors]\norigins = [\"*\"]\ncredentials = true"),
        "hapax.toml:3: `cors.credentials` cannot be true for the origin \"*\", which browsers refuse; name the origins"
    );
    assert_eq!(
        problem("[cors]\norigins = [\"https://app.example/\"]"),
        "hapax.toml:2: `cors.origins` must be a list, each item an origin such as \"https://app.example\", or \"*\", \
         not \"https://app.example/\""
    );
    assert_eq!(file("[cors]\norigins = \"https://app.example:8443\"").load().cors.unwrap().origins.len(), 1);
}

#[test]
fn a_bad_item_of_a_long_list_is_refused_at_its_own_line() {
    let found = problem("[defaults]\nnot_stored = [\n  401,\n  499,\n  500,\n]\n");
    assert!(found.starts_with("hapax.toml:5: `defaults.not_stored` must be"), "{found}");
    let found = problem("[[route]]\npath = \"/a\"\n[route.labels]\na = \"request:/a\"\nb = \"b\"\n");
    assert!(found.starts_with("hapax.toml:5: `route.labels` must be"), "{found}");
}

#[test]
fn other_contradictions_are_refused() {
    for (text, why) in [
        ("[keys]\nheaders = []", "`keys.headers` names none; write \"Idempotency-Key\""),
        (
            "[keys]\nheaders = \"Authorization\"",
            "`keys.headers` names `authorization`, which holds something else; choose another",
        ),
        ("[store]\nconnections = 65", "`store.connections` is above 64; batches would only get smaller, so lower it"),
        (
            "[store]\nca_file = \"/no/ca.pem\"",
            "`store.ca_file`: `/no/ca.pem` does not exist; create it or name another file",
        ),
        (
            "[upstream]\nca_file = \"/no/ca.pem\"",
            "`upstream.ca_file`: `/no/ca.pem` does not exist; create it or name another file",
        ),
        (
            "[server]\nheader_bytes_max = \"1B\"",
            "`server.header_bytes_max` is below 1KiB, too little for honest requests; raise it",
        ),
        (
            "[admin]\nhosts = [\"http://a\"]",
            "`admin.hosts` has \"http://a\", which is not a host's name; leave out scheme, port and path",
        ),
    ] {
        assert_eq!(problem(text), format!("hapax.toml:2: {why}"));
    }
    let https = file("[upstream]\nto = \"https://api.example\"\nh2c = true\n").without_flags();
    assert_eq!(
        https.problems(),
        ["hapax.toml:3: `upstream.h2c` is HTTP/2 without TLS, but `upstream.to` is https; remove it"]
    );
}

#[test]
fn no_damage_to_a_file_makes_the_reader_panic_or_repeat_itself() {
    let whole = hapax_server::config::DEFAULT_FILE;
    let setup = file("");
    let lines: Vec<&str> = whole.lines().collect();
    for at in 0..lines.len() {
        let without: Vec<&str> = [&lines[..at], &lines[at + 1..]].concat();
        setup.write("hapax.toml", &without.join("\n"), 0o600);
        // A missing key is its default, and a missing heading moves keys to another section, each of which is refused.
        if let Err(errors) = hapax_server::config::load(&setup.sources) {
            assert!(lines[at].starts_with('['), "{}: {errors}", lines[at]);
        }
    }
    for at in (0..whole.len()).step_by(61).filter(|at| whole.is_char_boundary(*at)) {
        setup.write("hapax.toml", &format!("{}\u{0}\u{85}[[\"{}", &whole[..at], &whole[at..]), 0o600);
        let problems = setup.problems();
        assert!(problems[0].starts_with("hapax.toml:"), "{problems:?}");
    }
}

#[test]
fn sources_do_not_show_what_variables_and_flags_hold() {
    let setup = without_file().variable("HAPAX_ADMIN_TOKEN", "hunter2").flag("--store", "store.url", "hunter2");
    let shown = format!("{:?}", setup.sources);
    assert!(shown.contains("HAPAX_ADMIN_TOKEN") && shown.contains("--store") && !shown.contains("hunter2"), "{shown}");
}

#[test]
fn an_upstream_that_is_hapax_is_known_by_every_name() {
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let refused = |host: &str, from: &str| {
        let setup = without_file().without_flags().flag("--from", "server.from", from);
        let setup = setup.flag("--to", "upstream.to", &format!("http://{host}:9000"));
        hapax_server::config::load(&setup.sources)
            .is_err_and(|errors| errors.to_string().contains("requests would go round"))
    };
    for host in ["127.1", "0x7f.1", "2130706433", "localhost.", "LOCALHOST"] {
        assert!(refused(host, "127.0.0.1:9000"), "{host}");
        assert!(refused(host, "0.0.0.0:9000"), "{host}");
    }
    for from in ["0.0.0.0:9000", "[::]:9000"] {
        assert!(refused(&own, from) && refused(&format!("{own}."), from), "{own}");
    }
    assert!(!refused(&own, "0.0.0.0:9001") && !refused("api.example", "0.0.0.0:9000"));
    assert!(!refused("192.0.2.1", "0.0.0.0:9000"), "no address of this machine");
    assert!(!refused("127.2", "127.0.0.1:9000"), "another loopback address");
}

#[test]
fn a_pipe_is_no_configuration_and_nobody_waits_for_it() {
    let mut setup = without_file();
    let pipe = setup.directory.path().join("pipe.toml");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    setup.sources.file = Some(pipe);
    assert_eq!(setup.problems(), ["`pipe.toml` is a pipe or a device, not a regular file; name one"]);
}
