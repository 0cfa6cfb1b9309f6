//! DNS questions and answers (RFC 1035 §4), on top of the crate `domain`.
//!
//! An answer is parsed only if it repeats the question. Aliases are followed in any order, up to a
//! limit, and nothing is stored but the result.

use domain::base::iana::{Class, Opcode, Rcode};
use domain::base::wire::ParseError;
use domain::base::{Message, MessageBuilder, Name, ParsedRecord, Ttl};
use domain::rdata::{A, Aaaa, Cname, Soa};
use std::net::IpAddr;

pub(super) use domain::base::Rtype;

/// Maximum number of parsed records and followed aliases.
const RECORDS_MAX: usize = 256;
const ALIASES_MAX: usize = 16;

/// A question.
pub(super) struct Question {
    message: Message<Vec<u8>>,
    kind: Rtype,
}

/// An answer to a question.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// These addresses, valid for the shortest lifetime of all records that lead to them.
    Addresses { all: Vec<IpAddr>, ttl_s: u32 },
    /// No such name, or no address of this type, for this long (RFC 2308 §5).
    Nothing { ttl_s: u32 },
    /// The answer does not fit a datagram.
    Truncated,
    /// The server failed or refused.
    Failed,
}

/// Why bytes are not an answer to the question.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InvalidAnswer {
    /// They may answer another question.
    OtherQuestion,
    /// They answer this question, but are malformed.
    Broken,
}

impl Question {
    /// `None`: `name` is not a valid host name.
    pub(super) fn new(id: u16, name: &str, kind: Rtype) -> Option<Question> {
        let name: Name<Vec<u8>> = name.to_ascii_lowercase().parse().ok()?;
        if name.is_root() {
            return None;
        }
        let mut builder = MessageBuilder::new_vec();
        builder.header_mut().set_id(id);
        // Recursion desired: the server should follow referrals itself.
        builder.header_mut().set_rd(true);
        let mut question = builder.question();
        question.push((name, kind)).ok()?;
        Some(Question {
            message: question.into_message(),
            kind,
        })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.message.as_slice()
    }

    /// Parses an answer to this question.
    pub(super) fn understand(&self, bytes: &[u8]) -> Result<Answer, InvalidAnswer> {
        let message = Message::from_octets(bytes).map_err(|_| InvalidAnswer::OtherQuestion)?;
        let header = message.header();
        if header.opcode() != Opcode::QUERY || !message.is_answer(&self.message) {
            return Err(InvalidAnswer::OtherQuestion);
        }
        match header.rcode() {
            // For an unknown name the aliases that lead to it still have lifetimes.
            Rcode::NOERROR | Rcode::NXDOMAIN if header.tc() => Ok(Answer::Truncated),
            Rcode::NOERROR | Rcode::NXDOMAIN => {
                self.answer(&message).map_err(|_| InvalidAnswer::Broken)
            }
            _ => Ok(Answer::Failed),
        }
    }

    fn answer(&self, message: &Message<&[u8]>) -> Result<Answer, ParseError> {
        let records: Vec<_> = message
            .answer()?
            .take(RECORDS_MAX)
            .filter(|record| record.as_ref().map_or(true, |r| r.class() == Class::IN))
            .collect::<Result<_, _>>()?;
        let mut owner = message.sole_question()?.into_qname();
        let mut ttl_s = u32::MAX;
        for _ in 0..ALIASES_MAX {
            let own = || records.iter().filter(|record| record.owner() == owner);
            let addresses = own().filter(|record| record.rtype() == self.kind);
            let least_s = addresses.clone().map(|record| seconds(record.ttl())).min();
            if let Some(least_s) = least_s {
                return Ok(Answer::Addresses {
                    all: addresses.map(address).collect::<Result<_, _>>()?,
                    ttl_s: ttl_s.min(least_s),
                });
            }
            let Some(alias) = own().find(|record| record.rtype() == Rtype::CNAME) else {
                break;
            };
            ttl_s = ttl_s.min(seconds(alias.ttl()));
            match alias.to_record::<Cname<_>>()? {
                Some(alias) => owner = alias.into_data().into_cname(),
                None => break,
            }
        }
        let nothing = message.authority()?.limit_to_in::<Soa<_>>().next();
        match nothing.transpose()? {
            Some(soa) => Ok(Answer::Nothing {
                ttl_s: ttl_s
                    .min(seconds(soa.ttl()))
                    .min(seconds(soa.data().minimum())),
            }),
            // Without SOA record the answer must not be cached (RFC 2308 §5).
            None => Ok(Answer::Nothing { ttl_s: 0 }),
        }
    }
}

fn address(record: &ParsedRecord<'_, &[u8]>) -> Result<IpAddr, ParseError> {
    if let Some(four) = record.to_record::<A>()? {
        return Ok(four.data().addr().into());
    }
    let six = record.to_record::<Aaaa>()?;
    six.map(|six| six.data().addr().into())
        .ok_or(ParseError::form_error("no address"))
}

/// A TTL with the highest bit set counts as 0 (RFC 2181 §8).
fn seconds(ttl: Ttl) -> u32 {
    match ttl.as_secs() {
        seconds if seconds >> 31 == 0 => seconds,
        _ => 0,
    }
}
