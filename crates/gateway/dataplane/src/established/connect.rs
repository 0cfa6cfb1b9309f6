//! The connect to a backend, between the handshake and the established connection.
//!
//! Meanwhile the TLS side is not read. Bytes that followed the handshake wait as a partial record.

use crate::bursts::{Place, Subject};
use crate::client::Client;
use crate::close_reason::CloseReason;
use crate::established::affinity::{self, Affinity};
use crate::established::close;
use crate::established::context::Context;
use crate::established::fault::Flow;
use crate::established::flow;
use crate::established::opening;
use crate::io::{Io, peer_address};
use crate::memory::backlog;
use crate::outcome::{BackendRequest, Effect};
use crate::pause::Pause;
use crate::starttls::{GREETING_MAX, Greeting, greeting};
use crate::traffic;
use dormouse_config::{BackendDown, Balance};
use dormouse_handover::slot::{Flag, Phase, PlainSide, Slot, TimerPurpose};
use dormouse_reactor::Fd;
use dormouse_reactor::poller;
use dormouse_reactor::socket::{Addr, Attempt, Connecting, Shortage};
use dormouse_routes::balance::{Target, Targets, Tried};
use dormouse_routes::route::Route;
use dormouse_tables::backends::HealthChange;
use dormouse_tables::clients;
use dormouse_tables::counters::Count;
use dormouse_tables::latency::Latency;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// State of the connect to a backend.
enum Connect {
    /// Connected.
    Done,
    /// The kernel is connecting; the socket becomes writable when it is done. Or another part of the worker makes the TLS
    /// connection; the joint becomes readable then.
    InProgress,
    /// No local port is left for this backend; there may be some for another one.
    NoPorts(io::Error),
    /// Descriptors, ports or places ran out; a retry may succeed when a connection has ended.
    TryAgain(io::Error, Option<Pause>),
    /// The backend refused the connection, or can't be reached.
    Failed(io::Error),
}

/// The byte that the far end of a joint sends when its TLS connection is established.
pub(crate) const CONNECTED: [u8; 1] = *b"C";

/// The byte that it sends if no local port is left for the backend.
pub(crate) const NO_PORTS: [u8; 1] = *b"P";

/// The byte that it sends if this machine lacks something else.
pub(crate) const SHORTAGE: [u8; 1] = *b"S";

/// Source addresses tried for one connection, if the ports of the first are used up.
const SOURCES_TRIED: u32 = 4;

/// Ports of our own tried for one connection.
const OWN_PORTS_TRIED: u32 = 16;

/// Choices of a backend tried for one connection, if other workers fill the chosen ones meanwhile.
const ENTERS_TRIED: u32 = 4;

/// Starts to connect `slot` to one of its route's backends, after the handshake with `client`, which asked for
/// `server_name`.
pub(crate) fn start<I: Io>(
    slot: &mut Slot,
    cx: &mut Context<'_, I>,
    client: &Client,
    server_name: Option<&str>,
) -> Flow {
    let noted = match cx.route.targets().map(Targets::balance) {
        Some(Balance::ClientHash) => client.proxied.map(|named| clients::key(named.client.ip())),
        Some(Balance::SniHash) => server_name.map(affinity::of_name),
        _ => None,
    };
    if let Some(key) = noted {
        let until_ms = retries_until_ms(slot, cx);
        let now_ms = cx.work.now_ms;
        let known = &mut cx.work.affinity_keys;
        known.note(slot.generation, key, until_ms, now_ms);
    }
    start_later(slot, cx)
}

/// As [`start`], later: a client is known by its socket, unless a proxy named it.
pub(crate) fn start_later<I: Io>(slot: &mut Slot, cx: &mut Context<'_, I>) -> Flow {
    let now_ms = cx.work.now_ms;
    cx.work.connect_times.began(slot.generation, now_ms);
    let connect = match affinity(slot, cx) {
        Affinity::Key(key) => connect_first(slot, cx, Some(key)),
        Affinity::None => connect_first(slot, cx, None),
        Affinity::Awaited => Connect::TryAgain(
            io::Error::other("the client's first data is incomplete"),
            None,
        ),
    };
    follow(slot, cx, connect)
}

