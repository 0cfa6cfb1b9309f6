//! The certificates of a peer's message that its verification needs.
//!
//! webpki looks for a path from the peer's own certificate to a root. At each step it parses every certificate that it
//! was given, and it follows names alone until it comes to a root: a few certificates with one name make 200,000 steps
//! (its limit), no signature in them needs to be valid, and a message of 54 kB keeps it busy for ten seconds. So both
//! verifiers, of servers and of clients, give webpki only what [`needed`] returns.
//!
//! Every rule but the last leaves out only certificates that no path to a root could use now, so that peers may send
//! them in any order, with roots, duplicates, old and cross-signed certificates among them. Each rule applies only if
//! the search among those that are left could still take more than [`STEPS_MAX`] steps:
//!
//! 1. names lead to it from the peer's certificate; the nearest [`CERTIFICATES_MAX`] (always applied). webpki does not look at
//!    the key usage, so a certificate that may not sign others (RFC 5280 §6.1.4) is left out here, however few there are;
//! 2. a chain of valid signatures leads from the peer's certificate over this one to a root;
//! 3. so does a chain of certificates that are within their periods of validity;
//! 4. it belongs to the shortest such chain.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use rustls::RootCertStore;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::failure::words::TooManySteps;
use crate::x509::der::{Der, Tag};
use crate::x509::outline::Outline;

/// Maximum number of steps of webpki's search. At each it parses all certificates that it was given: 64 times those of
/// a message (64 KiB) take less than 20 ms.
pub(crate) const STEPS_MAX: usize = 64;
/// So few certificates besides the peer's own are not looked at.
const FEW: usize = 3;
/// The maximum number of steps among them, if all have one name: 1 + 3 + 3·2 + 3·2·1.
const FEW_STEPS: usize = 16;
/// Maximum number of certificates that are considered, besides the peer's own.
pub(crate) const CERTIFICATES_MAX: usize = 32;
/// Maximum number of signatures that are verified for rule 2, with keys that the peer chose: less than 30 ms with those of
/// P-521.
pub(crate) const SIGNATURES_MAX: usize = 64;
/// A longer key, of RSA with more than 4,096 bits, takes twice the time.
const KEY_LEN_USUAL: usize = 600;
/// webpki's maximum number of certificates between the peer's and the root.
const DEPTH_MAX: usize = 6;

/// The certificates to verify the peer's own with, and the work of finding them.
pub(crate) struct Needed<'a> {
    pub(crate) certificates: Cow<'a, [CertificateDer<'a>]>,
    /// The number of steps of webpki's search among them.
    pub(crate) steps: usize,
    /// The number of signatures that were verified; those of large keys count twice.
    pub(crate) signatures: usize,
}

/// Returns those of `others` that webpki needs in order to verify `end_entity`, in the order of the message.
pub(crate) fn needed<'a>(
    end_entity: &'a [u8],
    others: &'a [CertificateDer<'a>],
    roots: &RootCertStore,
    algorithms: WebPkiSupportedAlgorithms,
    now: UnixTime,
) -> Result<Needed<'a>, TooManySteps> {
    if others.len() <= FEW {
        let may_sign = |one: &&CertificateDer<'_>| Outline::read(one).is_none_or(|o| o.may_sign());
        let certificates = match others.iter().all(|one| may_sign(&one)) {
            true => Cow::Borrowed(others),
            false => {
                let signers = others.iter().filter(may_sign);
                signers
                    .map(|one| CertificateDer::from(one.as_ref()))
                    .collect()
            }
        };
        return Ok(Needed {
            certificates,
            steps: FEW_STEPS,
            signatures: 0,
        });
    }
    let message = Message::read(end_entity, others);
    let mut kept = message.nearest();
    let mut signatures = 0;
    if message.steps(&kept) > STEPS_MAX {
        let signed = message.signed(&kept, roots, algorithms);
        signatures = signed.verified;
        let mut distances = signed.distances(|_| true);
        kept = between(&distances);
        if message.steps(&kept) > STEPS_MAX {
            let valid = signed.distances(|at| at == OWN || message.is_valid(at, now));
            // Without a valid chain, webpki is to find what is wrong with the shortest.
            if valid.contains_key(&OWN) {
                kept = between(&valid);
                distances = valid;
            }
        }
        if message.steps(&kept) > STEPS_MAX {
            kept = signed.shortest(&distances);
        }
        if !distances.contains_key(&OWN) && signed.is_cut_short {
            return Err(TooManySteps);
        }
    }
    match message.steps(&kept) {
        steps @ 0..=STEPS_MAX => Ok(Needed {
            certificates: message.certificates(&kept),
            steps,
            signatures,
        }),
        _ => Err(TooManySteps),
    }
}

