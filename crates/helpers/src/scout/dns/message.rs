//! Questions and answers (RFC 1035 §4), as the crate `domain` reads and writes them.
//!
//! An answer is looked at only if it repeats the question. Of a chain of aliases so many are
//! followed, whatever their order, and nothing is stored but what the caller gets.

use domain::base::iana::{Class, Opcode, Rcode};
use domain::base::wire::ParseError;
use domain::base::{Message, MessageBuilder, Name, ParsedRecord, Ttl};
use domain::rdata::{A, Aaaa, Cname, Soa};
use std::net::IpAddr;

pub(super) use domain::base::Rtype;

/// Records that are looked at, and aliases that are followed.
const RECORDS_MAX: usize = 256;
const ALIASES_MAX: usize = 16;

/// A question.
pub(super) struct Question {
    message: Message<Vec<u8>>,
    kind: Rtype,
}

/// An answer to it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// These addresses. All that leads to them holds for so long.
    Addresses { all: Vec<IpAddr>, ttl_s: u32 },
    /// No such name, or none with such an address, for so long (RFC 2308 §5).
    Nothing { ttl_s: u32 },
    /// There is more than fits a datagram.
    Truncated,
    /// The server can't, or does not want to.
    Failed,
}

/// Why bytes are no answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InvalidAnswer {
    /// They may be to another question.
    OtherQuestion,
    /// They are to this one, and make no sense.
    Broken,
}

impl Question {
    /// `None`: that is no name.
    pub(super) fn new(id: u16, name: &str, kind: Rtype) -> Option<Question> {
        let name: Name<Vec<u8>> = name.to_ascii_lowercase().parse().ok()?;
        if name.is_root() {
            return None;
        }
        let mut builder = MessageBuilder::new_vec();
        builder.header_mut().set_id(id);
        // It is to be answered in full.
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

    /// What these bytes say to it.
    pub(super) fn understand(&self, bytes: &[u8]) -> Result<Answer, InvalidAnswer> {
        let message = Message::from_octets(bytes).map_err(|_| InvalidAnswer::OtherQuestion)?;
        let header = message.header();
        if header.opcode() != Opcode::QUERY || !message.is_answer(&self.message) {
            return Err(InvalidAnswer::OtherQuestion);
        }
        match header.rcode() {
            // No such name is an answer, too: the aliases that lead to it hold for their time.
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
            // It must not be kept then (RFC 2308 §5).
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

/// The highest bit set: as if it were 0 (RFC 2181 §8).
fn seconds(ttl: Ttl) -> u32 {
    match ttl.as_secs() {
        seconds if seconds >> 31 == 0 => seconds,
        _ => 0,
    }
}
