//! Results of reloads: for the waiting requests, for systemd, and for `status`.

use crate::control::ControlProcess;
use crate::pairs::Pairs;
use crate::systemd::Notifier;
use dormouse_handover::control;
use dormouse_reactor::process;

/// Time for workers to report that they follow the new configuration.
const TIMEOUT_MS: u64 = 10_000;

/// Maximum length of a stored result, in characters.
const WORDS_MAX: usize = 4096;

/// The last reload, and the one that not all workers have confirmed.
#[derive(Default)]
pub(crate) struct ReloadReport {
    last: Option<control::Reload>,
    waiting: Option<Waiting>,
}

/// A reload that not all workers have confirmed.
struct Waiting {
    /// Requests that wait for an answer.
    requests: Vec<u64>,
    /// The result once all workers have confirmed.
    words: String,
    due_ms: u64,
}

/// A completed reload, and its result.
pub(crate) struct Finished {
    requests: Vec<u64>,
    result: Result<String, String>,
}

impl ReloadReport {
    /// Waits for the workers. An earlier reload that still waits completes with this one.
    pub(crate) fn wait(&mut self, mut requests: Vec<u64>, words: String) {
        requests.extend(self.waiting.take().into_iter().flat_map(|r| r.requests));
        self.waiting = Some(Waiting {
            requests,
            words,
            due_ms: process::boottime_ms() + TIMEOUT_MS,
        });
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Completes the reload if all workers follow this edition.
    pub(crate) fn finish_if_complete(&mut self, edition: u64, pairs: &Pairs) -> Option<Finished> {
        let is_complete = pairs.have_edition(edition);
        let waiting = self.waiting.take_if(|_| is_complete)?;
        Some(Finished {
            requests: waiting.requests,
            result: Ok(waiting.words),
        })
    }

    /// Completes the reload after a worker has rejected it.
    pub(crate) fn refused_by(&mut self, worker: usize, why: &str) -> Option<Finished> {
        let waiting = self.waiting.take()?;
        Some(Finished {
            requests: waiting.requests,
            result: Err(format!(
                "worker {worker} keeps the old configuration: {why}"
            )),
        })
    }

    /// Deadline of the reload.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.waiting.as_ref().map(|waiting| waiting.due_ms)
    }

    /// Completes the reload if its deadline is over.
    pub(crate) fn finish_if_late(&mut self, edition: u64, pairs: &Pairs) -> Option<Finished> {
        let now_ms = process::boottime_ms();
        let waiting = self.waiting.take_if(|waiting| waiting.due_ms <= now_ms)?;
        let late: Vec<String> = (0..pairs.len())
            .filter(|&worker| !pairs.has_edition(worker, edition))
            .map(|worker| worker.to_string())
            .collect();
        let words = format!(
            "{}; worker {} has not confirmed it yet",
            waiting.words,
            late.join(", ")
        );
        Some(Finished {
            requests: waiting.requests,
            result: Ok(words),
        })
    }

    /// Publishes the result of a completed reload.
    pub(crate) fn publish(
        &mut self,
        finished: Finished,
        notifier: &Notifier,
        control: Option<&mut ControlProcess>,
    ) {
        let Finished { requests, result } = finished;
        let (Ok(words) | Err(words)) = &result;
        self.last = Some(control::Reload {
            done: result.is_ok(),
            words: words.chars().take(WORDS_MAX).collect(),
            at_ms: process::boottime_ms(),
        });
        if self.waiting.is_none() {
            let result = result.as_ref();
            notifier.reloaded(result.map(String::as_str).map_err(String::as_str));
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
            requests,
            result: Err(why),
        }
    }
}
