//! The response to a request: a redirect, the response to an ACME challenge, or an error.

use super::messages::{HttpChallenge, Site};
use std::net::Ipv6Addr;

/// Maximum length of a request's head.
pub(super) const HEAD_BYTES_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 64;
/// Maximum length of a host name (RFC 1035 §2.3.4).
const HOST_BYTES_MAX: usize = 253;

/// Path that an ACME server requests (RFC 8555 §8.3).
const CHALLENGE_PATH: &str = "/.well-known/acme-challenge/";

/// The whole response to a request that begins with these bytes. `None`: the head is incomplete. The
/// body is never parsed, because the response does not depend on it.
pub(super) fn respond(head: &[u8], site: Site, challenges: &[HttpChallenge]) -> Option<Vec<u8>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let mut response = match request.parse(head) {
        Ok(httparse::Status::Partial) if head.len() < HEAD_BYTES_MAX => return None,
        Ok(httparse::Status::Partial) => error(
            "431 Request Header Fields Too Large",
            "request head longer than 8 KiB",
        ),
        Ok(httparse::Status::Complete(_)) => match Target::of(&request) {
            Ok(target) => answer(&target, site, challenges),
            Err(why) => error("400 Bad Request", why),
        },
        Err(why) => error(
            "400 Bad Request",
            &format!("not an HTTP/1.1 request: {why}"),
        ),
    };
    if request.method == Some("HEAD") {
        // Its length stays in the head (RFC 9110 §9.3.2).
        let end = response.windows(4).position(|four| four == b"\r\n\r\n");
        response.truncate(end.map_or(0, |end| end + 4));
    }
    Some(response)
}

fn answer(target: &Target<'_>, site: Site, challenges: &[HttpChallenge]) -> Vec<u8> {
    let token = target.path.strip_prefix(CHALLENGE_PATH);
    let mut challenges = challenges.iter();
    if let Some(challenge) = challenges.find(|one| token == Some(one.token.as_str())) {
        return response(
            "200 OK",
            &["Content-Type: application/octet-stream"],
            &challenge.key_authorization,
        );
    }
    let status = match site.status {
        301 => "301 Moved Permanently",
        _ => "308 Permanent Redirect",
    };
    let port = match site.port {
        443 => String::new(),
        port => format!(":{port}"),
    };
    let Target { host, path } = target;
    response(
        status,
        &[&format!("Location: https://{host}{port}{path}")],
        "",
    )
}

fn error(status: &str, why: &str) -> Vec<u8> {
    let content_type = "Content-Type: text/plain; charset=utf-8";
    response(status, &[content_type], &format!("{why}\n"))
}

fn response(status: &str, headers: &[&str], body: &str) -> Vec<u8> {
    let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    let len = body.len();
    format!("HTTP/1.1 {status}\r\n{lines}Content-Length: {len}\r\nConnection: close\r\n\r\n{body}")
        .into_bytes()
}

/// Host and path, with the query, of a request.
#[derive(Debug, PartialEq, Eq)]
struct Target<'a> {
    host: &'a str,
    path: &'a str,
}

impl<'a> Target<'a> {
    fn of(request: &httparse::Request<'_, 'a>) -> Result<Target<'a>, &'static str> {
        let given = request.path.unwrap_or_default();
        if !given
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'#')
        {
            return Err("the request target has characters that are invalid in a URL");
        }
        let scheme = "http://";
        let is_absolute = given
            .get(..scheme.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(scheme));
        // A host in the target takes precedence over the header (RFC 9112 §3.2.2).
        let (authority, path) = match (is_absolute, given.starts_with('/')) {
            (true, _) => {
                let rest = given.get(scheme.len()..).unwrap_or_default();
                rest.split_at(rest.find('/').unwrap_or(rest.len()))
            }
            (false, true) => (host_header(request.headers)?, given),
            (false, false) => return Err("the request target is not a path"),
        };
        let host = host_of(authority).ok_or("the request's host is not a name or address")?;
        let path = if path.is_empty() { "/" } else { path };
        Ok(Target { host, path })
    }
}

fn host_header<'a>(headers: &[httparse::Header<'a>]) -> Result<&'a str, &'static str> {
    let is_host = |header: &&httparse::Header<'_>| header.name.eq_ignore_ascii_case("host");
    let mut found = headers.iter().filter(is_host);
    match (found.next(), found.next()) {
        (Some(host), None) => {
            std::str::from_utf8(host.value).map_err(|_| "the request's Host header is not text")
        }
        (None, _) => Err("the request has no Host header"),
        (Some(_), Some(_)) => Err("the request has two Host headers"),
    }
}

