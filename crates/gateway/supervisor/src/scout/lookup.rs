//! Lookup of the names of a new configuration, so that main never waits for a resolver. One runs at a
//! time; a reload that is requested meanwhile waits for it.

use super::process::start;
use crate::helper_process::HelperProcess;
use crate::tokens;
use dormouse_config::Config;
use dormouse_handover::message;
use dormouse_helpers::scout::{ScoutReport, Task};
use dormouse_reactor::poller::Poller;
use dormouse_reactor::process::{self, Pid};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;

/// Time for all names. The operating system's resolver gives up after some 20 s.
const LOOKUP_MS: u64 = 30_000;

/// Addresses of names, or why they could not be resolved.
pub(crate) type FoundNames = BTreeMap<String, Result<Vec<SocketAddr>, String>>;

/// The current lookup, if there is one.
#[derive(Default)]
pub(crate) struct ReloadLookup {
    running: Option<Running>,
}

struct Running {
    scout: HelperProcess,
    wanted: BTreeSet<String>,
    found: FoundNames,
    /// Reload requests that wait for the lookup.
    requests: Vec<u64>,
    due_ms: u64,
}

/// A completed lookup.
pub(crate) struct FinishedLookup {
    pub(crate) found: FoundNames,
    /// Reload requests that waited.
    pub(crate) requests: Vec<u64>,
    /// The scout, if its exit is still to be reported.
    pub(crate) ending: Option<Pid>,
}

impl ReloadLookup {
    /// Starts to look up these names.
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
            scout: start(&task, config, poller, tokens::LOOKUP)?,
            wanted,
            found: FoundNames::new(),
            requests,
            due_ms: process::boottime_ms() + LOOKUP_MS,
        });
        Ok(())
    }

    /// Adds a request to the current lookup. Returns `false` if there is none.
    pub(crate) fn join(&mut self, request: Option<u64>) -> bool {
        let Some(running) = &mut self.running else {
            return false;
        };
        running.requests.extend(request);
        true
    }

    /// Whether there is a lookup.
    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Deadline of the lookup.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.running.as_ref().map(|running| running.due_ms)
    }

    /// Processes the scout's next report.
    pub(crate) fn receive(&mut self, poller: &Poller) -> Option<FinishedLookup> {
        let running = self.running.as_mut()?;
        match running.receive() {
            LookupProgress::Waits => None,
            LookupProgress::Complete => self.finish("", poller),
            LookupProgress::Ended => self.finish("the lookup process ended early", poller),
        }
    }

    /// Ends the lookup if its deadline is over.
    pub(crate) fn end_if_late(&mut self, poller: &Poller) -> Option<FinishedLookup> {
        let running = self.running.as_ref()?;
        let is_late = running.due_ms <= process::boottime_ms();
        is_late
            .then(|| self.finish("no answer within 30 s", poller))
            .flatten()
    }

    /// Handles the scout's exit; its last reports may still be unread. `None`: it was another process.
    pub(crate) fn note_end(&mut self, pid: Pid, poller: &Poller) -> Option<FinishedLookup> {
        let running = self.running.as_mut().filter(|r| r.scout.pid == pid)?;
        let mut left = running.wanted.len();
        while left > 0 && matches!(running.receive(), LookupProgress::Waits) {
            left -= 1;
        }
        let running = self.running.take()?;
        Some(running.finish("the lookup process ended early", |scout| {
            scout.close(poller);
            None
        }))
    }

    /// Ends the lookup at the end of the program or an upgrade. Returns the scout, whose exit is still to be
    /// reported.
    pub(crate) fn end(&mut self, poller: &Poller) -> Option<Pid> {
        self.running
            .take()
            .map(|running| running.scout.kill(poller))
    }

    fn finish(&mut self, why: &str, poller: &Poller) -> Option<FinishedLookup> {
        let running = self.running.take()?;
        Some(running.finish(why, |scout| Some(scout.kill(poller))))
    }
}

enum LookupProgress {
    Waits,
    Complete,
    Ended,
}

impl Running {
    fn receive(&mut self) -> LookupProgress {
        match message::receive::<ScoutReport>(self.scout.channel) {
            // A compromised scout must not fill main's memory with other names.
            Ok(Some(ScoutReport::Name { name, found })) if self.wanted.contains(&name) => {
                self.found.insert(name, found);
            }
            Ok(_) => {}
            Err(_) => return LookupProgress::Ended,
        }
        let is_found = |name: &String| self.found.contains_key(name);
        match self.wanted.iter().all(is_found) {
            true => LookupProgress::Complete,
            false => LookupProgress::Waits,
        }
    }

    /// `why` is the reason for names without a result.
    fn finish(self, why: &str, end: impl FnOnce(HelperProcess) -> Option<Pid>) -> FinishedLookup {
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

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_reactor::OnExec;
    use dormouse_reactor::socket::{self, Attempt};

    #[test]
    fn only_names_that_were_asked_for_are_kept() {
        let (channel, scout) = socket::channel(OnExec::Close).expect("a channel");
        let pid = Pid(i32::MAX);
        let mut running = Running {
            scout: HelperProcess { pid, channel },
            wanted: BTreeSet::from(["a.example:1".to_owned()]),
            found: FoundNames::new(),
            requests: Vec::new(),
            due_ms: 0,
        };
        for (name, is_complete) in [("b.example:1", false), ("a.example:1", true)] {
            let report = ScoutReport::Name {
                name: name.to_owned(),
                found: Ok(Vec::new()),
            };
            let sent = message::send(scout, &report).expect("sent");
            assert_eq!(sent, Attempt::Done(()));
            let progress = running.receive();
            assert_eq!(
                matches!(progress, LookupProgress::Complete),
                is_complete,
                "{name}"
            );
        }
        assert_eq!(running.found.len(), 1);
    }
}
