//! Pairs of keeper and worker: main starts them, sends orders, receives reports, and records their exits.

use crate::tokens;
use dormouse_dataplane::keeper::{self, KnownFile};
use dormouse_handover::child::{self, Bounds};
use dormouse_handover::control;
use dormouse_handover::log_entries::{LOG_ENTRY_VERSION, LogEntries};
use dormouse_handover::notes::Notes;
use dormouse_handover::orders::{self, Order, Received, WorkerReport};
use dormouse_handover::share::Share;
use dormouse_handover::slot::{SLOT_LAYOUT_VERSION, Slot};
use dormouse_handover::upgrade::Command;
use dormouse_handover::{Descriptors, Handover, orphaned_ms_max};
use dormouse_reactor::memory::FileIdentity;
use dormouse_reactor::pending::Pending;
use dormouse_reactor::poller::{Interest, Poller};
use dormouse_reactor::process::{self, Board, Ended, FILES_MAX, Inherit, Pid, Program};
use dormouse_reactor::signal::Signal;
use dormouse_reactor::slab::Slab;
use dormouse_reactor::socket::{self, DESCRIPTORS_MAX};
use dormouse_reactor::{Fd, OnExec};
use serde::{Deserialize, Serialize};
use std::io;

/// A keeper and its worker.
struct Pair {
    /// The keeper; a stale id after its exit.
    keeper: Pid,
    /// The old binary's keeper, until it exits.
    former: Option<Pid>,
    born_ms: u64,
    /// How the keeper ended.
    ended: Option<Ended>,
    /// The worker that was killed last for an invalid message.
    distrusted: Option<Pid>,
    /// The current worker, as far as it has reported.
    worker: Reported,
    life: Life,
    /// Main's end of the channel to the worker.
    orders: Fd,
    /// Main's end of the connection log's socket pair. [`Fd::NONE`]: the pair was started by an older binary
    /// without connection log.
    log_source: Fd,
    /// Board with the keeper's commands.
    board: Board,
    /// The pair's descriptor numbers, as at its start.
    descriptors: Descriptors,
    share: Share,
    editions: Editions,
    /// The challenge that the worker answers, or answered last.
    challenge: u64,
    /// Limits of the worker's sandbox.
    bounds: Bounds,
    renewal: Renewal,
}

/// The last report of a pair's workers about themselves. A successor reports in its predecessor's place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reported {
    /// This main has none yet.
    Nothing,
    /// This worker has become ready.
    Ready(Pid),
    /// This worker waits for certificates that it can use.
    Unusable(Pid),
}

impl Reported {
    fn by(self) -> Option<Pid> {
        match self {
            Reported::Nothing => None,
            Reported::Ready(worker) | Reported::Unusable(worker) => Some(worker),
        }
    }
}

/// The life of a pair's workers, one after the other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    /// None has become ready yet.
    Starts,
    /// One has become ready.
    Serves,
    /// The last one is gone for good.
    Over { had_served: bool },
    /// The keeper is gone, too, and the pair's connections have been forgotten.
    Forgotten { had_served: bool },
}

impl Life {
    fn has_served(self) -> bool {
        match self {
            Life::Starts => false,
            Life::Serves => true,
            Life::Over { had_served } | Life::Forgotten { had_served } => had_served,
        }
    }

    /// The life after the last worker's end.
    fn ended(self) -> Life {
        match self {
            Life::Starts => Life::Over { had_served: false },
            Life::Serves => Life::Over { had_served: true },
            over => over,
        }
    }

    fn is_over(self) -> bool {
        matches!(self, Life::Over { .. } | Life::Forgotten { .. })
    }
}

/// The editions of a worker.
struct Editions {
    /// The one that the worker follows.
    current: u64,
    /// The sandbox limits of a worker that starts with that edition.
    bounds: Bounds,
    /// Those sent to the worker that it has not answered.
    given: Vec<Given>,
    /// The number of the last order with an edition.
    last_given: u64,
}

/// An edition sent to a worker.
struct Given {
    /// The number of the order.
    number: u64,
    edition: u64,
    /// Its sandbox limits.
    bounds: Bounds,
    /// The file with its handover.
    file: FileIdentity,
    /// For how long keeper and worker may outlive main.
    orphaned_ms_max: u64,
}

/// The replacement of a worker by one with another sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Renewal {
    #[default]
    None,
    /// The worker becomes quiet.
    Quiesces,
    /// The worker is quiet and gets the configuration, which its successor will need.
    Reloads,
    /// The worker ends.
    Ends,
}

