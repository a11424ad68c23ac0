//! Tells systemd, where it runs us, what state the service is in.
//!
//! With `Type=notify-reload` and `WatchdogSec=` in the unit, systemd then waits for readiness, knows when a reload is over and
//! restarts a process whose runtime has stopped. Without `NOTIFY_SOCKET` every call does nothing. A message that cannot be
//! sent is logged and no more: serving matters, telling does not.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use sd_notify::NotifyState;

/// Where to tell it; nowhere, unless systemd runs us.
#[derive(Debug)]
pub struct Notify {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

impl Notify {
    /// As the environment says (`NOTIFY_SOCKET`, `WATCHDOG_USEC`, `WATCHDOG_PID`).
    #[must_use]
    pub fn from_env() -> Self {
        let Some(address) = std::env::var_os("NOTIFY_SOCKET").filter(|address| !address.is_empty()) else {
            return Self::nowhere();
        };
        Self::to(&address, sd_notify::watchdog_enabled()).unwrap_or_else(|error| {
            tracing::warn!(%error, "NOTIFY_SOCKET cannot be reached; systemd will not be told anything");
            Self::nowhere()
        })
    }

    /// To this socket: a path, or `@` and a name for an abstract one. `watchdog` is how long systemd waits for a sign.
    ///
    /// # Errors
    ///
    /// Nobody listens there.
    pub fn to(address: &OsStr, watchdog: Option<Duration>) -> io::Result<Self> {
        let address = match address.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(address)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        // A full queue at systemd's end must not hold up a request.
        socket.set_nonblocking(true)?;
        Ok(Self { socket: Some(socket), watchdog: watchdog.filter(|period| !period.is_zero()) })
    }

    /// Tells nobody.
    #[must_use]
    pub fn nowhere() -> Self {
        Self { socket: None, watchdog: None }
    }

    /// Requests are taken: at start, and after each reload whatever came of it.
    pub fn ready(&self, status: &str) {
        let status = crate::logs::escaped(status);
        self.send(&[NotifyState::Ready, NotifyState::Status(&status)]);
    }

    /// The configuration is being read again.
    pub fn reloading(&self) {
        // systemd pairs the message with its signal by this time.
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.send(&[NotifyState::Reloading, now]),
            Err(_) => self.send(&[NotifyState::Reloading]),
        }
    }

    /// The process is draining.
    pub fn stopping(&self, status: &str) {
        let status = crate::logs::escaped(status);
        self.send(&[NotifyState::Stopping, NotifyState::Status(&status)]);
    }

    /// Gives a sign of life twice as often as systemd wants one. Ends at once where it wants none; otherwise never.
    pub async fn keep_watchdog_quiet(&self) {
        let Some(period) = self.watchdog else { return };
        let mut ticks = tokio::time::interval(period / 2);
        loop {
            ticks.tick().await;
            self.send(&[NotifyState::Watchdog]);
        }
    }

    fn send(&self, states: &[NotifyState<'_>]) {
        let Some(socket) = &self.socket else { return };
        let message: Vec<String> = states.iter().map(ToString::to_string).collect();
        if let Err(error) = socket.send(message.join("\n").as_bytes()) {
            tracing::warn!(%error, "systemd could not be told about the service's state");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 512];
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    #[test]
    fn systemd_hears_of_each_state() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let systemd = UnixDatagram::bind(&path).unwrap();
        let notify = Notify::to(path.as_os_str(), None).unwrap();
        notify.ready("serving\nREADY=0");
        assert_eq!(received(&systemd), "READY=1\nSTATUS=serving\\u000aREADY=0");
        notify.reloading();
        let reloading = received(&systemd);
        let time = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
        assert!(time.parse::<u64>().unwrap() > 0);
        notify.stopping("draining");
        assert_eq!(received(&systemd), "STOPPING=1\nSTATUS=draining");
    }

    #[tokio::test]
    async fn the_watchdog_gets_its_signs_on_an_abstract_socket() {
        let name = format!("hapax-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
        let systemd = UnixDatagram::bind_addr(&address).unwrap();
        let notify = Notify::to(OsStr::new(&format!("@{name}")), Some(Duration::from_millis(20))).unwrap();
        let signs = tokio::task::spawn_blocking(move || [received(&systemd), received(&systemd), received(&systemd)]);
        tokio::select! {
            () = notify.keep_watchdog_quiet() => panic!("the watchdog is enabled"),
            signs = signs => assert_eq!(signs.unwrap(), ["WATCHDOG=1"; 3]),
        }
    }

    #[tokio::test]
    async fn without_systemd_nothing_happens() {
        let notify = Notify::nowhere();
        notify.ready("x");
        notify.reloading();
        notify.stopping("x");
        notify.keep_watchdog_quiet().await;
        assert!(Notify::to(OsStr::new("/nonexistent/notify"), None).is_err());
    }

    #[test]
    fn a_systemd_that_went_away_or_does_not_read_harms_nobody() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let systemd = UnixDatagram::bind(&path).unwrap();
        let notify = Notify::to(path.as_os_str(), None).unwrap();
        for _ in 0..10_000 {
            notify.stopping("nobody reads this");
        }
        drop(systemd);
        notify.ready("nobody listens");
    }
}
