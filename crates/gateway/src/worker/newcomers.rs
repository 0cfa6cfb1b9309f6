//! From a listener to a slot: accepting, the steps of handshakes, and the moment in which one is
//! done.

use super::Worker;
use super::accepting::{ACCEPTS_PER_TURN, Listener, Pause};
use super::bursts::{Subject, peer_name};
use super::handshaking::Step;
use super::interest::{self, Side};
use super::token::{self, Token};
use crate::counters::Count;
use dormouse_engine::{Handshake, HandshakeLimits, UnixTime};
use dormouse_reactor::poller::Interest;
use dormouse_reactor::socket::{self, Attempt};
use dormouse_reactor::{Fd, OnExec};
use std::time::SystemTime;

/// Handshake steps per turn: a storm of newcomers waits, those who are in do not.
const HANDSHAKES_PER_TURN: usize = 16;

impl Worker {
    pub(super) fn on_newcomers(&mut self, tokens: &[Token]) {
        let mut steps = 0;
        for token in tokens {
            match *token {
                // The others are still ready in the next turn: epoll is level-triggered, and
                // hands out its ready list in rotation.
                Token::Handshake { index, generation } if steps < HANDSHAKES_PER_TURN => {
                    steps += 1;
                    self.on_handshake(index, generation);
                }
                Token::Listener(n) => self.on_listener(n),
                _ => {}
            }
        }
    }

    fn on_listener(&mut self, n: usize) {
        let Some(&Listener { fd, route }) = self.listeners.all().get(n) else {
            return;
        };
        for _ in 0..ACCEPTS_PER_TURN {
            if self.limit_reached().is_some() {
                break;
            }
            match socket::accept(fd, OnExec::Keep) {
                Ok(Attempt::Done(accepted)) => self.begin_handshake(accepted.fd, route),
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

    fn begin_handshake(&mut self, fd: Fd, route_index: u16) {
        self.tools.count.add(Count::Accepted, 1);
        let route = self.routes.get(usize::from(route_index));
        let Some(context) = route.and_then(|route| route.context.as_ref()) else {
            fd.close();
            return;
        };
        let limits = HandshakeLimits {
            bytes_max: self.limits.handshake_bytes_max,
        };
        let handshake = Handshake::server(context, limits);
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation & token::GENERATION_MASK;
        let deadline_ms = self.now_ms + self.limits.handshake_timeout_ms;
        let index = self
            .handshakes
            .begin(fd, route_index, generation, handshake, deadline_ms);
        let token = token::handshake(index, generation);
        if self.poller.add(fd, token, Interest::READ).is_err() {
            self.drop_handshake(index, generation);
            return;
        }
        // Often the ClientHello is there already.
        self.on_handshake(index, generation);
    }

    fn on_handshake(&mut self, index: u32, generation: u32) {
        let now = UnixTime::since_unix_epoch(
            SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default(),
        );
        let Some(entry) = self.handshakes.entry(index, generation) else {
            return;
        };
        let token = token::handshake(index, generation);
        match entry.step(&mut self.tools, &self.poller, token, now) {
            Step::Continues => {}
            Step::Established => self.establish(index, generation),
            Step::Gone => self.drop_handshake(index, generation),
            Step::Failed(failure) => {
                let peer = entry.fd;
                self.bursts
                    .handshake_failed(&failure, peer, self.now_ms, &self.tools.count);
                self.handshakes
                    .note_lingering(index, generation, self.now_ms);
            }
        }
    }

    pub(super) fn end_handshake_in_time(&mut self, index: u32, generation: u32) {
        if let Some(entry) = self.handshakes.entry(index, generation)
            && !entry.is_lingering()
        {
            self.tools.count.add(Count::HandshakesTimedOut, 1);
            let (now_ms, fd) = (self.now_ms, entry.fd);
            self.bursts.note(Subject::HandshakeTimeout, now_ms, |more| {
                tracing::info!(peer = %peer_name(fd), more,
                    "handshake not finished within handshake_timeout; connection closed");
            });
        }
        self.drop_handshake(index, generation);
    }

    fn drop_handshake(&mut self, index: u32, generation: u32) {
        if let Some(entry) = self.handshakes.take(index, generation) {
            entry.fd.close();
            self.listeners.resume();
        }
    }

    /// The handshake is done: from here on the connection is its slot.
    fn establish(&mut self, index: u32, generation: u32) {
        let Some(entry) = self.handshakes.take(index, generation) else {
            return;
        };
        let (fd, route) = (entry.fd, entry.route);
        let (Some(handshake), Some(index)) = (entry.into_handshake(), self.slots.insert()) else {
            fd.close();
            return;
        };
        self.slots.header().mark_busy(index);
        let now_s = (self.now_ms / 1000) as u32;
        let token = token::connection(index, generation, Side::Tls);
        let rested = self.slots.get_mut(index).map(|slot| {
            let cookie = socket::cookie(fd).unwrap_or(0) as u32;
            slot.begin(fd, cookie, route, generation, now_s);
            (
                interest::adopt(slot, &self.poller, token),
                handshake.rest(&mut slot.tls),
            )
        });
        let over = match rested {
            Some((Ok(()), Ok(rested))) => self.work(index, |work, slot| work.begin(slot, rested)),
            Some((_, Err(failure))) => {
                self.bursts
                    .handshake_failed(&failure, fd, self.now_ms, &self.tools.count);
                true
            }
            Some((Err(_), _)) | None => true,
        };
        self.finish_work(index, over);
    }

    fn limit_reached(&self) -> Option<Pause> {
        let taken = self.slots.live() as usize + self.handshakes.live();
        if taken >= self.limits.connections_max as usize {
            Some(Pause::Full)
        } else if self.handshakes.live() >= self.limits.handshakes_max {
            Some(Pause::Handshakes)
        } else {
            None
        }
    }

    pub(super) fn update_accepting(&mut self) {
        if self.late.is_some() {
            // There are no certificates yet: newcomers wait in the queue.
            return;
        }
        let limit = self.limit_reached();
        let Worker {
            listeners,
            poller,
            tools,
            ..
        } = self;
        match listeners.update(limit, self.now_ms, poller, &tools.count) {
            Ok(None) => {}
            Ok(Some(pause)) => self.bursts.note(Subject::Paused, self.now_ms, |more| {
                tracing::warn!(more, "accepting pauses: {}", pause.in_words());
            }),
            Err(e) => tracing::error!(error = %e, "epoll refused a listening socket"),
        }
    }
}
