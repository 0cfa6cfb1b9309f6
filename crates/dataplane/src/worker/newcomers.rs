//! From a listener to a slot: accepting, the steps of handshakes, and the moment in which one is
//! done.

use super::Worker;
use super::accepting::{ACCEPTS_PER_TURN, Listener, Pause};
use super::bursts::Subject;
use super::challenges;
use super::in_flight::{Step, With};
use super::interest::{self, Side};
use super::introducing::Client;
use super::io::Io;
use super::originating::Plain;
use super::reporting;
use super::token::{self, Token};
use crate::proxy_protocol::Refused;
use dormouse_engine::{Handshake, HandshakeLimits, Hello, UnixTime};
use dormouse_reactor::Fd;
use dormouse_reactor::socket::{Accepted, Attempt, Peer, Shortage};
use dormouse_routes::route::Direction;
use dormouse_tables::counters::Count;
use dormouse_tables::latency::Latency;
use std::rc::Rc;

/// What newcomers may take of a turn before those who are in are looked at again. A step is not
/// interrupted: with a signature it takes up to a millisecond, so there is rarely a second one.
const SLICE_US: u64 = 200;

/// How often it is looked at how many descriptors there may be, while nobody comes.
const DESCRIPTORS_LOOK_MS: u64 = 100;

/// Looked at of a hello, to see whether its client comes back: tickets are at the end.
const HELLO_MAX: usize = 4096;

/// When `max_handshakes` have begun and others wait, those make room whose client has been silent
/// for this part of `handshake_timeout`.
const SILENT_PART: u64 = 4;

/// How often that is looked at.
const SILENT_LOOK_MS: u64 = 100;

impl<I: Io> Worker<I> {
    pub(super) fn on_newcomers(&mut self, tokens: &[Token]) {
        let until_us = self.tools.io.monotonic_us() + SLICE_US;
        for token in tokens {
            match *token {
                Token::Handshake { index, generation } => {
                    self.handshakes.note_ready(index, generation, self.now_ms);
                }
                // Still ready in the next turn, if its time is over in this one.
                Token::Origination { index, generation }
                    if self.tools.io.monotonic_us() < until_us =>
                {
                    self.on_origination(index, generation);
                }
                Token::Listener(n) => self.on_listener(n, until_us),
                _ => {}
            }
        }
        self.shake_hands(until_us);
    }

    /// Gives turns to handshakes until the time is up; the first step is always made.
    fn shake_hands(&mut self, until_us: u64) {
        if self.handshakes.queue.has_newcomers() {
            self.sort_newcomers();
            self.make_room();
        }
        loop {
            let may_begin = self.may_begin();
            let Some(((index, generation), waited)) =
                self.handshakes.queue.next(self.now_ms, may_begin)
            else {
                return;
            };
            self.on_handshake(index, generation, waited);
            if self.tools.io.monotonic_us() >= until_us {
                return;
            }
        }
    }

    /// Is there a place for a handshake that has not begun?
    pub(super) fn may_begin(&self) -> bool {
        self.handshakes.begun() + self.originations.live() < self.limits.handshakes_max
    }

    /// Every place is taken and somebody waits: whose client has been silent for long loses its own.
    fn make_room(&mut self) {
        if self.may_begin() || self.now_ms < self.silent_look_ms {
            return;
        }
        self.silent_look_ms = self.now_ms + SILENT_LOOK_MS;
        self.tools.count.add(Count::PausedHandshakes, 1);
        self.bursts.note(Subject::Paused, self.now_ms, |more| {
            tracing::warn!(more, "newcomers wait: max_handshakes are in flight");
        });
        let silent_ms = self.limits.handshake_timeout_ms / SILENT_PART;
        let before_ms = self.now_ms.saturating_sub(silent_ms);
        while let Some((index, generation)) = self.handshakes.oldest_silent(before_ms) {
            self.tools.count.add(Count::HandshakesSilent, 1);
            self.drop_handshake(index, generation);
        }
    }

    /// While every place is taken and somebody waits: when to look again.
    pub(super) fn room_deadline_ms(&self) -> Option<u64> {
        let waits = self.handshakes.queue.has_newcomers() && !self.may_begin();
        waits.then_some(self.silent_look_ms)
    }

