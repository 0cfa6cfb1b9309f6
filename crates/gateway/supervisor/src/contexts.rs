//! TLS contexts, built once by main from the same input as in the workers, so that an invalid setting
//! fails here, before it changes anything.

use crate::material::Material;
use dormouse_config::Config;
use dormouse_engine::TicketKeys;
use dormouse_routes::contexts;
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
    let routes = of_routes(config, material, keys, backends)?;
    of_backends(config, material, routes)?;
    of_origins(config, material)
}

/// Whether the contexts of two configurations with the same material are the same.
pub(crate) fn are_same(one: &Config, other: &Config) -> bool {
    one.routes == other.routes && one.originate == other.originate && one.tickets == other.tickets
}

/// Builds the contexts of all routes.
pub(crate) fn of_routes(
    config: &Config,
    material: &Material,
    keys: &TicketKeys,
    backends: &Backends,
) -> Result<Vec<Route>, String> {
    contexts::routes(
        config,
        &material.certificates,
        &material.client_trust,
        &keys.export(),
        backends,
        // Main has no use for parsed certificates.
        &mut Parsed::default(),
    )
}

/// Builds the contexts of routes with TLS to their backends.
pub(crate) fn of_backends(
    config: &Config,
    material: &Material,
    mut routes: Vec<Route>,
) -> Result<(), String> {
    let known = &mut Parsed::default();
    contexts::make_backend_contexts(config, &material.backend_tls, &mut routes, known)
}

/// Builds the contexts of originations.
pub(crate) fn of_origins(config: &Config, material: &Material) -> Result<(), String> {
    let alone = WorkerNumber {
        worker: 0,
        workers: 1,
    };
    origin::origins(config, &material.origins, None, alone).map(drop)
}
