//! The supervisor: main's parts, and the loop that connects them.
//!
//! Each part owns its fields and knows nothing of the others. If an event in one part affects another, the
//! part returns a value, and the supervisor passes it on.
//!
//! ```text
//!   processes   signals, exits of processes, reports of workers  requests   orders from control
//!   spiffe      what a SPIFFE agent has given
//!   changes     reloads, certificates, addresses                 upgrading  another binary
//! ```

mod certificates;
mod changes;
mod processes;
mod requests;
mod running;
mod spiffe;
mod upgrading;

use crate::authorities::Authorities;
use crate::configuration::certificate_watch::CertificateWatch;
use crate::configuration::expiry_notice::ExpiryNotice;
use crate::configuration::source::Source;
use crate::connection_log::LogWriter;
use crate::control::ControlProcess;
use crate::ctl::kept::KeptChanges;
use crate::deep_rest::RepairProcess;
use crate::drain::Drain;
use crate::error::{ServeError, system};
use crate::pages::Pages;
use crate::recheck::EstablishedCheck;
use crate::recount::Recount;
use crate::redirect::RedirectProcess;
use crate::reload::ctl_changes::CtlChanges;
use crate::reload::report::ReloadReport;
use crate::scout::{BackendMonitor, ReloadLookup};
use crate::serving::Serving;
use crate::session_files::SessionFiles;
use crate::signer::SignerProcess;
use crate::sockets::syslog::SyslogSocket;
use crate::sockets::systemd::Notifier;
use crate::spiffe::SpiffeProcess;
use crate::tokens;
use crate::traces::Traces;
use crate::upgrade::Upgrade;
use dormouse_config::Log;
use dormouse_handover::unix_time;
use dormouse_reactor::poller::{Events, Poller};
use dormouse_reactor::process::{self, Pid, Wait};
use dormouse_reactor::signal::Signals;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

/// Time that main waits at its end for the last child processes.
const CHILDREN_EXIT_MS: u64 = 1_000;
const CHILDREN_POLL: Duration = Duration::from_millis(2);

/// Interval at which main looks whether rotated ticket keys are saved, while an order waits for that.
const SAVED_POLL_MS: u64 = 20;

/// Maximum wait for rotated ticket keys before the program ends.
const SAVED_MAX_AT_END: Duration = Duration::from_secs(10);

/// Time for workers without a keeper to stop, in addition to the grace for pending work.
const STOP_MS: u64 = 5_000;

/// Main's state across an upgrade, apart from [`Serving`].
#[derive(Default)]
pub(crate) struct History {
    pub(crate) born_ms: u64,
    /// Whether the log line `ready` was written.
    pub(crate) is_announced: bool,
    /// Processes whose exit is expected.
    pub(crate) ending: Vec<Pid>,
    /// Changed options that take effect at the next start.
    pub(crate) waits_for_restart: Vec<String>,
    /// What orders have changed since the configuration was read.
    pub(crate) ctl_changes: CtlChanges,
    /// What a reload does not end of these.
    pub(crate) kept: KeptChanges,
    /// Whether the program ends after the drain.
    pub(crate) stops_after_drain: bool,
}

/// Helpers that run from the start, and the watch that begins before it.
pub(crate) struct Helpers {
    pub(crate) control: Option<ControlProcess>,
    pub(crate) log_writer: LogWriter,
    pub(crate) certificate_watch: CertificateWatch,
}

/// The state of main.
pub(crate) struct Supervisor {
    source: Source,
    /// The configuration file, for those who ask from another directory.
    file: Option<PathBuf>,
    /// Applies the log settings, after each reload.
    set_logs: fn(&Log),
    serving: Serving,
    control: Option<ControlProcess>,
    certificate_watch: CertificateWatch,
    expiry_notice: ExpiryNotice,
    authorities: Authorities,
    redirect: RedirectProcess,
    log_writer: LogWriter,
    repair: RepairProcess,
    signer: SignerProcess,
    spiffe: SpiffeProcess,
    /// Where the program's log goes, if that is syslog.
    syslog: Option<SyslogSocket>,
    monitor: BackendMonitor,
    lookup: ReloadLookup,
    reload: ReloadReport,
    drain: Drain,
    upgrade: Option<Upgrade>,
    /// Orders to rotate ticket keys that wait until the keys are saved.
    rotations: Vec<u64>,
    pages: Pages,
    recheck: EstablishedCheck,
    traces: Traces,
    recount: Recount,
    notifier: Notifier,
    poller: Poller,
    signals: Signals,
    history: History,
    is_stopping: bool,
    /// When main kills workers that have lost their keeper and do not stop.
    kills_at_ms: Option<u64>,
}