/// A pair's state, passed from one binary to the next.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct PairState {
    keeper: i32,
    former: Option<i32>,
    born_ms: u64,
    orders: i32,
    board: i32,
    edition: u64,
    descriptors: Descriptors,
    bounds: Bounds,
    share: Share,
    log_source: i32,
}

/// Maximum number of unanswered editions. The keeper keeps the handovers of these, and of as many that a
/// previous worker received.
const GIVEN_MAX: usize = FILES_MAX / 2;

/// All pairs. A worker's number is its index.
#[derive(Default)]
pub(crate) struct Pairs {
    all: Vec<Pair>,
}

impl Pairs {
    /// Creates the shared memory of a pair, and starts its keeper with this handover.
    pub(crate) fn start(&mut self, mut handover: Handover, poller: &Poller) -> io::Result<()> {
        let share = handover.share.clone();
        let slots =
            Slab::<Slot>::create("dormouse-slots", share.connections_max, SLOT_LAYOUT_VERSION)?;
        let pending = Pending::create("dormouse-pending", share.pending_bytes_max as usize)?;
        let notes = Notes::default().write()?;
        let (ours, theirs) = socket::channel(OnExec::Close)?;
        socket::name_senders(ours)?;
        // Neither uses memory while there is no connection log.
        let log_entries = LogEntries::create(share.connections_max)?;
        let (log_source, log_lines) = socket::pair(OnExec::Close)?;
        let board = Board::create("dormouse-board")?;
        let reader = board.reader()?;
        handover.descriptors.slots = slots.fd().0;
        handover.descriptors.pending = pending.fd().0;
        handover.descriptors.orders = theirs.0;
        handover.descriptors.notes = notes.0;
        handover.descriptors.log_entries = (log_entries.fd().0, LOG_ENTRY_VERSION);
        handover.descriptors.log_lines = log_lines.0;
        let file = handover.write()?;
        let mut inherited = handover.descriptors.all();
        inherited.extend([file, reader]);
        let command = keeper::first_command(KnownFile::of(file)?, KnownFile::of(reader)?);
        let mut program = Program::this(command).with(Inherit::Only(inherited));
        program.environment = Some(child::environment());
        let keeper = program.start()?;
        // Main keeps only its end of the channel.
        let memory = [slots.fd(), pending.fd(), notes, log_entries.fd()];
        for fd in memory.into_iter().chain([theirs, log_lines, file, reader]) {
            fd.close();
        }
        poller.add(ours, token(self.all.len()), Interest::READ)?;
        let state = PairState {
            keeper: keeper.0,
            former: None,
            born_ms: process::boottime_ms(),
            orders: ours.0,
            board: board.fd().0,
            edition: handover.edition,
            bounds: Bounds::of(&handover.config),
            descriptors: handover.descriptors.clone(),
            share,
            log_source: log_source.0,
        };
        self.all.push(Pair::of(state, board, Life::Starts));
        Ok(())
    }

    /// Adopts the pairs that another binary in this process has started.
    pub(crate) fn adopt(states: &[PairState], poller: &Poller) -> io::Result<Pairs> {
        let mut all = Vec::with_capacity(states.len());
        for (worker, state) in states.iter().enumerate() {
            let orders = Fd(state.orders);
            orders.set_on_exec(OnExec::Close)?;
            poller.add(orders, token(worker), Interest::READ)?;
            Fd(state.log_source).set_on_exec(OnExec::Close)?;
            let board = Board::adopt(Fd(state.board)).map_err(io::Error::other)?;
            all.push(Pair::of(state.clone(), board, Life::Serves));
        }
        Ok(Pairs { all })
    }

    /// The state for the next binary in this process.
    pub(crate) fn state(&self) -> Vec<PairState> {
        let state = |pair: &Pair| PairState {
            keeper: pair.keeper.0,
            former: pair.former.map(|keeper| keeper.0),
            born_ms: pair.born_ms,
            orders: pair.orders.0,
            board: pair.board.fd().0,
            edition: pair.editions.current,
            descriptors: pair.descriptors.clone(),
            // The next binary starts the next worker.
            bounds: pair.editions.bounds,
            share: pair.share.clone(),
            log_source: pair.log_source.0,
        };
        self.all.iter().map(state).collect()
    }

