//! The part of HTTP/1.1 (RFC 9112) that the admin address needs: one request and one response per
//! connection.

use serde::Serialize;
use std::fmt::Write as _;

/// Maximum bytes of a request, body included.
pub(crate) const REQUEST_BYTES_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 64;

/// A complete request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Decoded query parameters.
    pub(crate) query: Vec<(String, String)>,
    /// The `Host` header.
    pub(crate) host: Option<String>,
    /// The `Origin` header: the page for which a browser sends the request. Other programs send none.
    pub(crate) origin: Option<String>,
}

/// The result of parsing the bytes received so far.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// The request is incomplete.
    Incomplete,
    Request(Request),
    /// The request is invalid; this response says why.
    Refused(Response),
}

/// Parses a request.
pub(crate) fn parse(bytes: &[u8]) -> Parsed {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let head_len = match request.parse(bytes) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) if bytes.len() < REQUEST_BYTES_MAX => {
            return Parsed::Incomplete;
        }
        Ok(httparse::Status::Partial) => {
            return Parsed::Refused(Response::words(431, "request longer than 8 KiB"));
        }
        Err(error) => {
            let words = format!("not an HTTP/1.1 request: {error}");
            return Parsed::Refused(Response::words(400, &words));
        }
    };
    // The body is ignored, but must be read: closing a socket with unread bytes sends a reset, which
    // could overtake the response.
    match body_len(request.headers) {
        Err(refused) => return Parsed::Refused(refused),
        Ok(len) if head_len.saturating_add(len) > REQUEST_BYTES_MAX => {
            return Parsed::Refused(Response::words(413, "request longer than 8 KiB"));
        }
        Ok(len) if bytes.len() < head_len + len => return Parsed::Incomplete,
        Ok(_) => {}
    }
    let target = request.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Parsed::Request(Request {
        method: request.method.unwrap_or_default().to_owned(),
        path: path.to_owned(),
        query: parameters(query),
        host: header(request.headers, "host"),
        origin: header(request.headers, "origin"),
    })
}

fn header(headers: &[httparse::Header<'_>], name: &str) -> Option<String> {
    let found = headers.iter().find(|h| h.name.eq_ignore_ascii_case(name));
    found.map(|header| String::from_utf8_lossy(header.value).into_owned())
}

fn body_len(headers: &[httparse::Header<'_>]) -> Result<usize, Response> {
    if header(headers, "transfer-encoding").is_some() {
        return Err(Response::words(
            411,
            "a body needs a Content-Length; Transfer-Encoding is not supported",
        ));
    }
    match header(headers, "content-length") {
        None => Ok(0),
        Some(len) => len
            .trim()
            .parse()
            .map_err(|_| Response::words(400, "Content-Length is not a number")),
    }
}

fn parameters(query: &str) -> Vec<(String, String)> {
    query
        .split('&')
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            (decode(name), decode(value))
        })
        .collect()
}

/// Decodes percent-encoding (RFC 3986 §2.1). Invalid UTF-8 is replaced.
fn decode(text: &str) -> String {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, behind @ ..] = rest {
        let hex = |digit: &u8| char::from(*digit).to_digit(16);
        rest = behind;
        match (byte, behind) {
            (b'%', [high, low, behind @ ..]) if hex(high).is_some() && hex(low).is_some() => {
                let value = hex(high).unwrap_or(0) << 4 | hex(low).unwrap_or(0);
                decoded.push(value as u8);
                rest = behind;
            }
            (b'+', _) => decoded.push(b' '),
            _ => decoded.push(*byte),
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// Content-Security-Policy of every response: the status page may send requests to this address only.
const POLICY: &str = "default-src 'none'; connect-src 'self'; script-src 'unsafe-inline'; \
                      style-src 'unsafe-inline'; img-src data:; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

/// A response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    pub(crate) body: String,
    /// With status 405: the allowed method.
    pub(crate) allow: Option<&'static str>,
}

impl Response {
    /// A plain-text response of one line.
    pub(crate) fn words(status: u16, words: &str) -> Response {
        Response {
            status,
            content_type: "text/plain; charset=utf-8",
            body: format!("{}\n", dormouse_printable::lines(words)),
            allow: None,
        }
    }

    /// A JSON response, indented and sorted by field name for human readers.
    pub(crate) fn json(status: u16, document: &impl Serialize) -> Response {
        // All keys of our documents are strings, so this cannot fail.
        let value = serde_json::to_value(document).unwrap_or_default();
        Response {
            status,
            content_type: "application/json",
            body: dormouse_printable::json(&format!("{value:#}\n")),
            allow: None,
        }
    }

    /// Serialises the response.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut text = format!(
            "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n\
             Cache-Control: no-store\r\nConnection: close\r\n\
             X-Content-Type-Options: nosniff\r\nContent-Security-Policy: {POLICY}\r\n",
            self.status,
            reason(self.status),
            self.content_type,
            self.body.len()
        );
        if let Some(allow) = self.allow {
            // Writing into a String can't fail.
            let _ = write!(text, "Allow: {allow}\r\n");
        }
        text.push_str("\r\n");
        text.push_str(&self.body);
        text.into_bytes()
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        411 => "Length Required",
        413 => "Content Too Large",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POST: &str = "POST /drain?over=10m&order=longest&x=%2Ftmp%2Fa+b%zz HTTP/1.1\r\n\
                        Host: localhost\r\ncontent-length: 3\r\n\r\n{}\n";

    #[test]
    fn a_request_is_read_once_it_is_complete() {
        for cut in 0..POST.len() {
            assert_eq!(parse(&POST.as_bytes()[..cut]), Parsed::Incomplete, "{cut}");
        }
        let Parsed::Request(request) = parse(POST.as_bytes()) else {
            panic!("the request is complete");
        };
        assert_eq!((&*request.method, &*request.path), ("POST", "/drain"));
        let query: Vec<_> = request.query.iter().map(|(n, v)| (&**n, &**v)).collect();
        assert_eq!(
            query,
            [("over", "10m"), ("order", "longest"), ("x", "/tmp/a b%zz")]
        );
    }

    #[test]
    fn invalid_requests_are_rejected_with_a_status() {
        let endless = format!("GET / HTTP/1.1\r\nx: {}", "y".repeat(REQUEST_BYTES_MAX));
        let large = format!("POST / HTTP/1.1\r\nContent-Length: {REQUEST_BYTES_MAX}\r\n\r\n");
        for (text, status) in [
            ("\x16\x03\x01\x02\x00\x01\x00\x01\x7c\x03\x03", 400),
            ("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
            ("GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
            (&endless, 431),
            (&large, 413),
        ] {
            match parse(text.as_bytes()) {
                Parsed::Refused(response) => assert_eq!(response.status, status, "{response:?}"),
                other => panic!("{other:?}"),
            }
        }
    }
}