/// The key by which the route's rule chooses a backend.
fn affinity<I: Io>(slot: &Slot, cx: &mut Context<'_, I>) -> Affinity {
    let key = match cx.route.targets().map(Targets::balance) {
        Some(Balance::ClientHash) => {
            let noted = cx.work.affinity_keys.of(slot.generation);
            let peer = || Some(clients::key(peer_address(&cx.work.io, slot.tls_fd())?.ip()));
            noted.or_else(peer)
        }
        Some(Balance::SniHash) => cx.work.affinity_keys.of(slot.generation),
        Some(Balance::MqttClientId) => {
            let timeout_ms = cx.route.lifetime.connect_ms;
            return affinity::of_first_data(slot, cx.work, timeout_ms);
        }
        Some(Balance::RoundRobin | Balance::LeastConnections) | None => None,
    };
    key.map_or(Affinity::None, Affinity::Key)
}

/// Checks the result of a connect, after the plain side has become ready.
pub(crate) fn finish<I: Io>(
    slot: &mut Slot,
    ready: poller::Event,
    cx: &mut Context<'_, I>,
) -> Flow {
    let connect = if slot.is_joined() {
        finish_joint(slot, cx)
    } else {
        match cx.work.io.take_error(slot.plain_fd()) {
            Ok(()) if slot.has(Flag::AwaitsGreeting) => {
                read_greeting(slot, cx, ready.is_read_closed())
            }
            Ok(()) => reached(slot, cx),
            Err(e) => Connect::Failed(e),
        }
    };
    follow(slot, cx, connect)
}

/// Establishes the connection, unless the backend's greeting comes first: clients that start TLS read it before.
fn reached<I: Io>(slot: &mut Slot, cx: &mut Context<'_, I>) -> Connect {
    if !cx.route.starttls.has_greeting() {
        slot.set_phase(Phase::Established);
        return Connect::Done;
    }
    slot.set(Flag::AwaitsGreeting);
    if slot.has(Flag::OpeningBlocked) {
        // A backend that expects a PROXY header greets after it. The header stays stored for the next backend.
        let header = backlog::opened(slot, &cx.work.pending);
        match cx.work.io.send(slot.plain_fd(), header) {
            Ok(Attempt::Done(n)) if n == header.len() => {}
            Ok(_) => return Connect::Failed(io::Error::other("PROXY header not taken at once")),
            Err(e) => return Connect::Failed(e),
        }
    }
    read_greeting(slot, cx, false)
}

/// Takes the backend's greeting from the socket once it has arrived as a whole. `is_all`: nothing follows.
fn read_greeting<I: Io>(slot: &mut Slot, cx: &mut Context<'_, I>, is_all: bool) -> Connect {
    let (fd, work) = (slot.plain_fd(), &mut *cx.work);
    let room = &mut work.scratch.opening[..GREETING_MAX];
    let received = match work.io.peek(fd, room) {
        Ok(Attempt::Done(n)) if n > 0 => n,
        Ok(Attempt::WouldBlock) => return Connect::InProgress,
        Ok(Attempt::Done(_)) => {
            return Connect::Failed(io::Error::other("closed before its greeting"));
        }
        Err(e) => return Connect::Failed(e),
    };
    // A reload may have changed the protocol meanwhile; then everything is for the client.
    let greeting = greeting(cx.route.starttls, &room[..received]).unwrap_or(Greeting::Complete(0));
    let len = match greeting {
        Greeting::Complete(len) => len,
        Greeting::Partial if is_all => {
            return Connect::Failed(io::Error::other("closed within its greeting"));
        }
        Greeting::Partial if received == GREETING_MAX => {
            return Connect::Failed(io::Error::other("greeting longer than 4 KiB"));
        }
        Greeting::Partial => return Connect::InProgress,
    };
    if len > 0 && !matches!(work.io.recv(fd, &mut room[..len]), Ok(Attempt::Done(n)) if n == len) {
        return Connect::Failed(io::Error::other("its greeting cannot be read again"));
    }
    slot.set_phase(Phase::Established);
    Connect::Done
}

/// Tries the next backend, because the current one did not answer in time.
pub(crate) fn time_out<I: Io>(slot: &mut Slot, cx: &mut Context<'_, I>) -> Flow {
    let reason = "no answer within backend_connect_timeout";
    match fail_over(slot, cx, reason) {
        Some(next) => follow(slot, cx, next),
        None => {
            give_up(slot, cx, reason);
            Ok(())
        }
    }
}

