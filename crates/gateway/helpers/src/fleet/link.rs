//! Main's side of the process that talks to the ticket store.

use super::messages::{
    FirstMessage, SecretBytes, StoreArguments, StoreReport, StoreSettings, StoreState, message,
};
use crate::helper::{self, Privileges, RestartTimer};
use crate::tls_file::{self, TlsFile};
use dormouse_config::Config;
use dormouse_engine::TicketKeys;
use dormouse_handover::Pem;
use dormouse_handover::unix_time;
use dormouse_reactor::poller::{Events, Interest, Poller};
use dormouse_reactor::process::{self, Ended, Pid};
use dormouse_reactor::shared::Shared;
use dormouse_reactor::signal::Signal;
use dormouse_reactor::socket::{self, Attempt, MESSAGE_MAX, PlainMessage};
use dormouse_reactor::{Fd, OnExec};
use dormouse_tables::counters::Common;
use std::io;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// How long the start waits for the fleet's keys; after that they are used as soon as they arrive.
const START_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum number of reports that main reads in one turn, so that a compromised process cannot keep it from its other
/// work.
const REPORTS_MAX: usize = 16;

/// The process, and what it takes to restart it.
pub struct StoreLink {
    settings: StoreSettings,
    privileges: Privileges,
    pid: Option<Pid>,
    channel: Fd,
    /// Whether the current channel is not polled yet.
    is_new: bool,
    restart: RestartTimer,
}

impl StoreLink {
    /// Starts the process. It writes `keys` to a store that has none, as soon as it can.
    pub fn start(
        settings: StoreSettings,
        keys: &TicketKeys,
        config: &Config,
    ) -> Result<StoreLink, String> {
        // An invalid file is an error of the start, not of the process.
        if settings.address.tls {
            tls_file::connect_with(settings.ca.as_deref(), settings.identity.as_ref())?;
        }
        let mut link = StoreLink {
            settings,
            privileges: Privileges::nobody(config),
            pid: None,
            channel: Fd::NONE,
            is_new: false,
            restart: RestartTimer::default(),
        };
        link.start_process(keys)?;
        Ok(link)
    }

    fn start_process(&mut self, keys: &TicketKeys) -> Result<(), String> {
        let in_words = |e: io::Error| e.to_string();
        let StoreSettings {
            address,
            secret,
            ca,
            identity,
            rotation,
        } = &self.settings;
        let secret_bytes = |bytes: &[u8]| SecretBytes(Zeroizing::new(bytes.to_vec()));
        let told = message(&FirstMessage {
            address: address.clone(),
            secret: secret_bytes(secret.bytes()),
            rotation: *rotation,
            keys: SecretBytes(keys.export()),
        })?;
        let (ours, theirs) = socket::channel(OnExec::Close).map_err(in_words)?;
        let tls = || TlsFile::write(ca.as_deref(), identity.as_ref());
        let begun = (address.tls).then(tls).transpose().and_then(|tls| {
            let tls = tls.as_ref().map(TlsFile::fd);
            let started = StoreArguments {
                channel: theirs.0,
                tls: tls.map(|fd| fd.0),
            };
            let inherited = [Some(theirs), tls];
            let inherited = inherited.into_iter().flatten().collect();
            match socket::send_message(ours, &told, &[]) {
                Ok(Attempt::Done(())) => {
                    helper::start("ticket-store", &self.privileges, &started, inherited)
                }
                Ok(Attempt::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
                Err(error) => Err(error),
            }
        });
        theirs.close();
        self.pid = Some(begun.inspect_err(|_| ours.close()).map_err(in_words)?);
        self.channel = ours;
        self.is_new = true;
        self.restart.started();
        Ok(())
    }

    /// Waits a short time for the fleet's keys. If the store is unreachable or slow, the process logs it,
    /// and startup continues without them.
    pub fn first(&mut self, shared: &Shared) -> Option<TicketKeys> {
        let poller = Poller::create(OnExec::Close).ok()?;
        let watched = poller.add(self.channel, 0, Interest::READ);
        let first = watched
            .ok()
            .and_then(|()| self.wait_for_first(&poller, shared));
        poller.fd().close();
        first
    }

    fn wait_for_first(&mut self, poller: &Poller, shared: &Shared) -> Option<TicketKeys> {
        let mut events = Events::with_capacity(1);
        let until = Instant::now() + START_TIMEOUT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            poller
                .wait(&mut events, Some(left.as_millis() as u64))
                .ok()?;
            let news = self.news(shared);
            if news.is_some() || left.is_zero() || self.channel == Fd::NONE {
                return news;
            }
        }
    }

    /// The channel, once after each start of the process, for the caller to poll.
    pub fn new_channel(&mut self) -> Option<Fd> {
        std::mem::take(&mut self.is_new).then_some(self.channel)
    }