    /// The descriptors that the next binary in this process needs.
    pub(crate) fn fds(&self) -> Vec<Fd> {
        let fds = |pair: &Pair| [pair.orders, pair.board.fd()];
        let fds = self.all.iter().flat_map(fds);
        fds.chain(self.log_sources()).collect()
    }

    /// Sockets from which connection log lines are received.
    pub(crate) fn log_sources(&self) -> Vec<Fd> {
        self.all.iter().map(|pair| pair.log_source).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// A worker's share of the limits, once it has one.
    pub(crate) fn share(&self, worker: u32) -> Option<&Share> {
        self.all.get(worker as usize).map(|pair| &pair.share)
    }

    /// The keepers, for control.
    pub(crate) fn keepers(&self) -> Vec<control::Keeper> {
        let keeper = |pair: &Pair| control::Keeper {
            pid: pair.keeper.0,
            born_ms: pair.born_ms,
            ended: pair.ended.map(|ended| ended.to_string()),
        };
        self.all.iter().map(keeper).collect()
    }

    // ---- orders and reports ----

    /// Sends an order to a worker. If the worker cannot be reached, its exit is reported later, or its
    /// successor gets what it missed when it becomes ready.
    pub(crate) fn order(&self, worker: usize, order: &Order) {
        if let Some(pair) = self.all.get(worker) {
            pair.order(order);
        }
    }

    /// Sends an order to all workers.
    pub(crate) fn order_all(&self, order: &Order) {
        self.all.iter().for_each(|pair| pair.order(order));
    }

    /// Sends a worker a new handover, with the listeners of its edition. A worker with too many unanswered
    /// editions gets it after it has answered.
    pub(crate) fn give_edition(
        &mut self,
        worker: usize,
        mut handover: Handover,
        listeners: &[Fd],
    ) -> io::Result<()> {
        let Some(pair) = self.all.get_mut(worker) else {
            return Ok(());
        };
        if pair.editions.given.len() >= GIVEN_MAX {
            return Ok(());
        }
        // Descriptor numbers of this process are meaningless to the worker, except the count of listeners.
        let Descriptors {
            listeners: of_edition,
            doors,
            ..
        } = std::mem::take(&mut handover.descriptors);
        handover.descriptors = Descriptors {
            listeners: of_edition,
            doors,
            ..pair.descriptors.clone()
        };
        let file = handover.write()?;
        // Before the worker has the file, because its keeper may find it there at any time after.
        let vouched = pair.board.vouch_for(file);
        let identity = vouched.inspect_err(|_| file.close())?;
        let number = pair.editions.last_given + 1;
        let reload = Order::Reload {
            handover: file,
            number,
        };
        let ahead = listeners.chunks(DESCRIPTORS_MAX);
        let mut orders = ahead
            .map(|some| Order::Listeners(some.to_vec()))
            .chain([reload]);
        let sent = orders.try_for_each(|order| pair.try_order(&order));
        file.close();
        // The list is short, and must keep the file that the worker follows.
        sent.inspect_err(|_| pair.board.withdraw(identity))?;
        pair.editions.last_given = number;
        pair.editions.given.push(Given {
            number,
            edition: handover.edition,
            bounds: Bounds::of(&handover.config),
            file: identity,
            orphaned_ms_max: orphaned_ms_max(&handover.config.timeouts),
        });
        Ok(())
    }

    /// Returns the next report of a worker or its keeper, with the sender's process id, and records what main
    /// must remember of it. In answers to [`Order::Reload`], the edition replaces the order's number. `None`: there is
    /// none, or it is invalid, at this time or from this sender.
    pub(crate) fn receive(
        &mut self,
        worker: usize,
        poller: &Poller,
    ) -> Option<(WorkerReport, Pid)> {
        let pair = self.all.get_mut(worker)?;
        let received = orders::receive_report(pair.orders).unwrap_or_else(|_| {
            let _ = poller.remove(pair.orders);
            pair.life = pair.life.ended();
            None
        });
        let Received { report, sender } = received?;
        let Some(report) = report else {
            pair.distrust(worker, sender);
            return None;
        };
        Some((pair.note_report(report, sender)?, sender))
    }

    /// Whether a worker must be sent the current edition: it has answered all earlier ones.
    pub(crate) fn lacks_edition(&self, worker: usize, edition: u64) -> bool {
        let pair = self.all.get(worker);
        pair.is_some_and(|pair| pair.editions.current != edition && pair.editions.given.is_empty())
    }

    /// Whether all workers have become ready.
    pub(crate) fn are_ready(&self) -> bool {
        self.all.iter().all(|pair| pair.life.has_served())
    }

    /// Whether all workers have become ready, and all keepers run.
    pub(crate) fn are_whole(&self) -> bool {
        let is_whole = |pair: &Pair| pair.life.has_served() && pair.ended.is_none();
        self.all.iter().all(is_whole)
    }

    /// Whether a worker follows this edition.
    pub(crate) fn has_edition(&self, worker: usize, edition: u64) -> bool {
        let pair = self.all.get(worker);
        pair.is_some_and(|pair| pair.editions.current == edition)
    }

    /// Whether all remaining workers follow this edition.
    pub(crate) fn have_edition(&self, edition: u64) -> bool {
        let has_it = |pair: &Pair| pair.editions.current == edition || pair.life.is_over();
        self.all.iter().all(has_it)
    }

    /// Whether all remaining workers answer this challenge.
    pub(crate) fn all_answer_challenge(&self, number: u64) -> bool {
        let shows_it = |pair: &Pair| pair.challenge == number || pair.life.is_over();
        self.all.iter().all(shows_it)
    }

    // ---- replacement ----

    /// Whether a worker gets a configuration only when it is quiet, because its sandbox does not allow what the
    /// configuration needs. Its handshakes end with the configuration that it has.
    pub(crate) fn holds_back(&mut self, worker: usize, wanted: Bounds) -> bool {
        let Some(pair) = self.all.get_mut(worker) else {
            return false;
        };
        if pair.renewal == Renewal::None && wanted.exceeds(pair.bounds) {
            pair.renewal = Renewal::Quiesces;
            pair.order(&Order::Quiesce);
        }
        pair.renewal == Renewal::Quiesces
    }

    /// Handles a worker that has become quiet. Returns `true` if it now gets the configuration. A worker that has read an
    /// order to its predecessor continues.
    pub(crate) fn note_quiet(&mut self, worker: usize) -> bool {
        let Some(pair) = self.all.get_mut(worker) else {
            return false;
        };
        if pair.renewal == Renewal::None {
            pair.order(&Order::Resume);
        }
        let is_next = pair.renewal == Renewal::Quiesces;
        if is_next {
            pair.renewal = Renewal::Reloads;
        }
        is_next
    }

    /// Handles a worker that has applied the current edition. If it is quiet, its successor takes over its connections: a
    /// sandbox cannot be widened.
    pub(crate) fn renew_if_bound(&mut self, worker: usize, wanted: Bounds) {
        match self.all.get_mut(worker) {
            Some(pair) if pair.renewal == Renewal::Reloads && wanted.exceeds(pair.bounds) => {
                pair.renewal = Renewal::Ends;
                pair.order(&Order::HandOver);
            }
            _ => self.keep(worker),
        }
    }

    /// Lets a quiet worker continue that is not replaced.
    pub(crate) fn keep(&mut self, worker: usize) {
        let pair = self.all.get_mut(worker);
        if let Some(pair) = pair.filter(|pair| pair.renewal == Renewal::Reloads) {
            pair.renewal = Renewal::None;
            pair.order(&Order::Resume);
        }
    }

    /// Lets all workers continue after an upgrade that failed. Those that are to be replaced become quiet again.
    pub(crate) fn resume_all(&self) {
        for pair in &self.all {
            pair.order(&Order::Resume);
            if pair.renewal == Renewal::Quiesces {
                pair.order(&Order::Quiesce);
            }
        }
    }

    /// Whether a worker is about to be replaced.
    pub(crate) fn are_renewed(&self) -> bool {
        self.all.iter().any(|pair| pair.renewal != Renewal::None)
    }

    // ---- keepers ----

    /// Records a keeper's exit. Returns whether its worker had become ready; `None`: it was not a keeper.
    pub(crate) fn note_end(&mut self, pid: Pid, ended: Ended) -> Option<bool> {
        let is_it = |pair: &&mut Pair| pair.keeper == pid && pair.ended.is_none();
        let pair = self.all.iter_mut().find(is_it)?;
        pair.ended = Some(ended);
        Some(pair.life.has_served())
    }

    /// Whether all keepers and workers are gone. A worker without its keeper still serves.
    pub(crate) fn are_over(&self) -> bool {
        self.all
            .iter()
            .all(|pair| pair.ended.is_some() && pair.life.is_over())
    }

    /// The next worker that is gone for good, with its keeper. Each is returned once.
    pub(crate) fn next_lost(&mut self) -> Option<usize> {
        let mut pairs = self.all.iter_mut().enumerate();
        pairs.find_map(|(worker, pair)| match (pair.ended, pair.life) {
            (Some(_), Life::Over { had_served }) => {
                pair.life = Life::Forgotten { had_served };
                Some(worker)
            }
            _ => None,
        })
    }

    /// The workers that are not gone for good.
    pub(crate) fn remaining(&self) -> Vec<usize> {
        let all = self.all.iter().enumerate();
        let remaining = all.filter(|(_, pair)| !pair.life.is_over());
        remaining.map(|(worker, _)| worker).collect()
    }

    /// Kills the workers that have lost their keeper, which would have killed them if they hung.
    pub(crate) fn kill_without_keeper(&self) {
        let is_left = |pair: &&Pair| pair.ended.is_some() && !pair.life.is_over();
        let left = self.all.iter().filter(is_left);
        for worker in left.filter_map(|pair| pair.worker.by()) {
            tracing::error!(
                pid = worker.0,
                "worker without a keeper did not stop; killing it"
            );
            let _ = process::send_signal(worker, Signal::Kill);
        }
    }

    /// Posts a command with its text on the boards of all keepers.
    pub(crate) fn post(&self, command: Command, text: &str) -> io::Result<()> {
        let mut pairs = self.all.iter();
        pairs.try_for_each(|pair| pair.board.post(command as u32, text).map(drop))
    }

    /// Posts a command on the boards, and wakes the keepers.
    pub(crate) fn command(&self, command: Command) {
        for pair in &self.all {
            // A post without text always fits.
            let _ = pair.board.post(command as u32, "");
        }
        for pair in self.all.iter().filter(|pair| pair.ended.is_none()) {
            let _ = process::send_signal(pair.keeper, Signal::User2);
        }
    }

    /// Switches to the keepers of the new binary. Returns the old ones, which will exit.
    pub(crate) fn replace_keepers(&mut self, keepers: &[Pid]) -> Vec<Pid> {
        let pairs = self.all.iter_mut().zip(keepers);
        let replace = |(pair, &keeper): (&mut Pair, &Pid)| {
            pair.born_ms = process::boottime_ms();
            let former = std::mem::replace(&mut pair.keeper, keeper);
            pair.former = Some(former);
            former
        };
        pairs.map(replace).collect()
    }

    /// Switches a pair back to the old binary's keeper. Returns that keeper.
    pub(crate) fn restore_keeper(&mut self, worker: usize) -> Option<Pid> {
        let pair = self.all.get_mut(worker)?;
        pair.keeper = pair.former.take()?;
        Some(pair.keeper)
    }

    /// Forgets an old keeper after its exit, because its process id may be reused.
    pub(crate) fn forget_former(&mut self, pid: Pid) {
        for pair in &mut self.all {
            pair.former.take_if(|former| *former == pid);
        }
    }

    /// The keeper of a pair.
    pub(crate) fn keeper(&self, worker: usize) -> Option<Pid> {
        self.all.get(worker).map(|pair| pair.keeper)
    }
}

#[cfg(test)]
impl Pairs {
    /// A pair without processes that has not got this handover yet. Returns main's end and the worker's end of its channel,
    /// too.
    pub(crate) fn idle(handover: &Handover) -> (Pairs, Fd, Fd) {
        let (ours, theirs) = socket::channel(OnExec::Close).expect("a channel");
        let board = Board::create("dormouse-board").expect("a board");
        let state = PairState {
            keeper: i32::MAX,
            former: None,
            born_ms: 0,
            orders: ours.0,
            board: board.fd().0,
            edition: handover.edition - 1,
            bounds: Bounds::of(&handover.config),
            descriptors: handover.descriptors.clone(),
            share: handover.share.clone(),
            log_source: Fd::NONE.0,
        };
        let all = vec![Pair::of(state, board, Life::Serves)];
        (Pairs { all }, ours, theirs)
    }
}

impl Pair {
    /// A pair in this state.
    fn of(state: PairState, board: Board, life: Life) -> Pair {
        Pair {
            keeper: Pid(state.keeper),
            former: state.former.map(Pid),
            distrusted: None,
            born_ms: state.born_ms,
            ended: None,
            worker: Reported::Nothing,
            life,
            orders: Fd(state.orders),
            log_source: Fd(state.log_source),
            board,
            descriptors: state.descriptors,
            share: state.share,
            editions: Editions {
                current: state.edition,
                bounds: state.bounds,
                given: Vec::new(),
                last_given: 0,
            },
            challenge: 0,
            bounds: state.bounds,
            renewal: Renewal::None,
        }
    }

