//! What was used before a reload: certificates with their keys, released a few in each turn, because there may be tens of
//! thousands.

use dormouse_engine::RetiredCertificates;
use dormouse_routes::parsed::Unused;
use dormouse_routes::route::{Direction, Route};

/// Certificates released in one turn.
const RELEASED_AT_ONCE: usize = 256;

/// Certificates of former contexts, and former certificates.
#[derive(Default)]
pub(crate) struct Retirement {
    contexts: Vec<RetiredCertificates>,
    identities: Unused,
}

impl Retirement {
    /// Adds the certificates of former routes, and those that no route has any more.
    pub(crate) fn add<'a>(&mut self, routes: impl Iterator<Item = &'a Route>, unused: Unused) {
        let context = |route: &Route| match &route.direction {
            Direction::Terminate { context, .. } => context.as_ref().map(|one| one.retired()),
            _ => None,
        };
        self.contexts.extend(routes.filter_map(context));
        self.identities.extend(unused);
    }

    /// Whether something can be released now: no handshake in flight uses it.
    pub(crate) fn is_due(&self) -> bool {
        !self.identities.is_empty() || self.contexts.iter().any(RetiredCertificates::is_unused)
    }

    /// Releases some. Returns `true` if nothing is left.
    pub(crate) fn release_some(&mut self) -> bool {
        let mut left = RELEASED_AT_ONCE;
        self.contexts.retain_mut(|context| {
            if left == 0 || !context.is_unused() {
                return true;
            }
            let released = context.release(left);
            let is_over = released < left;
            left -= released;
            !is_over
        });
        // Keys are wiped where their last context ends.
        let rest = self.identities.len().saturating_sub(left);
        self.identities.truncate(rest);
        self.identities.is_empty() && self.contexts.is_empty()
    }
}
