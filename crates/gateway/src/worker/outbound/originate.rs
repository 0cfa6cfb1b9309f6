//! The other direction: plain connections come in, TLS goes out.
//!
//! ```text
//!   accepted ──> a warm connection is ready: given at once
//!            └─> connect ──> handshake ──> slot, established
//!                   ↑ failed │ failed
//!                   └────────┴── next server
//! ```
//!
//! Until the handshake is done the plain socket is not read: what its client says waits in the
//! kernel. Servers are tried in their order; one that failed is passed over for a while, the longer
//! the more often it does. If none is left, the client's connection is reset: an end would look
//! like an empty answer.

use crate::counters::Count;
use crate::origin::Origin;
use crate::route::Direction;
use crate::worker::Worker;
use crate::worker::established::connect;
use crate::worker::established::flow::{RECEIVE_MAX, Tools};
use crate::worker::established::interest::{self, Side};
use crate::worker::handshake::in_flight::flush;
use crate::worker::io::Io;
use crate::worker::outbound::attempts::{Entry, Stage};
use crate::worker::outbound::failure::Trouble;
use crate::worker::outbound::warm::Pool;
use crate::worker::token;
use dormouse_engine::{Handshake, HandshakeLimits, Progress};
use dormouse_reactor::Fd;
use dormouse_reactor::poller::Interest;
use dormouse_reactor::socket::{Addr, Attempt, Connecting, Shortage};
use std::fmt;
use std::io;

/// An accepted connection.
#[derive(Clone, Copy)]
pub(crate) struct Plain {
    pub(crate) fd: Fd,
    pub(crate) is_unix: bool,
    /// It is one end of a joint: a client's connection lies behind the other one.
    pub(crate) is_joined: bool,
}

/// A backend that is to be reached by TLS, for a client's connection behind a joint.
pub(crate) struct Errand {
    pub(crate) end: Fd,
    pub(crate) route: u16,
    pub(crate) address: Addr,
    pub(crate) server_name: String,
    /// What the backend is told in plain text, before the handshake.
    pub(crate) preface: Vec<u8>,
}

impl Plain {
    pub(crate) fn reset(self, io: &impl Io) {
        if self.is_unix {
            io.close(self.fd);
        } else {
            io.reset(self.fd);
        }
    }
}

/// What a step led to.
enum Step {
    Continues,
    Established,
    Failed(Trouble),
}

fn failed(why: &dyn fmt::Display) -> Step {
    Step::Failed(Trouble::Connection(why.to_string()))
}

impl<I: Io> Worker<I> {
    /// A local client has come.
    pub(crate) fn accept_plain(&mut self, plain: Plain, route: u16) {
        self.tools.count.add(Count::Accepted, 1);
        if let Some(plain) = self.give_warm(route, plain) {
            self.originate(Some(plain), route);
        }
    }

    /// Begins a TLS connection, for a local client or for the warm ones.
    pub(crate) fn originate(&mut self, plain: Option<Plain>, route: u16) {
        let timeout_ms = self.limits.handshake_timeout_ms;
        self.begin_origination(plain, route, None, timeout_ms);
    }

    /// Begins a TLS connection to a backend. Its client's connection tries another one if this does
    /// not come about.
    pub(crate) fn originate_joined(&mut self, errand: Errand) {
        let plain = Plain {
            fd: errand.end,
            is_unix: true,
            is_joined: true,
        };
        let timeout_ms = self.limits.backend_connect_timeout_ms;
        self.begin_origination(Some(plain), errand.route, Some(errand), timeout_ms);
    }

    fn begin_origination(
        &mut self,
        plain: Option<Plain>,
        route: u16,
        errand: Option<Errand>,
        timeout_ms: u64,
    ) {
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation & token::GENERATION_MASK;
        let index = self.originations.insert(Entry {
            plain,
            route,
            generation,
            errand,
            target: 0,
            tried: Vec::new(),
            fd: Fd::NONE,
            begun_ms: self.now_ms,
            stage: Stage::Connecting,
            watched: Interest::WRITE,
        });
        let deadline_ms = self.now_ms + timeout_ms;
        self.originations.end_by(deadline_ms, index, generation);
        self.try_next(index, generation);
    }

