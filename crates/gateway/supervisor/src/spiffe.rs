//! Main's side of the SPIFFE client: starts the process where something comes from the agent, puts its reports together to
//! responses, and judges these. The process parses what the agent sends, so main trusts none of its reports.

use crate::configuration::edition::Edition;
use crate::helper_process::{Helper, HelperProcess, privileges_of};
use crate::material::workload::Workload;
use crate::tokens;
use dormouse_config::{Config, SpiffeAgent};
use dormouse_handover::control;
use dormouse_helpers::spiffe::{
    self, AUTHORITIES_MAX, CERTIFICATES_MAX, SpiffeArguments, SpiffeReport,
};
use dormouse_reactor::poller::Poller;
use dormouse_reactor::process::{self, Ended, Pid};
use std::io;

/// Time between two responses that are put to use: an agent, or a process that was taken over, must not keep all workers
/// busy with new certificates.
const USED_EVERY_MS: u64 = 1_000;

/// Maximum number of ids and of trust domains in a report.
const REPORTED_MAX: usize = 8;

/// The process, and what the agent has said last.
pub(crate) struct SpiffeProcess {
    helper: Helper,
    /// The edition of the configuration that names the agent.
    edition: Option<u64>,
    /// The task of the process, started or due to start.
    task: Option<Task>,
    /// The response whose parts arrive.
    incoming: Option<Workload>,
    /// The last response that is not in use.
    complete: Option<Workload>,
    used_ms: Option<u64>,
    /// Why there is no agent. `None`: it has answered last.
    away: Option<String>,
    /// When it came or went.
    since_ms: u64,
    /// Why the last response was refused. `None`: it was not.
    refused: Option<String>,
    /// Whether the last response had revocation lists.
    has_lists: bool,
    responses: u64,
}

#[derive(Clone, PartialEq, Eq)]
struct Task {
    agent: SpiffeAgent,
    user: Option<String>,
}

impl SpiffeProcess {
    /// A process without a task.
    pub(crate) fn new() -> SpiffeProcess {
        SpiffeProcess {
            helper: Helper::new(spiffe::NAME),
            edition: None,
            task: None,
            incoming: None,
            complete: None,
            used_ms: None,
            away: Some("the agent has not answered yet".to_owned()),
            refused: None,
            has_lists: false,
            since_ms: process::boottime_ms(),
            responses: 0,
        }
    }

    /// Time of the next action. `can_use`: the configuration may change.
    pub(crate) fn next_deadline_ms(&self, can_use: bool) -> Option<u64> {
        let use_ms = self.complete.as_ref().filter(|_| can_use);
        let use_ms = use_ms.map(|_| self.used_ms.map_or(0, |at_ms| at_ms + USED_EVERY_MS));
        use_ms
            .into_iter()
            .chain(self.helper.next_deadline_ms())
            .min()
    }

    /// Starts the process if a start is due, and ends it when its task has changed. Returns the process that was ended.
    /// Called once per turn.
    pub(crate) fn attend(&mut self, edition: &Edition, poller: &Poller) -> Option<Pid> {
        let config = &edition.config;
        if self.edition.replace(edition.number) != Some(edition.number) {
            let task = config.spiffe_agent().map(|agent| Task {
                agent: agent.clone(),
                user: config.process.spiffe_user.clone(),
            });
            if task != self.task {
                self.task = task;
                (self.incoming, self.complete) = (None, None);
                let former = self.end(poller);
                self.helper.set_due();
                return former;
            }
        }
        if let Some(task) = self.task.as_ref()
            && self.helper.take_due()
        {
            self.helper.start(|| start(task, config, poller));
        }
        None
    }

    /// Receives a part of a response.
    pub(crate) fn receive(&mut self, poller: &Poller) {
        let Some(report) = self.helper.receive::<SpiffeReport>(poller) else {
            return;
        };
        if let Err(why) = self.take(report) {
            self.incoming = None;
            self.note_refused(why);
        }
    }

