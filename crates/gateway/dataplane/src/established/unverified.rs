//! Slots of a predecessor whose sockets are not verified yet.
//!
//! A descriptor in a slot is valid only if it still names the same socket; the kernel's socket cookie
//! proves that. With thousands of connections, these checks take longer than the rest of a recovery,
//! so each is deferred until the slot is first used.

use crate::close_reason::CloseReason;
use crate::established::logged;
use crate::io::Io;
use crate::memory::backlog;
use crate::traffic;
use crate::workspace::Workspace;
use dormouse_handover::slot::{Side, SideRest, Slot};
use dormouse_reactor::Fd;
use dormouse_reactor::slab::Slab;

/// The set of unverified slots, one bit each.
#[derive(Debug, Default)]
pub(crate) struct Unverified {
    words: Vec<u64>,
    left: usize,
    next: usize,
}

impl Unverified {
    /// Whether all slots are verified.
    pub(crate) fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Adds a slot.
    pub(crate) fn add(&mut self, index: u32) {
        let at = index as usize / 64;
        if self.words.len() <= at {
            self.words.resize(at + 1, 0);
        }
        self.words[at] |= 1 << (index % 64);
        self.left += 1;
    }

    /// Removes a slot. Returns `false` if it was not in the set.
    pub(crate) fn take(&mut self, index: u32) -> bool {
        let bit = 1 << (index % 64);
        match self.words.get_mut(index as usize / 64) {
            Some(word) if *word & bit != 0 => {
                *word &= !bit;
                self.left -= 1;
                true
            }
            _ => false,
        }
    }

    /// Returns the lowest unverified slot.
    pub(crate) fn next(&mut self) -> Option<u32> {
        while let Some(word) = self.words.get(self.next) {
            if *word != 0 {
                return Some(self.next as u32 * 64 + word.trailing_zeros());
            }
            self.next += 1;
        }
        *self = Unverified::default();
        None
    }
}

/// Whether the descriptor names the socket with this cookie.
fn is_same_socket(fd: Fd, cookie: u32, io: &impl Io) -> bool {
    io.cookie(fd).is_ok_and(|now| now as u32 == cookie)
}

/// Whether both descriptors of the slot name the same sockets as before.
pub(crate) fn are_same_sockets(slot: &Slot, io: &impl Io) -> bool {
    // The others have a record's number in place of a cookie.
    let is_awake = |side| slot.side_rest(side) == SideRest::Awake;
    let plain = slot.plain_fd();
    (!is_awake(Side::Tls) || is_same_socket(slot.tls_fd(), slot.tls_cookie, io))
        && (!is_awake(Side::Plain)
            || plain == Fd::NONE
            || is_same_socket(plain, slot.plain_cookie, io))
}

/// Counts and logs an invalid slot, which the caller drops.
pub(crate) fn note_unsound<I: Io>(slots: &Slab<Slot>, index: u32, work: &Workspace<I>) {
    traffic::count_sudden_close(slots.at(index), CloseReason::Limit, work);
    tracing::error!(slot = index, "invalid slot dropped after a crash");
}

/// Frees a slot that can't be continued, and resets those of its sockets that are still the same.
pub(crate) fn reset<I: Io>(slots: &mut Slab<Slot>, index: u32, work: &mut Workspace<I>) {
    let slot = slots.at(index);
    let both = [
        (slot.tls_fd(), slot.tls_cookie),
        (slot.plain_fd(), slot.plain_cookie),
    ];
    let same = both.map(|(fd, cookie)| {
        let is_own = fd.0 > 2 && is_same_socket(fd, cookie, &work.io);
        is_own.then_some(fd)
    });
    let same = same.into_iter().flatten();
    // First: if this worker dies, too, the next one only finds sockets that no slot names.
    same.clone().for_each(|fd| work.io.reset_on_close(fd));
    give_up(slots, index, work);
    same.for_each(|fd| work.io.close(fd));
}

/// Frees a slot and its pending chunks. The chunks were adopted before the slot was checked, so they
/// would leak otherwise.
pub(crate) fn give_up<I: Io>(slots: &mut Slab<Slot>, index: u32, work: &mut Workspace<I>) {
    logged::write_line(slots, index, Some(CloseReason::Crash), work);
    let slot = slots.at_mut(index);
    slot.tls.wipe();
    work.clients.leave(slot.client());
    backlog::free_opening(slot, &mut work.pending);
    backlog::free_sealed(slot, &mut work.pending);
    slots.free(index);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slot_is_verified_once() {
        let mut unverified = Unverified::default();
        for index in [0, 63, 64, 1000] {
            unverified.add(index);
        }
        assert!(unverified.take(64));
        assert!(!unverified.take(64), "already verified");
        assert!(!unverified.take(5), "never added");
        let mut rest = Vec::new();
        while let Some(index) = unverified.next() {
            assert!(unverified.take(index));
            rest.push(index);
        }
        assert_eq!(rest, [0, 63, 1000]);
        assert!(unverified.is_empty());
    }
}
