//! Pairs of keeper and worker: starting them, hearing of them, noting their ends.

use super::error::{ServeError, system};
use super::{Supervisor, TOKEN_ORDERS};
use dormouse_dataplane::keeper::{self, BoardArgs};
use dormouse_handover::Handover;
use dormouse_handover::child;
use dormouse_handover::orders::{self, Order, Word};
use dormouse_handover::share::Share;
use dormouse_handover::slot::{SLOT_LAYOUT_VERSION, Slot};
use dormouse_reactor::pending::Pending;
use dormouse_reactor::poller::Interest;
use dormouse_reactor::process::{self, Board, Ended, Inherit, Pid, Program, Wait};
use dormouse_reactor::slab::Slab;
use dormouse_reactor::socket;
use dormouse_reactor::{Fd, OnExec};
use std::io;

/// A keeper and its worker.
pub(super) struct Pair {
    /// The keeper; nobody's number any more once it has ended.
    pub(super) pid: Pid,
    pub(super) born_ms: u64,
    /// How the keeper ended.
    pub(super) ended: Option<Ended>,
    /// Main's end of the channel to the worker.
    pub(super) orders: Fd,
    /// What the keeper is to do.
    pub(super) board: Board,
    pub(super) ready: bool,
    /// The edition of the configuration that its worker goes by.
    pub(super) edition: u64,
    /// The challenge that its worker shows, or showed last.
    pub(super) shows: u64,
    /// Its worker is gone for good.
    pub(super) is_over: bool,
    pub(super) share: Share,
}

impl Pair {
    /// Gives an order to the worker. One that can't be reached will be seen to be gone, or asks
    /// for what it missed when the next of them is ready.
    pub(super) fn order(&self, order: &Order) {
        if let Err(error) = orders::give(self.orders, order) {
            tracing::warn!(%error, keeper = self.pid.0, "a worker can't be given an order");
        }
    }
}

impl Supervisor {
    /// Makes the shared memory of a pair, and starts its keeper.
    pub(super) fn start_pair(&mut self, mut handover: Handover) -> io::Result<()> {
        let slots = Slab::<Slot>::create(
            "dormouse-slots",
            handover.share.connections_max,
            SLOT_LAYOUT_VERSION,
        )?;
        let pending = Pending::create(
            "dormouse-pending",
            handover.share.pending_bytes_max as usize,
        )?;
        let (ours, theirs) = socket::channel(OnExec::Close)?;
        let board = Board::create("dormouse-board")?;
        let reader = board.reader()?;
        let board_args = BoardArgs {
            fd: reader.0,
            inode: process::inode(reader)?,
        };
        handover.descriptors.slots = slots.fd().0;
        handover.descriptors.pending = pending.fd().0;
        handover.descriptors.orders = theirs.0;
        let told = handover.write()?;
        let mut inherited = handover.descriptors.all();
        inherited.extend([told, reader]);
        let command = keeper::first_command(told, board_args);
        let mut program = Program::this(command).with(Inherit::Only(inherited));
        program.environment = Some(child::environment());
        let keeper = program.start()?;
        // Main keeps no descriptor of the pair but its end of the channel.
        for fd in [slots.fd(), pending.fd(), theirs, told, reader] {
            fd.close();
        }
        let token = TOKEN_ORDERS + self.pairs.len() as u64;
        self.poller.add(ours, token, Interest::READ)?;
        self.pairs.push(Pair {
            pid: keeper,
            born_ms: process::boottime_ms(),
            ended: None,
            orders: ours,
            board,
            ready: false,
            edition: self.edition,
            shows: 0,
            is_over: false,
            share: handover.share.clone(),
        });
        Ok(())
    }

    /// A worker has something to say, or is gone for good.
    pub(super) fn on_worker(&mut self, index: usize) {
        let Some(pair) = self.pairs.get(index) else {
            return;
        };
        match orders::hear(pair.orders) {
            Ok(None) => {}
            Ok(Some(Word::Ready)) => self.on_ready(index),
            Ok(Some(Word::Reloaded(edition))) => self.on_reloaded(index, edition, Ok(())),
            Ok(Some(Word::NotReloaded(edition, why))) => {
                self.on_reloaded(index, edition, Err(why));
            }
            Ok(Some(Word::Shows(number))) => self.on_shown(index, number),
            Ok(Some(word)) => self.on_word_of_upgrade(index, word),
            Err(_) => {
                let _ = self.poller.remove(pair.orders);
                if let Some(pair) = self.pairs.get_mut(index) {
                    pair.is_over = true;
                }
            }
        }
    }

    /// A worker serves: the first one, or one that came after a crash, which is told what it can't
    /// know from its handover.
    fn on_ready(&mut self, index: usize) {
        if let Some(pair) = self.pairs.get_mut(index) {
            pair.ready = true;
        }
        let Some(pair) = self.pairs.get(index) else {
            return;
        };
        self.give_ticket_keys(pair);
        self.give_addresses(pair);
        if pair.edition != self.edition {
            self.give_configuration(index);
        }
        if let Some(order) = self.rest_of_drain() {
            pair.order(&order);
        }
        if self.stopping {
            pair.order(&Order::Stop);
        }
        self.give_challenge_again(index);
        if !self.announced && self.pairs.iter().all(|pair| pair.ready) {
            self.announced = true;
            tracing::info!(
                workers = self.pairs.len(),
                pid = std::process::id(),
                "ready"
            );
            self.notify.ready(self.pairs.len());
        }
    }

    /// Takes note of all processes that have ended.
    pub(super) fn reap(&mut self) -> Result<(), ServeError> {
        while let Some((pid, ended)) =
            process::wait(Wait::AnyEnded).map_err(system("wait for processes"))?
        {
            if self.is_of_upgrade(pid, ended) {
                continue;
            }
            if self.is_errand(pid, ended)
                || self.is_ticket_store(pid, ended)
                || self.is_scout(pid, ended)
            {
                continue;
            }
            if self.is_control(pid) {
                self.on_control_ended(ended);
                continue;
            }
            let is_it = |pair: &&mut Pair| pair.pid == pid && pair.ended.is_none();
            let Some(pair) = self.pairs.iter_mut().find(is_it) else {
                // A former keeper leaves its last worker to us, which ended as it should.
                if ended == Ended::Exited(i32::from(keeper::EXIT_HANDED_OVER)) {
                    continue;
                }
                tracing::warn!(pid = pid.0, "an orphaned worker ended: {ended}");
                continue;
            };
            pair.ended = Some(ended);
            if ended == Ended::Exited(i32::from(keeper::EXIT_CANNOT_BEGIN)) && !pair.ready {
                self.stop();
                let what = "a worker could not begin: see above".to_owned();
                return Err(ServeError::Workers(what));
            }
            if !self.stopping {
                tracing::error!(
                    pid = pid.0,
                    "a keeper is gone ({ended}); its worker serves on, \
                    but would not be started again"
                );
            }
            self.fail_upgrade("a keeper ended meanwhile");
        }
        Ok(())
    }
}
