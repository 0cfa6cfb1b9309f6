//! Recovery of a dead worker's connections, by its successor.
//!
//! The sockets are open, the epoll instance still watches them, and the slots hold the state. Three
//! things need repair: the busy connection is reset (its sequence numbers may be used, its bytes may be
//! half delivered); descriptors that no slot names (handshakes, or a connection that was just being
//! admitted) are closed; timers and free lists, which were in the heap, are rebuilt.
//!
//! The check that each socket is still the same one is deferred (`unverified.rs`).

use crate::close_reason::CloseReason;
use crate::established::Moved;
use crate::established::interest;
use crate::established::logged;
use crate::established::unverified::{self, Unverified};
use crate::io::Io;
use crate::traffic;
use crate::workspace::Workspace;
use dormouse_handover::slot::{Flag, SIDES, SideRest, Slot, TimerPurpose};
use dormouse_reactor::Fd;
use dormouse_reactor::slab::Slab;
use dormouse_reactor::timer::Timer;
use dormouse_tables::counters::Count;
use std::io;

/// The kernel's usual limit of descriptor numbers (fs.nr_open).
const NUMBERS_MAX: u64 = 1 << 20;

/// A set of descriptors as a bitmap, since their numbers are small and dense.
struct FdSet {
    words: Vec<u64>,
    /// No descriptor has a number from here on. A compromised predecessor can write any number into a slot, and a bitmap
    /// for all takes 256 MiB and seconds.
    max: u64,
}

impl FdSet {
    /// `limit`: the limit of this process. It may have been higher when some descriptors were opened.
    fn new(limit: u64) -> FdSet {
        FdSet {
            words: Vec::new(),
            max: limit.max(NUMBERS_MAX),
        }
    }

    /// Adds a descriptor. Returns `false` if it was in the set already, or is none.
    fn insert(&mut self, fd: Fd) -> bool {
        let number = usize::try_from(fd.0).ok();
        let Some(number) = number.filter(|&number| (number as u64) < self.max) else {
            return false;
        };
        if self.words.len() <= number / 64 {
            self.words.resize(number / 64 + 1, 0);
        }
        let word = &mut self.words[number / 64];
        let is_new = *word & 1 << (number % 64) == 0;
        *word |= 1 << (number % 64);
        is_new
    }

    /// Removes a descriptor.
    fn remove(&mut self, fd: Fd) {
        let number = usize::try_from(fd.0).unwrap_or(usize::MAX);
        if let Some(word) = self.words.get_mut(number / 64) {
            *word &= !(1 << (number % 64));
        }
    }

    /// All descriptors, in order.
    fn sorted(&self) -> Vec<Fd> {
        let words = self.words.iter().enumerate();
        words
            .flat_map(|(at, &word)| {
                (0..64)
                    .filter(move |bit| word & 1 << bit != 0)
                    .map(move |bit| Fd((at * 64 + bit) as i32))
            })
            .collect()
    }
}

/// What recovery needs besides the slots.
pub(crate) struct Inherited {
    /// The slot that the predecessor was moving when it died.
    pub(crate) moved: Option<Moved>,
    /// Listeners, and the channel to main.
    pub(crate) ours: Vec<Fd>,
    /// Other descriptors that belong to no slot and must stay open.
    pub(crate) keep: Vec<Fd>,
}

/// Result of a recovery.
pub(crate) struct Recovered {
    /// Slots whose sockets are not verified yet.
    pub(crate) unverified: Unverified,
    /// Whether the predecessor's poller is still in use. `None`: there was no predecessor.
    pub(crate) same_poller: Option<bool>,
}

/// Takes over the slots, and repairs them if there was a predecessor.
pub(crate) fn take_over<I: Io>(
    slots: &mut Slab<Slot>,
    inherited: &Inherited,
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
    for &fd in &inherited.ours {
        // Fails if the predecessor did not poll it. At first, nothing here is polled.
        let _ = work.io.unwatch(fd);
    }
    let unverified = repair(slots, inherited, work)?;
    // The first worker of a new binary also takes over connections, but no worker has died.
    if slots.header().adoptions() > 1 {
        work.count.add(Count::Restarts, 1);
    }
    Ok(Recovered {
        unverified,
        same_poller: Some(former == poller),
    })
}

/// Repairs the slots of a predecessor. Returns those whose sockets are not verified yet.
fn repair<I: Io>(
    slots: &mut Slab<Slot>,
    inherited: &Inherited,
    work: &mut Workspace<I>,
) -> io::Result<Unverified> {
    finish_log_move(slots, inherited, work);
    reset_busy(slots, work);
    let (named, unverified) = drop_unsound(slots, work);
    close_unowned(inherited, named, &work.io)?;
    if let Some(slot) = inherited.moved.and_then(|moved| slots.get_mut(moved.to)) {
        forget_watches(slot, &work.io);
    }
    Ok(unverified)
}

