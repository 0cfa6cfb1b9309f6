//! Server names that are no host names, such as `host:8883`, `[::1]` and `192.0.2.1`.
//!
//! RFC 6066 §3 does not allow them, but devices send them, and rustls refuses them where any certificate would do, or
//! takes an address for no name at all. So rustls does not see them: before it reads the ClientHello, the type of the
//! extension is replaced by one that it ignores. The client knows nothing of this, so wherever the message is hashed or
//! verified, its own type is put back.

use std::ops::RangeInclusive;

use rustls::crypto::hash::{Context, Hash, HashAlgorithm, Output};
use rustls_pki_types::ServerName;

use super::record_rules::HEADER_LEN;
use crate::call_scope::{if_in_scope, in_scope};
use crate::client_hello::first_flight::{extensions, listed_name, printable};
use crate::client_hello::requested::{OddName, Requested, as_sent};
use crate::messages::Reader;
use crate::messages::extension::SERVER_NAME;
use crate::messages::handshake_type::CLIENT_HELLO;

/// Types of extensions that are assigned to nobody, and stay so (RFC 8446 §11).
const PRIVATE: RangeInclusive<u16> = 0xffa0..=0xffaf;

/// Hides such a name, if the record has a whole ClientHello with one.
pub(crate) fn hide(record: &mut [u8]) {
    let Some(message) = record.get_mut(HEADER_LEN..) else {
        return;
    };
    let Some((at, private, text)) = find(message) else {
        return;
    };
    let Some((altered, _)) = message.split_at_mut_checked(at + 2) else {
        return;
    };
    if let Some(kind) = altered.last_chunk_mut() {
        *kind = private.to_be_bytes();
    }
    let altered = altered.to_vec();
    in_scope(|requested: &mut Requested| requested.odd_name = Some(OddName { text, altered }));
}

/// Returns the offset of the extension with an odd name, a type that no extension has, and the name.
fn find(message: &[u8]) -> Option<(usize, u16, Option<String>)> {
    let mut rest = Reader::new(message);
    let [CLIENT_HELLO] = rest.array()? else {
        return None;
    };
    let (mut extensions, behind) = extensions(rest.vector24()?)?;
    let behind = behind.len() + rest.rest().len();
    let mut odd = None;
    let mut free = PRIVATE;
    while !extensions.is_empty() {
        let at = message.len() - extensions.rest().len() - behind;
        let kind = extensions.u16()?;
        let content = extensions.vector16()?;
        if kind == SERVER_NAME {
            let name = listed_name(content)?;
            // rustls judges lists of several names.
            let is_only = content.len() == name.len() + 5;
            let is_host = matches!(ServerName::try_from(name), Ok(ServerName::DnsName(_)));
            let is_odd = is_only && !is_host;
            odd = is_odd.then(|| (at, printable(name).map(str::to_owned)));
        } else if PRIVATE.contains(&kind) {
            free = free.start().max(&(kind + 1)).to_owned()..=*PRIVATE.end();
        }
    }
    let (at, text) = odd?;
    Some((at, free.min()?, text))
}

/// The provider's hash, of messages as they were sent.
pub(crate) struct HashAsSent(pub(crate) &'static dyn Hash);

impl Hash for HashAsSent {
    fn start(&self) -> Box<dyn Context> {
        let context = self.0.start();
        match if_in_scope(|requested: &mut Requested| requested.odd_name.is_some()) {
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
            hide(&mut seen);
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
