//! OCSP responses: which certificates need one, and when to query the next.

use super::retry::{backoff_ms, jitter};
use crate::material::Certificates;
use dormouse_engine::{check_ocsp, ocsp_question, pem_chain};
use dormouse_handover::Pem;
use dormouse_handover::unix_time;
use dormouse_helpers::errand::{Job, NoResponse};
use dormouse_reactor::socket::MESSAGE_MAX;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

/// Bounds for the renewal of a response, which is due halfway through its validity.
const RENEW_MS: std::ops::Range<u64> = 60_000..12 * 3_600_000;
/// Interval of the times at which renewals are due that are more than twice as far away: so many responses are renewed,
/// and stapled, together.
const MEET_MS: u64 = 30 * 60_000;
/// Maximum time for which a response waits for others, because each stapling is a reload of all workers.
const GATHER_MS: u64 = 60_000;

/// All chains of routes, by the hash of their text.
#[derive(Default)]
pub(super) struct OcspSchedule {
    chains: HashMap<u64, Chain>,
    hasher: RandomState,
    /// When the new responses are stapled at the latest. `None`: there are none.
    staple_ms: Option<u64>,
}

/// A chain, and the schedule of its queries.
struct Chain {
    /// The first certificate with this chain, for messages.
    name: String,
    /// DER. Empty: the certificate names no responder, or the chain fits into no message.
    certificates: Vec<Vec<u8>>,
    due_ms: u64,
    failures: u32,
    /// Unix time at which the last response expires; 0: there was none.
    until_s: u64,
    /// A response that is not stapled yet, or why the certificate is revoked.
    waiting: Option<Result<Vec<u8>, String>>,
}

impl OcspSchedule {
    /// Takes over other certificates. A certificate whose response comes from a file needs no queries.
    pub(super) fn follow(&mut self, certificates: &[Vec<Pem>]) {
        let mut former = std::mem::take(&mut self.chains);
        let pems = certificates.iter().flatten();
        for pem in pems.filter(|pem| !pem.ocsp_from_file) {
            let id = self.id(pem);
            let chain = former.remove(&id).unwrap_or_else(|| Chain::of(pem));
            self.chains.entry(id).or_insert(chain);
        }
    }

    /// The id of a certificate's chain in queries.
    pub(super) fn id(&self, pem: &Pem) -> u64 {
        // Of tens of thousands of certificates, few are new.
        self.hasher.hash_one(pem.chain_digest())
    }

    /// Time of the next query.
    pub(super) fn next_due_ms(&self) -> Option<u64> {
        let with_responder = |chain: &&Chain| !chain.certificates.is_empty();
        let due = self.chains.values().filter(with_responder);
        due.map(|chain| chain.due_ms).min()
    }

