//! What an attacker sends, byte by byte, and an honest client beside it.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

/// The attacker's address.
pub(crate) const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1));
/// An honest client's address.
pub(crate) const HONEST: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// And another's.
pub(crate) const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));
/// Another address of this machine.
pub(crate) const fn loopback(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, last))
}

/// What an HTTP/2 client says first, with settings.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// One more sign of life of an HTTP/2 connection.
pub(crate) const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0pingpong";
/// Asks to become a WebSocket.
pub(crate) const UPGRADE: &[u8] = b"GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// A connection from that address.
pub(crate) fn connect(from: IpAddr, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(from, 0).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    socket.into()
}

/// So many connections, each of which has sent the same.
pub(crate) fn crowd(from: IpAddr, to: SocketAddr, count: usize, bytes: &[u8]) -> Vec<TcpStream> {
    let one = |_| {
        let mut stream = connect(from, to);
        // Whoever was sent away already has nothing to say.
        let _ = stream.write_all(bytes);
        stream
    };
    (0..count).map(one).collect()
}

/// A payment in raw bytes, whose body is announced with that length and begun with these bytes.
pub(crate) fn payment(key: &str, length: usize, body: &str) -> Vec<u8> {
    format!(
        "POST /payments HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer alice-secret\r\nIdempotency-Key: {key}\r\n\
         Content-Type: text/plain\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// The status of the answer to these bytes on a new connection; none if nothing comes within that time.
pub(crate) fn ask(from: IpAddr, to: SocketAddr, bytes: &[u8], within: Duration) -> Option<u16> {
    let mut stream = connect(from, to);
    stream.write_all(bytes).ok()?;
    status(&mut stream, within)
}

/// The status line of the next answer.
pub(crate) fn status(stream: &mut TcpStream, within: Duration) -> Option<u16> {
    stream.set_read_timeout(Some(within)).unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).ok()?;
    std::str::from_utf8(&head).ok()?.rsplit(' ').next()?.parse().ok()
}

/// An honest GET.
pub(crate) fn get(from: IpAddr, to: SocketAddr, within: Duration) -> Option<u16> {
    ask(from, to, b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", within)
}

/// Whether the other side has closed this connection, or said something; asked without waiting.
pub(crate) fn has_ended(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let mut byte = [0];
    let ended = match stream.peek(&mut byte) {
        Ok(_) => true,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    };
    stream.set_nonblocking(false).unwrap();
    ended
}

/// Whether the other side has closed, whatever it said before; asked without waiting.
pub(crate) fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let mut bytes = [0; 4096];
    let closed = loop {
        match stream.read(&mut bytes) {
            Ok(0) => break true,
            Ok(_) => {}
            Err(error) => break error.kind() != ErrorKind::WouldBlock,
        }
    };
    stream.set_nonblocking(false).unwrap();
    closed
}

/// Sends one of these bytes to each connection that is still open, again and again, until none is. How long that took.
pub(crate) fn drip(streams: &mut [TcpStream], drop: &[u8], every: Duration, limit: Duration) -> Option<Duration> {
    let begun = now();
    while begun.elapsed() < limit {
        let mut open = 0;
        for stream in streams.iter_mut() {
            if !has_ended(stream) && stream.write_all(drop).is_ok() {
                open += 1;
            }
        }
        if open == 0 {
            return Some(begun.elapsed());
        }
        hapax_testkit::wait::pass(every);
    }
    None
}

#[expect(clippy::disallowed_methods, reason = "tests measure how long something takes")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// A frame of HTTP/2.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A GET by HTTP/2.
pub(crate) fn get_by_http2(stream: u32, path: &str) -> Vec<u8> {
    // GET and http have numbers of their own.
    frame(1, 5, stream, &block(&[0x82, 0x86], &[(":path", path), (":authority", "a")]))
}

/// The head of a POST by HTTP/2; its body is to follow.
pub(crate) fn head(stream: u32, key: &str) -> Vec<u8> {
    let fields = [
        (":path", "/payments"),
        (":authority", "a"),
        ("authorization", "Bearer alice-secret"),
        ("idempotency-key", key),
        ("content-type", "text/plain"),
    ];
    // POST and http have numbers of their own.
    frame(1, 4, stream, &block(&[0x83, 0x86], &fields))
}

/// Fields by their numbers, then others as they are.
fn block(known: &[u8], fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = known.to_vec();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend(text.bytes());
        }
    }
    block
}

/// An upstream that becomes a WebSocket where it is asked to, and never says a word then; everything else gets a 200.
pub(crate) fn websockets() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(1..) = stream.read(&mut bytes) {
                    let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
                    let answer: &[u8] = if text.starts_with("get /chat") {
                        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
                    } else {
                        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
                    };
                    bytes = [0; 4096];
                    if !text.starts_with("echo") && stream.write_all(answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    addr
}
