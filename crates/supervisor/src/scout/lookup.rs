//! Lookup of the names of a new configuration, so that main never waits for a resolver. One at a time:
//! a client that asks for a reload meanwhile waits for this one.

use super::process::ScoutProcess;
use crate::tokens;
use dormouse_config::Config;
use dormouse_handover::message;
use dormouse_helpers::scout::{ScoutReport, Task};
use dormouse_reactor::poller::Poller;
use dormouse_reactor::process::{self, Pid};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;

/// Time for all names. The operating system's resolver gives up by itself after some 20 s.
const LOOKUP_MS: u64 = 30_000;

/// Addresses of names, or why they are not known.
pub(crate) type FoundNames = BTreeMap<String, Result<Vec<SocketAddr>, String>>;

/// The lookup under way, if there is one.
#[derive(Default)]
pub(crate) struct ReloadLookup {
    running: Option<Running>,
}

struct Running {
    scout: ScoutProcess,
    wanted: BTreeSet<String>,
    found: FoundNames,
    /// Requests for a reload that wait.
    requests: Vec<u64>,
    due_ms: u64,
}

/// A lookup that is over.
pub(crate) struct FinishedLookup {
    pub(crate) found: FoundNames,
    /// Requests for a reload that waited.
    pub(crate) requests: Vec<u64>,
    /// The scout, if its end is still to come.
    pub(crate) ending: Option<Pid>,
}

impl ReloadLookup {
    /// Looks up these names.
    pub(crate) fn start(
        &mut self,
        wanted: BTreeSet<String>,
        requests: Vec<u64>,
        config: &Config,
        poller: &Poller,
    ) -> io::Result<()> {
        let task = Task {
            names: wanted.iter().cloned().collect(),
            ..Task::default()
        };
        self.running = Some(Running {
            scout: ScoutProcess::start(&task, config, poller, tokens::LOOKUP)?,
            wanted,
            found: FoundNames::new(),
            requests,
            due_ms: process::boottime_ms() + LOOKUP_MS,
        });
        Ok(())
    }

    /// Lets another request wait for the lookup under way. `false`: there is none.
    pub(crate) fn join(&mut self, request: Option<u64>) -> bool {
        let Some(running) = &mut self.running else {
            return false;
        };
        running.requests.extend(request);
        true
    }

    /// When the lookup has taken too long.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.running.as_ref().map(|running| running.due_ms)
    }

    /// Takes the scout's next report.
    pub(crate) fn receive(&mut self, poller: &Poller) -> Option<FinishedLookup> {
        let running = self.running.as_mut()?;
        match running.receive() {
            Progress::Waits => None,
            Progress::Complete => self.finish("", poller),
            Progress::Ended => self.finish("the lookup ended early", poller),
        }
    }

    /// Ends the lookup if it takes too long.
    pub(crate) fn end_if_late(&mut self, poller: &Poller) -> Option<FinishedLookup> {
        let running = self.running.as_ref()?;
        let is_late = running.due_ms <= process::boottime_ms();
        is_late
            .then(|| self.finish("there was no answer in time", poller))
            .flatten()
    }

    /// Notes that the scout has ended; its last reports may still be unread. `None`: it was another
    /// process.
    pub(crate) fn note_end(&mut self, pid: Pid, poller: &Poller) -> Option<FinishedLookup> {
        let running = self.running.as_mut().filter(|r| r.scout.pid == pid)?;
        let mut left = running.wanted.len();
        while left > 0 && matches!(running.receive(), Progress::Waits) {
            left -= 1;
        }
        let running = self.running.take()?;
        Some(running.finish("the lookup ended early", |scout| {
            scout.close(poller);
            None
        }))
    }

    /// The program ends, or another binary takes over. Returns the scout, whose end is still to come.
    pub(crate) fn end(&mut self, poller: &Poller) -> Option<Pid> {
        self.running.take().map(|running| running.scout.end(poller))
    }

    fn finish(&mut self, why: &str, poller: &Poller) -> Option<FinishedLookup> {
        let running = self.running.take()?;
        Some(running.finish(why, |scout| Some(scout.end(poller))))
    }
}

enum Progress {
    Waits,
    Complete,
    Ended,
}

impl Running {
    fn receive(&mut self) -> Progress {
        match message::receive::<ScoutReport>(self.scout.channel) {
            Ok(Some(ScoutReport::Name { name, found })) => {
                self.found.insert(name, found);
            }
            Ok(_) => {}
            Err(_) => return Progress::Ended,
        }
        let is_found = |name: &String| self.found.contains_key(name);
        match self.wanted.iter().all(is_found) {
            true => Progress::Complete,
            false => Progress::Waits,
        }
    }

    /// `why`: the reason for names that were not found.
    fn finish(self, why: &str, end: impl FnOnce(ScoutProcess) -> Option<Pid>) -> FinishedLookup {
        let mut found = self.found;
        for name in self.wanted {
            found.entry(name).or_insert_with(|| Err(why.to_owned()));
        }
        FinishedLookup {
            found,
            requests: self.requests,
            ending: end(self.scout),
        }
    }
}
