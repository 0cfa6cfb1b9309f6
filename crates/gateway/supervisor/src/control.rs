//! Main's side of the control process: starts and restarts it, and sends it the state.

use crate::helper_process::{Helper, HelperProcess};
use crate::reported::Reported;
use crate::shared_memory::SharedMemory;
use crate::sockets::control_addresses::ControlAddresses;
use crate::tokens;
use dormouse_config::Config;
use dormouse_handover::connections::Page;
use dormouse_handover::control::{
    AdminResult, ControlArguments, ForwardedOrder, Listing, Report, State,
};
use dormouse_handover::message;
use dormouse_helpers::helper::Privileges;
use dormouse_reactor::Fd;
use dormouse_reactor::poller::Poller;
use dormouse_reactor::process::{self, Ended, Pid};
use dormouse_reactor::signal::Signal;
use dormouse_reactor::socket::Attempt;
use serde::{Deserialize, Serialize};
use std::io;
use std::rc::Rc;

/// Pause before a message that did not fit the channel is sent again.
const RETRY_MS: u64 = 100;
/// Maximum number of results that wait for room in the channel; more than control has clients. A compromised control
/// process could give orders without reading the results.
const RESULTS_MAX: usize = 64;

/// A control process that waits for a new binary to run in main's place.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct FormerControl {
    pid: i32,
    channel: i32,
}

impl FormerControl {
    /// Main's end of its channel, which the new binary inherits.
    pub(crate) fn channel(self) -> Fd {
        Fd(self.channel)
    }

    /// Sends it a message.
    fn tell(self, report: &Report) {
        if let Err(error) = message::send(self.channel(), report) {
            tracing::debug!(%error, "message could not be sent to the former control process");
        }
    }
}

/// The control process and its channel.
pub(crate) struct ControlProcess {
    addresses: ControlAddresses,
    privileges: Privileges,
    helper: Helper,
    /// The process before, while it waits for a new binary to run.
    former: Option<FormerControl>,
    restarts: u32,
    retry_at_ms: Option<u64>,
    /// The state sent last.
    sent: Option<State>,
    /// The edition whose lists were sent last, and the parts that are still to be sent, in reverse order.
    listed: Option<Rc<Reported>>,
    listings: Vec<Listing>,
    /// Results of orders, to be sent.
    results: Vec<Report>,
}

impl ControlProcess {
    /// Starts the process.
    pub(crate) fn start(
        addresses: ControlAddresses,
        config: &Config,
        memory: &SharedMemory,
        poller: &Poller,
    ) -> io::Result<ControlProcess> {
        let mut control = ControlProcess::resume(addresses, config);
        let started = control.start_process(memory, poller);
        control.helper.try_start(|| started)?;
        Ok(control)
    }

    /// A process that the next turn starts: after an upgrade, when there may be no room for a process before main has
    /// reaped those of the old binary.
    pub(crate) fn resume(addresses: ControlAddresses, config: &Config) -> ControlProcess {
        let mut helper = Helper::new("control");
        helper.set_due();
        ControlProcess {
            addresses,
            privileges: Privileges::nobody(config),
            helper,
            former: None,
            restarts: 0,
            retry_at_ms: None,
            sent: None,
            listed: None,
            listings: Vec::new(),
            results: Vec::new(),
        }
    }

    fn start_process(&self, memory: &SharedMemory, poller: &Poller) -> io::Result<HelperProcess> {
        let readers = memory.readers()?;
        let mut inherited = self.addresses.fds();
        inherited.extend(readers.fds());
        let (privileges, place) = (&self.privileges, (poller, tokens::CONTROL));
        let started =
            HelperProcess::start("control", privileges, inherited, place, |_, channel| {
                ControlArguments {
                    admin: self.addresses.admin().map(|fd| fd.0),
                    metrics: self.addresses.metrics.map(|fd| fd.0),
                    metrics_is_loopback: self.addresses.metrics_is_loopback,
                    owner: process::user_id(),
                    channel: channel.0,
                    counters: readers.counters.0,
                    backends: readers.backends.marks.0,
                    roster: readers.backends.roster.0,
                    traffic: readers.traffic.0,
                    workers: memory.counters.workers() as u32,
                    restarts: self.restarts,
                }
            });
        readers.close();
        started
    }

    /// Opens the admin socket again if its file was removed or replaced. Then another process starts, as after
    /// [`ControlProcess::end`].
    pub(crate) fn recover_admin(&mut self, poller: &Poller) -> Option<Pid> {
        self.addresses.recover_admin().then(|| self.end(poller))?
    }

    /// Where the process listens.
    pub(crate) fn addresses(&self) -> &ControlAddresses {
        &self.addresses
    }

