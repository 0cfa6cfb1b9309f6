//! Connections whose TLS is not ours: what comes in goes out as it is, both ways.
//!
//! The slot is an ordinary one whose record state stays empty. Sockets, pending bytes, timers,
//! epoll and the crash of a worker are as for any other; a TCP end is passed on as an end, a reset
//! as a reset, since what they mean is for the two who speak TLS to say.

use crate::counters::Count;
use crate::slot::{Flag, Slot};
use crate::upgrade::trial;
use crate::worker::established::flow::{Allowance, Outcome, Tools, send_sealed};
use crate::worker::established::interest;
use crate::worker::io::Io;
use crate::worker::memory::backlog;
use dormouse_reactor::Fd;
use dormouse_reactor::socket::Attempt;
use std::slice::from_ref;

/// The client has something to say, or has ended.
pub(crate) fn tls_readable(slot: &mut Slot, tools: &mut Tools<impl Io>) -> Outcome {
    match inward(slot, tools) {
        Ok(()) => Outcome::Continues,
        Err(outcome) => outcome,
    }
}

/// The backend has something to say, or has ended.
pub(crate) fn plain_readable(slot: &mut Slot, tools: &mut Tools<impl Io>) -> Outcome {
    match outward(slot, tools) {
        Ok(()) => Outcome::Continues,
        Err(outcome) => outcome,
    }
}

fn inward(slot: &mut Slot, tools: &mut Tools<impl Io>) -> Result<(), Outcome> {
    let mut moved = 0;
    while moved < tools.turn_max() && interest::reads_tls(slot) {
        let Some(most) = room(slot, tools, slot.plain_fd(), Flag::Starved) else {
            return Ok(());
        };
        let n = match tools
            .io
            .recv(slot.tls_fd(), &mut tools.scratch.opening[..most])
        {
            Ok(Attempt::Done(0)) => {
                slot.set(Flag::TlsEnded);
                return Ok(());
            }
            Ok(Attempt::Done(n)) => n,
            Ok(Attempt::WouldBlock) => return Ok(()),
            Err(e) => return Err(Outcome::TlsFailed(e)),
        };
        tools.note_received(Count::TlsBytesIn, n);
        let Tools {
            scratch, pending, ..
        } = tools;
        let received = &scratch.opening[..n];
        trial::crash_on(received);
        let sent = match tools.io.send(slot.plain_fd(), received) {
            Ok(Attempt::Done(sent)) => sent,
            Ok(Attempt::WouldBlock) => 0,
            Err(e) => return Err(Outcome::PlainFailed(e)),
        };
        tools.count.add(Count::PlainBytesOut, n as u64);
        if sent < n {
            slot.set(Flag::OpeningBlocked);
            let rest = sent..n;
            if !backlog::store_opening(slot, pending, received, from_ref(&rest), n..n, 0) {
                return Err(Outcome::NoPendingMemory);
            }
        }
        moved += n;
        if n < most {
            break;
        }
    }
    Ok(())
}

fn outward(slot: &mut Slot, tools: &mut Tools<impl Io>) -> Result<(), Outcome> {
    let mut moved = 0;
    while moved < tools.turn_max() && interest::reads_plain(slot) {
        let Some(most) = room(slot, tools, slot.tls_fd(), Flag::SealingStarved) else {
            return Ok(());
        };
        let n = match tools
            .io
            .recv(slot.plain_fd(), &mut tools.scratch.sealing[..most])
        {
            Ok(Attempt::Done(0)) => {
                slot.set(Flag::PlainEnded);
                return Ok(());
            }
            Ok(Attempt::Done(n)) => n,
            Ok(Attempt::WouldBlock) => return Ok(()),
            Err(e) => return Err(Outcome::PlainFailed(e)),
        };
        tools.note_received(Count::PlainBytesIn, n);
        let Tools {
            io,
            scratch,
            pending,
            ..
        } = tools;
        send_sealed(slot, io, pending, &scratch.sealing[..n])?;
        moved += n;
        if n < most {
            break;
        }
    }
    Ok(())
}

/// How much to receive, if it is to leave by `towards`. `None`: nothing for now; the flow `starved`
/// is gone on with later.
fn room(slot: &mut Slot, tools: &mut Tools<impl Io>, towards: Fd, starved: Flag) -> Option<usize> {
    match tools.allowance(towards) {
        Allowance::Full => Some(tools.receive_max()),
        Allowance::Lean(room) => Some(room),
        Allowance::Nothing => {
            tools.starve(slot, starved);
            None
        }
    }
}
