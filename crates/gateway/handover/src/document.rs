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
use crate::parts;
use crate::pem::{ClientTrust, OriginPem, Pem};
use crate::share::Share;
use crate::stored::{Packed, RouteToStore, Stored};
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
    /// The configuration, which main has checked. Its routes pass one by one ([`Stored`]).
    pub config: Config,
    /// User and group ids of keepers and workers. `None`: main's.
    pub user: Option<(u32, u32)>,
    /// This worker's share of the limits.
    pub share: Share,
    /// Numbers of the routes, then of the originations, as slots use them.
    pub numbers: Vec<u16>,
    /// Certificates by route, in the order of `config.routes`. They pass with the routes.
    #[serde(skip)]
    pub certificates: Vec<Vec<Pem>>,
    /// Trust settings for client certificates, by route. They pass with the routes.
    #[serde(skip)]
    pub clients: Vec<Option<ClientTrust>>,
    /// Trust and own certificate of each origination.
    pub origins: Vec<OriginPem>,
    /// Trust and own certificate for the backends of each route with `backend_tls`. They pass with the routes.
    #[serde(skip)]
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

/// The routes of a configuration with all that they depend on, to be packed once for all workers.
pub struct RoutesToPack<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// Certificates by route.
    pub certificates: &'a [Vec<Pem>],
    /// Trust settings for client certificates, by route.
    pub clients: &'a [Option<ClientTrust>],
    /// Trust and own certificate for backends, by route.
    pub backend_tls: &'a [Option<OriginPem>],
    /// Trust of each origination, for its revocation lists.
    pub origins: &'a [OriginPem],
}

impl RoutesToPack<'_> {
    /// Packs them.
    ///
    /// # Errors
    /// A path is not text.
    pub fn pack(&self) -> io::Result<Packed> {
        let defaults = serde_json::to_vec(&self.config.route_defaults())?;
        let names = self.config.route_names();
        let routes = self.config.routes.iter().zip(&names).enumerate();
        let routes = routes.map(|(n, (route, name))| RouteToStore {
            name,
            route,
            clients: self.clients.get(n).and_then(Option::as_ref),
            backend_tls: self.backend_tls.get(n).and_then(Option::as_ref),
            certificates: self.certificates.get(n).map_or(&[], Vec::as_slice),
        });
        let origins = self.origins.iter();
        let lists = origins.flat_map(|origin| &origin.revocation.crls);
        Packed::of(&defaults, routes, lists)
    }
}

impl Handover {
    /// Returns the numbers of the originations, which come after those of the routes.
    pub fn numbers_of_originations(&self) -> &[u16] {
        let routes = (self.numbers.len()).saturating_sub(self.config.originate.len());
        self.numbers.get(routes..).unwrap_or_default()
    }

    /// Writes the handover into a memory file, which the worker's keeper inherits. Returns the descriptor.
    pub fn write(&self) -> io::Result<Fd> {
        self.write_packed(&self.packed()?)
    }

    /// As [`Handover::write`], with its routes as they are packed for all workers.
    pub fn write_packed(&self, packed: &Packed) -> io::Result<Fd> {
        let keeper = serde_json::to_vec(&KeeperPart::of(self))?;
        let public = serde_json::to_vec(self)?;
        self.write_parts(&keeper, &public, packed)
    }

    /// Writes a memory file with these first two parts, and what is not in JSON: secrets and routes.
    pub fn write_with(&self, keeper: &[u8], public: &[u8]) -> io::Result<Fd> {
        self.write_parts(keeper, public, &self.packed()?)
    }

    fn packed(&self) -> io::Result<Packed> {
        let routes = RoutesToPack {
            config: &self.config,
            certificates: &self.certificates,
            clients: &self.clients,
            backend_tls: &self.backend_tls,
            origins: &self.origins,
        };
        routes.pack()
    }