/// Moves the connection log's entry after its slot, which the predecessor may not have done. Comes first: a slot that is
/// reset or dropped writes its line.
fn finish_log_move<I: Io>(slots: &Slab<Slot>, inherited: &Inherited, work: &mut Workspace<I>) {
    if let Some(Moved { from, to }) = inherited.moved
        && slots.get(to).is_some()
    {
        let is_last = logged::is_last_of_page(slots, from);
        work.connection_log.moved(from, to, is_last);
    }
}

/// Resets the busy connection on both sides, whatever its state.
fn reset_busy<I: Io>(slots: &mut Slab<Slot>, work: &mut Workspace<I>) {
    let Some(index) = slots.header().busy() else {
        return;
    };
    if let Some(slot) = slots.get(index) {
        traffic::count_sudden_close(slot, CloseReason::Crash, work);
        unverified::reset(slots, index, work);
        tracing::warn!("connection reset after a crash");
    }
    slots.header().clear_busy();
}

/// Drops slots that are inconsistent, or whose descriptors belong to another slot. The others forget the
/// predecessor's heap. Returns the descriptors of these, and these slots as unverified.
fn drop_unsound<I: Io>(slots: &mut Slab<Slot>, work: &mut Workspace<I>) -> (FdSet, Unverified) {
    let mut named = FdSet::new(work.io.descriptors_max());
    let mut unverified = Unverified::default();
    let live: Vec<u32> = slots.indices().collect();
    for index in live {
        settle_rest(slots.at_mut(index), &work.io);
        let slot = slots.at(index);
        let (tls, plain) = (slot.tls_fd(), slot.plain_fd());
        let has_no_socket = tls == Fd::NONE && slot.is_sound();
        let names_tls = has_no_socket || (slot.is_sound() && named.insert(tls));
        let is_sound = names_tls && (plain == Fd::NONE || (plain.0 > 2 && named.insert(plain)));
        if is_sound {
            unverified.add(index);
            work.note_generation(slot.generation);
            forget_heap(slots.at_mut(index));
        } else {
            if names_tls {
                // It is closed with those that no slot names.
                named.remove(tls);
            }
            // Its descriptors may be those of another slot.
            unverified::note_unsound(slots, index, work);
            unverified::give_up(slots, index, work);
        }
    }
    (named, unverified)
}

/// Finishes the change of a side's rest during which the predecessor died.
fn settle_rest(slot: &mut Slot, io: &impl Io) {
    for side in SIDES {
        match slot.side_rest(side) {
            // Its descriptor is closed with those that no slot names. If it was that of a wake, the message with it is
            // still in the channel.
            SideRest::Abed | SideRest::Gone => {
                slot.take_side_fd(side);
            }
            SideRest::Between => {
                let cookie = io.cookie(slot.side_fd(side)).unwrap_or(0) as u32;
                slot.wake_up(side, cookie);
            }
            SideRest::Awake | SideRest::Bedding | SideRest::Waking => {}
        }
    }
    // A side that goes to rest is removed from epoll, and so is the awake one of a connection that is wanted. The
    // predecessor may have done only one of this and noting it.
    let goes_to_rest = |side| slot.side_rest(side) == SideRest::Bedding;
    if slot.is_wanted() || SIDES.into_iter().any(goes_to_rest) {
        forget_watches(slot, io);
    }
}

/// Closes every descriptor of the shared table without an owner: above all those of handshakes.
fn close_unowned(inherited: &Inherited, mut known: FdSet, io: &impl Io) -> io::Result<()> {
    let always = [Fd(0), Fd(1), Fd(2), io.poller()];
    for &fd in always.iter().chain(&inherited.ours).chain(&inherited.keep) {
        known.insert(fd);
    }
    io.close_all_but(&mut known.sorted())
}

/// Removes both sockets of a slot from epoll, whatever the slot says of it. They are added again later.
fn forget_watches(slot: &mut Slot, io: &impl Io) {
    for fd in [slot.tls_fd(), slot.plain_fd()] {
        let _ = io.unwatch(fd);
    }
    interest::forget(slot);
}

/// Resets the parts of a slot that refer to timers and lists in the predecessor's heap.
fn forget_heap(slot: &mut Slot) {
    slot.set_timer_purpose(TimerPurpose::None);
    slot.timer = Timer::default();
    // Connections that waited for memory are read once, and wait again if it is still short.
    slot.clear(Flag::Starved);
    slot.clear(Flag::SealingStarved);
    slot.clear(Flag::AwaitsRecord);
    slot.clear(Flag::OpeningHeld);
    slot.clear(Flag::SealingHeld);
    // The charged bytes are in a shared table, so the next step finds the wait again.
    slot.clear(Flag::Paced);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_descriptors_reports_duplicates() {
        let mut set = FdSet::new(1024);
        assert!(set.insert(Fd(200)) && set.insert(Fd(3)));
        assert!(!set.insert(Fd(200)), "a duplicate");
        assert!(!set.insert(Fd::NONE), "no descriptor");
        assert!(!set.insert(Fd(i32::MAX)), "a number that no descriptor has");
        assert!(set.insert(Fd(NUMBERS_MAX as i32 - 1)));
        assert_eq!(set.words.len() as u64, NUMBERS_MAX / 64);
        assert_eq!(set.sorted()[..2], [Fd(3), Fd(200)]);
    }
}
