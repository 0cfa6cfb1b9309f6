//! One request over HTTP/1.1, one response: bounded in time and bytes, on a connection of its own.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

/// Of a response, head and body together.
const RESPONSE_MAX: usize = 256 << 10;
const HEADERS_MAX: usize = 64;

pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    pub(super) url: &'a str,
    pub(super) content_type: &'a str,
    pub(super) body: &'a [u8],
}

#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

/// Where a URL leads to.
#[derive(Debug, PartialEq)]
struct Place<'a> {
    host: &'a str,
    port: u16,
    path: &'a str,
}

impl<'a> Place<'a> {
    fn of(url: &'a str) -> Option<Place<'a>> {
        let rest = url.strip_prefix("http://")?;
        // What comes out of a certificate must not end a line of the request.
        if rest.contains(|c: char| !c.is_ascii_graphic()) {
            return None;
        }
        let at = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
            _ => (authority, 80),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        (!host.is_empty()).then_some(Place {
            host,
            port,
            path: if path.is_empty() { "/" } else { path },
        })
    }
}

/// Sends the request and reads all of the response.
pub(super) fn exchange(request: &Request<'_>, patience: Duration) -> io::Result<Response> {
    let invalid = |why: &'static str| io::Error::new(io::ErrorKind::InvalidInput, why);
    let place = Place::of(request.url).ok_or_else(|| invalid("not a URL that can be asked"))?;
    let deadline = Instant::now() + patience;
    let mut tcp = connect(&place, deadline)?;
    let mut message = format!(
        "{} {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: dormouse\r\nConnection: close\r\n\
         Content-Type: {}\r\nContent-Length: {}\r\n\r\n",
        request.method,
        place.path,
        place.host,
        request.content_type,
        request.body.len()
    )
    .into_bytes();
    message.extend_from_slice(request.body);
    tcp.set_write_timeout(Some(left(deadline)?))?;
    tcp.write_all(&message)?;
    let mut received = Vec::new();
    let mut room = [0; 4096];
    loop {
        if let Some(response) = read(&received, false)? {
            return Ok(response);
        }
        tcp.set_read_timeout(Some(left(deadline)?))?;
        match tcp.read(&mut room)? {
            0 => return read(&received, true)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into()),
            n => received.extend_from_slice(room.get(..n).unwrap_or_default()),
        }
        if received.len() > RESPONSE_MAX {
            return Err(io::Error::other("the response is too long"));
        }
    }
}

fn connect(place: &Place<'_>, deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    for address in (place.host, place.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(deadline)?) {
            Ok(tcp) => return Ok(tcp),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time"));
    }
    Ok(left)
}

/// The response, if all of it is there. `ended`: nothing more comes.
fn read(received: &[u8], ended: bool) -> io::Result<Option<Response>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let parsed = head.parse(received);
    let parsed = parsed.map_err(|error| io::Error::other(error.to_string()))?;
    let httparse::Status::Complete(len) = parsed else {
        return Ok(None);
    };
    let value = |name: &str| {
        let mut all = head.headers.iter();
        let found = all.find(|header| header.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(found.value).ok()
    };
    let status = head.code.unwrap_or(0);
    let body = received.get(len..).unwrap_or_default();
    let whole = |body: &[u8]| {
        let body = body.to_vec();
        Ok(Some(Response { status, body }))
    };
    if value("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
        return match unchunk(body)? {
            Some(body) => whole(&body),
            None => Ok(None),
        };
    }
    match value("content-length").map(str::parse::<usize>) {
        Some(Err(_)) => Err(io::Error::other("a length which is no number")),
        Some(Ok(wanted)) => match body.get(..wanted) {
            Some(body) => whole(body),
            None => Ok(None),
        },
        None if ended => whole(body),
        None => Ok(None),
    }
}

/// What is in the chunks (RFC 9112 §7.1), if the last is there.
fn unchunk(mut rest: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    loop {
        let Ok(httparse::Status::Complete((head, len))) = httparse::parse_chunk_size(rest) else {
            return if httparse::parse_chunk_size(rest).is_err() {
                Err(io::Error::other("a chunk which is none"))
            } else {
                Ok(None)
            };
        };
        if len == 0 {
            return Ok(Some(body));
        }
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let chunk = rest.get(head..).and_then(|rest| rest.get(..len));
        let Some(chunk) = chunk else { return Ok(None) };
        body.extend_from_slice(chunk);
        match rest.get(head + len + 2..) {
            Some(behind) => rest = behind,
            None => return Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_lead_to_places_and_end_no_line() {
        let place = |url| Place::of(url).map(|place| (place.host, place.port, place.path));
        assert_eq!(place("http://a.example"), Some(("a.example", 80, "/")));
        assert_eq!(place("http://a:81/x/y?z"), Some(("a", 81, "/x/y?z")));
        assert_eq!(place("http://[::1]:81/"), Some(("::1", 81, "/")));
        assert_eq!(place("http://[::1]/"), Some(("::1", 80, "/")));
        for bad in [
            "https://a/",
            "http://",
            "http://a:x/",
            "http://a/\r\nX: y",
            "a",
        ] {
            assert_eq!(place(bad), None, "{bad}");
        }
    }

    #[test]
    fn responses_are_whole_however_they_are_framed() {
        let all = [
            &b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"[..],
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
        ];
        for response in all {
            for len in 0..response.len() - 4 {
                let part = read(&response[..len], false).expect("nothing wrong");
                assert!(part.is_none(), "cut at {len}");
            }
            let read = read(response, false).expect("read").expect("whole");
            assert_eq!((read.status, &read.body[..]), (200, &b"abc"[..]));
        }
        let endless = b"HTTP/1.0 404 No\r\n\r\nabc";
        assert!(read(endless, false).expect("read").is_none());
        assert_eq!(
            read(endless, true).expect("read").expect("whole").body,
            b"abc"
        );
        assert!(read(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", false).is_err());
    }
}
