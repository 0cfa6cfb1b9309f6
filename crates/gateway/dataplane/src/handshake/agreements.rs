//! Key agreements that are computed for several waiting clients together.
//!
//! When a handshake begins and others wait behind it, the worker looks at their ClientHellos, too, and computes the
//! agreements of up to eight of them at once. Each belongs to one handshake, which takes it with its first step and then
//! uses or drops it. Nothing waits for a batch to fill.

use crate::token::Id;
use dormouse_engine::{AgreementBatches, ClientShare, PreparedAgreement};

/// Maximum number of agreements that wait for their handshakes. More than one batch can wait if later handshakes overtake
/// earlier ones.
const WAITING_MAX: usize = 4 * AgreementBatches::SIZE_MAX;

/// Maximum number of hellos that are looked at for one batch.
pub(super) const LOOKS_MAX: usize = 2 * AgreementBatches::SIZE_MAX;

/// Computes and stores agreements.
pub(super) struct Agreements {
    /// `None`: they are not computed together.
    batches: Option<AgreementBatches>,
    /// In the order in which they were computed.
    waiting: Vec<(Id, Box<PreparedAgreement>)>,
}

impl Agreements {
    pub(super) fn new(batches: Option<AgreementBatches>) -> Agreements {
        Agreements {
            batches,
            waiting: Vec::new(),
        }
    }

    /// Whether an agreement for this handshake, the next one, may be computed with those of others.
    pub(super) fn may_prepare(&self, next: Id) -> bool {
        self.batches.is_some() && self.waiting.iter().all(|(id, _)| *id != next)
    }

    /// Computes the agreement of the first of these handshakes together with those of the others, unless it is the only
    /// one. `share_of` looks at a handshake's hello; it returns a handshake's share once only. Returns the number of
    /// agreements.
    pub(super) fn prepare(
        &mut self,
        mut handshakes: impl Iterator<Item = Id>,
        mut share_of: impl FnMut(Id) -> Option<ClientShare>,
    ) -> usize {
        let Some(batches) = self.batches else {
            return 0;
        };
        let mut share_with_id = |id| share_of(id).map(|share| (id, share));
        let Some(first) = handshakes.next().and_then(&mut share_with_id) else {
            return 0;
        };
        let others = handshakes.filter_map(&mut share_with_id);
        let batch = std::iter::once(first).chain(others);
        let (ids, shares): (Vec<Id>, Vec<ClientShare>) =
            batch.take(AgreementBatches::SIZE_MAX).unzip();
        if shares.len() < AgreementBatches::SIZE_MIN {
            return 0;
        }
        let overdue = (self.waiting.len() + shares.len()).saturating_sub(WAITING_MAX);
        self.waiting.drain(..overdue);
        let before = self.waiting.len();
        let prepared = ids.into_iter().zip(batches.prepare(&shares));
        let prepared = prepared.filter_map(|(id, prepared)| Some((id, prepared?)));
        self.waiting.extend(prepared);
        self.waiting.len() - before
    }

    /// Takes the agreement of a handshake, which begins or ends.
    pub(super) fn take(&mut self, id: Id) -> Option<Box<PreparedAgreement>> {
        let at = self.waiting.iter().position(|(of, _)| *of == id)?;
        Some(self.waiting.remove(at).1)
    }

    /// Whether no agreement waits for its handshake.
    pub(super) fn are_none(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_engine::{
        ClientContext, ClientSettings, Handshake, HandshakeLimits, Identity, Roots,
    };
    use dormouse_engine::{ServerContext, ServerSettings};

    /// The share of a new client, as the server finds it in the hello.
    fn share() -> ClientShare {
        let identity = Identity::self_signed("localhost").unwrap();
        let server = ServerContext::new(ServerSettings::new(vec![identity])).unwrap();
        let client = ClientContext::new(ClientSettings::new(Roots::Insecure)).unwrap();
        let mut client =
            Handshake::client(&client, "localhost", HandshakeLimits::default()).unwrap();
        let _ = client.handle_input(dormouse_engine::UnixTime::now(), &[]);
        server.x25519_share(client.output()).unwrap()
    }

    fn agreements() -> Agreements {
        Agreements::new(Some(AgreementBatches::one_by_one()))
    }

    fn ids(from: u32, count: u32) -> impl Iterator<Item = Id> {
        (from..from + count).map(|index| (index, 1))
    }

    #[test]
    fn one_handshake_is_left_alone_and_more_are_prepared_together() {
        let share = share();
        let mut agreements = agreements();
        assert_eq!(agreements.prepare(ids(0, 1), |_| Some(share)), 0);
        assert_eq!(
            agreements.prepare(ids(0, 9), |(index, _)| (index == 0).then_some(share)),
            0
        );
        assert_eq!(
            agreements.prepare(ids(0, 9), |(index, _)| (index > 0).then_some(share)),
            0
        );
        assert_eq!(agreements.prepare(ids(0, 2), |_| Some(share)), 2);
        assert!(!agreements.may_prepare((1, 1)));
        assert!(
            agreements.may_prepare((1, 2)),
            "another connection in the same place"
        );
        assert!(agreements.take((1, 2)).is_none());
        assert!(agreements.take((1, 1)).is_some());
        assert!(agreements.take((1, 1)).is_none(), "taken twice");
    }

    #[test]
    fn agreements_are_bounded_in_number() {
        let share = share();
        let mut agreements = agreements();
        for round in 0..10 {
            let mut looks = 0;
            let prepared = agreements.prepare(ids(20 * round, 20), |_| {
                looks += 1;
                Some(share)
            });
            assert_eq!((prepared, looks), (AgreementBatches::SIZE_MAX, prepared));
            assert!(agreements.waiting.len() <= WAITING_MAX);
        }
        assert_eq!(agreements.waiting.len(), WAITING_MAX);
        assert!(agreements.take((0, 1)).is_none(), "the oldest are dropped");
        assert!(agreements.take((180, 1)).is_some());
    }

    #[test]
    fn without_batches_no_hello_is_looked_at() {
        let mut agreements = Agreements::new(None);
        assert!(!agreements.may_prepare((0, 1)));
        assert_eq!(agreements.prepare(ids(0, 8), |_| panic!("looked at")), 0);
    }
}