/// Refuses a client that waits for a backend.
pub(crate) fn refuse<I: Io>(slot: &mut Slot, cx: &mut Context<'_, I>) {
    give_up(slot, cx, "a reload changed which clients the route admits");
}

/// Acts on the state of the connect; tries the next backend if this one failed.
fn follow<I: Io>(slot: &mut Slot, cx: &mut Context<'_, I>, mut connect: Connect) -> Flow {
    let mut no_ports = None;
    // Each backend is tried at most once, so the loop ends.
    loop {
        let failure = match connect {
            Connect::Done => return connected(slot, cx),
            Connect::InProgress => return Ok(()),
            Connect::NoPorts(e) => {
                connect = match pass_over(slot, cx) {
                    Some(next) => {
                        no_ports = Some(e);
                        next
                    }
                    None => Connect::TryAgain(e, Some(Pause::Ports)),
                };
                continue;
            }
            Connect::TryAgain(_, pause) if may_retry(slot, cx) => {
                cx.outcome.effects.extend(pause.map(Effect::PauseAccepting));
                return Ok(());
            }
            Connect::TryAgain(e, _) => {
                give_up(slot, cx, &e.to_string());
                return Ok(());
            }
            Connect::Failed(e) => e.to_string(),
        };
        if let Some(next) = fail_over(slot, cx, &failure) {
            connect = next;
        } else if let Some(e) = no_ports.take() {
            // The others have failed, but this one gets a port when a connection has ended.
            connect = Connect::TryAgain(e, Some(Pause::Ports));
        } else {
            give_up(slot, cx, &failure);
            return Ok(());
        }
    }
}

fn connected<I: Io>(slot: &mut Slot, cx: &mut Context<'_, I>) -> Flow {
    note_connected(slot, cx);
    // From now on this counts attempts to rest.
    slot.set_tried(0);
    let was_greeted = slot.has(Flag::AwaitsGreeting);
    slot.clear(Flag::AwaitsGreeting);
    if (slot.is_joined() || was_greeted) && slot.has(Flag::OpeningBlocked) {
        // The PROXY header was already sent, before the handshake with the backend or before its greeting.
        let pending = &mut cx.work.pending;
        let header_len = backlog::opened(slot, pending).len();
        backlog::opened_sent(slot, pending, header_len);
    }
    flush_and_open(slot, cx)
}

/// Sends the plaintext pending for the plain side, then opens the records that followed the handshake.
pub(crate) fn flush_and_open(slot: &mut Slot, cx: &mut Context<'_, impl Io>) -> Flow {
    if flow::flush_opened(slot, &cx.work.io, &mut cx.work.pending)? {
        opening::open_stored(slot, cx)?;
    }
    Ok(())
}

fn note_connected<I: Io>(slot: &Slot, cx: &mut Context<'_, I>) {
    traffic::count_connected(slot, &cx.work.traffic);
    cx.work.affinity_keys.forget(slot.generation);
    let now_ms = cx.work.now_ms;
    let took_ms = cx.work.connect_times.done(slot.generation, now_ms);
    if let Some(took_ms) = took_ms.filter(|_| !slot.is_echo()) {
        let took_us = took_ms.saturating_mul(1000);
        cx.work.count.observe(Latency::BackendConnect, took_us);
    }
    let target = cx.route.targets().and_then(|all| current(slot, all));
    if let Some((_, target)) = target
        && cx.work.backends.succeeded(target.place, now_ms) == HealthChange::Up
    {
        let (route, backend) = (cx.route.name.as_str(), target.name.as_str());
        let (subject, place) = (Subject::BackendRecovered, Place::of_backend(backend));
        cx.work.bursts.note(subject, place, now_ms, |more| {
            tracing::info!(route, backend, more, "backend recovered");
        });
    }
}

/// Requests a TLS connection between the far end of a joint and the backend.
fn request_tls<I: Io>(slot: &Slot, cx: &mut Context<'_, I>, target: &Target, end: Fd) {
    let tls = cx.route.backend_tls.as_ref();
    let Some(server_name) = tls.and_then(|tls| tls.server_name(target)) else {
        // Our end of the joint reports the close as a failed connect.
        return cx.work.io.close(end);
    };
    let preface = match slot.has(Flag::OpeningBlocked) {
        true => backlog::opened(slot, &cx.work.pending).to_vec(),
        false => Vec::new(),
    };
    cx.outcome
        .effects
        .push(Effect::ConnectBackend(BackendRequest {
            end,
            opened_s: slot.opened_s,
            route: slot.route,
            address: target.address.clone(),
            server_name,
            preface,
        }));
}

