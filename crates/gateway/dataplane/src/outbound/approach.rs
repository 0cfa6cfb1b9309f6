//! The way of an attempt to its server: the connect, the request for TLS if the server begins in plaintext, and the
//! beginning of the handshake.

use super::attempt::{self, Attempt, AttemptStep, Stage};
use crate::context::WorkerContext;
use crate::established::begin::send_first;
use crate::established::connect;
use crate::io::Io;
use crate::settings::Settings;
use crate::starttls::Request;
use crate::token::{self, Id};
use dormouse_config::Starttls;
use dormouse_engine::{Handshake, HandshakeLimits};
use dormouse_reactor::poller::Interest;
use dormouse_reactor::socket::{Addr, Connecting};
use dormouse_routes::origin::Origin;
use dormouse_routes::route::Route;
use std::io;
use std::net::Ipv4Addr;

/// A TLS client sends its hello as soon as it is connected.
const SPEAKS_FIRST: bool = true;

pub(super) fn connect_to<I: Io>(
    attempt: &Attempt,
    target: usize,
    id: Id,
    cx: &WorkerContext<I>,
) -> io::Result<Connecting> {
    let missing = || io::Error::from(io::ErrorKind::NotFound);
    let (generation, io) = (attempt.generation, &cx.work.io);
    let route = cx.settings.route(attempt.route).ok_or_else(missing)?;
    let connecting = match &attempt.request {
        Some(request) => {
            let (address, sources) = (&request.address, cx.settings.limits.sources);
            let connecting =
                connect::connect(io, generation, route, address, sources, SPEAKS_FIRST)?;
            io.set_backend_options(&route.sockets, connecting.fd(), address);
            connecting
        }
        None => {
            let origin = route.origin().ok_or_else(missing)?;
            let target = origin.targets.get(target).ok_or_else(missing)?;
            let options = route.sockets.connect_options(None, SPEAKS_FIRST);
            let connecting = io.connect(&target.address, &options)?;
            io.set_server_options(&route.sockets, connecting.fd());
            connecting
        }
    };
    let token = token::origination(id);
    let watched = io.watch(connecting.fd(), token, Interest::WRITE);
    watched.inspect_err(|_| io.close(connecting.fd()))?;
    Ok(connecting)
}

/// Begins the handshake if the TCP connection is established, or asks the server for TLS first.
pub(super) fn begin_handshake<I: Io>(
    attempt: &mut Attempt,
    cx: &mut WorkerContext<I>,
) -> AttemptStep {
    if let Err(error) = cx.work.io.take_error(attempt.fd) {
        return AttemptStep::failed(&error);
    }
    let protocol = match attempt.request {
        Some(_) => Starttls::Off,
        None => starttls(attempt.route, &cx.settings),
    };
    if protocol == Starttls::Off {
        return begin_tls(attempt, cx);
    }
    let origin = origin(attempt.route, &cx.settings);
    let Some(target) = origin.and_then(|one| one.targets.get(attempt.target)) else {
        return AttemptStep::failed(&"a reload removed the server");
    };
    let own = match cx.work.io.local_address(attempt.fd) {
        Ok(Addr::Tcp(own)) => own.ip(),
        // The server is on this machine, or the connection ends anyway.
        Ok(Addr::Unix(_)) | Err(_) => Ipv4Addr::LOCALHOST.into(),
    };
    attempt.stage = Stage::Asking(Request::new(protocol, &target.server_name, own));
    ask_for_tls(attempt, cx)
}

/// Asks the server for TLS, and begins the handshake when it has consented.
pub(super) fn ask_for_tls<I: Io>(attempt: &mut Attempt, cx: &mut WorkerContext<I>) -> AttemptStep {
    let Stage::Asking(request) = &mut attempt.stage else {
        unreachable!("the server is asked for TLS");
    };
    match attempt::ask(attempt.fd, request, &mut cx.work) {
        AttemptStep::Established => begin_tls(attempt, cx),
        step => step,
    }
}

/// Begins the handshake.
fn begin_tls<I: Io>(attempt: &mut Attempt, cx: &mut WorkerContext<I>) -> AttemptStep {
    let limits = HandshakeLimits {
        bytes_max: cx.settings.limits.handshake_bytes_max,
    };
    let route = cx.settings.route(attempt.route);
    if let Some(request) = &attempt.request {
        let tls = route.and_then(|route| route.backend_tls.as_ref());
        let Some(context) = tls.and_then(|tls| tls.context.as_ref()) else {
            return AttemptStep::failed(&"a reload turned off TLS to this backend");
        };
        let preface = &request.preface;
        if !preface.is_empty() && send_first(&cx.work.io, attempt.fd, preface).is_err() {
            return AttemptStep::failed(&"the PROXY header could not be sent");
        }
        return match Handshake::client(context, &request.server_name, limits) {
            Ok(handshake) => attempt.shake_hands(handshake, &mut cx.work),
            Err(error) => AttemptStep::failed(&error),
        };
    }
    let Some(origin) = route.and_then(Route::origin) else {
        return AttemptStep::failed(&"a reload removed the route");
    };
    let Some(target) = origin.targets.get(attempt.target) else {
        return AttemptStep::failed(&"a reload removed the server");
    };
    match Handshake::client(&origin.context, &target.server_name, limits) {
        Ok(mut handshake) => {
            if let Some(sessions) = &target.sessions {
                handshake.keep_sessions(sessions.clone());
            }
            attempt.shake_hands(handshake, &mut cx.work)
        }
        Err(error) => AttemptStep::failed(&error),
    }
}

pub(super) fn origin(route: u16, settings: &Settings) -> Option<&Origin> {
    settings.route(route)?.origin()
}

pub(super) fn starttls(route: u16, settings: &Settings) -> Starttls {
    let route = settings.route(route);
    route.map_or(Starttls::Off, |route| route.starttls)
}
