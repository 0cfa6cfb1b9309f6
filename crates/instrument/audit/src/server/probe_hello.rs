//! A handmade ClientHello and the unencrypted part of the server's answer.
//!
//! A TLS library offers only what it supports. To learn how a *server* handles TLS 1.0, DEFLATE or each single group,
//! the audit writes the hello itself (RFC 8446 §4.1.2, RFC 5246 §7.4.1.2), reads the unencrypted part of the answer
//! and closes the connection.

use dormouse_engine::Version;
use dormouse_engine::messages::{Reader, content_type, extension, handshake_type};

/// A handmade ClientHello.
#[derive(Clone, Debug)]
pub(super) struct ProbeHello {
    /// Protocol version, 0x0301 to 0x0304.
    pub(super) version: u16,
    pub(super) suites: Vec<u16>,
    pub(super) groups: Vec<u16>,
    pub(super) deflate: bool,
    /// Whether the hello announces support for tickets.
    pub(super) tickets: bool,
    pub(super) name: Option<String>,
    /// For a hello on an established connection: the `verify_data` of the client's Finished message, or empty for a
    /// server without RFC 5746.
    pub(super) renegotiating: Option<Vec<u8>>,
}

pub(super) const TLS10: u16 = 0x0301;
pub(super) const TLS12: u16 = Version::Tls12.number();
pub(super) const TLS13: u16 = Version::Tls13.number();

pub(super) const SUITES_13: [(u16, &str); 5] = [
    (0x1301, "TLS_AES_128_GCM_SHA256"),
    (0x1302, "TLS_AES_256_GCM_SHA384"),
    (0x1303, "TLS_CHACHA20_POLY1305_SHA256"),
    (0x1304, "TLS_AES_128_CCM_SHA256"),
    (0x1305, "TLS_AES_128_CCM_8_SHA256"),
];

