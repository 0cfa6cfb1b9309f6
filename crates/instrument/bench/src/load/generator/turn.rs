//! One turn of the loop: orders, due work, missed deadlines.

use std::time::{Duration, Instant};

use super::super::connection::{ActiveConnection, ConnectionState};
use super::super::exchange::{Exchange, Pattern};
use super::super::job::{CycleJob, FAILURES_IN_ROW_MAX, Job, MessagesJob, OpenJob, Pacer};
use super::super::orders::{Cycle, Expect, Order, Traffic};
use super::Generator;
use super::outcome::NextAction;

/// Longest sleep.
const IDLE: Duration = Duration::from_millis(100);
/// Maximum number of actions per turn, so that answers do not wait.
const PER_TURN: usize = 64;
/// Connections closed per turn.
const CLOSES_PER_TURN: usize = 256;
/// How long connections in progress may take after the order to stop.
const STOP_GRACE: Duration = Duration::from_secs(1);
/// Interval between two checks of the deadlines.
const SWEEP_EVERY: Duration = Duration::from_millis(200);

impl Generator {
    /// Starts an order, and resets the counts.
    pub(super) fn start_order(&mut self, order: Order, now: Instant) {
        let job = match order {
            Order::Quit => {
                self.quit = true;
                return;
            }
            Order::Stop => return self.stop(now),
            Order::Open {
                alive,
                per_s,
                in_flight_max,
            } => {
                let needed = alive.saturating_sub(self.tally.alive);
                let pacer = Pacer::new(per_s, now);
                Job::Open(OpenJob {
                    alive,
                    pacer,
                    in_flight_max,
                    failures_max: needed / 10,
                })
            }
            Order::Cycle(spec) => {
                let lanes = spec.lanes.min(self.slots.capacity() - self.slots.live());
                let mut cycle = CycleJob::new(Cycle { lanes, ..spec }, now);
                if lanes == 0 {
                    let held = self.slots.live();
                    self.gave_up = Some(format!(
                        "{held} connections are open, and there is no room for another"
                    ));
                    cycle.stopped = true;
                }
                Job::Cycle(cycle)
            }
            Order::Messages(spec) => Job::Messages(MessagesJob::new(spec, now)),
            Order::Close => Job::Close,
        };
        self.stop_by = None;
        self.job = Some(job);
        self.job_began = now;
        self.failures_in_row = 0;
    }

    /// Stops the order. Connections that are not done get little more time.
    fn stop(&mut self, now: Instant) {
        let soon = now + self.timeout.min(STOP_GRACE);
        self.stop_by = Some(soon);
        for active in self.active.iter_mut().flatten() {
            active.deadline = active.deadline.map(|deadline| deadline.min(soon));
        }
        match &mut self.job {
            Some(Job::Open(open)) => open.alive = 0,
            Some(Job::Cycle(cycle)) => cycle.stopped = true,
            Some(Job::Messages(speak)) => speak.stopped = true,
            Some(Job::Close) | None => {}
        }
    }

    /// Returns until when a connection may take for its next step. Progress extends this time, but not beyond the
    /// end of a stopped order: a stream may flow for hours.
    pub(super) fn deadline(&self, now: Instant) -> Instant {
        let deadline = now + self.timeout;
        self.stop_by.map_or(deadline, |by| by.min(deadline))
    }

    /// Returns the longest that the loop may sleep, in milliseconds.
    pub(super) fn until_next(&self, now: Instant) -> u64 {
        let wait = match &self.job {
            Some(Job::Open(open)) if self.opens_more(open) => open.pacer.wait(now),
            Some(Job::Messages(speak)) if !speak.is_over(now) => speak.pacer.wait(now),
            Some(Job::Close) => Duration::ZERO,
            Some(_) => SWEEP_EVERY,
            None => IDLE,
        };
        // Rounded up, because a loop that wakes too early spins.
        wait.min(IDLE).as_micros().div_ceil(1000) as u64
    }

    /// Whether more connections are opened as soon as they are due.
    fn opens_more(&self, open: &OpenJob) -> bool {
        let begun = self.tally.alive + u64::from(self.in_flight);
        self.gave_up.is_none() && begun < open.alive && self.in_flight < open.in_flight_max
    }

    /// Starts what is due, and reports what is done.
    pub(super) fn pump(&mut self, now: Instant) {
        let over = match &self.job {
            None => return,
            Some(Job::Open(_)) => self.pump_open(now),
            Some(Job::Cycle(_)) => self.pump_cycle(now),
            Some(Job::Messages(_)) => self.pump_speak(now),
            Some(Job::Close) => self.pump_close(),
        };
        if over {
            self.done(now);
        }
    }

    fn pump_open(&mut self, now: Instant) -> bool {
        for _ in 0..PER_TURN {
            let Some(Job::Open(open)) = &mut self.job else {
                break;
            };
            // A server that accepts connections and drops them again counts as failing too.
            let failures = self.tally.failed + self.tally.lost;
            if failures > open.failures_max && self.gave_up.is_none() && open.alive > 0 {
                self.gave_up = Some(format!("gave up opening after {failures} failures"));
            }
            let begun = self.tally.alive + u64::from(self.in_flight);
            if self.gave_up.is_some() || begun >= open.alive {
                return self.in_flight == 0;
            }
            if self.in_flight >= open.in_flight_max || !open.pacer.take(now) || !self.begin(0, now)
            {
                break;
            }
        }
        false
    }