    /// Finds out who comes back, by a look at hellos which stay in the kernel.
    fn sort_newcomers(&mut self) {
        let mut queue = std::mem::take(&mut self.handshakes.queue);
        let (handshakes, io, hello) = (
            &mut self.handshakes,
            &self.tools.io,
            &mut self.tools.scratch.opening[..HELLO_MAX],
        );
        queue.sort(|(index, generation)| {
            let Some(entry) = handshakes.entry(index, generation) else {
                return false;
            };
            match io.peek(entry.fd, hello) {
                Ok(Attempt::Done(n)) => match Hello::of(&hello[..n]) {
                    Hello::Resumption => true,
                    Hello::Full => false,
                    // Storing what there is is cheap.
                    Hello::Incomplete => n < HELLO_MAX,
                },
                // Whatever it is, it costs no signature.
                Ok(Attempt::WouldBlock) | Err(_) => true,
            }
        });
        self.handshakes.queue = queue;
    }

    fn on_listener(&mut self, n: usize, until_us: u64) {
        let Some(Listener { fd, route, door }) = self.listeners.all().get(n).cloned() else {
            return;
        };
        self.count_descriptors();
        for accepts in 0..ACCEPTS_PER_TURN {
            // The first is always accepted: however slow the machine is, each turn gets somewhere.
            let is_late = accepts > 0 && self.tools.io.monotonic_us() >= until_us;
            if is_late || self.limit_reached().is_some() {
                break;
            }
            match self.tools.io.accept(fd) {
                Ok(Attempt::Done(accepted)) => self.on_accepted(accepted, route, &door),
                Ok(Attempt::WouldBlock) => break,
                Err(e) => {
                    tracing::debug!(error = %e, "accept failed");
                    self.listeners
                        .pause(Pause::Descriptors, self.now_ms, &self.tools.count);
                    break;
                }
            }
        }
    }

    fn on_accepted(&mut self, accepted: Accepted, route_index: u16, door: &Rc<[u16]>) {
        let Accepted { fd, peer } = accepted;
        match self.routes.get(usize::from(route_index)) {
            None => self.tools.io.close(fd),
            Some(route) if matches!(route.direction, Direction::Originate(_)) => {
                let is_unix = peer == Peer::Unix;
                let plain = Plain {
                    fd,
                    is_unix,
                    is_joined: false,
                };
                self.accept_plain(plain, route_index);
            }
            Some(route) => {
                let has_choice =
                    door.len() > 1 || route.needs_client_hello() || self.challenge.is_some();
                let door = has_choice.then(|| Rc::clone(door));
                self.begin_handshake(fd, (route_index, door), Client::new(peer));
            }
        }
    }

    /// A way out lacks descriptors or ports: accepting pauses.
    pub(super) fn pause_for(&mut self, shortage: Shortage) {
        let pause = match shortage {
            Shortage::Descriptors => Pause::Descriptors,
            Shortage::Ports => Pause::Ports,
            Shortage::Memory | Shortage::Queue => return,
        };
        self.listeners.pause(pause, self.now_ms, &self.tools.count);
    }

    /// `door`: the routes of which it may be for any, if its hello must tell.
    fn begin_handshake(
        &mut self,
        fd: Fd,
        (route_index, door): (u16, Option<Rc<[u16]>>),
        client: Client,
    ) {
        self.tools.count.add(Count::Accepted, 1);
        let proxies = self.routes.get(usize::from(route_index));
        let introduced =
            proxies.is_some_and(|route| client.is_proxy(&route.access.accept_proxy_from));
        if !introduced && !self.admit_to(route_index, door.is_some(), &client) {
            self.tools.io.close(fd);
            return;
        }
        if let Some(route) = self.routes.get(usize::from(route_index)) {
            self.tools.io.set_client_options(&route.sockets, fd);
        }
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation & token::GENERATION_MASK;
        let deadline_ms = self.now_ms + self.limits.handshake_timeout_ms;
        let index = self.handshakes.begin(
            (fd, client),
            introduced,
            (route_index, door),
            generation,
            self.now_ms,
            deadline_ms,
        );
        // Often the ClientHello is there already; epoll is told when it is not.
        self.handshakes
            .queue
            .push_new(index, generation, self.now_ms);
    }

    /// Where the route is still to be found, its networks are asked for when it is.
    fn admit_to(&mut self, route: u16, has_choice: bool, client: &Client) -> bool {
        if has_choice {
            self.admit_rate(client)
        } else {
            self.admit(route, client)
        }
    }

