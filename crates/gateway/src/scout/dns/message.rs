//! Questions and answers as bytes (RFC 1035 §4).
//!
//! Invariants: an answer is looked at only if it repeats the question; the pointers of a compressed
//! name lead ever further to the front, so that following them ends; of a chain of aliases so many
//! are followed, whatever their order; nothing is stored but what the caller gets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Types of records (§3.2.2, RFC 3596 §2.1).
pub(super) const A: u16 = 1;
const CNAME: u16 = 5;
const SOA: u16 = 6;
pub(super) const AAAA: u16 = 28;
const INTERNET: u16 = 1;

const HEADER: usize = 12;
/// §2.3.4, with the length before each label and the empty one at the end.
const NAME_MAX: usize = 255;
const LABEL_MAX: usize = 63;
/// Records that are looked at, and aliases that are followed.
const RECORDS_MAX: usize = 256;
const ALIASES_MAX: usize = 16;

/// A name as in a message, in small letters: each label behind its length, and 0.
type Name = Vec<u8>;

/// A question.
pub(super) struct Asked {
    name: Name,
    kind: u16,
    bytes: Vec<u8>,
}

/// An answer to it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// These addresses. All that leads to them holds for so long.
    Addresses { all: Vec<IpAddr>, ttl_s: u32 },
    /// No such name, or none with such an address, for so long (RFC 2308 §5).
    Nothing { ttl_s: u32 },
    /// There is more than fits a datagram.
    CutShort,
    /// The server can't, or does not want to.
    Failed,
}

/// Why bytes are no answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// They may be to another question.
    NotToThis,
    /// They are to this one, and make no sense.
    Broken,
}

/// A record, and where its contents lie.
struct Record<'a> {
    owner: Name,
    kind: u16,
    ttl_s: u32,
    /// Where in the message the data begins: names in it may point to the front.
    at: usize,
    data: &'a [u8],
}