    /// Time of the next action.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        let times = [self.helper.next_deadline_ms(), self.retry_at_ms];
        times.into_iter().flatten().min()
    }

    /// Handles the exit of a process. Returns `false` if it was not the control process.
    pub(crate) fn note_end(&mut self, pid: Pid, ended: Ended, poller: &Poller) -> bool {
        let is_own = self.helper.note_death(pid, ended, poller);
        self.restarts += u32::from(is_own);
        is_own
    }

    /// Restarts the process if a start is due, and sends a changed state. Called once per turn.
    pub(crate) fn attend(
        &mut self,
        state: State,
        reported: &Rc<Reported>,
        memory: &SharedMemory,
        poller: &Poller,
    ) {
        let now_ms = process::boottime_ms();
        self.retry_at_ms.take_if(|at_ms| *at_ms <= now_ms);
        if self.helper.take_due() {
            let started = self.start_process(memory, poller);
            self.helper.start(|| started);
            (self.sent, self.listed) = (None, None);
        }
        let is_listed = |listed: &Rc<Reported>| Rc::ptr_eq(listed, reported);
        if !self.listed.as_ref().is_some_and(is_listed) {
            self.listings = Listing::parts(&reported.routes, &reported.backends);
            self.listed = Some(Rc::clone(reported));
        }
        if self.send(state) == Attempt::WouldBlock {
            self.retry_at_ms = Some(now_ms + RETRY_MS);
        }
    }

    /// Sends the state if it has changed, and all results. `WouldBlock`: the channel is full.
    fn send(&mut self, state: State) -> Attempt<()> {
        let Some(process) = self.helper.process() else {
            // The clients that waited for these results lost their connections with the process.
            self.results.clear();
            return Attempt::Done(());
        };
        if self.sent.as_ref() != Some(&state) {
            let mut fitting = Box::new(state.clone());
            fitting.fit();
            let report = Report::State(fitting);
            match message::send(process.channel, &report) {
                Ok(Attempt::Done(())) => self.sent = Some(state),
                Ok(Attempt::WouldBlock) => return Attempt::WouldBlock,
                Err(error) => tracing::debug!(%error, "state could not be sent to control"),
            }
        }
        while let Some(part) = self.listings.pop() {
            let report = Report::Listing(part);
            match message::send(process.channel, &report) {
                Ok(Attempt::Done(())) => {}
                Ok(Attempt::WouldBlock) => {
                    if let Report::Listing(part) = report {
                        self.listings.push(part);
                    }
                    return Attempt::WouldBlock;
                }
                Err(error) => tracing::debug!(%error, "lists could not be sent to control"),
            }
        }
        while let Some(result) = self.results.first() {
            match message::send(process.channel, result) {
                Ok(Attempt::WouldBlock) => return Attempt::WouldBlock,
                _ => drop(self.results.remove(0)),
            }
        }
        Attempt::Done(())
    }

    /// The next order that control forwards.
    pub(crate) fn receive(&self, poller: &Poller) -> Option<ForwardedOrder> {
        self.helper.receive(poller)
    }

    /// Queues the result of an order, to be sent at the end of the turn.
    pub(crate) fn answer(&mut self, id: u64, result: Result<String, String>) {
        self.queue(Report::Result(AdminResult {
            id,
            done: result.is_ok(),
            words: result.unwrap_or_else(|why| why),
        }));
    }

    /// As [`ControlProcess::answer`], for a page of connections.
    pub(crate) fn answer_page(&mut self, id: u64, page: Page) {
        self.queue(Report::Page(id, Box::new(page)));
    }

    fn queue(&mut self, result: Report) {
        if self.results.len() == RESULTS_MAX {
            self.results.remove(0);
        }
        self.results.push(result);
    }

    /// Ends the process, which first answers its clients. Returns its id, for the caller to reap. The next turn
    /// starts another one.
    pub(crate) fn end(&mut self, poller: &Poller) -> Option<Pid> {
        let process = self.leave(&Report::End)?;
        Some(process.close(poller))
    }

    /// Has the process wait until a new binary runs. `once_running` is the result of the upgrade, for its client.
    /// Returns its id, for the caller to reap. The next turn starts another one.
    pub(crate) fn end_once_replaced(
        &mut self,
        once_running: Option<AdminResult>,
        poller: &Poller,
    ) -> Option<Pid> {
        let HelperProcess { pid, channel } = self.leave(&Report::Replacing { once_running })?;
        let _ = poller.remove(channel);
        self.former = Some(FormerControl {
            pid: pid.0,
            channel: channel.0,
        });
        Some(pid)
    }

    /// Sends the process its last message, and leaves it.
    fn leave(&mut self, last: &Report) -> Option<HelperProcess> {
        let process = self.helper.release()?;
        if !matches!(message::send(process.channel, last), Ok(Attempt::Done(()))) {
            // The closed channel alone would mean that main has died.
            let _ = process::send_signal(process.pid, Signal::Kill);
        }
        Some(process)
    }

    /// The process that waits for a new binary to run.
    pub(crate) fn former(&self) -> Option<FormerControl> {
        self.former
    }

    /// Tells the client of an upgrade that main could not execute the new binary.
    pub(crate) fn not_replaced(&mut self, result: Option<AdminResult>) {
        if let Some(former) = self.former {
            if let Some(result) = result {
                former.tell(&Report::Result(result));
            }
            former.tell(&Report::End);
        }
    }

    /// Takes over the process of the old binary, and tells it that this one runs.
    pub(crate) fn replaced(&mut self, former: FormerControl) {
        former.tell(&Report::Replaced);
        self.former = Some(former);
    }

    /// Forgets the former process, which has exited. Its channel was open until then, because a closed one would mean
    /// that main has died.
    pub(crate) fn forget_former(&mut self, pid: Pid) {
        if let Some(former) = self.former.take_if(|former| former.pid == pid.0) {
            former.channel().close();
        }
    }
}
