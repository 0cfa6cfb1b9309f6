//! A small HTTP/1.1 server, the backend for curl: `GET /bytes/N` returns N random bytes, `PUT` and `POST`
//! answer with the SHA-256 of the body. Connections are kept alive unless a client asks for their end.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::content::{Meter, Total, random};

const BLOCK: usize = 64 * 1024;
const HEADER_LINES_MAX: usize = 100;
const LINE_MAX: u64 = 8192;

/// A running server.
pub struct Web {
    sent: Arc<Mutex<Vec<Total>>>,
    address: SocketAddr,
}

impl Web {
    /// Starts to serve, until the test program ends.
    ///
    /// # Panics
    /// When the address is not available.
    pub fn start(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).expect("an unused address");
        let address = listener.local_addr().expect("a bound listener");
        let sent = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&sent);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let log = Arc::clone(&log);
                // A client that disconnects is a matter of the test, not an error here.
                std::thread::spawn(move || drop(serve(stream, &log)));
            }
        });
        Self { sent, address }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The bodies that were sent, ordered by completion.
    pub fn sent(&self) -> Vec<Total> {
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.clone()
    }
}

struct Request {
    method: String,
    path: String,
    headers: HashMap<String, String>,
}

fn serve(stream: TcpStream, log: &Mutex<Vec<Total>>) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    while let Some(request) = read_request(&mut reader)? {
        if request
            .headers
            .get("expect")
            .is_some_and(|value| value == "100-continue")
        {
            writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let close = request
            .headers
            .get("connection")
            .is_some_and(|value| value == "close");
        let length = request.headers.get("content-length");
        let length = length.and_then(|value| value.parse().ok()).unwrap_or(0);
        match (
            request.method.as_str(),
            request.path.strip_prefix("/bytes/"),
        ) {
            ("GET", Some(count)) => {
                let count = count.parse().unwrap_or(0);
                send_random(&mut writer, count, close, log)?;
            }
            ("PUT" | "POST", _) => {
                let body = receive(&mut reader, length)?;
                answer(&mut writer, "200 OK", body.sha256.as_bytes())?;
            }
            _ => answer(&mut writer, "404 Not Found", b"")?,
        }
        if close {
            break;
        }
    }
    Ok(())
}

fn read_request(reader: &mut BufReader<TcpStream>) -> io::Result<Option<Request>> {
    let first = read_line(reader)?;
    let mut words = first.split(' ').map(str::to_owned);
    let (Some(method), Some(path)) = (words.next(), words.next()) else {
        return Ok(None);
    };
    let mut headers = HashMap::new();
    for _ in 0..HEADER_LINES_MAX {
        let line = read_line(reader)?;
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        headers.insert(name.to_lowercase(), value.trim().to_lowercase());
    }
    Ok(Some(Request {
        method,
        path,
        headers,
    }))
}

fn read_line(reader: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    reader.by_ref().take(LINE_MAX).read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

fn answer(writer: &mut TcpStream, status: &str, body: &[u8]) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    writer.write_all(head.as_bytes())?;
    writer.write_all(body)
}

fn send_random(
    writer: &mut TcpStream,
    bytes: u64,
    close: bool,
    log: &Mutex<Vec<Total>>,
) -> io::Result<()> {
    let end = if close { "connection: close\r\n" } else { "" };
    write!(
        writer,
        "HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n{end}\r\n"
    )?;
    let mut meter = Meter::default();
    while meter.bytes() < bytes {
        let left = bytes - meter.bytes();
        let part = random(left.min(BLOCK as u64) as usize);
        // Counted first, because the client may ask as soon as it has read the end.
        meter.add(&part);
        if meter.bytes() == bytes {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            log.push(meter.total());
            return writer.write_all(&part);
        }
        writer.write_all(&part)?;
    }
    Ok(())
}

fn receive(reader: &mut BufReader<TcpStream>, bytes: u64) -> io::Result<Total> {
    let mut meter = Meter::default();
    let mut part = vec![0; BLOCK];
    while meter.bytes() < bytes {
        let left = (bytes - meter.bytes()).min(BLOCK as u64) as usize;
        let count = reader.read(&mut part[..left])?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        meter.add(&part[..count]);
    }
    Ok(meter.total())
}
