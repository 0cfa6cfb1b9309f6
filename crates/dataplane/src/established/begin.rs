//! The first step of a connection that has just become a slot: it stores what the handshake has left
//! over, and starts the connect to the other side.

use crate::door::client::{Client, ConnectionId};
use crate::established::connect;
use crate::established::context::Context;
use crate::established::fault::{Fault, Flow};
use crate::established::flow;
use crate::established::opening;
use crate::handshake::log::{self, Handshaken};
use crate::io::{Io, PeerName};
use crate::memory::backlog;
use crate::outbound::request::LocalClient;
use crate::traffic;
use dormouse_engine::Rested;
use dormouse_handover::slot::{Flag, Phase, Slot};
use dormouse_reactor::Fd;
use dormouse_reactor::socket::Attempt;
use dormouse_routes::backend_tls::TICKET_WAIT_MS;
use dormouse_routes::route::Direction;
use std::io;
use std::slice::from_ref;

/// The handshake with a client is done and the record state written: the way to the backend begins.
pub(crate) fn terminated<I: Io>(
    slot: &mut Slot,
    cx: &mut Context<'_, I>,
    rested: &Rested,
    client: &Client,
    took_ms: u64,
) -> Flow {
    slot.set_phase(Phase::Connecting);
    let id = ConnectionId::of(slot, cx.work.id_seed);
    let done = Handshaken {
        route: &cx.route.name,
        peer: client,
        id: Some(id),
        took_ms,
    };
    log::log_done(&rested.info, done, cx.limits.log_handshakes);
    // The backend learns the client's address before the client's first byte.
    let mut first = client.introduction(&cx.work.io, cx.route, slot, &rested.info, id);
    let introduced = first.len();
    first.extend_from_slice(&rested.leftover);
    let pending = &mut cx.work.pending;
    let unsent = &rested.unsent;
    if !unsent.is_empty() && !backlog::store_sealed(slot, pending, unsent) {
        return Err(Fault::NoPendingMemory);
    }
    let (introduction, rest) = (0..introduced, introduced..first.len());
    if !first.is_empty()
        && !backlog::store_opening(slot, pending, &first, from_ref(&introduction), rest, 0)
    {
        return Err(Fault::NoPendingMemory);
    }
    if introduced > 0 {
        slot.set(Flag::OpeningBlocked);
    }
    connect::start(slot, cx, client.ip())
}

/// A connection whose TLS is the backend's: what was received goes there first.
pub(crate) fn passed_through<I: Io>(
    slot: &mut Slot,
    cx: &mut Context<'_, I>,
    received: &[u8],
    client: &Client,
) -> Flow {
    slot.set(Flag::PassThrough);
    slot.set_phase(Phase::Connecting);
    let mut first = client.bare_introduction(&cx.work.io, cx.route, slot);
    first.extend_from_slice(received);
    let (all, none) = (0..first.len(), first.len()..first.len());
    let pending = &mut cx.work.pending;
    if !backlog::store_opening(slot, pending, &first, from_ref(&all), none, 0) {
        return Err(Fault::NoPendingMemory);
    }
    slot.set(Flag::OpeningBlocked);
    connect::start(slot, cx, client.ip())
}

/// The handshake with a server is done and the record state written. Without a local client the
/// connection is a warm one.
pub(crate) fn originated<I: Io>(
    slot: &mut Slot,
    cx: &mut Context<'_, I>,
    rested: Rested,
    client: Option<LocalClient>,
    took_ms: u64,
) -> Flow {
    slot.set_phase(Phase::Warm);
    let Rested {
        unsent,
        leftover,
        info,
        tickets,
    } = rested;
    log::count_originated(&info, &cx.work.count);
    if !client.is_some_and(|client| client.is_joined) {
        traffic::count_handshake(slot, info.resumed, &cx.work.traffic);
    }
    let done = Handshaken {
        route: &cx.route.name,
        peer: &PeerName::new(&cx.work.io, slot.tls_fd()),
        id: Some(ConnectionId::of(slot, cx.work.id_seed)),
        took_ms,
    };
    log::log_done(&info, done, cx.limits.log_handshakes);
    let wait_ms = match (&cx.route.direction, &cx.route.backend_tls) {
        (Direction::Originate(origin), _) => Some(origin.ticket_wait_ms),
        (_, Some(_)) => Some(TICKET_WAIT_MS),
        _ => None,
    };
    if let (Some(watch), Some(wait_ms)) = (tickets, wait_ms) {
        let until_ms = cx.work.now_ms + wait_ms;
        cx.work.tickets.expect(slot.generation, watch, until_ms);
    }
    if let Some(client) = client {
        attach_plain(slot, &cx.work.io, client);
        if client.is_joined {
            tell_joint(&cx.work.io, client.fd).map_err(Fault::PlainFailed)?;
        }
    }
    let pending = &mut cx.work.pending;
    if !unsent.is_empty() && !backlog::store_sealed(slot, pending, &unsent) {
        return Err(Fault::NoPendingMemory);
    }
    if !leftover.is_empty()
        && !backlog::store_opening(slot, pending, &leftover, &[], 0..leftover.len(), 0)
    {
        return Err(Fault::NoPendingMemory);
    }
    opening::open_stored(slot, cx.work)
}

/// A warm connection gets its local client.
pub(crate) fn attach<I: Io>(slot: &mut Slot, cx: &mut Context<'_, I>, client: LocalClient) -> Flow {
    attach_plain(slot, &cx.work.io, client);
    if !slot.has(Flag::OpeningBlocked) {
        slot.set(Flag::Untouched);
    }
    slot.active_s = cx.now_s();
    flow::flush_opened(slot, &cx.work.io, &mut cx.work.pending)?;
    Ok(())
}

/// Tells the other end of a joint that the backend is there. If the byte were left out, the other
/// end would take the backend's first byte for it.
fn tell_joint(io: &impl Io, fd: Fd) -> io::Result<()> {
    match io.send(fd, &connect::CONNECTED)? {
        Attempt::Done(_) => Ok(()),
        Attempt::WouldBlock => Err(io::ErrorKind::WouldBlock.into()),
    }
}

fn attach_plain(slot: &mut Slot, io: &impl Io, client: LocalClient) {
    let cookie = io.cookie(client.fd).unwrap_or(0) as u32;
    slot.attach_plain(client.fd, cookie);
    if client.is_unix {
        slot.set(Flag::PlainIsUnix);
    }
    if client.is_joined {
        slot.set(Flag::Joined);
    }
    slot.set_phase(Phase::Established);
}
