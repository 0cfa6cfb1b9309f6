//! The listeners of a worker, and the pauses of accepting.
//!
//! All workers poll the same listening sockets, each with EPOLLEXCLUSIVE. A worker without room for
//! another connection removes the listeners from its epoll instance. Queued clients are then accepted
//! by other workers, or wait until there is room. We never accept a connection only to refuse it.
//!
//! A new connection wakes one worker: of those that sleep, the one that polls the listener for the
//! longest time. So that it is not always the same one, a worker that has accepted some connections
//! polls the listener anew, which puts it behind the others.

use crate::io::Io;
use crate::pause::Pause;
use crate::token;
use dormouse_reactor::Fd;
use dormouse_tables::counters::Counters;
use std::io;
use std::rc::Rc;

/// Duration of a pause after descriptors or ports ran out. A connection that ends also ends the pause.
const PAUSE_MS: u64 = 100;

/// Connections that a worker accepts from a listener before it goes behind the other workers.
const ACCEPTS_IN_A_ROW: usize = 16;

/// A listening socket and its routes.
#[derive(Clone)]
pub(crate) struct Listener {
    pub(crate) fd: Fd,
    /// The first of its routes.
    pub(crate) route: u16,
    /// All of its routes.
    pub(crate) routes: Rc<[u16]>,
    /// Connections accepted since this worker went behind the others.
    in_a_row: usize,
}

impl Listener {
    pub(crate) fn new(fd: Fd, routes: &[u16]) -> Listener {
        Listener {
            fd,
            route: routes.first().copied().unwrap_or_default(),
            routes: routes.into(),
            in_a_row: 0,
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

    /// Counts connections accepted from listener `n`, and after [`ACCEPTS_IN_A_ROW`] puts this worker
    /// behind the others that poll it.
    pub(crate) fn note_accepted(
        &mut self,
        n: usize,
        accepted: usize,
        now_ms: u64,
        io: &impl Io,
    ) -> io::Result<()> {
        let listener = self.all.get_mut(n).expect("the listener has just accepted");
        listener.in_a_row += accepted;
        // A reload in this turn may have replaced the listeners; the new ones are not polled yet.
        if !self.polled || listener.in_a_row < ACCEPTS_IN_A_ROW {
            return Ok(());
        }
        listener.in_a_row = 0;
        let fd = listener.fd;
        let polled = io.unwatch(fd);
        let polled = polled.and_then(|()| io.watch_listener(fd, token::listener(n)));
        polled.inspect_err(|_| {
            self.polled = false;
            self.pause_unpolled(now_ms, io);
        })
    }

    /// Pauses accepting after a listener could not be polled. The end of the pause tries again.
    fn pause_unpolled(&mut self, now_ms: u64, io: &impl Io) {
        self.unpoll_all(io);
        self.pause_silently(now_ms);
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
            // If one fails, those before it are polled already.
            let polled = self.poll_all(io);
            polled.inspect_err(|_| self.pause_unpolled(now_ms, io))?;
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
        let [one, other] = [(); 2].map(|()| listening());
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

    /// As above, when a worker that has accepted some connections goes behind the others.
    #[test]
    fn a_listener_that_cannot_be_polled_anew_is_tried_again() {
        let io = OsIo::adopt(Fd::NONE).expect("an epoll instance");
        let shared = Shared::create("counters", 1).expect("counters");
        let count = Counters::new(shared.block(0).expect("a block"));
        let listener = listening();
        let mut listeners = Listeners::new(vec![Listener::new(listener, &[0])]);
        listeners.update(None, 0, &io, &count).expect("polled");
        let few = ACCEPTS_IN_A_ROW - 1;
        let mut note = |accepted, io: &OsIo| listeners.note_accepted(0, accepted, 0, io);
        io.unwatch(listener).expect("polled until now");
        note(few, &io).expect("nothing to do yet");
        assert!(note(1, &io).is_err(), "it is not polled");
        assert_eq!(listeners.next_deadline_ms(), Some(PAUSE_MS));
        listeners.update(None, 200, &io, &count).expect("polled");
        io.unwatch(listener).expect("polled again");
        listener.close();
    }

    fn listening() -> Fd {
        let address = "127.0.0.1:0".parse().expect("an address");
        let options = ListenOptions {
            on_exec: OnExec::Close,
            ..ListenOptions::default()
        };
        socket::listen(&address, &options).expect("a listener")
    }

    fn local(fd: Fd) -> std::net::SocketAddr {
        match socket::Addr::local(fd).expect("an address") {
            socket::Addr::Tcp(address) => address,
            socket::Addr::Unix(_) => unreachable!("a TCP socket"),
        }
    }
}
