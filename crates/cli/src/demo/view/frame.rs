//! Input of a view: the scene, and the state of the demo at one moment.

use std::time::{Duration, Instant};

use dormouse_reactor::process::Pid;

use crate::demo::fleet::{Census, Fleet};
use crate::demo::watch::{self, Reading};

/// Chapters of the demo, in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::demo) enum Chapter {
    Open,
    Rest,
    Wake,
    Kill,
    WakeAll,
    Upgrade,
    CloseAll,
}

impl Chapter {
    pub(super) const ALL: [Chapter; 7] = [
        Chapter::Open,
        Chapter::Rest,
        Chapter::Wake,
        Chapter::Kill,
        Chapter::WakeAll,
        Chapter::Upgrade,
        Chapter::CloseAll,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Chapter::Open => "open",
            Chapter::Rest => "rest",
            Chapter::Wake => "wake",
            Chapter::Kill => "kill -9",
            Chapter::WakeAll => "wake all",
            Chapter::Upgrade => "upgrade",
            Chapter::CloseAll => "close",
        }
    }
}

/// A scene: its chapter, title and explanation.
pub(in crate::demo) struct Scene {
    pub(super) chapter: Chapter,
    pub(super) title: String,
    pub(super) explanation: String,
}

impl Scene {
    pub(in crate::demo) fn new(chapter: Chapter, title: String, explanation: &str) -> Scene {
        Scene {
            chapter,
            title,
            explanation: explanation.to_owned(),
        }
    }
}

/// State of the demo at one moment.
pub(in crate::demo) struct Frame<'a> {
    pub(in crate::demo) scene: &'a Scene,
    pub(in crate::demo) now: Instant,
    pub(in crate::demo) elapsed: Duration,
    pub(in crate::demo) fleet: &'a Fleet,
    pub(in crate::demo) census: Census,
    pub(in crate::demo) readings: &'a [Reading],
    /// The workers; none while they are being replaced.
    pub(in crate::demo) workers: &'a [Pid],
}

impl Frame<'_> {
    /// Bytes per connection; none after the kill, because the new processes have other memory.
    pub(super) fn per_connection(&self) -> Option<u64> {
        match self.fleet.kill {
            Some(_) => None,
            None => watch::per_connection(self.readings),
        }
    }

    pub(super) fn memory_bytes(&self) -> Option<u64> {
        self.readings.last().map(|reading| reading.bytes)
    }
}