    /// Kills the sender of an invalid message. The keeper starts the next worker, which has the same channel.
    fn distrust(&mut self, worker: usize, sender: Pid) {
        // It may have sent many.
        if self.distrusted.replace(sender) == Some(sender) {
            return;
        }
        let parents = [Some(self.keeper), self.former, Some(process::pid())];
        let parents: Vec<Pid> = parents.into_iter().flatten().collect();
        let is_killed = process::kill_child_of(&parents, sender)
            // /proc may hide it.
            || (self.worker.by() == Some(sender) && process::send_signal(sender, Signal::Kill).is_ok());
        let pid = sender.0;
        match is_killed {
            true => tracing::error!(worker, pid, "invalid message from a worker; killed it"),
            false => tracing::error!(worker, pid, "invalid message in a worker's name"),
        }
    }

    /// Records what main must remember of a report. Returns it with the edition in place of an order's number; `None`: it is
    /// invalid at this time or from this sender.
    fn note_report(&mut self, report: WorkerReport, sender: Pid) -> Option<WorkerReport> {
        let is_valid = match report {
            WorkerReport::Ready => self.note_begun(Reported::Ready(sender)),
            WorkerReport::Unusable => self.note_begun(Reported::Unusable(sender)),
            WorkerReport::Reloaded(number) => {
                let given = self.take_given(number)?;
                self.editions.current = given.edition;
                self.editions.bounds = given.bounds;
                self.board.set_orphaned_max(given.orphaned_ms_max);
                return Some(WorkerReport::Reloaded(given.edition));
            }
            WorkerReport::NotReloaded(number, why) => {
                let given = self.take_given(number)?;
                self.board.withdraw(given.file);
                // A worker that has not reported yet may have obeyed half of an order to its predecessor. It gets the edition
                // again when it is ready, or cannot become ready.
                let has_reported = self.worker.by() == Some(sender);
                return has_reported.then_some(WorkerReport::NotReloaded(given.edition, why));
            }
            WorkerReport::ChallengeShown(number) => {
                self.challenge = number;
                true
            }
            WorkerReport::Quiet
            | WorkerReport::Uncounted(_)
            | WorkerReport::Empty(_)
            | WorkerReport::Prepared
            | WorkerReport::Refused(_) => true,
            WorkerReport::Preparing(_) => sender == self.keeper,
            WorkerReport::Kept => Some(sender) == self.former,
        };
        is_valid.then_some(report)
    }

