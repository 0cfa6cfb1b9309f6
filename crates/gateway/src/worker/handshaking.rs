//! Handshakes in flight: the only connections that have anything in the heap.
//!
//! Bounded in number, in bytes and in time. A handshake which succeeds becomes a slot and gives up
//! everything here; one which fails sends its alert and lingers shortly, so that the alert is not
//! overtaken by a reset. When the last one of a burst is gone, its memory goes back to the system.
//!
//! Epoll tells of each once; then it waits in [`Queue`] for its turn, with what its client sent
//! still in the kernel and nothing in the heap. So everybody who fits can be accepted at once
//! (clients whose connect finds a full queue come back ever later), and `max_handshakes` bounds
//! those that have begun. However many wait, they cost the loop nothing before their turn.

use super::choosing;
use super::closing::discard;
use super::flow::Tools;
use super::introducing::{Client, Introduction};
use super::queue::Queue;
use crate::proxy_protocol::Refused;
use dormouse_engine::{Handshake, HandshakeFailure, Progress, UnixTime};
use dormouse_reactor::Fd;
use dormouse_reactor::poller::{Interest, Poller};
use dormouse_reactor::socket::{self, Attempt};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

/// How long the alert of a failed handshake has to reach its peer.
const LINGER_MS: u64 = 2_000;

/// How often what a failed peer still sends is thrown away before it is cut off: it may have much
/// on the way, but who goes on and on is not listening.
const LINGER_LOOKS_MAX: u32 = 16;

/// Whoever has waited for a turn for so many times `handshake_timeout` has surely given up.
const WAITS_MAX: u64 = 6;

/// One connection that is not established yet.
pub(super) struct InFlight {
    pub(super) fd: Fd,
    pub(super) route: u16,
    pub(super) generation: u32,
    pub(super) client: Client,
    /// The routes of which it may be for any, until that is known.
    door: Option<Rc<[u16]>>,
    /// When it was accepted, or made a step.
    moved_ms: u64,
    pub(super) accepted_ms: u64,
    stage: Stage,
    watch: Watch,
}

/// What epoll was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Watch {
    /// Nothing yet.
    Never,
    /// To tell once.
    Armed(Interest),
    /// It has told, and keeps silent now.
    Told,
}

enum Stage {
    /// Accepted; nothing was received yet.
    Waiting,
    /// A proxy is to say first who the client is.
    Introducing(Introduction),
    /// Its hello is to tell which route it is for.
    Choosing {
        received: Vec<u8>,
        /// A proxy has introduced it: it has begun, though nothing came yet.
        introduced: bool,
    },
    /// Client and route are known; what the client said already.
    Known(Vec<u8>),
    Shaking(Box<Handshake>),
    /// Failed; what is left of the output to send, then the peer's end is awaited.
    Lingering {
        last_words: Vec<u8>,
        shut: bool,
        looks: u32,
    },
}

/// What a step on a handshake led to.
pub(super) enum Step {
    /// More is awaited.
    Continues,
    /// Done: take it out and let it rest.
    Established,
    /// The proxy has said who the client is: decide whether it may go on, then step again.
    Introduced,
    /// Enough of the hello is there: decide which route it is for, then step again.
    Hello,
    /// TLS is its backend's: take it out and pass on what came.
    PassesThrough,
    /// The proxy has not said it as it has to: take it out and close it.
    NotIntroduced(Refused),
    /// Whom the proxy speaks for may not come in: as `Gone`.
    Denied,
    /// Failed just now; the entry lingers.
    Failed(HandshakeFailure),
    /// The client gave up while it waited for its turn: as `Gone`.
    GivenUp,
    /// Nothing is left to do: take it out and close it.
    Gone,
}

/// What a step works with.
pub(super) struct With<'a> {
    pub(super) tools: &'a mut Tools,
    pub(super) poller: &'a Poller,
    pub(super) token: u64,
    pub(super) now: UnixTime,
    pub(super) now_ms: u64,
    pub(super) timeout_ms: u64,
    /// Whether it had to wait for its turn.
    pub(super) waited: bool,
}

/// The table of handshakes in flight.
pub(super) struct Handshakes {
    entries: Vec<Option<InFlight>>,
    free: Vec<u32>,
    /// Deadlines in the order in which they come, since all have the same time: of those which
    /// have not begun, those which have, and those which have failed.
    waiting: VecDeque<Deadline>,
    shaking: VecDeque<Deadline>,
    lingerers: VecDeque<Deadline>,
    pub(super) queue: Queue,
    live: usize,
    begun: usize,
    most: usize,
}

