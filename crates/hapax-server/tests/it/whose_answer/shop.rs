//! An upstream that keeps payments and looks them up by whatever it is asked: key, record id, tenant, order. It resolves dot
//! segments as web servers do.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What `/` says: nobody but an operator should see it.
pub(crate) const ROOT: &str = r#"{"status":"succeeded","owner":"everybody's payments"}"#;

/// A request as it came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) target: String,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The text of a member of the body, as it stands there.
    fn member(&self, name: &str) -> Option<&str> {
        let (_, rest) = self.body.split_once(&format!("\"{name}\":"))?;
        let end = rest.find([',', '}'])?;
        Some(rest[..end].trim().trim_matches('"'))
    }
}

/// The upstream.
#[derive(Clone)]
pub(crate) struct Shop {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// Requests that were carried out, and the answers they got or should have got.
    paid: Arc<Mutex<Vec<(Seen, String)>>>,
}

impl Shop {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let shop = Self { address: listener.local_addr().unwrap(), seen: Arc::default(), paid: Arc::default() };
        let inside = shop.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shop = inside.clone();
                std::thread::spawn(move || shop.serve(stream));
            }
        });
        shop
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// The targets of what probes asked.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.seen().into_iter().filter(|seen| seen.method == "GET").map(|seen| seen.target).collect()
    }

    /// How often a payment under that key was carried out for that caller.
    pub(crate) fn executions(&self, caller: &str, key: &str) -> usize {
        let paid = self.paid.lock().unwrap();
        paid.iter().filter(|(seen, _)| owner(seen) == caller && seen.header("idempotency-key") == Some(key)).count()
    }

    fn serve(&self, mut stream: TcpStream) {
        while let Some(seen) = read(&mut stream) {
            self.seen.lock().unwrap().push(seen.clone());
            let wish = seen.header("x-test").unwrap_or_default().to_owned();
            let answer = match seen.method.as_str() {
                // Lost before the work.
                "POST" if wish == "drop" => return,
                "POST" => self.pay(seen),
                _ => self.look_up(&seen.target),
            };
            // Lost after the work.
            if wish == "lose" || stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }

    fn pay(&self, seen: Seen) -> String {
        let mut paid = self.paid.lock().unwrap();
        let body = format!(r#"{{"status":"succeeded","owner":"{}","payment":{}}}"#, owner(&seen), paid.len() + 1);
        paid.push((seen, body.clone()));
        response("201 Created", &body)
    }

    fn look_up(&self, target: &str) -> String {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let path = decoded(path);
        let order = path.strip_prefix("/payments/");
        if order.is_some_and(|order| order.split('/').any(|segment| segment == "..")) {
            return response("200 OK", ROOT);
        }
        let fits = |seen: &Seen, name: &str, value: &str| match name {
            "key" | "idempotency_key" => seen.header("idempotency-key") == Some(value),
            "record" => seen.header("idempotency-record") == Some(value),
            "tenant" => seen.header("x-tenant").map(|tenant| format!("h:{tenant}")).as_deref() == Some(value),
            _ => true,
        };
        let paid = self.paid.lock().unwrap();
        let found = paid.iter().find(|(seen, _)| {
            let asked = query.split('&').filter_map(|pair| pair.split_once('='));
            asked.into_iter().all(|(name, value)| fits(seen, name, &decoded(value)))
                && order.is_none_or(|order| seen.member("order") == Some(order))
        });
        match found {
            Some((_, body)) => response("200 OK", body),
            None => response("404 Not Found", "{}"),
        }
    }
}

fn owner(seen: &Seen) -> &str {
    let token = seen.header("authorization").unwrap_or_default();
    seen.header("x-tenant").unwrap_or_else(|| token.trim_start_matches("Bearer ").trim_end_matches("-secret"))
}

fn response(status: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}")
}

fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let hex = (*first == b'%').then(|| after.get(..2)).flatten().and_then(|hex| str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => (bytes.push(byte), rest = &after[2..]).1,
            None => (bytes.push(*first), rest = after).1,
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn read(stream: &mut TcpStream) -> Option<Seen> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?.to_owned(), first.next()?.to_owned());
    let fields = lines.filter_map(|line| line.split_once(':'));
    let headers = fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect();
    let mut seen = Seen { method, target, headers, body: String::new() };
    let length = seen.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    seen.body = String::from_utf8(body).ok()?;
    Some(seen)
}
