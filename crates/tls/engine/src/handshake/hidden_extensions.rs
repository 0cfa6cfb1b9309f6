//! Extensions of a ClientHello that rustls does not see, because it would refuse the client for them:
//!
//! - *Server names that are no host names*, such as `host:8883`, `[::1]` and `192.0.2.1`. RFC 6066 §3 does not allow them,
//!   but devices send them. rustls refuses them where any certificate would do, or takes an address for no name at all.
//! - *Sessions that the chosen suite cannot resume*, because its hash is not theirs. If rustls asks for another key share,
//!   the client withdraws them from its second ClientHello (RFC 8446 §4.1.2), and rustls refuses one without any session.
//!
//! So before rustls reads the ClientHello, the type of the extension is replaced by one that it ignores. The client knows
//! nothing of this, so wherever the message is hashed or verified, its own type is put back.

use std::ops::RangeInclusive;

use rustls::SupportedCipherSuite;
use rustls::crypto::hash::{Context, Hash, HashAlgorithm, Output};
use rustls_pki_types::ServerName;

use super::driver::{Driver, RustlsConnection};
use super::record_rules::HEADER_LEN;
use crate::call_scope::{if_in_scope, in_scope};
use crate::client_hello::first_flight::{extensions, listed_name, printable};
use crate::client_hello::requested::{Hidden, OddName, Requested, as_sent};
use crate::messages::Reader;
use crate::messages::extension::{PRE_SHARED_KEY, SERVER_NAME};
use crate::messages::handshake_type::CLIENT_HELLO;
use crate::sessions::refusal::{ResumptionRefused, ServerResumption};

/// Types of extensions that are assigned to nobody, and stay so (RFC 8446 §11).
const PRIVATE: RangeInclusive<u16> = 0xffa0..=0xffaf;

/// The lengths of SHA-256 and SHA-384, the hashes of all suites of TLS 1.3.
const HASH_LENS: [usize; 2] = [32, 48];

/// Hides such extensions, if the next record has a whole ClientHello with them.
pub(super) fn hide(driver: &mut Driver) {
    let suites = match &driver.connection {
        RustlsConnection::ServerToBe(config) => config.crypto_provider().cipher_suites.as_slice(),
        // A second ClientHello has only sessions that fit.
        _ => &[],
    };
    hide_in(driver.records.completed_mut(), suites);
}

/// `suites` are ours.
fn hide_in(record: &mut [u8], suites: &[SupportedCipherSuite]) {
    let Some(message) = record.get_mut(HEADER_LEN..) else {
        return;
    };
    let Some(found) = find(message, suites) else {
        return;
    };
    let odd_name = found.odd_name.iter().map(|(at, _)| *at);
    let hidden: Vec<(usize, u16)> = odd_name.chain(found.unfit).zip(found.free).collect();
    let len = hidden.last().map_or(0, |(at, _)| at + 2);
    let Some(begin @ [_, ..]) = message.get_mut(..len) else {
        return;
    };
    let sent = begin.to_vec();
    for (at, private) in hidden {
        if let Some(kind) = begin.get_mut(at..at + 2) {
            kind.copy_from_slice(&private.to_be_bytes());
        }
    }
    let seen = begin.to_vec();
    in_scope(|requested: &mut Requested| {
        requested.hidden = Some(Hidden { sent, seen });
        if let Some((_, name)) = found.odd_name {
            requested.odd_name = Some(name);
        }
    });
    if found.unfit.is_some() {
        let refused = Some(ResumptionRefused::OtherSuite);
        in_scope(|resumption: &mut ServerResumption| resumption.refused = refused);
    }
}

/// What is to be hidden in a ClientHello, with the offsets of the extensions.
struct Found {
    odd_name: Option<(usize, OddName)>,
    /// Behind the name: sessions that do not fit the suite.
    unfit: Option<usize>,
    /// Types that no extension of this message has; one for each of both.
    free: RangeInclusive<u16>,
}

