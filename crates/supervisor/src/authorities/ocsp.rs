//! OCSP responses: which certificates need one, and when to query the next.

use super::retry::{backoff_ms, jitter};
use crate::material::Certificates;
use dormouse_engine::{ocsp_question, pem_chain};
use dormouse_handover::Pem;
use dormouse_handover::unix_time;
use dormouse_helpers::errand::{Job, NoResponse};
use dormouse_reactor::socket::MESSAGE_MAX;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

/// Bounds for the renewal of a response, which is due halfway through its validity.
const RENEW_MS: std::ops::Range<u64> = 60_000..12 * 3_600_000;

/// All chains of routes, by the hash of their text.
#[derive(Default)]
pub(super) struct OcspSchedule {
    chains: HashMap<u64, Chain>,
    hasher: RandomState,
}

/// A chain, and the schedule of its queries.
struct Chain {
    /// DER. Empty: the certificate names no responder, or the chain fits into no message.
    certificates: Vec<Vec<u8>>,
    due_ms: u64,
    failures: u32,
}

impl OcspSchedule {
    /// Takes over other certificates. A certificate whose response comes from a file needs no queries.
    pub(super) fn follow(&mut self, certificates: &[Vec<Pem>]) {
        let mut former = std::mem::take(&mut self.chains);
        let pems = certificates.iter().flatten();
        for pem in pems.filter(|pem| !pem.ocsp_from_file) {
            let id = self.hasher.hash_one(&pem.chain);
            let chain = former.remove(&id).unwrap_or_else(|| Chain::of(pem));
            self.chains.entry(id).or_insert(chain);
        }
    }

    /// Time of the next query.
    pub(super) fn next_due_ms(&self) -> Option<u64> {
        let with_responder = |chain: &&Chain| !chain.certificates.is_empty();
        let due = self.chains.values().filter(with_responder);
        due.map(|chain| chain.due_ms).min()
    }

    /// The queries that are due.
    pub(super) fn jobs(&self, now_ms: u64) -> Vec<Job> {
        let chains = self.chains.iter();
        let due =
            chains.filter(|(_, chain)| !chain.certificates.is_empty() && chain.due_ms <= now_ms);
        due.map(|(&id, chain)| Job::Ocsp {
            id,
            chain: chain.certificates.clone(),
        })
        .collect()
    }

    /// Postpones the due queries after an errand that failed.
    pub(super) fn put_off(&mut self, now_ms: u64) {
        let due = self.chains.values_mut().filter(|e| e.due_ms <= now_ms);
        due.for_each(|chain| chain.failed(now_ms));
    }

    /// Staples a response to its certificates, and schedules the next query. If they are revoked, the response that
    /// said otherwise is no longer stapled. Returns `true` if a certificate's response has changed.
    pub(super) fn take(
        &mut self,
        id: u64,
        response: Result<(Vec<u8>, u64), NoResponse>,
        certificates: &mut Certificates,
        now_ms: u64,
    ) -> bool {
        let Some(chain) = self.chains.get_mut(&id) else {
            return false;
        };
        let hasher = &self.hasher;
        let pems = certificates.iter_mut().flatten();
        let mut pems = pems.filter(|pem| hasher.hash_one(&pem.chain) == id);
        match response {
            Ok((response, until_s)) => {
                let left_ms = until_s.saturating_sub(unix_time().as_secs()) * 1000;
                let in_ms = (left_ms / 2).clamp(RENEW_MS.start, RENEW_MS.end);
                chain.due_ms = now_ms + jitter(hasher, now_ms, in_ms);
                chain.failures = 0;
                let mut is_new = false;
                for pem in pems {
                    tracing::info!(certificate = pem.name, "OCSP response stapled");
                    is_new |= pem.ocsp != response;
                    pem.ocsp.clone_from(&response);
                }
                is_new
            }
            Err(NoResponse::Failed(why)) => {
                chain.failed(now_ms);
                let name = pems.next().map_or("", |pem| pem.name.as_str());
                tracing::warn!(certificate = name, error = why, "OCSP query failed");
                false
            }
            Err(NoResponse::Revoked(why)) => {
                chain.failed(now_ms);
                let mut had_one = false;
                for pem in pems {
                    tracing::error!(
                        certificate = pem.name,
                        error = why,
                        "certificate revoked; no OCSP response stapled"
                    );
                    had_one |= !pem.ocsp.is_empty();
                    pem.ocsp.clear();
                }
                had_one
            }
        }
    }
}

