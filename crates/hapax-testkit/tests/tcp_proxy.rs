//! Every fault of the TCP proxy, seen from both ends of a connection.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests, like the tests themselves")]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hapax_testkit::tcp_proxy::TcpProxy;
use hapax_testkit::wait;

/// Nothing here takes longer on a machine that works.
const LIMIT: Duration = Duration::from_secs(10);
/// Long enough to see that nothing comes.
const SILENCE: Duration = Duration::from_millis(5);

/// A server that answers with what it is sent, and remembers it.
struct Echo {
    address: SocketAddr,
    received: Arc<Mutex<Vec<u8>>>,
}

impl Echo {
    fn start() -> Echo {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let echo = Echo { address: listener.local_addr().unwrap(), received: Arc::default() };
        let received = Arc::clone(&echo.received);
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let received = Arc::clone(&received);
                std::thread::spawn(move || answer(&connection.unwrap(), &received));
            }
        });
        echo
    }

    fn received(&self) -> Vec<u8> {
        self.received.lock().unwrap().clone()
    }

    fn wait_for(&self, bytes: &[u8]) {
        wait::until("the server receives the bytes", LIMIT, || self.received() == bytes);
    }
}

fn answer(mut connection: &TcpStream, received: &Mutex<Vec<u8>>) {
    let mut chunk = [0; 65536];
    while let Ok(length @ 1..) = connection.read(&mut chunk) {
        received.lock().unwrap().extend_from_slice(&chunk[..length]);
        if connection.write_all(&chunk[..length]).is_err() {
            return;
        }
    }
}

fn setup() -> (Echo, TcpProxy) {
    let echo = Echo::start();
    let proxy = TcpProxy::in_front_of(echo.address);
    (echo, proxy)
}

fn connect(proxy: &TcpProxy) -> TcpStream {
    let client = TcpStream::connect(proxy.address()).unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    client
}

fn ask(client: &mut TcpStream, bytes: &[u8]) -> Vec<u8> {
    client.write_all(bytes).unwrap();
    let mut answer = vec![0; bytes.len()];
    client.read_exact(&mut answer).unwrap();
    answer
}

/// What still arrives until the connection is cut. A reset counts as cut, a time-out does not.
fn read_until_cut(client: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    match client.read_to_end(&mut all) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
    all
}

fn assert_silent(client: &mut TcpStream) {
    client.set_read_timeout(Some(SILENCE)).unwrap();
    let error = client.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
    client.set_read_timeout(Some(LIMIT)).unwrap();
}

#[expect(clippy::disallowed_methods, reason = "measures how long real bytes take")]
fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

#[test]
fn bytes_pass_both_ways_and_are_counted() {
    let (_echo, proxy) = setup();
    let mut client = connect(&proxy);
    let large: Vec<u8> = (0..1_000_000_u32).map(|number| number as u8).collect();
    let mut writer = client.try_clone().unwrap();
    let sent = large.clone();
    let sending = std::thread::spawn(move || writer.write_all(&sent).unwrap());
    let mut answer = vec![0; large.len()];
    client.read_exact(&mut answer).unwrap();
    sending.join().unwrap();
    assert!(answer == large, "the bytes came back changed");
    wait::until("the bytes are counted", LIMIT, || proxy.counts().server_bytes == 1_000_000);
    let counts = proxy.counts();
    assert_eq!((counts.connections, counts.open, counts.client_bytes), (1, 1, 1_000_000));
    drop(client);
    wait::until("the connection is gone", LIMIT, || proxy.counts().open == 0);
}

#[test]
fn the_end_of_one_side_passes_while_the_other_still_talks() {
    let (_echo, proxy) = setup();
    let mut client = connect(&proxy);
    client.write_all(b"last words").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_until_cut(&mut client), b"last words");
}

#[test]
fn cut_after_client_bytes_forwards_exactly_so_many() {
    let (echo, proxy) = setup();
    let mut client = connect(&proxy);
    ask(&mut client, b"before ");
    proxy.cut_after_client_bytes(5);
    client.write_all(b"01234567").unwrap();
    read_until_cut(&mut client);
    echo.wait_for(b"before 01234");
    wait::until("the connection is gone", LIMIT, || proxy.counts().open == 0);
    assert_eq!(echo.received(), b"before 01234");
}