fn may_retry<I>(slot: &Slot, cx: &Context<'_, I>) -> bool {
    cx.work.now_ms < retries_until_ms(slot, cx)
}

fn retries_until_ms<I>(slot: &Slot, cx: &Context<'_, I>) -> u64 {
    slot.active_until_ms() + cx.route.lifetime.connect_ms
}

/// Gives up, because no backend is left. By default the client gets an alert, which it can't mistake
/// for an empty answer; `backend_down` selects something else.
fn give_up<I: Io>(slot: &mut Slot, cx: &mut Context<'_, I>, reason: &str) {
    close_plain(slot, &cx.work.io);
    cx.work.affinity_keys.forget(slot.generation);
    let backend = &cx.route.backend_name;
    let how = match slot.has(Flag::PassThrough) {
        // We can't send an alert in a pass-through connection.
        true => BackendDown::Reset,
        false => cx.route.backend_down,
    };
    let answer = match how {
        BackendDown::Alert => "alert internal_error",
        BackendDown::Reset => "reset",
        BackendDown::Close => "close_notify",
    };
    let now_ms = cx.work.now_ms;
    let place = Place::Route(slot.route);
    cx.work
        .bursts
        .note(Subject::BackendDown, place, now_ms, |more| {
            let route = cx.route.name.as_str();
            tracing::warn!(route, %backend, error = reason, answer, more, "backend connect failed");
        });
    cx.note_close(slot, CloseReason::BackendDown);
    close::begin_refusal(slot, cx.work, how);
}

fn close_plain(slot: &mut Slot, io: &impl Io) {
    slot.clear(Flag::AwaitsGreeting);
    let fd = slot.detach_plain();
    if fd != Fd::NONE {
        io.close(fd);
    }
}

/// The backends for this connection. A reload may have given its route's number to an origination, or changed whether
/// TLS passes through there: then there are none.
fn targets_for<'a>(slot: &Slot, route: &'a Route) -> Option<&'a Targets> {
    let targets = route.targets();
    targets.filter(|_| route.passes_through() == slot.has(Flag::PassThrough))
}

fn connect_first<I: Io>(slot: &mut Slot, cx: &mut Context<'_, I>, key: Option<u64>) -> Connect {
    let Some(targets) = targets_for(slot, cx.route) else {
        if !cx.route.is_echo() || slot.has(Flag::PassThrough) {
            return Connect::Failed(io::Error::other("a reload removed the route"));
        }
        slot.set_plain_side(PlainSide::Echo);
        slot.set_phase(Phase::Established);
        return Connect::Done;
    };
    if let (true, Some(unresolved)) = (targets.all.is_empty(), targets.unresolved()) {
        let error = format!("the name {unresolved} has not resolved yet");
        return Connect::Failed(io::Error::other(error));
    }
    for _ in 0..ENTERS_TRIED {
        let choice = targets.first(key, &cx.work.backends, cx.work.now_ms);
        let Some(target) = choice.in_list(targets) else {
            break;
        };
        if enter(slot, cx, target) {
            slot.set_tried(Tried::first(target).0);
            return connect_to(slot, cx, target);
        }
    }
    // If the counts of this worker were changed by another one, the next choice finds the right ones.
    cx.work.backends.restate();
    let full = io::Error::other("every backend has reached max_connections");
    Connect::TryAgain(full, None)
}

/// Starts to connect to the next backend that is up, because no local port is left for the current one. That is no failure
/// of the backend. (One that is marked down is no better than the current one, which gets a port sooner or later.)
fn pass_over<I: Io>(slot: &mut Slot, cx: &mut Context<'_, I>) -> Option<Connect> {
    close_plain(slot, &cx.work.io);
    let targets = targets_for(slot, cx.route)?;
    let next = connect_next(slot, cx, targets, true)?;
    // As after a failure.
    restart_timer(slot);
    Some(next)
}

/// Gives the next backend the whole backend_connect_timeout.
fn restart_timer(slot: &mut Slot) {
    if slot.phase() == Phase::Connecting {
        slot.set_timer_purpose(TimerPurpose::None);
    }
}

