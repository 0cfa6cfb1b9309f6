//! The challenge of an ACME server, which proves control of a name: all workers answer it
//! (tls-alpn-01), or the redirect process does (http-01).

use crate::pairs::Pairs;
use dormouse_handover::orders::Order;
use dormouse_helpers::errand::Challenge;
use dormouse_helpers::redirect::HttpChallenge;
use zeroize::Zeroizing;

/// The current challenge, if there is one.
#[derive(Default)]
pub(super) struct OpenChallenge {
    open: Option<Open>,
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

impl OpenChallenge {
    /// Sends the challenge to all workers.
    pub(super) fn open(&mut self, challenge: &Challenge, pairs: &Pairs) {
        self.number += 1;
        let key = challenge.key.pem();
        let len = challenge.name.len() + challenge.chain.len() + key.len() + 2;
        let mut text = Zeroizing::new(String::with_capacity(len));
        for part in [&challenge.name, "\n", &challenge.chain, "\n", &*key] {
            text.push_str(part);
        }
        tracing::debug!(name = challenge.name, "ACME challenge open");
        pairs.order_all(&Order::Challenge(self.number, Some(text.clone())));
        self.set(Responder::ByWorkers(text));
    }

    /// Opens a challenge for the redirect process, which receives it from [`OpenChallenge::for_redirect`].
    pub(super) fn open_http(&mut self, challenge: HttpChallenge) {
        self.number += 1;
        self.set(Responder::OverHttp(challenge));
    }

    fn set(&mut self, shown: Responder) {
        self.open = Some(Open {
            number: self.number,
            shown,
            is_announced: false,
            is_disturbed: false,
        });
    }

    /// Number and challenge for the redirect process.
    pub(super) fn for_redirect(&self) -> (u64, Option<&HttpChallenge>) {
        let challenge = self.open.as_ref().and_then(|open| match &open.shown {
            Responder::OverHttp(challenge) => Some(challenge),
            Responder::ByWorkers(_) => None,
        });
        (self.number, challenge)
    }

    /// Sends the challenge to a worker that has started or restarted.
    pub(super) fn repeat(&mut self, worker: usize, pairs: &Pairs) {
        if let Some(order) = self.for_new_worker() {
            pairs.order(worker, &order);
        }
    }

    /// The server validates only what is announced, so a worker that starts earlier disturbs nothing.
    fn for_new_worker(&mut self) -> Option<Order> {
        let open = self.open.as_mut()?;
        let Responder::ByWorkers(text) = &open.shown else {
            return None;
        };
        open.is_disturbed |= open.is_announced;
        Some(Order::Challenge(open.number, Some(text.clone())))
    }

    /// Returns `true` once for each challenge, as soon as all processes answer it.
    pub(super) fn take_answered(&mut self, pairs: &Pairs, http_shows: u64) -> bool {
        let is_shown = |open: &Open| match &open.shown {
            Responder::ByWorkers(_) => pairs.all_answer_challenge(open.number),
            Responder::OverHttp(_) => http_shows == open.number,
        };
        let is_new = |open: &&mut Open| !open.is_announced && is_shown(open);
        let open = self.open.as_mut().filter(is_new);
        open.map(|open| open.is_announced = true).is_some()
    }

    /// Whether a worker restarted while the challenge was open.
    pub(super) fn is_disturbed(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.is_disturbed)
    }

    /// Closes the challenge.
    pub(super) fn close(&mut self, pairs: &Pairs) {
        let Some(open) = self.open.take() else {
            return;
        };
        self.number += 1;
        if let Responder::ByWorkers(_) = open.shown {
            pairs.order_all(&Order::Challenge(self.number, None));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_announced_challenge_is_disturbed() {
        let mut challenge = OpenChallenge::default();
        challenge.set(Responder::ByWorkers(Zeroizing::default()));
        assert!(challenge.for_new_worker().is_some());
        assert!(!challenge.is_disturbed(), "the first start of a worker");
        if let Some(open) = &mut challenge.open {
            open.is_announced = true;
        }
        assert!(challenge.for_new_worker().is_some());
        assert!(challenge.is_disturbed());
    }
}
