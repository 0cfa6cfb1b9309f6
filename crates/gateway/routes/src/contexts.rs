//! TLS contexts of routes: certificates, suites and tickets, parsed once for all connections.

use crate::engine_values::{alpn, group, suite, version};
use crate::parsed::Parsed;
use crate::route::{Direction, Route};
use crate::session_cache::SessionCache;
use dormouse_config::{self as config, Config, NameUnknown, seconds};
use dormouse_engine::{
    Certificates, Protocols, ServerContext, ServerSettings, TicketKeys, TicketSettings, UnknownName,
};
use dormouse_handover::stored::Stored;
use dormouse_handover::{ClientTrust, Handover, OriginPem, Pem};
use dormouse_tables::backends::Backends;
use std::collections::HashSet;
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
                let made = certificates_of(pems, known).and_then(|all| {
                    context(config, route, (all, clients), ticket_keys, None, known)
                });
                *room = Some(made.map_err(|reason| of_route(config, n, &reason))?);
            }
            Ok(made)
        })
        .collect()
}

/// Builds the contexts for TLS to backends, for all routes that use it. `routes` are those of the
/// configuration, in its order. An error names the route and the reason.
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

/// What one call of [`LateContexts::load_some`] may cost, so that the caller's connections wait only briefly: less than a
/// millisecond. In units of a certificate that is known.
const COST_AT_ONCE: usize = 256;
/// Cost of a certificate that is read and parsed.
const COST_PARSED: usize = 32;
/// Cost of a context, without its certificates.
const COST_CONTEXT: usize = 32;

/// Builder of the contexts of a handover, a part at a time, for a worker that serves connections meanwhile.
pub struct LateContexts {
    handover: Handover,
    stored: Stored,
    sessions: Option<SessionCache>,
    /// Place of the next route in the configuration.
    next: usize,
    /// Certificates of the next context, as far as they are read.
    certificates: Certificates,
    /// Certificates that were parsed, not known.
    parsed: usize,
}

impl LateContexts {
    /// Creates a builder for all routes of `handover`, with the certificates in its file. From now on, `known` notes what
    /// these routes use.
    pub fn new(
        handover: Handover,
        stored: Stored,
        sessions: Option<SessionCache>,
        known: &mut Parsed,
    ) -> LateContexts {
        known.begin_round();
        LateContexts {
            handover,
            stored,
            sessions,
            next: 0,
            certificates: Certificates::new(),
            parsed: 0,
        }
    }

    /// Reads some certificates, and builds the contexts that are then complete. `routes` are by number. Returns `false` when
    /// all are built. An error names the route and the reason. What was parsed stays in `known` for a later reload.
    pub fn load_some(&mut self, routes: &mut [Route], known: &mut Parsed) -> Result<bool, String> {
        let place = |handover: &Handover, n| handover.numbers.get(n).copied().map(usize::from);
        self.load(routes, place, known)
    }

    /// As [`LateContexts::load_some`], for routes in the order of the configuration.
    pub fn load_some_in_order(
        &mut self,
        routes: &mut [Route],
        known: &mut Parsed,
    ) -> Result<bool, String> {
        self.load(routes, |_, n| Some(n), known)
    }

    /// `place` returns the place of a route of the configuration among `routes`.
    fn load(
        &mut self,
        routes: &mut [Route],
        place: impl Fn(&Handover, usize) -> Option<usize>,
        known: &mut Parsed,
    ) -> Result<bool, String> {
        let mut left = COST_AT_ONCE;
        while self.next < self.handover.config.routes.len() {
            if left == 0 {
                return Ok(true);
            }
            let place = place(&self.handover, self.next);
            let loaded = match place.and_then(|place| routes.get_mut(place)) {
                Some(route) => self.load_part(route, known, &mut left),
                None => Err("it has no number".to_owned()),
            };
            loaded.map_err(|reason| of_route(&self.handover.config, self.next, &reason))?;
        }
        Ok(false)
    }

