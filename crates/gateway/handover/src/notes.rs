//! Notes of a worker for its successor, in their own memory file.
//!
//! Only main can write a handover, because it contains the worker's confinement. The notes contain what
//! main can't know (the numbers of descriptors in the worker's table) and what the worker learns later
//! (addresses of backends). Only workers of the same keeper read them, so a compromised worker gains
//! nothing by forging them.
//!
//! Each note belongs to an edition of the configuration. A reload writes the notes for the next edition
//! before it installs the next handover, so after a crash either handover finds its notes.

use crate::document::Handover;
use crate::parts;
use dormouse_reactor::Fd;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

/// Notes of a worker.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Notes {
    editions: BTreeMap<u64, OfEdition>,
}

#[derive(Clone, Default, Serialize, Deserialize)]
struct OfEdition {
    /// The numbers of the listening sockets, in the order of the handover. Empty: the handover's numbers
    /// are valid.
    listeners: Vec<i32>,
    /// Current addresses by backend name.
    addresses: BTreeMap<String, Vec<SocketAddr>>,
}

impl Notes {
    /// Reads the predecessor's notes.
    ///
    /// # Errors
    /// The file does not contain notes.
    pub fn read(fd: Fd) -> io::Result<Notes> {
        let text = parts::read_text(fd)?;
        let notes = serde_json::from_str(&text);
        notes.map_err(|error| io::Error::other(format!("invalid worker notes: {error}")))
    }

    /// Writes the notes into a memory file.
    ///
    /// # Errors
    /// The system has no memory.
    pub fn write(&self) -> io::Result<Fd> {
        parts::write_text(&serde_json::to_string(self)?)
    }

    /// Replaces the file behind the descriptor `place` atomically.
    ///
    /// # Errors
    /// The system has no memory; the former notes stay.
    pub fn replace(&self, place: Fd) -> io::Result<()> {
        let written = self.write()?;
        written.move_to(place).inspect_err(|_| written.close())
    }

    /// Notes the listening sockets of the edition after `now`. Notes of earlier editions are dropped.
    pub fn note_listeners(&mut self, now: u64, next: u64, listeners: Vec<i32>) {
        self.editions.retain(|&edition, _| edition == now);
        let noted = OfEdition {
            listeners,
            addresses: BTreeMap::new(),
        };
        self.editions.insert(next, noted);
    }

    /// Notes the addresses of a backend. Returns `false` if they did not change.
    pub fn note_addresses(&mut self, edition: u64, name: &str, addresses: &[SocketAddr]) -> bool {
        let noted = &mut self.editions.entry(edition).or_default().addresses;
        let former = noted.insert(name.to_owned(), addresses.to_vec());
        former.is_none_or(|former| former != addresses)
    }

    /// Applies the notes of a handover's edition to the handover, except for its routes.
    pub fn apply(&self, handover: &mut Handover) {
        let Some(noted) = self.editions.get(&handover.edition) else {
            return;
        };
        let listeners = &mut handover.descriptors.listeners;
        if noted.listeners.len() == listeners.len() {
            for ((number, _), noted) in listeners.iter_mut().zip(&noted.listeners) {
                *number = *noted;
            }
        }
        for (name, found) in &noted.addresses {
            handover.config.set_addresses(name, found);
        }
    }

    /// The noted addresses of backends, by name. The routes of a handover are read later than its other parts.
    pub fn addresses(&self, edition: u64) -> BTreeMap<String, Vec<SocketAddr>> {
        let noted = self.editions.get(&edition);
        noted.map_or_else(BTreeMap::new, |noted| noted.addresses.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_kept_for_the_current_and_the_next_edition() {
        let mut notes = Notes::default();
        let place = notes.write().expect("a memory file");
        let backend = ["10.0.0.1:80".parse().expect("an address")];
        assert!(notes.note_addresses(1, "a:80", &backend));
        assert!(!notes.note_addresses(1, "a:80", &backend), "unchanged");
        notes.note_listeners(1, 2, vec![20, 21]);
        notes.note_listeners(2, 3, vec![30]);
        notes.replace(place).expect("replaced");
        let read = Notes::read(place).expect("notes");
        let editions: Vec<u64> = read.editions.keys().copied().collect();
        assert_eq!(editions, [2, 3]);
        assert_eq!(read.editions[&3].listeners, [30]);
        place.close();
    }
}