impl Handshakes {
    pub(super) fn new() -> Handshakes {
        Handshakes {
            entries: Vec::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
            shaking: VecDeque::new(),
            lingerers: VecDeque::new(),
            queue: Queue::default(),
            live: 0,
            begun: 0,
            most: 0,
        }
    }

    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// Those which have anything in the heap.
    pub(super) fn begun(&self) -> usize {
        self.begun
    }

    /// Takes a new connection in; its index is what epoll's token will name.
    pub(super) fn begin(
        &mut self,
        accepted: (Fd, Client),
        introduced: bool,
        (route, door): (u16, Option<Rc<[u16]>>),
        generation: u32,
        now_ms: u64,
        deadline_ms: u64,
    ) -> u32 {
        let (fd, client) = accepted;
        let entry = InFlight {
            fd,
            route,
            generation,
            client,
            moved_ms: now_ms,
            accepted_ms: now_ms,
            stage: if introduced {
                Stage::Introducing(Introduction::default())
            } else if door.is_some() {
                Stage::Choosing {
                    received: Vec::new(),
                    introduced: false,
                }
            } else {
                Stage::Waiting
            },
            door,
            watch: Watch::Never,
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = Some(entry);
                index
            }
            None => {
                self.entries.push(Some(entry));
                (self.entries.len() - 1) as u32
            }
        };
        self.live += 1;
        self.most = self.most.max(self.live);
        self.waiting.push_back((deadline_ms, index, generation));
        index
    }

    pub(super) fn entry(&mut self, index: u32, generation: u32) -> Option<&mut InFlight> {
        entry_of(&mut self.entries, index, generation)
    }

    /// Epoll has told of it: it waits for its turn.
    pub(super) fn note_ready(&mut self, index: u32, generation: u32, now_ms: u64) {
        let Some(entry) = self.entry(index, generation) else {
            return;
        };
        entry.watch = Watch::Told;
        if entry.has_answered() {
            self.queue.push_known(index, generation);
        } else {
            self.queue.push_new(index, generation, now_ms);
        }
    }

    /// The first of those that have begun, whose client has been silent since before `before_ms`.
    /// Looks at a bounded number.
    pub(super) fn oldest_silent(&self, before_ms: u64) -> Option<(u32, u32)> {
        const LOOKS: usize = 256;
        let is_silent = |&&(_, index, generation): &&Deadline| {
            let entry = self.entries.get(index as usize).and_then(Option::as_ref);
            entry.is_some_and(|entry| entry.generation == generation && entry.moved_ms < before_ms)
        };
        let found = self.shaking.iter().take(LOOKS).find(is_silent);
        found.map(|&(_, index, generation)| (index, generation))
    }

    /// A step: reads, works, writes. `start` makes the handshake when something has come.
    pub(super) fn step(
        &mut self,
        (index, generation): (u32, u32),
        with: With<'_>,
        start: impl FnOnce(u16) -> Option<Handshake>,
    ) -> Option<Step> {
        let entry = self.entries.get_mut(index as usize)?.as_mut()?;
        if entry.generation != generation {
            return None;
        }
        let had_begun = entry.has_begun();
        let deadline_ms = with.now_ms + with.timeout_ms;
        let step = entry.step(with, start);
        if !had_begun && entry.has_begun() {
            self.begun += 1;
            // The time in which it waited for its turn was ours, not its client's.
            self.shaking.push_back((deadline_ms, index, generation));
        }
        Some(step)
    }

    /// Takes an entry out.
    pub(super) fn take(&mut self, index: u32, generation: u32) -> Option<InFlight> {
        self.entry(index, generation)?;
        let entry = self.entries.get_mut(index as usize)?.take()?;
        self.free.push(index);
        self.live -= 1;
        self.begun -= usize::from(entry.has_begun());
        Some(entry)
    }

    /// Lets a failed one linger until `now_ms` + 2 s.
    pub(super) fn note_lingering(&mut self, index: u32, generation: u32, now_ms: u64) {
        self.lingerers
            .push_back((now_ms + LINGER_MS, index, generation));
    }

    /// The next entry whose time is up. Whoever waits for a turn with us, not we for them, is given
    /// more of it.
    pub(super) fn next_expired(&mut self, now_ms: u64, timeout_ms: u64) -> Option<(u32, u32)> {
        while let Some((index, generation)) = due(&mut self.waiting, &mut self.entries, now_ms) {
            let Some(entry) = entry_of(&mut self.entries, index, generation) else {
                continue;
            };
            if entry.has_begun() {
                continue;
            }
            let given_up_ms = entry.accepted_ms + timeout_ms.saturating_mul(WAITS_MAX);
            if !entry.waits_for_turn() || given_up_ms <= now_ms {
                return Some((index, generation));
            }
            self.waiting
                .push_back((now_ms + timeout_ms, index, generation));
        }
        due(&mut self.shaking, &mut self.entries, now_ms)
            .or_else(|| due(&mut self.lingerers, &mut self.entries, now_ms))
    }

    /// When the next entry's time is up.
    pub(super) fn next_deadline_ms(&self) -> Option<u64> {
        let queues = [&self.waiting, &self.shaking, &self.lingerers];
        let fronts = queues.map(VecDeque::front);
        fronts
            .into_iter()
            .flatten()
            .map(|&(deadline_ms, ..)| deadline_ms)
            .min()
    }

    /// Has a burst ended since this was last asked? Its memory is given up here.
    pub(super) fn burst_ended(&mut self) -> bool {
        if self.live > 0 || self.most == 0 {
            return false;
        }
        let was_burst = self.most >= 16;
        *self = Handshakes::new();
        was_burst
    }
}