impl Asked {
    /// `None`: that is no name.
    pub(super) fn new(id: u16, name: &str, kind: u16) -> Option<Asked> {
        let mut wire = Name::new();
        for label in name.strip_suffix('.').unwrap_or(name).split('.') {
            if label.is_empty() || label.len() > LABEL_MAX || !label.is_ascii() {
                return None;
            }
            wire.push(label.len() as u8);
            wire.extend(label.bytes().map(|byte| byte.to_ascii_lowercase()));
        }
        wire.push(0);
        if wire.len() > NAME_MAX {
            return None;
        }
        let mut bytes = id.to_be_bytes().to_vec();
        // A question which is to be answered in full (RD); there is one.
        bytes.extend_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        bytes.extend_from_slice(&wire);
        bytes.extend_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(&INTERNET.to_be_bytes());
        Some(Asked {
            name: wire,
            kind,
            bytes,
        })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What these bytes say to it.
    pub(super) fn understand(&self, bytes: &[u8]) -> Result<Said, Unfit> {
        let at = self.behind_question(bytes).ok_or(Unfit::NotToThis)?;
        let (truncated, code) = match bytes {
            [_, _, flags, more, ..] => (flags & 0x02 != 0, more & 0x0f),
            _ => return Err(Unfit::NotToThis),
        };
        // No such name is an answer, too: the aliases that lead to it hold for their time.
        let exists = match code {
            0 => true,
            3 => false,
            _ => return Ok(Said::Failed),
        };
        if truncated {
            return Ok(Said::CutShort);
        }
        self.answer(bytes, at, exists).ok_or(Unfit::Broken)
    }

    /// Where the answer begins, if these bytes repeat the question.
    fn behind_question(&self, bytes: &[u8]) -> Option<usize> {
        const RESPONSE: u8 = 0x80;
        const OPCODE: u8 = 0x78;
        let same_id = bytes.get(..2)? == self.bytes.get(..2)?;
        let flags = *bytes.get(2)?;
        let one = word(bytes, 4)? == 1;
        if !same_id || flags & (RESPONSE | OPCODE) != RESPONSE || !one {
            return None;
        }
        let (name, at) = name(bytes, HEADER)?;
        let same = name == self.name && word(bytes, at)? == self.kind;
        (same && word(bytes, at + 2)? == INTERNET).then_some(at + 4)
    }

    fn answer(&self, bytes: &[u8], at: usize, exists: bool) -> Option<Said> {
        let (answers, at) = records(bytes, at, word(bytes, 6)?)?;
        let (authorities, _) = records(bytes, at, word(bytes, 8)?)?;
        let mut owner = self.name.clone();
        let mut ttl_s = u32::MAX;
        for _ in 0..ALIASES_MAX {
            let own = || answers.iter().filter(|record| record.owner == owner);
            let addresses: Vec<&Record<'_>> =
                own().filter(|record| record.kind == self.kind).collect();
            if !addresses.is_empty() && exists {
                let least_s = addresses.iter().map(|record| record.ttl_s).min();
                let all: Option<Vec<IpAddr>> = addresses.iter().map(|one| address(one)).collect();
                return Some(Said::Addresses {
                    all: all?,
                    ttl_s: ttl_s.min(least_s?),
                });
            }
            let Some(alias) = own().find(|record| record.kind == CNAME) else {
                break;
            };
            ttl_s = ttl_s.min(alias.ttl_s);
            owner = name(bytes, alias.at)?.0;
        }
        let nothing = authorities.iter().find(|record| record.kind == SOA);
        match nothing {
            Some(soa) => Some(Said::Nothing {
                ttl_s: ttl_s.min(soa.ttl_s).min(minimum(soa)?),
            }),
            // It must not be kept then (RFC 2308 §5).
            None => Some(Said::Nothing { ttl_s: 0 }),
        }
    }
}

/// So many records from `at` on, and where they end.
fn records(bytes: &[u8], mut at: usize, count: u16) -> Option<(Vec<Record<'_>>, usize)> {
    let count = usize::from(count);
    if count > RECORDS_MAX {
        return None;
    }
    let mut all = Vec::new();
    for _ in 0..count {
        let (owner, behind) = name(bytes, at)?;
        let (kind, class) = (word(bytes, behind)?, word(bytes, behind + 2)?);
        let ttl = u32::from(word(bytes, behind + 4)?) << 16 | u32::from(word(bytes, behind + 6)?);
        let start = behind + 10;
        at = start + usize::from(word(bytes, behind + 8)?);
        let data = bytes.get(start..at)?;
        if class == INTERNET {
            all.push(Record {
                owner,
                kind,
                // The highest bit set: as if it were 0 (RFC 2181 §8).
                ttl_s: if ttl >> 31 == 0 { ttl } else { 0 },
                at: start,
                data,
            });
        }
    }
    Some((all, at))
}

fn address(record: &Record<'_>) -> Option<IpAddr> {
    match record.kind {
        A => Some(Ipv4Addr::from(<[u8; 4]>::try_from(record.data).ok()?).into()),
        _ => Some(Ipv6Addr::from(<[u8; 16]>::try_from(record.data).ok()?).into()),
    }
}

/// The last number of an SOA record (§3.3.13).
fn minimum(soa: &Record<'_>) -> Option<u32> {
    let last = soa.data.last_chunk::<4>()?;
    Some(u32::from_be_bytes(*last))
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_be_bytes(two.try_into().ok()?))
}

/// The name at `at`, and where what follows it begins (§4.1.4).
fn name(bytes: &[u8], at: usize) -> Option<(Name, usize)> {
    let mut name = Name::new();
    let mut behind = None;
    // Pointers lead to the front of all that was read of this name.
    let (mut from, mut front) = (at, at);
    loop {
        let len = *bytes.get(from)?;
        match len >> 6 {
            0 if len == 0 => {
                name.push(0);
                return Some((name, behind.unwrap_or(from + 1)));
            }
            0 => {
                let label = bytes.get(from..from + 1 + usize::from(len))?;
                name.extend(label.iter().map(u8::to_ascii_lowercase));
                if name.len() >= NAME_MAX {
                    return None;
                }
                from += label.len();
            }
            3 => {
                let to = usize::from(word(bytes, from)? & 0x3fff);
                if to >= front {
                    return None;
                }
                behind = behind.or(Some(from + 2));
                (from, front) = (to, to);
            }
            _ => return None,
        }
    }
}
