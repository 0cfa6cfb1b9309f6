//! Reading a header, byte by byte as it comes.

use super::{Endpoints, SIGNATURE, tlv};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// The longest line of version 1, its end included (§2.1).
pub const V1_MAX: usize = 107;

/// The longest header of version 2 that is read. The format allows 65,551 bytes; what proxies
/// send, a client's whole certificate included, stays below this.
pub const HEADER_MAX: usize = 16_384;

/// Signature, version and command, family, length.
const V2_FIXED: usize = 16;

/// How far a header has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// It is good so far; more must come.
    Partial,
    /// It is complete.
    Complete {
        /// How many bytes it has; what follows is the client's.
        len: usize,
        /// Whom it speaks of. `None`: the proxy speaks for itself (a health check), or does not
        /// say; then the connection's own addresses count.
        endpoints: Option<Endpoints>,
    },
}

/// Why a header is not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refused {
    /// The first bytes are of no version of the protocol.
    NoHeader,
    /// A line of version 1 without an end in [`V1_MAX`] bytes.
    EndlessLine,
    /// A line of version 1 that is not as it has to be.
    BadLine,
    /// Another version than 2 behind version 2's signature.
    BadVersion,
    /// A command that is neither LOCAL nor PROXY.
    BadCommand,
    /// A family or transport that is not defined, or is not a stream.
    BadFamily,
    /// Longer than [`HEADER_MAX`].
    TooLong,
    /// Too short for its addresses.
    TooShort,
    /// Its TLVs do not fill it exactly.
    BadTlv,
    /// Its checksum is wrong.
    BadChecksum,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self {
            Refused::NoHeader => "no PROXY protocol header before the first byte",
            Refused::EndlessLine => "PROXY line longer than 107 bytes",
            Refused::BadLine => "malformed PROXY line",
            Refused::BadVersion => "PROXY header with an unknown version",
            Refused::BadCommand => "PROXY header with an unknown command",
            Refused::BadFamily => "PROXY header for a transport other than a stream",
            Refused::TooLong => "PROXY header longer than 16 KiB",
            Refused::TooShort => "PROXY header too short for its addresses",
            Refused::BadTlv => "PROXY header whose TLVs do not match its length",
            Refused::BadChecksum => "PROXY header with a wrong checksum",
        };
        f.write_str(why)
    }
}

impl std::error::Error for Refused {}

/// Reads the header at the beginning of `received`.
///
/// # Errors
/// The bytes can't become a header that is accepted.
pub fn read(received: &[u8]) -> Result<Progress, Refused> {
    if starts_alike(received, &SIGNATURE) {
        read_v2(received)
    } else if starts_alike(received, b"PROXY ") {
        read_v1(received)
    } else {
        Err(Refused::NoHeader)
    }
}

/// Whether one is the beginning of the other.
fn starts_alike(received: &[u8], expected: &[u8]) -> bool {
    let len = received.len().min(expected.len());
    received.get(..len) == expected.get(..len)
}

// ---- version 1 ----

fn read_v1(received: &[u8]) -> Result<Progress, Refused> {
    let within = received.get(..V1_MAX).unwrap_or(received);
    let Some(end) = within.windows(2).position(|pair| pair == b"\r\n") else {
        return if received.len() >= V1_MAX {
            Err(Refused::EndlessLine)
        } else {
            Ok(Progress::Partial)
        };
    };
    let line = within.get(..end).unwrap_or_default();
    let line = std::str::from_utf8(line).map_err(|_| Refused::BadLine)?;
    let len = end + 2;
    let said = line.strip_prefix("PROXY ").ok_or(Refused::BadLine)?;
    // What follows UNKNOWN is to be ignored (§2.1).
    if said == "UNKNOWN" || said.starts_with("UNKNOWN ") {
        return Ok(Progress::Complete {
            len,
            endpoints: None,
        });
    }
    let fields: Vec<&str> = said.split(' ').collect();
    let endpoints = match fields[..] {
        ["TCP4", client, server, from, to] => {
            endpoints_of::<Ipv4Addr>([client, server, from, to]).ok_or(Refused::BadLine)?
        }
        ["TCP6", client, server, from, to] => {
            endpoints_of::<Ipv6Addr>([client, server, from, to]).ok_or(Refused::BadLine)?
        }
        _ => return Err(Refused::BadLine),
    };
    Ok(Progress::Complete {
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

/// A number without sign and without zeros in front (§2.1).
fn port(text: &str) -> Option<u16> {
    let canonical = text == "0" || !text.starts_with(['0', '+']);
    canonical.then(|| text.parse().ok()).flatten()
}

// ---- version 2 ----

fn read_v2(received: &[u8]) -> Result<Progress, Refused> {
    let Some((fixed, rest)) = received.split_at_checked(V2_FIXED) else {
        return Ok(Progress::Partial);
    };
    let &[.., version_command, family, high, low] = fixed else {
        return Ok(Progress::Partial);
    };
    if version_command >> 4 != 2 {
        return Err(Refused::BadVersion);
    }
    let is_local = match version_command & 15 {
        0 => true,
        1 => false,
        _ => return Err(Refused::BadCommand),
    };
    let body_len = usize::from(u16::from_be_bytes([high, low]));
    let len = V2_FIXED + body_len;
    if len > HEADER_MAX {
        return Err(Refused::TooLong);
    }
    let addresses_len = addresses_len(family).ok_or(Refused::BadFamily)?;
    // LOCAL may come with any family, and without addresses (§2.2).
    if !is_local && body_len < addresses_len {
        return Err(Refused::TooShort);
    }
    let Some(body) = rest.get(..body_len) else {
        return Ok(Progress::Partial);
    };
    if is_local {
        return Ok(Progress::Complete {
            len,
            endpoints: None,
        });
    }
    let (addresses, tlvs) = body.split_at(addresses_len);
    check_tlvs(received.get(..len).unwrap_or_default(), tlvs)?;
    Ok(Progress::Complete {
        len,
        endpoints: endpoints_v2(addresses),
    })
}

/// Bytes of both addresses. `None`: not a family and transport that a stream can have (§2.2).
fn addresses_len(family: u8) -> Option<usize> {
    match family {
        0x00 => Some(0),
        0x11 => Some(12),
        0x21 => Some(36),
        // A unix socket's two paths: accepted, and of no use as an address.
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

/// Each has type, length and value, and together they fill the header. A checksum is checked if
/// there is one (§2.2.3); nothing else in them is of use here.
fn check_tlvs(header: &[u8], mut tlvs: &[u8]) -> Result<(), Refused> {
    let mut summed = false;
    while !tlvs.is_empty() {
        let [kind, high, low, rest @ ..] = tlvs else {
            return Err(Refused::BadTlv);
        };
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        let (value, behind) = rest.split_at_checked(len).ok_or(Refused::BadTlv)?;
        if *kind == tlv::CRC32C {
            // Each would take a walk through all of the header.
            if std::mem::replace(&mut summed, true) {
                return Err(Refused::BadTlv);
            }
            let said = <[u8; 4]>::try_from(value).map_err(|_| Refused::BadTlv)?;
            let at = header.len() - behind.len() - 4;
            if crc32c_without(header, at) != u32::from_be_bytes(said) {
                return Err(Refused::BadChecksum);
            }
        }
        tlvs = behind;
    }
    Ok(())
}

/// The checksum of the header with zeros for the four bytes at `at`, where it stands itself.
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
