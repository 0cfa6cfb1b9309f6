//! The epoll interest of a connection's two sockets.
//!
//! The interest follows from the slot alone. It is computed after each event, and epoll is called only
//! for changes. At rest, both sides are watched for reading.
//!
//! A side that must not be read is still watched; epoll then reports only errors and hang-ups. If it
//! reports one while the other side still has bytes to take, the side is removed from epoll: a
//! level-triggered hang-up would make the loop spin. It is added again, and its error is seen, when it
//! may be read again.
//!
//! A part of a record that stays in the kernel, because memory is short, would be reported in every turn. So would a
//! socket that is writable but takes nothing, because the kernel has no memory. So the side of such a record is watched
//! for what arrives from now on, and a side that is only written is watched for the next room: the worker always sends
//! until the socket takes no more.

use crate::io::Io;
use crate::token::Side;
use dormouse_handover::slot::{Flag, Phase, SideRest, Slot, TlsEnd};
use dormouse_reactor::Fd;
use dormouse_reactor::poller::Interest;
use std::io::{self, ErrorKind};

const WATCHED: u8 = 1;
const READ: u8 = 2;
const WRITE: u8 = 4;
/// Only what happens from now on is reported.
const EDGE: u8 = 16;
/// Writable is reported only when the kernel holds nothing back.
const DRAINED: u8 = 32;
/// Only in a slot: what epoll has reported may be lost, with the worker that has received it.
const STALE: u8 = 64;
/// Removed from epoll, because it reported an error or hang-up while it was not read or written.
const BROKEN: u8 = 8;

fn watch(read: bool, write: bool) -> u8 {
    WATCHED | if read { READ } else { 0 } | if write { WRITE } else { 0 }
}

/// The interest of both sides.
fn interests(slot: &Slot) -> (u8, u8) {
    let tls_write = slot.sealing_pending.is_some();
    match slot.phase() {
        Phase::Free => (0, 0),
        // The TLS side has been watched for reading since its handshake. That changes only if it sends
        // something before the backend is connected, which is rare.
        Phase::Connecting => (
            watch(!slot.has(Flag::TlsWaits), tls_write),
            if slot.has(Flag::AwaitsGreeting) {
                // Its beginning stays in the kernel until all of it has arrived.
                watch(true, false) | EDGE
            } else {
                // A joint is writable from the start; it becomes readable when the backend is connected.
                watch(slot.is_joined(), !slot.is_joined())
            },
        ),
        Phase::Established => (
            tls_watch(slot, tls_write),
            sides_watch(
                may_read_plain(slot),
                slot.has(Flag::OpeningBlocked),
                slot.has(Flag::OpeningHeld) && !slot.is_echo(),
            ),
        ),
        Phase::Warm => (tls_watch(slot, tls_write), 0),
        Phase::Draining => (
            match slot.tls_end() {
                TlsEnd::Linger => sides_watch(slot.has(Flag::TlsShut), tls_write, false),
                TlsEnd::Reset if tls_write => sides_watch(false, true, false),
                TlsEnd::Reset | TlsEnd::Close => 0,
            },
            if slot.has(Flag::OpeningBlocked) {
                sides_watch(false, true, false)
            } else {
                0
            },
        ),
    }
}

fn tls_watch(slot: &Slot, write: bool) -> u8 {
    let edge = if slot.has(Flag::AwaitsRecord) {
        EDGE
    } else {
        0
    };
    let held = slot.has(Flag::SealingHeld) || (slot.is_echo() && slot.has(Flag::OpeningHeld));
    sides_watch(may_read_tls(slot), write, held) | edge
}

/// The interest of a side that may be read, has bytes to send, or holds a flow until it has drained.
fn sides_watch(read: bool, write: bool, held: bool) -> u8 {
    let drained = if held { WRITE | DRAINED } else { 0 };
    let edge = if write && !read { EDGE } else { 0 };
    watch(read, write) | drained | edge
}

