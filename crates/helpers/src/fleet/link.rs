//! Main's end of the process that talks to the store.

use super::messages::{
    FirstMessage, StoreArguments, StoreReport, StoreSettings, StoreState, message,
};
use crate::helper::{self, Privileges, RestartTimer};
use crate::transport::Connector;
use dormouse_config::Config;
use dormouse_engine::TicketKeys;
use dormouse_handover::unix_time;
use dormouse_reactor::poller::{Events, Interest, Poller};
use dormouse_reactor::process::{self, Ended, Pid};
use dormouse_reactor::shared::Shared;
use dormouse_reactor::signal::Signal;
use dormouse_reactor::socket::{self, Attempt, MESSAGE_MAX};
use dormouse_reactor::{Fd, OnExec};
use dormouse_tables::counters::Common;
use std::io;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// How long the start waits for the fleet's keys; later they come whenever they come.
const START_PATIENCE: Duration = Duration::from_secs(3);

/// The process, and how to start it again.
pub struct StoreLink {
    settings: StoreSettings,
    privileges: Privileges,
    pid: Option<Pid>,
    channel: Fd,
    /// Nobody waits for the channel yet.
    is_new: bool,
    restart: RestartTimer,
}

impl StoreLink {
    /// Starts the process. It offers `keys` to a store that has none, as soon as it can.
    pub fn start(
        settings: StoreSettings,
        keys: &TicketKeys,
        config: &Config,
    ) -> Result<StoreLink, String> {
        // What is wrong with a file is told now, and to whoever starts us.
        Connector::to_store(&settings.address, settings.ca.as_deref())?;
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
        } = &self.settings;
        let told = message(&FirstMessage {
            address: address.clone(),
            secret: secret.bytes().to_vec(),
            ca: ca.clone(),
            keys: keys.export().to_vec(),
        })?;
        let (ours, theirs) = socket::channel(OnExec::Close).map_err(in_words)?;
        let started = StoreArguments { channel: theirs.0 };
        let begun = match socket::send_message(ours, &told, &[]) {
            Ok(Attempt::Done(())) => {
                helper::start("ticket-store", &self.privileges, &started, vec![theirs])
            }
            Ok(Attempt::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(error) => Err(error),
        };
        theirs.close();
        self.pid = Some(begun.inspect_err(|_| ours.close()).map_err(in_words)?);
        self.channel = ours;
        self.is_new = true;
        self.restart.started();
        Ok(())
    }

    /// The fleet's keys, if the store has them now. If it is unreachable, or slow, that is said by
    /// the process, and nobody waits any longer.
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
        let until = Instant::now() + START_PATIENCE;
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

    /// What becomes readable when there is news, if it is another than before.
    pub fn new_bell(&mut self) -> Option<Fd> {
        std::mem::take(&mut self.is_new).then_some(self.channel)
    }

    /// The latest keys, if there are newer ones than before. How it stands is counted.
    pub fn news(&mut self, shared: &Shared) -> Option<TicketKeys> {
        let mut latest = None;
        let mut room = Zeroizing::new(vec![0; MESSAGE_MAX]);
        while self.channel != Fd::NONE {
            let received = socket::receive_plain_message(self.channel, &mut room);
            let report: Option<StoreReport> = match received {
                Ok(Attempt::WouldBlock) => break,
                Ok(Attempt::Done(words)) => {
                    let bytes = room.get(..words.len).unwrap_or_default();
                    serde_json::from_slice(bytes).ok()
                }
                Err(_) => None,
            };
            // Its end, or nonsense: it is started again when it has ended.
            let Some(report) = report else {
                self.cut();
                break;
            };
            note(report.state, shared);
            let keys = report.keys.as_deref().map(TicketKeys::import);
            latest = keys.and_then(Result::ok).or(latest);
        }
        latest
    }

    /// Was it this process that has ended? Then another is started, ever later if it ends again and
    /// again.
    pub fn ended(&mut self, pid: Pid, ended: Ended, shared: &Shared) -> bool {
        if self.pid != Some(pid) {
            return false;
        }
        tracing::error!(
            "the process for the store of the ticket keys is gone ({ended}); it is started again"
        );
        self.pid = None;
        self.cut();
        note(StoreState::Unreachable, shared);
        self.restart.ended();
        true
    }

    /// How long until something has to be done for it.
    pub fn until_start_ms(&self) -> Option<u64> {
        let at_ms = self.restart.due_ms()?;
        Some(at_ms.saturating_sub(process::boottime_ms()))
    }

    /// Starts it again when it is time.
    pub fn start_if_due(&mut self, keys: &TicketKeys) {
        if !self.restart.take_due() {
            return;
        }
        if let Err(error) = self.start_process(keys) {
            tracing::error!(error, "the process for the store can't be started");
            self.restart.failed();
        }
    }

    /// Ends it. The process that is to be waited for.
    pub fn end(&mut self) -> Option<Pid> {
        self.cut();
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

fn note(state: StoreState, shared: &Shared) {
    Common::StoreState.set(shared, state as u64);
    match state {
        StoreState::Reachable => Common::StoreSeen.set(shared, unix_time().as_secs()),
        _ => Common::StoreFailures.add(shared, 1),
    }
}
