//! What a new worker does with what a dead one left: nearly nothing.
//!
//! The sockets are open, the epoll descriptor still watches them, the slots say all there is to
//! say. Three things need repair: the one connection that was being worked on is reset (its
//! sequence numbers may be spent, its bytes may be half delivered); descriptors which no slot
//! names (handshakes, a connection half taken in) are closed; timers and free lists, which live in
//! the heap, are made again.
//!
//! One thing is put off: to verify, socket by socket, that each is still the one it was.

use crate::established::close_reason::CloseReason;
use crate::established::unverified::{self, Unverified, is_same_socket};
use crate::io::Io;
use crate::traffic;
use crate::workspace::Workspace;
use dormouse_handover::slot::{Flag, Phase, Slot, TimerPurpose};
use dormouse_reactor::Fd;
use dormouse_reactor::slab::Slab;
use dormouse_reactor::timer::Timer;
use dormouse_tables::counters::Count;
use std::io;

/// A set of descriptors: numbers are small and dense.
#[derive(Default)]
struct FdSet(Vec<u64>);

impl FdSet {
    /// False: it was in the set already.
    fn insert(&mut self, fd: Fd) -> bool {
        let Ok(number) = usize::try_from(fd.0) else {
            return false;
        };
        if self.0.len() <= number / 64 {
            self.0.resize(number / 64 + 1, 0);
        }
        let word = &mut self.0[number / 64];
        let is_new = *word & 1 << (number % 64) == 0;
        *word |= 1 << (number % 64);
        is_new
    }

    /// All of them, in order.
    fn sorted(&self) -> Vec<Fd> {
        let words = self.0.iter().enumerate();
        words
            .flat_map(|(at, &word)| {
                (0..64)
                    .filter(move |bit| word & 1 << bit != 0)
                    .map(move |bit| Fd((at * 64 + bit) as i32))
            })
            .collect()
    }
}

/// What there is to know besides the slots.
pub(crate) struct Found {
    /// A slot that the predecessor was moving when it died: where it was, and where it is.
    pub(crate) moved: Option<(u32, u32)>,
    /// Listeners, and the channel to main.
    pub(crate) ours: Vec<Fd>,
    /// Other descriptors that are to stay open and belong to no slot.
    pub(crate) keep: Vec<Fd>,
}

/// What a new worker goes on with.
pub(crate) struct Recovered {
    /// Slots whose sockets are still to be verified.
    pub(crate) unverified: Unverified,
    /// `None`: there was no predecessor. Else whether its poller goes on, too.
    pub(crate) same_poller: Option<bool>,
}

/// Takes the slots over, and puts right what a predecessor left in them, if there was one.
pub(crate) fn take_over<I: Io>(
    slots: &mut Slab<Slot>,
    found: &Found,
    work: &mut Workspace<I>,
) -> io::Result<Recovered> {
    let former = slots.header().epoll();
    let poller = work.io.poller();
    slots.header().set_epoll(poller);
    if former == Fd::NONE {
        return Ok(Recovered {
            unverified: Unverified::default(),
            same_poller: None,
        });
    }
    for &fd in &found.ours {
        // Whether it was polled when the predecessor died does not matter: it is not, at first.
        let _ = work.io.unwatch(fd);
    }
    let unverified = repair(slots, found, work)?;
    // The first worker of a new binary finds connections, too, but no worker died.
    if slots.header().adoptions() > 1 {
        work.count.add(Count::Restarts, 1);
    }
    Ok(Recovered {
        unverified,
        same_poller: Some(former == poller),
    })
}

/// Puts right what the predecessor left in the slots. Returns those whose sockets are still to be
/// verified.
fn repair<I: Io>(
    slots: &mut Slab<Slot>,
    found: &Found,
    work: &mut Workspace<I>,
) -> io::Result<Unverified> {
    reset_busy(slots, work);
    let (named, unverified) = drop_unsound(slots, work);
    close_strangers(found, named, &work.io)?;
    if let Some(slot) = found.moved.and_then(|(_, to)| slots.get_mut(to)) {
        forget_watches(slot, &work.io);
    }
    forget_heap(slots, work);
    Ok(unverified)
}