impl Supervisor {
    pub(crate) fn new(
        source: Source,
        set_logs: fn(&Log),
        serving: Serving,
        helpers: Helpers,
        poller: Poller,
        signals: Signals,
        history: History,
    ) -> Supervisor {
        let Helpers {
            control,
            log_writer,
            certificate_watch,
        } = helpers;
        let syslog = SyslogSocket::of_log(&serving.edition.config.log);
        Supervisor {
            file: source.absolute_file(),
            source,
            set_logs,
            serving,
            control,
            certificate_watch,
            expiry_notice: ExpiryNotice::begin(),
            authorities: Authorities::default(),
            redirect: RedirectProcess::new(),
            log_writer,
            repair: RepairProcess::new(),
            signer: SignerProcess::new(),
            spiffe: SpiffeProcess::new(),
            syslog,
            monitor: BackendMonitor::new(),
            lookup: ReloadLookup::default(),
            reload: ReloadReport::default(),
            drain: Drain::default(),
            upgrade: None,
            rotations: Vec::new(),
            pages: Pages::default(),
            recheck: EstablishedCheck::default(),
            traces: Traces::default(),
            recount: Recount::default(),
            notifier: Notifier::from_environment(),
            poller,
            signals,
            history,
            is_stopping: false,
            kills_at_ms: None,
        }
    }

    /// Starts all keepers.
    pub(crate) fn start_pairs(&mut self) -> io::Result<()> {
        self.serving.start_pairs(&self.poller)
    }

    /// Runs until all workers are gone.
    pub(crate) fn run(mut self) -> Result<(), ServeError> {
        // Processes that exited before the new binary listened for signals.
        self.reap()?;
        self.follow_edition();
        self.reopen_listeners();
        // An upgrade may have come in the middle of it.
        self.recheck.begin();
        let mut events = Events::with_capacity(64);
        loop {
            self.attend_to_control();
            self.attend_to_scouts();
            self.attend_to_redirect();
            let sources = self.serving.pairs.log_sources();
            let config = &self.serving.edition.config;
            self.log_writer.attend(sources, config, &self.poller);
            let channels = self.serving.pairs.repair_channels();
            let rest = self.serving.rest.as_ref();
            let former = self.repair.attend(rest, &channels, config, &self.poller);
            self.history.ending.extend(former);
            let Serving { edition, pairs, .. } = &self.serving;
            let former = (self.signer).attend(edition.number, &edition.config, pairs, &self.poller);
            self.history.ending.extend(former);
            self.attend_to_spiffe();
            self.poller
                .wait(&mut events, self.timeout_ms())
                .map_err(system("wait for events"))?;
            self.on_time();
            for event in events.iter() {
                match event.token() {
                    tokens::SIGNALS => self.on_signals()?,
                    tokens::CONTROL => self.on_control(),
                    tokens::TICKET_KEYS => self.serving.rotate_ticket_keys(&self.poller),
                    tokens::ERRAND => self.on_errand(),
                    tokens::MONITOR => self.on_monitor(),
                    tokens::LOOKUP => self.on_lookup(),
                    tokens::REDIRECT => self.redirect.receive(&self.poller),
                    tokens::LOG_WRITER => {
                        let counters = &self.serving.memory.counters;
                        self.log_writer.receive(counters, &self.poller);
                    }
                    tokens::SIGNER => self.signer.receive(&self.serving.pairs, &self.poller),
                    tokens::SPIFFE => self.spiffe.receive(&self.poller),
                    // It says nothing; SIGCHLD reports its end.
                    tokens::REPAIR => {}
                    token => self.on_worker(token.saturating_sub(tokens::WORKERS) as usize),
                }
            }
            if !self.is_stopping {
                self.recount.forget_lost(&mut self.serving);
            }
            self.stop_if_drained();
            let shown = self.redirect.shows();
            self.authorities
                .announce_challenge(&self.serving.pairs, shown);
            if self.serving.pairs.are_over() {
                return self.end();
            }
        }
    }

    fn attend_to_control(&mut self) {
        let state = self.control.is_some().then(|| self.state());
        if let (Some(control), Some(state)) = (&mut self.control, state) {
            let reported = Rc::clone(self.serving.reported());
            control.attend(state, &reported, &self.serving.memory, &self.poller);
        }
    }

    fn attend_to_scouts(&mut self) {
        if let Some(finished) = self.lookup.end_if_late(&self.poller) {
            self.on_lookup_finished(finished);
        }
        if !self.is_stopping {
            let serving = &self.serving;
            let (memory, is_settled) = (&serving.memory, self.is_settled());
            self.monitor
                .attend(&serving.edition, memory, &self.poller, is_settled);
        }
    }

    fn attend_to_redirect(&mut self) {
        let is_accepting = !self.is_stopping && !self.drain.is_under_way();
        let former = self
            .redirect
            .attend(is_accepting, &self.serving, &self.poller);
        self.history.ending.extend(former);
        let (number, challenges) = self.authorities.http_challenges();
        self.redirect.send_challenges(number, challenges);
    }

