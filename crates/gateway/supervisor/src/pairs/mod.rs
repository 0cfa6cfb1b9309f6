//! Pairs of keeper and worker: main starts them, sends orders, receives reports, and records their exits.

mod pair;

use crate::tokens;
use dormouse_dataplane::keeper::{self, KnownFile};
use dormouse_handover::Handover;
use dormouse_handover::child::{self, Bounds};
use dormouse_handover::control;
use dormouse_handover::log_entries::{LOG_ENTRY_VERSION, LogEntries};
use dormouse_handover::notes::Notes;
use dormouse_handover::orders::{self, Order, Received, WorkerReport};
use dormouse_handover::share::Share;
use dormouse_handover::slot::{SLOT_LAYOUT_VERSION, Slot};
use dormouse_handover::stored::Packed;
use dormouse_handover::upgrade::Command;
use dormouse_reactor::pending::Pending;
use dormouse_reactor::poller::{Interest, Poller};
use dormouse_reactor::process::{self, Board, Ended, Inherit, Pid, Program};
use dormouse_reactor::signal::Signal;
use dormouse_reactor::slab::Slab;
use dormouse_reactor::socket;
use dormouse_reactor::{Fd, OnExec};
use pair::{HeldFile, Life, Pair, Renewal};
use std::io;

pub(crate) use pair::PairState;

/// All pairs. A worker's number is its index.
#[derive(Default)]
pub(crate) struct Pairs {
    all: Vec<Pair>,
}