/// Whether a query about this chain fits into a message to the errand. One that does not would stay due for ever, and
/// keep the queries behind it from being sent.
fn fits(chain: &[Vec<u8>]) -> bool {
    /// Characters of a message besides the chain, at most.
    const AROUND: usize = 256;
    // JSON has a byte as a number and a comma, and a certificate as a list.
    let in_json = |byte: &u8| 2 + usize::from(*byte > 9) + usize::from(*byte > 99);
    let bytes: usize = chain.iter().flatten().map(in_json).sum();
    AROUND + bytes + 3 * chain.len() <= MESSAGE_MAX
}

impl Chain {
    fn of(pem: &Pem) -> Chain {
        let chain = pem_chain(pem.chain.as_bytes()).unwrap_or_default();
        let slices: Vec<&[u8]> = chain.iter().map(Vec::as_slice).collect();
        let has_responder = ocsp_question(&slices).is_some();
        let is_asked = has_responder && fits(&chain);
        if has_responder && !is_asked {
            tracing::warn!(
                certificate = pem.name,
                error = "the certificate chain is too long to be queried; staple a response from a file",
                "OCSP query failed"
            );
        }
        Chain {
            certificates: if is_asked { chain } else { Vec::new() },
            due_ms: 0,
            failures: 0,
        }
    }

    fn failed(&mut self, now_ms: u64) {
        self.due_ms = now_ms + backoff_ms(self.failures);
        self.failures = self.failures.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revoked_certificate_loses_its_response() {
        let pem = Pem {
            name: "site.pem".to_owned(),
            key_name: "site.key".to_owned(),
            chain: "a chain".to_owned(),
            ocsp: Vec::new(),
            ocsp_from_file: false,
            is_pushed: false,
            key: String::new(),
        };
        let mut certificates = vec![vec![pem]];
        let mut schedule = OcspSchedule::default();
        schedule.follow(&certificates);
        let id = schedule.hasher.hash_one("a chain");
        let mut take = |response| {
            let has_changed = schedule.take(id, response, &mut certificates, 0);
            (has_changed, certificates[0][0].ocsp.clone())
        };
        let good = (b"good".to_vec(), u64::MAX / 2_000);
        assert_eq!(take(Ok(good)), (true, b"good".to_vec()));
        let failed = NoResponse::Failed("no answer".to_owned());
        assert_eq!(take(Err(failed)), (false, b"good".to_vec()));
        for has_changed in [true, false] {
            let revoked = NoResponse::Revoked("revoked".to_owned());
            assert_eq!(take(Err(revoked)), (has_changed, Vec::new()));
        }
    }

    #[test]
    fn only_a_chain_that_fits_into_a_message_is_queried() {
        for byte in [0, 9, 10, 99, 100, 255] {
            let chain = |len| vec![vec![byte; len], vec![byte; 1_000]];
            let lens = (1_000..MESSAGE_MAX).step_by(100);
            let longest = lens.take_while(|&len| fits(&chain(len))).last();
            let job = Job::Ocsp {
                id: u64::MAX,
                chain: chain(longest.expect("a short chain fits")),
            };
            let len = serde_json::to_vec(&job).expect("JSON").len();
            assert!(
                len <= MESSAGE_MAX && len > MESSAGE_MAX - 1_000,
                "{byte}: {len}"
            );
        }
    }
}