    /// Records a worker that has begun. Returns `false` if it has said so before: each worker reports once that it is ready
    /// or unusable, and an unusable one becomes ready once.
    fn note_begun(&mut self, reported: Reported) -> bool {
        let is_new = self.worker.by() != reported.by();
        let becomes_ready = match (self.worker, reported) {
            (Reported::Unusable(former), Reported::Ready(worker)) => former == worker,
            _ => false,
        };
        if is_new {
            self.note_start();
        }
        let is_valid = is_new || becomes_ready;
        if is_valid {
            self.worker = reported;
            if let (Reported::Ready(_), Life::Starts) = (reported, self.life) {
                self.life = Life::Serves;
            }
        }
        is_valid
    }

    /// Follows a new worker, which may have started with an edition that its predecessor did not confirm any more.
    fn note_start(&mut self) {
        let given = self.editions.given.drain(..).map(|given| given.bounds);
        let all = given.chain([self.editions.bounds]);
        let narrowest = all.min_by_key(|bounds| bounds.unix);
        self.bounds = narrowest.unwrap_or(self.editions.bounds);
        self.renewal = Renewal::None;
    }

    /// Removes an edition from those that were sent. `None`: no order with this number waits for an answer.
    fn take_given(&mut self, number: u64) -> Option<Given> {
        let given = &mut self.editions.given;
        let place = given.iter().position(|given| given.number == number)?;
        Some(given.remove(place))
    }

    fn order(&self, order: &Order) {
        if let Err(error) = self.try_order(order) {
            tracing::warn!(%error, keeper = self.keeper.0, "command to a worker failed");
        }
    }

    fn try_order(&self, order: &Order) -> io::Result<()> {
        orders::send_order(self.orders, order)
    }
}

fn token(worker: usize) -> u64 {
    tokens::WORKERS + worker as u64
}
