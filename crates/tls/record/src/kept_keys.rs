//! Expanded keys of the connections that had the latest events.

use crate::key::{BothKeys, OpenKey, SealKey};
use crate::state::State;

/// Places in the table. The two keys of a connection take 1.3 kB.
const PLACES: usize = 64;

/// A small table of expanded keys. A connection at rest has none, only its secrets, and expanding a key costs more than
/// everything else in a small record. So a host with many connections keeps those of the busy ones here, usually in a
/// table for each thread: a new or busy connection finds its keys, a quiet one has lost its place to others.
///
/// A connection is known by a number that the host chooses, and that no other one has at the same time. The host calls
/// [`KeptKeys::forget`] when a connection ends, so that its keys are wiped with it.
///
/// A key is used only with the secret from which it was expanded ([`OpenKey::renew`]). The table never holds a key whose
/// secret was replaced: after a key update nothing must be able to open earlier records.
#[derive(Debug)]
pub struct KeptKeys {
    places: Vec<Keys>,
}

/// The keys of one connection. They are boxed, so that taking them out of the table copies no secret.
#[derive(Debug, Default)]
struct Keys {
    number: u64,
    open: Option<Box<OpenKey>>,
    seal: Option<Box<SealKey>>,
}

impl Default for KeptKeys {
    fn default() -> KeptKeys {
        KeptKeys {
            places: std::iter::repeat_with(Keys::default).take(PLACES).collect(),
        }
    }
}

impl KeptKeys {
    /// Takes out the key that opens the peer's next record. The caller returns it with [`KeptKeys::keep_open`].
    pub fn take_open(&mut self, number: u64, state: &State) -> Box<OpenKey> {
        let kept = self.keys_of(number).open.take();
        let mut key = kept.unwrap_or_else(|| Box::new(OpenKey::empty()));
        key.renew(state);
        key
    }

    /// Takes out the key that seals the next record to the peer. The caller returns it with [`KeptKeys::keep_seal`].
    pub fn take_seal(&mut self, number: u64, state: &State) -> Box<SealKey> {
        let kept = self.keys_of(number).seal.take();
        let mut key = kept.unwrap_or_else(|| Box::new(SealKey::empty()));
        key.renew(state);
        key
    }

    /// Keeps the key for the connection's next event, unless its secret was replaced.
    pub fn keep_open(&mut self, number: u64, state: &State, key: Box<OpenKey>) {
        self.keys_of(number).open = key.is_current(state).then_some(key);
    }

    /// Keeps the key for the connection's next event, unless its secret was replaced.
    pub fn keep_seal(&mut self, number: u64, state: &State, key: Box<SealKey>) {
        self.keys_of(number).seal = key.is_current(state).then_some(key);
    }

    /// Wipes the connection's keys whose secrets were replaced. The host calls this after it has used another key than
    /// the table's, which may replace a secret, too.
    pub fn forget_replaced(&mut self, number: u64, state: &State) {
        let keys = self.place(number);
        if keys.number == number {
            drop(keys.open.take_if(|key| !key.is_current(state)));
            drop(keys.seal.take_if(|key| !key.is_current(state)));
        }
    }

    /// Keeps both keys for the connection's next event.
    pub fn keep(&mut self, number: u64, state: &State, keys: BothKeys) {
        self.keep_open(number, state, keys.open);
        self.keep_seal(number, state, keys.seal);
    }

    /// Wipes the keys of a connection that has ended. Keys of another connection in the same place stay.
    pub fn forget(&mut self, number: u64) {
        let keys = self.place(number);
        if keys.number == number {
            *keys = Keys::default();
        }
    }

    /// Wipes all keys. After a burst of handshakes they would prevent pages of the heap from being returned.
    pub fn clear(&mut self) {
        self.places.fill_with(Keys::default);
    }

    /// Returns the connection's place, without the keys of another connection.
    fn keys_of(&mut self, number: u64) -> &mut Keys {
        let keys = self.place(number);
        if keys.number != number {
            *keys = Keys {
                number,
                ..Keys::default()
            };
        }
        keys
    }

