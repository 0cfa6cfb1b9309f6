//! Finds out what a server offers, with one ClientHello per property.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use dormouse_engine::{Protocols, ResumptionSettings};
use x509_parser::oid_registry::OID_SIG_ED25519;
use x509_parser::prelude::{FromDer, SubjectPublicKeyInfo, X509Certificate};
use x509_parser::public_key::PublicKey;

use super::deadline::Deadline;
use super::dialer::{Dialer, version_name};
use super::probe_connection::{self, ProbeConnection, Ticket};
use super::probe_hello::{
    GROUPS, HelloAnswer, ProbeHello, SUITES_12, SUITES_13, ServerHello, TLS10, TLS12, TLS13,
    name_of,
};
use super::renegotiation;
use crate::model::{Certificate, Measured, Offer};
use crate::reference;

/// Maximum wait for tickets.
pub(super) const TICKET_WAIT: Duration = Duration::from_millis(700);
/// Why suites or groups are missing: the server is slow.
const NO_TIME: &str =
    "each takes a connection, and the time for this part was over; --time raises the limit";

/// Sends ClientHellos to a server.
struct OfferProbe<'a> {
    dialer: &'a Dialer<'a>,
    /// The name to send in a handmade ClientHello.
    name: Option<&'a str>,
    /// Time by which suites and groups must be known.
    until: Deadline,
}

impl OfferProbe<'_> {
    fn hello(&self, ask: &ProbeHello) -> Result<Option<ServerHello>, String> {
        Ok(match probe_connection::ask(self.dialer, ask)? {
            HelloAnswer::Hello(hello) => Some(*hello),
            HelloAnswer::Refused(_) | HelloAnswer::Closed => None,
            HelloAnswer::Silent => return Err("the server did not answer".into()),
            HelloAnswer::NotTls => return Err("the server does not speak TLS here".into()),
        })
    }

    /// Repeats the hello without the values chosen so far, which reveals the server's order of preference.
    fn preferences(
        &self,
        ask: &mut ProbeHello,
        chosen: impl Fn(&ServerHello) -> Option<u16>,
        list: impl Fn(&mut ProbeHello) -> &mut Vec<u16>,
    ) -> Result<Vec<u16>, String> {
        let mut found = Vec::new();
        while !list(ask).is_empty() {
            if self.until.is_over(Instant::now()) {
                return Err(NO_TIME.into());
            }
            let Some(hello) = self.hello(ask)? else { break };
            let Some(one) = chosen(&hello).filter(|_| hello.version == ask.version) else {
                break;
            };
            let before = list(ask).len();
            list(ask).retain(|other| *other != one);
            if list(ask).len() == before {
                break;
            }
            found.push(one);
        }
        Ok(found)
    }
}

/// Finds out what the server offers, with handmade ClientHellos and with complete handshakes.
/// The lists of suites and groups, which take a connection for each entry, end by `until`.
pub(super) fn examine(dialer: &Dialer<'_>, until: Deadline) -> Measured<Offer> {
    // An IP address is not allowed as the server name (RFC 6066 §3).
    let name = dialer.name.parse::<std::net::IpAddr>().is_err();
    let probe = OfferProbe {
        dialer,
        name: name.then_some(dialer.name),
        until,
    };
    let mut offered = probe_all(&probe);
    if let Ok(offer) = &mut offered {
        add_handshakes(dialer, offer);
        add_renegotiation(dialer, probe.name, offer);
    }
    Measured::from(offered)
}

/// Adds what an established connection of each version reveals.
fn add_handshakes(dialer: &Dialer<'_>, offer: &mut Offer) {
    for protocols in [Protocols::TLS13, Protocols::TLS12] {
        if offer.versions.get(version_name(protocols)) != Some(&true) {
            continue;
        }
        let resumption = Some(ResumptionSettings::default());
        let visit = dialer
            .context(protocols, resumption)
            .and_then(|context| ProbeConnection::make(dialer, &context));
        match visit {
            Ok(mut visit) => {
                add_visit(offer, &mut visit, protocols == Protocols::TLS13);
                visit.close();
            }
            Err(why) => drop(
                offer
                    .not_measured
                    .insert(format!("a handshake with {}", version_name(protocols)), why),
            ),
        }
    }
}

