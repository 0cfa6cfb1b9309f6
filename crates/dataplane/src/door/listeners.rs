//! When to accept, and when to pause.
//!
//! All workers poll the same listening sockets, each with EPOLLEXCLUSIVE. A worker that can't take
//! another connection takes the listeners out of its epoll: what is queued is then accepted by the
//! others, or waits in the queue until there is room again. Nothing is accepted to be refused.

use crate::door::pause::Pause;
use crate::io::Io;
use crate::token;
use dormouse_reactor::Fd;
use dormouse_tables::counters::Counters;
use std::io;
use std::rc::Rc;

/// How long accepting pauses when descriptors or ports have run out, unless a connection ends.
const PAUSE_MS: u64 = 100;

/// A listening socket and the route of what comes in by it.
#[derive(Clone)]
pub(crate) struct Listener {
    pub(crate) fd: Fd,
    /// Of several, the first.
    pub(crate) route: u16,
    /// All of them.
    pub(crate) door: Rc<[u16]>,
}

impl Listener {
    pub(crate) fn new(fd: Fd, door: &[u16]) -> Listener {
        Listener {
            fd,
            route: door.first().copied().unwrap_or_default(),
            door: door.into(),
        }
    }
}

/// The listeners of this worker, polled or not.
pub(crate) struct Listeners {
    all: Vec<Listener>,
    polled: bool,
    stopped: bool,
    held: bool,
    paused_until_ms: Option<u64>,
    last: Option<Pause>,
}

impl Listeners {
    pub(crate) fn new(all: Vec<Listener>) -> Listeners {
        Listeners {
            all,
            polled: false,
            stopped: false,
            held: false,
            paused_until_ms: None,
            last: None,
        }
    }

    pub(crate) fn all(&self) -> &[Listener] {
        &self.all
    }

    /// Accepts nothing more, until [`Listeners::restart`].
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
    }

    /// Accepts nothing for now, without a reason that is worth a word.
    pub(crate) fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// Has it been told to accept nothing more?
    pub(crate) fn are_stopped(&self) -> bool {
        self.stopped
    }

    /// Accepts again after [`Listeners::stop`].
    pub(crate) fn restart(&mut self) {
        self.stopped = false;
    }

    /// Stops polling, whatever the state of the worker says, and gives the listeners away. With
    /// the next update those are polled which have taken their place.
    pub(crate) fn replace(&mut self, io: &impl Io, by: Vec<Listener>) -> Vec<Listener> {
        if self.polled {
            for listener in &self.all {
                let _ = io.unwatch(listener.fd);
            }
            self.polled = false;
        }
        std::mem::replace(&mut self.all, by)
    }

    /// Resources ran out: pauses until something ended or the time is up.
    pub(crate) fn pause(&mut self, why: Pause, now_ms: u64, count: &Counters) {
        if self.paused_until_ms.is_none() {
            count.add(why.count(), 1);
        }
        self.last = Some(why);
        self.paused_until_ms = Some(now_ms + PAUSE_MS);
    }

    /// A connection ended: there may be room again.
    pub(crate) fn resume(&mut self) {
        self.paused_until_ms = None;
    }

    /// When a pause ends for which resources had run out.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.paused_until_ms
    }

    /// Polls the listeners or stops polling them, as the state of the worker says. Returns the
    /// reason when a pause begins.
    pub(crate) fn update(
        &mut self,
        limit_reached: Option<Pause>,
        now_ms: u64,
        io: &impl Io,
        count: &Counters,
    ) -> io::Result<Option<Pause>> {
        if self
            .paused_until_ms
            .is_some_and(|until_ms| until_ms <= now_ms)
        {
            self.paused_until_ms = None;
        }
        let poll = !self.stopped
            && !self.held
            && limit_reached.is_none()
            && self.paused_until_ms.is_none();
        if poll == self.polled {
            return Ok(None);
        }
        for (n, listener) in self.all.iter().enumerate() {
            if poll {
                io.watch_listener(listener.fd, token::listener(n))?;
            } else {
                io.unwatch(listener.fd)?;
            }
        }
        self.polled = poll;
        if poll || self.stopped || self.held {
            return Ok(None);
        }
        if let Some(pause) = limit_reached {
            count.add(pause.count(), 1);
        }
        Ok(limit_reached.or(self.last.take()))
    }
}
