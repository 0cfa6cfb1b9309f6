//! Dynamic updates of DNS (RFC 2136): adds and removes the TXT record by which dns-01 (RFC 8555 §8.4) proves control of a
//! name.
//!
//! The server is asked for the zone first, so that the operator need not say where a zone begins. An alias (CNAME) of the
//! record's name is followed: many delegate `_acme-challenge` to a zone that has no other records, and a key for it.

use super::messages::DnsUpdates;
use super::tsig::{Transaction, Unauthentic};
use crate::transport::Connector;
use domain::base::iana::{Class, Opcode, Rcode, TsigRcode};
use domain::base::wire::ParseError;
use domain::base::{Message, MessageBuilder, Name, Rtype, ToName as _, Ttl};
use domain::rdata::{Cname, Soa, Txt};
use dormouse_handover::unix_time;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{Read as _, Write as _};
use std::time::Duration;

/// Time for one message and its response.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Lifetime of the record, in seconds: resolvers must not keep it for the next order.
const TTL_S: u32 = 60;
/// Maximum number of records that are parsed, and of aliases that are followed.
const RECORDS_MAX: usize = 64;
const ALIASES_MAX: usize = 8;

/// Where the record of a name is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    zone: Name<Vec<u8>>,
    record: Name<Vec<u8>>,
}

/// What happens to the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It is added. It may be there already.
    Add,
    /// It is removed, and no other record of its name. It may be gone already.
    Remove,
}

impl DnsUpdates {
    /// Finds the place of the record for a name.
    pub(super) fn place(&self, name: &str) -> Result<Place, String> {
        let record = format!("_acme-challenge.{}", name.trim_start_matches("*."));
        let record: Name<Vec<u8>> = record
            .parse()
            .map_err(|_| format!("{record} is too long for a domain name"))?;
        let mut name = record.clone();
        // A server may answer with an alias alone, also if it has the zone of the target.
        for _ in 0..ALIASES_MAX {
            let response = self.exchange(Opcode::QUERY, |message| {
                let mut question = message.question();
                question.push((&name, Rtype::SOA)).ok()?;
                Some(question.additional())
            })?;
            match zone_of(&response, &name) {
                Ok(Found::Zone(place)) => return Ok(place),
                Ok(Found::Alias(target)) => name = target,
                Ok(Found::Nothing) => break,
                Err(_) => return Err(self.failed("the response is malformed")),
            }
        }
        let why = format!(
            "no zone for {name}: the response has no SOA record; name a primary server in acme_dns_server"
        );
        Err(self.failed(&why))
    }

    fn failed(&self, why: &str) -> String {
        format!("DNS server {}: {why}", self.server)
    }

    /// Adds or removes the record with this value.
    pub(super) fn change(&self, place: &Place, value: &str, change: Change) -> Result<(), String> {
        let update = |message: MessageBuilder<Vec<u8>>| {
            let mut zone = message.question();
            zone.push((&place.zone, Rtype::SOA)).ok()?;
            let text: Txt<Vec<u8>> = Txt::build_from_slice(value.as_bytes()).ok()?;
            // RFC 2136 §2.5.1 and §2.5.4.
            let (class, ttl) = match change {
                Change::Add => (Class::IN, Ttl::from_secs(TTL_S)),
                Change::Remove => (Class::NONE, Ttl::ZERO),
            };
            let mut updates = zone.authority();
            updates.push((&place.record, class, ttl, text)).ok()?;
            Some(updates.additional())
        };
        self.exchange(Opcode::UPDATE, update).map(|_| ())
    }

    /// Sends a message and returns the response, which is authentic and no error.
    fn exchange(
        &self,
        opcode: Opcode,
        fill: impl FnOnce(
            MessageBuilder<Vec<u8>>,
        ) -> Option<domain::base::message_builder::AdditionalBuilder<Vec<u8>>>,
    ) -> Result<Message<Vec<u8>>, String> {
        let failed = |why: String| self.failed(&why);
        let mut builder = MessageBuilder::new_vec();
        let id = RandomState::new().hash_one(0) as u16;
        builder.header_mut().set_id(id);
        builder.header_mut().set_opcode(opcode);
        let mut message =
            fill(builder).ok_or_else(|| failed("the message is too long".to_owned()))?;
        let now_s = unix_time().as_secs();
        let transaction = self.key.as_ref();
        let transaction = transaction.map(|key| Transaction::sign(key, &mut message, now_s));
        let transaction = transaction.transpose().map_err(failed)?;
        let response = self
            .send(&message.finish())
            .map_err(|error| failed(error.to_string()))?;
        judge(&response, id, opcode, transaction.as_ref(), now_s).map_err(failed)
    }

