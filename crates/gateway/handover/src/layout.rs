//! Compatibility between binaries: versions of everything that outlives a process, and the conversion of
//! slots.
//!
//! A build reads its own layout of slots, and each older layout that has an arm in [`convert_slot`]. Every
//! other format has one version, which a change must raise. An upgrade from a build with another version
//! is refused before anything is stopped.

use crate::parts::HANDOVER_VERSION;
use crate::slot::{GENERATION_NOTE, ID_SEED_NOTE, Phase, SLOT_LAYOUT_VERSION, Slot, TRIAL_VERSION};
use dormouse_reactor::slab::{Foreign, Slab};
use dormouse_tables::Dimensions;
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::atomic::Ordering;
use zerocopy::FromBytes as _;

/// Versions of all formats that pass from one binary to the next.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Formats {
    /// The layout of slots.
    slots: u32,
    /// The handover of main to keepers and workers.
    handover: u64,
    /// Chunks of pending memory.
    pending: u32,
    /// The tables that processes share: counters (their names may change without a new version), sessions, clients,
    /// backends, traffic.
    shared: u32,
    /// The dimensions of these tables, which a build cannot change without notice.
    #[serde(default)]
    dimensions: Dimensions,
    /// Epoll's tokens.
    tokens: u32,
    /// Messages between main, keepers and workers.
    words: u32,
    /// Main's own state.
    main: u32,
    /// Records of connections in deep rest, their table and ring, and the messages about them. Builds before the first
    /// version have none.
    #[serde(default = "first")]
    rest: u32,
}

fn first() -> u32 {
    1
}

impl Formats {
    /// The versions of this build.
    pub fn ours() -> Formats {
        Formats {
            slots: SLOT_LAYOUT_VERSION,
            handover: HANDOVER_VERSION,
            pending: 1,
            shared: 3,
            dimensions: dormouse_tables::dimensions(),
            tokens: 1,
            words: 5,
            main: 3,
            rest: 1,
        }
    }

    /// Checks whether this build can continue with data in these formats. The error names the format that
    /// it can't read.
    pub fn check(&self) -> Result<(), String> {
        let ours = Formats::ours();
        if !reads(self.slots) {
            return Err(format!(
                "connections are in layout {} in the running binary; the new one reads only layout {}",
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
            ("deep rest", self.rest.into(), ours.rest.into()),
        ];
        if let Some((what, theirs, ours)) =
            others.into_iter().find(|(_, theirs, ours)| theirs != ours)
        {
            return Err(format!(
                "the format of {what} is version {theirs} in the running binary and {ours} in the new one"
            ));
        }
        let differs = |name: &&String| self.dimensions.get(*name) != ours.dimensions.get(*name);
        let names = self.dimensions.keys().chain(ours.dimensions.keys());
        match names.into_iter().find(differs) {
            None => Ok(()),
            Some(name) => Err(format!(
                "the table of {name} has the dimensions {:?} in the running binary and {:?} in the new one",
                self.dimensions.get(name),
                ours.dimensions.get(name)
            )),
        }
    }
}

fn reads(version: u32) -> bool {
    let is_for_trial = cfg!(debug_assertions) && [1, TRIAL_VERSION].contains(&version);
    is_for_trial || version == SLOT_LAYOUT_VERSION
}

/// Copies all slots, converted, into new memory. The old memory is not changed.
pub fn convert(from: &Foreign) -> io::Result<Slab<Slot>> {
    let header = from.header();
    let version = header.layout();
    if let Some(index) = header.busy() {
        return Err(io::Error::other(format!("slot {index} is marked busy")));
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
                "slot {index} is invalid for the new binary"
            )));
        }
        Ok(())
    });
    all.inspect_err(|_| fd.close())?;
    slots.header().set_epoll(header.epoll());
    for note in [ID_SEED_NOTE, GENERATION_NOTE] {
        if let (Some(former), Some(note)) = (header.note(note), slots.header().note(note)) {
            note.store(former.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
    Ok(slots)
}

/// Converts a slot of another build. `None`: this build does not know the layout.
pub(crate) fn convert_slot(version: u32, bytes: &[u8]) -> Option<Slot> {
    if version != SLOT_LAYOUT_VERSION && reads(version) {
        return swap_times(bytes);
    }
    (version == SLOT_LAYOUT_VERSION).then(|| Slot::read_from_bytes(bytes).ok())?
}

/// Converts between layouts 1 and [`TRIAL_VERSION`], in which `opened_s` and `active_s` are swapped.
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
    fn accepts_its_own_formats_and_names_the_one_it_cannot_read() {
        assert_eq!(Formats::ours().check(), Ok(()));
        let mut other = Formats::ours();
        other.slots = 999;
        let why = other.check().expect_err("an unknown layout");
        assert!(why.contains("layout 999"), "{why}");
        let mut other = Formats::ours();
        other.pending = 9;
        let why = other.check().expect_err("another version");
        assert!(why.contains("pending memory is version 9"), "{why}");
        for name in Formats::ours().dimensions.into_keys() {
            let mut other = Formats::ours();
            other.dimensions.insert(name.clone(), vec![1]);
            let why = other.check().expect_err("a table of another length");
            assert!(why.contains(&format!("the table of {name}")), "{why}");
            other.dimensions.remove(&name);
            assert!(other.check().is_err(), "{name}");
        }
        let mut other = Formats::ours();
        other.dimensions.insert("leases".to_owned(), vec![1]);
        assert!(
            other.check().is_err(),
            "a table that this build does not have"
        );
    }

    #[test]
    fn conversion_round_trips() {
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
