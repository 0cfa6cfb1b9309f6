//! What a new worker does with what a dead one left: nearly nothing.
//!
//! The sockets are open, the epoll descriptor still watches them, the slots say all there is to
//! say. Three things need repair: the one connection that was being worked on is reset (its
//! sequence numbers may be spent, its bytes may be half delivered); descriptors which no slot
//! names (handshakes, a connection half taken in) are closed; timers and free lists, which live in
//! the heap, are made again.
//!
//! One thing is put off: to ask the kernel, socket by socket, whether each is still the one it
//! was. With thousands of them that takes longer than all the rest. A slot is in *doubt* until
//! then, and its doubt is settled before anything is done with it.

use crate::counters::Count;
use crate::slot::{Flag, Phase, TimerPurpose};
use crate::worker::Ending;
use crate::worker::Worker;
use crate::worker::io::Io;
use crate::worker::memory::backlog;
use crate::worker::token;
use dormouse_reactor::Fd;
use dormouse_reactor::poller::Interest;
use dormouse_reactor::timer::Timer;
use std::io;

/// Doubts that are settled after a turn of the loop, while nothing else is asked for.
const SETTLED_PER_TURN: usize = 256;

/// Slots whose sockets have not been compared with their cookies: one bit each.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    words: Vec<u64>,
    left: usize,
    next: usize,
}

impl Doubts {
    pub(crate) fn is_empty(&self) -> bool {
        self.left == 0
    }

    fn add(&mut self, index: u32) {
        let at = index as usize / 64;
        if self.words.len() <= at {
            self.words.resize(at + 1, 0);
        }
        self.words[at] |= 1 << (index % 64);
        self.left += 1;
    }

    /// Takes the doubt about a slot away. False: there was none.
    fn take(&mut self, index: u32) -> bool {
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

    fn next(&mut self) -> Option<u32> {
        while let Some(word) = self.words.get(self.next) {
            if *word != 0 {
                return Some(self.next as u32 * 64 + word.trailing_zeros());
            }
            self.next += 1;
        }
        *self = Doubts::default();
        None
    }
}

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

impl<I: Io> Worker<I> {
    /// Puts right what the predecessor left; does nothing after a first start.
    pub(crate) fn recover(&mut self, moved: Option<(u32, u32)>, keep: &[Fd]) -> io::Result<()> {
        let former = self.slots.header().epoll();
        let is_restart = former != Fd::NONE;
        let same_poller = former == self.tools.io.poller();
        self.slots.header().set_epoll(self.tools.io.poller());
        if is_restart {
            // Whether it was polling when it died does not matter: we begin by not polling.
            for listener in self.listeners.all() {
                let _ = self.tools.io.unwatch(listener.fd);
            }
            let _ = self.tools.io.unwatch(self.orders);
            self.reset_busy();
            let named = self.drop_unsound();
            self.close_strangers(keep, named)?;
            self.forget_watches(moved);
            self.restore_slots(same_poller);
            self.slots.settle_move();
            self.find_warm();
            self.survey_from = Some(0);
            // The first worker of a new binary finds connections too, but nobody died.
            if self.slots.header().adoptions() > 1 {
                self.tools.count.add(Count::Restarts, 1);
            }
        }
        // Also after a first start: then there are none.
        let live: Vec<u32> = self.slots.indices().collect();
        let found = live.into_iter().filter_map(|index| self.slots.get(index));
        self.tools.backends.recount(found.map(|slot| slot.backend));
        self.tools
            .io
            .watch(self.orders, token::orders(), Interest::READ)
    }

    /// The connection that was being worked on is reset on both sides, whatever its state.
    fn reset_busy(&mut self) {
        let Some(index) = self.slots.header().busy() else {
            return;
        };
        if let Some(slot) = self.slots.get_mut(index) {
            let was_established = slot.phase() != Phase::Free;
            let fds = [slot.tls_fd(), slot.plain_fd()];
            let cookies = [slot.tls_cookie, slot.plain_cookie];
            slot.tls.wipe();
            self.give_up(index);
            for (fd, cookie) in fds.into_iter().zip(cookies) {
                if fd.0 > 2 && is_still(&self.tools.io, fd, cookie) {
                    self.tools.io.reset(fd);
                }
            }
            if was_established {
                self.tools.count.add(Count::ClosedByCrash, 1);
                tracing::warn!("the connection that was being worked on has been reset");
            }
        }
        self.slots.header().clear_busy();
    }

    /// A slot is believed if it is sound, its descriptors belong to no other slot and (which is
    /// left in doubt for now) are the sockets that they were. Returns the descriptors of those that
    /// are left.
    fn drop_unsound(&mut self) -> FdSet {
        let mut named = FdSet::default();
        let live: Vec<u32> = self.slots.indices().collect();
        for index in live {
            let Some(slot) = self.slots.get(index) else {
                continue;
            };
            let (tls, plain) = (slot.tls_fd(), slot.plain_fd());
            let sound = slot.is_sound()
                && named.insert(tls)
                && (plain == Fd::NONE || (plain.0 > 2 && named.insert(plain)));
            if sound {
                self.doubts.add(index);
            } else {
                self.drop_nonsense(index);
            }
        }
        named
    }

