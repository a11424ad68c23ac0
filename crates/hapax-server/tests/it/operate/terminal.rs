//! A terminal for a command: it sees a terminal of a given width on all three of its streams, and a person who types.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// Runs the command to its end in a terminal that wide, with a person who types `typed`. Returns its exit code and everything
/// that the terminal showed.
pub(crate) fn run(command: Command, columns: u16, typed: &str) -> (Option<i32>, String) {
    let (code, shown, _) = with_output(command, columns, typed, None);
    (code, shown)
}

/// The same where the standard output goes to a program: what the person saw, and what the program got.
pub(crate) fn run_piped(command: Command, typed: &str) -> (Option<i32>, String, String) {
    with_output(command, 80, typed, Some(Stdio::piped()))
}

fn with_output(
    mut command: Command,
    columns: u16,
    typed: &str,
    output: Option<Stdio>,
) -> (Option<i32>, String, String) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&ours).expect("a terminal");
    unlockpt(&ours).expect("a terminal");
    let theirs = ioctl_tiocgptpeer(&ours, OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("its other side");
    tcsetwinsize(&theirs, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).expect("a size");
    let stream = || theirs.try_clone().expect("a stream");
    let output = output.unwrap_or_else(|| stream().into());
    command.stdin(stream()).stdout(output).stderr(stream());
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
    let mut piped = String::new();
    if let Some(mut output) = child.stdout.take() {
        output.read_to_string(&mut piped).expect("its output is text");
    }
    let status = child.wait().expect("it ends");
    (status.code(), String::from_utf8_lossy(&shown).replace("\r\n", "\n"), piped)
}