fn find(message: &[u8], suites: &[SupportedCipherSuite]) -> Option<Found> {
    let mut rest = Reader::new(message);
    let [CLIENT_HELLO] = rest.array()? else {
        return None;
    };
    let body = rest.vector24()?;
    let (mut extensions, behind) = extensions(body)?;
    let behind = behind.len() + rest.rest().len();
    let mut found = Found {
        odd_name: None,
        unfit: None,
        free: PRIVATE,
    };
    while !extensions.is_empty() {
        let at = message.len() - extensions.rest().len() - behind;
        let kind = extensions.u16()?;
        let content = extensions.vector16()?;
        if kind == SERVER_NAME {
            let name = listed_name(content)?;
            // rustls judges lists of several names.
            let is_only = content.len() == name.len() + 5;
            let is_host = matches!(ServerName::try_from(name), Ok(ServerName::DnsName(_)));
            let text = printable(name).map(str::to_owned);
            found.odd_name = (is_only && !is_host).then_some((at, OddName { text }));
        } else if kind == PRE_SHARED_KEY {
            // rustls refuses this extension if it is not the last.
            let is_unfit = extensions.is_empty() && are_unfit(body, content, suites)?;
            found.unfit = is_unfit.then_some(at);
        } else if PRIVATE.contains(&kind) {
            found.free = found.free.start().max(&(kind + 1)).to_owned()..=*PRIVATE.end();
        }
    }
    (found.free.len() >= 2).then_some(found)
}

/// Whether all of a client's sessions have another hash than the suite that rustls will choose. The length of a binder is
/// that of its session's hash (RFC 8446 §4.2.11.2).
fn are_unfit(hello: &[u8], sessions: &[u8], suites: &[SupportedCipherSuite]) -> Option<bool> {
    let mut hello = Reader::new(hello);
    hello.take(2 + 32)?;
    hello.vector8()?;
    let offered = hello.vector16()?.as_chunks::<2>().0;
    let ours = || suites.iter().filter_map(SupportedCipherSuite::tls13);
    let Some(suite) = (offered.iter())
        .find_map(|id| ours().find(|suite| u16::from(suite.common.suite).to_be_bytes() == *id))
    else {
        return Some(false);
    };
    let mut sessions = Reader::new(sessions);
    sessions.vector16()?;
    let mut binders = Reader::new(sessions.vector16()?);
    let is_unfit = |len| HASH_LENS.contains(&len) && len != suite.common.hash_provider.output_len();
    // rustls judges an extension without binders.
    let mut are_unfit = !binders.is_empty();
    while !binders.is_empty() {
        are_unfit &= is_unfit(binders.vector8()?.len());
    }
    Some(are_unfit)
}

