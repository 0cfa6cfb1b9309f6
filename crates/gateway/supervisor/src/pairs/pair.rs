//! One keeper and its worker, as main knows them.

use dormouse_handover::child::Bounds;
use dormouse_handover::orders::{self, Order, WorkerReport};
use dormouse_handover::share::Share;
use dormouse_handover::stored::Packed;
use dormouse_handover::{Descriptors, Handover, orphaned_ms_max};
use dormouse_reactor::memory::FileIdentity;
use dormouse_reactor::process::{self, Board, Ended, FILES_MAX, Pid};
use dormouse_reactor::signal::Signal;
use dormouse_reactor::socket::DESCRIPTORS_MAX;
use dormouse_reactor::{Fd, OnExec};
use serde::{Deserialize, Serialize};
use std::io;

/// Maximum number of unanswered editions. The keeper keeps the handovers of these, and of as many that a
/// previous worker received.
const GIVEN_MAX: usize = FILES_MAX / 2;

/// A keeper and its worker.
pub(super) struct Pair {
    /// The keeper; a stale id after its exit.
    pub(super) keeper: Pid,
    /// The old binary's keeper, until it exits.
    pub(super) former: Option<Pid>,
    pub(super) born_ms: u64,
    /// How the keeper ended.
    pub(super) ended: Option<Ended>,
    /// The worker that was killed last for an invalid message.
    distrusted: Option<Pid>,
    /// The current worker, as far as it has reported.
    pub(super) worker: Reported,
    pub(super) life: Life,
    /// Main's end of the channel to the worker.
    pub(super) orders: Fd,
    /// Main's end of the connection log's socket pair. [`Fd::NONE`]: the pair was started by an older binary
    /// without connection log.
    pub(super) log_source: Fd,
    /// The repair process' end of the channel to the worker, if connections may rest.
    pub(super) repair_channel: Option<Fd>,
    /// Board with the keeper's commands.
    pub(super) board: Board,
    /// The pair's descriptor numbers, as at its start.
    pub(super) descriptors: Descriptors,
    pub(super) share: Share,
    pub(super) editions: Editions,
    /// The challenge that the worker opened last.
    pub(super) challenge: u64,
    /// Limits of the worker's sandbox.
    pub(super) bounds: Bounds,
    pub(super) renewal: Renewal,
}

/// The last report of a pair's workers about themselves. A successor reports in its predecessor's place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reported {
    /// This main has none yet.
    Nothing,
    /// This worker has become ready.
    Ready(Pid),
    /// This worker waits for certificates that it can use.
    Unusable(Pid),
}

impl Reported {
    pub(super) fn by(self) -> Option<Pid> {
        match self {
            Reported::Nothing => None,
            Reported::Ready(worker) | Reported::Unusable(worker) => Some(worker),
        }
    }
}

/// The life of a pair's workers, one after the other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
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
    pub(super) fn has_served(self) -> bool {
        match self {
            Life::Starts => false,
            Life::Serves => true,
            Life::Over { had_served } | Life::Forgotten { had_served } => had_served,
        }
    }

    /// The life after the last worker's end.
    pub(super) fn ended(self) -> Life {
        match self {
            Life::Starts => Life::Over { had_served: false },
            Life::Serves => Life::Over { had_served: true },
            over => over,
        }
    }

    pub(super) fn is_over(self) -> bool {
        matches!(self, Life::Over { .. } | Life::Forgotten { .. })
    }
}

/// The editions of a worker.
pub(super) struct Editions {
    /// The one that the worker follows.
    pub(super) current: u64,
    /// The sandbox limits of a worker that starts with that edition.
    pub(super) bounds: Bounds,
    /// Those sent to the worker that it has not answered.
    pub(super) given: Vec<Given>,
    /// The number of the last order with an edition.
    pub(super) last_given: u64,
    /// The file that the worker follows, or that was the last one sent to a worker. Main holds it, so that a worker that puts
    /// another one in its place does not wait until the kernel has released a file with thousands of certificates.
    pub(super) held: Option<HeldFile>,
}

/// An open file of a handover, closed on drop.
pub(super) struct HeldFile(Fd);

impl HeldFile {
    /// Takes a file, which no program that main becomes inherits.
    pub(super) fn new(file: Fd) -> io::Result<HeldFile> {
        file.set_on_exec(OnExec::Close)
            .inspect_err(|_| file.close())?;
        Ok(HeldFile(file))
    }
}

impl Drop for HeldFile {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// An edition sent to a worker.
pub(super) struct Given {
    /// The number of the order.
    number: u64,
    edition: u64,
    /// Its sandbox limits.
    bounds: Bounds,
    /// The file with its handover.
    identity: FileIdentity,
    file: HeldFile,
    /// For how long keeper and worker may outlive main.
    orphaned_ms_max: u64,
}

/// The replacement of a worker by one with another sandbox.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Renewal {
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
    pub(super) keeper: i32,
    pub(super) former: Option<i32>,
    pub(super) born_ms: u64,
    pub(super) orders: i32,
    pub(super) board: i32,
    pub(super) edition: u64,
    pub(super) descriptors: Descriptors,
    pub(super) bounds: Bounds,
    pub(super) share: Share,
    pub(super) log_source: i32,
    #[serde(default)]
    pub(super) repair_channel: Option<i32>,
}

