//! What a worker notes for the worker that comes after it, in a memory file of its own.
//!
//! A handover is main's, and nobody else can write one: what confines a worker stands there. What
//! main can't know, the numbers that descriptors got in the worker's table, and what a worker hears
//! later, stands here. Nobody but workers of one pair reads it, and they could change all that it
//! says in any case.
//!
//! Each note belongs to an edition of the configuration. A reload notes what the next edition needs
//! before it puts the next handover in place: whichever a crash leaves finds its notes.

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
    /// The numbers of the listening sockets, in the order of the handover; none if they are those
    /// of the handover.
    listeners: Vec<i32>,
    /// What names of backends stand for now.
    addresses: BTreeMap<String, Vec<SocketAddr>>,
}

impl Notes {
    /// Reads the notes of the worker before.
    ///
    /// # Errors
    /// They are none.
    pub fn read(fd: Fd) -> io::Result<Notes> {
        let text = parts::read_text(fd)?;
        let notes = serde_json::from_str(&text);
        notes.map_err(|error| io::Error::other(format!("a worker's notes: {error}")))
    }

    /// Writes them into a memory file.
    ///
    /// # Errors
    /// The system has no memory.
    pub fn write(&self) -> io::Result<Fd> {
        parts::write_text(&serde_json::to_string(self)?)
    }

    /// Puts them in place of the ones in `place`, in one step.
    ///
    /// # Errors
    /// The system has no memory; the former notes stay.
    pub fn replace(&self, place: Fd) -> io::Result<()> {
        let written = self.write()?;
        written.move_to(place).inspect_err(|_| written.close())
    }

    /// Notes the listening sockets of the edition that comes after `now`. Notes of former editions
    /// are dropped.
    pub fn note_listeners(&mut self, now: u64, next: u64, listeners: Vec<i32>) {
        self.editions.retain(|&edition, _| edition == now);
        let noted = OfEdition {
            listeners,
            addresses: BTreeMap::new(),
        };
        self.editions.insert(next, noted);
    }

    /// Notes the addresses of a backend. `false`: they were noted before.
    pub fn note_addresses(&mut self, edition: u64, name: &str, addresses: &[SocketAddr]) -> bool {
        let noted = &mut self.editions.entry(edition).or_default().addresses;
        let former = noted.insert(name.to_owned(), addresses.to_vec());
        former.is_none_or(|former| former != addresses)
    }

    /// Enters into a handover what was noted for its edition.
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
        if noted.addresses.is_empty() {
            return;
        }
        let routes = &mut handover.config.routes;
        let upstreams = routes.iter_mut().flat_map(|route| &mut route.to);
        for backend in upstreams.map(|upstream| &mut upstream.backend) {
            let found = backend.name().and_then(|name| noted.addresses.get(name));
            if let Some(found) = found {
                backend.set_addresses(found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_kept_for_its_edition_and_the_one_before() {
        let mut notes = Notes::default();
        let place = notes.write().expect("a memory file");
        let backend = ["10.0.0.1:80".parse().expect("an address")];
        assert!(notes.note_addresses(1, "a:80", &backend));
        assert!(!notes.note_addresses(1, "a:80", &backend), "known");
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
