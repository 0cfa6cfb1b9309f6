//! Places of backends, and the results of their health checks.
//!
//! Main writes this table. All other processes map it read-only, so a compromised worker can neither move a
//! backend to another place nor change the result of a check.

use crate::hash;
use dormouse_reactor::memory::{PAGE, Words};
use dormouse_reactor::{AdoptError, Fd};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of backends in a configuration.
pub const BACKENDS_MAX: usize = 2_000;

/// Number of places: twice the maximum of a configuration, so that a reload can bring new backends.
pub(crate) const PLACES: usize = 2 * BACKENDS_MAX + 24;
/// Words per place: hash of the address; result of health checks.
pub(super) const WORDS_EACH: usize = 2;

/// Number of a backend's place, from 1 on. 0: the table was full; such a backend counts as up and idle.
pub type BackendPlace = u16;

/// Result of health checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum CheckedHealth {
    /// No check is configured, or none has finished yet.
    Unknown = 0,
    /// The backend is healthy.
    Up = 1,
    /// The backend is not healthy.
    Down = 2,
}

impl CheckedHealth {
    fn of(word: u64) -> CheckedHealth {
        match word {
            1 => CheckedHealth::Up,
            2 => CheckedHealth::Down,
            _ => CheckedHealth::Unknown,
        }
    }
}

/// The table, from one process's view.
#[derive(Clone, Debug)]
pub(super) struct Roster {
    words: Arc<Words>,
    /// Whether this process may write. In others, a store would be a fault of memory protection.
    is_writable: bool,
}

impl Roster {
    pub(super) fn create() -> io::Result<Roster> {
        Ok(Roster {
            words: Arc::new(Words::create("dormouse-roster", len())?),
            is_writable: true,
        })
    }

    /// Maps the table for main, after an upgrade.
    pub(super) fn adopt(fd: Fd) -> Result<Roster, AdoptError> {
        Ok(Roster {
            words: Arc::new(Words::adopt(fd, len())?),
            is_writable: true,
        })
    }

    /// Maps the table read-only.
    pub(super) fn view(fd: Fd) -> Result<Roster, AdoptError> {
        Ok(Roster {
            words: Arc::new(Words::adopt_to_read(fd, len())?),
            is_writable: false,
        })
    }

    pub(super) fn fd(&self) -> Fd {
        self.words.fd()
    }

    pub(super) fn reader(&self) -> io::Result<Fd> {
        self.words.reader()
    }

    /// Returns the place of the backend with this address. Main takes a free place if it has none. 0: it has
    /// no place.
    pub(super) fn place(&self, address: &str) -> BackendPlace {
        let key = hash::of_text(address);
        let start = key as usize % PLACES;
        let mut places = (0..PLACES).map(|step| ((start + step) % PLACES + 1) as BackendPlace);
        // Places before it may have been freed, so a free place does not end the search.
        let known = places.clone().find(|&place| self.key(place) == key);
        if known.is_some() || !self.is_writable {
            return known.unwrap_or(0);
        }
        let free = places.find(|&place| self.key(place) == 0).unwrap_or(0);
        if free != 0 {
            self.word(free, 0).store(key, Ordering::Release);
        }
        free
    }

    /// The hash of the address at a place; 0 if the place is free.
    pub(super) fn key(&self, place: BackendPlace) -> u64 {
        self.word(place, 0).load(Ordering::Acquire)
    }

    /// Frees a place.
    pub(super) fn free(&self, place: BackendPlace) {
        if self.is_writable {
            self.word(place, 1).store(0, Ordering::Relaxed);
            self.word(place, 0).store(0, Ordering::Release);
        }
    }

    pub(super) fn checked(&self, place: BackendPlace) -> CheckedHealth {
        CheckedHealth::of(self.word(place, 1).load(Ordering::Relaxed))
    }

    /// Notes the result of health checks. Returns the former result.
    pub(super) fn set_checked(&self, place: BackendPlace, checked: CheckedHealth) -> CheckedHealth {
        let former = self.checked(place);
        if self.is_writable {
            self.word(place, 1).store(checked as u64, Ordering::Relaxed);
        }
        former
    }

    fn word(&self, place: BackendPlace, n: usize) -> &AtomicU64 {
        let word = index(place) * WORDS_EACH + n;
        self.words.word_at(8 * word)
    }
}

pub(super) fn index(place: BackendPlace) -> usize {
    usize::from(place.max(1) - 1).min(PLACES - 1)
}

fn len() -> usize {
    (8 * PLACES * WORDS_EACH).next_multiple_of(PAGE)
}