impl Pair {
    /// A pair in this state.
    pub(super) fn of(state: PairState, board: Board, life: Life) -> Pair {
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
            repair_channel: state.repair_channel.map(Fd),
            board,
            descriptors: state.descriptors,
            share: state.share,
            editions: Editions {
                current: state.edition,
                bounds: state.bounds,
                given: Vec::new(),
                last_given: 0,
                held: None,
            },
            challenge: 0,
            bounds: state.bounds,
            renewal: Renewal::None,
        }
    }

    /// The state for the next binary in this process.
    pub(super) fn state(&self) -> PairState {
        PairState {
            keeper: self.keeper.0,
            former: self.former.map(|keeper| keeper.0),
            born_ms: self.born_ms,
            orders: self.orders.0,
            board: self.board.fd().0,
            edition: self.editions.current,
            descriptors: self.descriptors.clone(),
            // The next binary starts the next worker.
            bounds: self.editions.bounds,
            share: self.share.clone(),
            log_source: self.log_source.0,
            repair_channel: self.repair_channel.map(|fd| fd.0),
        }
    }

    /// Sends the worker a new handover, with the listeners of its edition. A worker with too many unanswered editions gets it
    /// after it has answered.
    pub(super) fn give_edition(
        &mut self,
        mut handover: Handover,
        packed: &Packed,
        listeners: &[Fd],
    ) -> io::Result<()> {
        if self.editions.given.len() >= GIVEN_MAX {
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
            ..self.descriptors.clone()
        };
        let file = HeldFile::new(handover.write_packed(packed)?)?;
        // Before the worker has the file, because its keeper may find it there at any time after.
        let identity = self.board.vouch_for(file.0)?;
        let number = self.editions.last_given + 1;
        let reload = Order::Reload {
            handover: file.0,
            number,
        };
        let ahead = listeners.chunks(DESCRIPTORS_MAX);
        let mut orders = ahead
            .map(|some| Order::Listeners(some.to_vec()))
            .chain([reload]);
        let sent = orders.try_for_each(|order| self.try_order(&order));
        // The list is short, and must keep the file that the worker follows.
        sent.inspect_err(|_| self.board.withdraw(identity))?;
        self.editions.last_given = number;
        self.editions.given.push(Given {
            number,
            edition: handover.edition,
            bounds: Bounds::of(&handover.config),
            identity,
            file,
            orphaned_ms_max: orphaned_ms_max(&handover.config.timeouts),
        });
        Ok(())
    }

    /// Kills the sender of an invalid message. The keeper starts the next worker, which has the same channel.
    pub(super) fn distrust(&mut self, worker: usize, sender: Pid) {
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
    pub(super) fn note_report(
        &mut self,
        report: WorkerReport,
        sender: Pid,
    ) -> Option<WorkerReport> {
        let is_valid = match report {
            WorkerReport::Ready => self.note_begun(Reported::Ready(sender)),
            WorkerReport::Unusable => self.note_begun(Reported::Unusable(sender)),
            WorkerReport::Reloaded(number) => {
                let given = self.take_given(number)?;
                self.editions.current = given.edition;
                self.editions.bounds = given.bounds;
                self.editions.held = Some(given.file);
                self.board.set_orphaned_max(given.orphaned_ms_max);
                return Some(WorkerReport::Reloaded(given.edition));
            }
            WorkerReport::NotReloaded(number, why) => {
                let given = self.take_given(number)?;
                self.board.withdraw(given.identity);
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
            | WorkerReport::Page(..)
            | WorkerReport::Sign(..)
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
        let Editions {
            given,
            held,
            bounds: of_edition,
            ..
        } = &mut self.editions;
        let mut all = Vec::new();
        for given in given.drain(..) {
            all.push(given.bounds);
            *held = Some(given.file);
        }
        all.push(*of_edition);
        let narrowest = all.into_iter().min_by_key(|bounds| bounds.unix);
        self.bounds = narrowest.unwrap_or(self.editions.bounds);
        self.renewal = Renewal::None;
    }

    /// Removes an edition from those that were sent. `None`: no order with this number waits for an answer.
    fn take_given(&mut self, number: u64) -> Option<Given> {
        let given = &mut self.editions.given;
        let place = given.iter().position(|given| given.number == number)?;
        Some(given.remove(place))
    }

    pub(super) fn order(&self, order: &Order) {
        if let Err(error) = self.try_order(order) {
            tracing::warn!(%error, keeper = self.keeper.0, "command to a worker failed");
        }
    }

    fn try_order(&self, order: &Order) -> io::Result<()> {
        orders::send_order(self.orders, order)
    }
}