/// The peer's own certificate, at 0, and the others that can be read, each once.
struct Message<'a>(Vec<Outline<'a>>);

/// The place of the peer's own certificate.
const OWN: usize = 0;

impl<'a> Message<'a> {
    /// Certificates that cannot be read are left out; of an unreadable one of the peer itself, everything.
    fn read(end_entity: &'a [u8], others: &'a [CertificateDer<'a>]) -> Message<'a> {
        let mut links: Vec<_> = Outline::read(end_entity).into_iter().collect();
        if !links.is_empty() {
            let mut seen = HashSet::new();
            let others = others.iter().map(AsRef::as_ref);
            let others = others.filter(|&der| seen.insert(der));
            let others = others.filter_map(Outline::read);
            links.extend(others.filter(Outline::may_sign));
        }
        Message(links)
    }

    /// Returns the places of the certificates to which names lead from the peer's own, the nearest.
    fn nearest(&self) -> Vec<usize> {
        let mut named: HashMap<&[u8], Vec<usize>> = HashMap::new();
        for (at, link) in self.0.iter().enumerate().skip(1) {
            named.entry(link.subject).or_default().push(at);
        }
        let mut reached: Vec<usize> = Vec::new();
        let mut next = self.0.first();
        let mut followed = 0;
        while let Some(link) = next {
            // Each name is followed once.
            reached.extend(named.remove(link.issuer).unwrap_or_default());
            next = reached.get(followed).and_then(|&at| self.0.get(at));
            followed += 1;
        }
        reached.truncate(CERTIFICATES_MAX);
        reached.sort_unstable();
        reached
    }

    /// Returns the number of steps of webpki's search if it is given these certificates and comes to no root; more
    /// than [`STEPS_MAX`] are not counted.
    fn steps(&self, kept: &[usize]) -> usize {
        let kept: Vec<_> = kept.iter().filter_map(|&at| self.0.get(at)).collect();
        let mut steps = 0;
        walk(&mut self.0.first().into_iter().collect(), &kept, &mut steps);
        steps
    }

    /// Follows valid signatures from the peer's certificate.
    fn signed(
        &self,
        kept: &[usize],
        roots: &RootCertStore,
        algorithms: WebPkiSupportedAlgorithms,
    ) -> Signed {
        let mut signed = Signed::default();
        let mut reached = vec![OWN];
        let mut followed = 0;
        while let Some(&child) = reached.get(followed) {
            followed += 1;
            let Some(link) = self.0.get(child) else { break };
            let of_roots = roots.roots.iter();
            let of_roots = of_roots.filter(|root| root.subject.as_ref() == link.issuer);
            let of_roots = of_roots.map(|root| (None, root.subject_public_key_info.as_ref()));
            let of_others = kept.iter().filter_map(|&at| Some((at, self.0.get(at)?)));
            let of_others = of_others.filter(|(_, other)| link.names(other));
            let of_others = of_others.map(|(at, other)| (Some(at), other.key));
            let mut known: Vec<(&[u8], bool)> = Vec::new();
            for (issuer, key) in of_roots.chain(of_others) {
                let earlier = known.iter().find(|(earlier, _)| *earlier == key);
                let is_signed = match earlier {
                    Some((_, is_signed)) => *is_signed,
                    None => signed.verify(link, key, algorithms),
                };
                known.push((key, is_signed));
                match issuer {
                    _ if !is_signed => {}
                    None => signed.by_root.push(child),
                    Some(issuer) => {
                        signed.by_other.push((child, issuer));
                        if !reached.contains(&issuer) {
                            reached.push(issuer);
                        }
                    }
                }
            }
        }
        signed
    }

    fn is_valid(&self, at: usize, now: UnixTime) -> bool {
        self.0.get(at).is_some_and(|link| link.is_valid(now))
    }

    fn certificates(&self, kept: &[usize]) -> Cow<'a, [CertificateDer<'a>]> {
        let kept = kept.iter().filter_map(|&at| self.0.get(at));
        kept.map(|link| CertificateDer::from(link.der)).collect()
    }
}

/// Takes the steps of webpki's search from the last certificate of `path`, which it extends by `kept`.
fn walk<'l>(path: &mut Vec<&'l Outline<'l>>, kept: &[&'l Outline<'l>], steps: &mut usize) {
    let Some(&head) = path.last() else { return };
    *steps += 1;
    for &link in kept {
        let is_loop = path.iter().any(|earlier| earlier.is_of_same_owner(link));
        if head.names(link) && !is_loop && path.len() <= DEPTH_MAX && *steps <= STEPS_MAX {
            path.push(link);
            walk(path, kept, steps);
            path.pop();
        }
    }
}