#[test]
fn cut_after_client_bytes_counts_over_several_chunks() {
    let (echo, proxy) = setup();
    let mut client = connect(&proxy);
    proxy.cut_after_client_bytes(7);
    assert_eq!(ask(&mut client, b"abc"), b"abc");
    assert_eq!(ask(&mut client, b"def"), b"def");
    client.write_all(b"ghi").unwrap();
    read_until_cut(&mut client);
    echo.wait_for(b"abcdefg");
}

#[test]
fn cut_after_no_client_bytes_cuts_before_the_next() {
    let (echo, proxy) = setup();
    let mut client = connect(&proxy);
    ask(&mut client, b"x");
    proxy.cut_after_client_bytes(0);
    assert_silent(&mut client);
    client.write_all(b"y").unwrap();
    assert_eq!(read_until_cut(&mut client), b"");
    assert_eq!(echo.received(), b"x");
}

#[test]
fn cut_after_server_bytes_delivers_exactly_so_many() {
    let (echo, proxy) = setup();
    let mut client = connect(&proxy);
    proxy.cut_after_server_bytes(3);
    client.write_all(b"abcdef").unwrap();
    assert_eq!(read_until_cut(&mut client), b"abc");
    assert_eq!(echo.received(), b"abcdef");
}

#[test]
fn cut_after_no_server_bytes_loses_the_whole_answer() {
    let (echo, proxy) = setup();
    let mut client = connect(&proxy);
    proxy.cut_after_server_bytes(0);
    client.write_all(b"abc").unwrap();
    assert_eq!(read_until_cut(&mut client), b"");
    assert_eq!(echo.received(), b"abc");
}

#[test]
fn a_cut_after_bytes_happens_once_and_to_one_connection() {
    let (_echo, proxy) = setup();
    let mut other = connect(&proxy);
    ask(&mut other, b"open");
    let mut client = connect(&proxy);
    proxy.cut_after_client_bytes(1);
    client.write_all(b"zz").unwrap();
    read_until_cut(&mut client);
    assert_eq!(ask(&mut other, b"still here"), b"still here");
    assert_eq!(ask(&mut connect(&proxy), b"again"), b"again");
}

#[test]
fn cut_now_ends_open_connections_and_lets_new_ones_in() {
    let (echo, proxy) = setup();
    // Not yet accepted by the proxy, perhaps, but open for the client.
    let mut clients: Vec<TcpStream> = (0..8).map(|_| connect(&proxy)).collect();
    proxy.cut_now();
    for client in &mut clients {
        // The write may fail already; whatever it does, the server must not get it.
        let _ = client.write_all(b"late");
        assert_eq!(read_until_cut(client), b"");
    }
    assert_eq!(ask(&mut connect(&proxy), b"new"), b"new");
    assert_eq!(echo.received(), b"new");
}