    pub(crate) fn origin(&self, route: u16) -> Option<&Origin> {
        match &self.routes.get(usize::from(route))?.direction {
            Direction::Originate(origin) => Some(origin),
            Direction::Terminate { .. } | Direction::PassThrough(_) | Direction::Gone => None,
        }
    }

    /// Connects to the next server; without one, gives up.
    pub(crate) fn try_next(&mut self, index: u32, generation: u32) {
        while let Some(entry) = self.originations.entry(index, generation) {
            let (route, tried) = (entry.route, entry.tried.clone());
            let is_errand = entry.errand.is_some();
            let now_ms = self.now_ms;
            let targets = match self.origin(route) {
                Some(origin) => origin.targets.len(),
                None => usize::from(is_errand),
            };
            let chosen = self.originations.choose(route, targets, &tried, now_ms);
            let Some(target) = chosen else {
                return self.abandon(index, generation);
            };
            let connected = self.connect(index, generation, target);
            let Some(entry) = self.originations.entry(index, generation) else {
                return;
            };
            entry.target = target;
            entry.begun_ms = now_ms;
            entry.tried.push(target);
            let attempt = entry.tried.len();
            match connected {
                Ok(connecting) => {
                    entry.fd = connecting.fd();
                    entry.stage = Stage::Connecting;
                    entry.watched = Interest::WRITE;
                    let late_ms = now_ms + self.limits.backend_connect_timeout_ms;
                    self.originations
                        .end_attempt_by(late_ms, index, generation, attempt);
                    if matches!(connecting, Connecting::Established(_)) {
                        self.on_origination(index, generation);
                    }
                    return;
                }
                Err(error) => {
                    if let Some(shortage) = Shortage::of(&error) {
                        self.pause_for(shortage);
                    }
                    if !is_errand {
                        let trouble = Trouble::Connection(error.to_string());
                        self.report(route, target, &trouble, 0);
                    }
                }
            }
        }
    }

    fn connect(&mut self, index: u32, generation: u32, target: usize) -> io::Result<Connecting> {
        let token = token::origination(index, generation);
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let Worker {
            originations,
            routes,
            limits,
            tools,
            ..
        } = self;
        let entry = originations.entry(index, generation).ok_or_else(missing)?;
        let route = routes.get(usize::from(entry.route)).ok_or_else(missing)?;
        let connecting = match (&entry.errand, &route.direction) {
            (Some(errand), _) => {
                let address = &errand.address;
                let connecting =
                    connect::connect(&tools.io, generation, route, address, limits.sources)?;
                tools
                    .io
                    .set_backend_options(&route.sockets, connecting.fd(), address);
                connecting
            }
            (None, Direction::Originate(origin)) => {
                let target = origin.targets.get(target).ok_or_else(missing)?;
                let options = route.sockets.connect_options(None);
                let connecting = tools.io.connect(&target.address, &options)?;
                tools.io.set_server_options(&route.sockets, connecting.fd());
                connecting
            }
            (None, _) => return Err(missing()),
        };
        let added = tools.io.watch(connecting.fd(), token, Interest::WRITE);
        added.inspect_err(|_| tools.io.close(connecting.fd()))?;
        Ok(connecting)
    }

    pub(crate) fn on_origination(&mut self, index: u32, generation: u32) {
        let Some(entry) = self.originations.entry(index, generation) else {
            return;
        };
        let (route, target) = (entry.route, entry.target);
        let step = if matches!(entry.stage, Stage::Connecting) {
            self.begin_client_handshake(index, generation)
        } else {
            entry.shake(&mut self.tools)
        };
        match step {
            Step::Established => {
                if self.origin(route).is_some() {
                    self.originations.note_success(route, target);
                }
                self.originated(index, generation);
            }
            Step::Failed(trouble) => self.attempt_failed(index, generation, &trouble),
            Step::Continues => self.watch_origination(index, generation),
        }
    }

