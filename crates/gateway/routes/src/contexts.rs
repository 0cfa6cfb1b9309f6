//! TLS contexts of routes: certificates, suites and tickets, parsed once for all connections.

use crate::engine_values::{alpn, group, suite, version};
use crate::parsed::{Parsed, Uses};
use crate::route::{Direction, MadeFrom, Route};
use crate::session_cache::SessionCache;
use dormouse_config::{self as config, Config, NameUnknown, RouteDefaults, seconds};
use dormouse_engine::{
    Certificates, Protocols, ServerContext, ServerSettings, TicketKeyring, TicketSettings,
    UnknownName,
};
use dormouse_handover::stored::Stored;
use dormouse_handover::{ClientTrust, OriginPem, Pem};
use dormouse_tables::backends::Backends;
use std::collections::HashSet;
use std::io;
use std::sync::Arc;

/// Builds the configured routes with all their contexts. An error names the route and the reason.
pub fn routes(
    config: &Config,
    material: &Trusts<'_>,
    keyring: &TicketKeyring,
    backends: &Backends,
    known: &mut Parsed,
) -> Result<Vec<Route>, String> {
    known.begin_round();
    let defaults = config.route_defaults();
    let common = Common {
        defaults: &defaults,
        keyring,
        sessions: None,
        stored: None,
    };
    let routes = config.routes.iter().zip(config.route_names()).enumerate();
    routes
        .map(|(n, (route, name))| {
            let mut made = Route::without_context(&defaults, name, route, backends);
            let pems = material.certificates.get(n).map_or(&[][..], Vec::as_slice);
            let clients = material.clients.get(n).and_then(Option::as_ref);
            let of_backends = material.backend_tls.get(n).and_then(Option::as_ref);
            let built = certificates_of(pems, known).and_then(|all| {
                common.build_contexts(&mut made, route, (all, clients, of_backends), known)
            });
            match built {
                Ok(()) => Ok(made),
                Err(reason) => Err(of_route(&made.name, &reason)),
            }
        })
        .collect()
}

/// Certificates and trust of all routes, in their order.
pub struct Trusts<'a> {
    /// Certificates.
    pub certificates: &'a [Vec<Pem>],
    /// Trust settings for client certificates.
    pub clients: &'a [Option<ClientTrust>],
    /// Trust and own certificate for backends.
    pub backend_tls: &'a [Option<OriginPem>],
}

/// Adds the route's name to an error.
pub(crate) fn of_route(name: &str, reason: &str) -> String {
    format!("route {name}: {reason}")
}

/// What the contexts of all routes have in common.
#[derive(Clone, Copy)]
pub(crate) struct Common<'a> {
    pub(crate) defaults: &'a RouteDefaults,
    pub(crate) keyring: &'a TicketKeyring,
    pub(crate) sessions: Option<&'a SessionCache>,
    /// Where the texts of revocation lists are, if not in the trust settings.
    pub(crate) stored: Option<&'a Stored>,
}

impl Common<'_> {
    /// Builds the contexts of a route for clients and for backends.
    pub(crate) fn build_contexts(
        self,
        route: &mut Route,
        configured: &config::Route,
        (certificates, clients, of_backends): (
            Certificates,
            Option<&ClientTrust>,
            Option<&OriginPem>,
        ),
        known: &mut Parsed,
    ) -> Result<(), String> {
        let mut uses = Uses::default();
        if let Direction::Terminate { context, .. } = &mut route.direction {
            let mut settings = self.settings(configured);
            if let Some(clients) = clients {
                let (id, verifier) = known.verifier(clients, self.stored)?;
                uses.verifier = Some(id);
                settings.client_verifier = Some(verifier);
                settings.client_certificates = Some(clients.settings_without_lists());
            }
            let made = ServerContext::with_certificates(settings, certificates);
            *context = Some(made.map_err(|error| error.to_string())?);
        }
        if let (Some(tls), Some(pem)) = (&mut route.backend_tls, of_backends) {
            uses.store = Some(tls.make_context(configured, pem, self.stored, known)?);
        }
        route.made_from = MadeFrom {
            digest: None,
            client_rules: clients.map(|clients| known.rules(clients)),
            uses,
        };
        Ok(())
    }

    /// The settings of a route, without client certificates.
    fn settings(self, route: &config::Route) -> ServerSettings {
        let tickets = &self.defaults.tickets;
        let mut settings = ServerSettings::new(Vec::new());
        settings.alpn = alpn(&route.alpn);
        settings.protocols = Protocols {
            min: version(route.oldest_version()),
            max: version(route.max_version),
        };
        if !route.suites.is_empty() {
            settings.suites = route.suites.iter().copied().map(suite).collect();
        }
        if !route.groups.is_empty() {
            settings.groups = route.groups.iter().copied().map(group).collect();
        }
        settings.tickets = match tickets.tickets {
            0 => None,
            count => Some(TicketSettings {
                keys: None,
                lifetime_s: seconds(tickets.ticket_lifetime),
                per_handshake: count as usize,
            }),
        };
        settings.ticket_keyring = Some(self.keyring.clone());
        let sessions = (self.sessions).map(|sessions| Arc::new(sessions.clone()) as _);
        if tickets.session_cache.is_some() {
            settings.sessions = sessions;
        } else if tickets.tickets > 0 {
            settings.sessions_by_id = sessions;
        }
        settings.unknown_name = match route.unknown_name {
            NameUnknown::Default => UnknownName::Default,
            NameUnknown::Refuse => UnknownName::Refuse,
            NameUnknown::RefuseNamed => UnknownName::RefuseNamed,
        };
        settings.awaited = route.awaited();
        settings
    }
}

/// Makes routes perform a handshake with themselves, one of each kind: of thousands of routes, most differ in names only.
/// So the first client does not pay for lazy initialisation, and a context that cannot work at all is found before a client
/// finds it. `beat` is called after each.
pub fn warm_up<'a>(routes: impl IntoIterator<Item = &'a Route>, beat: impl Fn()) -> io::Result<()> {
    let mut kinds = HashSet::new();
    for context in routes.into_iter().filter_map(Route::context) {
        if kinds.insert(context.kind()) {
            let warm = context.warm_up(dormouse_handover::unix_time());
            warm.map_err(io::Error::other)?;
            beat();
        }
    }
    Ok(())
}

fn certificates_of(pems: &[Pem], known: &mut Parsed) -> Result<Certificates, String> {
    let mut all = Certificates::new();
    for pem in pems {
        all.add(&known.identity(pem)?);
    }
    Ok(all)
}
