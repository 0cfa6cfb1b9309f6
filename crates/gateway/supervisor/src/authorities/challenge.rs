//! Challenges of an ACME server, which prove control of a name: all workers answer them (tls-alpn-01), or the redirect process
//! does (http-01).
//!
//! A challenge stays open until its order has ended, also while no errand works on the order: the server may validate the name
//! at any time.

use crate::pairs::Pairs;
use dormouse_handover::orders::Order;
use dormouse_helpers::errand::Challenge;
use dormouse_helpers::redirect::HttpChallenge;
use std::collections::BTreeMap;
use zeroize::Zeroizing;

/// Maximum number of open challenges. With one more, the oldest is closed, and its order may fail.
const OPEN_MAX: usize = 16;

/// The open challenges, by name.
#[derive(Default)]
pub(super) struct OpenChallenges {
    open: BTreeMap<String, Open>,
    /// Incremented whenever a challenge is opened or closed.
    number: u64,
}

struct Open {
    number: u64,
    shown: Responder,
    /// Whether the errand knows that the challenge is answered.
    is_announced: bool,
    /// Whether a worker restarted after that: the server may have validated just then, and failed.
    is_disturbed: bool,
}

enum Responder {
    /// By workers, which receive this text.
    ByWorkers(Zeroizing<String>),
    /// By the redirect process.
    OverHttp(HttpChallenge),
}

impl OpenChallenges {
    /// Sends the challenge to all workers.
    pub(super) fn open(&mut self, challenge: &Challenge, pairs: &Pairs) {
        let key = challenge.key.pem();
        let len = challenge.name.len() + challenge.chain.len() + key.len() + 2;
        let mut text = Zeroizing::new(String::with_capacity(len));
        for part in [&challenge.name, "\n", &challenge.chain, "\n", &*key] {
            text.push_str(part);
        }
        tracing::debug!(name = challenge.name, "ACME challenge open");
        let number = self.add(&challenge.name, Responder::ByWorkers(text.clone()), pairs);
        pairs.order_all(&Order::Challenge(number, text));
    }

    /// Opens a challenge for the redirect process, which receives it from [`OpenChallenges::for_redirect`].
    pub(super) fn open_http(&mut self, challenge: HttpChallenge, pairs: &Pairs) {
        let name = challenge.name.clone();
        self.add(&name, Responder::OverHttp(challenge), pairs);
    }

    /// Adds a challenge, in place of a former one for the same name. Returns its number.
    fn add(&mut self, name: &str, shown: Responder, pairs: &Pairs) -> u64 {
        self.open.remove(name);
        if self.open.len() >= OPEN_MAX {
            let oldest = self.open.iter().min_by_key(|(_, open)| open.number);
            let oldest = oldest.map(|(name, _)| name.clone()).into_iter().collect();
            self.close(oldest, pairs);
        }
        self.number += 1;
        let open = Open {
            number: self.number,
            shown,
            is_announced: false,
            is_disturbed: false,
        };
        self.open.insert(name.to_owned(), open);
        self.number
    }

    /// Number and challenges for the redirect process.
    pub(super) fn for_redirect(&self) -> (u64, impl Iterator<Item = &HttpChallenge>) {
        let challenges = self.open.values().filter_map(|open| match &open.shown {
            Responder::OverHttp(challenge) => Some(challenge),
            Responder::ByWorkers(_) => None,
        });
        (self.number, challenges)
    }

    /// Sends the challenges to a worker that has started or restarted.
    pub(super) fn repeat(&mut self, worker: usize, pairs: &Pairs) {
        for order in self.for_new_worker() {
            pairs.order(worker, &order);
        }
    }

    /// The newest is last, because main waits for the answer to it. The server validates only what is announced, so a worker
    /// that starts earlier disturbs nothing.
    fn for_new_worker(&mut self) -> Vec<Order> {
        let mut all: Vec<&mut Open> = self.open.values_mut().collect();
        all.sort_by_key(|open| open.number);
        let orders = all.into_iter().filter_map(|open| {
            let Responder::ByWorkers(text) = &open.shown else {
                return None;
            };
            open.is_disturbed |= open.is_announced;
            Some(Order::Challenge(open.number, text.clone()))
        });
        orders.collect()
    }

    /// Returns `true` once for each challenge, as soon as all processes answer it.
    pub(super) fn take_answered(&mut self, name: &str, pairs: &Pairs, http_shows: u64) -> bool {
        let Some(open) = self.open.get_mut(name) else {
            return false;
        };
        let is_shown = match &open.shown {
            Responder::ByWorkers(_) => pairs.all_answer_challenge(open.number),
            Responder::OverHttp(_) => http_shows >= open.number,
        };
        let is_new = is_shown && !open.is_announced;
        open.is_announced |= is_shown;
        is_new
    }

    /// Whether a worker restarted while the challenge for this name was open.
    pub(super) fn is_disturbed(&self, name: &str) -> bool {
        self.open.get(name).is_some_and(|open| open.is_disturbed)
    }

    /// Closes the challenges for all other names than these.
    pub(super) fn close_except(&mut self, is_needed: impl Fn(&str) -> bool, pairs: &Pairs) {
        let names = self.open.keys().filter(|name| !is_needed(name));
        let names = names.cloned().collect();
        self.close(names, pairs);
    }

    fn close(&mut self, names: Vec<String>, pairs: &Pairs) {
        for name in names {
            let closed = self.open.remove(&name);
            self.number += 1;
            if let Some(Responder::ByWorkers(_)) = closed.map(|open| open.shown) {
                let text = Zeroizing::new(format!("{name}\n"));
                pairs.order_all(&Order::Challenge(self.number, text));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown() -> Responder {
        Responder::ByWorkers(Zeroizing::default())
    }

    #[test]
    fn only_an_announced_challenge_is_disturbed() {
        let (mut challenges, pairs) = (OpenChallenges::default(), Pairs::default());
        challenges.add("a", shown(), &pairs);
        assert_eq!(challenges.for_new_worker().len(), 1);
        assert!(!challenges.is_disturbed("a"), "the first start of a worker");
        assert!(challenges.take_answered("a", &pairs, 0) == pairs.all_answer_challenge(1));
        challenges.add("b", shown(), &pairs);
        challenges.open.get_mut("a").expect("open").is_announced = true;
        let orders = challenges.for_new_worker();
        let numbers = orders.iter().map(|order| match order {
            Order::Challenge(number, _) => *number,
            _ => 0,
        });
        assert_eq!(numbers.collect::<Vec<_>>(), [1, 2], "the newest is last");
        assert!(challenges.is_disturbed("a") && !challenges.is_disturbed("b"));
    }

    #[test]
    fn challenges_are_limited_and_closed_with_their_orders() {
        let (mut challenges, pairs) = (OpenChallenges::default(), Pairs::default());
        for name in 0..=OPEN_MAX {
            challenges.add(&format!("name-{name:02}"), shown(), &pairs);
            challenges.add("other", shown(), &pairs);
        }
        assert_eq!(challenges.open.len(), OPEN_MAX);
        assert!(!challenges.open.contains_key("name-00") && challenges.open.contains_key("other"));
        challenges.close_except(|name| name == "other", &pairs);
        assert_eq!(challenges.open.len(), 1);
    }
}
