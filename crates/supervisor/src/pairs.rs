//! Pairs of keeper and worker: started by main, given orders, heard, and noted when they end.

use crate::tokens;
use dormouse_dataplane::keeper::{self, BoardArgs};
use dormouse_handover::Handover;
use dormouse_handover::child;
use dormouse_handover::control;
use dormouse_handover::log_entries::{LOG_ENTRY_VERSION, LogEntries};
use dormouse_handover::orders::{self, Order, WorkerReport};
use dormouse_handover::share::Share;
use dormouse_handover::slot::{SLOT_LAYOUT_VERSION, Slot};
use dormouse_handover::upgrade::Command;
use dormouse_reactor::pending::Pending;
use dormouse_reactor::poller::{Interest, Poller};
use dormouse_reactor::process::{self, Board, Ended, Inherit, Pid, Program};
use dormouse_reactor::signal::Signal;
use dormouse_reactor::slab::Slab;
use dormouse_reactor::socket;
use dormouse_reactor::{Fd, OnExec};
use serde::{Deserialize, Serialize};
use std::io;

/// A keeper and its worker.
struct Pair {
    /// The keeper; a stale number once it has ended.
    keeper: Pid,
    born_ms: u64,
    /// How the keeper ended.
    ended: Option<Ended>,
    /// Main's end of the channel to the worker.
    orders: Fd,
    /// Where lines of the connection log come from; [`Fd::NONE`]: another binary, which knew of none,
    /// has started the pair.
    log_source: Fd,
    /// The keeper's orders.
    board: Board,
    ready: bool,
    /// The edition of the configuration that the worker follows.
    edition: u64,
    /// The challenge that the worker shows, or showed last.
    challenge: u64,
    /// The worker is gone for good.
    is_over: bool,
    share: Share,
}

/// A pair, as one binary leaves it to the next.
#[derive(Serialize, Deserialize)]
pub(crate) struct PairState {
    keeper: i32,
    born_ms: u64,
    orders: i32,
    board: i32,
    edition: u64,
    share: Share,
    #[serde(default)]
    log_source: Option<i32>,
}

/// All pairs; a worker is named by its place among them.
#[derive(Default)]
pub(crate) struct Pairs {
    all: Vec<Pair>,
}

impl Pairs {
    /// Makes the shared memory of a pair, and starts its keeper with this handover.
    pub(crate) fn start(
        &mut self,
        mut handover: Handover,
        edition: u64,
        poller: &Poller,
    ) -> io::Result<()> {
        let share = handover.share.clone();
        let slots =
            Slab::<Slot>::create("dormouse-slots", share.connections_max, SLOT_LAYOUT_VERSION)?;
        let pending = Pending::create("dormouse-pending", share.pending_bytes_max as usize)?;
        let (ours, theirs) = socket::channel(OnExec::Close)?;
        // Neither takes memory as long as there is no connection log.
        let log_entries = LogEntries::create(share.connections_max)?;
        let (log_source, log_lines) = socket::pair(OnExec::Close)?;
        let board = Board::create("dormouse-board")?;
        let reader = board.reader()?;
        let board_args = BoardArgs {
            fd: reader.0,
            inode: process::inode(reader)?,
        };
        handover.descriptors.slots = slots.fd().0;
        handover.descriptors.pending = pending.fd().0;
        handover.descriptors.orders = theirs.0;
        handover.descriptors.log_entries = Some((log_entries.fd().0, LOG_ENTRY_VERSION));
        handover.descriptors.log_lines = Some(log_lines.0);
        let file = handover.write()?;
        let mut inherited = handover.descriptors.all();
        inherited.extend([file, reader]);
        let command = keeper::first_command(file, board_args);
        let mut program = Program::this(command).with(Inherit::Only(inherited));
        program.environment = Some(child::environment());
        let keeper = program.start()?;
        // Main keeps no descriptor of the pair but its end of the channel.
        let memory = [slots.fd(), pending.fd(), log_entries.fd()];
        for fd in memory.into_iter().chain([theirs, log_lines, file, reader]) {
            fd.close();
        }
        poller.add(ours, token(self.all.len()), Interest::READ)?;
        let pair = Pair {
            born_ms: process::boottime_ms(),
            ready: false,
            log_source,
            ..Pair::new(keeper, ours, board, edition, share)
        };
        self.all.push(pair);
        Ok(())
    }

    /// The pairs that another binary in this process has started.
    pub(crate) fn adopt(states: &[PairState], poller: &Poller) -> io::Result<Pairs> {
        let mut all = Vec::with_capacity(states.len());
        for (worker, state) in states.iter().enumerate() {
            let orders = Fd(state.orders);
            orders.set_on_exec(OnExec::Close)?;
            poller.add(orders, token(worker), Interest::READ)?;
            let log_source = state.log_source.map_or(Fd::NONE, Fd);
            if log_source != Fd::NONE {
                log_source.set_on_exec(OnExec::Close)?;
            }
            let board = Board::adopt(Fd(state.board)).map_err(io::Error::other)?;
            let (keeper, share) = (Pid(state.keeper), state.share.clone());
            all.push(Pair {
                born_ms: state.born_ms,
                ready: true,
                log_source,
                ..Pair::new(keeper, orders, board, state.edition, share)
            });
        }
        Ok(Pairs { all })
    }

    /// For the next binary in this process.
    pub(crate) fn state(&self) -> Vec<PairState> {
        let state = |pair: &Pair| PairState {
            keeper: pair.keeper.0,
            born_ms: pair.born_ms,
            orders: pair.orders.0,
            board: pair.board.fd().0,
            edition: pair.edition,
            share: pair.share.clone(),
            log_source: Some(pair.log_source.0).filter(|_| pair.log_source != Fd::NONE),
        };
        self.all.iter().map(state).collect()
    }