/// The connection that was being worked on is reset on both sides, whatever its state.
fn reset_busy<I: Io>(slots: &mut Slab<Slot>, work: &mut Workspace<I>) {
    let Some(index) = slots.header().busy() else {
        return;
    };
    if let Some(slot) = slots.get_mut(index) {
        let was_established = slot.phase() != Phase::Free;
        let fds = [slot.tls_fd(), slot.plain_fd()];
        let cookies = [slot.tls_cookie, slot.plain_cookie];
        if was_established {
            traffic::count_close(slot, CloseReason::Crash, work);
        }
        unverified::give_up(slots, index, work);
        for (fd, cookie) in fds.into_iter().zip(cookies) {
            if fd.0 > 2 && is_same_socket(fd, cookie, &work.io) {
                work.io.reset(fd);
            }
        }
        if was_established {
            tracing::warn!("connection reset after a crash");
        }
    }
    slots.header().clear_busy();
}

/// A slot is believed if it is sound, its descriptors belong to no other slot and (which is still to
/// be verified) are the sockets that they were. Returns the descriptors of the slots that are left.
fn drop_unsound<I: Io>(slots: &mut Slab<Slot>, work: &mut Workspace<I>) -> (FdSet, Unverified) {
    let mut named = FdSet::default();
    let mut unverified = Unverified::default();
    let live: Vec<u32> = slots.indices().collect();
    for index in live {
        let Some(slot) = slots.get(index) else {
            continue;
        };
        let (tls, plain) = (slot.tls_fd(), slot.plain_fd());
        let is_sound = slot.is_sound()
            && named.insert(tls)
            && (plain == Fd::NONE || (plain.0 > 2 && named.insert(plain)));
        if is_sound {
            unverified.add(index);
        } else {
            unverified::drop_unsound(slots, index, work);
        }
    }
    (named, unverified)
}

/// Closes every descriptor of the shared table that has no owner: above all handshakes.
fn close_strangers(found: &Found, mut known: FdSet, io: &impl Io) -> io::Result<()> {
    let always = [Fd(0), Fd(1), Fd(2), io.poller()];
    for &fd in always.iter().chain(&found.ours).chain(&found.keep) {
        known.insert(fd);
    }
    io.close_all_but(&mut known.sorted())
}

/// Epoll may know a slot that was being moved by its former index, on either side: it is told
/// anew, from the beginning.
fn forget_watches(slot: &mut Slot, io: &impl Io) {
    for fd in [slot.tls_fd(), slot.plain_fd()] {
        let _ = io.unwatch(fd);
    }
    (slot.tls_watch, slot.plain_watch) = (0, 0);
}

/// Timers and lists in the heap are gone with the predecessor.
fn forget_heap<I: Io>(slots: &mut Slab<Slot>, work: &mut Workspace<I>) {
    let live: Vec<u32> = slots.indices().collect();
    for index in live {
        let Some(slot) = slots.get_mut(index) else {
            continue;
        };
        work.note_generation(slot.generation);
        slot.set_timer_purpose(TimerPurpose::None);
        slot.timer = Timer::default();
        // Connections that waited for memory are read, and wait again.
        slot.clear(Flag::Starved);
        slot.clear(Flag::SealingStarved);
        // What is to be paid is in a table that is still there.
        slot.clear(Flag::Paced);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_descriptors_knows_what_is_in_it() {
        let mut set = FdSet::default();
        assert!(set.insert(Fd(200)) && set.insert(Fd(3)));
        assert!(!set.insert(Fd(200)), "named twice");
        assert!(!set.insert(Fd::NONE), "no descriptor at all");
        assert_eq!(set.sorted(), [Fd(3), Fd(200)]);
    }
}