    /// Reads certificates of the next context as far as `left` allows, or builds it.
    fn load_part(
        &mut self,
        route: &mut Route,
        known: &mut Parsed,
        left: &mut usize,
    ) -> Result<(), String> {
        let n = self.next;
        let Some(configured) = self.handover.config.routes.get(n) else {
            return Err("it is not configured".to_owned());
        };
        if let Direction::Terminate { context: room, .. } = &mut route.direction {
            while let Some(one) = self.stored.of_route(n, self.certificates.len()) {
                if *left == 0 {
                    return Ok(());
                }
                let (identity, cost) = match known.known(one) {
                    Some(identity) => (identity, 1),
                    None => {
                        self.parsed += 1;
                        (known.read(&self.stored, one)?, COST_PARSED)
                    }
                };
                self.certificates.add(&identity);
                *left = left.saturating_sub(cost);
            }
            let all = std::mem::take(&mut self.certificates);
            let clients = self.handover.clients.get(n).unwrap_or(&None);
            let (config, keys) = (&self.handover.config, &self.handover.ticket_keys);
            let sessions = self.sessions.as_ref();
            let made = context(config, configured, (all, clients), keys, sessions, known)?;
            *room = Some(made);
        }
        let pem = self.handover.backend_tls.get(n).and_then(Option::as_ref);
        make_backend_context(configured, pem, route, known)?;
        *left = left.saturating_sub(COST_CONTEXT);
        self.next += 1;
        Ok(())
    }

    /// Whether so many certificates are to be read that even known ones take several calls.
    pub fn is_long(&self) -> bool {
        let routes = 0..self.handover.config.routes.len();
        let count: usize = routes.map(|n| self.stored.count(n)).sum();
        count > COST_AT_ONCE
    }

    /// Returns the handover, when all contexts are built.
    pub fn into_handover(self) -> Handover {
        self.handover
    }

    /// Replaces the handover's ticket keys with newer ones from main.
    pub fn set_ticket_keys(&mut self, exported: &[u8]) {
        self.handover.ticket_keys.zeroize();
        self.handover.ticket_keys = exported.to_vec();
    }

    /// Certificates that were parsed, because no route had them before.
    pub fn parsed(&self) -> usize {
        self.parsed
    }
}

/// Makes routes perform a handshake with themselves, one of each kind: of thousands of routes, most differ in names only.
/// So the first client does not pay for lazy initialisation, and a context that cannot work at all is found before a client
/// finds it. `beat` is called after each.
pub fn warm_up(routes: &[Route], beat: impl Fn()) -> io::Result<()> {
    let mut kinds = HashSet::new();
    for context in routes.iter().filter_map(Route::context) {
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

fn context(
    config: &Config,
    route: &config::Route,
    (certificates, clients): (Certificates, &Option<ClientTrust>),
    ticket_keys: &[u8],
    sessions: Option<&SessionCache>,
    known: &mut Parsed,
) -> Result<ServerContext, String> {
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
    settings.awaited = route.awaited();
    if let Some(clients) = clients {
        let verifier = known.verifier(clients).map_err(|e| e.to_string())?;
        settings.client_verifier = Some(verifier);
        settings.client_certificates = Some(clients.settings_without_lists());
    }
    ServerContext::with_certificates(settings, certificates).map_err(|e| e.to_string())
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

    /// Loads all contexts of a handover as a worker does. Returns the parsed certificates, and the number of calls.
    fn load(certificates: Vec<Pem>, known: &mut Parsed) -> (usize, usize) {
        let file = handover(certificates).write().expect("a file");
        let (handover, stored) = Handover::open(file).expect("a handover");
        let backends = Backends::create(1).expect("a table");
        let mut routes = route::without_contexts(&handover.config, &backends);
        let mut late = LateContexts::new(handover, stored, None, known);
        let mut calls = 1;
        let mut parsed = 0;
        while late.load_some(&mut routes, known).expect("valid") {
            let in_this_call = late.parsed() - parsed;
            assert!(in_this_call <= 8, "{in_this_call} in call {calls}");
            (calls, parsed) = (calls + 1, late.parsed());
        }
        let Direction::Terminate { context, .. } = &routes[0].direction else {
            panic!("the route terminates TLS");
        };
        let context = context.as_ref().expect("built");
        context
            .warm_up(dormouse_handover::unix_time())
            .expect("a handshake");
        backends.fds().close();
        file.close();
        (late.parsed(), calls)
    }

    /// Between two calls, the caller serves its connections.
    #[test]
    fn many_certificates_are_parsed_in_several_calls_and_once() {
        let names: Vec<String> = (0..20).map(|n| format!("{n}.example")).collect();
        let mut all: Vec<Pem> = names.iter().map(|name| pem(name)).collect();
        let known = &mut Parsed::default();
        assert_eq!(load(all.clone(), known), (20, 3));
        all[7] = pem("7.example");
        assert_eq!(load(all.clone(), known), (1, 1), "one has changed");
        assert_eq!(known.forget_others().len(), 1);
        // Known ones are added in several calls, too.
        let many = all.iter().cycle().take(2_000).cloned().collect();
        assert_eq!(load(many, known), (0, 8));
    }
}
