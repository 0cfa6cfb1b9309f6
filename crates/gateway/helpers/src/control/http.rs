//! The part of HTTP/1.1 (RFC 9112) that the admin address needs: one request and one response per
//! connection.

use dormouse_handover::SecretText;
use serde::Serialize;
use std::fmt::Write as _;

/// Maximum length of a request's first line and headers.
pub(crate) const HEAD_BYTES_MAX: usize = 8 << 10;
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
    /// A certificate and its key, for the one request that takes them.
    pub(crate) body: SecretText,
}

impl Request {
    /// Whether it asks for the head of a response only.
    pub(crate) fn is_head(&self) -> bool {
        self.method == "HEAD"
    }
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

/// Parses a request whose body has at most `body_max` bytes.
pub(crate) fn parse(bytes: &[u8], body_max: usize) -> Parsed {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let head_len = match request.parse(bytes) {
        Ok(httparse::Status::Complete(len)) if len <= HEAD_BYTES_MAX => len,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => {
            return Parsed::Incomplete;
        }
        // A longer head may arrive at once. It would take the room of the body, which then never gets complete.
        Ok(_) => {
            return Parsed::Refused(Response::words(431, "request head longer than 8 KiB"));
        }
        Err(error) => {
            let words = format!("not an HTTP/1.1 request: {error}");
            return Parsed::Refused(Response::words(400, &words));
        }
    };
    // Most requests need no body, but it has to be read: a close with unread bytes becomes a reset,
    // which may overtake the response.
    let body_len = match body_len(request.headers) {
        Err(refused) => return Parsed::Refused(refused),
        Ok(len) if len > body_max => {
            let words = format!("the body is too long: at most {body_max} bytes are read");
            return Parsed::Refused(Response::words(413, &words));
        }
        Ok(len) => len,
    };
    let Some(body) = bytes.get(head_len..head_len + body_len) else {
        return Parsed::Incomplete;
    };
    let Ok(body) = std::str::from_utf8(body) else {
        return Parsed::Refused(Response::words(400, "the body is not text in UTF-8"));
    };
    let target = request.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Parsed::Request(Request {
        method: request.method.unwrap_or_default().to_owned(),
        path: path.to_owned(),
        query: parameters(query),
        host: header(request.headers, "host"),
        origin: header(request.headers, "origin"),
        body: SecretText(body.to_owned()),
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
    /// With status 405: the allowed methods.
    pub(crate) allow: Option<&'static str>,
    /// Whether the request was a HEAD, so that the body is not sent.
    pub(crate) is_head: bool,
}

impl Response {
    /// A plain-text response of one line.
    pub(crate) fn words(status: u16, words: &str) -> Response {
        Response {
            status,
            content_type: "text/plain; charset=utf-8",
            body: format!("{}\n", dormouse_printable::lines(words)),
            allow: None,
            is_head: false,
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
            is_head: false,
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
        if !self.is_head {
            text.push_str(&self.body);
        }
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

    const BODY_MAX: usize = 1 << 10;
    const POST: &str = "POST /drain?over=10m&order=longest&x=%2Ftmp%2Fa+b%zz HTTP/1.1\r\n\
                        Host: localhost\r\ncontent-length: 3\r\n\r\n{}\n";

    #[test]
    fn a_request_is_read_once_it_is_complete() {
        for cut in 0..POST.len() {
            let parsed = parse(&POST.as_bytes()[..cut], BODY_MAX);
            assert_eq!(parsed, Parsed::Incomplete, "{cut}");
        }
        let Parsed::Request(request) = parse(POST.as_bytes(), BODY_MAX) else {
            panic!("the request is complete");
        };
        assert_eq!((&*request.method, &*request.path), ("POST", "/drain"));
        let query: Vec<_> = request.query.iter().map(|(n, v)| (&**n, &**v)).collect();
        assert_eq!(
            query,
            [("over", "10m"), ("order", "longest"), ("x", "/tmp/a b%zz")]
        );
        assert_eq!(request.body.0, "{}\n");
        assert_eq!(format!("{:?}", request.body), "3 secret bytes");
    }

    #[test]
    fn the_response_to_a_head_has_no_body() {
        let mut response = Response::words(200, "ok");
        let whole = String::from_utf8(response.encode()).expect("text");
        response.is_head = true;
        let head = String::from_utf8(response.encode()).expect("text");
        assert!(head.ends_with("\r\n\r\n") && head.contains("\r\nContent-Length: 3\r\n"));
        assert_eq!(whole, head + "ok\n");
    }

    #[test]
    fn invalid_requests_are_rejected_with_a_status() {
        let endless = format!("GET / HTTP/1.1\r\nx: {}", "y".repeat(HEAD_BYTES_MAX));
        let long = format!("{endless}\r\nContent-Length: {BODY_MAX}\r\n\r\n");
        let large = format!(
            "POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n",
            BODY_MAX + 1
        );
        for (text, status) in [
            ("\x16\x03\x01\x02\x00\x01\x00\x01\x7c\x03\x03", 400),
            ("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
            ("GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
            (&endless, 431),
            (&long, 431),
            (&large, 413),
            (
                "GET / HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\n",
                413,
            ),
        ] {
            match parse(text.as_bytes(), BODY_MAX) {
                Parsed::Refused(response) => assert_eq!(response.status, status, "{response:?}"),
                other => panic!("{other:?}"),
            }
        }
        let not_text = b"POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\n\xff";
        assert!(
            matches!(parse(not_text, BODY_MAX), Parsed::Refused(refused) if refused.status == 400)
        );
    }
}
