//! What of one binary another one can go on with: versions of everything that outlives a process,
//! and the conversion of slots.
//!
//! A build reads its own layout of slots, and each older one for which there is an arm in
//! [`convert_slot`]. Everything else has one version; who changes it raises it, and an upgrade from
//! a build with another version is refused before anything is stopped.

use crate::parts::HANDOVER_VERSION;
#[cfg(debug_assertions)]
use crate::slot::TRIAL_VERSION;
use crate::slot::{ID_SEED_NOTE, Phase, SLOT_LAYOUT_VERSION, Slot};
use dormouse_reactor::slab::{Foreign, Slab};
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::atomic::Ordering;
use zerocopy::FromBytes as _;

/// Versions of what passes from one binary to the next.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Formats {
    /// The layout of slots.
    slots: u32,
    /// The handover of main to keepers and workers.
    handover: u64,
    /// Chunks of pending memory.
    pending: u32,
    /// The mapping of the counters (their names may change without a new version).
    shared: u32,
    /// What epoll's 64 bits say.
    tokens: u32,
    /// What main, keepers and workers say to each other during an upgrade.
    words: u32,
    /// What main leaves for itself.
    main: u32,
}

impl Formats {
    /// This build's.
    pub fn ours() -> Formats {
        Formats {
            slots: SLOT_LAYOUT_VERSION,
            handover: HANDOVER_VERSION,
            pending: 1,
            shared: 2,
            tokens: 1,
            words: 2,
            main: 2,
        }
    }

    /// Whether this build goes on with what one of these formats left. The error says which part
    /// is the matter.
    pub fn check(&self) -> Result<(), String> {
        let ours = Formats::ours();
        if !reads(self.slots) {
            return Err(format!(
                "the running binary keeps connections in layout {}, the new one can read {} only",
                self.slots, ours.slots
            ));
        }
        let others = [
            ("handover", self.handover, ours.handover),
            ("pending memory", self.pending.into(), ours.pending.into()),
            ("counters", self.shared.into(), ours.shared.into()),
            ("epoll's tokens", self.tokens.into(), ours.tokens.into()),
            ("messages", self.words.into(), ours.words.into()),
            ("main's state", self.main.into(), ours.main.into()),
        ];
        match others.into_iter().find(|(_, theirs, ours)| theirs != ours) {
            None => Ok(()),
            Some((what, theirs, ours)) => Err(format!(
                "the format of {what} is version {theirs} in the running binary, {ours} in the new one"
            )),
        }
    }
}

fn reads(version: u32) -> bool {
    #[cfg(debug_assertions)]
    if [1, TRIAL_VERSION].contains(&version) {
        return true;
    }
    version == SLOT_LAYOUT_VERSION
}

/// Copies all slots, converted, into new memory. The old memory is not changed.
pub fn convert(from: &Foreign) -> io::Result<Slab<Slot>> {
    let header = from.header();
    let version = header.layout();
    if let Some(index) = header.busy() {
        return Err(io::Error::other(format!(
            "connection {index} was being worked on"
        )));
    }
    let mut slots = Slab::<Slot>::create("dormouse-slots", header.capacity(), SLOT_LAYOUT_VERSION)?;
    let fd = slots.fd();
    let all = from.for_each(|index, bytes| {
        let slot = convert_slot(version, bytes).ok_or_else(|| {
            io::Error::other(format!("slots of layout {version} cannot be converted"))
        })?;
        if slot.phase() == Phase::Free {
            return Ok(());
        }
        if !slot.is_sound() || !slots.put(index, &slot) {
            return Err(io::Error::other(format!(
                "connection {index} makes no sense to the new binary"
            )));
        }
        Ok(())
    });
    all.inspect_err(|_| fd.close())?;
    slots.header().set_epoll(header.epoll());
    let notes = (header.note(ID_SEED_NOTE), slots.header().note(ID_SEED_NOTE));
    if let (Some(former), Some(note)) = notes {
        note.store(former.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    Ok(slots)
}

/// A slot of another build. `None`: of a layout that is not known here.
pub(crate) fn convert_slot(version: u32, bytes: &[u8]) -> Option<Slot> {
    #[cfg(debug_assertions)]
    if version != SLOT_LAYOUT_VERSION && reads(version) {
        return swap_times(bytes);
    }
    (version == SLOT_LAYOUT_VERSION).then(|| Slot::read_from_bytes(bytes).ok())?
}

/// Between layouts 1 and [`TRIAL_VERSION`]: `opened_s` and `active_s` have changed places.
#[cfg(debug_assertions)]
fn swap_times(bytes: &[u8]) -> Option<Slot> {
    let mut slot = Slot::read_from_bytes(bytes).ok()?;
    (slot.opened_s, slot.active_s) = (slot.active_s, slot.opened_s);
    Some(slot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::{FromZeros as _, IntoBytes as _};

    #[test]
    fn a_build_goes_on_with_its_own_formats_and_names_what_it_cannot_read() {
        assert_eq!(Formats::ours().check(), Ok(()));
        let mut other = Formats::ours();
        other.slots = 999;
        let why = other.check().expect_err("an unknown layout");
        assert!(why.contains("layout 999"), "{why}");
        let mut other = Formats::ours();
        other.pending = 9;
        let why = other.check().expect_err("another version");
        assert!(why.contains("pending memory is version 9"), "{why}");
    }

    #[test]
    fn there_and_back_is_what_it_was() {
        let mut slot = Slot::new_zeroed();
        (slot.opened_s, slot.active_s, slot.generation) = (5, 9, 3);
        let other = if SLOT_LAYOUT_VERSION == 1 {
            TRIAL_VERSION
        } else {
            1
        };
        let there = convert_slot(other, slot.as_bytes()).expect("a known layout");
        assert_eq!((there.opened_s, there.active_s), (9, 5));
        let back = convert_slot(other, there.as_bytes()).expect("a known layout");
        assert_eq!(back.as_bytes(), slot.as_bytes());
        assert!(convert_slot(999, slot.as_bytes()).is_none());
    }
}
