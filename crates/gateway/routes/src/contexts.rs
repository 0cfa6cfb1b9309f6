//! TLS contexts of routes: certificates, suites and tickets, parsed once for all connections.

use crate::engine_values::{alpn, group, suite, version};
use crate::parsed::Parsed;
use crate::route::{Direction, Route};
use crate::session_cache::SessionCache;
use dormouse_config::{self as config, Config, NameUnknown, seconds};
use dormouse_engine::{
    Identity, Protocols, ServerContext, ServerSettings, TicketKeys, TicketSettings, UnknownName,
};
use dormouse_handover::{ClientTrust, Handover, OriginPem, Pem};
use dormouse_tables::backends::Backends;
use std::io;
use std::sync::Arc;
use zeroize::Zeroize as _;

/// Builds the configured routes. An error names the route and the reason.
pub fn routes(
    config: &Config,
    certificates: &[Vec<Pem>],
    clients: &[Option<ClientTrust>],
    ticket_keys: &[u8],
    backends: &Backends,
    sessions: Option<&SessionCache>,
    known: &mut Parsed,
) -> Result<Vec<Route>, String> {
    known.begin_round();
    let none = Vec::new();
    let trusts = clients.iter().chain(std::iter::repeat(&None));
    let material = certificates.iter().chain(std::iter::repeat(&none));
    let routes = config.routes.iter().zip(material.zip(trusts)).enumerate();
    routes
        .map(|(n, (route, (pems, clients)))| {
            let mut made = Route::without_context(config, route, backends);
            if let Direction::Terminate { context: room, .. } = &mut made.direction {
                let made = identities(pems, known).and_then(|all| {
                    context(config, route, (all, clients), ticket_keys, sessions, known)
                });
                *room = Some(made.map_err(|reason| of_route(config, n, &reason))?);
            }
            Ok(made)
        })
        .collect()
}

/// Builds the contexts for TLS to backends, for all routes that use it. `routes` are those of the
/// configuration, in its order, and from now on `known` has only what they use. An error names the route and the reason.
pub fn make_backend_contexts<'a>(
    config: &Config,
    pems: &[Option<OriginPem>],
    routes: impl IntoIterator<Item = &'a mut Route>,
    known: &mut Parsed,
) -> Result<(), String> {
    let all = routes.into_iter().zip(&config.routes).zip(pems);
    for (n, ((route, configured), pem)) in all.enumerate() {
        make_backend_context(configured, pem.as_ref(), route, known)
            .map_err(|reason| of_route(config, n, &reason))?;
    }
    known.forget_others();
    Ok(())
}

fn make_backend_context(
    configured: &config::Route,
    pem: Option<&OriginPem>,
    route: &mut Route,
    known: &mut Parsed,
) -> Result<(), String> {
    match (&mut route.backend_tls, pem) {
        (Some(tls), Some(pem)) => tls.make_context(configured, pem, known),
        _ => Ok(()),
    }
}

/// Adds the route's name to an error.
fn of_route(config: &Config, n: usize, reason: &str) -> String {
    let name = config.route_names().into_iter().nth(n);
    format!("route {}: {reason}", name.unwrap_or_default())
}

/// Certificates parsed by one call of [`LateContexts::load_next`], so that the caller's connections wait only briefly.
const PARSED_AT_ONCE: usize = 8;

/// Builder of contexts one by one, for a worker that serves connections meanwhile.
pub struct LateContexts {
    handover: Handover,
    sessions: Option<SessionCache>,
    next: usize,
    /// Parsed certificates of the next context.
    identities: Vec<Identity>,
}

impl LateContexts {
    /// Creates a builder for all routes of `handover`.
    pub fn new(handover: Handover, sessions: Option<SessionCache>) -> LateContexts {
        LateContexts {
            handover,
            sessions,
            next: 0,
            identities: Vec::new(),
        }
    }

    /// Parses some certificates of the next context, or builds it from the last ones. Returns `false` when all are built.
    /// An error names the route and the reason. What was parsed stays in `known` for a later reload.
    pub fn load_next(&mut self, routes: &mut [Route], known: &mut Parsed) -> Result<bool, String> {
        let n = self.next;
        let config = &self.handover.config;
        let number = self.handover.numbers.get(n);
        let route = number.and_then(|&number| routes.get_mut(usize::from(number)));
        let (Some(route), Some(configured)) = (route, config.routes.get(n)) else {
            return Ok(false);
        };
        let pems = self.handover.certificates.get(n);
        let pems = pems.map_or(&[] as &[Pem], Vec::as_slice);
        let clients = self.handover.clients.get(n).unwrap_or(&None);
        let keys = &self.handover.ticket_keys;
        let sessions = self.sessions.as_ref();
        if let Direction::Terminate { context: room, .. } = &mut route.direction {
            let left = pems.get(self.identities.len()..).unwrap_or_default();
            let some = left.get(..PARSED_AT_ONCE).unwrap_or(left);
            let parsed = identities(some, known).map_err(|reason| of_route(config, n, &reason))?;
            self.identities.extend(parsed);
            if some.len() < left.len() {
                return Ok(true);
            }
            let all = std::mem::take(&mut self.identities);
            let made = context(config, configured, (all, clients), keys, sessions, known)
                .map_err(|reason| of_route(config, n, &reason))?;
            *room = Some(made);
        }
        self.next += 1;
        let pem = self.handover.backend_tls.get(n).and_then(Option::as_ref);
        make_backend_context(configured, pem, route, known)
            .map_err(|reason| of_route(config, n, &reason))?;
        Ok(self.next < config.routes.len())
    }

