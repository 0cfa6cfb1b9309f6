//! TLS contexts, built once by main from the same input as in the workers, so that an invalid setting
//! fails here, before it changes anything.

use crate::material::Material;
use dormouse_config::Config;
use dormouse_engine::{TicketKeyring, TicketKeys};
use dormouse_routes::contexts::{self, Trusts};
use dormouse_routes::origin::{self, WorkerNumber};
use dormouse_routes::parsed::Parsed;
use dormouse_routes::route::Route;
use dormouse_tables::backends::Backends;

/// Builds all contexts once, to find errors.
pub(crate) fn of_all(
    config: &Config,
    material: &Material,
    keys: &TicketKeys,
    backends: &Backends,
) -> Result<(), String> {
    of_routes(config, material, keys, backends)?;
    of_origins(config, material)
}

/// Whether the contexts of two configurations with the same material are the same.
pub(crate) fn are_same(one: &Config, other: &Config) -> bool {
    one.routes == other.routes && one.originate == other.originate && one.tickets == other.tickets
}

/// Builds the contexts of all routes, for clients and for backends.
pub(crate) fn of_routes(
    config: &Config,
    material: &Material,
    keys: &TicketKeys,
    backends: &Backends,
) -> Result<Vec<Route>, String> {
    let keyring = TicketKeyring::new(keys).map_err(|error| error.to_string())?;
    let trusts = Trusts {
        certificates: &material.certificates,
        clients: &material.client_trust,
        backend_tls: &material.backend_tls,
    };
    // Main has no use for parsed certificates.
    let known = &mut Parsed::default();
    contexts::routes(config, &trusts, &keyring, backends, known)
}

/// Builds the contexts of originations.
pub(crate) fn of_origins(config: &Config, material: &Material) -> Result<(), String> {
    let alone = WorkerNumber {
        worker: 0,
        workers: 1,
    };
    origin::origins(config, &material.origins, None, alone).map(drop)
}