    /// Sends a message over TCP, and receives one.
    fn send(&self, message: &[u8]) -> std::io::Result<Vec<u8>> {
        let (host, port) = (self.server.ip().to_string(), self.server.port());
        let mut tcp = Connector::plain().connect(&host, port, TIMEOUT)?;
        let len = u16::try_from(message.len()).unwrap_or(u16::MAX);
        tcp.write_all(&[&len.to_be_bytes()[..], message].concat())?;
        let mut len = [0; 2];
        tcp.read_exact(&mut len)?;
        let mut response = vec![0; usize::from(u16::from_be_bytes(len))];
        tcp.read_exact(&mut response)?;
        Ok(response)
    }
}

/// Returns the response if it answers our message, is authentic and no error.
fn judge(
    response: &[u8],
    id: u16,
    opcode: Opcode,
    transaction: Option<&Transaction>,
    now_s: u64,
) -> Result<Message<Vec<u8>>, String> {
    let message = Message::from_octets(response.to_vec());
    let message = message.map_err(|_| "the response is malformed".to_owned())?;
    let header = message.header();
    if header.id() != id || header.opcode() != opcode || !header.qr() {
        return Err("the response is to another message".to_owned());
    }
    let authentic = transaction.map(|transaction| transaction.verify(response, now_s));
    let refusal = match &authentic {
        Some(Err(Unauthentic::Refused(TsigRcode::BADKEY))) => Some(
            "it does not know the key in acme_dns_key_file, or not for this algorithm (BADKEY)",
        ),
        Some(Err(Unauthentic::Refused(TsigRcode::BADSIG))) => {
            Some("the key in acme_dns_key_file is not the one that it has (BADSIG)")
        }
        Some(Err(Unauthentic::Refused(TsigRcode::BADTIME)) | Err(Unauthentic::BadTime)) => {
            Some("its clock and ours differ by more than 5 minutes (BADTIME)")
        }
        _ => None,
    };
    if let Some(refusal) = refusal {
        return Err(refusal.to_owned());
    }
    match header.rcode() {
        Rcode::NOERROR => {}
        Rcode::NXDOMAIN if opcode == Opcode::QUERY => {}
        Rcode::REFUSED => {
            return Err("it refuses us (REFUSED): allow updates of this record with this key, or from this address".to_owned());
        }
        Rcode::NOTAUTH => {
            return Err("it is not the primary server of the zone (NOTAUTH); name that one in acme_dns_server".to_owned());
        }
        Rcode::NOTIMP => return Err("it has no dynamic updates (NOTIMP)".to_owned()),
        other => return Err(format!("it answers {other}")),
    }
    match authentic {
        None | Some(Ok(())) => Ok(message),
        Some(Err(_)) => {
            Err("its response is not signed with the key in acme_dns_key_file".to_owned())
        }
    }
}

/// What a response says about the zone of a name.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Zone(Place),
    /// The name is an alias of this one, whose zone is not in the response.
    Alias(Name<Vec<u8>>),
    Nothing,
}

/// Finds the zone in the response to a query for the SOA record of `record`: the SOA record of the zone is in the
/// answer or, if the name is not a zone itself, in the authority section (RFC 2308 §3).
fn zone_of(response: &Message<Vec<u8>>, record: &Name<Vec<u8>>) -> Result<Found, ParseError> {
    let mut name = record.clone();
    for _ in 0..ALIASES_MAX {
        let mut alias = None;
        for found in response
            .answer()?
            .limit_to_in::<Cname<_>>()
            .take(RECORDS_MAX)
        {
            let found = found?;
            if *found.owner() == name {
                alias = Some(found.data().cname().to_name::<Vec<u8>>());
            }
        }
        match alias {
            Some(alias) => name = alias,
            None => break,
        }
    }
    let answers = response.answer()?.limit_to_in::<Soa<_>>();
    let authority = response.authority()?.limit_to_in::<Soa<_>>();
    for found in answers.chain(authority).take(RECORDS_MAX) {
        let zone: Name<Vec<u8>> = found?.owner().to_name();
        if name.ends_with(&zone) {
            let record = name;
            return Ok(Found::Zone(Place { zone, record }));
        }
    }
    Ok(match name == *record {
        true => Found::Nothing,
        false => Found::Alias(name),
    })
}

