//! An HTTP/1.1 client: one request and one response per connection, bounded in time and bytes.

use crate::transport::Connector;
use std::io::{self, Read as _, Write as _};
use std::time::Duration;

/// Maximum bytes of a response, head included.
const RESPONSE_MAX: usize = 256 << 10;
const HEADERS_MAX: usize = 64;
const SWITCHING_PROTOCOLS: u16 = 101;
const NO_CONTENT: u16 = 204;

pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    pub(super) url: &'a str,
    pub(super) content_type: Option<&'a str>,
    pub(super) body: &'a [u8],
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Header names as received.
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
}

/// The parts of a URL.
#[derive(Debug, PartialEq)]
struct Place<'a> {
    tls: bool,
    host: &'a str,
    port: u16,
    path: &'a str,
}

impl<'a> Place<'a> {
    fn of(url: &'a str) -> Option<Place<'a>> {
        let (tls, rest) = match url.strip_prefix("https://") {
            Some(rest) => (true, rest),
            None => (false, url.strip_prefix("http://")?),
        };
        // A URL from a certificate must not be able to end a line of the request.
        if rest.contains(|c: char| !c.is_ascii_graphic()) {
            return None;
        }
        let at = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
            _ => (authority, if tls { 443 } else { 80 }),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        (!host.is_empty()).then_some(Place {
            tls,
            host,
            port,
            path: if path.is_empty() { "/" } else { path },
        })
    }
}

/// Sends the request and reads the whole response. With `tls`, the URL must be https; without, http.
pub(super) fn exchange(
    request: &Request<'_>,
    tls: Option<&Connector>,
    timeout: Duration,
) -> io::Result<Response> {
    let invalid = |why: &'static str| io::Error::new(io::ErrorKind::InvalidInput, why);
    let place = Place::of(request.url).ok_or_else(|| invalid("not a valid http or https URL"))?;
    if place.tls != tls.is_some() {
        return Err(invalid(match place.tls {
            true => "the URL must be http, not https",
            false => "the URL must be https, not http",
        }));
    }
    let plain = Connector::plain();
    let connector = tls.unwrap_or(&plain);
    let mut transport = connector.connect(place.host, place.port, timeout)?;
    transport.write_all(&message(request, &place))?;
    let is_head = request.method == "HEAD";
    let mut received = Vec::new();
    let mut room = [0; 4096];
    loop {
        if let Some(response) = read(&received, is_head, Stream::Open)? {
            return Ok(response);
        }
        match transport.read(&mut room)? {
            0 => {
                let response = read(&received, is_head, Stream::Ended)?;
                return response.ok_or_else(|| io::ErrorKind::UnexpectedEof.into());
            }
            n => received.extend_from_slice(room.get(..n).unwrap_or_default()),
        }
        if received.len() > RESPONSE_MAX {
            return Err(io::Error::other("response longer than 256 KiB"));
        }
    }
}

fn message(request: &Request<'_>, place: &Place<'_>) -> Vec<u8> {
    let host = match place.host.contains(':') {
        true => format!("[{}]", place.host),
        false => place.host.to_owned(),
    };
    let port = match (place.tls, place.port) {
        (true, 443) | (false, 80) => String::new(),
        (_, port) => format!(":{port}"),
    };
    let kind = request.content_type;
    let kind = kind.map_or(String::new(), |kind| format!("Content-Type: {kind}\r\n"));
    let mut message = format!(
        "{} {} HTTP/1.1\r\nHost: {host}{port}\r\nUser-Agent: dormouse/{}\r\nConnection: close\r\n\
         {kind}Content-Length: {}\r\n\r\n",
        request.method,
        place.path,
        env!("CARGO_PKG_VERSION"),
        request.body.len()
    )
    .into_bytes();
    message.extend_from_slice(request.body);
    message
}

/// Whether more of a response can arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    /// More may arrive.
    Open,
    /// The server has closed the connection.
    Ended,
}