#[test]
fn refused_connections_fail_while_open_ones_live_on() {
    let (_echo, proxy) = setup();
    let mut client = connect(&proxy);
    proxy.refuse(true);
    proxy.refuse(true);
    let error = TcpStream::connect(proxy.address()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(ask(&mut client, b"old"), b"old");
    proxy.refuse(false);
    assert_eq!(ask(&mut connect(&proxy), b"new"), b"new");
}

#[test]
fn delay_holds_back_each_chunk_in_each_direction() {
    let (_echo, proxy) = setup();
    let mut client = connect(&proxy);
    let delay = Duration::from_millis(4);
    proxy.delay(delay);
    let taken = timed(|| assert_eq!(ask(&mut client, b"slow"), b"slow"));
    assert!(taken >= 2 * delay, "{taken:?}");
}

#[test]
fn throttle_spreads_bytes_over_time() {
    let (_echo, proxy) = setup();
    let mut client = connect(&proxy);
    proxy.throttle(100_000);
    // Two pieces of a hundredth of a second's worth: the second one waits for 10 ms.
    let taken = timed(|| assert_eq!(ask(&mut client, &[7; 2_000]), [7; 2_000]));
    assert!(taken >= Duration::from_millis(10), "{taken:?}");
}

#[test]
fn healing_ends_a_delay_and_a_throttle_at_once() {
    let (_echo, proxy) = setup();
    let mut client = connect(&proxy);
    proxy.delay(Duration::from_secs(3600));
    client.write_all(b"abc").unwrap();
    assert_silent(&mut client);
    proxy.heal();
    let mut answer = [0; 3];
    client.read_exact(&mut answer).unwrap();
    proxy.throttle(1);
    client.write_all(&[1; 10_000]).unwrap();
    wait::until("the first byte has passed", LIMIT, || proxy.counts().client_bytes > 3);
    proxy.heal();
    client.read_exact(&mut [0; 10_000]).unwrap();
}

#[test]
fn a_black_hole_keeps_connections_and_swallows_bytes() {
    let (echo, proxy) = setup();
    let mut client = connect(&proxy);
    ask(&mut client, b"x");
    proxy.black_hole(true);
    let mut late = connect(&proxy);
    for client in [&mut client, &mut late] {
        client.write_all(b"lost").unwrap();
        assert_silent(client);
    }
    assert_eq!(echo.received(), b"x");
    assert_eq!(proxy.counts().open, 2);
}

#[test]
fn connections_that_lost_bytes_are_cut_when_the_fault_ends() {
    let (echo, proxy) = setup();
    let mut unhurt = connect(&proxy);
    let mut client = connect(&proxy);
    ask(&mut client, b"x");
    proxy.black_hole(true);
    client.write_all(b"lost").unwrap();
    assert_silent(&mut client);
    proxy.black_hole(false);
    // Whether the proxy had read the lost bytes by now or not, the connection is cut or whole, never torn.
    let rest = read_until_cut_or(&mut client, b"lost".len());
    assert!(rest.is_empty() || rest == b"lost", "{rest:?}");
    assert_eq!(ask(&mut unhurt, b"y"), b"y");
    assert!([b"xy".to_vec(), b"xlosty".to_vec()].contains(&echo.received()));
}

/// What arrives until the connection is cut or `enough` bytes are there.
fn read_until_cut_or(client: &mut TcpStream, enough: usize) -> Vec<u8> {
    let mut all = Vec::new();
    match client.take(enough as u64).read_to_end(&mut all) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
    all
}

#[test]
fn held_replies_show_the_server_done_and_the_client_waiting() {
    let (echo, proxy) = setup();
    let mut client = connect(&proxy);
    proxy.hold_replies(true);
    client.write_all(b"commit").unwrap();
    echo.wait_for(b"commit");
    assert_silent(&mut client);
    proxy.cut_now();
    assert_eq!(read_until_cut(&mut client), b"");
    proxy.heal();
    assert_eq!(ask(&mut connect(&proxy), b"!"), b"!");
}

#[test]
fn a_lost_reply_reaches_the_server_but_not_the_client() {
    let (echo, proxy) = setup();
    let mut other = connect(&proxy);
    let mut client = connect(&proxy);
    ask(&mut client, b"x");
    proxy.lose_next_reply();
    client.write_all(b"commit").unwrap();
    assert_eq!(read_until_cut(&mut client), b"");
    assert_eq!(echo.received(), b"xcommit");
    assert_eq!(proxy.counts().replies_lost, 1);
    assert_eq!(ask(&mut other, b"other"), b"other");
    assert_eq!(ask(&mut connect(&proxy), b"again"), b"again");
    assert_eq!(proxy.counts().replies_lost, 1);
}

#[test]
fn healing_takes_back_faults_that_have_not_happened() {
    let (_echo, proxy) = setup();
    proxy.cut_after_client_bytes(1);
    proxy.cut_after_server_bytes(1);
    proxy.lose_next_reply();
    proxy.hold_replies(true);
    proxy.black_hole(true);
    proxy.refuse(true);
    proxy.heal();
    let mut client = connect(&proxy);
    assert_eq!(ask(&mut client, b"whole"), b"whole");
    assert_eq!(ask(&mut client, b"and again"), b"and again");
}

#[test]
fn a_server_that_is_away_ends_the_connection() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = TcpProxy::in_front_of(address);
    assert_eq!(read_until_cut(&mut connect(&proxy)), b"");
}

#[test]
fn dropping_the_proxy_cuts_connections_and_closes_the_port() {
    let (_echo, proxy) = setup();
    let mut client = connect(&proxy);
    ask(&mut client, b"x");
    let address = proxy.address();
    drop(proxy);
    assert_eq!(read_until_cut(&mut client), b"");
    assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}