/// When the time of an entry is up, its index and generation.
type Deadline = (u64, u32, u32);

/// Takes the first deadline that has passed; those of entries which are gone are dropped.
fn due(
    deadlines: &mut VecDeque<Deadline>,
    entries: &mut [Option<InFlight>],
    now_ms: u64,
) -> Option<(u32, u32)> {
    while let Some(&(deadline_ms, index, generation)) = deadlines.front() {
        let current = entry_of(entries, index, generation).is_some();
        if current && deadline_ms > now_ms {
            return None;
        }
        deadlines.pop_front();
        if current {
            return Some((index, generation));
        }
    }
    None
}

fn entry_of(
    entries: &mut [Option<InFlight>],
    index: u32,
    generation: u32,
) -> Option<&mut InFlight> {
    let entry = entries.get_mut(index as usize)?.as_mut()?;
    (entry.generation == generation).then_some(entry)
}

impl InFlight {
    fn step(&mut self, with: With<'_>, start: impl FnOnce(u16) -> Option<Handshake>) -> Step {
        let With {
            tools,
            poller,
            token,
            now,
            now_ms,
            waited,
            ..
        } = with;
        self.moved_ms = now_ms;
        let step = match &mut self.stage {
            Stage::Waiting => self.first_step(Vec::new(), tools, now, waited, start),
            Stage::Introducing(introduction) => {
                match introduction.step(self.fd, &mut tools.scratch.opening) {
                    Step::Introduced => self.introduced(),
                    step => step,
                }
            }
            Stage::Choosing { received, .. } => hear(self.fd, received, tools),
            Stage::Known(early) => {
                let early = std::mem::take(early);
                self.first_step(early, tools, now, waited, start)
            }
            Stage::Shaking(handshake) => shake(self.fd, handshake, tools, now),
            Stage::Lingering { looks, .. } if *looks >= LINGER_LOOKS_MAX => Step::Gone,
            Stage::Lingering {
                last_words,
                shut,
                looks,
            } => {
                *looks += 1;
                linger(self.fd, last_words, shut, &mut tools.scratch.opening)
            }
        };
        if let (Step::Failed(_), Stage::Shaking(handshake)) = (&step, &self.stage) {
            let output = handshake.output().to_vec();
            self.stage = Stage::Lingering {
                last_words: output,
                shut: false,
                looks: 0,
            };
            if let Stage::Lingering {
                last_words, shut, ..
            } = &mut self.stage
            {
                // Tried at once; if the peer's end is there already, the deadline is soon enough.
                linger(self.fd, last_words, shut, &mut tools.scratch.opening);
            }
        }
        let goes_on = matches!(step, Step::Continues | Step::Failed(_));
        if goes_on && self.watch(poller, token).is_err() {
            return Step::Gone;
        }
        step
    }

    /// From here on it is as if the client had connected itself.
    fn introduced(&mut self) -> Step {
        if let Stage::Introducing(introduction) = &mut self.stage {
            let (ends, early) = std::mem::take(introduction).into_parts();
            self.client.introduced = ends;
            self.stage = match self.door {
                None => Stage::Known(early),
                Some(_) => Stage::Choosing {
                    received: early,
                    introduced: true,
                },
            };
        }
        Step::Introduced
    }

