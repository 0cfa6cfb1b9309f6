//! What the viewer sees: a picture that moves, or lines where there is no terminal.

mod cells;
mod lines;
mod picture;
mod sparkline;

use std::env;
use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use dormouse_reactor::process::Pid;

use super::fleet::{Census, Fleet};
use super::plan::Plan;
use super::show::Base;
use super::watch::Reading;
use crate::terminal;
use lines::Lines;
use picture::Picture;

/// The chapters, in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Step {
    Open,
    Rest,
    Wake,
    Kill,
    Ask,
    Upgrade,
    Goodbye,
}

impl Step {
    const ALL: [Step; 7] = [
        Step::Open,
        Step::Rest,
        Step::Wake,
        Step::Kill,
        Step::Ask,
        Step::Upgrade,
        Step::Goodbye,
    ];

    fn name(self) -> &'static str {
        match self {
            Step::Open => "open",
            Step::Rest => "rest",
            Step::Wake => "wake",
            Step::Kill => "kill -9",
            Step::Ask => "ask all",
            Step::Upgrade => "upgrade",
            Step::Goodbye => "goodbye",
        }
    }
}

/// What is going on, in words.
pub(super) struct Scene {
    step: Step,
    title: String,
    explanation: String,
}

impl Scene {
    pub(super) fn new(step: Step, title: String, explanation: &str) -> Scene {
        Scene {
            step,
            title,
            explanation: explanation.to_owned(),
        }
    }
}

/// Everything there is to see at one moment.
pub(super) struct Frame<'a> {
    pub(super) scene: &'a Scene,
    pub(super) now: Instant,
    pub(super) elapsed: Duration,
    pub(super) fleet: &'a Fleet,
    pub(super) census: Census,
    pub(super) readings: &'a [Reading],
    pub(super) base: Option<Base>,
    /// The processes which hold the connections; none while they are being replaced.
    pub(super) workers: &'a [Pid],
}

impl Frame<'_> {
    /// What one connection costs now, as far as it can be told: not after the kill, because what
    /// the new processes need once was never measured.
    fn per_connection(&self) -> Option<u64> {
        if self.fleet.kill.is_some() {
            return None;
        }
        let bytes = self.readings.last()?.bytes;
        self.base?
            .per_connection(bytes, self.census.at_rest + self.census.awake)
    }

    fn memory_bytes(&self) -> Option<u64> {
        self.readings.last().map(|reading| reading.bytes)
    }
}

/// One of both.
pub(super) enum View {
    Picture(Picture),
    Lines(Lines),
}

impl View {
    pub(super) fn open(plain: bool, plan: &Plan, command: &str) -> View {
        let dumb = env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        if plain || dumb || !io::stdout().is_terminal() || !Picture::fits() {
            View::Lines(Lines::open(plan, command))
        } else {
            View::Picture(Picture::open(
                terminal::colours_on(&io::stdout()),
                plan,
                command,
            ))
        }
    }

    /// A scene begins, or goes on with other words.
    pub(super) fn begin(&mut self, scene: &Scene) {
        if let View::Lines(lines) = self {
            lines.begin(scene);
        }
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= match self {
            View::Picture(picture) => picture.next,
            View::Lines(lines) => lines.next,
        }
    }

    pub(super) fn draw(&mut self, frame: &Frame<'_>) {
        match self {
            View::Picture(picture) => picture.draw(frame),
            View::Lines(lines) => lines.draw(frame),
        }
    }
}