    /// Runs all timers that are due.
    fn on_time(&mut self) {
        self.notifier.alive(process::boottime_ms());
        if let Some(syslog) = &mut self.syslog {
            syslog.attend();
        }
        let now_ms = process::boottime_ms();
        if self.kills_at_ms.take_if(|at_ms| *at_ms <= now_ms).is_some() {
            self.serving.pairs.kill_without_keeper();
        }
        self.serving.rotate_ticket_keys(&self.poller);
        self.answer_rotations();
        if let Some(why) = self.upgrade.as_ref().and_then(Upgrade::late) {
            self.fail_upgrade(&why);
        }
        if self.may_change() {
            self.poll_certificates();
        }
        self.attend_to_recheck();
        self.expiry_notice.write_if_due(&self.serving.edition);
        self.attend_to_authorities();
        let Serving { edition, pairs, .. } = &self.serving;
        let late = self.reload.finish_if_late(edition.number, pairs);
        self.publish(late);
        if let Some(sessions) = &mut self.serving.memory.sessions {
            sessions.save_if_due();
        }
    }

    fn timeout_ms(&self) -> Option<u64> {
        let until_ms = |at_ms: u64| at_ms.saturating_sub(process::boottime_ms());
        let serving = &self.serving;
        let control = self.control.as_ref();
        let certificates = self.certificate_watch.next_poll_ms(&serving.edition.config);
        let at = [
            control.and_then(ControlProcess::next_deadline_ms),
            self.notifier.next_ms(),
            certificates.filter(|_| self.may_change()),
            Some(self.expiry_notice.next_deadline_ms()),
            self.authorities_deadline_ms(),
            self.reload.next_deadline_ms(),
            self.lookup.next_deadline_ms(),
            self.drain
                .ends_ms()
                .filter(|_| self.history.stops_after_drain && !self.is_stopping),
            self.kills_at_ms,
            self.recheck
                .next_deadline_ms()
                .filter(|_| self.may_recheck()),
            self.recount
                .next_deadline_ms()
                .filter(|_| !self.is_stopping),
            self.redirect.next_deadline_ms(),
            self.log_writer.next_deadline_ms(),
            (self.serving.rest.as_ref()).and_then(|_| self.repair.next_deadline_ms()),
            self.signer.next_deadline_ms(),
            self.spiffe.next_deadline_ms(self.may_change()),
            self.syslog.as_ref().map(SyslogSocket::next_deadline_ms),
            self.monitor
                .next_deadline_ms()
                .filter(|_| !self.is_stopping),
        ];
        let sessions = serving.memory.sessions.as_ref();
        let left = [
            serving.ticket_keys.until_due_ms(unix_time()),
            self.upgrade.as_ref().map(Upgrade::until_late_ms),
            (!self.rotations.is_empty()).then_some(SAVED_POLL_MS),
            sessions.and_then(SessionFiles::until_save_ms),
        ];
        let at = at.into_iter().flatten().map(until_ms);
        at.chain(left.into_iter().flatten()).min()
    }

    /// Whether the configuration may change: no upgrade and no stop is in progress.
    fn may_change(&self) -> bool {
        !self.is_stopping && self.upgrade.is_none()
    }

    /// Whether all workers follow the current edition, and no upgrade is in progress.
    fn is_settled(&self) -> bool {
        let Serving { edition, pairs, .. } = &self.serving;
        pairs.have_edition(edition.number) && self.upgrade.is_none()
    }

    /// Ends all helpers but control, before the program ends or a new binary starts its own.
    fn end_helpers(&mut self) {
        let ending = [
            self.serving.ticket_keys.end_process(),
            self.redirect.end(&self.poller),
            self.monitor.end(&self.poller),
            self.lookup.end(&self.poller),
            self.repair.end(&self.poller),
            self.signer.end(&self.serving.pairs, &self.poller),
            self.spiffe.end(&self.poller),
        ];
        self.history.ending.extend(ending.into_iter().flatten());
        self.log_writer.end(&self.poller);
    }

    fn end(mut self) -> Result<(), ServeError> {
        self.finish_rotations(SAVED_MAX_AT_END);
        // Control sends its pending answers before it exits.
        self.attend_to_control();
        if let Some(control) = &mut self.control {
            self.history.ending.extend(control.end(&self.poller));
        }
        self.end_helpers();
        if let Some(sessions) = &mut self.serving.memory.sessions {
            sessions.save_last();
        }
        wait_for_children();
        match self.is_stopping {
            true => Ok(()),
            false => Err(ServeError::Workers("all workers are gone".to_owned())),
        }
    }
}

/// Waits for the last children, so that main exits last. If a service manager finds main gone but another
/// process alive, it may not learn of that process's exit: systemd then waits for `TimeoutStopSec`.
fn wait_for_children() {
    let until_ms = process::monotonic_ms() + CHILDREN_EXIT_MS;
    while process::has_children() && process::monotonic_ms() < until_ms {
        if !matches!(process::wait(Wait::AnyEnded), Ok(Some(_))) {
            thread::sleep(CHILDREN_POLL);
        }
    }
}
