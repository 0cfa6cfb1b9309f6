//! Reads a ClientHello (RFC 8446 §4.1.2).

use std::hash::{DefaultHasher, Hash, Hasher};

use dormouse_engine::messages::content_type::HANDSHAKE;
use dormouse_engine::messages::handshake_type::CLIENT_HELLO;
use dormouse_engine::messages::{Reader, extension};

use crate::server::probe_hello::{GROUPS, name_of as name_in};

/// Groups that clients offer in addition to those in the probes of servers.
const MORE_GROUPS: [(u16, &str); 12] = [
    (0x0015, "secp224r1"),
    (0x0016, "secp256k1"),
    (0x001a, "brainpoolP256r1"),
    (0x001b, "brainpoolP384r1"),
    (0x001c, "brainpoolP512r1"),
    (0x0102, "ffdhe4096"),
    (0x0103, "ffdhe6144"),
    (0x0104, "ffdhe8192"),
    (0x0201, "MLKEM768"),
    (0x0202, "MLKEM1024"),
    (0x11ed, "SecP384r1MLKEM1024"),
    (0x6399, "X25519Kyber768Draft00"),
];

/// Returns the names of groups.
pub(super) fn group_names(ids: &[u16]) -> Vec<String> {
    let known = |id: &u16| MORE_GROUPS.iter().any(|(more, _)| more == id);
    ids.iter()
        .map(|id| name_in(if known(id) { &MORE_GROUPS } else { &GROUPS }, *id))
        .collect()
}

/// Prefix of the names of sessions resumed by id.
pub(super) const SESSION_ID: &str = "id";

/// Contents of a ClientHello.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct ClientHello {
    pub(super) legacy_version: u16,
    pub(super) supported_versions: Vec<u16>,
    pub(super) groups: Vec<u16>,
    pub(super) key_shares: Vec<u16>,
    pub(super) compression: bool,
    pub(super) server_name: Option<String>,
    pub(super) alpn: Vec<String>,
    /// Short name of the offered session: its PSK, ticket or id.
    pub(super) session: Option<String>,
    /// Length of the message in bytes.
    pub(super) bytes: u64,
}

/// Result of parsing a ClientHello that may be incomplete.
pub(super) enum HelloBytes {
    /// More bytes are needed.
    More,
    /// A complete ClientHello.
    Whole(Box<ClientHello>),
    /// The bytes are not a ClientHello.
    Not,
}

/// Parses the records of a first flight.
pub(super) fn read(bytes: &[u8]) -> HelloBytes {
    let mut message = Vec::new();
    let mut records = Reader::new(bytes);
    loop {
        match (records.u8(), records.u16(), records.vector16()) {
            (Some(HANDSHAKE), Some(_), Some(content)) => message.extend_from_slice(content),
            (Some(HANDSHAKE) | None, _, None) => return HelloBytes::More,
            _ => return HelloBytes::Not,
        }
        let mut reading = Reader::new(&message);
        match (reading.u8(), reading.vector24()) {
            (Some(CLIENT_HELLO), Some(body)) => {
                let bytes = body.len() as u64 + 4;
                return parse(body).map_or(HelloBytes::Not, |hello| {
                    HelloBytes::Whole(Box::new(ClientHello { bytes, ..hello }))
                });
            }
            (Some(CLIENT_HELLO), None) => {}
            _ => return HelloBytes::Not,
        }
    }
}

