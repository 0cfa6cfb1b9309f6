//! Main's side of deep rest: main creates the steering of packets, the records and the raw sockets at the start, holds
//! them for all processes and for the next binary, and starts the repair process again whenever it dies.

use crate::error::{ServeError, system};
use crate::helper_process::{Helper, HelperProcess};
use crate::tokens;
use dormouse_config::{Config, Plan};
use dormouse_handover::RestDescriptors;
use dormouse_handover::share::Share;
use dormouse_helpers::helper::Privileges;
use dormouse_helpers::tcp_repair::{self, RepairArguments, RepairParts, TrialPorts, try_cycles};
use dormouse_reactor::poller::Poller;
use dormouse_reactor::process::{Ended, Pid};
use dormouse_reactor::socket::{self, Keepalive};
use dormouse_reactor::steering::{Access, Steering, SteeringParts};
use dormouse_reactor::{Fd, OnExec};
use dormouse_rest::Records;
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Duration;

/// Sides of a connection, each of which has a record.
const SIDES: u32 = 2;

/// In place of a time without an end.
const NEVER_S: u32 = u32::MAX;

/// Everything that connections in deep rest need of main.
pub(crate) struct DeepRest {
    steering: Steering,
    /// The memory file with the records, and a descriptor of it that cannot write, for workers.
    records: [Fd; 2],
    raw: [Fd; 2],
    workers: u32,
    records_per_worker: u32,
}

/// What the next binary in this process needs.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct DeepRestState {
    table: i32,
    ring: i32,
    mute: i32,
    buckets: u32,
    key: [u64; 2],
    counters: i32,
    sinks: Vec<i32>,
    link: i32,
    records: [i32; 2],
    raw: [i32; 2],
    workers: u32,
    records_per_worker: u32,
}

impl DeepRest {
    /// Creates everything, while this process still may, if connections of a route may rest.
    pub(crate) fn create(config: &Config, plan: &Plan) -> Result<Option<DeepRest>, ServeError> {
        if !config.rests() {
            return Ok(None);
        }
        try_cycles(trial_ports(config)).map_err(|error| ServeError::Rest(error.to_string()))?;
        let workers = plan.workers;
        let shares = (0..workers).map(|worker| Share::of(worker, plan).connections_max);
        let records_per_worker = SIDES * shares.max().unwrap_or(1);
        let count = workers * records_per_worker;
        let steering = Steering::create(count).map_err(io::Error::other);
        let steering = steering.map_err(system("set up the steering of packets (rest_after)"))?;
        let records = Records::create(count).and_then(|records| {
            let reader = records.reader()?;
            // Only the repair process maps it.
            Ok([records.unmapped(), reader])
        });
        let raw = socket::raw(false).and_then(|four| Ok([four, socket::raw(true)?]));
        Ok(Some(DeepRest {
            steering,
            records: records.map_err(system("create the records of resting connections"))?,
            raw: raw.map_err(system("open a raw socket (rest_after)"))?,
            workers,
            records_per_worker,
        }))
    }

    /// Takes up what another binary in this process has created.
    pub(crate) fn adopt(state: &DeepRestState) -> io::Result<DeepRest> {
        let rest = DeepRest {
            steering: Steering::adopt(SteeringParts {
                access: Access {
                    table: Fd(state.table),
                    ring: Fd(state.ring),
                    mute: Fd(state.mute),
                    buckets: state.buckets,
                    key: state.key,
                },
                counters: Fd(state.counters),
                sinks: state.sinks.iter().copied().map(Fd).collect(),
                link: Fd(state.link),
            })?,
            records: state.records.map(Fd),
            raw: state.raw.map(Fd),
            workers: state.workers,
            records_per_worker: state.records_per_worker,
        };
        for fd in rest.fds() {
            fd.set_on_exec(OnExec::Close)?;
        }
        Ok(rest)
    }

    pub(crate) fn state(&self) -> DeepRestState {
        let SteeringParts {
            access,
            counters,
            sinks,
            link,
        } = self.steering.parts();
        DeepRestState {
            table: access.table.0,
            ring: access.ring.0,
            mute: access.mute.0,
            buckets: access.buckets,
            key: access.key,
            counters: counters.0,
            sinks: sinks.iter().map(|fd| fd.0).collect(),
            link: link.0,
            records: self.records.map(|fd| fd.0),
            raw: self.raw.map(|fd| fd.0),
            workers: self.workers,
            records_per_worker: self.records_per_worker,
        }
    }