    /// The TCP connection is there, or has failed.
    fn begin_client_handshake(&mut self, index: u32, generation: u32) -> Step {
        let limits = HandshakeLimits {
            bytes_max: self.limits.handshake_bytes_max,
        };
        let Worker {
            originations,
            routes,
            tools,
            ..
        } = self;
        let Some(entry) = originations.entry(index, generation) else {
            return Step::Continues;
        };
        if let Err(error) = tools.io.take_error(entry.fd) {
            return failed(&error);
        }
        let route = routes.get(usize::from(entry.route));
        if let Some(errand) = &entry.errand {
            let tls = route.and_then(|route| route.backend_tls.as_ref());
            let Some(context) = tls.and_then(|tls| tls.context.as_ref()) else {
                return failed(&"TLS is not spoken with it any more");
            };
            // A new socket takes a few hundred bytes at once.
            let said = match errand.preface.is_empty() {
                true => Ok(Attempt::Done(0)),
                false => tools.io.send(entry.fd, &errand.preface),
            };
            if !matches!(said, Ok(Attempt::Done(n)) if n == errand.preface.len()) {
                return failed(&"it can't be told who the client is");
            }
            return match Handshake::client(context, &errand.server_name, limits) {
                Ok(handshake) => {
                    entry.stage = Stage::Shaking(Box::new(handshake));
                    entry.handle(0, tools)
                }
                Err(error) => failed(&error),
            };
        }
        let Some(Direction::Originate(origin)) = route.map(|route| &route.direction) else {
            return failed(&"there is no such route");
        };
        let Some(target) = origin.targets.get(entry.target) else {
            return failed(&"there is no such server");
        };
        match Handshake::client(&origin.context, &target.server_name, limits) {
            Ok(mut handshake) => {
                if let Some(sessions) = &target.sessions {
                    handshake.keep_sessions(sessions.clone());
                }
                entry.stage = Stage::Shaking(Box::new(handshake));
                entry.handle(0, tools)
            }
            Err(error) => failed(&error),
        }
    }

    fn watch_origination(&mut self, index: u32, generation: u32) {
        let token = token::origination(index, generation);
        let Some(entry) = self.originations.entry(index, generation) else {
            return;
        };
        let blocked = match &entry.stage {
            Stage::Connecting => true,
            Stage::Shaking(handshake) => !handshake.output().is_empty(),
        };
        let wanted = if blocked {
            Interest::WRITE
        } else {
            Interest::READ
        };
        if wanted == entry.watched {
            return;
        }
        entry.watched = wanted;
        if let Err(error) = self.tools.io.rewatch(entry.fd, token, wanted) {
            let trouble = Trouble::Connection(error.to_string());
            self.attempt_failed(index, generation, &trouble);
        }
    }

    /// The handshake is done: from here on the connection is its slot.
    fn originated(&mut self, index: u32, generation: u32) {
        let Some(entry) = self.originations.take(index, generation) else {
            return;
        };
        let Entry {
            plain,
            route,
            fd,
            begun_ms,
            ..
        } = entry;
        let took_ms = self.now_ms.saturating_sub(begun_ms);
        let (Stage::Shaking(handshake), Some(index)) = (entry.stage, self.slots.insert()) else {
            self.tools.io.close(fd);
            plain.inspect(|plain| plain.reset(&self.tools.io));
            self.note_warm(plain.is_none(), route, None);
            return;
        };
        self.slots.header().mark_busy(index);
        let now_s = (self.now_ms / 1000) as u32;
        let token = token::connection(index, generation, Side::Tls);
        let rested = self.slots.get_mut(index).map(|slot| {
            let cookie = self.tools.io.cookie(fd).unwrap_or(0) as u32;
            slot.begin(fd, cookie, route, generation, now_s);
            (
                interest::adopt(slot, &self.tools.io, token, true),
                handshake.rest(&mut slot.tls),
            )
        });
        let over = match rested {
            Some((Ok(()), Ok(rested))) => self.work(index, |work, slot| {
                work.begin_originated(slot, rested, plain, took_ms)
            }),
            _ => {
                plain.inspect(|plain| plain.reset(&self.tools.io));
                true
            }
        };
        let slot = (!over).then_some((index, generation));
        self.note_warm(plain.is_none(), route, slot);
        self.finish_work(index, over);
    }

