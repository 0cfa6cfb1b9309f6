//! The challenge of an ACME server: all workers show it, so that the server sees that a name is ours.

use crate::pairs::Pairs;
use dormouse_handover::orders::Order;
use dormouse_helpers::errand::Challenge;
use zeroize::Zeroizing;

/// The challenge that workers show, if there is one.
#[derive(Default)]
pub(super) struct OpenChallenge {
    open: Option<Open>,
    /// Counts challenges that were opened or closed.
    number: u64,
}

struct Open {
    number: u64,
    /// As workers get it.
    text: Zeroizing<String>,
    /// The errand knows that all workers show it.
    is_announced: bool,
    /// A worker was started meanwhile: the server may have looked just then, and seen nothing.
    is_disturbed: bool,
}

impl OpenChallenge {
    /// Gives the challenge to all workers.
    pub(super) fn open(&mut self, challenge: &Challenge, pairs: &Pairs) {
        self.number += 1;
        let key = challenge.key.pem();
        let len = challenge.name.len() + challenge.chain.len() + key.len() + 2;
        let mut text = Zeroizing::new(String::with_capacity(len));
        for part in [&challenge.name, "\n", &challenge.chain, "\n", &*key] {
            text.push_str(part);
        }
        tracing::debug!(
            name = challenge.name,
            "a challenge of the ACME server is open"
        );
        pairs.order_all(&Order::Challenge(self.number, Some(text.clone())));
        self.open = Some(Open {
            number: self.number,
            text,
            is_announced: false,
            is_disturbed: false,
        });
    }

    /// Gives the challenge to a worker that was started anew.
    pub(super) fn repeat(&mut self, worker: usize, pairs: &Pairs) {
        if let Some(open) = &mut self.open {
            open.is_disturbed = true;
            let order = Order::Challenge(open.number, Some(open.text.clone()));
            pairs.order(worker, &order);
        }
    }

    /// Whether all workers show the challenge. `true` once for each.
    pub(super) fn take_shown(&mut self, pairs: &Pairs) -> bool {
        let is_new = |open: &&mut Open| !open.is_announced && pairs.show_challenge(open.number);
        let open = self.open.as_mut().filter(is_new);
        open.map(|open| open.is_announced = true).is_some()
    }

    /// Whether a worker was started while the challenge was open.
    pub(super) fn is_disturbed(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.is_disturbed)
    }

    /// Takes the challenge back from all workers.
    pub(super) fn close(&mut self, pairs: &Pairs) {
        if self.open.take().is_some() {
            self.number += 1;
            pairs.order_all(&Order::Challenge(self.number, None));
        }
    }
}