    /// While its route is to be found: what came, and the routes of which it may be for any.
    pub(super) fn hello(&self) -> Option<(&[u8], Rc<[u16]>)> {
        match (&self.stage, &self.door) {
            (Stage::Choosing { received, .. }, Some(door)) => Some((received, Rc::clone(door))),
            _ => None,
        }
    }

    /// Must its hello be read before its route is known?
    pub(super) fn is_for_door(&self) -> bool {
        self.door.is_some()
    }

    /// Its route is known: what came goes into the handshake.
    pub(super) fn is_chosen(&mut self) {
        if let Stage::Choosing { received, .. } = &mut self.stage {
            self.stage = Stage::Known(std::mem::take(received));
            self.door = None;
        }
    }

    /// What came of one whose route was to be found.
    pub(super) fn into_received(self) -> Vec<u8> {
        match self.stage {
            Stage::Choosing { received, .. } | Stage::Known(received) => received,
            _ => Vec::new(),
        }
    }

    /// It is for no route: the alert is sent, then its end is awaited.
    pub(super) fn refuse(
        &mut self,
        alert: &[u8],
        poller: &Poller,
        token: u64,
        scratch: &mut [u8],
    ) -> io::Result<()> {
        let (mut last_words, mut shut) = (alert.to_vec(), false);
        linger(self.fd, &mut last_words, &mut shut, scratch);
        self.stage = Stage::Lingering {
            last_words,
            shut,
            looks: 0,
        };
        self.watch(poller, token)
    }

    /// The hello, or its beginning. Whoever gave up while waiting for this turn gets no answer.
    fn first_step(
        &mut self,
        early: Vec<u8>,
        tools: &mut Tools,
        now: UnixTime,
        waited: bool,
        start: impl FnOnce(u16) -> Option<Handshake>,
    ) -> Step {
        let received = if early.is_empty() {
            match receive(self.fd, tools) {
                Ok(Some(n)) => &tools.scratch.opening[..n],
                Ok(None) => return Step::Continues,
                Err(step) => return step,
            }
        } else {
            &early
        };
        if waited && has_given_up(self.fd) {
            return Step::GivenUp;
        }
        let Some(handshake) = start(self.route) else {
            return Step::Gone;
        };
        let mut handshake = Box::new(handshake);
        let step = take(self.fd, &mut handshake, received, now);
        self.stage = Stage::Shaking(handshake);
        step
    }

    /// The finished handshake. `None`: it had failed.
    pub(super) fn into_handshake(self) -> Option<Box<Handshake>> {
        match self.stage {
            Stage::Shaking(handshake) => Some(handshake),
            Stage::Waiting
            | Stage::Introducing(_)
            | Stage::Choosing { .. }
            | Stage::Known(_)
            | Stage::Lingering { .. } => None,
        }
    }

    /// Is its hello there, and we have not come to it yet?
    fn waits_for_turn(&self) -> bool {
        !self.has_begun() && !matches!(self.watch, Watch::Armed(_))
    }

    fn has_begun(&self) -> bool {
        match &self.stage {
            Stage::Waiting => false,
            Stage::Introducing(introduction) => introduction.has_begun(),
            Stage::Choosing {
                received,
                introduced,
            } => *introduced || !received.is_empty(),
            Stage::Known(_) | Stage::Shaking(_) | Stage::Lingering { .. } => true,
        }
    }

    /// Is this one only waiting for its peer to have read our alert?
    pub(super) fn is_lingering(&self) -> bool {
        matches!(self.stage, Stage::Lingering { .. })
    }

    /// Is the costly part behind us? True for those which failed, too.
    pub(super) fn has_answered(&self) -> bool {
        match &self.stage {
            Stage::Waiting | Stage::Introducing(_) | Stage::Choosing { .. } | Stage::Known(_) => {
                false
            }
            Stage::Shaking(handshake) => handshake.has_answered(),
            Stage::Lingering { .. } => true,
        }
    }

    /// Does epoll know the socket?
    pub(super) fn is_watched(&self) -> bool {
        self.watch != Watch::Never
    }