    /// Replaces the handover's ticket keys with newer ones from main.
    pub fn set_ticket_keys(&mut self, exported: &[u8]) {
        self.handover.ticket_keys.zeroize();
        self.handover.ticket_keys = exported.to_vec();
    }
}

/// Makes each route perform a handshake with itself, so that the first client does not pay for lazy
/// initialisation.
pub fn warm_up(routes: &[Route]) -> io::Result<()> {
    for route in routes {
        if let Direction::Terminate {
            context: Some(context),
            ..
        } = &route.direction
        {
            let warm = context.warm_up(dormouse_handover::unix_time());
            warm.map_err(io::Error::other)?;
        }
    }
    Ok(())
}

fn identities(pems: &[Pem], known: &mut Parsed) -> Result<Vec<Identity>, String> {
    let all = pems.iter();
    all.map(|pem| known.identity(pem).map_err(|e| e.to_string()))
        .collect()
}

fn context(
    config: &Config,
    route: &config::Route,
    (identities, clients): (Vec<Identity>, &Option<ClientTrust>),
    ticket_keys: &[u8],
    sessions: Option<&SessionCache>,
    known: &mut Parsed,
) -> Result<ServerContext, String> {
    let mut settings = ServerSettings::new(identities);
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
    settings.tickets = match config.tickets.tickets {
        0 => None,
        count => Some(TicketSettings {
            keys: Some(TicketKeys::import(ticket_keys).map_err(|e| e.to_string())?),
            lifetime_s: seconds(config.tickets.ticket_lifetime),
            per_handshake: count as usize,
        }),
    };
    let sessions = sessions.map(|sessions| Arc::new(sessions.clone()) as _);
    if config.tickets.session_cache.is_some() {
        settings.sessions = sessions;
    } else if config.tickets.tickets > 0 {
        settings.sessions_by_id = sessions;
    }
    settings.unknown_name = match route.unknown_name {
        NameUnknown::Default => UnknownName::Default,
        NameUnknown::Refuse => UnknownName::Refuse,
        NameUnknown::RefuseNamed => UnknownName::RefuseNamed,
    };
    settings.awaited = (route.acme.iter().map(ToString::to_string)).collect();
    if let Some(clients) = clients {
        let verifier = known.verifier(clients).map_err(|e| e.to_string())?;
        settings.client_verifier = Some(verifier);
        settings.client_certificates = Some(clients.settings_without_lists());
    }
    ServerContext::new(settings).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsed::tests::pem;
    use crate::route;
    use dormouse_config::{Flag, Machine, Section};
    use dormouse_engine::UnixTime;
    use dormouse_handover::Descriptors;
    use dormouse_handover::share::Share;
    use std::time::Duration;

    /// The handover of a route with these certificates.
    fn handover(certificates: Vec<Pem>) -> Handover {
        let flags = [
            ("listen", "127.0.0.1:8443"),
            ("to", "echo:"),
            ("self-signed", "x"),
        ];
        let flags = flags.map(|(name, value)| Flag::new(name, value));
        let loaded = config::load(None, Section::Route, &flags, &Machine::read()).expect("valid");
        let now = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
        let keys = TicketKeys::generate(now, 3_600).expect("keys");
        Handover {
            worker: 0,
            edition: 1,
            share: Share::of(0, &loaded.plan),
            config: loaded.config,
            user: None,
            numbers: vec![0],
            certificates: vec![certificates],
            clients: vec![None],
            origins: Vec::new(),
            backend_tls: vec![None],
            ticket_keys: keys.export().to_vec(),
            descriptors: Descriptors::default(),
        }
    }

    /// Between two calls, the caller serves its connections.
    #[test]
    fn many_certificates_are_parsed_in_several_calls() {
        let names: Vec<String> = (0..20).map(|n| format!("{n}.example")).collect();
        let handover = handover(names.iter().map(|name| pem(name)).collect());
        let backends = Backends::create(1).expect("a table");
        let mut routes = route::without_contexts(&handover.config, &backends);
        let mut late = LateContexts::new(handover, None);
        let mut known = Parsed::default();
        let mut load = || late.load_next(&mut routes, &mut known).expect("valid");
        assert_eq!([load(), load(), load()], [true, true, false]);
        let Direction::Terminate { context, .. } = &routes[0].direction else {
            panic!("the route terminates TLS");
        };
        let context = context.as_ref().expect("built");
        context
            .warm_up(dormouse_handover::unix_time())
            .expect("a handshake");
        backends.fds().close();
    }
}