    #[expect(clippy::indexing_slicing, reason = "the remainder is below the length")]
    fn place(&mut self, number: u64) -> &mut Keys {
        &mut self.places[(number % PLACES as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Alert, AlertDescription, Misuse, Opened, Role, SMALL_RECORD_MAX, Suite, open, seal_alert,
        seal_key_update,
    };

    /// Two numbers with the same place.
    const NUMBER: u64 = 7;
    const SAME_PLACE: u64 = NUMBER + PLACES as u64;

    /// Returns a state with the same secret for both directions, so that it can open what it seals.
    fn state(secret: u8) -> Result<State, Misuse> {
        let mut state = State::default();
        let (suite, secret) = (Suite::Aes128GcmSha256, [secret; 32]);
        state.establish_tls13(Role::Server, suite, &secret, 0, &secret, 0)?;
        Ok(state)
    }

    /// Seals an alert with the table's key.
    fn seal(keys: &mut KeptKeys, number: u64, state: &mut State) {
        let mut key = keys.take_seal(number, state);
        let alert = Alert::fatal(AlertDescription::InternalError);
        seal_alert(state, &mut key, alert, &mut [0; SMALL_RECORD_MAX]).expect("an alert");
        keys.keep_seal(number, state, key);
    }

    /// Seals a KeyUpdate with the table's keys and opens it: both secrets are replaced.
    fn update_keys(keys: &mut KeptKeys, number: u64, state: &mut State) {
        let mut record = [0; SMALL_RECORD_MAX];
        let mut key = keys.take_seal(number, state);
        let n = seal_key_update(state, &mut key, &mut record).expect("a KeyUpdate");
        keys.keep_seal(number, state, key);
        let mut key = keys.take_open(number, state);
        let opened = open(state, &mut key, &mut record[..n]).expect("it opens");
        keys.keep_open(number, state, key);
        assert_eq!(opened, Opened::Handled { consumed: n });
    }

    #[test]
    fn connections_that_share_a_place_use_their_own_keys() {
        let mut keys = KeptKeys::default();
        let mut one = state(1).expect("a state");
        let mut other = state(2).expect("a state");
        for _ in 0..3 {
            update_keys(&mut keys, NUMBER, &mut one);
            update_keys(&mut keys, NUMBER, &mut one);
            update_keys(&mut keys, SAME_PLACE, &mut other);
        }
    }

    /// The number is compared even if the secrets agree in the bytes by which a key knows its secret.
    #[test]
    fn a_connection_never_gets_the_key_of_another_one() {
        let mut keys = KeptKeys::default();
        seal(&mut keys, NUMBER, &mut state(1).expect("a state"));
        assert!(keys.keys_of(NUMBER).seal.is_some());
        assert!(keys.keys_of(SAME_PLACE).seal.is_none());
    }

    #[test]
    fn a_key_whose_secret_was_replaced_is_not_kept() {
        let mut keys = KeptKeys::default();
        let mut state = state(1).expect("a state");
        let old = keys.take_open(NUMBER, &state);
        update_keys(&mut keys, NUMBER, &mut state);
        keys.keep_open(NUMBER, &state, old);
        assert!(keys.keys_of(NUMBER).open.is_none());
    }

    /// The answer to a KeyUpdate may be sealed with a key of its own.
    #[test]
    fn a_key_whose_secret_was_replaced_by_another_key_is_wiped() {
        let mut keys = KeptKeys::default();
        let mut state = state(1).expect("a state");
        let (open_key, seal_key) = (
            keys.take_open(NUMBER, &state),
            keys.take_seal(NUMBER, &state),
        );
        keys.keep_seal(NUMBER, &state, seal_key);
        let mut record = [0; SMALL_RECORD_MAX];
        let mut another = SealKey::new(&state);
        let n = seal_key_update(&mut state, &mut another, &mut record).expect("a KeyUpdate");
        keys.keep_open(NUMBER, &state, open_key);
        keys.forget_replaced(NUMBER, &state);
        assert!(keys.keys_of(NUMBER).seal.is_none());
        assert!(keys.keys_of(NUMBER).open.is_some());
        let mut another = OpenKey::new(&state);
        open(&mut state, &mut another, &mut record[..n]).expect("it opens");
        seal(&mut keys, NUMBER, &mut state);
        keys.forget_replaced(NUMBER, &state);
        assert!(keys.keys_of(NUMBER).open.is_none());
    }

    #[test]
    fn the_keys_of_a_connection_that_ended_are_wiped() {
        let mut keys = KeptKeys::default();
        let (mut one, mut other) = (state(1).expect("a state"), state(2).expect("a state"));
        update_keys(&mut keys, 1, &mut one);
        update_keys(&mut keys, 2, &mut other);
        keys.forget(1);
        assert!(keys.keys_of(1).open.is_none() && keys.keys_of(1).seal.is_none());
        assert!(keys.keys_of(2).open.is_some() && keys.keys_of(2).seal.is_some());
        keys.clear();
        assert!(keys.keys_of(2).open.is_none() && keys.keys_of(2).seal.is_none());
    }

    #[test]
    fn the_end_of_a_connection_leaves_the_keys_of_another_one() {
        let mut keys = KeptKeys::default();
        seal(&mut keys, SAME_PLACE, &mut state(2).expect("a state"));
        keys.forget(NUMBER);
        assert!(keys.keys_of(SAME_PLACE).seal.is_some());
    }
}
