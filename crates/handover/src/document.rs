//! The handover: all that main tells a keeper and its workers, in three parts of a memory file
//! ([`parts`]). Every worker reads it again after a crash, and a new binary after an
//! upgrade.
//!
//! The file can't be changed once it is written. Main says on the board which files are its own, so
//! that no worker can put one of its making in their place ([`dormouse_reactor::process::Board`]). What a
//! worker itself has to say to the next one stands in its [`Notes`](crate::notes::Notes).
//!
//! The handover is data, not objects: a new binary can read what an old one wrote.

use crate::child::Bounds;
use crate::descriptors::Descriptors;
use crate::parts;
use crate::pem::{ClientTrust, OriginPem, Pem};
use crate::share::Share;
use dormouse_config::{Config, Log, Timeouts};
use dormouse_reactor::Fd;
use dormouse_tables::counters::Count;
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Duration;
use zeroize::{Zeroize as _, Zeroizing};

/// Everything a worker is told before it starts.
#[derive(Serialize, Deserialize)]
pub struct Handover {
    /// Which of the workers this is, from 0.
    pub worker: u32,
    /// The edition of the configuration, from 1 on.
    pub edition: u64,
    /// The configuration as main has read and checked it.
    pub config: Config,
    /// Who keepers and workers are to be; `None`: whom main is.
    pub user: Option<(u32, u32)>,
    /// This worker's share of the limits.
    pub share: Share,
    /// Numbers of the routes, then of the originations: what slots call them by.
    pub numbers: Vec<u16>,
    /// Certificates by route, in the order of `config.routes`.
    pub certificates: Vec<Vec<Pem>>,
    /// Who may vouch for clients, by route.
    #[serde(default)]
    pub clients: Vec<Option<ClientTrust>>,
    /// The same for originations: trust and own certificate.
    pub origins: Vec<OriginPem>,
    /// The same for the backends of routes with which TLS is spoken.
    #[serde(default)]
    pub backend_tls: Vec<Option<OriginPem>>,
    /// Ticket keys as they are exported; the same in all workers.
    #[serde(skip)]
    pub ticket_keys: Vec<u8>,
    /// The worker's descriptors, by number.
    pub descriptors: Descriptors,
}

/// The little that a keeper is told.
#[derive(Clone, Serialize, Deserialize)]
pub struct KeeperPart {
    /// Which of the workers its own is, from 0.
    pub worker: u32,
    /// The number of workers of the gateway.
    pub workers: u32,
    /// Level, format and target of the log.
    pub log: Log,
    /// Who keeper and worker are to be; `None`: who they are.
    pub user: Option<(u32, u32)>,
    /// What both are bound by.
    pub bounds: Bounds,
    /// A worker that gives no sign of life for so long is ended.
    pub hang_timeout_ms: Option<u64>,
    /// For so long both may go on when main has died.
    pub orphaned_ms_max: u64,
    /// Descriptor of the slots.
    pub slots: i32,
    /// Descriptor of the counters.
    pub counters: i32,
    /// Descriptor of the worker's end of its channel to main.
    pub orders: i32,
    /// Names of the counters in the order in which the writer of this has them: another binary
    /// may have others.
    pub counts: Vec<String>,
}

/// How long a worker may outlive main: it drains, then what is pending may finish. The rest is for a
/// machine that is slow.
fn orphaned_max(timeouts: &Timeouts) -> Duration {
    const MARGIN: Duration = Duration::from_secs(5);
    timeouts.shutdown_drain + timeouts.shutdown_grace + MARGIN
}

impl KeeperPart {
    fn of(handover: &Handover) -> KeeperPart {
        let config = &handover.config;
        let hang_timeout = config.timeouts.hang_timeout;
        KeeperPart {
            worker: handover.worker,
            workers: handover.share.workers,
            log: config.log.clone(),
            user: handover.user,
            bounds: Bounds::of(config),
            hang_timeout_ms: hang_timeout.map(|timeout| timeout.as_millis() as u64),
            orphaned_ms_max: orphaned_max(&config.timeouts).as_millis() as u64,
            slots: handover.descriptors.slots,
            counters: handover.descriptors.counters,
            orders: handover.descriptors.orders,
            counts: Count::ALL.iter().map(|c| c.name().to_owned()).collect(),
        }
    }

    /// Reads the part for the keeper, and nothing else.
    pub fn read(fd: Fd) -> io::Result<KeeperPart> {
        let [keeper, ..] = parts::locate(fd)?;
        Ok(serde_json::from_slice(&parts::read(fd, keeper)?)?)
    }
}

impl Handover {
    /// Writes it into a memory file which the worker's keeper inherits. Returns the descriptor.
    pub fn write(&self) -> io::Result<Fd> {
        let keeper = serde_json::to_vec(&KeeperPart::of(self))?;
        let public = serde_json::to_vec(self)?;
        parts::write(&keeper, &public, &self.secrets())
    }

    /// Writes it anew with what `fd` has for secrets, which are not read but copied.
    pub fn write_with_secrets_of(&self, fd: Fd) -> io::Result<Fd> {
        let keeper = serde_json::to_vec(&KeeperPart::of(self))?;
        let public = serde_json::to_vec(self)?;
        let [.., secrets] = parts::locate(fd)?;
        parts::write(&keeper, &public, &parts::read(fd, secrets)?)
    }

    /// Reads it.
    pub fn read(fd: Fd) -> io::Result<Handover> {
        let [_, _, secrets] = parts::locate(fd)?;
        let mut handover = Handover::read_without_secrets(fd)?;
        handover.set_secrets(&parts::read(fd, secrets)?)?;
        Ok(handover)
    }

    /// Puts in their places what [`Handover::secrets`] gave.
    pub fn set_secrets(&mut self, secrets: &[u8]) -> io::Result<()> {
        let mut rest = secrets;
        let backends = self.backend_tls.iter_mut().flatten();
        let origins = self.origins.iter_mut().chain(backends);
        let own = origins.filter_map(|origin| origin.identity.as_mut());
        for pem in self.certificates.iter_mut().flatten().chain(own) {
            pem.key = String::from_utf8(parts::take_secret(&mut rest)?.to_vec())
                .map_err(io::Error::other)?;
        }
        self.ticket_keys = parts::take_secret(&mut rest)?.to_vec();
        Ok(())
    }

    /// Reads all but the secrets: keys are empty.
    pub fn read_without_secrets(fd: Fd) -> io::Result<Handover> {
        let [_, public, _] = parts::locate(fd)?;
        Ok(serde_json::from_slice(&parts::read(fd, public)?)?)
    }

    /// Each with its length before it: keys in the order of the certificates, those of
    /// originations, those of routes for their backends, ticket keys.
    pub fn secrets(&self) -> Zeroizing<Vec<u8>> {
        let own = self.origins.iter().chain(self.backend_tls.iter().flatten());
        let own = own.filter_map(|origin| origin.identity.as_ref());
        let keys = self.certificates.iter().flatten().chain(own);
        let all = keys.map(|pem| pem.key.as_bytes());
        parts::join_secrets(all.chain([self.ticket_keys.as_slice()]).collect())
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        self.ticket_keys.zeroize();
    }
}
