//! What is measured: hapax on a store, or nginx in its place.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use hapax_testkit::hapax::Hapax;
use hapax_testkit::raw_http::{Conn, request};

use super::Args;
use super::nginx::Nginx;
use super::wrk::{BODY, REPLAY_KEYS, replay_key};

/// What stands where hapax would.
pub(super) enum Program {
    Hapax(PathBuf),
    Nginx,
}

/// The binary as it is released, built anew unless one was named.
pub(super) fn program(args: &Args) -> Program {
    if args.calibrate {
        return Program::Nginx;
    }
    Program::Hapax(args.hapax.clone().unwrap_or_else(|| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = Command::new(cargo).args(["build", "--quiet", "--release", "--package", "hapax-server"]).status();
        assert!(built.is_ok_and(|status| status.success()), "hapax-server does not build");
        super::super::target_dir().join("hapax")
    }))
}

/// A running proxy.
pub(super) enum Subject {
    Hapax(Box<Hapax>),
    Nginx(Nginx),
}

impl Subject {
    /// With SQLite in that directory.
    pub(super) fn sqlite(program: &Program, dir: &Path, upstream: SocketAddr) -> Subject {
        std::fs::create_dir_all(dir).expect("a directory for the store");
        Subject::at(program, dir, upstream, &format!("sqlite:{}", dir.join("hapax.db").display()))
    }

    /// With the store at this URL.
    pub(super) fn at(program: &Program, dir: &Path, upstream: SocketAddr, store: &str) -> Subject {
        match program {
            Program::Nginx => Subject::Nginx(Nginx::in_front_of(dir, upstream)),
            Program::Hapax(program) => {
                let hapax = Hapax::builder(program).with_upstream(&format!("http://{upstream}")).with_store(store);
                Subject::Hapax(Box::new(hapax.start()))
            }
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        match self {
            Subject::Hapax(hapax) => hapax.address(),
            Subject::Nginx(nginx) => nginx.address(),
        }
    }

    pub(super) fn id(&self) -> u32 {
        match self {
            Subject::Hapax(hapax) => hapax.id(),
            Subject::Nginx(nginx) => nginx.id(),
        }
    }

    /// Bytes of memory in use.
    pub(super) fn rss_bytes(&self) -> u64 {
        match self {
            Subject::Hapax(hapax) => hapax.rss_bytes(),
            Subject::Nginx(nginx) => nginx.rss_bytes(),
        }
    }

    /// Uses every key of the replays once, and sees to it that they are replayed.
    pub(super) fn prime(&self) {
        let mut conn = Conn::open(self.address());
        for number in 0..REPLAY_KEYS {
            self.post(&mut conn, number);
        }
        let replayed = self.post(&mut conn, 0);
        assert!(replayed || matches!(self, Subject::Nginx(_)), "a recorded answer is not replayed");
    }

    /// The request that the load generator sends; true where the answer is a replay.
    fn post(&self, conn: &mut Conn, number: u32) -> bool {
        let post = request("POST", "/charges").header("Host", &self.address().to_string());
        let post = post.header("Authorization", "Bearer bench").header("Content-Type", "application/json");
        let answer = conn.send(&post.header("Idempotency-Key", &replay_key(number)).body(BODY));
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.is_replay()
    }
}
