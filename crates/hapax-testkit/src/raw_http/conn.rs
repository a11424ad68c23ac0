//! One connection that is kept, half-closed, reset, or abandoned in the middle of a request.

use std::io::{BufReader, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, Type};

use super::response::{self, ReadError, Response};
use super::{Request, request};

/// Every read and write ends by then, so that a server that hangs fails a test instead of stopping it.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// A connection to a server. Dropping it closes it in good order, FIN and all.
#[derive(Debug)]
pub struct Conn {
    stream: BufReader<TcpStream>,
}

impl Conn {
    /// Connects.
    ///
    /// # Panics
    ///
    /// When nobody listens there.
    #[track_caller]
    pub fn open(to: SocketAddr) -> Conn {
        match Conn::try_open(to) {
            Ok(conn) => conn,
            Err(error) => panic!("{to}: {error}"),
        }
    }

    /// Connects, or says why not.
    ///
    /// # Errors
    ///
    /// When nobody listens there.
    pub fn try_open(to: SocketAddr) -> Result<Conn, ReadError> {
        let stream = TcpStream::connect_timeout(&to, DEADLINE).map_err(ReadError::Refused)?;
        // Bytes are to leave as they are written: a test counts on what the server has seen.
        stream.set_nodelay(true).map_err(ReadError::Refused)?;
        let mut conn = Conn { stream: BufReader::new(stream) };
        conn.set_deadline(DEADLINE);
        Ok(conn)
    }

    /// Connects from another address of this machine, such as 127.0.0.2: another client, as limits per client see it.
    ///
    /// # Panics
    ///
    /// When nobody listens there, or the address is not this machine's.
    #[track_caller]
    pub fn open_from(ip: IpAddr, to: SocketAddr) -> Conn {
        let connect = || {
            let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
            socket.bind(&SocketAddr::new(ip, 0).into())?;
            socket.connect_timeout(&to.into(), DEADLINE)?;
            socket.set_tcp_nodelay(true)?;
            std::io::Result::Ok(TcpStream::from(socket))
        };
        let stream = connect().unwrap_or_else(|error| panic!("{to} from {ip}: {error}"));
        let mut conn = Conn { stream: BufReader::new(stream) };
        conn.set_deadline(DEADLINE);
        conn
    }

    /// Sets how long one read or write may take from now on.
    pub fn set_deadline(&mut self, limit: Duration) {
        let stream = self.stream.get_ref();
        stream.set_read_timeout(Some(limit)).expect("a limit above zero");
        stream.set_write_timeout(Some(limit)).expect("a limit above zero");
    }

    /// The address on our side, by which the server knows the connection.
    pub fn local_address(&self) -> SocketAddr {
        self.stream.get_ref().local_addr().expect("an open socket has an address")
    }

    /// Writes exactly these bytes.
    ///
    /// # Panics
    ///
    /// When the server has closed the connection.
    #[track_caller]
    pub fn write(&mut self, bytes: &[u8]) {
        self.try_write(bytes).expect("the server takes the bytes");
    }

    /// Writes exactly these bytes, or says that nobody takes them.
    ///
    /// # Errors
    ///
    /// When the server has closed the connection.
    pub fn try_write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Writes the first `count` bytes of a request and stops there.
    #[track_caller]
    pub fn write_part(&mut self, request: &Request, count: usize) {
        let bytes = request.bytes();
        self.write(&bytes[..count.min(bytes.len())]);
    }

    /// Sends a request and reads its answer; the connection can be used again.
    ///
    /// # Panics
    ///
    /// When there is no complete answer before the deadline.
    #[track_caller]
    pub fn send(&mut self, request: &Request) -> Response {
        match self.try_send(request) {
            Ok(response) => response,
            Err(error) => panic!("{error}"),
        }
    }

    /// Sends a request and reads its answer, or says what came instead.
    ///
    /// # Errors
    ///
    /// When there is no complete answer before the deadline.
    pub fn try_send(&mut self, request: &Request) -> Result<Response, ReadError> {
        // A server may answer and close before it has read everything: its answer counts, not our failed write.
        let written = self.try_write(&request.bytes());
        match Response::read(&mut self.stream, request.is_head()) {
            Err(ReadError::Closed) if written.is_err() => Err(ReadError::Reset),
            read => read,
        }
    }

    /// Reads the next response, to anything but a HEAD.
    ///
    /// # Errors
    ///
    /// When there is no complete answer before the deadline.
    pub fn read_response(&mut self) -> Result<Response, ReadError> {
        Response::read(&mut self.stream, false)
    }

    /// Reads exactly `count` bytes of whatever comes.
    ///
    /// # Panics
    ///
    /// When fewer come before the deadline.
    #[track_caller]
    pub fn read_bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).expect("so many bytes");
        bytes
    }

    /// Reads everything up to the end of the connection.
    ///
    /// # Errors
    ///
    /// When it does not end before the deadline, or ends by a reset.
    pub fn read_to_end(&mut self) -> Result<Vec<u8>, ReadError> {
        let mut bytes = Vec::new();
        match self.stream.read_to_end(&mut bytes) {
            Ok(_) => Ok(bytes),
            Err(error) => Err(response::of(&error, &bytes)),
        }
    }

    /// Says that we have nothing more to send, and goes on listening.
    pub fn half_close(&mut self) {
        // Where the server has closed first, this is done already.
        let _ = self.stream.get_ref().shutdown(Shutdown::Write);
    }

    /// Ends the connection with a reset instead of a FIN: the server's next read or write fails.
    pub fn reset(self) {
        SockRef::from(self.stream.get_ref()).set_linger(Some(Duration::ZERO)).expect("a socket can be told to reset");
    }

    /// Asserts that the server closes the connection and sends nothing more.
    ///
    /// # Panics
    ///
    /// When it sends something, or keeps the connection open.
    #[track_caller]
    pub fn expect_closed(&mut self) {
        match self.read_to_end() {
            Ok(bytes) => assert!(bytes.is_empty(), "after its answer came {:?}", String::from_utf8_lossy(&bytes)),
            Err(ReadError::Reset) => {}
            Err(error) => panic!("the connection is not closed: {error}"),
        }
    }

    /// Asserts that the connection is in step: a GET gets an answer that is its own.
    ///
    /// # Panics
    ///
    /// When there is none, or bytes are left over from before.
    #[track_caller]
    pub fn expect_usable(&mut self, target: &str) -> Response {
        assert!(self.stream.buffer().is_empty(), "left over: {:?}", String::from_utf8_lossy(self.stream.buffer()));
        self.send(&request("GET", target))
    }
}
