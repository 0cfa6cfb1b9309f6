//! Cache of parsed certificates, keys and revocation lists, by their content. When one of many certificates changes, only
//! that one is read and parsed. Routes with the same authorities and revocation lists share one copy, because a list may have
//! many megabytes, and so do routes with the same certificates.

use dormouse_engine::{ClientVerifier, OfferedIdentity, TrustStore};
use dormouse_handover::stored::{Stored, StoredCertificate};
use dormouse_handover::{ClientTrust, OriginPem, Pem};
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

/// What was parsed for the running configuration.
#[derive(Default)]
pub struct Parsed {
    /// By the digest of their content.
    identities: HashMap<[u8; 32], Used<OfferedIdentity>>,
    verifiers: HashMap<u64, Used<ClientVerifier>>,
    stores: HashMap<u64, Used<TrustStore>>,
    hasher: RandomState,
    round: u64,
}

/// A parsed value.
struct Used<T> {
    value: T,
    /// Round in which it was last used.
    round: u64,
}

/// What a route uses of this cache, besides its identities.
#[derive(Clone, Copy, Default)]
pub(crate) struct Uses {
    pub(crate) verifier: Option<u64>,
    pub(crate) store: Option<u64>,
}

/// Identities that no route uses any more. There may be tens of thousands, so their owner drops some at a time.
pub type Unused = Vec<OfferedIdentity>;

impl Parsed {
    /// Returns the identity in `pem`, from the cache if it was parsed before. An error names its file and the reason.
    pub(crate) fn identity(&mut self, pem: &Pem) -> Result<OfferedIdentity, String> {
        match self.known_identity(&pem.digest()) {
            Some(known) => Ok(known),
            None => self.parse(pem),
        }
    }

    /// Returns the identity with the digest of this certificate, if it was parsed before.
    pub(crate) fn known(&mut self, one: &StoredCertificate) -> Option<OfferedIdentity> {
        self.known_identity(&one.digest)
    }

    /// Reads an identity from the handover's file.
    pub(crate) fn read(
        &mut self,
        stored: &Stored,
        one: &StoredCertificate,
    ) -> Result<OfferedIdentity, String> {
        let pem = stored.read(one).map_err(|error| error.to_string())?;
        self.parse(&pem)
    }

    fn known_identity(&mut self, digest: &[u8; 32]) -> Option<OfferedIdentity> {
        let known = self.identities.get_mut(digest)?;
        known.round = self.round;
        Some(known.value.clone())
    }

    fn parse(&mut self, pem: &Pem) -> Result<OfferedIdentity, String> {
        let identity = pem.identity().map_err(|error| error.to_string())?;
        let value = OfferedIdentity::new(identity);
        // An OCSP response that is not valid yet may become valid, so the identity is parsed again.
        if pem.ocsp.is_empty() || identity.is_stapled() {
            let used = Used {
                value: value.clone(),
                round: self.round,
            };
            self.identities.insert(pem.digest(), used);
        }
        Ok(value)
    }

    /// Whether the identity with this digest was parsed before. If so, it is used in this round.
    pub(crate) fn keeps(&mut self, one: &StoredCertificate) -> bool {
        let known = self.identities.get_mut(&one.digest);
        known.is_some_and(|known| {
            known.round = self.round;
            true
        })
    }

    /// Notes that a route still uses these.
    pub(crate) fn keep(&mut self, uses: Uses) {
        let round = self.round;
        if let Some(known) = uses.verifier.and_then(|id| self.verifiers.get_mut(&id)) {
            known.round = round;
        }
        if let Some(known) = uses.store.and_then(|id| self.stores.get_mut(&id)) {
            known.round = round;
        }
    }

    /// Returns the verifier of client certificates for these authorities and revocation lists, with its id, from the cache if
    /// they were parsed before. `stored` has the texts of the lists, if `trust` has only their digests.
    pub(crate) fn verifier(
        &mut self,
        trust: &ClientTrust,
        stored: Option<&Stored>,
    ) -> Result<(u64, ClientVerifier), String> {
        let id = self.hasher.hash_one((&trust.roots, &trust.crls));
        if let Some(known) = known(&mut self.verifiers, id, self.round) {
            return Ok((id, known));
        }
        let mut trust = trust.clone();
        if let Some(stored) = stored {
            let read = stored.read_lists(&mut trust.crls);
            read.map_err(|error| error.to_string())?;
        }
        let verifier = trust.settings().verifier();
        let verifier = verifier.map_err(|error| error.to_string())?;
        let (value, round) = (verifier.clone(), self.round);
        self.verifiers.insert(id, Used { value, round });
        Ok((id, verifier))
    }