    fn take(&mut self, report: SpiffeReport) -> Result<(), String> {
        match (report, &mut self.incoming) {
            (SpiffeReport::Away(why), _) => {
                self.incoming = None;
                self.note_away(why);
            }
            (SpiffeReport::Refused(why), _) => return Err(why),
            (SpiffeReport::Begin, incoming) => *incoming = Some(Workload::none()),
            (SpiffeReport::Certificate { id, chain, key }, Some(incoming)) => {
                if incoming.certificates().len() >= CERTIFICATES_MAX {
                    return Err("too many certificates".to_owned());
                }
                incoming.add_certificate(id, chain, key)?;
            }
            (
                SpiffeReport::Authorities {
                    domain,
                    certificates,
                },
                Some(incoming),
            ) => {
                if incoming.domains().count() >= AUTHORITIES_MAX {
                    return Err("too many trust domains".to_owned());
                }
                incoming.add_authorities(&domain, &certificates)?;
            }
            (SpiffeReport::Complete { revocation_lists }, incoming) => {
                let complete = incoming.take().filter(|one| !one.is_empty());
                self.complete = Some(complete.ok_or("it has no certificate")?);
                self.responses += 1;
                self.refused = None;
                if revocation_lists > 0 && !self.has_lists {
                    tracing::warn!(
                        revocation_lists,
                        "revocation lists of the SPIFFE agent are not used; name files in client_crl, crl or backend_crl"
                    );
                }
                self.has_lists = revocation_lists > 0;
                if self.away.take().is_some() {
                    self.since_ms = process::boottime_ms();
                }
            }
            // A part of a response that was refused.
            (SpiffeReport::Certificate { .. } | SpiffeReport::Authorities { .. }, None) => {}
        }
        Ok(())
    }

    fn note_refused(&mut self, why: String) {
        // An agent may send the same again and again.
        if self.refused.as_ref() == Some(&why) {
            return;
        }
        tracing::error!(
            error = why,
            "response of the SPIFFE agent cannot be used; keeping the current certificates"
        );
        self.refused = Some(why);
    }

    fn note_away(&mut self, why: String) {
        // The process tries again and again, with the same result.
        if self.away.as_ref() == Some(&why) {
            return;
        }
        tracing::warn!(
            error = why,
            "no SPIFFE agent; keeping the current certificates"
        );
        if self.away.is_none() {
            self.since_ms = process::boottime_ms();
        }
        self.away = Some(why);
    }

    /// The response that is to be used now.
    pub(crate) fn take_complete(&mut self) -> Option<Workload> {
        let now_ms = process::boottime_ms();
        let is_due = self
            .used_ms
            .is_none_or(|at_ms| now_ms >= at_ms + USED_EVERY_MS);
        let complete = self.complete.take_if(|_| is_due)?;
        self.used_ms = Some(now_ms);
        Some(complete)
    }

    /// Handles the exit of a process. Returns `false` if it was another process.
    pub(crate) fn note_end(&mut self, pid: Pid, ended: Ended, poller: &Poller) -> bool {
        let is_own = self.helper.note_death(pid, ended, poller);
        if is_own {
            self.incoming = None;
        }
        is_own
    }

    /// Ends the process. Returns its id. The next turn starts another one.
    pub(crate) fn end(&mut self, poller: &Poller) -> Option<Pid> {
        let process = self.helper.release()?;
        Some(process.kill(poller))
    }

    /// What `status` shows. `None`: nothing comes from an agent.
    pub(crate) fn report(&self, workload: &Workload) -> Option<control::Spiffe> {
        let task = self.task.as_ref()?;
        let expires_s =
            |pem: &dormouse_handover::Pem| pem.identity().map_or(0, |one| one.expires_at_s());
        let certificates = workload.certificates().iter().take(REPORTED_MAX);
        let certificates = certificates.map(|pem| control::SpiffeCertificate {
            id: pem.name.clone(),
            expires_s: expires_s(pem),
        });
        let domains = workload.domains().take(REPORTED_MAX);
        Some(control::Spiffe {
            agent: task.agent.to_string(),
            away: self.away.clone(),
            since_ms: self.since_ms,
            responses: self.responses,
            certificates: certificates.collect(),
            trust_domains: domains.map(ToString::to_string).collect(),
        })
    }
}

fn start(task: &Task, config: &Config, poller: &Poller) -> io::Result<HelperProcess> {
    let privileges = privileges_of(task.user.as_deref(), config).map_err(io::Error::other)?;
    let place = (poller, tokens::SPIFFE);
    let path = task.agent.path.clone();
    HelperProcess::start(spiffe::NAME, &privileges, Vec::new(), place, |_, theirs| {
        SpiffeArguments {
            channel: theirs.0,
            path,
        }
    })
}