    /// A connection that was begun for the warm ones is one of them now, or has failed.
    pub(crate) fn note_warm(&mut self, is_warm: bool, route: u16, slot: Option<(u32, u32)>) {
        let now_ms = self.now_ms;
        let Some(pool) = self.originations.pool(route).filter(|_| is_warm) else {
            return;
        };
        match slot {
            Some((index, generation)) => pool.established(index, generation),
            None => pool.failed(now_ms),
        }
    }

    /// These routes were changed: who is under way begins anew, and the warm ones are renewed.
    pub(crate) fn originate_anew(&mut self, changed: &[u16]) {
        let pools = Pool::of(&self.routes);
        self.originations.forget(changed, pools);
        for (index, generation) in self.originations.all() {
            let entry = self.originations.entry(index, generation);
            let Some(entry) = entry.filter(|entry| changed.contains(&entry.route)) else {
                continue;
            };
            entry.tried.clear();
            entry.stage = Stage::Connecting;
            let fd = std::mem::replace(&mut entry.fd, Fd::NONE);
            if fd != Fd::NONE {
                self.tools.io.close(fd);
            }
            if entry.plain.is_some() {
                self.try_next(index, generation);
            } else {
                self.originations.take(index, generation);
            }
        }
        self.end_warm(changed);
    }

    /// The gateway stops: those who are not connected yet will not be.
    pub(crate) fn end_originations(&mut self) {
        for (index, generation) in self.originations.all() {
            self.abandon(index, generation);
        }
    }
}

impl Entry {
    /// Sends, receives, works.
    fn shake(&mut self, tools: &mut Tools<impl Io>) -> Step {
        let Stage::Shaking(handshake) = &mut self.stage else {
            return Step::Continues;
        };
        match flush(&tools.io, self.fd, handshake) {
            Ok(true) => {}
            Ok(false) => return Step::Continues,
            Err(error) => return failed(&error),
        }
        let n = match tools
            .io
            .recv(self.fd, &mut tools.scratch.opening[..RECEIVE_MAX / 4])
        {
            Ok(Attempt::Done(0)) => {
                return failed(&"it closed the connection during the handshake");
            }
            Ok(Attempt::Done(n)) => n,
            Ok(Attempt::WouldBlock) => return Step::Continues,
            Err(error) => return failed(&error),
        };
        self.handle(n, tools)
    }

    /// Takes the first `n` bytes of the scratch buffer: none at first.
    fn handle(&mut self, n: usize, tools: &mut Tools<impl Io>) -> Step {
        let Stage::Shaking(handshake) = &mut self.stage else {
            return Step::Continues;
        };
        let received = tools.scratch.opening.get(..n).unwrap_or_default();
        let progress = handshake.handle_input(tools.io.unix_time(), received);
        match (progress, flush(&tools.io, self.fd, handshake)) {
            (Err(failure), _) => Step::Failed(Trouble::Handshake(failure)),
            (_, Err(error)) => failed(&error),
            (Ok(Progress::Handshaking), Ok(_)) => Step::Continues,
            // What the socket does not take goes with the connection, as pending bytes.
            (Ok(Progress::Established), Ok(_)) => Step::Established,
        }
    }
}
