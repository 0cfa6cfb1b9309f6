//! The loop of the demo: processes, connections, memory readings and the picture.

use std::time::{Duration, Instant};

use dormouse_reactor::OnExec;
use dormouse_reactor::process::Pid;
use dormouse_reactor::signal::{Signal, Signals};
use dormouse_reactor::socket::Attempt;

use super::backend::Fault;
use super::children::Children;
use super::fleet::Fleet;
use super::plan::Plan;
use super::view::{Frame, Scene, View};
use super::watch::{Reading, Watch};

/// Limit on readings; above it, every second one is dropped.
const READINGS_MAX: usize = 2_000;
/// Interval between two checks for exited processes and late connections.
const CHECK_EVERY: Duration = Duration::from_millis(500);
/// Longest sleep of the loop.
const NAP_MS: u64 = 5;

/// Why a demo ends early.
pub(super) enum DemoError {
    /// Ctrl-C.
    Interrupted,
    /// An error, as a message.
    Failed(String),
}

impl From<String> for DemoError {
    fn from(trouble: String) -> DemoError {
        DemoError::Failed(trouble)
    }
}

/// A running demo. Fields are dropped in this order: the terminal is restored, connections are
/// closed, processes are stopped.
pub(super) struct Show {
    view: View,
    pub(super) fleet: Fleet,
    pub(super) watch: Watch,
    pub(super) children: Children,
    signals: Signals,
    pub(super) readings: Vec<Reading>,
    /// The known workers.
    pub(super) workers: Vec<Pid>,
    began: Instant,
    next_check: Instant,
}

impl Show {
    /// Starts the processes and opens the picture.
    pub(super) fn open(plan: &Plan, fault: Option<Fault>, plain: bool) -> Result<Show, DemoError> {
        // First, so that Ctrl-C cannot end this process while others are left.
        let signals = Signals::open(
            &[Signal::Interrupt, Signal::Terminate, Signal::Hangup],
            OnExec::Close,
        )
        .map_err(|error| format!("cannot receive signals: {error}"))?;
        let children = Children::start(fault)?;
        let fleet = Fleet::new(
            plan.connections,
            &children.address,
            &children.certificate,
            signals.fd(),
        )?;
        let watch = Watch::start(children.serve_pid())?;
        let workers = watch.workers()?;
        let view = View::open(plain, plan, &children.command);
        let now = Instant::now();
        Ok(Show {
            view,
            fleet,
            watch,
            children,
            signals,
            readings: Vec::new(),
            workers,
            began: now,
            next_check: now,
        })
    }

    /// Plays a scene. Calls `act` in every turn, until it returns true.
    pub(super) fn play(
        &mut self,
        scene: &Scene,
        mut act: impl FnMut(&mut Fleet, Instant) -> bool,
    ) -> Result<(), DemoError> {
        self.view.begin(scene);
        loop {
            let turned = self.fleet.turn(NAP_MS);
            turned.map_err(|error| format!("epoll: {error}"))?;
            let now = Instant::now();
            self.look_around(now)?;
            let over = act(&mut self.fleet, now);
            self.draw(scene, now);
            if over {
                return Ok(());
            }
        }
    }

    /// Plays a scene for some time without new actions.
    pub(super) fn pause(&mut self, scene: &Scene, length: Duration) -> Result<(), DemoError> {
        let until = Instant::now() + length;
        self.play(scene, |_, now| now >= until)
    }

    /// Waits for a reading that begins after this call.
    pub(super) fn reading(&mut self, scene: &Scene) -> Result<Reading, DemoError> {
        let since = Instant::now();
        let until = since + Duration::from_secs(5);
        loop {
            self.play(scene, |_, _| true)?;
            match self.readings.last() {
                Some(reading) if reading.at >= since => return Ok(*reading),
                _ if Instant::now() > until => {
                    return Err(DemoError::Failed(
                        "reading the memory of `serve` took too long".to_owned(),
                    ));
                }
                _ => {}
            }
        }
    }

    fn look_around(&mut self, now: Instant) -> Result<(), DemoError> {
        if let Ok(Attempt::Done(_)) = self.signals.receive() {
            return Err(DemoError::Interrupted);
        }
        let census = self.fleet.census();
        let connections = census.at_rest + census.awake;
        for news in self.watch.news() {
            self.readings.push(Reading {
                connections,
                ..news?
            });
        }
        if self.readings.len() > READINGS_MAX {
            let mut keep = false;
            self.readings.retain(|_| {
                keep = !keep;
                keep
            });
        }
        if now >= self.next_check {
            self.next_check = now + CHECK_EVERY;
            self.children.check()?;
            if self.workers.is_empty() {
                self.workers = self.watch.workers()?;
            }
            self.fleet.give_up_late(now);
        }
        Ok(())
    }

    fn draw(&mut self, scene: &Scene, now: Instant) {
        if self.view.is_due(now) {
            self.view.draw(&Frame {
                scene,
                now,
                elapsed: now - self.began,
                fleet: &self.fleet,
                census: self.fleet.census(),
                readings: &self.readings,
                workers: &self.workers,
            });
        }
    }
}
