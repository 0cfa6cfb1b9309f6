//! The sides of a connection that are in deep rest: what their places in the slot mean meanwhile.

use crate::slot::{PLAIN_RESTS, SIDES, Side, SideRest, Slot, TLS_RESTS};
use dormouse_reactor::Fd;
use std::sync::atomic::{Ordering, compiler_fence};

/// In the watch of a side that rests: the connection needs its sockets.
const WANTED: u8 = 128;

impl Slot {
    /// Whether a side is in deep rest, or on its way there or back.
    #[inline]
    pub fn is_dormant(&self) -> bool {
        self.bits & (TLS_RESTS | PLAIN_RESTS) != 0
    }

    /// Whether the connection has no socket at all.
    pub fn is_all_abed(&self) -> bool {
        let has_none = |side| match self.side_rest(side) {
            SideRest::Awake => self.side_fd(side) == Fd::NONE,
            rest => matches!(rest, SideRest::Abed | SideRest::Gone),
        };
        self.is_dormant() && SIDES.into_iter().all(has_none)
    }

    /// Where the socket of a side is.
    pub fn side_rest(&self, side: Side) -> SideRest {
        let (rests, watch) = match side {
            Side::Tls => (TLS_RESTS, self.tls_watch),
            Side::Plain => (PLAIN_RESTS, self.plain_watch),
        };
        if self.bits & rests == 0 {
            return SideRest::Awake;
        }
        match watch & !WANTED {
            2 => SideRest::Bedding,
            4 => SideRest::Abed,
            6 => SideRest::Waking,
            8 => SideRest::Gone,
            _ => SideRest::Between,
        }
    }

    /// The number of the record of a side that is not awake.
    pub fn record(&self, side: Side) -> u32 {
        match side {
            Side::Tls => self.tls_cookie,
            Side::Plain => self.plain_cookie,
        }
    }

    /// Whether a side that rests is needed.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.is_dormant() && self.has_wanted_side()
    }

    fn has_wanted_side(&self) -> bool {
        let wanted = |side, watch| self.side_rest(side) != SideRest::Awake && watch & WANTED != 0;
        wanted(Side::Tls, self.tls_watch) || wanted(Side::Plain, self.plain_watch)
    }

    /// Notes that the connection needs the sockets of all sides.
    pub fn want(&mut self) {
        for side in SIDES {
            if self.side_rest(side) != SideRest::Awake {
                *self.watch_mut(side) |= WANTED;
            }
        }
    }

    /// The descriptor of a side.
    pub fn side_fd(&self, side: Side) -> Fd {
        match side {
            Side::Tls => self.tls_fd(),
            Side::Plain => self.plain_fd(),
        }
    }

    /// Notes that a side goes to rest as the record with this number, before epoll ceases to watch it. Each store leaves a
    /// slot with which a successor can continue.
    pub fn go_to_bed(&mut self, side: Side, record: u32) {
        *self.watch_mut(side) = SideRest::Between as u8;
        compiler_fence(Ordering::SeqCst);
        self.bits |= rests(side);
        compiler_fence(Ordering::SeqCst);
        *self.cookie_mut(side) = record;
        compiler_fence(Ordering::SeqCst);
        *self.watch_mut(side) = SideRest::Bedding as u8;
    }

    /// Notes where a side is that is neither awake nor becomes so.
    pub fn set_side_rest(&mut self, side: Side, rest: SideRest) {
        let wanted = *self.watch_mut(side) & WANTED;
        *self.watch_mut(side) = rest as u8 | wanted;
    }

    /// Removes and returns the descriptor of a side that is abed or gone, which the caller then closes.
    pub fn take_side_fd(&mut self, side: Side) -> Fd {
        Fd(std::mem::replace(self.fd_mut(side), Fd::NONE.0))
    }

    /// Notes the descriptor of a side that wakes.
    pub fn begin_wake(&mut self, side: Side, fd: Fd) {
        *self.fd_mut(side) = fd.0;
        compiler_fence(Ordering::SeqCst);
        self.set_side_rest(side, SideRest::Waking);
    }

    /// Notes that a side is awake, with the cookie of its socket. Epoll does not watch it yet.
    pub fn wake_up(&mut self, side: Side, cookie: u32) {
        *self.watch_mut(side) = SideRest::Between as u8;
        compiler_fence(Ordering::SeqCst);
        *self.cookie_mut(side) = cookie;
        compiler_fence(Ordering::SeqCst);
        self.bits &= !rests(side);
    }

    fn watch_mut(&mut self, side: Side) -> &mut u8 {
        match side {
            Side::Tls => &mut self.tls_watch,
            Side::Plain => &mut self.plain_watch,
        }
    }

    fn cookie_mut(&mut self, side: Side) -> &mut u32 {
        match side {
            Side::Tls => &mut self.tls_cookie,
            Side::Plain => &mut self.plain_cookie,
        }
    }

    fn fd_mut(&mut self, side: Side) -> &mut i32 {
        match side {
            Side::Tls => &mut self.tls_fd,
            Side::Plain => &mut self.plain_fd,
        }
    }
}

/// The flag of a side that is not awake.
fn rests(side: Side) -> u32 {
    match side {
        Side::Tls => TLS_RESTS,
        Side::Plain => PLAIN_RESTS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::{Flag, Phase};
    use zerocopy::FromZeros as _;

    /// A side that rests keeps its state in the places of its cookie and its watch. A worker may die between any two stores.
    #[test]
    fn a_side_goes_to_rest_and_comes_back() {
        for side in SIDES {
            let mut slot = Slot::new_zeroed();
            slot.begin(Fd(5), 7, 0, 1, 0);
            slot.attach_plain(Fd(6), 8);
            slot.set_phase(Phase::Established);
            slot.set(Flag::PassThrough);
            assert_eq!(slot.side_rest(side), SideRest::Awake);
            slot.want();
            assert!(!slot.is_dormant() && !slot.is_wanted());
            let other = slot.side_fd(SIDES[usize::from(side == Side::Tls)]);
            slot.go_to_bed(side, 99);
            assert_eq!(slot.side_rest(side), SideRest::Bedding);
            slot.set_side_rest(side, SideRest::Abed);
            let fd = slot.take_side_fd(side);
            assert_eq!(slot.side_fd(side), Fd::NONE);
            assert!(slot.is_sound() && slot.is_dormant() && !slot.is_wanted());
            slot.want();
            slot.begin_wake(side, fd);
            assert_eq!(slot.side_rest(side), SideRest::Waking);
            assert!(slot.is_wanted() && slot.record(side) == 99);
            slot.wake_up(side, 9);
            assert_eq!(slot.side_rest(side), SideRest::Awake);
            assert_eq!((slot.record(side), slot.side_fd(side)), (9, fd));
            assert!(!slot.is_dormant() && !slot.is_wanted());
            assert_eq!(slot.side_fd(SIDES[usize::from(side == Side::Tls)]), other);
            assert_eq!(slot.phase(), Phase::Established);
        }
    }
}