    fn write_parts(&self, keeper: &[u8], public: &[u8], packed: &Packed) -> io::Result<Fd> {
        let Packed {
            table,
            certificates,
            texts,
        } = packed;
        parts::write_all([keeper, public, &self.secrets(), table, certificates, texts])
    }

    /// Writes the handover, which has no routes, with what is not in its JSON copied from the file `fd`, and the keeper's bounds,
    /// which depend on routes.
    pub fn write_with_routes_of(&self, fd: Fd) -> io::Result<Fd> {
        let mut keeper = KeeperPart::of(self);
        keeper.bounds = KeeperPart::read(fd)?.bounds;
        let keeper = serde_json::to_vec(&keeper)?;
        let public = serde_json::to_vec(self)?;
        let [_, _, rest @ ..] = parts::locate(fd)?;
        let [secrets, table, certificates, texts] = rest.map(|part| parts::read(fd, part));
        let (secrets, table) = (secrets?, table?);
        parts::write_all([&keeper, &public, &secrets, &table, &certificates?, &texts?])
    }

    /// Reads the whole handover.
    pub fn read(fd: Fd) -> io::Result<Handover> {
        let (mut handover, stored) = Handover::open(fd)?;
        handover.set_routes(&stored)?;
        Ok(handover)
    }

    /// Reads the handover without its routes, which the second value reads from the file.
    pub fn open(fd: Fd) -> io::Result<(Handover, Stored)> {
        let mut handover = Handover::read_without_secrets(fd)?;
        let stored = handover.read_secrets(fd)?;
        Ok((handover, stored))
    }

    /// Sets the secrets to those in the file `fd`. Returns the routes.
    pub fn read_secrets(&mut self, fd: Fd) -> io::Result<Stored> {
        let [_, _, secrets, ..] = parts::locate(fd)?;
        self.set_secrets(&parts::read(fd, secrets)?)?;
        let stored = Stored::locate(fd)?;
        let origins = self.origins.iter_mut();
        stored.read_lists(origins.flat_map(|origin| &mut origin.revocation.crls))?;
        Ok(stored)
    }

    /// Reads all routes.
    pub fn set_routes(&mut self, stored: &Stored) -> io::Result<()> {
        for (route, certificates) in stored.read_all()? {
            self.config.routes.push(route.route);
            self.certificates.push(certificates);
            self.clients.push(route.clients);
            self.backend_tls.push(route.backend_tls);
        }
        Ok(())
    }

    /// Sets the secrets from the bytes that [`Handover::secrets`] returned.
    pub fn set_secrets(&mut self, secrets: &[u8]) -> io::Result<()> {
        let mut rest = secrets;
        let identities = self.origins.iter_mut();
        for pem in identities.filter_map(|origin| origin.identity.as_mut()) {
            let key = String::from_utf8(parts::take_secret(&mut rest)?.to_vec());
            let key = key.map_err(io::Error::other)?;
            pem.change(|pem| pem.key = key);
        }
        self.ticket_keys = parts::take_secret(&mut rest)?.to_vec();
        match rest.is_empty() {
            true => Ok(()),
            false => Err(io::Error::other(
                "the secrets of the handover are malformed",
            )),
        }
    }

    /// Reads everything except the secrets and the routes; keys and revocation lists are empty.
    pub fn read_without_secrets(fd: Fd) -> io::Result<Handover> {
        let [_, public, ..] = parts::locate(fd)?;
        Ok(serde_json::from_slice(&parts::read(fd, public)?)?)
    }

    /// Returns the secrets, each preceded by its length: keys of originations, ticket keys.
    pub fn secrets(&self) -> Zeroizing<Vec<u8>> {
        let own = self.origins.iter();
        let own = own.filter_map(|origin| origin.identity.as_ref());
        let keys = own.map(|pem| pem.key.as_bytes());
        parts::join_secrets(keys.chain([self.ticket_keys.as_slice()]).collect())
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        self.ticket_keys.zeroize();
    }
}
