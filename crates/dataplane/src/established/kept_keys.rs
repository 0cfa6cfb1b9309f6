//! Expanded keys of the connections that had the latest events.
//!
//! A connection at rest has no keys, only its secrets. Expanding a key costs more than everything else in a
//! small event. So a worker keeps the keys of an event for the connection's next event, in a table of fixed
//! size: a new or busy connection finds its keys there; a quiet one has lost its place to others.
//!
//! Invariants:
//!
//! - A place holds keys of one connection, whose generation stands beside them.
//! - A key is used only with the secret from which it was expanded ([`OpenKey::renew`]). The table never holds a
//!   key whose secret was replaced: after a key update nothing must be able to open earlier records.
//! - The keys of a connection that has ended are wiped.

use dormouse_handover::slot::Slot;
use dormouse_record::{OpenKey, SealKey};

/// Places in the table. The two keys of a connection take 1.3 kB.
const PLACES: usize = 64;

/// The keys of one connection. They are boxed, so that taking them out of the table copies no secret.
#[derive(Default)]
struct Keys {
    generation: u32,
    open: Option<Box<OpenKey>>,
    seal: Option<Box<SealKey>>,
}

/// The table. A connection's generation determines its place.
pub(crate) struct KeptKeys {
    places: Vec<Keys>,
}

impl KeptKeys {
    pub(crate) fn new() -> KeptKeys {
        KeptKeys {
            places: std::iter::repeat_with(Keys::default).take(PLACES).collect(),
        }
    }

    /// Takes out the key that opens the TLS peer's next record. The caller returns it with
    /// [`KeptKeys::keep_open`].
    pub(crate) fn take_open(&mut self, slot: &Slot) -> Box<OpenKey> {
        let kept = self.keys_of(slot).open.take();
        let mut key = kept.unwrap_or_else(|| Box::new(OpenKey::empty()));
        key.renew(&slot.tls);
        key
    }

    /// Takes out the key that seals the next record to the TLS peer. The caller returns it with
    /// [`KeptKeys::keep_seal`].
    pub(crate) fn take_seal(&mut self, slot: &Slot) -> Box<SealKey> {
        let kept = self.keys_of(slot).seal.take();
        let mut key = kept.unwrap_or_else(|| Box::new(SealKey::empty()));
        key.renew(&slot.tls);
        key
    }

    /// Keeps the key for the connection's next event, unless its secret was replaced.
    pub(crate) fn keep_open(&mut self, slot: &Slot, key: Box<OpenKey>) {
        self.keys_of(slot).open = key.is_current(&slot.tls).then_some(key);
    }

    /// Keeps the key for the connection's next event, unless its secret was replaced.
    pub(crate) fn keep_seal(&mut self, slot: &Slot, key: Box<SealKey>) {
        self.keys_of(slot).seal = key.is_current(&slot.tls).then_some(key);
    }

    /// Drops the keys of a connection that has ended. Keys of another connection in the same place stay.
    pub(crate) fn forget(&mut self, slot: &Slot) {
        let keys = &mut self.places[slot.generation as usize % PLACES];
        if keys.generation == slot.generation {
            *keys = Keys::default();
        }
    }

    /// Drops all keys. After a burst of handshakes they would prevent pages of the heap from being returned.
    pub(crate) fn clear(&mut self) {
        self.places.fill_with(Keys::default);
    }

