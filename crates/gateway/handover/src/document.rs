//! The handover: everything that a keeper and its workers get from main, in the parts of a memory file
//! ([`parts`]). Each worker reads it again after a crash, and a new binary after an upgrade.
//!
//! The file can't be changed after it is written. Main registers its files on the board, so that a
//! worker can't substitute a file of its own ([`dormouse_reactor::process::Board`]). What a worker itself
//! adds for the next worker is in its [`Notes`](crate::notes::Notes).
//!
//! The handover is data, not objects: a new binary can read what an old one wrote.

use crate::child::Bounds;
use crate::descriptors::Descriptors;
use crate::lists::{self, Texts};
use crate::parts;
use crate::pem::{ClientTrust, OriginPem, Pem};
use crate::share::Share;
use crate::stored::{Packed, Stored};
use dormouse_config::{Config, Log, Timeouts};
use dormouse_reactor::Fd;
use dormouse_tables::counters::Count;
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Duration;
use zeroize::{Zeroize as _, Zeroizing};

/// Everything that a worker needs to start.
#[derive(Serialize, Deserialize)]
pub struct Handover {
    /// The worker's number, from 0.
    pub worker: u32,
    /// The edition of the configuration, from 1 on.
    pub edition: u64,
    /// The configuration, which main has checked.
    pub config: Config,
    /// User and group ids of keepers and workers. `None`: main's.
    pub user: Option<(u32, u32)>,
    /// This worker's share of the limits.
    pub share: Share,
    /// Numbers of the routes, then of the originations, as slots use them.
    pub numbers: Vec<u16>,
    /// Certificates by route, in the order of `config.routes`. They pass in parts of their own ([`Stored`]), and a worker does
    /// not read all of them at once.
    #[serde(skip)]
    pub certificates: Vec<Vec<Pem>>,
    /// Trust settings for client certificates, by route.
    pub clients: Vec<Option<ClientTrust>>,
    /// Trust and own certificate of each origination.
    pub origins: Vec<OriginPem>,
    /// Trust and own certificate for the backends of each route with `backend_tls`.
    pub backend_tls: Vec<Option<OriginPem>>,
    /// Exported ticket keys, which are the same in all workers.
    #[serde(skip)]
    pub ticket_keys: Vec<u8>,
    /// Numbers of the worker's descriptors.
    pub descriptors: Descriptors,
}

/// The part of the handover for the keeper.
#[derive(Clone, Serialize, Deserialize)]
pub struct KeeperPart {
    /// The number of the keeper's worker, from 0.
    pub worker: u32,
    /// The number of workers of the gateway.
    pub workers: u32,
    /// Level, format and target of the log.
    pub log: Log,
    /// User and group ids of keeper and worker. `None`: unchanged.
    pub user: Option<(u32, u32)>,
    /// Confinement of keeper and worker.
    pub bounds: Bounds,
    /// Time without a heartbeat after which the keeper kills the worker.
    pub hang_timeout_ms: Option<u64>,
    /// Maximum time for which keeper and worker continue after main's death.
    pub orphaned_ms_max: u64,
    /// Descriptor of the slots.
    pub slots: i32,
    /// Descriptor of the counters.
    pub counters: i32,
    /// Descriptor of the worker's end of its channel to main.
    pub orders: i32,
    /// Names of the counters in this binary's order. Another binary may have another order.
    pub counts: Vec<String>,
}

/// Maximum time in milliseconds for which keeper and worker may outlive main: for the drain, for pending bytes, and a margin
/// for slow machines.
pub fn orphaned_ms_max(timeouts: &Timeouts) -> u64 {
    const MARGIN: Duration = Duration::from_secs(5);
    (timeouts.shutdown_drain + timeouts.shutdown_grace + MARGIN).as_millis() as u64
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
            orphaned_ms_max: orphaned_ms_max(&config.timeouts),
            slots: handover.descriptors.slots,
            counters: handover.descriptors.counters,
            orders: handover.descriptors.orders,
            counts: Count::ALL.iter().map(|c| c.name().to_owned()).collect(),
        }
    }

    /// Reads only the part for the keeper.
    pub fn read(fd: Fd) -> io::Result<KeeperPart> {
        let [keeper, ..] = parts::locate(fd)?;
        Ok(serde_json::from_slice(&parts::read(fd, keeper)?)?)
    }
}

impl Handover {
    /// Writes the handover into a memory file, which the worker's keeper inherits. Returns the descriptor.
    pub fn write(&self) -> io::Result<Fd> {
        self.write_packed(&Packed::of(&self.certificates))
    }

