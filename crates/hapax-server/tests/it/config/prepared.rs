//! What a start refuses because of what stands in files, or because nothing can be made of it: `hapax config check` refuses the
//! same, in the same words, with the same code.

use std::path::Path;
use std::process::{Command, Output};

use crate::config::setup::{Setup, without_file};

/// Runs a command in the directory of the setup. The listeners' ports are free, so nothing but the configuration is in the way.
fn hapax(directory: &Path, command: &[&str]) -> Output {
    let flags = ["--to", "http://127.0.0.1:3000", "--from", "127.0.0.1:0", "--admin", "off", "--store", "memory:"];
    let mut process = Command::new(env!("CARGO_BIN_EXE_hapax"));
    process.args(command).args(flags).current_dir(directory).env_clear().output().unwrap()
}

/// What both commands say of that configuration, which must be one line and the same.
#[track_caller]
fn refused(setup: &Setup, text: &str) -> String {
    setup.write("hapax.toml", text, 0o600);
    let said = [&["config", "check"][..], &["proxy"]].map(|command| {
        let done = hapax(setup.directory.path(), command);
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(2), "{command:?} {text}: {said}");
        assert!(done.stdout.is_empty(), "{command:?} {text}");
        said
    });
    assert_eq!(said[0], said[1], "{text}");
    assert_eq!(said[0].lines().count(), 1, "{}", said[0]);
    said[0].trim_end().strip_prefix("error: ").unwrap().to_owned()
}

#[test]
fn a_certificate_that_cannot_be_used_is_refused() {
    let setup = without_file();
    for name in ["one", "two"] {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        setup.write(&format!("{name}.cert"), &made.cert.pem(), 0o600);
        setup.write(&format!("{name}.key"), &made.signing_key.serialize_pem(), 0o600);
    }
    setup.write("junk", "junk", 0o600);
    let with = |cert: &str, key: &str| format!("[server]\ntls_cert = \"{cert}\"\ntls_key = \"{key}\"\n");
    for (cert, key, why) in [
        (
            "junk",
            "one.key",
            "hapax.toml:2: `server.tls_cert`: junk: holds no certificate in PEM form; give a file that does",
        ),
        (
            "one.cert",
            "junk",
            "hapax.toml:3: `server.tls_key`: junk: holds no private key in PEM form; give a file that does",
        ),
        (
            "one.key",
            "one.cert",
            "hapax.toml:2: `server.tls_cert`: one.key: holds no certificate in PEM form; give a file that does",
        ),
        (
            "one.cert",
            "two.key",
            "hapax.toml:3: `server.tls_key`: two.key: the key does not belong to the certificate in one.cert; give the one \
             that does",
        ),
    ] {
        assert_eq!(refused(&setup, &with(cert, key)), why);
    }
    setup.write("hapax.toml", &with("one.cert", "one.key"), 0o600);
    assert_eq!(hapax(setup.directory.path(), &["config", "check"]).status.code(), Some(0));
}

#[test]
fn certificates_to_trust_that_are_none_are_refused() {
    let setup = without_file();
    setup.write("junk", "junk", 0o600);
    for key in ["upstream.ca_file", "store.ca_file"] {
        let section = key.split_once('.').unwrap().0;
        let why = format!("hapax.toml:2: `{key}`: junk: holds no certificate in PEM form; give a file that does");
        assert_eq!(refused(&setup, &format!("[{section}]\nca_file = \"junk\"\n")), why);
    }
    let ask = "scope = \"ask\"\n[ask]\nurl = \"https://127.0.0.1:9/\"\nca_file = \"junk\"\n";
    let why = refused(&setup, ask);
    assert!(why.starts_with("hapax.toml:4: `ask.ca_file`: junk: "), "{why}");
}

