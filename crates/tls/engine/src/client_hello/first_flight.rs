//! The server name and application protocols of a ClientHello, read before the handshake begins. They choose
//! the route; with pass-through that is a backend that terminates TLS itself.
//!
//! The bytes are not consumed: rustls reads the message again from its first byte, or the backend receives it
//! unchanged.

use crate::messages::Reader;
use crate::messages::content_type::HANDSHAKE;
use crate::messages::extension::{APPLICATION_LAYER_PROTOCOL_NEGOTIATION, SERVER_NAME};
use crate::messages::handshake_type::CLIENT_HELLO;

/// The first message of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FirstFlight {
    /// The ClientHello is incomplete.
    Incomplete,
    /// Not a readable ClientHello.
    Other,
    /// A complete ClientHello.
    ClientHello(ClientHello),
}

/// The server name and protocols that a client requests.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClientHello {
    /// The server name (RFC 6066 §3), in lower case.
    pub server_name: Option<String>,
    /// The offered application protocols (RFC 7301), preferred first.
    pub alpn: Vec<Vec<u8>>,
}

/// Maximum length of a host name (RFC 1035 §2.3.4).
const NAME_MAX: usize = 255;

impl FirstFlight {
    /// Reads the bytes received so far. The message may be split into records anywhere (RFC 8446 §5.1).
    pub fn of(received: &[u8]) -> FirstFlight {
        let mut records = Reader::new(received);
        let mut message = Vec::new();
        loop {
            let Some([content_type, major, _]) = records.array() else {
                return incomplete_or_other(received);
            };
            if content_type != HANDSHAKE || major != 3 {
                return FirstFlight::Other;
            }
            let Some(len) = records.u16() else {
                return FirstFlight::Incomplete;
            };
            let Some(fragment) = records.take(len.into()) else {
                return FirstFlight::Incomplete;
            };
            if fragment.is_empty() {
                return FirstFlight::Other;
            }
            message.extend_from_slice(fragment);
            if let Some(&[kind, high, middle, low]) = message.first_chunk() {
                if kind != CLIENT_HELLO {
                    return FirstFlight::Other;
                }
                let len = u32::from_be_bytes([0, high, middle, low]) as usize;
                if let Some(body) = message.get(4..4 + len) {
                    return client_hello(body).map_or(FirstFlight::Other, FirstFlight::ClientHello);
                }
            }
        }
    }
}

/// Some inputs shorter than a record header are already known not to be TLS.
fn incomplete_or_other(received: &[u8]) -> FirstFlight {
    match received {
        [] | [HANDSHAKE, ..] => FirstFlight::Incomplete,
        _ => FirstFlight::Other,
    }
}

fn client_hello(body: &[u8]) -> Option<ClientHello> {
    let mut requested = ClientHello::default();
    let (mut extensions, _) = extensions(body)?;
    while !extensions.is_empty() {
        let extension = extensions.u16()?;
        let content = extensions.vector16()?;
        match extension {
            SERVER_NAME => requested.server_name = server_name(content),
            APPLICATION_LAYER_PROTOCOL_NEGOTIATION => requested.alpn = protocols(content)?,
            _ => {}
        }
    }
    Some(requested)
}

/// Returns the extensions of a ClientHello, and what follows them.
pub(crate) fn extensions(body: &[u8]) -> Option<(Reader<'_>, &[u8])> {
    let mut hello = Reader::new(body);
    hello.take(2 + 32)?;
    hello.vector8()?;
    hello.vector16()?;
    hello.vector8()?;
    let extensions = hello.vector16().unwrap_or_default();
    Some((Reader::new(extensions), hello.rest()))
}

fn server_name(content: &[u8]) -> Option<String> {
    listed_name(content).and_then(printable).map(host_name)
}

/// Returns the first name of the list, if it is a host's.
pub(crate) fn listed_name(content: &[u8]) -> Option<&[u8]> {
    const HOST_NAME: u8 = 0;
    let mut names = Reader::new(Reader::new(content).vector16()?);
    let [HOST_NAME] = names.array()? else {
        return None;
    };
    names.vector16()
}

/// Returns a name that can be shown.
pub(crate) fn printable(name: &[u8]) -> Option<&str> {
    let good = |byte: &u8| byte.is_ascii_graphic();
    if name.is_empty() || name.len() > NAME_MAX || !name.iter().all(good) {
        return None;
    }
    std::str::from_utf8(name).ok()
}