/// The provider's hash, of messages as they were sent.
pub(crate) struct HashAsSent(pub(crate) &'static dyn Hash);

impl Hash for HashAsSent {
    fn start(&self) -> Box<dyn Context> {
        let context = self.0.start();
        match if_in_scope(|requested: &mut Requested| requested.hidden.is_some()) {
            Some(true) => Box::new(ContextAsSent(context)),
            _ => context,
        }
    }

    fn hash(&self, data: &[u8]) -> Output {
        self.0.hash(&as_sent(data))
    }

    fn output_len(&self) -> usize {
        self.0.output_len()
    }

    fn algorithm(&self) -> HashAlgorithm {
        self.0.algorithm()
    }

    fn fips(&self) -> bool {
        self.0.fips()
    }
}

struct ContextAsSent(Box<dyn Context>);

impl Context for ContextAsSent {
    fn fork_finish(&self) -> Output {
        self.0.fork_finish()
    }

    fn fork(&self) -> Box<dyn Context> {
        Box::new(ContextAsSent(self.0.fork()))
    }

    fn finish(self: Box<Self>) -> Output {
        self.0.finish()
    }

    fn update(&mut self, data: &[u8]) {
        // rustls adds whole messages, and for a binder the beginning of one (RFC 8446 §4.2.11.2).
        self.0.update(&as_sent(data));
    }
}

#[cfg(test)]
mod tests {
    use rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES;

    use super::*;
    use crate::call_scope::{CallScope, enter};

    /// A record with a ClientHello that has these extensions.
    fn record(extensions: &[(u16, &[u8])]) -> Vec<u8> {
        let vector16 = |content: &[u8]| {
            let len = (content.len() as u16).to_be_bytes();
            [&len, content].concat()
        };
        let extension = |&(kind, content): &(u16, &[u8])| {
            let kind: [u8; 2] = kind.to_be_bytes();
            [&kind[..], &vector16(content)].concat()
        };
        let extensions: Vec<u8> = extensions.iter().flat_map(extension).collect();
        let fixed = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0]].concat();
        let body = [fixed, vector16(&extensions)].concat();
        let message = [&[CLIENT_HELLO, 0][..], &vector16(&body)].concat();
        [&[22, 3, 1][..], &vector16(&message)].concat()
    }

    fn list(name: &str) -> Vec<u8> {
        let len = name.len() as u8;
        [&[0, len + 3, 0, 0, len], name.as_bytes()].concat()
    }

    /// What rustls sees of a record, the name that is hidden from it, and what is hashed.
    fn hidden(record: &[u8]) -> (Vec<u8>, Option<Option<String>>, Vec<u8>) {
        let mut seen = record.to_vec();
        let (mut scope, hashed) = enter(CallScope::new(), || {
            hide_in(&mut seen, ALL_CIPHER_SUITES);
            as_sent(&seen[HEADER_LEN..]).into_owned()
        });
        let odd = scope.of::<Requested>().odd_name.take();
        (seen, odd.map(|odd| odd.text), hashed)
    }

    #[test]
    fn only_odd_names_are_hidden_and_hashes_see_them() {
        for (name, is_odd) in [
            ("a.example", false),
            ("a.example.", false),
            ("192.0.2.1", true),
            ("host:8883", true),
            ("[::1]", true),
            ("a b", true),
            ("-", true),
        ] {
            let sent = record(&[(43, &[2, 3, 4]), (0, &list(name)), (16, &[])]);
            let (seen, odd, hashed) = hidden(&sent);
            assert_eq!(odd.is_some(), is_odd, "{name}");
            assert_eq!(seen != sent, is_odd, "{name}");
            assert_eq!(hashed, sent[HEADER_LEN..], "{name}");
            let shown = odd.flatten();
            assert_eq!(shown.is_some(), is_odd && !name.contains(' '), "{name}");
        }
    }

    #[test]
    fn the_new_type_is_one_that_the_message_does_not_have() {
        let name = list("[::1]");
        let sent = record(&[(0xffa0, &[]), (0, &name), (0xffa1, &[])]);
        let (seen, odd, hashed) = hidden(&sent);
        assert_eq!(odd, Some(Some("[::1]".to_owned())));
        assert!(seen.windows(2).any(|pair| pair == [0xff, 0xa2]));
        assert_eq!(hashed, sent[HEADER_LEN..]);
        let all: Vec<(u16, &[u8])> = PRIVATE.map(|kind| (kind, &[][..])).collect();
        let sent = record(&[all, vec![(0, &name)]].concat());
        assert_eq!(hidden(&sent).0, sent, "there is no free type");
    }

    /// pre_shared_key with one session for each of these binders.
    fn sessions(binders: &[usize]) -> Vec<u8> {
        let list =
            |entries: Vec<u8>| [&(entries.len() as u16).to_be_bytes()[..], &entries].concat();
        let identity = [0, 1, 7, 0, 0, 0, 0];
        let binder = |len: &usize| [vec![*len as u8], vec![7; *len]].concat();
        let identities = list(identity.repeat(binders.len()));
        [identities, list(binders.iter().flat_map(binder).collect())].concat()
    }

    #[test]
    fn sessions_are_hidden_if_none_fits_the_suite() {
        for (binders, is_hidden) in [
            (&[32][..], false),
            (&[48], true),
            (&[48, 48], true),
            (&[48, 32], false),
            (&[32, 48], false),
            // rustls judges these.
            (&[], false),
            (&[33], false),
        ] {
            let offer = sessions(binders);
            let named = |name: &str| record(&[(0, &list(name)), (43, &[2, 3, 4]), (41, &offer)]);
            let sent = named("a.example");
            let (seen, odd, hashed) = hidden(&sent);
            assert_eq!(seen != sent, is_hidden, "{binders:?}");
            assert_eq!(odd, None);
            assert_eq!(hashed, sent[HEADER_LEN..]);
            // Both at once.
            let sent = named("a:1");
            let (seen, odd, hashed) = hidden(&sent);
            assert_eq!(odd, Some(Some("a:1".to_owned())));
            assert_eq!(hashed, sent[HEADER_LEN..]);
            let differing = seen.iter().zip(&sent).filter(|(seen, sent)| seen != sent);
            assert_eq!(differing.count(), if is_hidden { 4 } else { 2 });
        }
        let not_last = record(&[(41, &sessions(&[48])), (43, &[2, 3, 4])]);
        assert_eq!(hidden(&not_last).0, not_last);
    }

    #[test]
    fn rustls_judges_what_cannot_be_read() {
        let two = [&[0, 11][..], &list("a:1")[2..], &list("b")[2..]].concat();
        for extensions in [
            &[(0, &two[..])][..],
            &[(0, &[0, 0])],
            &[(0, &[])],
            &[(0, &list("a:1")[..5])],
        ] {
            let sent = record(extensions);
            assert_eq!(hidden(&sent).0, sent, "{extensions:?}");
        }
        let sent = record(&[(0, &list("a:1"))]);
        for len in HEADER_LEN..sent.len() {
            assert_eq!(hidden(&sent[..len]).0, sent[..len]);
        }
    }
}
