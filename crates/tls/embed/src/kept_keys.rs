//! Expanded keys of the sessions that had the latest events.

use dormouse_engine::UnixTime;

use crate::at_rest::Received;
use crate::error::SessionError;
use crate::session::Session;

/// Expanded keys of the busy sessions ([`dormouse_record::KeptKeys`]), usually in a table for each thread.
///
/// A session is known by a number that the host chooses, and that no other one has at the same time. The host calls
/// [`KeptKeys::forget`] when a session ends, so that its keys are wiped with it.
#[derive(Debug, Default)]
pub struct KeptKeys(pub(crate) dormouse_record::KeptKeys);

impl KeptKeys {
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
        let mut key = self.0.take_open(number, session.state());
        let received = session.receive_at_rest_with(&mut key, now, buf);
        self.0.keep_open(number, session.state(), key);
        // The answer to a KeyUpdate is sealed with a key of its own.
        self.forget_replaced(number, session);
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
        let mut key = self.0.take_seal(number, session.state());
        let sealed = session.seal_into_with(&mut key, plaintext, output);
        self.0.keep_seal(number, session.state(), key);
        sealed
    }

    /// Wipes the session's keys whose secrets were replaced. The host calls this after a call that knows no kept keys and
    /// may replace secrets, such as [`Session::feed`].
    pub fn forget_replaced(&mut self, number: u64, session: &Session) {
        self.0.forget_replaced(number, session.state());
    }

    /// Wipes the keys of a session that has ended.
    pub fn forget(&mut self, number: u64) {
        self.0.forget(number);
    }
}