/// Whether the TLS side may be read.
pub(crate) fn may_read_tls(slot: &Slot) -> bool {
    let echo_waits = slot.is_echo() && slot.sealing_pending.is_some();
    matches!(slot.phase(), Phase::Established | Phase::Warm)
        && !slot.has_tls_ended()
        && !slot.has(Flag::OpeningBlocked)
        && !slot.has(Flag::Starved)
        && !slot.has(Flag::Paced)
        && !echo_waits
}

/// Whether the plain side may be read.
pub(crate) fn may_read_plain(slot: &Slot) -> bool {
    slot.phase() == Phase::Established
        && !slot.has(Flag::PlainEnded)
        && !slot.has(Flag::SealingStarved)
        && !slot.has(Flag::Paced)
        && slot.sealing_pending.is_none()
        && !slot.tls.closed()
}

/// Notes that epoll watches neither side.
pub(crate) fn forget(slot: &mut Slot) {
    if slot.side_rest(Side::Tls) == SideRest::Awake {
        slot.tls_watch = 0;
    }
    if slot.side_rest(Side::Plain) == SideRest::Awake {
        slot.plain_watch = 0;
    }
}

/// Makes the next [`apply`] watch anew what is watched for edges: a dead worker may have received them.
pub(crate) fn distrust_edges(slot: &mut Slot) {
    for watch in [&mut slot.tls_watch, &mut slot.plain_watch] {
        if *watch & EDGE != 0 {
            *watch |= STALE;
        }
    }
}

/// Applies changes of the interest to epoll. `tls` and `plain` are the tokens of the sides.
pub(crate) fn apply(slot: &mut Slot, io: &impl Io, tls: u64, plain: u64) -> io::Result<()> {
    if slot.is_dormant() {
        return apply_to_awake(slot, io, tls, plain);
    }
    let (tls_watch, plain_watch) = interests(slot);
    change(io, slot.tls_fd(), tls, &mut slot.tls_watch, tls_watch)?;
    let plain_fd = slot.plain_fd();
    if plain_fd != Fd::NONE {
        change(io, plain_fd, plain, &mut slot.plain_watch, plain_watch)?;
    }
    Ok(())
}

/// Applies the interest of the side that is awake while the other one is not. When it has reported something, it is not
/// watched until both are awake.
fn apply_to_awake(slot: &mut Slot, io: &impl Io, tls: u64, plain: u64) -> io::Result<()> {
    let (tls_watch, plain_watch) = match slot.is_wanted() {
        true => (0, 0),
        false => interests(slot),
    };
    if slot.side_rest(Side::Tls) == SideRest::Awake {
        change(io, slot.tls_fd(), tls, &mut slot.tls_watch, tls_watch)?;
    }
    let plain_fd = slot.plain_fd();
    if slot.side_rest(Side::Plain) == SideRest::Awake && plain_fd != Fd::NONE {
        change(io, plain_fd, plain, &mut slot.plain_watch, plain_watch)?;
    }
    Ok(())
}

/// Notes that a side goes to rest as the record with this number, and removes it from epoll. In this order: the successor
/// of a worker that dies in between hears a socket once too often, and not never again.
pub(crate) fn go_to_bed(slot: &mut Slot, io: &impl Io, side: Side, record: u32) {
    let (fd, watch) = match side {
        Side::Tls => (slot.tls_fd(), slot.tls_watch),
        Side::Plain => (slot.plain_fd(), slot.plain_watch),
    };
    if watch & DRAINED != 0 {
        let _ = io.set_writable_when_drained(fd, false);
    }
    slot.go_to_bed(side, record);
    if watch & WATCHED != 0 {
        // If it could fail, an event would only wake the connection.
        let _ = io.unwatch(fd);
    }
}