    /// The queries that are due, `max` at most.
    pub(super) fn jobs(&self, now_ms: u64, max: usize) -> Vec<Job> {
        let chains = self.chains.iter();
        let due =
            chains.filter(|(_, chain)| !chain.certificates.is_empty() && chain.due_ms <= now_ms);
        due.take(max)
            .map(|(&id, chain)| Job::Ocsp {
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

    /// Takes a response, to be stapled with others, and schedules the next query.
    pub(super) fn take(
        &mut self,
        id: u64,
        response: Result<(Vec<u8>, u64), NoResponse>,
        now_ms: u64,
    ) {
        // A reload may have removed the certificate.
        let Some(chain) = self.chains.get_mut(&id) else {
            return;
        };
        let left_ms = |until_s: u64| until_s.saturating_sub(unix_time().as_secs()) * 1000;
        let gather_ms = match left_ms(chain.until_s) {
            0 => GATHER_MS,
            left_ms => left_ms.min(GATHER_MS),
        };
        chain.waiting = Some(match response {
            Ok((response, until_s)) => {
                let in_ms = (left_ms(until_s) / 2).clamp(RENEW_MS.start, RENEW_MS.end);
                chain.due_ms = renewal_ms(&self.hasher, now_ms, in_ms);
                chain.failures = 0;
                chain.until_s = until_s;
                Ok(response)
            }
            Err(NoResponse::Failed(why)) => {
                chain.failed(now_ms);
                let name = chain.name.as_str();
                tracing::warn!(certificate = name, error = why, "OCSP query failed");
                return;
            }
            Err(NoResponse::Revoked(why)) => {
                chain.failed(now_ms);
                chain.until_s = 0;
                Err(why)
            }
        });
        let latest_ms = now_ms + gather_ms;
        let staple_ms = self.staple_ms.unwrap_or(latest_ms);
        self.staple_ms = Some(staple_ms.min(latest_ms));
    }

    /// When the new responses are stapled: at once, or if others will follow soon, when the first of them has waited for
    /// a while, or the one that it replaces expires. `None`: there are none.
    pub(super) fn staple_due_ms(&self, is_asking: bool, now_ms: u64) -> Option<u64> {
        let latest_ms = self.staple_ms?;
        let others_follow = is_asking || self.next_due_ms().is_some_and(|at_ms| at_ms <= now_ms);
        Some(if others_follow { latest_ms } else { 0 })
    }

    /// Staples all new responses to their certificates. If a certificate is revoked, the response that said otherwise is
    /// no longer stapled. Returns `true` if a certificate's response has changed.
    pub(super) fn staple(&mut self, certificates: &mut Certificates) -> bool {
        self.staple_ms = None;
        let mut has_changed = false;
        let pems = certificates.iter_mut().flatten();
        for pem in pems.filter(|pem| !pem.ocsp_from_file) {
            let chain = self.chains.get(&self.id(pem));
            let response = match chain.and_then(|chain| chain.waiting.as_ref()) {
                None => continue,
                Some(Ok(response)) => {
                    tracing::info!(certificate = pem.name, "OCSP response stapled");
                    response.as_slice()
                }
                Some(Err(why)) => {
                    tracing::error!(
                        certificate = pem.name,
                        error = why,
                        "certificate revoked; no OCSP response stapled"
                    );
                    &[]
                }
            };
            has_changed |= pem.ocsp != response;
            let response = response.to_vec();
            pem.change(|pem| pem.ocsp = response);
        }
        for chain in self.chains.values_mut() {
            chain.waiting = None;
        }
        has_changed
    }
}

/// Time of a renewal that is due in `in_ms`. Machines of a fleet renew at different times, so that they do not query a
/// responder all at once.
fn renewal_ms(hasher: &RandomState, now_ms: u64, in_ms: u64) -> u64 {
    if in_ms <= 2 * MEET_MS {
        return now_ms + jitter(hasher, now_ms, in_ms);
    }
    let offset_ms = hasher.hash_one(MEET_MS) % MEET_MS;
    (now_ms + in_ms - offset_ms).next_multiple_of(MEET_MS) + offset_ms
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
        let chain = pem_chain(pem.chain.as_bytes(), &pem.name).unwrap_or_default();
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
        // A response from before a reload or an upgrade.
        let stapled = check_ocsp(&pem.ocsp, &slices, unix_time());
        Chain {
            name: pem.name.clone(),
            until_s: stapled.map_or(0, |times| times.until_s),
            certificates: if is_asked { chain } else { Vec::new() },
            due_ms: 0,
            failures: 0,
            waiting: None,
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
    use dormouse_handover::PemContents;

    /// A certificate, with its schedule and id.
    fn scheduled() -> (Certificates, OcspSchedule, u64) {
        let pem = Pem::from(PemContents {
            name: "site.pem".to_owned(),
            key_name: "site.key".to_owned(),
            chain: "a chain".to_owned(),
            ocsp: Vec::new(),
            ocsp_from_file: false,
            is_pushed: false,
            key: String::new(),
        });
        let certificates = vec![vec![pem]];
        let mut schedule = OcspSchedule::default();
        schedule.follow(&certificates);
        let id = schedule.id(&certificates[0][0]);
        (certificates, schedule, id)
    }

    #[test]
    fn a_revoked_certificate_loses_its_response() {
        let (mut certificates, mut schedule, id) = scheduled();
        let mut take = |response| {
            schedule.take(id, response, 0);
            let has_changed = schedule.staple(&mut certificates);
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

    /// A response waits for others, but not until the one that it replaces has expired.
    #[test]
    fn a_response_is_stapled_before_the_former_expires() {
        let (mut certificates, mut schedule, id) = scheduled();
        let mut take = |left_s, now_ms| {
            let until_s = unix_time().as_secs() + left_s;
            schedule.take(id, Ok((vec![1], until_s)), now_ms);
            schedule.staple_due_ms(true, now_ms)
        };
        assert_eq!(take(3_600, 5), Some(5 + GATHER_MS), "there is no former");
        assert_eq!(take(30, 1_000), Some(5 + GATHER_MS), "the first waits on");
        let due_ms = take(3_600, 2_000).expect("a response waits");
        assert!(due_ms <= 32_000, "{due_ms}");
        assert_eq!(schedule.staple_due_ms(false, 2_000), Some(0));
        assert!(schedule.staple(&mut certificates));
        assert_eq!(schedule.staple_due_ms(true, 2_000), None);
        let chain = schedule.chains.get_mut(&id).expect("the chain");
        (chain.certificates, chain.due_ms) = (vec![vec![0]], 3_000);
        schedule.take(id, Err(NoResponse::Revoked(String::new())), 0);
        let chain = schedule.chains.get_mut(&id).expect("the chain");
        chain.due_ms = 3_000;
        assert_eq!(schedule.staple_due_ms(false, 2_999), Some(0));
        let others_follow = schedule.staple_due_ms(false, 3_000);
        assert!(others_follow.is_some_and(|at_ms| at_ms > 3_000));
    }

    #[test]
    fn renewals_meet_unless_they_are_soon() {
        let hasher = RandomState::new();
        let day_ms = 24 * 3_600_000;
        let mut due = Vec::new();
        for now_ms in (day_ms..2 * day_ms).step_by(10_007) {
            for in_ms in [60_000, 2 * MEET_MS, 2 * MEET_MS + 1, RENEW_MS.end] {
                let due_ms = renewal_ms(&hasher, now_ms, in_ms) - now_ms;
                match in_ms <= 2 * MEET_MS {
                    true => assert!((in_ms * 9 / 10..=in_ms).contains(&due_ms)),
                    false => assert!((in_ms..in_ms + MEET_MS).contains(&due_ms)),
                }
            }
            due.push(renewal_ms(&hasher, now_ms, RENEW_MS.end));
        }
        due.dedup();
        assert!(due.len() <= 49, "{}", due.len());
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
