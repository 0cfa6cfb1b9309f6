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
    /// The worker that became ready last, or reported that it cannot.
    worker: Option<Pid>,
    /// Whether that worker waits for certificates that it can use.
    is_unusable: bool,
    born_ms: u64,
    /// How the keeper ended.
    ended: Option<Ended>,
    /// The worker that was killed last for an invalid message.
    distrusted: Option<Pid>,
    /// Main's end of the channel to the worker.
    orders: Fd,
    /// Main's end of the connection log's socket pair. [`Fd::NONE`]: the pair was started by an older binary
    /// without connection log.
    log_source: Fd,
    /// Board with the keeper's commands.
    board: Board,
    ready: bool,
    /// The edition that the worker follows.
    edition: u64,
    /// The sandbox limits of a worker that starts with that edition.
    bounds_of_edition: Bounds,
    /// Editions sent to the worker that it has not answered.
    given: Vec<Given>,
    /// The number of the last order with an edition.
    last_given: u64,
    /// The pair's descriptor numbers, as at its start.
    descriptors: Descriptors,
    /// The challenge that the worker answers, or answered last.
    challenge: u64,
    /// Whether the worker is gone for good.
    is_over: bool,
    /// Whether the pair's connections have been forgotten, after both processes were gone.
    is_forgotten: bool,
    /// Limits of the worker's sandbox.
    bounds: Bounds,
    renewal: Renewal,
    share: Share,
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
        self.all.push(Pair::of(state, board, false));
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
            all.push(Pair::of(state.clone(), board, true));
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
            edition: pair.edition,
            descriptors: pair.descriptors.clone(),
            // The next binary starts the next worker.
            bounds: pair.bounds_of_edition,
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
        if pair.given.len() >= GIVEN_MAX {
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
        let number = pair.last_given + 1;
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
        pair.last_given = number;
        pair.given.push(Given {
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
            pair.is_over = true;
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
        pair.is_some_and(|pair| pair.edition != edition && pair.given.is_empty())
    }

    /// Whether all workers have become ready.
    pub(crate) fn are_ready(&self) -> bool {
        self.all.iter().all(|pair| pair.ready)
    }

    /// Whether all workers have become ready, and all keepers run.
    pub(crate) fn are_whole(&self) -> bool {
        let is_whole = |pair: &Pair| pair.ready && pair.ended.is_none();
        self.all.iter().all(is_whole)
    }

    /// Whether a worker follows this edition.
    pub(crate) fn has_edition(&self, worker: usize, edition: u64) -> bool {
        let pair = self.all.get(worker);
        pair.is_some_and(|pair| pair.edition == edition)
    }

    /// Whether all remaining workers follow this edition.
    pub(crate) fn have_edition(&self, edition: u64) -> bool {
        let has_it = |pair: &Pair| pair.edition == edition || pair.is_over;
        self.all.iter().all(has_it)
    }

    /// Whether all remaining workers answer this challenge.
    pub(crate) fn all_answer_challenge(&self, number: u64) -> bool {
        let shows_it = |pair: &Pair| pair.challenge == number || pair.is_over;
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
        Some(pair.ready)
    }

    /// Whether all keepers and workers are gone. A worker without its keeper still serves.
    pub(crate) fn are_over(&self) -> bool {
        self.all
            .iter()
            .all(|pair| pair.ended.is_some() && pair.is_over)
    }

    /// The next worker that is gone for good, with its keeper. Each is returned once.
    pub(crate) fn next_lost(&mut self) -> Option<usize> {
        let is_lost = |pair: &Pair| pair.ended.is_some() && pair.is_over && !pair.is_forgotten;
        let lost = self.all.iter().position(is_lost)?;
        self.all.get_mut(lost)?.is_forgotten = true;
        Some(lost)
    }

    /// The workers that are not gone for good.
    pub(crate) fn remaining(&self) -> Vec<usize> {
        let all = self.all.iter().enumerate();
        let remaining = all.filter(|(_, pair)| !pair.is_over);
        remaining.map(|(worker, _)| worker).collect()
    }

    /// Kills the workers that have lost their keeper, which would have killed them if they hung.
    pub(crate) fn kill_without_keeper(&self) {
        let is_left = |pair: &&Pair| pair.ended.is_some() && !pair.is_over;
        for worker in self.all.iter().filter(is_left).filter_map(|p| p.worker) {
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
        let all = vec![Pair::of(state, board, true)];
        (Pairs { all }, ours, theirs)
    }
}

impl Pair {
    /// A pair in this state. `ready`: its worker has become ready before.
    fn of(state: PairState, board: Board, ready: bool) -> Pair {
        Pair {
            keeper: Pid(state.keeper),
            former: state.former.map(Pid),
            worker: None,
            distrusted: None,
            is_unusable: false,
            born_ms: state.born_ms,
            ended: None,
            orders: Fd(state.orders),
            board,
            ready,
            log_source: Fd(state.log_source),
            edition: state.edition,
            bounds_of_edition: state.bounds,
            given: Vec::new(),
            last_given: 0,
            descriptors: state.descriptors,
            challenge: 0,
            is_over: false,
            is_forgotten: false,
            bounds: state.bounds,
            renewal: Renewal::None,
            share: state.share,
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
            || (self.worker == Some(sender) && process::send_signal(sender, Signal::Kill).is_ok());
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
            // Each worker reports one of them once, and an unusable one becomes ready once.
            WorkerReport::Ready | WorkerReport::Unusable => {
                let is_ready = report == WorkerReport::Ready;
                let is_new = self.worker != Some(sender);
                let is_valid = is_new || (is_ready && self.is_unusable);
                if is_new {
                    self.note_start(sender);
                }
                if is_valid {
                    self.is_unusable = !is_ready;
                    self.ready |= is_ready;
                }
                is_valid
            }
            WorkerReport::Reloaded(number) => {
                let given = self.take_given(number)?;
                self.edition = given.edition;
                self.bounds_of_edition = given.bounds;
                self.board.set_orphaned_max(given.orphaned_ms_max);
                return Some(WorkerReport::Reloaded(given.edition));
            }
            WorkerReport::NotReloaded(number, why) => {
                let given = self.take_given(number)?;
                self.board.withdraw(given.file);
                // A worker that has not reported yet may have obeyed half of an order to its predecessor. It gets the edition
                // again when it is ready, or cannot become ready.
                let has_reported = self.worker == Some(sender);
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

    /// Records a new worker, which may have started with an edition that its predecessor did not confirm any more.
    fn note_start(&mut self, worker: Pid) {
        self.worker = Some(worker);
        let given = self.given.drain(..).map(|given| given.bounds);
        let all = given.chain([self.bounds_of_edition]);
        let narrowest = all.min_by_key(|bounds| bounds.unix);
        self.bounds = narrowest.unwrap_or(self.bounds_of_edition);
        self.renewal = Renewal::None;
    }

    /// Removes an edition from those that were sent. `None`: no order with this number waits for an answer.
    fn take_given(&mut self, number: u64) -> Option<Given> {
        let place = self.given.iter().position(|given| given.number == number)?;
        Some(self.given.remove(place))
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
