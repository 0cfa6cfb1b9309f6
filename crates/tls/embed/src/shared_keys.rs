//! Expanded keys of the busy connections of a process whose connections move between threads.

use std::sync::{Mutex, PoisonError};

use dormouse_engine::UnixTime;
use dormouse_record::{SealError, State};

use crate::at_rest::{self, Received};
use crate::kept_keys::KeptKeys;

/// Tables of [`KeptKeys`], one for each core, that threads lock separately. A connection has its place in one of them: if
/// each thread had a table, the keys of a connection that ended in another thread would stay.
#[derive(Debug)]
pub struct SharedKeys {
    tables: Vec<Mutex<KeptKeys>>,
}

const TABLES_MAX: usize = 16;

impl Default for SharedKeys {
    fn default() -> SharedKeys {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        SharedKeys {
            tables: std::iter::repeat_with(Mutex::default)
                .take(cores.min(TABLES_MAX))
                .collect(),
        }
    }
}

impl SharedKeys {
    /// Calls `work` with the connection's table, which is locked meanwhile, and with its number there.
    pub fn with<T>(&self, number: u64, work: impl FnOnce(&mut KeptKeys, u64) -> T) -> T {
        let tables = self.tables.len() as u64;
        let table = self.tables.get((number % tables) as usize);
        match table {
            Some(table) => {
                let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
                work(&mut table, number / tables)
            }
            None => work(&mut KeptKeys::default(), number),
        }
    }

    /// Does the same as [`at_rest::receive`] without a receiver of tickets. No table is locked while records are opened.
    pub fn receive(
        &self,
        number: u64,
        state: &mut State,
        now: UnixTime,
        buf: &mut [u8],
        output: &mut [u8],
    ) -> Result<Received, SealError> {
        let mut key = self.with(number, |keys, number| keys.0.take_open(number, state));
        let received = at_rest::receive_with(state, &mut key, now, buf, output, None);
        self.with(number, |keys, number| {
            keys.0.keep_open(number, state, key);
            // The answer to a KeyUpdate is sealed with a key of its own.
            keys.0.forget_replaced(number, state);
        });
        received
    }

    /// Does the same as [`at_rest::seal`]. No table is locked while records are sealed.
    pub fn seal(
        &self,
        number: u64,
        state: &mut State,
        plaintext: &[u8],
        output: &mut [u8],
    ) -> Result<usize, SealError> {
        let mut key = self.with(number, |keys, number| keys.0.take_seal(number, state));
        let sealed = at_rest::seal_with(state, &mut key, plaintext, output);
        self.with(number, |keys, number| keys.0.keep_seal(number, state, key));
        sealed
    }

    /// Wipes the keys of a connection whose secrets were replaced by a call that knows no kept keys.
    pub fn forget_replaced(&self, number: u64, state: &State) {
        self.with(number, |keys, number| keys.0.forget_replaced(number, state));
    }

    /// Wipes the keys of a connection that has ended.
    pub fn forget(&self, number: u64) {
        self.with(number, KeptKeys::forget);
    }
}
