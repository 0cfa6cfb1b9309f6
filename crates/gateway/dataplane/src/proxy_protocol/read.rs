//! Parser of headers, which may arrive in pieces.

use super::{Endpoints, SIGNATURE, tlv};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// Maximum length of a line of version 1, including CRLF (§2.1).
pub const V1_MAX: usize = 107;

/// Maximum length of a header of version 2 that we read. The format allows 65,551 bytes; headers of
/// real proxies, even with a whole client certificate, are shorter than this.
pub const HEADER_MAX: usize = 16_384;

/// Length of signature, version and command, family, and length.
const V2_FIXED: usize = 16;

/// Result of parsing a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderProgress {
    /// The bytes are a valid beginning; more must follow.
    Partial,
    /// The header is complete.
    Complete {
        /// Length of the header; the bytes after it are the client's.
        len: usize,
        /// The client's addresses. `None`: the proxy connects for itself (a health check), or does
        /// not know the client; then the socket's own addresses count.
        endpoints: Option<Endpoints>,
    },
}

/// Reason for which a header is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HeaderError {
    /// The first bytes belong to neither version of the protocol.
    NoHeader,
    /// A line of version 1 does not end within [`V1_MAX`] bytes.
    EndlessLine,
    /// A line of version 1 is malformed.
    BadLine,
    /// The version after version 2's signature is not 2.
    BadVersion,
    /// The command is neither LOCAL nor PROXY.
    BadCommand,
    /// The family or transport is undefined, or not a stream.
    BadFamily,
    /// The header is longer than [`HEADER_MAX`].
    TooLong,
    /// The header is too short for its addresses.
    TooShort,
    /// The TLVs do not fill the header exactly.
    BadTlv,
    /// The checksum is wrong.
    BadChecksum,
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = match self {
            HeaderError::NoHeader => "no PROXY protocol header before the first byte",
            HeaderError::EndlessLine => "PROXY line longer than 107 bytes",
            HeaderError::BadLine => "malformed PROXY line",
            HeaderError::BadVersion => "PROXY header with an unknown version",
            HeaderError::BadCommand => "PROXY header with an unknown command",
            HeaderError::BadFamily => "PROXY header for a transport other than a stream",
            HeaderError::TooLong => "PROXY header longer than 16 KiB",
            HeaderError::TooShort => "PROXY header too short for its addresses",
            HeaderError::BadTlv => "PROXY header whose TLVs do not match its length",
            HeaderError::BadChecksum => "PROXY header with a wrong checksum",
        };
        f.write_str(reason)
    }
}

impl std::error::Error for HeaderError {}

/// Parses the header at the beginning of `received`.
///
/// # Errors
/// No continuation of these bytes is a valid header.
pub fn read(received: &[u8]) -> Result<HeaderProgress, HeaderError> {
    if have_same_start(received, &SIGNATURE) {
        read_v2(received)
    } else if have_same_start(received, b"PROXY ") {
        read_v1(received)
    } else {
        Err(HeaderError::NoHeader)
    }
}

/// Whether one slice is a prefix of the other.
fn have_same_start(received: &[u8], expected: &[u8]) -> bool {
    let len = received.len().min(expected.len());
    received.get(..len) == expected.get(..len)
}

// ---- version 1 ----

fn read_v1(received: &[u8]) -> Result<HeaderProgress, HeaderError> {
    let within = received.get(..V1_MAX).unwrap_or(received);
    let Some(end) = within.windows(2).position(|pair| pair == b"\r\n") else {
        return if received.len() >= V1_MAX {
            Err(HeaderError::EndlessLine)
        } else {
            Ok(HeaderProgress::Partial)
        };
    };
    let line = within.get(..end).unwrap_or_default();
    let line = std::str::from_utf8(line).map_err(|_| HeaderError::BadLine)?;
    let len = end + 2;
    let arguments = line.strip_prefix("PROXY ").ok_or(HeaderError::BadLine)?;
    // The rest of the line after UNKNOWN must be ignored (§2.1).
    if arguments == "UNKNOWN" || arguments.starts_with("UNKNOWN ") {
        return Ok(HeaderProgress::Complete {
            len,
            endpoints: None,
        });
    }
    let fields: Vec<&str> = arguments.split(' ').collect();
    let endpoints = match fields[..] {
        ["TCP4", client, server, from, to] => {
            endpoints_of::<Ipv4Addr>([client, server, from, to]).ok_or(HeaderError::BadLine)?
        }
        ["TCP6", client, server, from, to] => {
            endpoints_of::<Ipv6Addr>([client, server, from, to]).ok_or(HeaderError::BadLine)?
        }
        _ => return Err(HeaderError::BadLine),
    };
    Ok(HeaderProgress::Complete {
        len,
        endpoints: Some(endpoints),
    })
}

fn endpoints_of<Ip: FromStr + Into<IpAddr>>(
    [client, server, from, to]: [&str; 4],
) -> Option<Endpoints> {
    let ip = |text: &str| text.parse::<Ip>().ok().map(Into::into);
    Some(Endpoints::new(
        SocketAddr::new(ip(client)?, port(from)?),
        SocketAddr::new(ip(server)?, port(to)?),
    ))
}