fn change(io: &impl Io, fd: Fd, token: u64, now: &mut u8, to: u8) -> io::Result<()> {
    let to = match to & DRAINED != 0 {
        was if was == (*now & DRAINED != 0) => to,
        // Without this event, the connection is checked from time to time.
        true if io.set_writable_when_drained(fd, true).is_err() => to & !(WRITE | DRAINED),
        true => to,
        false => {
            let _ = io.set_writable_when_drained(fd, false);
            to
        }
    };
    if *now == to || (*now == BROKEN && to & (READ | WRITE) == 0) {
        return Ok(());
    }
    let interest = interest_of(to);
    match (*now & WATCHED != 0, to & WATCHED != 0) {
        (false, true) => match io.watch(fd, token, interest) {
            // A worker that was killed here has added the socket, but not noted it in the slot.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                io.rewatch(fd, token, interest)?;
            }
            watched => watched?,
        },
        (true, true) => io.rewatch(fd, token, interest)?,
        (true, false) => io.unwatch(fd)?,
        (false, false) => {}
    }
    *now = to;
    Ok(())
}

fn interest_of(watch: u8) -> Interest {
    Interest::NONE
        .with(Interest::READ, watch & READ != 0)
        .with(Interest::WRITE, watch & WRITE != 0)
        .with(Interest::EDGE, watch & EDGE != 0)
}

/// Gives epoll the new token of a side, after its slot was moved.
pub(crate) fn rewatch(slot: &Slot, io: &impl Io, side: Side, token: u64) -> io::Result<()> {
    let (fd, watch) = match side {
        Side::Tls => (slot.tls_fd(), slot.tls_watch),
        Side::Plain => (slot.plain_fd(), slot.plain_watch),
    };
    if watch & WATCHED == 0 {
        return Ok(());
    }
    io.rewatch(fd, token, interest_of(watch))
}

/// Watches the TLS socket after the handshake. `watched`: the socket is already in epoll, with the
/// handshake's token.
pub(crate) fn adopt(slot: &mut Slot, io: &impl Io, token: u64, watched: bool) -> io::Result<()> {
    if watched {
        io.rewatch(slot.tls_fd(), token, Interest::READ)?;
    } else {
        io.watch(slot.tls_fd(), token, Interest::READ)?;
    }
    slot.tls_watch = WATCHED | READ;
    Ok(())
}

/// Removes a side from epoll that reported an error or hang-up while it must not be read.
pub(crate) fn unwatch(slot: &mut Slot, io: &impl Io, side: Side) -> io::Result<()> {
    let (fd, watch) = match side {
        Side::Tls => (slot.tls_fd(), &mut slot.tls_watch),
        Side::Plain => (slot.plain_fd(), &mut slot.plain_watch),
    };
    if *watch & WATCHED != 0 {
        *watch = BROKEN;
        io.unwatch(fd)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::OsIo;
    use dormouse_handover::slot::PlainSide;
    use dormouse_reactor::OnExec;
    use dormouse_reactor::poller::Events;
    use dormouse_reactor::socket;
    use zerocopy::FromZeros as _;

    fn ready(io: &OsIo) -> usize {
        let mut events = Events::with_capacity(8);
        io.wait(&mut events, Some(0)).expect("a poll");
        events.len()
    }

    /// A hang-up is level-triggered: without removal, epoll would report a side that has hung up and
    /// is not read in every turn, and the loop would spin.
    #[test]
    fn a_broken_side_is_unwatched_until_it_may_be_read_again() {
        let io = OsIo::adopt(Fd::NONE).expect("an epoll instance");
        let (ours, theirs) = socket::pair(OnExec::Close).expect("a pair of sockets");
        let mut slot = Slot::new_zeroed();
        slot.begin(ours, 0, 0, 1, 0);
        slot.set_phase(Phase::Established);
        slot.set(Flag::OpeningBlocked);
        slot.set_plain_side(PlainSide::Echo);
        apply(&mut slot, &io, 1, 2).expect("watched for errors only");
        theirs.close();
        assert_eq!(ready(&io), 1, "the hang-up is reported");
        unwatch(&mut slot, &io, Side::Tls).expect("removed");
        apply(&mut slot, &io, 1, 2).expect("no change");
        assert_eq!(ready(&io), 0, "the hang-up is not reported again");
        slot.clear(Flag::OpeningBlocked);
        apply(&mut slot, &io, 1, 2).expect("watched for reading");
        assert_eq!(ready(&io), 1, "the end of the stream can be read");
        ours.close();
    }
}
