//! Cache of parsed certificates and keys, by the content of their files. When one of many certificates
//! changes, only that one is parsed, so a reload blocks the worker's loop only briefly.

use dormouse_engine::{Identity, IdentityError};
use dormouse_handover::Pem;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

/// The parsed identities of the running configuration.
#[derive(Default)]
pub struct Identities {
    known: HashMap<u64, CachedIdentity>,
    hasher: RandomState,
    round: u64,
}

struct CachedIdentity {
    identity: Identity,
    /// Round in which it was last used.
    round: u64,
}

impl Identities {
    /// Returns the identity in `pem`, from the cache if it was parsed before.
    pub(crate) fn of(&mut self, pem: &Pem) -> Result<Identity, IdentityError> {
        let id = self.hasher.hash_one((&pem.chain, &pem.key, &pem.ocsp));
        if let Some(known) = self.known.get_mut(&id) {
            known.round = self.round;
            return Ok(known.identity.clone());
        }
        let identity = pem.identity()?;
        // An OCSP response that is not valid yet may become valid, so the identity is parsed again.
        if pem.ocsp.is_empty() || identity.is_stapled() {
            let known = CachedIdentity {
                identity: identity.clone(),
                round: self.round,
            };
            self.known.insert(id, known);
        }
        Ok(identity)
    }

    /// Drops the identities, with their keys, that were not used since the last call.
    pub(crate) fn forget_others(&mut self) {
        let round = self.round;
        self.known.retain(|_, known| known.round == round);
        self.round += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pem(name: &str) -> Pem {
        let (chain, key) = Identity::self_signed_pem(name).expect("a certificate");
        Pem {
            name: name.to_owned(),
            key_name: name.to_owned(),
            chain,
            ocsp: Vec::new(),
            ocsp_from_file: false,
            is_pushed: false,
            key: key.to_string(),
        }
    }

    #[test]
    fn unused_identities_are_dropped() {
        let (one, two) = (pem("one.example"), pem("two.example"));
        let mut identities = Identities::default();
        for _ in 0..2 {
            let identity = identities.of(&one).expect("an identity");
            assert_eq!(identity.names(), ["one.example"]);
            identities.of(&two).expect("an identity");
            assert_eq!(identities.known.len(), 2);
        }
        identities.forget_others();
        identities.of(&one).expect("an identity");
        identities.forget_others();
        assert_eq!(identities.known.len(), 1);
        // A key of another certificate is refused each time.
        let mut mixed = one.clone();
        mixed.key.clone_from(&two.key);
        for _ in 0..2 {
            assert!(identities.of(&mixed).is_err());
        }
    }
}