/// Adds the server's answer to a client that renegotiates.
fn add_renegotiation(dialer: &Dialer<'_>, name: Option<&str>, offer: &mut Offer) {
    let Some(announced) = offer.secure_renegotiation else {
        return;
    };
    match renegotiation::attempt(dialer, name, announced) {
        Ok(answer) => {
            offer.client_renegotiation = Some(answer.accepted);
            offer.client_renegotiation_answer = Some(answer.words);
        }
        Err(why) => drop(
            offer
                .not_measured
                .insert("client_renegotiation".into(), why),
        ),
    }
}

/// Probes all properties that handmade ClientHellos reveal.
fn probe_all(probe: &OfferProbe<'_>) -> Result<Offer, String> {
    let mut offer = Offer::default();
    let mut twelve = None;
    for (version, title) in [
        (TLS10, "TLS 1.0"),
        (TLS10 + 1, "TLS 1.1"),
        (TLS12, "TLS 1.2"),
        (TLS13, "TLS 1.3"),
    ] {
        let ask = ProbeHello::all(version, probe.name);
        let hello = probe.hello(&ask)?.filter(|hello| hello.version == version);
        offer.versions.insert(title.into(), hello.is_some());
        if version == TLS12 {
            twelve = hello;
        }
    }
    if offer.versions.values().all(|accepted| !accepted) {
        return Err("the server accepted no version of TLS that was offered".into());
    }
    let unknown = "TLS 1.2 is not offered";
    match &twelve {
        Some(hello) => {
            offer.secure_renegotiation = Some(hello.renegotiation_info);
            offer.tickets_12 = Some(hello.ticket);
            // A server that may issue a ticket sends no session id with it (RFC 5077 §3.4).
            let ids = ProbeHello {
                tickets: false,
                ..ProbeHello::all(TLS12, probe.name)
            };
            let answer = probe.hello(&ids)?;
            offer.session_ids_12 = Some(answer.is_some_and(|hello| hello.session_id));
            offer.client_certificate_asked = Some(hello.certificate_request);
            offer.chain = hello
                .certificates
                .iter()
                .filter_map(|der| certificate(der))
                .collect();
            let deflate = ProbeHello {
                deflate: true,
                ..ProbeHello::all(TLS12, probe.name)
            };
            // A server that refuses a ClientHello with DEFLATE does not compress either.
            let answer = probe.hello(&deflate)?;
            offer.compression = Some(answer.is_some_and(|hello| hello.compression == 1));
        }
        None => {
            for what in [
                "compression",
                "secure_renegotiation",
                "client_renegotiation",
                "tickets_12",
                "session_ids_12",
                "client_certificate_asked",
            ] {
                offer.not_measured.insert(what.into(), unknown.into());
            }
        }
    }
    add_preferences(probe, &mut offer);
    Ok(offer)
}

/// Adds suites and groups in the server's order of preference.
fn add_preferences(probe: &OfferProbe<'_>, offer: &mut Offer) {
    if !probe.dialer.free {
        let why = "each takes a connection, and the server is on another machine: give --i-own-this-server";
        for what in ["suites_12", "suites_13", "groups"] {
            offer.not_measured.insert(what.into(), why.into());
        }
        return;
    }
    let has = |offer: &Offer, version: &str| offer.versions.get(version) == Some(&true);
    let names = |table: &[(u16, &str)], ids: Vec<u16>| -> Vec<String> {
        ids.into_iter().map(|id| name_of(table, id)).collect()
    };
    let mut not_measured = BTreeMap::new();
    let mut known = |what: &str, ids: Result<Vec<u16>, String>| {
        ids.unwrap_or_else(|why| {
            not_measured.insert(what.to_owned(), why);
            Vec::new()
        })
    };
    if has(offer, "TLS 1.2") {
        let mut ask = ProbeHello::all(TLS12, probe.name);
        let suites = probe.preferences(&mut ask, |hello| Some(hello.suite), |ask| &mut ask.suites);
        offer.suites_12 = names(&SUITES_12, known("suites_12", suites));
    }
    if has(offer, "TLS 1.3") {
        let mut ask = ProbeHello::all(TLS13, probe.name);
        let suites = probe.preferences(&mut ask, |hello| Some(hello.suite), |ask| &mut ask.suites);
        offer.suites_13 = names(&SUITES_13, known("suites_13", suites));
        let mut ask = ProbeHello::all(TLS13, probe.name);
        let groups = probe.preferences(&mut ask, |hello| hello.group, |ask| &mut ask.groups);
        offer.groups = names(&GROUPS, known("groups", groups));
    }
    offer.not_measured.extend(not_measured);
}