/// The host of `HOST` or `HOST:PORT`, if it is a name or an address. The port is dropped, because it is
/// the port of plain HTTP.
fn host_of(authority: &str) -> Option<&str> {
    let is_port = |port: &str| port.is_empty() || port.parse::<u16>().is_ok();
    if let Some(rest) = authority.strip_prefix('[') {
        let (address, behind) = rest.split_once(']')?;
        address.parse::<Ipv6Addr>().ok()?;
        let is_sound = behind.is_empty() || behind.strip_prefix(':').is_some_and(is_port);
        return is_sound.then(|| &authority[..address.len() + 2]);
    }
    let (host, port) = authority.split_once(':').unwrap_or((authority, ""));
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_name = !host.is_empty() && host.len() <= HOST_BYTES_MAX && host.bytes().all(is_of_name);
    (is_name && is_port(port)).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITE: Site = Site {
        status: 308,
        port: 443,
    };

    fn said(head: &str) -> String {
        let bytes = respond(head.as_bytes(), SITE, &[]).expect("a whole head");
        String::from_utf8(bytes).expect("text")
    }

    fn location(head: &str) -> Option<String> {
        let said = said(head);
        let mut lines = said.split("\r\n");
        assert_eq!(lines.next(), Some("HTTP/1.1 308 Permanent Redirect"));
        let line = lines.find_map(|line| line.strip_prefix("Location: "));
        line.map(str::to_owned)
    }

    #[test]
    fn a_request_is_redirected_to_the_same_host_and_path() {
        for (head, to) in [
            (
                "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
                "https://a.example/",
            ),
            (
                "POST /a/b?c=d&e=%20 HTTP/1.1\r\nhost: a.example:80\r\nContent-Length: 9\r\n\r\n",
                "https://a.example/a/b?c=d&e=%20",
            ),
            (
                "GET http://b.example:8080/x HTTP/1.1\r\nHost: a.example\r\n\r\n",
                "https://b.example/x",
            ),
            (
                "GET HTTP://b.example HTTP/1.1\r\n\r\n",
                "https://b.example/",
            ),
            (
                "HEAD / HTTP/1.0\r\nHost: [::1]:80\r\n\r\n",
                "https://[::1]/",
            ),
            (
                "GET //c.example/ HTTP/1.1\r\nHost: a\r\n\r\n",
                "https://a//c.example/",
            ),
        ] {
            assert_eq!(location(head).as_deref(), Some(to), "{head:?}");
        }
    }

    #[test]
    fn the_configured_port_and_status_appear_in_the_response() {
        let site = Site {
            status: 301,
            port: 8443,
        };
        let head = b"GET /x HTTP/1.1\r\nHost: a.example:8080\r\n\r\n";
        let said = String::from_utf8(respond(head, site, &[]).expect("a head")).expect("text");
        assert!(
            said.starts_with("HTTP/1.1 301 Moved Permanently\r\n"),
            "{said}"
        );
        assert!(
            said.contains("\r\nLocation: https://a.example:8443/x\r\n"),
            "{said}"
        );
    }

    #[test]
    fn bad_requests_are_answered_with_400_and_no_location() {
        for head in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: \r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: me@evil.example\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a:99999\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\u{e9}\r\n\r\n",
            "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
            "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /#x HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nX: \u{0}\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\u{0}\u{1}",
            "nonsense\r\n\r\n",
        ] {
            let said = said(head);
            assert!(
                said.starts_with("HTTP/1.1 400 Bad Request\r\n"),
                "{head:?}: {said}"
            );
            assert!(!said.contains("Location"), "{head:?}: {said}");
        }
    }

    #[test]
    fn the_response_to_a_head_has_no_body() {
        let request = |method: &str| said(&format!("{method} / HTTP/1.1\r\n\r\n"));
        let (head, whole) = (request("HEAD"), request("GET"));
        let (before, body) = whole.split_once("\r\n\r\n").expect("a body");
        assert_eq!(head, format!("{before}\r\n\r\n"));
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())));
    }

    #[test]
    fn an_endless_head_is_rejected() {
        let mut head = b"GET / HTTP/1.1\r\nHost: a\r\nX: ".to_vec();
        assert_eq!(respond(&head, SITE, &[]), None);
        head.resize(HEAD_BYTES_MAX, b'x');
        let said = respond(&head, SITE, &[]).expect("a response");
        assert!(said.starts_with(b"HTTP/1.1 431 "));
        let lines = "X: y\r\n".repeat(HEADERS_MAX + 1);
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        assert!(self::said(&head).starts_with("HTTP/1.1 400 "));
    }

    #[test]
    fn only_open_challenges_are_answered() {
        let open = ["other", "tok"].map(|token| HttpChallenge {
            name: "a.example".to_owned(),
            token: token.to_owned(),
            key_authorization: format!("{token}.print"),
        });
        let ask = |path: &str, challenges: &[HttpChallenge]| {
            let head = format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n");
            let bytes = respond(head.as_bytes(), SITE, challenges).expect("a head");
            String::from_utf8(bytes).expect("text")
        };
        let path = format!("{CHALLENGE_PATH}tok");
        let said = ask(&path, &open);
        assert!(said.starts_with("HTTP/1.1 200 OK\r\n"), "{said}");
        assert!(said.ends_with("\r\n\r\ntok.print"), "{said}");
        for (path, open) in [
            (path.as_str(), &[][..]),
            (&format!("{CHALLENGE_PATH}third"), &open),
            (&format!("{path}/"), &open),
            ("/tok", &open),
        ] {
            assert!(ask(path, open).starts_with("HTTP/1.1 308 "), "{path}");
        }
    }
}