    /// Returns the connection's place, without the keys of another connection.
    fn keys_of(&mut self, slot: &Slot) -> &mut Keys {
        let keys = &mut self.places[slot.generation as usize % PLACES];
        if keys.generation != slot.generation {
            *keys = Keys {
                generation: slot.generation,
                ..Keys::default()
            };
        }
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_record::{Misuse, Opened, Role, SMALL_RECORD_MAX, Suite, open, seal_key_update};
    use zerocopy::FromZeros as _;

    /// Returns a slot with the same secret for both directions, so that it can open what it seals.
    fn slot(generation: u32, secret: u8) -> Result<Slot, Misuse> {
        let mut slot = Slot::new_zeroed();
        slot.generation = generation;
        let (suite, secret) = (Suite::Aes128GcmSha256, [secret; 32]);
        slot.tls
            .establish_tls13(Role::Server, suite, &secret, 0, &secret, 0)?;
        Ok(slot)
    }

    /// Seals an alert with the table's key, and returns the record.
    fn seal(keys: &mut KeptKeys, slot: &mut Slot) -> Vec<u8> {
        let mut record = [0; SMALL_RECORD_MAX];
        let mut key = keys.take_seal(slot);
        let alert = dormouse_record::Alert::fatal(dormouse_record::AlertDescription::InternalError);
        let n = dormouse_record::seal_alert(&mut slot.tls, &mut key, alert, &mut record);
        keys.keep_seal(slot, key);
        record[..n.expect("an alert")].to_vec()
    }

    /// Seals a KeyUpdate with the table's keys and opens it: both secrets are replaced.
    fn update_keys(keys: &mut KeptKeys, slot: &mut Slot) {
        let mut record = [0; SMALL_RECORD_MAX];
        let mut key = keys.take_seal(slot);
        let n = seal_key_update(&mut slot.tls, &mut key, &mut record).expect("a KeyUpdate");
        keys.keep_seal(slot, key);
        let mut key = keys.take_open(slot);
        let opened = open(&mut slot.tls, &mut key, &mut record[..n]).expect("it opens");
        keys.keep_open(slot, key);
        assert_eq!(opened, Opened::Handled { consumed: n });
    }

    #[test]
    fn connections_that_share_a_place_use_their_own_keys() {
        let mut keys = KeptKeys::new();
        let mut one = slot(7, 1).expect("a state");
        let mut other = slot(7 + PLACES as u32, 2).expect("a state");
        for _ in 0..3 {
            update_keys(&mut keys, &mut one);
            update_keys(&mut keys, &mut one);
            update_keys(&mut keys, &mut other);
        }
    }

    /// The generation is compared even if the secrets agree in the bytes by which a key knows its secret.
    #[test]
    fn a_connection_never_gets_the_key_of_another_one() {
        let mut keys = KeptKeys::new();
        let mut one = slot(7, 1).expect("a state");
        let other = slot(7 + PLACES as u32, 1).expect("a state");
        seal(&mut keys, &mut one);
        assert!(keys.keys_of(&one).seal.is_some());
        assert!(keys.keys_of(&other).seal.is_none());
    }

    #[test]
    fn a_key_whose_secret_was_replaced_is_not_kept() {
        let mut keys = KeptKeys::new();
        let mut slot = slot(1, 1).expect("a state");
        let old = keys.take_open(&slot);
        update_keys(&mut keys, &mut slot);
        keys.keep_open(&slot, old);
        assert!(keys.keys_of(&slot).open.is_none());
    }

    #[test]
    fn the_keys_of_a_connection_that_ended_are_dropped() {
        let mut keys = KeptKeys::new();
        let (mut one, mut other) = (slot(1, 1).expect("a state"), slot(2, 2).expect("a state"));
        update_keys(&mut keys, &mut one);
        update_keys(&mut keys, &mut other);
        keys.forget(&one);
        assert!(keys.keys_of(&one).open.is_none() && keys.keys_of(&one).seal.is_none());
        assert!(keys.keys_of(&other).open.is_some() && keys.keys_of(&other).seal.is_some());
        keys.clear();
        assert!(keys.keys_of(&other).open.is_none() && keys.keys_of(&other).seal.is_none());
    }

    #[test]
    fn the_end_of_a_connection_leaves_the_keys_of_another_one() {
        let mut keys = KeptKeys::new();
        let quiet = slot(7, 1).expect("a state");
        let mut busy = slot(7 + PLACES as u32, 2).expect("a state");
        seal(&mut keys, &mut busy);
        keys.forget(&quiet);
        assert!(keys.keys_of(&busy).seal.is_some());
    }
}
