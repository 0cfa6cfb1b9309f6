//! Certificates and keys that were parsed before, by what they were read from: when one of very
//! many changes, one is parsed, and the loop of a worker stands still for that one only.

use dormouse_engine::{Identity, IdentityError};
use dormouse_handover::Pem;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

/// Those of the configuration that runs.
#[derive(Default)]
pub struct Identities {
    known: HashMap<u64, CachedIdentity>,
    hasher: RandomState,
    round: u64,
}

struct CachedIdentity {
    identity: Identity,
    /// When it was last asked for.
    round: u64,
}

impl Identities {
    /// The identity in this, parsed now or before.
    pub(crate) fn of(&mut self, pem: &Pem) -> Result<Identity, IdentityError> {
        let id = self.hasher.hash_one((&pem.chain, &pem.key, &pem.ocsp));
        if let Some(known) = self.known.get_mut(&id) {
            known.round = self.round;
            return Ok(known.identity.clone());
        }
        let identity = pem.identity()?;
        // An answer which does not hold yet is looked at again.
        if pem.ocsp.is_empty() || identity.is_stapled() {
            let known = CachedIdentity {
                identity: identity.clone(),
                round: self.round,
            };
            self.known.insert(id, known);
        }
        Ok(identity)
    }

    /// Forgets, with its key, what was not asked for since this was called last.
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
    fn what_is_shown_no_more_is_forgotten() {
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
        // A key that is another's is found out however often it is asked for.
        let mut mixed = one.clone();
        mixed.key.clone_from(&two.key);
        for _ in 0..2 {
            assert!(identities.of(&mixed).is_err());
        }
    }
}