    fn on_handshake(&mut self, index: u32, generation: u32, waited: bool) {
        let now = self.tools.io.unix_time();
        let Some(step) = self.step(index, generation, now, waited) else {
            return;
        };
        let Some(entry) = self.handshakes.entry(index, generation) else {
            return;
        };
        let (client, lingers) = (entry.client, entry.is_lingering());
        let took_ms = self.now_ms.saturating_sub(entry.accepted_ms);
        match step {
            Step::Continues | Step::Introduced | Step::Hello => {}
            Step::PassesThrough => self.pass_through(index, generation),
            Step::Denied => self.drop_handshake(index, generation),
            Step::NotIntroduced(refused) => {
                self.note_bad_header(index, generation, refused);
                self.drop_handshake(index, generation);
            }
            Step::Established => self.establish(index, generation),
            Step::GivenUp => {
                let why = "the client had given up before its turn came";
                self.log_gone("peer", why, &client, took_ms);
                self.tools.count.add(Count::HandshakesGivenUp, 1);
                self.drop_handshake(index, generation);
            }
            Step::Gone => {
                if !lingers {
                    let why = "the client's connection ended";
                    self.log_gone("peer", why, &client, took_ms);
                }
                self.drop_handshake(index, generation);
            }
            Step::Failed(failure) => {
                let each_ms = self.limits.log_handshakes.then_some(took_ms);
                let (now_ms, count) = (self.now_ms, &self.tools.count);
                self.bursts
                    .handshake_failed(&failure, &client, now_ms, count, each_ms);
                self.handshakes
                    .note_lingering(index, generation, self.now_ms);
            }
        }
    }

    /// A step of the handshake. When a proxy has said who the client is, that one must be admitted
    /// before its first byte is looked at; when its hello is there, its route must be found.
    fn step(&mut self, index: u32, generation: u32, now: UnixTime, waited: bool) -> Option<Step> {
        loop {
            match self.one_step(index, generation, now, waited)? {
                Step::Introduced => {
                    let entry = self.handshakes.entry(index, generation)?;
                    let (route, client) = (entry.route, entry.client);
                    let has_choice = entry.is_for_door();
                    if !self.admit_to(route, has_choice, &client) {
                        return Some(Step::Denied);
                    }
                }
                Step::Hello => {
                    if let Some(step) = self.choose_route(index, generation) {
                        return Some(step);
                    }
                }
                step => return Some(step),
            }
        }
    }

    fn one_step(
        &mut self,
        index: u32,
        generation: u32,
        now: UnixTime,
        waited: bool,
    ) -> Option<Step> {
        let Worker {
            handshakes,
            tools,
            routes,
            limits,
            challenge,
            ..
        } = self;
        let with = With {
            tools,
            token: token::handshake(index, generation),
            now,
            now_ms: self.now_ms,
            timeout_ms: limits.handshake_timeout_ms,
            waited,
        };
        let bytes_max = limits.handshake_bytes_max;
        handshakes.step((index, generation), with, |route| {
            if route == challenges::ROUTE {
                let open = challenge.as_ref()?;
                return Some(open.handshake(HandshakeLimits { bytes_max }));
            }
            match &routes.get(usize::from(route))?.direction {
                Direction::Terminate { context, .. } => {
                    let limits = HandshakeLimits { bytes_max };
                    Some(Handshake::server(context.as_ref()?, limits))
                }
                Direction::PassThrough(_) | Direction::Originate(_) | Direction::Gone => None,
            }
        })
    }

    fn note_bad_header(&mut self, index: u32, generation: u32, refused: Refused) {
        let Some(entry) = self.handshakes.entry(index, generation) else {
            return;
        };
        let peer = entry.client;
        self.tools.count.add(Count::ProxyHeaderRefused, 1);
        self.bursts.note(Subject::ProxyHeader, self.now_ms, |more| {
            tracing::warn!(%peer, more, "{refused}; connection closed");
        });
    }

    pub(super) fn end_handshake_in_time(&mut self, index: u32, generation: u32) {
        if let Some(entry) = self.handshakes.entry(index, generation)
            && !entry.is_lingering()
        {
            self.tools.count.add(Count::HandshakesTimedOut, 1);
            let (now_ms, client) = (self.now_ms, entry.client);
            let took_ms = now_ms.saturating_sub(entry.accepted_ms);
            let why = "not finished within handshake_timeout";
            self.log_gone("us", why, &client, took_ms);
            self.bursts.note(Subject::HandshakeTimeout, now_ms, |more| {
                tracing::info!(peer = %client, more,
                    "handshake not finished within handshake_timeout; connection closed");
            });
        }
        self.drop_handshake(index, generation);
    }