fn parse(body: &[u8]) -> Option<ClientHello> {
    let mut reading = Reader::new(body);
    let mut hello = ClientHello {
        legacy_version: reading.u16()?,
        ..ClientHello::default()
    };
    reading.take(32)?;
    let session_id = reading.vector8()?;
    reading.vector16()?;
    hello.compression = reading.vector8()?.contains(&1);
    let mut ticket = None;
    let mut extensions = Reader::new(reading.vector16().unwrap_or_default());
    while let (Some(kind), Some(content)) = (extensions.u16(), extensions.vector16()) {
        let mut content = Reader::new(content);
        match kind {
            extension::SUPPORTED_VERSIONS => hello.supported_versions = numbers(content.vector8()?),
            extension::SUPPORTED_GROUPS => hello.groups = numbers(content.vector16()?),
            extension::KEY_SHARE => {
                let mut shares = Reader::new(content.vector16()?);
                while let (Some(group), Some(_)) = (shares.u16(), shares.vector16()) {
                    hello.key_shares.push(group);
                }
            }
            extension::SERVER_NAME => {
                let mut names = Reader::new(content.vector16()?);
                if let (Some(0), Some(name)) = (names.u8(), names.vector16()) {
                    hello.server_name = Some(printable(name));
                }
            }
            extension::APPLICATION_LAYER_PROTOCOL_NEGOTIATION => {
                let mut names = Reader::new(content.vector16()?);
                while let Some(name) = names.vector8() {
                    hello.alpn.push(printable(name));
                }
            }
            extension::PRE_SHARED_KEY => {
                let mut identities = Reader::new(content.vector16()?);
                hello.session = identities
                    .vector16()
                    .map(|identity| name_of("psk", identity));
            }
            extension::SESSION_TICKET => {
                let rest = content.rest();
                ticket = (!rest.is_empty()).then(|| name_of("ticket", rest));
            }
            _ => {}
        }
    }
    // In TLS 1.3 the session id is sent for middlebox compatibility (RFC 8446 D.4).
    let old_id = !session_id.is_empty() && hello.supported_versions.is_empty();
    let id = old_id.then(|| name_of(SESSION_ID, session_id));
    hello.session = hello.session.or(ticket).or(id);
    Some(hello)
}

fn printable(bytes: &[u8]) -> String {
    dormouse_printable::line(&String::from_utf8_lossy(bytes)).to_string()
}

fn numbers(bytes: &[u8]) -> Vec<u16> {
    let pairs = bytes.chunks_exact(2).filter_map(|pair| pair.first_chunk());
    let all = pairs.map(|pair| u16::from_be_bytes(*pair));
    // GREASE values (RFC 8701) carry no meaning.
    all.filter(|value| value & 0x0f0f != 0x0a0a).collect()
}

/// Returns a short hash-based name, equal for equal bytes: tickets are long and secret.
fn name_of(kind: &str, bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    format!("{kind} {:08x}", hasher.finish() >> 32)
}

impl ClientHello {
    /// Returns the names of the offered versions.
    pub(super) fn versions(&self) -> Vec<String> {
        let only = [self.legacy_version];
        let versions = if self.supported_versions.is_empty() {
            &only[..]
        } else {
            &self.supported_versions
        };
        let name = |version: &u16| match version {
            0x0304 => "TLS 1.3".to_owned(),
            0x0303 => "TLS 1.2".to_owned(),
            0x0302 => "TLS 1.1".to_owned(),
            0x0301 => "TLS 1.0".to_owned(),
            other => format!("0x{other:04x}"),
        };
        versions.iter().map(name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_engine::{
        ClientContext, ClientSettings, Handshake, HandshakeLimits, Roots, UnixTime,
    };

    #[test]
    fn the_hello_of_our_own_engine() {
        let context = ClientContext::new(ClientSettings::new(Roots::Insecure)).unwrap();
        let mut handshake =
            Handshake::client(&context, "example.org", HandshakeLimits::default()).unwrap();
        handshake.handle_input(UnixTime::now(), &[]).unwrap();
        let bytes = handshake.output().to_vec();
        let HelloBytes::Whole(hello) = read(&bytes) else {
            panic!("not read")
        };
        assert_eq!(hello.server_name.as_deref(), Some("example.org"));
        assert_eq!(hello.versions(), ["TLS 1.3", "TLS 1.2"]);
        assert!(!hello.compression && hello.session.is_none() && hello.key_shares.contains(&0x1d));
        assert_eq!(hello.bytes as usize + 5, bytes.len());
        for cut in 0..bytes.len() {
            assert!(matches!(read(&bytes[..cut]), HelloBytes::More), "{cut}");
        }
        assert!(matches!(read(b"GET / HTTP/1.1\r\n\r\n"), HelloBytes::Not));
    }
}