    fn pump_cycle(&mut self, now: Instant) -> bool {
        for _ in 0..PER_TURN {
            let Some(Job::Cycle(cycle)) = &mut self.job else {
                break;
            };
            let in_row_max = FAILURES_IN_ROW_MAX.max(2 * u64::from(cycle.spec.lanes));
            if self.failures_in_row > in_row_max && self.gave_up.is_none() {
                self.gave_up = Some(format!(
                    "gave up after {} failures in a row",
                    self.failures_in_row
                ));
                cycle.stopped = true;
            }
            if cycle.is_over(&self.tally, now) {
                return cycle.lanes_are_free();
            }
            let Some(lane) = cycle.take_lane() else { break };
            if !self.begin(lane, now) {
                if let Some(Job::Cycle(cycle)) = &mut self.job {
                    cycle.return_lane(lane);
                }
                break;
            }
        }
        false
    }

    fn pump_speak(&mut self, now: Instant) -> bool {
        for _ in 0..PER_TURN {
            let Some(index) = self.next_speaker(now) else {
                break;
            };
            let mut active = Box::new(ActiveConnection::at_rest(now));
            // Not `now`: exchanges that begin later in this turn have a later start.
            let begins = Instant::now();
            let bytes = match &self.job {
                Some(Job::Messages(speak)) => speak.spec.bytes,
                _ => 0,
            };
            active.exchange = self.exchange(bytes, begins);
            active.deadline = Some(self.deadline(begins));
            let next = self.push(index, &mut active);
            self.settle(index, active, next);
        }
        let Some(Job::Messages(speak)) = &self.job else {
            return false;
        };
        (speak.is_over(now) || self.slots.live() == 0) && speak.unanswered == 0
    }

    /// Returns the slot whose turn it is to send, if one is due.
    fn next_speaker(&mut self, now: Instant) -> Option<u32> {
        let Some(Job::Messages(speak)) = &mut self.job else {
            return None;
        };
        while self.slots.live() > 0 && !speak.is_over(now) && speak.pacer.take(now) {
            if speak.spec.among > 0 && speak.round >= speak.spec.among {
                (speak.cursor, speak.round) = (0, 0);
            }
            let index = self
                .slots
                .next_live(speak.cursor)
                .or_else(|| self.slots.next_live(0))?;
            speak.round = if index < speak.cursor {
                1
            } else {
                speak.round + 1
            };
            speak.cursor = index + 1;
            speak.said += 1;
            if self.active.get(index as usize).is_none_or(Option::is_none) {
                speak.unanswered += 1;
                return Some(index);
            }
            // The last message has no answer yet.
            self.tally.skipped += 1;
        }
        None
    }

    fn pump_close(&mut self) -> bool {
        let now = Instant::now();
        for _ in 0..CLOSES_PER_TURN {
            let Some(index) = self.slots.next_live(0) else {
                return true;
            };
            let active = self.active.get_mut(index as usize).and_then(Option::take);
            self.settle(
                index,
                active.unwrap_or_else(|| Box::new(ActiveConnection::at_rest(now))),
                Ok(NextAction::Close),
            );
        }
        self.slots.live() == 0
    }

    /// Ends connections that have taken too long.
    pub(super) fn sweep(&mut self, now: Instant) {
        if now < self.next_sweep {
            return;
        }
        self.next_sweep = now + SWEEP_EVERY;
        for place in 0..self.active.len() {
            let late =
                |active: &ActiveConnection| active.deadline.is_some_and(|deadline| deadline < now);
            let Some(active) = self
                .active
                .get_mut(place)
                .and_then(|place| place.take_if(|active| late(active)))
            else {
                continue;
            };
            let timeout = self.timeout.as_secs_f64();
            let outcome = match &active.step {
                ConnectionState::AwaitingTicket => Ok(NextAction::Close),
                _ if self.stop_by.is_some() => Err("not done when the run was stopped".to_owned()),
                ConnectionState::Connecting => {
                    Err(format!("connect: no answer within {timeout} s"))
                }
                ConnectionState::StartingTls(_) => Err(format!(
                    "STARTTLS: the server stopped answering for {timeout} s"
                )),
                ConnectionState::Handshaking => Err(format!(
                    "handshake: the server stopped answering for {timeout} s"
                )),
                ConnectionState::Established => {
                    Err(format!("the server stopped answering for {timeout} s"))
                }
            };
            self.settle(place as u32, active, outcome);
        }
    }

    /// Returns the next exchange of the run's traffic.
    pub(super) fn exchange(&mut self, bulk_bytes: u64, now: Instant) -> Option<Exchange> {
        Some(match &self.setup.talk {
            Traffic::Http { any_status, .. } => {
                Exchange::http(self.message.clone(), *any_status, now)
            }
            Traffic::Message { .. } if bulk_bytes > 0 => {
                let pattern = Pattern::bulk(self.bulk.clone(), self.serial, bulk_bytes);
                Exchange::say(pattern, bulk_bytes, Expect::Echo, now)
            }
            Traffic::Message { expect, .. } => {
                let pattern = Pattern::message(self.message.clone());
                Exchange::say(pattern, self.message.len() as u64, *expect, now)
            }
        })
    }
}