/// Parses a port: no sign and no leading zeros (§2.1).
fn port(text: &str) -> Option<u16> {
    let canonical = text == "0" || !text.starts_with(['0', '+']);
    canonical.then(|| text.parse().ok()).flatten()
}

// ---- version 2 ----

fn read_v2(received: &[u8]) -> Result<HeaderProgress, HeaderError> {
    let Some((fixed, rest)) = received.split_at_checked(V2_FIXED) else {
        return Ok(HeaderProgress::Partial);
    };
    let &[.., version_command, family, high, low] = fixed else {
        return Ok(HeaderProgress::Partial);
    };
    if version_command >> 4 != 2 {
        return Err(HeaderError::BadVersion);
    }
    let is_local = match version_command & 15 {
        0 => true,
        1 => false,
        _ => return Err(HeaderError::BadCommand),
    };
    let body_len = usize::from(u16::from_be_bytes([high, low]));
    let len = V2_FIXED + body_len;
    if len > HEADER_MAX {
        return Err(HeaderError::TooLong);
    }
    let body = rest.get(..body_len);
    if is_local {
        // The receiver must "discard the protocol block including the family which is ignored" (§2.2).
        let endpoints = None;
        return Ok(
            body.map_or(HeaderProgress::Partial, |_| HeaderProgress::Complete {
                len,
                endpoints,
            }),
        );
    }
    let addresses_len = addresses_len(family).ok_or(HeaderError::BadFamily)?;
    if body_len < addresses_len {
        return Err(HeaderError::TooShort);
    }
    let Some(body) = body else {
        return Ok(HeaderProgress::Partial);
    };
    let (addresses, tlvs) = body.split_at(addresses_len);
    // Some proxies fill in an address all the same, which the receiver should ignore (§2.2): it has no known length.
    if family != UNSPEC || are_tlvs(tlvs) {
        check_tlvs(received.get(..len).unwrap_or_default(), tlvs)?;
    }
    Ok(HeaderProgress::Complete {
        len,
        endpoints: endpoints_v2(addresses),
    })
}

/// The family and transport of a client whose address the proxy does not know, or cannot express.
const UNSPEC: u8 = 0x00;

/// Length of both addresses. `None`: not a family and transport of a stream (§2.2).
fn addresses_len(family: u8) -> Option<usize> {
    match family {
        UNSPEC => Some(0),
        0x11 => Some(12),
        0x21 => Some(36),
        // The paths of a unix socket: accepted, but not used as an address.
        0x31 => Some(216),
        _ => None,
    }
}

fn endpoints_v2(addresses: &[u8]) -> Option<Endpoints> {
    match *addresses {
        [a, b, c, d, e, f, g, h, p, q, r, s] => Some(Endpoints::new(
            SocketAddr::from(([a, b, c, d], u16::from_be_bytes([p, q]))),
            SocketAddr::from(([e, f, g, h], u16::from_be_bytes([r, s]))),
        )),
        _ if addresses.len() == 36 => {
            let ip = |at: usize| {
                let bytes = addresses.get(at..at + 16)?;
                Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?))
            };
            let port = |at: usize| {
                let bytes = addresses.get(at..at + 2)?;
                Some(u16::from_be_bytes(bytes.try_into().ok()?))
            };
            Some(Endpoints::new(
                SocketAddr::from((ip(0)?, port(32)?)),
                SocketAddr::from((ip(16)?, port(34)?)),
            ))
        }
        _ => None,
    }
}

/// Whether these bytes are TLVs, whatever their contents.
fn are_tlvs(mut bytes: &[u8]) -> bool {
    while let [_, high, low, rest @ ..] = bytes {
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        let Some(behind) = rest.get(len..) else {
            return false;
        };
        bytes = behind;
    }
    bytes.is_empty()
}

/// Checks that the TLVs fill the header exactly, and the checksum if there is one (§2.2.3). The other
/// TLVs are not used.
fn check_tlvs(header: &[u8], mut tlvs: &[u8]) -> Result<(), HeaderError> {
    let mut summed = false;
    while !tlvs.is_empty() {
        let [kind, high, low, rest @ ..] = tlvs else {
            return Err(HeaderError::BadTlv);
        };
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        let (value, behind) = rest.split_at_checked(len).ok_or(HeaderError::BadTlv)?;
        if *kind == tlv::CRC32C {
            // A second checksum is refused: each costs a pass over the whole header.
            if std::mem::replace(&mut summed, true) {
                return Err(HeaderError::BadTlv);
            }
            let sum = <[u8; 4]>::try_from(value).map_err(|_| HeaderError::BadTlv)?;
            let at = header.len() - behind.len() - 4;
            if crc32c_without(header, at) != u32::from_be_bytes(sum) {
                return Err(HeaderError::BadChecksum);
            }
        }
        tlvs = behind;
    }
    Ok(())
}

/// Computes the checksum of the header, with zeros in place of its own four bytes at `at`.
pub(super) fn crc32c_without(header: &[u8], at: usize) -> u32 {
    const CASTAGNOLI: u32 = 0x82f6_3b78;
    let mut crc = u32::MAX;
    for (n, &byte) in header.iter().enumerate() {
        let byte = if (at..at + 4).contains(&n) { 0 } else { byte };
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { CASTAGNOLI } else { 0 };
        }
    }
    !crc
}