    /// The descriptors that the next binary in this process needs.
    pub(crate) fn fds(&self) -> Vec<Fd> {
        let fds = |pair: &Pair| [pair.orders, pair.board.fd()];
        let fds = self.all.iter().flat_map(fds);
        fds.chain(self.log_sources()).collect()
    }

    /// The sockets that lines of the connection log come from.
    pub(crate) fn log_sources(&self) -> Vec<Fd> {
        let sources = self.all.iter().map(|pair| pair.log_source);
        sources.filter(|&fd| fd != Fd::NONE).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// A worker's share of the limits, if it has one already.
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

    // ---- orders and answers ----

    /// Gives an order to a worker. A worker that can't be reached is found to be gone later, or gets
    /// what it missed when its successor is ready.
    pub(crate) fn order(&self, worker: usize, order: &Order) {
        if let Some(pair) = self.all.get(worker) {
            pair.order(order);
        }
    }

    /// Gives an order to all workers.
    pub(crate) fn order_all(&self, order: &Order) {
        self.all.iter().for_each(|pair| pair.order(order));
    }

    /// The next word of a worker. What main has to remember of it is noted here.
    pub(crate) fn receive(&mut self, worker: usize, poller: &Poller) -> Option<WorkerReport> {
        let pair = self.all.get_mut(worker)?;
        let report = orders::receive_report(pair.orders).unwrap_or_else(|_| {
            let _ = poller.remove(pair.orders);
            pair.is_over = true;
            None
        })?;
        match report {
            WorkerReport::Ready => pair.ready = true,
            WorkerReport::Reloaded(edition) => pair.edition = edition,
            WorkerReport::ChallengeShown(number) => pair.challenge = number,
            _ => {}
        }
        Some(report)
    }

    /// Whether all workers have begun.
    pub(crate) fn are_ready(&self) -> bool {
        self.all.iter().all(|pair| pair.ready)
    }

    /// Whether all workers have begun, and all keepers live.
    pub(crate) fn are_whole(&self) -> bool {
        let is_whole = |pair: &Pair| pair.ready && pair.ended.is_none();
        self.all.iter().all(is_whole)
    }

    /// Whether a worker follows this edition of the configuration.
    pub(crate) fn has_edition(&self, worker: usize, edition: u64) -> bool {
        let pair = self.all.get(worker);
        pair.is_some_and(|pair| pair.edition == edition)
    }

    /// Whether all workers that are left follow this edition.
    pub(crate) fn have_edition(&self, edition: u64) -> bool {
        let has_it = |pair: &Pair| pair.edition == edition || pair.is_over;
        self.all.iter().all(has_it)
    }

    /// Whether all workers that are left show this challenge.
    pub(crate) fn show_challenge(&self, number: u64) -> bool {
        let shows_it = |pair: &Pair| pair.challenge == number || pair.is_over;
        self.all.iter().all(shows_it)
    }

    // ---- keepers ----

    /// Notes that a keeper has ended. Returns whether its worker had begun; `None`: it was no keeper.
    pub(crate) fn note_end(&mut self, pid: Pid, ended: Ended) -> Option<bool> {
        let is_it = |pair: &&mut Pair| pair.keeper == pid && pair.ended.is_none();
        let pair = self.all.iter_mut().find(is_it)?;
        pair.ended = Some(ended);
        Some(pair.ready)
    }

    /// Whether all keepers have ended.
    pub(crate) fn are_over(&self) -> bool {
        self.all.iter().all(|pair| pair.ended.is_some())
    }

    /// Writes a command with its text on the boards of all keepers.
    pub(crate) fn post(&self, command: Command, text: &str) -> io::Result<()> {
        let mut pairs = self.all.iter();
        pairs.try_for_each(|pair| pair.board.post(command as u32, text).map(drop))
    }

    /// Writes a command on the boards, and wakes the keepers.
    pub(crate) fn command(&self, command: Command) {
        for pair in &self.all {
            // A post without a text always fits.
            let _ = pair.board.post(command as u32, "");
        }
        for pair in self.all.iter().filter(|pair| pair.ended.is_none()) {
            let _ = process::send_signal(pair.keeper, Signal::User2);
        }
    }

    /// Goes over to the keepers of the new binary. Returns the former ones, which will end.
    pub(crate) fn replace_keepers(&mut self, keepers: &[Pid]) -> Vec<Pid> {
        let pairs = self.all.iter_mut().zip(keepers);
        let replace = |(pair, &keeper): (&mut Pair, &Pid)| {
            pair.born_ms = process::boottime_ms();
            std::mem::replace(&mut pair.keeper, keeper)
        };
        pairs.map(replace).collect()
    }

    /// A pair stays with the former binary's keeper.
    pub(crate) fn set_keeper(&mut self, worker: usize, keeper: Pid) {
        if let Some(pair) = self.all.get_mut(worker) {
            pair.keeper = keeper;
        }
    }
}

impl Pair {
    fn new(keeper: Pid, orders: Fd, board: Board, edition: u64, share: Share) -> Pair {
        Pair {
            keeper,
            born_ms: 0,
            ended: None,
            orders,
            log_source: Fd::NONE,
            board,
            ready: false,
            edition,
            challenge: 0,
            is_over: false,
            share,
        }
    }

    fn order(&self, order: &Order) {
        if let Err(error) = orders::send_order(self.orders, order) {
            tracing::warn!(%error, keeper = self.keeper.0, "a worker can't be given an order");
        }
    }
}

fn token(worker: usize) -> u64 {
    tokens::WORKERS + worker as u64
}