impl Outline<'_> {
    /// Whether `other` may be its issuer: it has the name, and is not its own subject again.
    fn names(&self, other: &Outline<'_>) -> bool {
        self.issuer == other.subject && !self.is_of_same_owner(other)
    }

    fn is_of_same_owner(&self, other: &Outline<'_>) -> bool {
        self.subject == other.subject && self.key == other.key
    }

    /// Whether it is within its period of validity.
    fn is_valid(&self, now: UnixTime) -> bool {
        (self.not_before_s..=self.not_after_s).contains(&now.as_secs())
    }
}

/// The valid signatures of a message, as places.
#[derive(Default)]
struct Signed {
    /// Certificates that a root signed.
    by_root: Vec<usize>,
    /// Certificates that another one of the message signed, and that one.
    by_other: Vec<(usize, usize)>,
    /// The number of signatures that were verified, valid or not; those of large keys count twice.
    verified: usize,
    /// Whether there were more.
    is_cut_short: bool,
}

impl Signed {
    /// Verifies a certificate's signature with a key.
    fn verify(&mut self, link: &Outline<'_>, key: &[u8], by: WebPkiSupportedAlgorithms) -> bool {
        let mut key = Der::contents(key);
        let kind = key.expect(Tag::SEQUENCE).unwrap_or_default();
        let bits = key.expect(Tag::BITS).unwrap_or_default();
        let fitting = by.all.iter().find(|algorithm| {
            algorithm.signature_alg_id().as_ref() == link.algorithm
                && algorithm.public_key_alg_id().as_ref() == kind
        });
        // A key of another algorithm takes no time.
        let (Some(algorithm), Some(bits)) = (fitting, bits.strip_prefix(&[0])) else {
            return false;
        };
        let work = 1 + usize::from(bits.len() > KEY_LEN_USUAL);
        if self.verified + work > SIGNATURES_MAX {
            self.is_cut_short = true;
            return false;
        }
        self.verified += work;
        let verified = algorithm.verify_signature(bits, link.signed, link.signature);
        verified.is_ok()
    }

    /// Returns the number of certificates between each allowed certificate and its nearest root, if it has one.
    fn distances(&self, is_allowed: impl Fn(usize) -> bool) -> BTreeMap<usize, usize> {
        let mut distances = BTreeMap::new();
        let mut layer = self.by_root.clone();
        for distance in 0.. {
            layer.retain(|&at| is_allowed(at) && !distances.contains_key(&at));
            if layer.is_empty() {
                break;
            }
            distances.extend(layer.iter().map(|&at| (at, distance)));
            let next = self.by_other.iter();
            let next = next.filter(|(_, issuer)| layer.contains(issuer));
            layer = next.map(|&(child, _)| child).collect();
        }
        distances
    }

    /// Returns the shortest chain from the peer's certificate to a root.
    fn shortest(&self, distances: &BTreeMap<usize, usize>) -> Vec<usize> {
        let mut chain = Vec::new();
        let mut at = OWN;
        while let Some(nearer) = distances.get(&at).and_then(|left| left.checked_sub(1)) {
            let mut issuers = self.by_other.iter().filter(|(child, _)| *child == at);
            let next = issuers.find(|(_, issuer)| distances.get(issuer) == Some(&nearer));
            let Some(&(_, issuer)) = next else { break };
            chain.push(issuer);
            at = issuer;
        }
        chain
    }
}

/// The places of the certificates from which a root can be reached, besides the peer's own.
fn between(distances: &BTreeMap<usize, usize>) -> Vec<usize> {
    distances.keys().copied().filter(|&at| at != OWN).collect()
}

#[cfg(test)]
mod tests;