    fn drop_nonsense(&mut self, index: u32) {
        self.tools.count.add(Ending::Limit.count(), 1);
        tracing::error!(
            index,
            "a slot makes no sense after the crash; it is dropped"
        );
        self.give_up(index);
    }

    /// Settles the doubt about a slot, if there is one, before anything is done with it. False: it
    /// is gone.
    pub(crate) fn is_beyond_doubt(&mut self, index: u32) -> bool {
        if self.doubts.is_empty() || !self.doubts.take(index) {
            return true;
        }
        let Some(slot) = self.slots.get(index) else {
            return false;
        };
        let (tls, plain) = (slot.tls_fd(), slot.plain_fd());
        let are_still = is_still(&self.tools.io, tls, slot.tls_cookie)
            && (plain == Fd::NONE || is_still(&self.tools.io, plain, slot.plain_cookie));
        if !are_still {
            self.wheel.cancel(&mut self.slots, index);
            self.drop_nonsense(index);
        }
        are_still
    }

    /// Settles some of the doubts that are left.
    pub(crate) fn settle_doubts(&mut self) {
        for _ in 0..SETTLED_PER_TURN {
            let Some(index) = self.doubts.next() else {
                return;
            };
            self.is_beyond_doubt(index);
        }
    }

    /// Frees a slot with what it has pending: the chunks were adopted before the slot was judged,
    /// and nobody else would ever free them.
    fn give_up(&mut self, index: u32) {
        if let Some(slot) = self.slots.get_mut(index) {
            self.clients.leave(slot.client());
            backlog::free_opening(slot, &mut self.tools.pending);
            backlog::free_sealed(slot, &mut self.tools.pending);
        }
        self.slots.free(index);
    }

    /// Closes whatever is open in the shared table and belongs to nobody: above all handshakes.
    fn close_strangers(&mut self, keep: &[Fd], mut known: FdSet) -> io::Result<()> {
        let ours = [Fd(0), Fd(1), Fd(2), self.orders, self.tools.io.poller()];
        let listeners = self.listeners.all().iter().map(|listener| listener.fd);
        for fd in ours
            .into_iter()
            .chain(keep.iter().copied())
            .chain(listeners)
        {
            known.insert(fd);
        }
        self.tools.io.close_all_but(&mut known.sorted())
    }

    /// Epoll may know a slot that was being moved by its former index, on either side: it is told
    /// anew, from the beginning.
    fn forget_watches(&mut self, moved: Option<(u32, u32)>) {
        let Some(slot) = moved.and_then(|(_, to)| self.slots.get_mut(to)) else {
            return;
        };
        for fd in [slot.tls_fd(), slot.plain_fd()] {
            let _ = self.tools.io.unwatch(fd);
        }
        (slot.tls_watch, slot.plain_watch) = (0, 0);
    }

    fn restore_slots(&mut self, same_poller: bool) {
        let live: Vec<u32> = self.slots.indices().collect();
        for index in live {
            let Some(slot) = self.slots.get_mut(index) else {
                continue;
            };
            self.generation = self.generation.max(slot.generation);
            slot.set_timer_purpose(TimerPurpose::None);
            slot.timer = Timer::default();
            // Who waited for memory was in a list that is gone: they are read, and wait again.
            slot.clear(Flag::Starved);
            slot.clear(Flag::SealingStarved);
            // What is to be paid is in a table that is still there.
            slot.clear(Flag::Paced);
            if !same_poller {
                (slot.tls_watch, slot.plain_watch) = (0, 0);
            }
            self.set_timer(index);
            self.apply_interest(index);
        }
    }
}

/// Is this descriptor the very socket it was?
fn is_still(io: &impl Io, fd: Fd, cookie: u32) -> bool {
    io.cookie(fd).is_ok_and(|now| now as u32 == cookie)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_doubt_is_settled_once() {
        let mut doubts = Doubts::default();
        for index in [0, 63, 64, 1000] {
            doubts.add(index);
        }
        assert!(doubts.take(64));
        assert!(!doubts.take(64), "settled already");
        assert!(!doubts.take(5), "never was one");
        let mut rest = Vec::new();
        while let Some(index) = doubts.next() {
            assert!(doubts.take(index));
            rest.push(index);
        }
        assert_eq!(rest, [0, 63, 1000]);
        assert!(doubts.is_empty());
    }

    #[test]
    fn a_set_of_descriptors_knows_what_is_in_it() {
        let mut set = FdSet::default();
        assert!(set.insert(Fd(200)) && set.insert(Fd(3)));
        assert!(!set.insert(Fd(200)), "named twice");
        assert!(!set.insert(Fd::NONE), "no descriptor at all");
        assert_eq!(set.sorted(), [Fd(3), Fd(200)]);
    }
}
