//! Connections of which most rest: a repair process and its only worker in one thread.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use dormouse_reactor::poller::{Events, Interest, Poller};
use dormouse_reactor::socket::{self, Attempt, Keepalive};
use dormouse_reactor::steering::Steering;
use dormouse_reactor::{Fd, OnExec};
use dormouse_rest::{Detail, MESSAGE_LEN, Message, Parts, Records, Repair, Subject};

/// Token of everything that is no connection.
const OTHER: u64 = u64::MAX;

/// Time before a request, and between two for the same connection. Either end may delay an acknowledgement by 40 ms.
const DELAY: Duration = Duration::from_millis(50);

/// Requests between two turns of the repair process, fewer than fit into a channel.
const REQUESTS_PER_TURN: usize = 64;

/// What has happened to a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// It has its socket again.
    Awake(u32),
    /// There are bytes, or an end, for it.
    Readable(u32),
    /// Its peer has reset it.
    Gone(u32),
}

/// Connections by number, each awake or at rest.
pub(crate) struct Sleepers {
    repair: Repair,
    /// Holds the programs.
    _steering: Steering,
    channel: Fd,
    poller: Poller,
    ready: Events,
    /// The sockets of those that are awake.
    sockets: Vec<Fd>,
    /// Those that will be asked to rest, and when.
    tired: VecDeque<(Instant, u32)>,
    /// The number of those that rest.
    pub(crate) resting: u32,
    /// The number of those with a socket.
    pub(crate) awake: u32,
}

impl Sleepers {
    pub(crate) fn new(count: u32) -> io::Result<Sleepers> {
        // With some room, or a few in a hundred thousand find no place in the table.
        let steering = Steering::create(count + count / 8).map_err(io::Error::other)?;
        let (channel, theirs) = socket::channel(OnExec::Close)?;
        let repair = Repair::begin(Parts {
            access: steering.access(),
            records: Records::create(count)?,
            raw: [socket::raw(false)?, socket::raw(true)?],
            workers: vec![theirs],
            records_per_worker: count,
            // The gateway probes.
            keepalive: Keepalive {
                idle_s: u32::MAX,
                interval_s: u32::MAX,
                count: 9,
            },
        })?;
        let poller = Poller::create(OnExec::Close)?;
        poller.add(channel, OTHER, Interest::READ)?;
        poller.add(repair.packets(), OTHER, Interest::READ)?;
        let mut sleepers = Sleepers {
            repair,
            _steering: steering,
            channel,
            poller,
            ready: Events::with_capacity(1024),
            sockets: vec![Fd::NONE; count as usize],
            tired: VecDeque::new(),
            resting: 0,
            awake: 0,
        };
        // Packets may wake any number of connections.
        sleepers.ask(Message::new(Subject::Room, i32::MAX as u32), &[])?;
        Ok(sleepers)
    }

    /// Also wakes up for this descriptor.
    pub(crate) fn watch(&self, fd: Fd) -> io::Result<()> {
        self.poller.add(fd, OTHER, Interest::READ)
    }

    /// Takes a new connection.
    pub(crate) fn take(&mut self, number: u32, fd: Fd) -> io::Result<()> {
        self.poller.add(fd, number.into(), Interest::READ)?;
        self.sockets[number as usize] = fd;
        self.awake += 1;
        Ok(())
    }

    pub(crate) fn socket(&self, number: u32) -> Fd {
        self.sockets[number as usize]
    }

    /// Lets a connection rest soon.
    pub(crate) fn rest(&mut self, number: u32) {
        self.tired.push_back((Instant::now() + DELAY, number));
    }

    /// Wakes a connection that rests.
    pub(crate) fn wake(&mut self, number: u32) -> io::Result<()> {
        self.ask(Message::new(Subject::Wake, number), &[])
    }

    /// Ends a connection that is awake.
    pub(crate) fn end(&mut self, number: u32) {
        std::mem::replace(&mut self.sockets[number as usize], Fd::NONE).close();
        self.awake -= 1;
    }

    /// Waits at most this long for something, and returns what has happened.
    pub(crate) fn turn(&mut self, wait: Duration, events: &mut Vec<Event>) -> io::Result<()> {
        let now = Instant::now();
        let mut requests = 0;
        while let Some((due, number)) = self.tired.front().copied()
            && due <= now
            && requests < REQUESTS_PER_TURN
        {
            self.tired.pop_front();
            let fd = self.socket(number);
            if fd != Fd::NONE {
                self.ask(Message::new(Subject::Rest, number), &[fd])?;
                requests += 1;
            }
        }
        self.repair.turn()?;
        self.read_answers(events)?;
        let is_idle = events.is_empty() && requests == 0;
        let due = self
            .tired
            .front()
            .map(|(due, _)| due.saturating_duration_since(now));
        let wait = due.map_or(wait, |due| due.min(wait));
        let wait_ms = if is_idle { wait.as_millis() as u64 } else { 0 };
        self.poller.wait(&mut self.ready, Some(wait_ms))?;
        let readable = self.ready.iter().filter(|event| event.token() != OTHER);
        events.extend(readable.map(|event| Event::Readable(event.token() as u32)));
        Ok(())
    }

    fn ask(&mut self, message: Message, fds: &[Fd]) -> io::Result<()> {
        while socket::send_message(self.channel, &message.to_bytes(), fds)? == Attempt::WouldBlock {
            self.repair.turn()?;
        }
        Ok(())
    }

    fn read_answers(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        let mut bytes = [0; MESSAGE_LEN];
        while let Attempt::Done(received) =
            socket::receive_message(self.channel, &mut bytes, OnExec::Close)?
        {
            let Some(message) = Message::from_bytes(&bytes) else {
                continue;
            };
            let number = message.record;
            match (
                message.subject,
                message.detail,
                received.descriptors.as_slice(),
            ) {
                (Subject::Rested, Detail::Done, _) => {
                    self.end(number);
                    self.resting += 1;
                }
                (Subject::Rested, ..) => self.tired.push_back((Instant::now() + DELAY, number)),
                (Subject::Awake, _, [fd]) => {
                    self.resting -= 1;
                    self.awake += 1;
                    self.sockets[number as usize] = *fd;
                }
                (Subject::Go, ..) => {
                    self.poller
                        .add(self.socket(number), number.into(), Interest::READ)?;
                    events.push(Event::Awake(number));
                }
                (Subject::Gone, ..) => {
                    self.resting -= 1;
                    self.ask(Message::new(Subject::Forget, number), &[])?;
                    events.push(Event::Gone(number));
                }
                _ => {}
            }
        }
        Ok(())
    }
}
