//! Results of reloads and of other changes: for the waiting requests; those of reloads also for systemd and `status`.

use crate::control::ControlProcess;
use crate::pairs::Pairs;
use crate::sockets::systemd::Notifier;
use dormouse_handover::control;
use dormouse_reactor::process;

/// Time for workers to report that they follow the new configuration.
const TIMEOUT_MS: u64 = 10_000;

/// Maximum length of a stored result, in characters.
const WORDS_MAX: usize = 4096;

/// The last reload, and the changes that not all workers have confirmed.
#[derive(Default)]
pub(crate) struct ReloadReport {
    last: Option<control::Reload>,
    waiting: Vec<Waiting>,
}

/// The cause of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// The configuration was loaded again.
    Reload,
    /// An administrator's order, which does not replace the result of the last reload.
    Order,
}

/// A change that not all workers have confirmed.
struct Waiting {
    cause: Cause,
    /// Requests that wait for an answer.
    requests: Vec<u64>,
    /// The result once all workers have confirmed.
    words: String,
    due_ms: u64,
}

/// A completed change, and its result.
pub(crate) struct Finished {
    cause: Cause,
    requests: Vec<u64>,
    result: Result<String, String>,
}

impl ReloadReport {
    /// Waits for the workers. An earlier change that still waits completes with this one, because workers confirm
    /// only the latest.
    pub(crate) fn wait(&mut self, cause: Cause, requests: Vec<u64>, words: String) {
        self.waiting.push(Waiting {
            cause,
            requests,
            words,
            due_ms: process::boottime_ms() + TIMEOUT_MS,
        });
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Completes the changes if all workers follow this edition.
    pub(crate) fn finish_if_complete(&mut self, edition: u64, pairs: &Pairs) -> Vec<Finished> {
        match pairs.have_edition(edition) {
            true => self.finish(|_| true, Ok),
            false => Vec::new(),
        }
    }

    /// Completes the changes after a worker has rejected them.
    pub(crate) fn refused_by(&mut self, worker: usize, why: &str) -> Vec<Finished> {
        let refused = |_| {
            Err(format!(
                "worker {worker} keeps the old configuration: {why}"
            ))
        };
        self.finish(|_| true, refused)
    }

    /// Deadline of the earliest change.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.waiting.iter().map(|waiting| waiting.due_ms).min()
    }

    /// Completes the changes whose deadline is over.
    pub(crate) fn finish_if_late(&mut self, edition: u64, pairs: &Pairs) -> Vec<Finished> {
        let now_ms = process::boottime_ms();
        let late = |words| {
            let late: Vec<String> = (0..pairs.len())
                .filter(|&worker| !pairs.has_edition(worker, edition))
                .map(|worker| worker.to_string())
                .collect();
            Ok(format!(
                "{words}; worker {} has not confirmed it yet",
                late.join(", ")
            ))
        };
        self.finish(|waiting| waiting.due_ms <= now_ms, late)
    }

    fn finish(
        &mut self,
        is_done: impl Fn(&Waiting) -> bool,
        result: impl Fn(String) -> Result<String, String>,
    ) -> Vec<Finished> {
        let done = self.waiting.extract_if(.., |waiting| is_done(waiting));
        let finished = done.map(|waiting| Finished {
            cause: waiting.cause,
            requests: waiting.requests,
            result: result(waiting.words),
        });
        finished.collect()
    }

    /// Publishes the result of a completed change.
    pub(crate) fn publish(
        &mut self,
        finished: Finished,
        notifier: &Notifier,
        control: Option<&mut ControlProcess>,
    ) {
        let Finished {
            cause,
            requests,
            result,
        } = finished;
        if cause == Cause::Reload {
            let (Ok(words) | Err(words)) = &result;
            self.last = Some(control::Reload {
                done: result.is_ok(),
                words: words.chars().take(WORDS_MAX).collect(),
                at_ms: process::boottime_ms(),
            });
            if self.waiting.iter().all(|one| one.cause != Cause::Reload) {
                let result = result.as_ref();
                notifier.reloaded(result.map(String::as_str).map_err(String::as_str));
            }
        }
        if let Some(control) = control {
            for request in requests {
                control.answer(request, result.clone());
            }
        }
    }

    /// The last reload, for control.
    pub(crate) fn last(&self) -> Option<control::Reload> {
        self.last.clone()
    }
}

impl Finished {
    /// A rejected configuration.
    pub(crate) fn refused(requests: Vec<u64>, why: String) -> Finished {
        Finished {
            cause: Cause::Reload,
            requests,
            result: Err(why),
        }
    }
}