    /// Returns the trust in servers, with its id, from the cache if it was parsed before. `None`: any certificate is accepted.
    /// `stored` has the texts of the revocation lists, if `pem` has only their digests.
    pub(crate) fn trust(
        &mut self,
        pem: &OriginPem,
        stored: Option<&Stored>,
    ) -> Result<Option<(u64, TrustStore)>, String> {
        let id = self.hasher.hash_one((&pem.roots, &pem.revocation));
        if let Some(known) = known(&mut self.stores, id, self.round) {
            return Ok(Some((id, known)));
        }
        let mut pem = pem.clone();
        if let Some(stored) = stored {
            let read = stored.read_lists(&mut pem.revocation.crls);
            read.map_err(|error| error.to_string())?;
        }
        let Some(store) = pem.trust().map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        let (value, round) = (store.clone(), self.round);
        self.stores.insert(id, Used { value, round });
        Ok(Some((id, store)))
    }

    /// Returns the same number for the same rules for client certificates. Revocation lists are not rules.
    pub(crate) fn rules(&self, trust: &ClientTrust) -> u64 {
        let ClientTrust {
            required,
            roots,
            crls: _,
            allow,
        } = trust;
        self.hasher
            .hash_one((required, roots, format!("{allow:?}")))
    }

    /// Begins a round. What a worker parsed at its start belongs to the round before.
    pub(crate) fn begin_round(&mut self) {
        self.round += 1;
    }

    /// Drops what was not used in this round, except certificates with their keys, which it returns.
    pub fn forget_others(&mut self) -> Unused {
        let round = self.round;
        self.verifiers.retain(|_, known| known.round == round);
        self.stores.retain(|_, known| known.round == round);
        let unused = self
            .identities
            .extract_if(|_, known| known.round != round)
            .map(|(_, known)| known.value);
        unused.collect()
    }
}

fn known<T: Clone>(all: &mut HashMap<u64, Used<T>>, id: u64, round: u64) -> Option<T> {
    let known = all.get_mut(&id)?;
    known.round = round;
    Some(known.value.clone())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use dormouse_engine::Identity;
    use dormouse_handover::PemContents;

    /// A certificate for this name, with its key.
    pub(crate) fn pem(name: &str) -> Pem {
        let (chain, key) = Identity::self_signed_pem(name).expect("a certificate");
        Pem::from(PemContents {
            name: name.to_owned(),
            key_name: name.to_owned(),
            chain,
            ocsp: Vec::new(),
            ocsp_from_file: false,
            is_pushed: false,
            key: key.to_string(),
        })
    }

    #[test]
    fn unused_identities_are_dropped() {
        let (one, two) = (pem("one.example"), pem("two.example"));
        let mut parsed = Parsed::default();
        for _ in 0..2 {
            let identity = parsed.identity(&one).expect("an identity");
            assert_eq!(identity.names(), ["one.example"]);
            parsed.identity(&two).expect("an identity");
            assert_eq!(parsed.identities.len(), 2);
        }
        parsed.begin_round();
        parsed.identity(&one).expect("an identity");
        parsed.forget_others();
        assert_eq!(parsed.identities.len(), 1);
        // A key of another certificate is refused each time.
        let mut mixed = one.clone();
        mixed.change(|mixed| mixed.key.clone_from(&two.key));
        for _ in 0..2 {
            assert!(parsed.identity(&mixed).is_err());
        }
    }

    #[test]
    fn routes_with_the_same_trust_in_backends_share_one_store() {
        let trust = |name: &str| OriginPem {
            roots: Some(pem(name).chain.clone()),
            ..OriginPem::default()
        };
        let (one, two) = (trust("one.example"), trust("two.example"));
        let mut stricter = one.clone();
        stricter.revocation.ocsp_required = true;
        let mut parsed = Parsed::default();
        for _ in 0..2 {
            for trust in [&one, &two, &stricter] {
                parsed.trust(trust, None).expect("authorities");
            }
            assert_eq!(parsed.stores.len(), 3);
        }
        assert!(
            parsed
                .trust(&OriginPem::default(), None)
                .expect("none")
                .is_none()
        );
        parsed.begin_round();
        parsed.trust(&two, None).expect("authorities");
        parsed.forget_others();
        assert_eq!(parsed.stores.len(), 1);
    }

    #[test]
    fn routes_with_the_same_authorities_share_one_verifier() {
        let trust = |name: &str, required| ClientTrust {
            required,
            roots: pem(name).chain.clone(),
            crls: Vec::new(),
            allow: Vec::new(),
        };
        let (one, two) = (trust("one.example", true), trust("two.example", true));
        let mut same = one.clone();
        same.required = false;
        let mut parsed = Parsed::default();
        for _ in 0..2 {
            for trust in [&one, &same, &two] {
                parsed.verifier(trust, None).expect("authorities");
            }
            assert_eq!(parsed.verifiers.len(), 2);
        }
        parsed.begin_round();
        parsed.verifier(&two, None).expect("authorities");
        parsed.forget_others();
        assert_eq!(parsed.verifiers.len(), 1);
    }
}
