//! The worker's table of expanded keys ([`dormouse_record::KeptKeys`]): a connection is known by its generation.

use dormouse_handover::slot::Slot;
use dormouse_record::{BothKeys, OpenKey, SealKey};

/// The table. A key that was taken out is returned after the event.
#[derive(Default)]
pub(crate) struct KeptKeys(dormouse_record::KeptKeys);

impl KeptKeys {
    pub(crate) fn keep(&mut self, slot: &Slot, keys: BothKeys) {
        self.0.keep(slot.generation.into(), &slot.tls, keys);
    }

    pub(crate) fn take_open(&mut self, slot: &Slot) -> Box<OpenKey> {
        self.0.take_open(slot.generation.into(), &slot.tls)
    }

    pub(crate) fn take_seal(&mut self, slot: &Slot) -> Box<SealKey> {
        self.0.take_seal(slot.generation.into(), &slot.tls)
    }

    pub(crate) fn keep_open(&mut self, slot: &Slot, key: Box<OpenKey>) {
        self.0.keep_open(slot.generation.into(), &slot.tls, key);
    }

    pub(crate) fn keep_seal(&mut self, slot: &Slot, key: Box<SealKey>) {
        self.0.keep_seal(slot.generation.into(), &slot.tls, key);
    }

    pub(crate) fn forget(&mut self, slot: &Slot) {
        self.0.forget(slot.generation.into());
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
