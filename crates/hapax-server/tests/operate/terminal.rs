//! A terminal for a command: it sees a terminal of a given width on all three of its streams, and a person who types.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::Command;

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// Runs the command to its end in a terminal that wide, with a person who types `typed`. Returns its exit code and everything
/// that the terminal showed.
pub(crate) fn run(mut command: Command, columns: u16, typed: &str) -> (Option<i32>, String) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&ours).expect("a terminal");
    unlockpt(&ours).expect("a terminal");
    let theirs = ioctl_tiocgptpeer(&ours, OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("its other side");
    tcsetwinsize(&theirs, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).expect("a size");
    let stream = || theirs.try_clone().expect("a stream");
    command.stdin(stream()).stdout(stream()).stderr(stream());
    let mut child = command.spawn().expect("the command starts");
    drop((theirs, command));
    let mut screen = File::from(ours);
    screen.write_all(typed.as_bytes()).expect("the terminal takes what is typed");
    let mut shown = Vec::new();
    let mut part = [0; 4096];
    // The read fails once nobody holds the other side any more.
    while let Ok(count @ 1..) = screen.read(&mut part) {
        shown.extend(&part[..count]);
    }
    let status = child.wait().expect("it ends");
    (status.code(), String::from_utf8_lossy(&shown).replace("\r\n", "\n"))
}
