//! The first step of a connection in its new slot: stores the bytes that the handshake left over, and
//! starts the connect to the backend.

use crate::client::{Client, ConnectionId};
use crate::established::connect;
use crate::established::context::Context;
use crate::established::fault::{Fault, Flow};
use crate::established::flow;
use crate::established::opening;
use crate::handshake_log::{self, DoneFields};
use crate::io::{Io, PeerName};
use crate::memory::backlog;
use crate::outcome::LocalClient;
use crate::starttls::greeting_over_tls;
use crate::traffic;
use dormouse_config::ConnectTime;
use dormouse_engine::{FirstFlight, Rested};
use dormouse_handover::slot::{Flag, Phase, Slot, TimerPurpose};
use dormouse_reactor::Fd;
use dormouse_reactor::socket::Attempt;
use dormouse_routes::backend_tls::TICKET_WAIT_MS;
use std::io;
use std::slice::from_ref;

/// What a new connection begins with, besides the TLS state in its slot.
pub(crate) enum First {
    /// The handshake with the client is done.
    Terminated {
        rested: Box<Rested>,
        client: Client,
        took_ms: u64,
    },
    /// The route passes TLS through; `received` are the client's first bytes.
    PassedThrough { received: Vec<u8>, client: Client },
    /// The handshake with the server is done. Without a client the connection is warm.
    Originated {
        rested: Box<Rested>,
        client: Option<LocalClient>,
        took_ms: u64,
    },
}

/// Makes the first step of a connection.
pub(crate) fn begin<I: Io>(slot: &mut Slot, cx: &mut Context<'_, I>, first: First) -> Flow {
    match first {
        First::Terminated {
            rested,
            client,
            took_ms,
        } => terminated(slot, cx, *rested, &client, took_ms),
        First::PassedThrough { received, client } => passed_through(slot, cx, &received, &client),
        First::Originated {
            rested,
            client,
            took_ms,
        } => originated(slot, cx, *rested, client, took_ms),
    }
}

/// Begins a connection whose handshake with the client is done: connects to the backend, unless the route
/// does so at the client's first data.
fn terminated<I: Io>(
    slot: &mut Slot,
    cx: &mut Context<'_, I>,
    rested: Rested,
    client: &Client,
    took_ms: u64,
) -> Flow {
    let Rested {
        unsent,
        leftover,
        info,
        keys,
        tickets: _,
    } = rested;
    // Its first events come at once.
    cx.work.keys.keep(slot, keys);
    let id = ConnectionId::of(slot, cx.work.id_seed);
    let done = DoneFields {
        route: &cx.route.name,
        peer: client,
        id: Some(id),
        took_ms,
    };
    let now_ms = cx.work.now_ms;
    let is_traced = cx.work.traces.takes(client.ip(), now_ms);
    cx.work.traces.note(slot, client.address(), now_ms);
    handshake_log::log_done(&info, done, cx.limits.log_handshakes || is_traced);
    // The PROXY header goes to the backend before the client's first byte.
    let mut first = client.proxy_header(&cx.work.io, cx.route, slot, &info, id);
    let header_len = first.len();
    first.extend_from_slice(&leftover);
    cx.outcome.bytes.tls_in += leftover.len() as u64;
    let pending = &mut cx.work.pending;
    backlog::store_sealed(slot, pending, &unsent)?;
    let (header, rest) = (0..header_len, header_len..first.len());
    backlog::store_opening(slot, pending, &first, from_ref(&header), rest, 0)?;
    if header_len > 0 {
        slot.set(Flag::OpeningBlocked);
    }
    if cx.route.backend_connect == ConnectTime::FirstData
        && cx.route.targets().is_some()
        && leftover.is_empty()
    {
        slot.set(Flag::AwaitsClient);
        return Ok(());
    }
    connect::start(slot, cx, client, info.sni.as_deref())
}

/// Begins a pass-through connection: `received` goes to the backend first.
fn passed_through<I: Io>(
    slot: &mut Slot,
    cx: &mut Context<'_, I>,
    received: &[u8],
    client: &Client,
) -> Flow {
    slot.set(Flag::PassThrough);
    let now_ms = cx.work.now_ms;
    cx.work.traces.note(slot, client.address(), now_ms);
    let mut first = client.bare_proxy_header(&cx.work.io, cx.route, slot);
    first.extend_from_slice(received);
    let (all, none) = (0..first.len(), first.len()..first.len());
    let pending = &mut cx.work.pending;
    backlog::store_opening(slot, pending, &first, from_ref(&all), none, 0)?;
    slot.set(Flag::OpeningBlocked);
    cx.outcome.bytes.tls_in += received.len() as u64;
    cx.outcome.bytes.plain_out += received.len() as u64;
    let server_name = match FirstFlight::of(received) {
        FirstFlight::ClientHello(hello) => hello.server_name,
        FirstFlight::Other | FirstFlight::Incomplete => None,
    };
    connect::start(slot, cx, client, server_name.as_deref())
}