    fn watch(&mut self, poller: &Poller, token: u64) -> io::Result<()> {
        let blocked = match &self.stage {
            Stage::Waiting | Stage::Introducing(_) | Stage::Choosing { .. } | Stage::Known(_) => {
                false
            }
            Stage::Shaking(handshake) => !handshake.output().is_empty(),
            Stage::Lingering { last_words, .. } => !last_words.is_empty(),
        };
        // A peer that does not take our flight is not read either: backpressure from the start.
        let wanted = if blocked {
            Interest::WRITE
        } else {
            Interest::READ
        };
        match self.watch {
            Watch::Armed(armed) if armed == wanted => return Ok(()),
            Watch::Never => poller.add(self.fd, token, wanted | Interest::ONCE)?,
            _ => poller.modify(self.fd, token, wanted | Interest::ONCE)?,
        }
        self.watch = Watch::Armed(wanted);
        Ok(())
    }
}

fn shake(fd: Fd, handshake: &mut Handshake, tools: &mut Tools, now: UnixTime) -> Step {
    match flush(fd, handshake) {
        Ok(true) => {}
        Ok(false) => return Step::Continues,
        Err(_) => return Step::Gone,
    }
    match receive(fd, tools) {
        Ok(Some(n)) => take(fd, handshake, &tools.scratch.opening[..n], now),
        Ok(None) => Step::Continues,
        Err(step) => step,
    }
}

/// Receives more of a hello. Nothing is lost when it is cut anywhere.
fn hear(fd: Fd, received: &mut Vec<u8>, tools: &mut Tools) -> Step {
    if !received.is_empty() && choosing::suffices(received) {
        return Step::Hello;
    }
    match receive(fd, tools) {
        Ok(Some(n)) => received.extend_from_slice(&tools.scratch.opening[..n]),
        Ok(None) => return Step::Continues,
        Err(step) => return step,
    }
    if choosing::suffices(received) {
        Step::Hello
    } else {
        Step::Continues
    }
}

/// Receives into the scratch buffer. `None`: there is nothing.
fn receive(fd: Fd, tools: &mut Tools) -> Result<Option<usize>, Step> {
    let room = &mut tools.scratch.opening[..super::flow::RECEIVE_MAX / 4];
    match socket::recv(fd, room) {
        Ok(Attempt::Done(0)) | Err(_) => Err(Step::Gone),
        Ok(Attempt::Done(n)) => Ok(Some(n)),
        Ok(Attempt::WouldBlock) => Ok(None),
    }
}

/// Shows the handshake what was received, and sends what it has to say.
fn take(fd: Fd, handshake: &mut Handshake, received: &[u8], now: UnixTime) -> Step {
    match handshake.handle_input(now, received) {
        Ok(Progress::Handshaking) => match flush(fd, handshake) {
            Ok(_) => Step::Continues,
            Err(_) => Step::Gone,
        },
        // The tickets. What the socket does not take goes with the connection, as pending bytes.
        Ok(Progress::Established) => match flush(fd, handshake) {
            Ok(_) => Step::Established,
            Err(_) => Step::Gone,
        },
        Err(failure) => Step::Failed(failure),
    }
}

/// Has the client ended or reset its connection behind its hello? Then nobody waits for an answer.
fn has_given_up(fd: Fd) -> bool {
    matches!(socket::peek(fd, &mut [0]), Ok(Attempt::Done(0)) | Err(_))
}

/// `true`: all of its output went out.
pub(super) fn flush(fd: Fd, handshake: &mut Handshake) -> io::Result<bool> {
    while !handshake.output().is_empty() {
        let sent = if handshake.output_can_wait() {
            socket::send_before_more(fd, handshake.output())
        } else {
            socket::send(fd, handshake.output())
        };
        match sent {
            Ok(Attempt::Done(n)) => handshake.output_sent(n),
            Ok(Attempt::WouldBlock) => return Ok(false),
            Err(e) => return Err(e),
        }
    }
    Ok(true)
}

fn linger(fd: Fd, last_words: &mut Vec<u8>, shut: &mut bool, scratch: &mut [u8]) -> Step {
    while !last_words.is_empty() {
        match socket::send(fd, last_words) {
            Ok(Attempt::Done(n)) => drop(last_words.drain(..n)),
            Ok(Attempt::WouldBlock) => return Step::Continues,
            Err(_) => return Step::Gone,
        }
    }
    if !*shut {
        *shut = true;
        if socket::shutdown_write(fd).is_err() {
            return Step::Gone;
        }
    }
    if discard(fd, scratch) {
        Step::Gone
    } else {
        Step::Continues
    }
}
