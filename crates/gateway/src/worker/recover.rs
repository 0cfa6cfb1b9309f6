//! What a new worker does with what a dead one left: nearly nothing.
//!
//! The sockets are open, the epoll descriptor still watches them, the slots say all there is to
//! say. Three things need repair: the one connection that was being worked on is reset (its
//! sequence numbers may be spent, its bytes may be half delivered); descriptors which no slot
//! names (handshakes, a connection half taken in) are closed; timers and free lists, which live in
//! the heap, are made again.

use super::backlog;
use super::token;
use super::{Ending, Worker};
use crate::counters::Count;
use crate::slot::{Flag, Phase, Slot, TimerPurpose};
use dormouse_reactor::poller::{Interest, Poller};
use dormouse_reactor::slab::Slab;
use dormouse_reactor::timer::Timer;
use dormouse_reactor::{Fd, OnExec, descriptors, socket};
use std::collections::HashSet;
use std::io;

/// The poller of the predecessor, if there was one, else a new one.
pub(super) fn poller(slots: &Slab<Slot>) -> io::Result<Poller> {
    match slots.header().epoll() {
        Fd::NONE => Poller::create(OnExec::Keep),
        fd => Poller::adopt(fd).or_else(|_| Poller::create(OnExec::Keep)),
    }
}

impl Worker {
    /// Puts right what the predecessor left; does nothing after a first start.
    pub(super) fn recover(&mut self, moved: Option<(u32, u32)>, keep: &[Fd]) -> io::Result<()> {
        let former = self.slots.header().epoll();
        let is_restart = former != Fd::NONE;
        let same_poller = former == self.poller.fd();
        self.slots.header().set_epoll(self.poller.fd());
        if is_restart {
            // Whether it was polling when it died does not matter: we begin by not polling.
            for listener in self.listeners.all() {
                let _ = self.poller.remove(listener.fd);
            }
            let _ = self.poller.remove(self.orders);
            self.reset_busy();
            self.drop_unsound();
            self.close_strangers(keep)?;
            self.forget_watches(moved);
            self.restore_slots(same_poller);
            self.slots.settle_move();
            self.find_warm();
            self.survey_from = Some(0);
            self.tools.count.add(Count::Restarts, 1);
        }
        self.poller
            .add(self.orders, token::orders(), Interest::READ)
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
                if fd.0 > 2 && is_still(fd, cookie) {
                    socket::reset(fd);
                }
            }
            if was_established {
                self.tools.count.add(Count::ClosedByCrash, 1);
                tracing::warn!("the connection that was being worked on has been reset");
            }
        }
        self.slots.header().clear_busy();
    }

    /// A slot is believed if it is sound, and its descriptors are the sockets that they were and
    /// belong to no other slot.
    fn drop_unsound(&mut self) {
        let mut seen = HashSet::new();
        let live: Vec<u32> = self.slots.indices().collect();
        for index in live {
            let Some(slot) = self.slots.get(index) else {
                continue;
            };
            let (tls, plain) = (slot.tls_fd(), slot.plain_fd());
            let sound = slot.is_sound()
                && is_still(tls, slot.tls_cookie)
                && seen.insert(tls)
                && (plain == Fd::NONE
                    || (is_still(plain, slot.plain_cookie) && seen.insert(plain)));
            if !sound {
                self.tools.count.add(Ending::Limit.count(), 1);
                tracing::error!(
                    index,
                    "a slot makes no sense after the crash; it is dropped"
                );
                self.give_up(index);
            }
        }
    }

    /// Frees a slot with what it has pending: the chunks were adopted before the slot was judged,
    /// and nobody else would ever free them.
    fn give_up(&mut self, index: u32) {
        if let Some(slot) = self.slots.get_mut(index) {
            backlog::free_opening(slot, &mut self.tools.pending);
            backlog::free_sealed(slot, &mut self.tools.pending);
        }
        self.slots.free(index);
    }

    /// Closes whatever is open in the shared table and belongs to nobody: above all handshakes.
    fn close_strangers(&mut self, keep: &[Fd]) -> io::Result<()> {
        let mut known: Vec<Fd> = vec![Fd(0), Fd(1), Fd(2), self.orders, self.poller.fd()];
        known.extend_from_slice(keep);
        known.extend(self.listeners.all().iter().map(|listener| listener.fd));
        for index in self.slots.indices() {
            if let Some(slot) = self.slots.get(index) {
                known.push(slot.tls_fd());
                known.extend(Some(slot.plain_fd()).filter(|&fd| fd != Fd::NONE));
            }
        }
        descriptors::close_all_but(&mut known)
    }

    /// Epoll may know a slot that was being moved by its former index, on either side: it is told
    /// anew, from the beginning.
    fn forget_watches(&mut self, moved: Option<(u32, u32)>) {
        let Some(slot) = moved.and_then(|(_, to)| self.slots.get_mut(to)) else {
            return;
        };
        for fd in [slot.tls_fd(), slot.plain_fd()] {
            let _ = self.poller.remove(fd);
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
            slot.clear(Flag::StarvedQueued);
            if !same_poller {
                (slot.tls_watch, slot.plain_watch) = (0, 0);
            }
            self.set_timer(index);
            self.apply_interest(index);
        }
    }
}

/// Is this descriptor the very socket it was?
fn is_still(fd: Fd, cookie: u32) -> bool {
    socket::cookie(fd).is_ok_and(|now| now as u32 == cookie)
}
