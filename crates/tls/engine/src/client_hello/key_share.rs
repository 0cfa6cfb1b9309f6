//! Predicts which share of a client the server's key exchange will use.
//!
//! The prediction decides only whether an agreement is prepared: rustls chooses the group, and a wrong prediction wastes
//! the preparation.

use rustls::NamedGroup;

use crate::client_hello::first_flight::extensions;
use crate::messages::Reader;
use crate::messages::content_type::HANDSHAKE;
use crate::messages::extension::{KEY_SHARE, SUPPORTED_GROUPS};
use crate::messages::handshake_type::CLIENT_HELLO;

/// A client's share for X25519, alone or as the second part of a hybrid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientShare([u8; 32]);

impl ClientShare {
    #[cfg(test)]
    pub(crate) fn new(share: [u8; 32]) -> ClientShare {
        ClientShare(share)
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads a client's first bytes, which must have a whole ClientHello in one record. `enabled`: the server's groups.
    /// rustls uses the first group of the client's list that is enabled.
    pub(crate) fn of(first: &[u8], enabled: &[NamedGroup]) -> Option<ClientShare> {
        let mut record = Reader::new(first);
        let [HANDSHAKE, _, _] = record.array()? else {
            return None;
        };
        let mut message = Reader::new(record.vector16()?);
        let CLIENT_HELLO = message.u8()? else {
            return None;
        };
        let (mut all, _) = extensions(message.vector24()?)?;
        let (mut groups, mut shares) = (None, None);
        while !all.is_empty() {
            let extension = all.u16()?;
            let content = all.vector16()?;
            match extension {
                SUPPORTED_GROUPS => groups = Reader::new(content).vector16(),
                KEY_SHARE => shares = Reader::new(content).vector16(),
                _ => {}
            }
        }
        let mut groups = groups?.chunks_exact(2);
        let group = groups.find_map(|group| {
            let number = u16::from_be_bytes([group[0], group[1]]);
            let group = NamedGroup::from(number);
            enabled.contains(&group).then_some(group)
        })?;
        if !matches!(group, NamedGroup::X25519 | NamedGroup::X25519MLKEM768) {
            return None;
        }
        let mut shares = Reader::new(shares?);
        while !shares.is_empty() {
            let of = shares.u16()?;
            let share = shares.vector16()?;
            if NamedGroup::from(of) == group {
                return share.last_chunk().copied().map(ClientShare);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn vector16(content: &[u8]) -> Vec<u8> {
        [&(content.len() as u16).to_be_bytes(), content].concat()
    }

    /// A ClientHello in a record, with these groups and these shares.
    fn hello(groups: &[NamedGroup], shares: &[(NamedGroup, &[u8])]) -> Vec<u8> {
        let number = |group: NamedGroup| u16::from(group).to_be_bytes();
        let groups: Vec<u8> = groups.iter().flat_map(|group| number(*group)).collect();
        let shares: Vec<u8> = (shares.iter())
            .flat_map(|(group, share)| [&number(*group)[..], &vector16(share)].concat())
            .collect();
        let of = |extension: u16, content: &[u8]| {
            [&extension.to_be_bytes()[..], &vector16(&vector16(content))].concat()
        };
        let extensions = [of(SUPPORTED_GROUPS, &groups), of(KEY_SHARE, &shares)].concat();
        let body = [
            &[3, 3][..],
            &[7; 32],
            &[0, 0, 2, 0x13, 1, 1, 0],
            &vector16(&extensions),
        ]
        .concat();
        let message = [&[1, 0][..], &vector16(&body)].concat();
        [&[22, 3, 1][..], &vector16(&message)].concat()
    }

    #[test]
    fn the_share_of_the_first_common_group_is_found() {
        use NamedGroup::{X25519, X25519MLKEM768, secp256r1};
        let enabled = [X25519MLKEM768, X25519, secp256r1];
        let hybrid: Vec<u8> = [&[1; 1184][..], &[2; 32]].concat();
        let both = [(X25519MLKEM768, &hybrid[..]), (X25519, &[3; 32][..])];
        let of = |groups: &[NamedGroup], enabled: &[NamedGroup]| {
            let hello = hello(groups, &both);
            for len in 0..hello.len() {
                assert_eq!(ClientShare::of(&hello[..len], enabled), None);
            }
            ClientShare::of(&hello, enabled).map(|share| share.0)
        };
        assert_eq!(of(&[X25519MLKEM768, X25519], &enabled), Some([2; 32]));
        assert_eq!(of(&[X25519, X25519MLKEM768], &enabled), Some([3; 32]));
        assert_eq!(of(&[X25519MLKEM768, X25519], &[X25519]), Some([3; 32]));
        assert_eq!(of(&[secp256r1, X25519], &enabled), None, "another group");
        assert_eq!(of(&[X25519], &[]), None);
        let without = hello(&[X25519], &[(secp256r1, &[4; 65])]);
        assert_eq!(ClientShare::of(&without, &enabled), None);
        let short = hello(&[X25519], &[(X25519, &[4; 31])]);
        assert_eq!(ClientShare::of(&short, &enabled), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_accepted(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            ClientShare::of(&bytes, &[NamedGroup::X25519]);
            let message = [&[1, 0][..], &vector16(&bytes)].concat();
            ClientShare::of(&[&[22, 3, 1][..], &vector16(&message)].concat(), &[NamedGroup::X25519]);
        }
    }
}
