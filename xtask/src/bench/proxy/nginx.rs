//! nginx, twice: as the upstream of all, and as the plain proxy that ours is measured against.
//!
//! One process with one event loop each, which is one worker; connections are kept on both sides; no log.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use hapax_testkit::process::Process;
use hapax_testkit::raw_http::request;
use hapax_testkit::{port, wait};

/// It starts within milliseconds; this is for a busy machine.
const START_TIME_MAX: Duration = Duration::from_secs(10);

/// What the upstream answers to everything.
const ANSWER: &str = r#"{"id":"ch_1","object":"charge","amount":100,"currency":"eur","status":"succeeded"}"#;

/// A running nginx. It ends with this value.
pub(super) struct Nginx {
    address: SocketAddr,
    process: Process,
}

impl Nginx {
    /// Answers everything with a small JSON object.
    pub(super) fn upstream(dir: &Path) -> Nginx {
        let location = format!("default_type application/json; return 200 '{ANSWER}';");
        Nginx::start(dir, "", &location)
    }

    /// Passes everything on to the upstream, over connections that it keeps.
    pub(super) fn in_front_of(dir: &Path, upstream: SocketAddr) -> Nginx {
        let keep = format!("upstream backend {{ server {upstream}; keepalive 128; keepalive_requests 100000000; }}");
        let location = "proxy_pass http://backend; proxy_http_version 1.1; proxy_set_header Connection \"\";";
        Nginx::start(dir, &keep, location)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Bytes of memory in use.
    pub(super) fn rss_bytes(&self) -> u64 {
        self.process.rss_bytes().expect("it runs")
    }

    fn start(dir: &Path, backend: &str, location: &str) -> Nginx {
        std::fs::create_dir_all(dir).expect("a directory for nginx");
        let address = port::loopback(port::free());
        std::fs::write(dir.join("nginx.conf"), configuration(dir, address, backend, location))
            .expect("a file for nginx");
        let mut command = Command::new(program());
        command.arg("-p").arg(dir).arg("-c").arg(dir.join("nginx.conf")).arg("-e").arg(dir.join("error.log"));
        let mut process = Process::spawn(&mut command);
        wait::until("nginx answers", START_TIME_MAX, || {
            assert!(process.ended().is_none(), "nginx ended: {}", process.stderr());
            request("GET", "/").try_send(address).is_ok_and(|answer| answer.body == ANSWER.as_bytes())
        });
        Nginx { address, process }
    }
}

fn program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join("nginx")).find(|file| file.is_file());
    let debian = PathBuf::from("/usr/sbin/nginx");
    found.or_else(|| debian.is_file().then_some(debian)).expect("nginx is missing: install nginx-light")
}

fn configuration(dir: &Path, address: SocketAddr, backend: &str, location: &str) -> String {
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|name| format!("{name}_temp_path {};\n", dir.join(name).display()))
        .collect();
    format!(
        "daemon off; master_process off; worker_processes 1; pid {pid};\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n\
         access_log off; keepalive_requests 100000000; keepalive_timeout 600s; tcp_nodelay on;\n\
         {temporary}{backend}\n\
         server {{ listen {address}; location / {{ {location} }} }}\n\
         }}\n",
        pid = dir.join("pid").display(),
    )
}