/// Parses a response. Returns `None` if it is incomplete.
pub(crate) fn read(
    mut received: &[u8],
    is_head: bool,
    stream: Stream,
) -> io::Result<Option<Response>> {
    loop {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut head = httparse::Response::new(&mut headers);
        let parsed = head.parse(received);
        let parsed = parsed.map_err(|error| io::Error::other(error.to_string()))?;
        let httparse::Status::Complete(len) = parsed else {
            return Ok(None);
        };
        let behind = received.get(len..).unwrap_or_default();
        let code = head.code.unwrap_or(0);
        // Interim responses come before the final one, even if nobody asked for them (RFC 9110 §15.2).
        if code / 100 != 1 || code == SWITCHING_PROTOCOLS {
            return final_response(&head, behind, is_head, stream);
        }
        received = behind;
    }
}

/// The response with this head, whose body begins with `body`. `None`: the body is incomplete.
fn final_response(
    head: &httparse::Response<'_, '_>,
    body: &[u8],
    is_head: bool,
    stream: Stream,
) -> io::Result<Option<Response>> {
    let value = |name: &str| {
        let mut all = head.headers.iter();
        let found = all.find(|header| header.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(found.value).ok()
    };
    let status = head.code.unwrap_or(0);
    let whole = |body: &[u8]| {
        let headers = head.headers.iter();
        let headers = headers.map(|header| (header.name.to_owned(), header.value.to_vec()));
        Ok(Some(Response {
            status,
            headers: headers.collect(),
            body: body.to_vec(),
        }))
    };
    if is_head || status == NO_CONTENT {
        return whole(&[]);
    }
    match value("transfer-encoding") {
        Some(coding) if coding.eq_ignore_ascii_case("chunked") => {
            return match unchunk(body)? {
                Some(body) => whole(&body),
                None => Ok(None),
            };
        }
        Some(_) => {
            return Err(io::Error::other(
                "the response has a Transfer-Encoding other than chunked",
            ));
        }
        None => {}
    }
    match value("content-length").map(str::parse::<usize>) {
        Some(Err(_)) => Err(io::Error::other(
            "the response's Content-Length is not a number",
        )),
        Some(Ok(wanted)) => match body.get(..wanted) {
            Some(body) => whole(body),
            None => Ok(None),
        },
        None if stream == Stream::Ended => whole(body),
        None => Ok(None),
    }
}

/// The contents of all chunks (RFC 9112 §7.1). `None`: the last chunk is missing.
fn unchunk(mut rest: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    loop {
        let Ok(httparse::Status::Complete((head, len))) = httparse::parse_chunk_size(rest) else {
            return if httparse::parse_chunk_size(rest).is_err() {
                Err(io::Error::other("the response has an invalid chunk size"))
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
        match rest.get(head + len..).unwrap_or_default() {
            [b'\r', b'\n', behind @ ..] => rest = behind,
            [] | [b'\r'] => return Ok(None),
            _ => {
                return Err(io::Error::other(
                    "a chunk of the response is longer than its size",
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_engine::stream::{BlockingStream, Connection};
    use dormouse_engine::{HandshakeLimits, ServerContext, ServerSettings, UnixTime};
    use dormouse_record::{Alert, AlertDescription, SMALL_RECORD_MAX, SealKey, State, seal_alert};
    use dormouse_testkit::Authority;
    use std::net::TcpListener;

    /// How a server ends the connection after its response.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum ServerEnd {
        CloseNotify,
        FatalAlert,
        ClosedSocket,
    }

    /// Exchanges a request for a response whose body ends with the connection.
    fn exchange_with(server_end: ServerEnd) -> io::Result<Response> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let port = listener.local_addr().expect("an address").port();
        let leaf = Authority::shared().ecdsa(&["localhost"]);
        let context = ServerContext::new(ServerSettings::new(vec![leaf.identity()]));
        let context = context.expect("settings");
        let server = std::thread::spawn(move || {
            let (socket, _) = listener.accept().expect("a client");
            let connection = Connection::server(&context, HandshakeLimits::default());
            let mut state = State::empty();
            let mut tls = BlockingStream::new(&socket, connection, &mut state, UnixTime::now);
            tls.handshake().expect("a handshake");
            let n = tls.read(&mut [0; 4096]).expect("a request");
            assert!(n > 0);
            tls.write_all(b"HTTP/1.1 200 OK\r\n\r\nhalf of a ")
                .expect("sent");
            if server_end == ServerEnd::CloseNotify {
                tls.close().expect("sent");
            }
            if server_end == ServerEnd::FatalAlert {
                let mut room = [0; SMALL_RECORD_MAX];
                let alert = Alert::fatal(AlertDescription::InternalError);
                let mut key = SealKey::new(&state);
                let len = seal_alert(&mut state, &mut key, alert, &mut room).expect("sealed");
                (&socket).write_all(&room[..len]).expect("sent");
            }
        });
        let connector = Connector::tls(Authority::shared().roots(), None).expect("trust");
        let request = Request {
            method: "GET",
            url: &format!("https://localhost:{port}/"),
            content_type: None,
            body: &[],
        };
        let response = exchange(&request, Some(&connector), Duration::from_secs(10));
        server.join().expect("no panic");
        response
    }

    #[test]
    fn a_truncated_response_is_an_error() {
        let whole = exchange_with(ServerEnd::CloseNotify).expect("a response");
        assert_eq!(whole.body, b"half of a ");
        for server_end in [ServerEnd::FatalAlert, ServerEnd::ClosedSocket] {
            let response = exchange_with(server_end);
            assert!(response.is_err(), "{server_end:?}: {response:?}");
        }
    }

    #[test]
    fn urls_are_parsed_and_cannot_end_a_line() {
        let place = |url| Place::of(url).map(|place| (place.host, place.port, place.path));
        assert_eq!(place("https://a/"), Some(("a", 443, "/")));
        assert_eq!(place("http://a.example"), Some(("a.example", 80, "/")));
        assert_eq!(place("http://a:81/x/y?z"), Some(("a", 81, "/x/y?z")));
        assert_eq!(place("http://[::1]:81/"), Some(("::1", 81, "/")));
        assert_eq!(place("http://[::1]/"), Some(("::1", 80, "/")));
        for bad in [
            "ftp://a/",
            "http://",
            "http://a:x/",
            "http://a/\r\nX: y",
            "a",
        ] {
            assert_eq!(place(bad), None, "{bad}");
        }
    }

    #[test]
    fn responses_are_complete_in_every_framing() {
        let all = [
            &b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"[..],
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n\
              HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
        ];
        for response in all {
            for len in 0..response.len() - 4 {
                let part =
                    read(&response[..len], false, Stream::Open).expect("an incomplete response");
                assert!(part.is_none(), "cut at {len}");
            }
            let read = read(response, false, Stream::Open)
                .expect("read")
                .expect("a complete response");
            assert_eq!((read.status, &read.body[..]), (200, &b"abc"[..]));
        }
        let endless = b"HTTP/1.0 404 No\r\n\r\nabc";
        assert!(read(endless, false, Stream::Open).expect("read").is_none());
        assert_eq!(
            read(endless, false, Stream::Ended)
                .expect("read")
                .expect("a complete response")
                .body,
            b"abc"
        );
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nReplay-Nonce: x\r\n\r\n";
        let head = read(head, true, Stream::Open)
            .expect("read")
            .expect("a complete response");
        assert_eq!(head.headers[1], ("Replay-Nonce".to_owned(), b"x".to_vec()));
        for bad in [
            &b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
        ] {
            assert!(read(bad, false, Stream::Open).is_err(), "{bad:?}");
        }
    }
}