pub(super) const SUITES_12: [(u16, &str); 29] = [
    (0xc02b, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    (0xc02f, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
    (0xc02c, "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    (0xc030, "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
    (0xcca9, "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
    (0xcca8, "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
    (0xccaa, "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
    (0x009e, "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256"),
    (0x009f, "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384"),
    (0xc023, "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256"),
    (0xc027, "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256"),
    (0xc024, "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384"),
    (0xc028, "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384"),
    (0xc009, "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"),
    (0xc013, "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"),
    (0xc00a, "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA"),
    (0xc014, "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA"),
    (0x0067, "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256"),
    (0x006b, "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256"),
    (0x0033, "TLS_DHE_RSA_WITH_AES_128_CBC_SHA"),
    (0x0039, "TLS_DHE_RSA_WITH_AES_256_CBC_SHA"),
    (0x009c, "TLS_RSA_WITH_AES_128_GCM_SHA256"),
    (0x009d, "TLS_RSA_WITH_AES_256_GCM_SHA384"),
    (0x003c, "TLS_RSA_WITH_AES_128_CBC_SHA256"),
    (0x003d, "TLS_RSA_WITH_AES_256_CBC_SHA256"),
    (0x002f, "TLS_RSA_WITH_AES_128_CBC_SHA"),
    (0x0035, "TLS_RSA_WITH_AES_256_CBC_SHA"),
    (0x000a, "TLS_RSA_WITH_3DES_EDE_CBC_SHA"),
    (0x0005, "TLS_RSA_WITH_RC4_128_SHA"),
];

/// Named groups.
pub(in super::super) const GROUPS: [(u16, &str); 9] = [
    (0x11ec, "X25519MLKEM768"),
    (0x001d, "x25519"),
    (0x0017, "secp256r1"),
    (0x0018, "secp384r1"),
    (0x0019, "secp521r1"),
    (0x001e, "x448"),
    (0x0100, "ffdhe2048"),
    (0x0101, "ffdhe3072"),
    (0x11eb, "SecP256r1MLKEM768"),
];

/// Returns the name of a suite or group from a table.
pub(in super::super) fn name_of(table: &[(u16, &str)], id: u16) -> String {
    let known = table.iter().find(|(known, _)| *known == id);
    known.map_or_else(|| format!("0x{id:04x}"), |(_, name)| (*name).to_owned())
}

impl ProbeHello {
    /// Creates a hello with everything that a version supports.
    pub(super) fn all(version: u16, name: Option<&str>) -> Self {
        let suites: &[(u16, &str)] = if version >= TLS13 {
            &SUITES_13
        } else {
            &SUITES_12
        };
        Self {
            version,
            suites: suites.iter().map(|suite| suite.0).collect(),
            groups: GROUPS.iter().map(|group| group.0).collect(),
            deflate: false,
            tickets: true,
            name: name.map(str::to_owned),
            renegotiating: None,
        }
    }

    /// Returns the record that contains the hello.
    pub(super) fn record(&self) -> Vec<u8> {
        let mut record = vec![content_type::HANDSHAKE, 3, 1];
        push_16(&mut record, &self.message());
        record
    }

    /// Returns the hello message.
    pub(super) fn message(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(512);
        body.extend_from_slice(&self.version.min(TLS12).to_be_bytes());
        // The random value need not be secret or unpredictable here; it differs between hellos.
        let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let mut seed = clock.map_or(1, |since| since.as_nanos() as u64) | 1;
        for _ in 0..4 {
            seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
            body.extend_from_slice(&seed.to_be_bytes());
        }
        let session_id: &[u8] = if self.version >= TLS13 {
            &[0x5a; 32]
        } else {
            &[]
        };
        body.push(session_id.len() as u8);
        body.extend_from_slice(session_id);
        let suites: Vec<u8> = self
            .suites
            .iter()
            .flat_map(|suite| suite.to_be_bytes())
            .collect();
        push_16(&mut body, &suites);
        body.extend_from_slice(if self.deflate { &[2, 1, 0] } else { &[1, 0] });
        push_16(&mut body, &self.extensions());
        let mut message = vec![handshake_type::CLIENT_HELLO, 0];
        push_16(&mut message, &body);
        message
    }

    fn extensions(&self) -> Vec<u8> {
        let mut all = Vec::new();
        let mut add = |kind: u16, content: &[u8]| {
            all.extend_from_slice(&kind.to_be_bytes());
            push_16(&mut all, content);
        };
        if let Some(name) = &self.name {
            let mut entry = vec![0];
            push_16(&mut entry, name.as_bytes());
            let mut list = Vec::new();
            push_16(&mut list, &entry);
            add(extension::SERVER_NAME, &list);
        }
        let verify_data = self.renegotiating.as_deref().unwrap_or_default();
        if self
            .renegotiating
            .as_ref()
            .is_none_or(|data| !data.is_empty())
        {
            let mut info = vec![verify_data.len() as u8];
            info.extend_from_slice(verify_data);
            add(extension::RENEGOTIATION_INFO, &info);
        }
        if self.renegotiating.is_some() {
            add(extension::EXTENDED_MASTER_SECRET, &[]);
        }
        if self.tickets {
            add(extension::SESSION_TICKET, &[]);
        }
        let mut groups = Vec::new();
        let ids: Vec<u8> = self
            .groups
            .iter()
            .flat_map(|group| group.to_be_bytes())
            .collect();
        push_16(&mut groups, &ids);
        add(extension::SUPPORTED_GROUPS, &groups);
        add(extension::EC_POINT_FORMATS, &[1, 0]);
        // ECDSA, RSA-PSS, RSA PKCS #1 (also with SHA-1, for old TLS 1.2 servers), Ed25519.
        let schemes = [
            0x0403_u16, 0x0503, 0x0603, 0x0804, 0x0805, 0x0806, 0x0809, 0x0401, 0x0501, 0x0601,
            0x0807, 0x0203, 0x0201,
        ];
        let mut list = Vec::new();
        let ids: Vec<u8> = schemes
            .iter()
            .flat_map(|scheme| scheme.to_be_bytes())
            .collect();
        push_16(&mut list, &ids);
        if self.version >= TLS12 {
            add(extension::SIGNATURE_ALGORITHMS, &list);
        }
        if self.version >= TLS13 {
            add(extension::SUPPORTED_VERSIONS, &[2, 3, 4]);
            add(extension::PSK_KEY_EXCHANGE_MODES, &[1, 1]);
            // Without a key share the server requests its preferred group (RFC 8446 §4.2.8).
            add(extension::KEY_SHARE, &[0, 0]);
        }
        all
    }
}

fn push_16(out: &mut Vec<u8>, content: &[u8]) {
    out.extend_from_slice(&(content.len() as u16).to_be_bytes());
    out.extend_from_slice(content);
}

/// Answer to a handmade ClientHello.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum HelloAnswer {
    /// A ServerHello and the unencrypted messages after it.
    Hello(Box<ServerHello>),
    /// An alert: the number of its description.
    Refused(u8),
    /// The server closed or reset the connection without an answer.
    Closed,
    /// No answer within the timeout.
    Silent,
    /// Bytes that are not TLS.
    NotTls,
}

/// The unencrypted part of a server's first flight.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct ServerHello {
    pub(super) version: u16,
    pub(super) suite: u16,
    pub(super) compression: u8,
    /// Group of its key share, or the group that it requests.
    pub(super) group: Option<u16>,
    pub(super) session_id: bool,
    pub(super) ticket: bool,
    pub(super) renegotiation_info: bool,
    /// TLS 1.2: certificates of the server.
    pub(super) certificates: Vec<Vec<u8>>,
    /// TLS 1.2: whether the server requests a client certificate.
    pub(super) certificate_request: bool,
    /// TLS 1.2: whether the flight is complete.
    pub(super) done: bool,
}

/// Parses the records received so far; `None` if more bytes are needed.
pub(super) fn read_answer(bytes: &[u8]) -> Option<HelloAnswer> {
    let mut messages = Vec::new();
    let mut records = Reader::new(bytes);
    while let (Some(kind), Some(major), Some(_), Some(content)) =
        (records.u8(), records.u8(), records.u8(), records.vector16())
    {
        match (kind, major) {
            (content_type::HANDSHAKE, 3) => messages.extend_from_slice(content),
            (content_type::ALERT, 3) if messages.is_empty() => {
                return Some(HelloAnswer::Refused(content.get(1).copied().unwrap_or(0)));
            }
            (content_type::CHANGE_CIPHER_SPEC..=content_type::APPLICATION_DATA, 3) => break,
            _ => return Some(HelloAnswer::NotTls),
        }
    }
    let known = content_type::CHANGE_CIPHER_SPEC..=content_type::APPLICATION_DATA;
    if bytes.first().is_some_and(|kind| !known.contains(kind)) {
        return Some(HelloAnswer::NotTls);
    }
    let hello = read_messages(&messages)?;
    // In TLS 1.3 everything after the ServerHello is encrypted.
    (hello.version >= TLS13 || hello.done || hello.compression != 0)
        .then(|| HelloAnswer::Hello(Box::new(hello)))
}

/// Parses the handshake messages received so far; also used for TLS 1.2 flights that the engine received.
pub(super) fn read_messages(messages: &[u8]) -> Option<ServerHello> {
    let mut hello = None;
    let mut reading = Reader::new(messages);
    while let (Some(kind), Some(body)) = (reading.u8(), reading.vector24()) {
        match (kind, &mut hello) {
            (handshake_type::SERVER_HELLO, None) => hello = Some(server_hello(body)?),
            (handshake_type::CERTIFICATE, Some(hello)) => hello.certificates = certificates(body),
            (handshake_type::CERTIFICATE_REQUEST, Some(hello)) => {
                hello.certificate_request = true;
            }
            (handshake_type::SERVER_HELLO_DONE, Some(hello)) => hello.done = true,
            _ => {}
        }
    }
    hello
}

fn server_hello(body: &[u8]) -> Option<ServerHello> {
    let mut reading = Reader::new(body);
    let mut hello = ServerHello {
        version: reading.u16()?,
        ..ServerHello::default()
    };
    reading.take(32)?;
    hello.session_id = !reading.vector8()?.is_empty();
    hello.suite = reading.u16()?;
    hello.compression = reading.u8()?;
    let mut extensions = Reader::new(reading.vector16().unwrap_or_default());
    while let (Some(kind), Some(content)) = (extensions.u16(), extensions.vector16()) {
        let first = content
            .first_chunk()
            .map(|bytes| u16::from_be_bytes(*bytes));
        match kind {
            extension::SUPPORTED_VERSIONS => hello.version = first.unwrap_or(hello.version),
            extension::KEY_SHARE => hello.group = first,
            extension::SESSION_TICKET => hello.ticket = true,
            extension::RENEGOTIATION_INFO => hello.renegotiation_info = true,
            _ => {}
        }
    }
    Some(hello)
}

fn certificates(body: &[u8]) -> Vec<Vec<u8>> {
    let mut list = Reader::new(Reader::new(body).vector24().unwrap_or_default());
    std::iter::from_fn(|| list.vector24().map(<[u8]>::to_vec)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_in_a_hello_are_right() {
        let record = ProbeHello::all(TLS13, Some("example.org")).record();
        let length = usize::from(u16::from_be_bytes([record[3], record[4]]));
        assert_eq!(record.len(), 5 + length);
        assert_eq!(record[5], 1);
        let deflate = ProbeHello {
            deflate: true,
            ..ProbeHello::all(TLS12, None)
        }
        .record();
        assert!(deflate.windows(3).any(|bytes| bytes == [2, 1, 0]));
    }

    #[test]
    fn answers_are_distinguished() {
        assert_eq!(
            read_answer(&[21, 3, 3, 0, 2, 2, 70]),
            Some(HelloAnswer::Refused(70))
        );
        assert_eq!(read_answer(b"HTTP/1.0 400"), Some(HelloAnswer::NotTls));
        assert_eq!(read_answer(&[22, 3, 3, 0]), None);
        // A TLS 1.2 ServerHello that selects DEFLATE.
        let mut body = vec![3, 3];
        body.extend_from_slice(&[7; 32]);
        body.extend_from_slice(&[0, 0xc0, 0x2f, 1]);
        let mut record = vec![22, 3, 3, 0, body.len() as u8 + 4, 2, 0, 0, body.len() as u8];
        record.extend_from_slice(&body);
        let Some(HelloAnswer::Hello(hello)) = read_answer(&record) else {
            panic!("no hello")
        };
        assert_eq!(
            (hello.compression, hello.suite, hello.version),
            (1, 0xc02f, TLS12)
        );
    }
}