    /// Returns the newest keys since the last call. Records the store's state in the counters.
    pub fn news(&mut self, shared: &Shared) -> Option<TicketKeys> {
        if self.channel == Fd::NONE {
            return None;
        }
        let (latest, is_sound) = read_reports(self.channel, shared);
        if !is_sound {
            // The process has exited or sent nonsense. It is restarted once its exit is reported.
            self.cut();
        }
        latest
    }

    /// Handles the exit of process `pid`. Returns `false` if it was another process; else schedules a restart.
    pub fn ended(&mut self, pid: Pid, ended: Ended, shared: &Shared) -> bool {
        if self.pid != Some(pid) {
            return false;
        }
        tracing::error!(cause = %ended, process = "ticket-store", "helper process died; restarting");
        self.pid = None;
        self.cut();
        note(StoreState::Unreachable, shared);
        self.restart.ended();
        true
    }

    /// Time until the next start is due.
    pub fn until_start_ms(&self) -> Option<u64> {
        let at_ms = self.restart.due_ms()?;
        Some(at_ms.saturating_sub(process::boottime_ms()))
    }

    /// Starts the process if a start is due.
    pub fn start_if_due(&mut self, keys: &TicketKeys) {
        if !self.restart.take_due() {
            return;
        }
        if let Err(error) = self.start_process(keys) {
            tracing::error!(
                process = "ticket-store",
                error,
                "helper process start failed"
            );
            self.restart.failed();
        }
    }

    /// Sets the time between rotations. A change restarts the process.
    pub fn set_rotation(&mut self, rotation: Duration) {
        if self.settings.rotation != rotation {
            self.settings.rotation = rotation;
            self.end();
        }
    }

    /// Sets the certificate for the store. Another process shows it.
    pub fn set_identity(&mut self, identity: Option<Pem>) {
        self.settings.identity = identity;
        self.end();
    }

    /// Kills the process. Returns its id, for the caller to reap. Another start is due at once.
    pub fn end(&mut self) -> Option<Pid> {
        self.cut();
        self.restart.set_due();
        let pid = self.pid.take();
        if let Some(pid) = pid {
            let _ = process::send_signal(pid, Signal::Kill);
        }
        pid
    }

    fn cut(&mut self) {
        if self.channel != Fd::NONE {
            self.channel.close();
            self.channel = Fd::NONE;
            self.is_new = false;
        }
    }
}

impl Drop for StoreLink {
    fn drop(&mut self) {
        self.end();
    }
}

/// Reads reports of the process. Returns the newest keys, and whether all reports were valid.
fn read_reports(channel: Fd, shared: &Shared) -> (Option<TicketKeys>, bool) {
    let mut latest = None;
    let mut room = Zeroizing::new(vec![0; MESSAGE_MAX]);
    for _ in 0..REPORTS_MAX {
        let report: Option<StoreReport> = match socket::receive_plain_message(channel, &mut room) {
            Ok(Attempt::WouldBlock) => break,
            Ok(Attempt::Done(PlainMessage::Whole { len, .. })) => {
                let bytes = room.get(..len).unwrap_or_default();
                serde_json::from_slice(bytes).ok()
            }
            Ok(Attempt::Done(_)) | Err(_) => None,
        };
        let Some(report) = report else {
            return (latest, false);
        };
        note(report.state, shared);
        let keys = report.keys.map(|keys| TicketKeys::import(&keys.0));
        latest = keys.and_then(Result::ok).or(latest);
    }
    (latest, true)
}

fn note(state: StoreState, shared: &Shared) {
    Common::StoreState.set(shared, state as u64);
    match state {
        StoreState::Reachable => Common::StoreSeen.set(shared, unix_time().as_secs()),
        _ => Common::StoreFailures.add(shared, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    /// A compromised process that reports without end must not keep main from its other work.
    #[test]
    fn reports_are_read_in_bounded_number() {
        let (channel, process) = socket::channel(OnExec::Close).expect("a channel");
        let report = StoreReport {
            state: StoreState::Reachable,
            keys: None,
        };
        let report = message(&report).expect("JSON");
        let mut sent = 0;
        while let Ok(Attempt::Done(())) = socket::send_message(process, &report, &[]) {
            sent += 1;
        }
        assert!(sent > 2 * REPORTS_MAX, "{sent}");
        let is_over = Arc::new(AtomicBool::new(false));
        let flood = {
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let _ = socket::send_message(process, &report, &[]);
                }
            })
        };
        let shared = Shared::create("dormouse-test", 1).expect("counters");
        let (keys, is_sound) = read_reports(channel, &shared);
        assert!(keys.is_none() && is_sound);
        is_over.store(true, Ordering::Relaxed);
        flood.join().expect("no panic");
    }
}