/// Returns a name in the form in which routes and certificates are found: in lower case, and without what RFC 6066 §3
/// excludes and some clients send, which are the final dot, a port, and the brackets of an IPv6 address.
pub(crate) fn host_name(sni: &str) -> String {
    without_port(sni).trim_end_matches('.').to_ascii_lowercase()
}

fn without_port(name: &str) -> &str {
    let is_port = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some((address, behind)) = name.strip_prefix('[').and_then(|name| name.split_once(']')) {
        let is_end = behind.is_empty() || behind.strip_prefix(':').is_some_and(is_port);
        return if is_end { address } else { name };
    }
    match name.split_once(':') {
        Some((host, port)) if is_port(port) => host,
        _ => name,
    }
}

fn protocols(content: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut list = Reader::new(Reader::new(content).vector16()?);
    let mut protocols = Vec::new();
    while !list.is_empty() {
        protocols.push(list.vector8()?.to_vec());
    }
    Some(protocols)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hello(name: &str, alpn: &[&[u8]]) -> Vec<u8> {
        let vector16 = |content: &[u8]| {
            let mut bytes = (content.len() as u16).to_be_bytes().to_vec();
            bytes.extend_from_slice(content);
            bytes
        };
        let mut names = vec![0];
        names.extend(vector16(name.as_bytes()));
        let protocols: Vec<u8> = (alpn.iter())
            .flat_map(|one| [&[one.len() as u8][..], one].concat())
            .collect();
        let mut extensions = vec![0, 0];
        extensions.extend(vector16(&vector16(&names)));
        extensions.extend([0, 16]);
        extensions.extend(vector16(&vector16(&protocols)));
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0, 2, 0x13, 1, 1, 0]);
        body.extend(vector16(&extensions));
        let mut message = vec![1, 0];
        message.extend(vector16(&body));
        message
    }

    fn in_records(message: &[u8], fragment: usize) -> Vec<u8> {
        let record = |part: &[u8]| {
            let mut bytes = vec![22, 3, 1];
            bytes.extend((part.len() as u16).to_be_bytes());
            bytes.extend_from_slice(part);
            bytes
        };
        message.chunks(fragment).flat_map(record).collect()
    }

    #[test]
    fn name_and_protocols_are_read_from_any_fragments() {
        let message = hello("A.Example.", &[b"h2", b"http/1.1"]);
        for fragment in [1, 3, 4, 50, 10_000] {
            let bytes = in_records(&message, fragment);
            for len in 0..bytes.len() {
                assert_eq!(FirstFlight::of(&bytes[..len]), FirstFlight::Incomplete);
            }
            let expected = ClientHello {
                server_name: Some("a.example".to_owned()),
                alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            };
            assert_eq!(FirstFlight::of(&bytes), FirstFlight::ClientHello(expected));
        }
    }

    #[test]
    fn a_name_is_found_without_what_does_not_belong_to_it() {
        for (sent, name) in [
            ("A.Example.", "a.example"),
            ("a.example:8883", "a.example"),
            ("a.example.:443", "a.example"),
            ("[2001:DB8::1]", "2001:db8::1"),
            ("[::1]:8883", "::1"),
            ("::1", "::1"),
            ("a.example:", "a.example:"),
            ("a.example:x", "a.example:x"),
            ("[::1", "[::1"),
            ("[::1]x", "[::1]x"),
        ] {
            assert_eq!(host_name(sent), name, "{sent}");
        }
    }

    #[test]
    fn other_protocols_are_detected_at_once() {
        for other in [
            &b"G"[..],
            b"GET / HTTP",
            &[21, 3, 3, 0, 2],
            &[22, 3, 1, 0, 0],
        ] {
            assert_eq!(FirstFlight::of(other), FirstFlight::Other, "{other:?}");
        }
        let finished = in_records(&[20, 0, 0, 0], 100);
        assert_eq!(FirstFlight::of(&finished), FirstFlight::Other);
    }

    proptest! {
        #[test]
        fn any_bytes_are_accepted(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            FirstFlight::of(&bytes);
            let mut message = vec![1, 0];
            message.extend((bytes.len() as u16).to_be_bytes());
            message.extend(&bytes);
            let whole = FirstFlight::of(&in_records(&message, 5_000));
            prop_assert_ne!(whole, FirstFlight::Incomplete);
        }
    }
}