#[test]
fn a_key_for_tokens_that_does_not_fit_is_refused() {
    let setup = without_file();
    let public = |algorithm| rcgen::KeyPair::generate_for(algorithm).unwrap().public_key_pem();
    setup.write("p256", &public(&rcgen::PKCS_ECDSA_P256_SHA256), 0o600);
    setup.write("p384", &public(&rcgen::PKCS_ECDSA_P384_SHA384), 0o600);
    setup.write("short", "too short", 0o600);
    setup.write("none", "{\"keys\":[]}", 0o600);
    let with = |algorithm: &str, key: &str| format!("scope = \"jwt\"\n[jwt]\nalgorithms = \"{algorithm}\"\n{key}\n");
    for (algorithm, key, why) in [
        (
            "HS256",
            "key_file = \"short\"",
            "`jwt.key_file`: short: holds a secret of under 32 bytes; use a random one of 32 bytes or more",
        ),
        (
            "RS256",
            "key_file = \"p256\"",
            "`jwt.key_file`: p256: holds a key of another type than the algorithm's; name the key of the algorithm",
        ),
        (
            "ES256",
            "key_file = \"p384\"",
            "`jwt.key_file`: p384: holds a key on another curve than P-256; name a P-256 key for ES256",
        ),
        (
            "RS256",
            "jwks_file = \"none\"",
            "`jwt.jwks_file`: none: holds no key for a configured algorithm; name a JSON Web Key Set with a key for a \
             configured algorithm",
        ),
    ] {
        assert_eq!(refused(&setup, &with(algorithm, key)), format!("hapax.toml:4: {why}"));
    }
    setup.write("hapax.toml", &with("ES256", "key_file = \"p256\""), 0o600);
    assert_eq!(hapax(setup.directory.path(), &["config", "check"]).status.code(), Some(0));
}

#[test]
fn scopes_that_cannot_be_made_are_refused() {
    let setup = without_file();
    assert_eq!(
        refused(&setup, "scope = \"credential:Proxy-Authorization\"\n"),
        "hapax.toml:1: `scope` names \"credential:proxy-authorization\", which is meant for a proxy and not for the API; \
         write \"credential\""
    );
    let many: Vec<String> = (0..9).map(|nth| format!("\"header:x-{nth}\"")).collect();
    assert_eq!(
        refused(&setup, &format!("scope = [{}]\n", many.join(", "))),
        "hapax.toml:1: `scope` names 9 kinds, above the limit of 8; remove some"
    );
    assert_eq!(
        refused(&setup, "scope = \"ask\"\n[ask]\nurl = \"http://127.0.0.1:9/\"\npass_headers = [\"host\"]\n"),
        "hapax.toml:4: `ask.pass_headers`: the header `host` cannot be passed on by `ask`: it belongs to the request \
         itself; remove it"
    );
}

#[test]
fn a_log_filter_that_cannot_be_read_is_refused() {
    let setup = without_file();
    for filter in ["=info", "info,=debug", "a=b=info"] {
        let why = refused(&setup, &format!("[log]\nlevel = \"{filter}\"\n"));
        assert_eq!(
            why,
            format!(
                "hapax.toml:2: `log.level`: `{filter}` is no level or filter of logs; use error, warn, info, debug or trace, \
                 or target=level,…"
            )
        );
    }
}

#[test]
fn every_part_that_cannot_be_made_is_told_in_one_go() {
    let setup = without_file();
    setup.write("junk", "junk", 0o600);
    let text = "scope = \"jwt\"\n[server]\ntls_cert = \"junk\"\ntls_key = \"junk\"\n[upstream]\nca_file = \"junk\"\n[jwt]\n\
                algorithms = \"HS256\"\nkey_file = \"junk\"\n";
    setup.write("hapax.toml", text, 0o600);
    let done = hapax(setup.directory.path(), &["config", "check"]);
    let said = String::from_utf8(done.stderr).unwrap();
    let keys = ["server.tls_cert", "upstream.ca_file", "jwt.key_file"];
    assert!(keys.iter().all(|key| said.contains(&format!("`{key}`: junk: "))), "{said}");
    assert_eq!((done.status.code(), said.lines().count()), (Some(2), 3), "{said}");
}