/// Counts a failed connect, and starts to connect to the next backend if there is one.
fn fail_over<I: Io>(slot: &mut Slot, cx: &mut Context<'_, I>, reason: &str) -> Option<Connect> {
    cx.work.count.add(Count::BackendConnectsFailed, 1);
    traffic::count_connect_failed(slot, &cx.work.traffic);
    close_plain(slot, &cx.work.io);
    let targets = targets_for(slot, cx.route)?;
    if let Some((_, target)) = current(slot, targets) {
        let (most, pause_ms, now_ms) = (targets.failures_max, targets.pause_ms, cx.work.now_ms);
        let known = &cx.work.backends;
        if known.failed(target.place, most, pause_ms, now_ms) == HealthChange::Down {
            let (route, backend) = (cx.route.name.as_str(), target.name.as_str());
            // A single backend is still tried, so it may fail and recover often.
            let (subject, place) = (Subject::BackendMarked, Place::of_backend(backend));
            cx.work.bursts.note(subject, place, now_ms, |more| {
                tracing::warn!(
                    route,
                    backend,
                    error = reason,
                    failures = most,
                    pause_ms,
                    more,
                    "backend marked down after failures"
                );
            });
        }
    }
    let next = connect_next(slot, cx, targets, false)?;
    cx.work.count.add(Count::BackendFailovers, 1);
    restart_timer(slot);
    Some(next)
}

/// Starts to connect to the next backend that was not tried yet. `only_up`: not to one that is marked down.
fn connect_next<I: Io>(
    slot: &mut Slot,
    cx: &mut Context<'_, I>,
    targets: &Targets,
    only_up: bool,
) -> Option<Connect> {
    // If the current backend was removed meanwhile, the search starts with the first one.
    let mut last = current(slot, targets).map_or(0, |(last, _)| last);
    leave(slot, cx);
    loop {
        let (known, now_ms) = (&cx.work.backends, cx.work.now_ms);
        let (choice, tried) = targets.next(last, Tried(slot.tried()), known, now_ms);
        let target = choice.in_list(targets)?;
        // Those that are up come first.
        if only_up && !known.is_up(target.place, now_ms) {
            return None;
        }
        slot.set_tried(tried.0);
        if enter(slot, cx, target) {
            return Some(connect_to(slot, cx, target));
        }
        // Each backend is skipped at most once, so the loop ends.
        let mut all = targets.all.iter();
        last = all.position(|one| one.place == target.place)?;
    }
}

/// Counts the connection at this backend. Returns `false` if another worker was faster: the backend
/// has now reached its limit, or that worker is probing it after a pause.
fn enter<I>(slot: &mut Slot, cx: &mut Context<'_, I>, target: &Target) -> bool {
    let known = &cx.work.backends;
    slot.backend = target.place;
    known.enter(target.place);
    let most = target.connections_max.map_or(u64::MAX, u64::from);
    let pause_ms = cx.route.targets().map_or(0, |targets| targets.pause_ms);
    let is_entered =
        known.load(target.place) <= most && known.try_again(target.place, pause_ms, cx.work.now_ms);
    if !is_entered {
        leave(slot, cx);
    }
    is_entered
}

fn leave<I>(slot: &mut Slot, cx: &mut Context<'_, I>) {
    cx.work.backends.leave(slot.backend);
    slot.backend = 0;
}

/// The current backend of `slot`, or the last one tried, and its index in the list.
fn current<'a>(slot: &Slot, targets: &'a Targets) -> Option<(usize, &'a Target)> {
    let mut all = targets.all.iter().enumerate();
    all.find(|(_, target)| target.place == slot.backend)
}

fn connect_to<I: Io>(slot: &mut Slot, cx: &mut Context<'_, I>, target: &Target) -> Connect {
    let backend = &target.address;
    if cx.route.backend_tls.is_some() {
        return join(slot, cx, target);
    }
    slot.set_plain_side(match backend {
        Addr::Unix(_) => PlainSide::Unix,
        _ => PlainSide::Tcp,
    });
    // Without such bytes, the backend may be the one that speaks first.
    let speaks_first = slot.opening_pending.is_some() || slot.has(Flag::TlsWaits);
    let (turn, sources) = (slot.generation, cx.limits.sources);
    let from_own_port = connect_from_own_port(turn, backend, speaks_first, cx);
    let io = &cx.work.io;
    let connecting = from_own_port
        .unwrap_or_else(|| connect(io, turn, cx.route, backend, sources, speaks_first));
    let connecting = match connecting {
        Ok(connecting) => connecting,
        Err(e) => return failed(slot, cx, e),
    };
    let fd = connecting.fd();
    let cookie = io.cookie(fd).unwrap_or(0) as u32;
    slot.attach_plain(fd, cookie);
    io.set_backend_options(&cx.route.sockets, fd, backend);
    match connecting {
        Connecting::Established(_) => reached(slot, cx),
        Connecting::InProgress(_) => Connect::InProgress,
    }
}

