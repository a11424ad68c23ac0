//! A new connection to the upstream: name, socket, TLS, protocol. Nothing of a request is sent here, so every failure means
//! that nothing happened.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::CertificateError;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::exchange::Connection;
use super::link::Link;
use super::reread::Reread;
use super::wire::{Socket, Wire};
use super::{Target, UpstreamOptions};
use crate::descriptors;

/// A larger head of an answer is not read. More than a record holds: such an answer is passed on, if not kept.
pub(super) const HEAD_BYTES_MAX: usize = hapax_core::limits::HEADER_BYTES_MAX + 32 * 1024;
/// hyper's buffer for reading; more than the largest head.
const READ_BUFFER_BYTES_MAX: usize = 128 * 1024;

/// Why nothing was connected: it is not the upstream's fault.
const NO_DESCRIPTOR: &str = "no file descriptor is left; raise the limit with ulimit -n, or LimitNOFILE= in the unit";

/// How often it is tried again where none is left, and after which time.
const DESCRIPTOR_LOOKS_MAX: usize = 20;
const DESCRIPTOR_PAUSE: Duration = Duration::from_millis(100);

/// What was connected.
pub(super) enum Connected {
    Http1(Box<Connection>),
    Http2(Arc<Link>),
}

/// In the clear, or encrypted.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(Socket),
    Tls(Box<TlsStream<Socket>>),
    /// Either of them, with an answer that is read a second time.
    Reread(Box<Reread>),
}

/// Connects within the time allowed. The error says why not, in a few words.
pub(super) async fn connect(target: &Target, options: &UpstreamOptions) -> Result<Connected, &'static str> {
    timeout(options.connect_timeout, try_connect(target, options)).await.unwrap_or(Err("connecting took too long"))
}

async fn try_connect(target: &Target, options: &UpstreamOptions) -> Result<Connected, &'static str> {
    let descriptor = descriptors::take().await;
    let wire = Wire::new(tcp_with_patience(target).await?, descriptor);
    let socket = Socket(Arc::clone(&wire));
    let Some(tls) = &target.tls else {
        let stream = Stream::Plain(socket);
        return if options.h2c { multiplexed(stream).await } else { one_by_one(stream, wire, options).await };
    };
    let name = ServerName::try_from(target.host.clone()).map_err(|_| "the upstream's name is no server name")?;
    let stream = TlsConnector::from(Arc::clone(tls)).connect(name, socket).await;
    let stream = stream.map_err(|error| handshake_failure(&error))?;
    let agreed = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let stream = Stream::Tls(Box::new(stream));
    if agreed { multiplexed(stream).await } else { one_by_one(stream, wire, options).await }
}

/// Why a TLS handshake failed, and what to do.
fn handshake_failure(error: &io::Error) -> &'static str {
    use rustls::{AlertDescription as Alert, Error};
    match error.get_ref().and_then(|error| error.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(error)) => bad_certificate(error),
        Some(Error::InvalidMessage(_)) => {
            "the upstream does not speak TLS at that port; write http:// in upstream.to, or another port"
        }
        Some(
            Error::PeerIncompatible(_)
            | Error::AlertReceived(Alert::HandshakeFailure | Alert::ProtocolVersion | Alert::InsufficientSecurity),
        ) => "the upstream has no version or cipher of TLS in common with hapax; let it speak TLS 1.2 or 1.3",
        Some(Error::AlertReceived(Alert::UnrecognisedName)) => {
            "the upstream has no certificate for its name; write a name that it knows in upstream.to"
        }
        Some(Error::AlertReceived(_)) => "the upstream ended the TLS handshake with an alert; look into its log",
        Some(_) => "the TLS handshake with the upstream failed",
        None => "the upstream closed the connection in the TLS handshake; check that it speaks TLS at that port",
    }
}

/// The word in brackets is rustls's own.
fn bad_certificate(error: &CertificateError) -> &'static str {
    use CertificateError as Bad;
    match error {
        Bad::UnknownIssuer => {
            "the upstream's certificate is signed by nobody who is trusted (UnknownIssuer); \
             give its authority's certificate with --upstream-ca"
        }
        Bad::NotValidForName | Bad::NotValidForNameContext { .. } => {
            "the upstream's certificate is for another name (NotValidForName); write one of its names in upstream.to"
        }
        Bad::Expired | Bad::ExpiredContext { .. } => "the upstream's certificate has expired (Expired); renew it",
        Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
            "the upstream's certificate is not valid yet (NotValidYet); check the clocks of both hosts"
        }
        Bad::Revoked => "the upstream's certificate was revoked (Revoked); renew it",
        Bad::BadSignature => {
            "the upstream's certificate is signed by another authority of the same name (BadSignature); \
             give its authority's certificate with --upstream-ca"
        }
        // An error of the library below, which has no other name here.
        Bad::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "the upstream shows an authority's certificate as its own (CaUsedAsEndEntity); \
             give it one that the authority has signed"
        }
        _ => {
            "the upstream's certificate is not accepted; \
             check it with a TLS client, and give its authority's with --upstream-ca"
        }
    }
}

/// Where no descriptor is left, one may come free in a moment: a request that was accepted is worth the wait.
async fn tcp_with_patience(target: &Target) -> Result<TcpStream, &'static str> {
    for _ in 0..DESCRIPTOR_LOOKS_MAX {
        match tcp(target).await {
            Err(why) if why == NO_DESCRIPTOR => sleep(DESCRIPTOR_PAUSE).await,
            connected => return connected,
        }
    }
    Err(NO_DESCRIPTOR)
}

/// Tries each address in turn.
async fn tcp(target: &Target) -> Result<TcpStream, &'static str> {
    let addresses = tokio::net::lookup_host((target.dial.as_str(), target.port)).await;
    let mut why = "the upstream's name has no address";
    for address in addresses.map_err(|error| unresolved(&error))? {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // Without it requests are only later.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                why = "the upstream refused the connection";
            }
            Err(error) if descriptors::ran_out(&error) => why = NO_DESCRIPTOR,
            Err(_) => why = "the upstream cannot be reached",
        }
    }
    Err(why)
}

fn unresolved(error: &io::Error) -> &'static str {
    if descriptors::ran_out(error) { NO_DESCRIPTOR } else { "the upstream's name cannot be resolved" }
}

async fn one_by_one(stream: Stream, wire: Arc<Wire>, options: &UpstreamOptions) -> Result<Connected, &'static str> {
    let begun = reader().handshake(TokioIo::new(stream)).await;
    let (sender, driver) = begun.map_err(|_| "the connection did not begin")?;
    Ok(Connected::Http1(Box::new(Connection::new(sender, driver, wire, options.answer_timeout))))
}

/// How answers are read. The number of fields is hyper's own limit; see [`reread`](super::reread).
pub(super) fn reader() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.max_header_size(HEAD_BYTES_MAX).max_buf_size(READ_BUFFER_BYTES_MAX);
    builder
}

async fn multiplexed(stream: Stream) -> Result<Connected, &'static str> {
    Link::begin(stream).await.map(Connected::Http2)
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_read(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Reread(reread) => Pin::new(&mut **reread).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_write(cx, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Reread(reread) => Pin::new(&mut **reread).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_write_vectored(cx, slices),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Stream::Reread(reread) => Pin::new(&mut **reread).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Stream::Plain(socket) => socket.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
            Stream::Reread(reread) => reread.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Reread(reread) => Pin::new(&mut **reread).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Reread(reread) => Pin::new(&mut **reread).poll_shutdown(cx),
        }
    }
}