    /// As [`Handover::write`], with its certificates as they are packed for all workers.
    pub fn write_packed(&self, packed: &Packed) -> io::Result<Fd> {
        let keeper = serde_json::to_vec(&KeeperPart::of(self))?;
        let public = serde_json::to_vec(self)?;
        self.write_parts(&keeper, &public, packed)
    }

    /// Writes a memory file with these first two parts, and what is not in JSON: secrets and certificates.
    pub fn write_with(&self, keeper: &[u8], public: &[u8]) -> io::Result<Fd> {
        self.write_parts(keeper, public, &Packed::of(&self.certificates))
    }

    fn write_parts(&self, keeper: &[u8], public: &[u8], packed: &Packed) -> io::Result<Fd> {
        let Packed {
            table,
            certificates,
        } = packed;
        parts::write_all([keeper, public, &self.secrets(), table, certificates])
    }

    /// Writes the handover with the secrets and the certificates copied from the file `fd`.
    pub fn write_with_secrets_of(&self, fd: Fd) -> io::Result<Fd> {
        let keeper = serde_json::to_vec(&KeeperPart::of(self))?;
        let public = serde_json::to_vec(self)?;
        let [_, _, rest @ ..] = parts::locate(fd)?;
        let [secrets, table, certificates] = rest.map(|part| parts::read(fd, part));
        parts::write_all([&keeper, &public, &secrets?, &table?, &certificates?])
    }

    /// Reads the whole handover.
    pub fn read(fd: Fd) -> io::Result<Handover> {
        let (mut handover, stored) = Handover::open(fd)?;
        handover.certificates = stored.read_all()?;
        Ok(handover)
    }

    /// Reads the handover without its certificates, which the second value reads from the file.
    pub fn open(fd: Fd) -> io::Result<(Handover, Stored)> {
        let mut handover = Handover::read_without_secrets(fd)?;
        handover.read_secrets(fd)?;
        Ok((handover, Stored::locate(fd)?))
    }

    /// Sets the secrets to those in the file `fd`.
    pub fn read_secrets(&mut self, fd: Fd) -> io::Result<()> {
        let [_, _, secrets, ..] = parts::locate(fd)?;
        self.set_secrets(&parts::read(fd, secrets)?)
    }

    /// Sets the secrets from the bytes that [`Handover::secrets`] returned.
    pub fn set_secrets(&mut self, secrets: &[u8]) -> io::Result<()> {
        let mut rest = secrets;
        let backends = self.backend_tls.iter_mut().flatten();
        let origins = self.origins.iter_mut().chain(backends);
        for pem in origins.filter_map(|origin| origin.identity.as_mut()) {
            let key = String::from_utf8(parts::take_secret(&mut rest)?.to_vec());
            let key = key.map_err(io::Error::other)?;
            pem.change(|pem| pem.key = key);
        }
        self.ticket_keys = parts::take_secret(&mut rest)?.to_vec();
        let clients = self.clients.iter_mut().flatten();
        let of_clients = clients.flat_map(|trust| &mut trust.crls);
        let backends = self.backend_tls.iter_mut().flatten();
        let origins = self.origins.iter_mut().chain(backends);
        let of_servers = origins.flat_map(|origin| &mut origin.revocation.crls);
        lists::set_texts(of_clients.chain(of_servers), &mut rest)
    }

    /// Reads everything except the secrets and the certificates; keys and revocation lists are empty.
    pub fn read_without_secrets(fd: Fd) -> io::Result<Handover> {
        let [_, public, ..] = parts::locate(fd)?;
        Ok(serde_json::from_slice(&parts::read(fd, public)?)?)
    }

    /// Returns the secrets, each preceded by its length: keys of originations, keys for backends with TLS, ticket keys. The
    /// texts of revocation lists follow.
    pub fn secrets(&self) -> Zeroizing<Vec<u8>> {
        let origins = self.origins.iter().chain(self.backend_tls.iter().flatten());
        let own = (origins.clone()).filter_map(|origin| origin.identity.as_ref());
        let keys = own.map(|pem| pem.key.as_bytes());
        let of_clients = self.clients.iter().flatten().flat_map(|trust| &trust.crls);
        let of_servers = origins.flat_map(|origin| &origin.revocation.crls);
        let texts = Texts::of(of_clients.chain(of_servers));
        let secrets = keys.chain([self.ticket_keys.as_slice()]);
        parts::join_secrets(secrets.chain(texts.parts()).collect())
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        self.ticket_keys.zeroize();
    }
}