    /// All of its descriptors.
    pub(crate) fn fds(&self) -> Vec<Fd> {
        let SteeringParts {
            access,
            counters,
            sinks,
            link,
        } = self.steering.parts();
        let own = [access.table, access.ring, access.mute, counters, link];
        let all = own.into_iter().chain(sinks).chain(self.records);
        all.chain(self.raw).collect()
    }

    /// A worker's part, without its channel.
    pub(crate) fn describe(&self, worker: u32) -> RestDescriptors {
        RestDescriptors {
            channel: Fd::NONE.0,
            records: self.records[1].0,
            records_count: self.workers * self.records_per_worker,
            first: worker * self.records_per_worker,
            count: self.records_per_worker,
        }
    }
}

/// The repair process.
pub(crate) struct RepairProcess {
    helper: Helper,
    /// The times that the process was told.
    keepalive: Option<Keepalive>,
}

impl RepairProcess {
    pub(crate) fn new() -> RepairProcess {
        let mut helper = Helper::new(tcp_repair::NAME);
        helper.set_due();
        RepairProcess {
            helper,
            keepalive: None,
        }
    }

    /// Time of the next start.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.helper.next_deadline_ms()
    }

    /// Starts the process if a start is due, and ends it if a reload has changed what it was told; `channels` are its ends of
    /// those to the workers. Returns the process that was ended. Called once per turn.
    pub(crate) fn attend(
        &mut self,
        rest: Option<&DeepRest>,
        channels: &[Fd],
        config: &Config,
        poller: &Poller,
    ) -> Option<Pid> {
        let keepalive = keepalive(config);
        if self.keepalive.replace(keepalive) != Some(keepalive) {
            return self.end(poller);
        }
        if self.helper.take_due()
            && let Some(rest) = rest
            && !channels.is_empty()
        {
            self.helper.start(|| start(rest, channels, config, poller));
        }
        None
    }

    /// Handles the exit of a process. Returns `false` if it was another one. It ends by itself after the last worker.
    pub(crate) fn note_end(
        &mut self,
        pid: Pid,
        ended: Ended,
        poller: &Poller,
        is_stopping: bool,
    ) -> bool {
        match is_stopping && ended == Ended::Exited(0) {
            true => self.helper.note_end(pid, poller),
            false => self.helper.note_death(pid, ended, poller),
        }
    }

    /// Ends the process, which may die at any time. Returns its id. The next turn starts another one.
    pub(crate) fn end(&mut self, poller: &Poller) -> Option<Pid> {
        let process = self.helper.release()?;
        Some(process.kill(poller))
    }
}

/// The ports with which the trial is as hard as what follows.
pub(crate) fn trial_ports(config: &Config) -> TrialPorts {
    match config.rests_on_low_port() {
        true => TrialPorts::Low,
        false => TrialPorts::Any,
    }
}

/// When a silent peer of a resting connection is asked whether it lives.
fn keepalive(config: &Config) -> Keepalive {
    let seconds = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(NEVER_S);
    let sockets = &config.sockets;
    Keepalive {
        idle_s: sockets.keepalive_idle.map_or(NEVER_S, seconds),
        interval_s: seconds(sockets.keepalive_interval),
        count: sockets.keepalive_count,
    }
}

fn start(
    rest: &DeepRest,
    channels: &[Fd],
    config: &Config,
    poller: &Poller,
) -> io::Result<HelperProcess> {
    let parts = RepairParts {
        access: rest.steering.access(),
        lifelines: &rest.steering.lifelines(),
        records: rest.records[0],
        raw: rest.raw,
        workers: channels,
        records_per_worker: rest.records_per_worker,
        keepalive: keepalive(config),
    };
    let place = (poller, tokens::REPAIR);
    let privileges = Privileges::tcp_repair(config.process.sandbox, config.log.clone());
    let inherited = parts.inherited();
    HelperProcess::start(tcp_repair::NAME, &privileges, inherited, place, |_, _| {
        RepairArguments::of(&parts)
    })
}
