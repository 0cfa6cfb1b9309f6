//! Expanded keys of the sessions that had the latest events.

use dormouse_engine::UnixTime;
use dormouse_record::{OpenKey, SealKey};

use crate::at_rest::Received;
use crate::error::SessionError;
use crate::session::Session;

/// Places in the table. The two keys of a session take 1.3 kB.
const PLACES: usize = 64;

/// A small table of expanded keys. A session at rest has none, and expanding one costs more than the rest of a small
/// record. So a host with many sessions keeps those of the busy ones here, usually in a table for each thread: a quiet
/// session has lost its place to others.
///
/// A session is known by a number that the host chooses. The host calls [`KeptKeys::forget`] when a session ends, so that
/// its keys are wiped with it. A key is only used with the secret from which it was expanded, and is not kept when the
/// secret was replaced.
#[derive(Debug)]
pub struct KeptKeys {
    places: Vec<Keys>,
}

/// The keys of one session. They are boxed, so that taking them out of the table copies no secret.
#[derive(Debug, Default)]
struct Keys {
    session: u64,
    open: Option<Box<OpenKey>>,
    seal: Option<Box<SealKey>>,
}

impl KeptKeys {
    /// Returns an empty table.
    pub fn new() -> KeptKeys {
        KeptKeys {
            places: std::iter::repeat_with(Keys::default).take(PLACES).collect(),
        }
    }

    /// Does the same as [`Session::receive_at_rest`].
    pub fn receive_at_rest(
        &mut self,
        number: u64,
        session: &mut Session,
        now: UnixTime,
        buf: &mut [u8],
    ) -> Result<Option<Received>, SessionError> {
        if !session.is_at_rest() {
            return Ok(None);
        }
        let kept = self.keys_of(number).open.take();
        let mut key = kept.unwrap_or_else(|| Box::new(OpenKey::empty()));
        key.renew(session.state());
        let received = session.receive_at_rest_with(&mut key, now, buf);
        self.keys_of(number).open = key.is_current(session.state()).then_some(key);
        received
    }

    /// Does the same as [`Session::seal_into`].
    pub fn seal_into(
        &mut self,
        number: u64,
        session: &mut Session,
        plaintext: &[u8],
        output: &mut [u8],
    ) -> Result<usize, SessionError> {
        let kept = self.keys_of(number).seal.take();
        let mut key = kept.unwrap_or_else(|| Box::new(SealKey::empty()));
        key.renew(session.state());
        let sealed = session.seal_into_with(&mut key, plaintext, output);
        self.keys_of(number).seal = key.is_current(session.state()).then_some(key);
        sealed
    }

    /// Wipes the keys of a session that has ended.
    pub fn forget(&mut self, number: u64) {
        let keys = self.place(number);
        if keys.session == number {
            *keys = Keys::default();
        }
    }

    /// Returns the session's place, without the keys of another session.
    fn keys_of(&mut self, number: u64) -> &mut Keys {
        let keys = self.place(number);
        if keys.session != number {
            *keys = Keys {
                session: number,
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

impl Default for KeptKeys {
    fn default() -> KeptKeys {
        KeptKeys::new()
    }
}