/// Begins a connection whose handshake with a server is done. Without a local client it is warm.
fn originated<I: Io>(
    slot: &mut Slot,
    cx: &mut Context<'_, I>,
    rested: Rested,
    client: Option<LocalClient>,
    took_ms: u64,
) -> Flow {
    slot.set_phase(Phase::Warm);
    // Both halves of a connection reach `total_timeout` together.
    let joined_s = client.and_then(|client| client.joined_s);
    slot.opened_s = joined_s.unwrap_or(slot.opened_s);
    let Rested {
        unsent,
        leftover,
        info,
        keys,
        tickets,
    } = rested;
    cx.work.keys.keep(slot, keys);
    handshake_log::count_originated(&info, &cx.work.count);
    if joined_s.is_none() {
        traffic::count_handshake(slot, info.resumed, &cx.work.traffic);
    }
    let done = DoneFields {
        route: &cx.route.name,
        peer: &PeerName::new(&cx.work.io, slot.tls_fd()),
        id: Some(ConnectionId::of(slot, cx.work.id_seed)),
        took_ms,
    };
    handshake_log::log_done(&info, done, cx.limits.log_handshakes);
    let backend_tls = cx.route.backend_tls.as_ref();
    let wait_ms = match cx.route.origin() {
        Some(origin) => Some(origin.ticket_wait_ms),
        None => backend_tls.map(|_| TICKET_WAIT_MS),
    };
    if let (Some(watch), Some(wait_ms)) = (tickets, wait_ms) {
        let until_ms = cx.work.now_ms + wait_ms;
        cx.work.tickets.expect(slot.generation, watch, until_ms);
    }
    if let Some(client) = client {
        attach_plain(slot, &cx.work.io, client);
        if client.is_joined() {
            send_first(&cx.work.io, client.fd, &connect::CONNECTED).map_err(Fault::PlainFailed)?;
        }
        greet(client, cx)?;
    }
    cx.outcome.bytes.tls_in += leftover.len() as u64;
    let pending = &mut cx.work.pending;
    backlog::store_sealed(slot, pending, &unsent)?;
    backlog::store_opening(slot, pending, &leftover, &[], 0..leftover.len(), 0)?;
    opening::open_stored(slot, cx)
}

/// Gives a warm connection to a local client.
pub(crate) fn attach<I: Io>(slot: &mut Slot, cx: &mut Context<'_, I>, client: LocalClient) -> Flow {
    attach_plain(slot, &cx.work.io, client);
    greet(client, cx)?;
    if !slot.has(Flag::OpeningBlocked) {
        slot.set(Flag::Untouched);
    }
    slot.active_s = cx.now_s();
    // The timer of a warm connection is replaced.
    slot.set_timer_purpose(TimerPurpose::None);
    flow::flush_opened(slot, &cx.work.io, &mut cx.work.pending)?;
    Ok(())
}

/// Greets a local client whose server has greeted before TLS.
fn greet<I: Io>(client: LocalClient, cx: &Context<'_, I>) -> Flow {
    if !client.awaits_greeting {
        return Ok(());
    }
    let first = cx.route.origin().and_then(|origin| origin.targets.first());
    let host = first.map_or("localhost", |server| &server.server_name);
    let greeting = greeting_over_tls(cx.route.starttls, host);
    send_first(&cx.work.io, client.fd, &greeting).map_err(Fault::PlainFailed)
}

/// Sends the first bytes on a new socket: the signal to the other end of a joint that the backend is connected, a
/// greeting, or a PROXY header. All of them are mandatory, and a new socket takes a few hundred.
pub(crate) fn send_first(io: &impl Io, fd: Fd, bytes: &[u8]) -> io::Result<()> {
    match io.send(fd, bytes)? {
        Attempt::Done(n) if n == bytes.len() => Ok(()),
        Attempt::Done(_) | Attempt::WouldBlock => Err(io::ErrorKind::WouldBlock.into()),
    }
}

fn attach_plain(slot: &mut Slot, io: &impl Io, client: LocalClient) {
    let cookie = io.cookie(client.fd).unwrap_or(0) as u32;
    slot.attach_plain(client.fd, cookie);
    slot.set_plain_side(client.plain_side());
    slot.set_phase(Phase::Established);
}