/// Whether bytes are a response from which the zone of `_acme-challenge.example.com` can be found, for `fuzz/`.
pub(crate) fn understands(bytes: &[u8]) -> bool {
    let Ok(message) = judge(bytes, 0, Opcode::QUERY, None, 0) else {
        return false;
    };
    let Ok(record) = "_acme-challenge.example.com".parse() else {
        return false;
    };
    match zone_of(&message, &record) {
        Ok(Found::Zone(place)) => {
            assert!(place.record.ends_with(&place.zone));
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name<Vec<u8>> {
        text.parse().expect("a name")
    }

    /// A response with these aliases, and the SOA record of a zone.
    fn response(aliases: &[(&str, &str)], zone: &str) -> Vec<u8> {
        let mut builder = MessageBuilder::new_vec();
        builder.header_mut().set_qr(true);
        let mut answer = builder.answer();
        for (owner, target) in aliases {
            let alias = Cname::new(name(target));
            answer.push((name(owner), 60, alias)).expect("room");
        }
        let mut authority = answer.authority();
        let soa = Soa::new(
            name("ns"),
            name("mail"),
            1.into(),
            Ttl::from_secs(1),
            Ttl::from_secs(1),
            Ttl::from_secs(1),
            Ttl::from_secs(1),
        );
        authority.push((name(zone), 60, soa)).expect("room");
        authority.finish()
    }

    fn found(response: &[u8]) -> Found {
        let message = judge(response, 0, Opcode::QUERY, None, 0).expect("no error");
        zone_of(&message, &name("_acme-challenge.a.example.com")).expect("well formed")
    }

    #[test]
    fn the_zone_is_where_the_record_is_also_behind_aliases() {
        let place = |zone, record| {
            Found::Zone(Place {
                zone: name(zone),
                record: name(record),
            })
        };
        let own = found(&response(&[], "example.com"));
        assert_eq!(own, place("example.com", "_acme-challenge.a.example.com"));
        let aliases = [
            ("b.acme.example", "c.acme.example"),
            ("_acme-challenge.A.example.com", "b.acme.example"),
        ];
        let behind = found(&response(&aliases, "acme.example"));
        assert_eq!(behind, place("acme.example", "c.acme.example"));
        // The zone of the alias itself is not the one to change.
        let alone = found(&response(&aliases, "example.com"));
        assert_eq!(alone, Found::Alias(name("c.acme.example")));
        // A server must not have us change another zone.
        assert_eq!(found(&response(&[], "example.org")), Found::Nothing);
        let circle = [
            ("_acme-challenge.a.example.com", "b.acme.example"),
            ("b.acme.example", "_acme-challenge.a.example.com"),
        ];
        assert_eq!(found(&response(&circle, "example.org")), Found::Nothing);
    }

    #[test]
    fn every_refusal_says_what_to_do() {
        let answered = |rcode| {
            let mut builder = MessageBuilder::new_vec();
            builder.header_mut().set_qr(true);
            builder.header_mut().set_opcode(Opcode::UPDATE);
            builder.header_mut().set_rcode(rcode);
            judge(&builder.finish(), 0, Opcode::UPDATE, None, 0).map(|_| ())
        };
        assert_eq!(answered(Rcode::NOERROR), Ok(()));
        for (rcode, words) in [
            (Rcode::REFUSED, "allow updates"),
            (Rcode::NOTAUTH, "not the primary"),
            (Rcode::NOTIMP, "no dynamic updates"),
            (Rcode::SERVFAIL, "SERVFAIL"),
            (Rcode::NXDOMAIN, "NXDOMAIN"),
        ] {
            let refused = answered(rcode).expect_err(words);
            assert!(refused.contains(words), "{refused}");
        }
    }
}