/// Adds what an established connection reveals.
fn add_visit(offer: &mut Offer, visit: &mut ProbeConnection, is_13: bool) {
    if offer.chain.is_empty() {
        offer.chain = visit
            .chain
            .iter()
            .filter_map(|der| certificate(der))
            .collect();
    }
    if is_13 {
        visit.await_tickets(TICKET_WAIT);
        offer.tickets_13 = Some(0);
        offer.early_data_max_bytes = Some(0);
        add_tickets_13(offer, &visit.tickets);
    } else if let Some(ticket) = visit.tickets.first() {
        add_lifetime(offer, ticket);
    }
}

/// Adds the TLS 1.3 tickets of a later connection if none were seen so far. BoringSSL sends tickets only with its
/// first answer, and the audit finds out only after the handshake which request the server answers.
pub(super) fn add_tickets_13(offer: &mut Offer, tickets: &[Ticket]) {
    let (Some(first), Some(0)) = (tickets.first(), offer.tickets_13) else {
        return;
    };
    offer.tickets_13 = Some(u32::try_from(tickets.len()).unwrap_or(u32::MAX));
    let early = tickets.iter().map(|ticket| ticket.early_data_max_bytes);
    offer.early_data_max_bytes = early.max();
    add_lifetime(offer, first);
}

fn add_lifetime(offer: &mut Offer, ticket: &Ticket) {
    offer.ticket_lifetime_s = Some(offer.ticket_lifetime_s.unwrap_or(0).max(ticket.lifetime_s));
}

/// Returns the kind and the size of a key.
fn key(of: &SubjectPublicKeyInfo<'_>) -> Option<String> {
    Some(match of.parsed().ok()? {
        PublicKey::RSA(rsa) => format!("RSA {}", rsa.key_size()),
        // A coordinate of P-521 has 66 bytes.
        PublicKey::EC(point) if point.key_size() == 528 => "ECDSA 521".into(),
        PublicKey::EC(point) => format!("ECDSA {}", point.key_size()),
        _ if of.algorithm.algorithm == OID_SIG_ED25519 => reference::ED25519.into(),
        _ => format!("algorithm {}", of.algorithm.algorithm),
    })
}

fn certificate(der: &[u8]) -> Option<Certificate> {
    let (_, parsed) = X509Certificate::from_der(der).ok()?;
    Some(Certificate {
        subject: dormouse_printable::line(&parsed.subject().to_string()).to_string(),
        key: key(parsed.public_key())?,
        bytes: der.len() as u64,
        expires_at_s: parsed.validity().not_after.timestamp(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key of an algorithm that the audit does not know, such as ML-DSA, was called Ed25519, and one on P-521 was
    /// compared with P-256.
    #[test]
    fn a_key_is_called_by_its_kind() {
        let value = |tag: u8, content: &[u8]| {
            let length = u8::try_from(content.len()).unwrap();
            [&[tag, 0x81, length], content].concat()
        };
        let key = |algorithm: &[u8], key: &[u8]| {
            let bits = value(0x03, &[&[0], key].concat());
            let der = value(0x30, &[value(0x30, algorithm), bits].concat());
            let (_, info) = SubjectPublicKeyInfo::from_der(&der).unwrap();
            super::key(&info).unwrap()
        };
        let ed25519 = [0x06, 3, 0x2b, 0x65, 0x70];
        assert_eq!(key(&ed25519, &[7; 32]), "Ed25519");
        let ml_dsa = [
            0x06, 9, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x03, 0x11,
        ];
        assert_eq!(key(&ml_dsa, &[7; 32]), "algorithm 2.16.840.1.101.3.4.3.17");
        // id-ecPublicKey, and the curve; an uncompressed point.
        let ec = |curve: &[u8], bytes: usize| {
            let id = [0x06, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
            let point = [&[4], &*vec![7; 2 * bytes]].concat();
            key(&[&id, curve].concat(), &point)
        };
        assert_eq!(
            ec(&[0x06, 5, 0x2b, 0x81, 0x04, 0x00, 0x22], 48),
            "ECDSA 384"
        );
        assert_eq!(
            ec(&[0x06, 5, 0x2b, 0x81, 0x04, 0x00, 0x23], 66),
            "ECDSA 521"
        );
    }
}
