//! The listeners of a worker, and the pauses of accepting.
//!
//! All workers poll the same listening sockets, each with EPOLLEXCLUSIVE. A worker without room for
//! another connection removes the listeners from its epoll instance. Queued clients are then accepted
//! by other workers, or wait until there is room. We never accept a connection only to refuse it.

use crate::door::pause::Pause;
use crate::io::Io;
use crate::token;
use dormouse_reactor::Fd;
use dormouse_tables::counters::Counters;
use std::io;
use std::rc::Rc;

/// Duration of a pause after descriptors or ports ran out. A connection that ends also ends the pause.
const PAUSE_MS: u64 = 100;

/// A listening socket and its routes.
#[derive(Clone)]
pub(crate) struct Listener {
    pub(crate) fd: Fd,
    /// The first of its routes.
    pub(crate) route: u16,
    /// All of its routes.
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

/// The listeners of a worker, and whether they are polled.
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

    /// Stops accepting until [`Listeners::restart`].
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
    }

    /// Suspends or resumes accepting, without a log line.
    pub(crate) fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// Whether accepting was stopped.
    pub(crate) fn are_stopped(&self) -> bool {
        self.stopped
    }

    /// Accepts again after [`Listeners::stop`].
    pub(crate) fn restart(&mut self) {
        self.stopped = false;
    }

    /// Stops polling the current listeners and returns them. The next update polls the new ones.
    pub(crate) fn replace(&mut self, io: &impl Io, by: Vec<Listener>) -> Vec<Listener> {
        if self.polled {
            self.unpoll_all(io);
            self.polled = false;
        }
        std::mem::replace(&mut self.all, by)
    }

    fn poll_all(&self, io: &impl Io) -> io::Result<()> {
        let mut all = self.all.iter().enumerate();
        all.try_for_each(|(n, listener)| io.watch_listener(listener.fd, token::listener(n)))
    }

    fn unpoll_all(&self, io: &impl Io) {
        for listener in &self.all {
            // Fails only for a socket that is not polled.
            let _ = io.unwatch(listener.fd);
        }
    }

    /// Pauses accepting after resources ran out, until a connection ends or the time is up.
    pub(crate) fn pause(&mut self, reason: Pause, now_ms: u64, count: &Counters) {
        if self.paused_until_ms.is_none() {
            count.add(reason.count(), 1);
        }
        self.last = Some(reason);
        self.pause_silently(now_ms);
    }

    /// As [`Listeners::pause`], for a reason that is no shortage: without a count and a log line.
    pub(crate) fn pause_silently(&mut self, now_ms: u64) {
        self.paused_until_ms = Some(now_ms + PAUSE_MS);
    }

    /// Ends a pause, because a connection has ended and there may be room.
    pub(crate) fn resume(&mut self) {
        self.paused_until_ms = None;
    }

    /// The end of the current pause.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.paused_until_ms
    }

    /// Starts or stops polling the listeners, according to the worker's state. When a pause begins,
    /// returns its reason.
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
        if poll {
            self.poll_all(io).inspect_err(|_| {
                // Those before it are polled already. The pause ends with the next try.
                self.unpoll_all(io);
                self.pause_silently(now_ms);
            })?;
        } else {
            self.unpoll_all(io);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::OsIo;
    use dormouse_reactor::OnExec;
    use dormouse_reactor::poller::Events;
    use dormouse_reactor::shared::Shared;
    use dormouse_reactor::socket::{self, ListenOptions};

    /// The kernel refuses to watch the second listener, as when its limit of watches is reached. Then no listener is
    /// polled, and later both are.
    #[test]
    fn a_listener_that_cannot_be_polled_is_tried_again() {
        let io = OsIo::adopt(Fd::NONE).expect("an epoll instance");
        let shared = Shared::create("counters", 1).expect("counters");
        let count = Counters::new(shared.block(0).expect("a block"));
        let address = "127.0.0.1:0".parse().expect("an address");
        let options = ListenOptions {
            on_exec: OnExec::Close,
            ..ListenOptions::default()
        };
        let [one, other] =
            [(); 2].map(|()| socket::listen(&address, &options).expect("a listener"));
        // A regular file cannot be watched.
        let file = std::fs::File::open("/proc/self/exe").expect("a file");
        let place = Fd::from_owned(file.into());
        let mut listeners =
            Listeners::new(vec![Listener::new(one, &[0]), Listener::new(place, &[0])]);
        for now_ms in [0, 200] {
            assert!(listeners.update(None, now_ms, &io, &count).is_err());
            let client = std::net::TcpStream::connect(local(one)).expect("queued");
            let mut events = Events::with_capacity(8);
            io.wait(&mut events, Some(0)).expect("a poll");
            assert!(events.is_empty(), "polled by a worker that does not accept");
            drop(client);
        }
        other.move_to(place).expect("moved");
        listeners.update(None, 400, &io, &count).expect("polled");
        [one, place].into_iter().for_each(Fd::close);
    }

    fn local(fd: Fd) -> std::net::SocketAddr {
        match socket::Addr::local(fd).expect("an address") {
            socket::Addr::Tcp(address) => address,
            socket::Addr::Unix(_) => unreachable!("a TCP socket"),
        }
    }
}
