//! Pass-through connections: bytes are forwarded unchanged in both directions.
//!
//! The slot is an ordinary one with an empty TLS state. Sockets, pending bytes, timers, epoll and
//! recovery after a crash work as for any other connection. A FIN is passed on as a FIN and a reset as
//! a reset; the two TLS endpoints decide what they mean.

use crate::established::context::Context;
use crate::established::fault::{Fault, Flow};
use crate::established::flow::send_sealed;
use crate::established::interest::{may_read_plain, may_read_tls};
use crate::io::Io;
use crate::memory::allowance::{Allowance, OPENING, SEALING};
use crate::memory::backlog;
use crate::workspace::Workspace;
use dormouse_handover::slot::{Flag, Slot};
use dormouse_handover::trial;
use dormouse_reactor::Fd;
use dormouse_reactor::socket::Attempt;
use std::slice::from_ref;

/// Reads the client, which has sent bytes or closed its direction.
pub(crate) fn read_tls(slot: &mut Slot, cx: &mut Context<'_, impl Io>) -> Flow {
    let mut moved = 0;
    while moved < cx.work.turn_max() && may_read_tls(slot) {
        let most = match room(cx.work, slot.route, slot.plain_fd()) {
            Ok(most) => most,
            Err(moves) => {
                cx.starve(slot, &OPENING, moves);
                return Ok(());
            }
        };
        let work = &mut *cx.work;
        let n = match work
            .io
            .recv(slot.tls_fd(), &mut work.scratch.opening[..most])
        {
            Ok(Attempt::Done(0)) => {
                slot.set(Flag::TlsEnded);
                return Ok(());
            }
            Ok(Attempt::Done(n)) => n,
            Ok(Attempt::WouldBlock) => return Ok(()),
            Err(e) => return Err(Fault::TlsFailed(e)),
        };
        cx.outcome.bytes.tls_in += n as u64;
        let Workspace {
            scratch, pending, ..
        } = work;
        let received = &scratch.opening[..n];
        trial::crash_on(received);
        let sent = match work.io.send(slot.plain_fd(), received) {
            Ok(Attempt::Done(sent)) => sent,
            Ok(Attempt::WouldBlock) => 0,
            Err(e) => return Err(Fault::PlainFailed(e)),
        };
        cx.outcome.bytes.plain_out += n as u64;
        if sent < n {
            slot.set(Flag::OpeningBlocked);
            let rest = sent..n;
            backlog::store_opening(slot, pending, received, from_ref(&rest), n..n, 0)?;
        }
        moved += n;
        if n < most {
            break;
        }
    }
    Ok(())
}

/// Reads the backend, which has sent bytes or closed its direction.
pub(crate) fn read_plain(slot: &mut Slot, cx: &mut Context<'_, impl Io>) -> Flow {
    let mut moved = 0;
    while moved < cx.work.turn_max() && may_read_plain(slot) {
        let most = match room(cx.work, slot.route, slot.tls_fd()) {
            Ok(most) => most,
            Err(moves) => {
                cx.starve(slot, &SEALING, moves);
                return Ok(());
            }
        };
        let work = &mut *cx.work;
        let n = match work
            .io
            .recv(slot.plain_fd(), &mut work.scratch.sealing[..most])
        {
            Ok(Attempt::Done(0)) => {
                slot.set(Flag::PlainEnded);
                return Ok(());
            }
            Ok(Attempt::Done(n)) => n,
            Ok(Attempt::WouldBlock) => return Ok(()),
            Err(e) => return Err(Fault::PlainFailed(e)),
        };
        cx.outcome.bytes.plain_in += n as u64;
        let Workspace {
            io,
            scratch,
            pending,
            ..
        } = work;
        send_sealed(slot, io, pending, &scratch.sealing[..n])?;
        moved += n;
        if n < most {
            break;
        }
    }
    Ok(())
}

/// Returns how many bytes to receive that go to `destination`.
///
/// # Errors
/// None, because memory is short; the error is whether the destination moves.
pub(crate) fn room(work: &Workspace<impl Io>, route: u16, destination: Fd) -> Result<usize, bool> {
    match work.allowance(route, destination) {
        Allowance::Full => Ok(work.receive_max()),
        Allowance::Lean { room: 0, moves } => Err(moves),
        Allowance::Lean { room, .. } => Ok(room.min(work.receive_max())),
    }
}