    fn log_gone(&self, gave_up: &str, why: &str, client: &Client, took_ms: u64) {
        if self.limits.log_handshakes {
            reporting::log_gone(gave_up, why, client, took_ms);
        }
    }

    fn drop_handshake(&mut self, index: u32, generation: u32) {
        if let Some(entry) = self.handshakes.take(index, generation) {
            self.tools.io.close(entry.fd);
            self.listeners.resume();
        }
    }

    /// The handshake is done: from here on the connection is its slot.
    fn establish(&mut self, index: u32, generation: u32) {
        let Some(entry) = self.handshakes.take(index, generation) else {
            return;
        };
        let (fd, route, watched) = (entry.fd, entry.route, entry.is_watched());
        let client = entry.client;
        if route == challenges::ROUTE {
            self.answered(fd, &client);
            return;
        }
        let took_ms = self.now_ms.saturating_sub(entry.accepted_ms);
        let (Some(handshake), Some(index)) = (entry.into_handshake(), self.slots.insert()) else {
            self.tools.io.close(fd);
            return;
        };
        self.slots.header().mark_busy(index);
        let now_s = (self.now_ms / 1000) as u32;
        let token = token::connection(index, generation, Side::Tls);
        let rested = self.slots.get_mut(index).map(|slot| {
            let cookie = self.tools.io.cookie(fd).unwrap_or(0) as u32;
            slot.begin(fd, cookie, route, generation, now_s);
            (
                interest::adopt(slot, &self.tools.io, token, watched),
                handshake.rest(&mut slot.tls),
            )
        });
        let each_ms = self.limits.log_handshakes.then_some(took_ms);
        let over = match rested {
            Some((Ok(()), Ok(rested))) => {
                // Whether or not there is room for another one of this client.
                let count = &self.tools.count;
                reporting::count_done(&rested.info, count);
                count.observe(Latency::Handshake, took_ms.saturating_mul(1000));
                !self.enter(index, &client)
                    || self.work(index, |work, slot| {
                        work.begin(slot, rested, &client, took_ms)
                    })
            }
            Some((_, Err(failure))) => {
                let (now_ms, count) = (self.now_ms, &self.tools.count);
                self.bursts
                    .handshake_failed(&failure, &client, now_ms, count, each_ms);
                true
            }
            Some((Err(_), _)) | None => true,
        };
        self.finish_work(index, over);
    }

    fn limit_reached(&self) -> Option<Pause> {
        let (newcomers, outgoing) = (self.handshakes.live(), self.originations.live());
        // With TLS to its backend a connection will need two slots.
        let each = if self.routes.iter().any(|route| route.backend_tls.is_some()) {
            2
        } else {
            1
        };
        let taken = self.slots.live() as usize + each * newcomers + outgoing + each - 1;
        let most = self
            .descriptors_suffice_for
            .min(self.limits.connections_max.into());
        if taken as u64 >= most {
            Some(Pause::Full)
        } else if self.originations.live() >= self.limits.handshakes_max {
            Some(Pause::Handshakes)
        } else {
            None
        }
    }

    /// Somebody may have lowered the limit since the plan was made, and who is accepted will need a
    /// descriptor for the backend as well: it is looked at before anybody is accepted, not when
    /// there is none.
    fn count_descriptors(&mut self) {
        self.descriptors_looked_ms = self.now_ms;
        let each = if self
            .routes
            .iter()
            .all(|route| route.is_echo() || route.is_gone())
        {
            1
        } else {
            2
        };
        let free = self
            .tools
            .io
            .descriptors_max()
            .saturating_sub(self.descriptors_reserved);
        self.descriptors_suffice_for = free / each;
    }

    pub(super) fn update_accepting(&mut self) {
        if self.late.is_some() {
            // There are no certificates yet: newcomers wait in the queue.
            return;
        }
        if self.now_ms >= self.descriptors_looked_ms + DESCRIPTORS_LOOK_MS {
            self.count_descriptors();
        }
        let limit = self.limit_reached();
        let Worker {
            listeners, tools, ..
        } = self;
        match listeners.update(limit, self.now_ms, &tools.io, &tools.count) {
            Ok(None) => {}
            Ok(Some(pause)) => self.bursts.note(Subject::Paused, self.now_ms, |more| {
                tracing::warn!(more, "accepting pauses: {}", pause.in_words());
            }),
            Err(e) => tracing::error!(error = %e, "epoll refused a listening socket"),
        }
    }
}