impl Pairs {
    /// Creates the shared memory of a pair, and starts its keeper with this handover.
    pub(crate) fn start(
        &mut self,
        mut handover: Handover,
        packed: &Packed,
        poller: &Poller,
    ) -> io::Result<()> {
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
        let repair = handover.descriptors.rest.as_mut().map(|rest| {
            let (ours, theirs) = socket::channel(OnExec::Close)?;
            rest.channel = theirs.0;
            io::Result::Ok((ours, theirs))
        });
        let repair: Option<(Fd, Fd)> = repair.transpose()?;
        let board = Board::create("dormouse-board")?;
        let reader = board.reader()?;
        handover.descriptors.slots = slots.fd().0;
        handover.descriptors.pending = pending.fd().0;
        handover.descriptors.orders = theirs.0;
        handover.descriptors.notes = notes.0;
        handover.descriptors.log_entries = (log_entries.fd().0, LOG_ENTRY_VERSION);
        handover.descriptors.log_lines = log_lines.0;
        let file = handover.write_packed(packed)?;
        let mut inherited = handover.descriptors.all();
        inherited.extend([file, reader]);
        let command = keeper::first_command(KnownFile::of(file)?, KnownFile::of(reader)?);
        let mut program = Program::this(command).with(Inherit::Only(inherited));
        program.environment = Some(child::environment());
        let keeper = program.start()?;
        // Main keeps only its end of the channel.
        let memory = [slots.fd(), pending.fd(), notes, log_entries.fd()];
        for fd in memory.into_iter().chain([theirs, log_lines, reader]) {
            fd.close();
        }
        if let Some((_, theirs)) = repair {
            theirs.close();
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
            repair_channel: repair.map(|(ours, _)| ours.0),
        };
        let mut pair = Pair::of(state, board, Life::Starts);
        pair.editions.held = Some(HeldFile::new(file)?);
        self.all.push(pair);
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
            if let Some(channel) = state.repair_channel {
                Fd(channel).set_on_exec(OnExec::Close)?;
            }
            let board = Board::adopt(Fd(state.board)).map_err(io::Error::other)?;
            all.push(Pair::of(state.clone(), board, Life::Serves));
        }
        Ok(Pairs { all })
    }

    /// The state for the next binary in this process.
    pub(crate) fn state(&self) -> Vec<PairState> {
        self.all.iter().map(Pair::state).collect()
    }

    /// The descriptors that the next binary in this process needs.
    pub(crate) fn fds(&self) -> Vec<Fd> {
        let fds = |pair: &Pair| [pair.orders, pair.board.fd()];
        let fds = self.all.iter().flat_map(fds);
        let fds = fds.chain(self.log_sources());
        fds.chain(self.repair_channels()).collect()
    }

    /// The repair process' ends of the channels to the workers.
    pub(crate) fn repair_channels(&self) -> Vec<Fd> {
        self.all
            .iter()
            .filter_map(|pair| pair.repair_channel)
            .collect()
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
        self.pair(worker).order(order);
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
        handover: Handover,
        packed: &Packed,
        listeners: &[Fd],
    ) -> io::Result<()> {
        self.pair_mut(worker)
            .give_edition(handover, packed, listeners)
    }

    /// Returns the next report of a worker or its keeper, with the sender's process id, and records what main
    /// must remember of it. In answers to [`Order::Reload`], the edition replaces the order's number. `None`: there is
    /// none, or it is invalid, at this time or from this sender.
    pub(crate) fn receive(
        &mut self,
        worker: usize,
        poller: &Poller,
    ) -> Option<(WorkerReport, Pid)> {
        let pair = self.pair_mut(worker);
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
        let editions = &self.pair(worker).editions;
        editions.current != edition && editions.given.is_empty()
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
        self.pair(worker).editions.current == edition
    }

    /// Whether all remaining workers follow this edition.
    pub(crate) fn have_edition(&self, edition: u64) -> bool {
        let has_it = |pair: &Pair| pair.editions.current == edition || pair.life.is_over();
        self.all.iter().all(has_it)
    }

    /// Whether all remaining workers answer this challenge, the last one that was opened.
    pub(crate) fn all_answer_challenge(&self, number: u64) -> bool {
        let shows_it = |pair: &Pair| pair.challenge == number || pair.life.is_over();
        self.all.iter().all(shows_it)
    }

    // ---- replacement ----

    /// Whether a worker gets a configuration only when it is quiet, because its sandbox does not allow what the
    /// configuration needs. Its handshakes end with the configuration that it has.
    pub(crate) fn holds_back(&mut self, worker: usize, wanted: Bounds) -> bool {
        let pair = self.pair_mut(worker);
        if pair.renewal == Renewal::None && wanted.exceeds(pair.bounds) {
            pair.renewal = Renewal::Quiesces;
            pair.order(&Order::Quiesce);
        }
        pair.renewal == Renewal::Quiesces
    }

    /// Handles a worker that has become quiet. Returns `true` if it now gets the configuration. A worker that has read an
    /// order to its predecessor continues.
    pub(crate) fn note_quiet(&mut self, worker: usize) -> bool {
        let pair = self.pair_mut(worker);
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
        let pair = self.pair_mut(worker);
        if pair.renewal == Renewal::Reloads && wanted.exceeds(pair.bounds) {
            pair.renewal = Renewal::Ends;
            pair.order(&Order::HandOver);
        } else {
            self.keep(worker);
        }
    }

    /// Lets a quiet worker continue that is not replaced.
    pub(crate) fn keep(&mut self, worker: usize) {
        let pair = self.pair_mut(worker);
        if pair.renewal == Renewal::Reloads {
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
        let pair = self.pair_mut(worker);
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
    pub(crate) fn keeper(&self, worker: usize) -> Pid {
        self.pair(worker).keeper
    }

    fn pair(&self, worker: usize) -> &Pair {
        let pair = self.all.get(worker);
        pair.expect("a worker has the number of its pair")
    }

    fn pair_mut(&mut self, worker: usize) -> &mut Pair {
        let pair = self.all.get_mut(worker);
        pair.expect("a worker has the number of its pair")
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
            repair_channel: None,
        };
        let all = vec![Pair::of(state, board, Life::Serves)];
        (Pairs { all }, ours, theirs)
    }
}

fn token(worker: usize) -> u64 {
    tokens::WORKERS + worker as u64
}
