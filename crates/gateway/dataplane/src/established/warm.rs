//! Steps of a warm connection: established, and not given to a local client yet.

use crate::close_reason::CloseReason;
use crate::established::context::Context;
use crate::established::fault::{Fault, Flow};
use crate::established::flow;
use crate::established::interest::{self, may_read_tls};
use crate::established::opening;
use crate::io::{Io, PeerName};
use crate::outcome::{Effect, LocalClient};
use crate::token::Side;
use crate::traffic;
use dormouse_handover::slot::{PlainSide, Slot};
use dormouse_record::Alert;
use dormouse_tables::counters::Count;

/// Reads a warm connection before it is given away, to see whether the server has ended it.
pub(crate) fn probe<I: Io>(slot: &mut Slot, cx: &mut Context<'_, I>) -> Flow {
    if may_read_tls(slot) {
        return opening::read_tls(slot, cx);
    }
    // The server has already sent data, which waits for a local client.
    let fd = slot.tls_fd();
    cx.work.io.take_error(fd).map_err(Fault::TlsFailed)
}

/// Settles a step on a warm connection. Returns `true` if the connection is over; no client notices.
pub(crate) fn settle<I: Io>(slot: &mut Slot, cx: &mut Context<'_, I>, done: &Flow) -> bool {
    if done.is_ok() && !slot.tls.peer_closed() {
        return false;
    }
    cx.work.count.add(Count::WarmLost, 1);
    // Nothing was lost, however the server has ended it. It gets no line in the connection log.
    traffic::count_close(slot, CloseReason::Clean, cx.work);
    let lasted_s = cx.now_s().saturating_sub(slot.opened_s);
    cx.outcome.effects.push(Effect::WarmEnded {
        route: slot.route,
        lasted_s,
    });
    let peer = PeerName::new(&cx.work.io, slot.tls_fd());
    match done {
        Ok(()) => tracing::debug!(%peer, lasted_s, "warm connection closed"),
        Err(fault) => tracing::debug!(%peer, lasted_s, error = %fault, "warm connection closed"),
    }
    if !slot.tls.closed() {
        let _ = flow::send_alert(slot, cx.work, Alert::CLOSE_NOTIFY);
    }
    true
}

/// Requests another connection for a client whose warm connection the server ended just as it was
/// given away. Nothing was read from the client yet.
pub(crate) fn replace<I: Io>(slot: &mut Slot, cx: &mut Context<'_, I>, done: &Flow) -> bool {
    let client = LocalClient {
        fd: slot.plain_fd(),
        joined_s: None,
        is_unix: slot.plain_side() != PlainSide::Tcp,
        awaits_greeting: false,
    };
    if interest::unwatch(slot, &cx.work.io, Side::Plain).is_ok() {
        slot.detach_plain();
        let route = slot.route;
        let replace = Effect::ReplaceServer { client, route };
        cx.outcome.effects.push(replace);
        cx.work.count.add(Count::WarmReplaced, 1);
    }
    settle(slot, cx, done)
}