/// Connects to a backend with TLS: creates a joint, whose far end gets a TLS connection.
fn join<I: Io>(slot: &mut Slot, cx: &mut Context<'_, I>, target: &Target) -> Connect {
    match cx.work.io.joint() {
        Ok((ours, theirs)) => {
            slot.set_plain_side(PlainSide::Joint);
            let cookie = cx.work.io.cookie(ours).unwrap_or(0) as u32;
            slot.attach_plain(ours, cookie);
            request_tls(slot, cx, target, theirs);
            Connect::InProgress
        }
        Err(e) => failed(slot, cx, e),
    }
}

fn failed<I>(slot: &mut Slot, cx: &mut Context<'_, I>, e: io::Error) -> Connect {
    match Shortage::of(&e) {
        None => Connect::Failed(e),
        Some(Shortage::Ports) => Connect::NoPorts(e),
        Some(shortage) => {
            leave(slot, cx);
            Connect::TryAgain(e, Pause::for_shortage(shortage))
        }
    }
}

/// Connects from a port outside of the kernel's range, if the connection may rest. `None`: it may not, or no such port is
/// free.
fn connect_from_own_port<I: Io>(
    turn: u32,
    backend: &Addr,
    speaks_first: bool,
    cx: &mut Context<'_, I>,
) -> Option<io::Result<Connecting>> {
    cx.route.lifetime.rest_after_ms?;
    let Addr::Tcp(address) = backend else {
        return None;
    };
    let link = cx.work.repair.as_mut()?;
    let count = cx.route.sources_count(backend, cx.limits.sources);
    let source = cx.route.source(turn % count);
    let any = match address {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let mut options = cx.route.sockets.connect_options(None, speaks_first);
    for _ in 0..OWN_PORTS_TRIED {
        let port = link.ports.choose(*address, source)?;
        options.source = Some(SocketAddr::new(source.unwrap_or(any), port));
        match cx.work.io.connect(backend, &options) {
            // A service listens there, or a connection with this port exists or has just ended.
            Err(e) if Shortage::of(&e) == Some(Shortage::Ports) => {}
            result => return Some(result),
        }
    }
    None
}

/// Connects from the source addresses in turn, and skips an address without a free port. `speaks_first`:
/// bytes for the backend are there already.
pub(crate) fn connect(
    io: &impl Io,
    turn: u32,
    route: &Route,
    backend: &Addr,
    own_sources: u32,
    speaks_first: bool,
) -> io::Result<Connecting> {
    let count = route.sources_count(backend, own_sources);
    let mut tried = 0;
    loop {
        let source = route.source(turn.wrapping_add(tried) % count);
        let options = route.sockets.connect_options(source, speaks_first);
        let result = io.connect(backend, &options);
        tried += 1;
        match result {
            Err(e)
                if Shortage::of(&e) == Some(Shortage::Ports)
                    && tried < count.min(SOURCES_TRIED) => {}
            result => return result,
        }
    }
}

/// Reads the signal of the joint's far end: one of the bytes above, or the end of the joint.
fn finish_joint<I: Io>(slot: &mut Slot, cx: &mut Context<'_, I>) -> Connect {
    let mut signal = [0; CONNECTED.len()];
    match cx.work.io.recv(slot.plain_fd(), &mut signal) {
        Ok(Attempt::WouldBlock) => Connect::InProgress,
        Ok(Attempt::Done(n)) if n > 0 => match signal {
            NO_PORTS => Connect::NoPorts(io::Error::other("no local port left")),
            SHORTAGE => {
                close_plain(slot, &cx.work.io);
                leave(slot, cx);
                // The far end has paused accepting, if that helps.
                Connect::TryAgain(io::Error::other("too few descriptors or memory"), None)
            }
            _ => {
                slot.set_phase(Phase::Established);
                Connect::Done
            }
        },
        _ => Connect::Failed(io::Error::other("no TLS connection established")),
    }
}
