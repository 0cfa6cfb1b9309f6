//! A route at work: what its configuration became in this process.

use crate::backend_tls::{self, BackendTls};
use crate::backends::Backends;
use crate::balance::{Target, Targets};
use crate::config::{
    self, Config, NameUnknown, Network, Originate, ProxyProtocol, Sockets, SourceAddress, TlsGroup,
    TlsSuite, TlsVersion, Truncation, Upstream,
};
use crate::door::Takes;
use crate::handover::{ClientTrust, Handover, Pem};
use crate::identities::Identities;
use crate::origin::Origin;
use crate::session_cache::Sessions;
use dormouse_engine::{
    Group, Identity, Protocols, ServerContext, ServerSettings, SettingsError, Suite, TicketKeys,
    TicketSettings, UnixTime, UnknownName, Version,
};
use dormouse_reactor::socket::{self, Addr, ConnectOptions, Keepalive};
use dormouse_reactor::{Fd, OnExec};
use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use zeroize::Zeroize as _;

/// One way through the program.
pub(crate) struct Route {
    pub(crate) direction: Direction,
    /// Addresses from which the backend is connected to; none: see [`Route::source`].
    pub(crate) sources: Vec<IpAddr>,
    /// The backend as messages name it.
    pub(crate) backend_name: String,
    /// Who the client is, and who may be one.
    pub(crate) access: Access,
    /// What a TCP end without close_notify means here.
    pub(crate) truncation: Truncation,
    /// How TLS is spoken with the backends, if it is.
    pub(crate) backend_tls: Option<BackendTls>,
    /// What the kernel is asked for, on both sides.
    pub(crate) sockets: SocketOptions,
    /// Which of the clients that come by its address are its own.
    pub(crate) takes: Takes,
}

/// Who the client is, who says so, who is told, and who may come in.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    /// Whether and how the backend is told who the client is.
    pub(crate) proxy_protocol: ProxyProtocol,
    /// Who says for others who they are.
    pub(crate) accept_proxy_from: Vec<Network>,
    /// Who may connect; empty: all.
    pub(crate) allow: Vec<Network>,
    /// Who may not.
    pub(crate) deny: Vec<Network>,
}

impl Access {
    fn of(route: &crate::config::Route) -> Access {
        Access {
            proxy_protocol: route.proxy_protocol,
            accept_proxy_from: route.accept_proxy_from.clone(),
            allow: route.allow.clone(),
            deny: route.deny.clone(),
        }
    }
}

/// Which side of a route speaks TLS.
pub(crate) enum Direction {
    /// Those who connect to us; plaintext goes to a backend.
    Terminate {
        /// Certificates, keys and suites: one for all connections, parsed once. `None` for the
        /// first moments of a worker that found connections: they are served before it is parsed.
        context: Option<ServerContext>,
        /// Where plaintext goes; `None`: back to where it came from.
        targets: Option<Targets>,
    },
    /// Nobody: what comes in goes to a backend as it is.
    PassThrough(Targets),
    /// Those whom we connect to; plaintext comes from local clients.
    Originate(Origin),
    /// A reload has removed the route. Its connections go on; nothing new is for it.
    Gone,
}

impl Route {
    /// Where plaintext goes. None for `echo:`, and where plaintext comes in.
    pub(crate) fn targets(&self) -> Option<&Targets> {
        match &self.direction {
            Direction::Terminate { targets, .. } => targets.as_ref(),
            Direction::PassThrough(targets) => Some(targets),
            Direction::Originate(_) | Direction::Gone => None,
        }
    }

    /// The backend of this name has other addresses from now on. True: it is one of this route's.
    pub(crate) fn set_addresses(
        &mut self,
        name: &str,
        addresses: &[SocketAddr],
        known: &Backends,
    ) -> bool {
        if let Some(tls) = &mut self.backend_tls {
            tls.set_addresses(name, addresses);
        }
        match &mut self.direction {
            Direction::Terminate {
                targets: Some(targets),
                ..
            } => targets.set_addresses(name, addresses, known),
            _ => false,
        }
    }

    /// What stands where a route was that a reload has removed.
    fn gone(sockets: &Sockets) -> Route {
        Route {
            direction: Direction::Gone,
            backend_name: "none: a reload has removed the route".to_owned(),
            access: Access::default(),
            truncation: Truncation::Abort,
            backend_tls: None,
            sources: Vec::new(),
            sockets: SocketOptions::new(sockets),
            takes: Takes::default(),
        }
    }

    /// Has a reload removed it?
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.direction, Direction::Gone)
    }

    /// Does TLS go to its backend untouched?
    pub(crate) fn passes_through(&self) -> bool {
        matches!(self.direction, Direction::PassThrough(_))
    }

    /// Must the first bytes of a client be read to know whether it is for this route?
    pub(crate) fn is_for_some(&self) -> bool {
        self.passes_through() || self.takes.is_for_some()
    }

    /// Is there no plain side?
    pub(crate) fn is_echo(&self) -> bool {
        matches!(self.direction, Direction::Terminate { targets: None, .. })
    }

    /// Takes new ticket keys into use, where TLS comes in.
    pub(crate) fn replace_ticket_keys(&self, keys: &TicketKeys) -> Result<(), SettingsError> {
        match &self.direction {
            Direction::Terminate {
                context: Some(context),
                ..
            } => context.replace_ticket_keys(keys),
            Direction::Terminate { context: None, .. }
            | Direction::PassThrough(_)
            | Direction::Originate(_)
            | Direction::Gone => Ok(()),
        }
    }
}

impl Default for Access {
    /// Everybody may come, and nobody is told.
    fn default() -> Access {
        Access {
            proxy_protocol: ProxyProtocol::Off,
            accept_proxy_from: Vec::new(),
            allow: Vec::new(),
            deny: Vec::new(),
        }
    }
}

/// Puts each route at the place of its number: what a slot says of its route is true for as long
/// as the connection lives, whatever reloads do. Numbers which nobody has any more are gone.
pub(crate) fn by_number(routes: Vec<Route>, numbers: &[u16], sockets: &Sockets) -> Vec<Route> {
    let len = numbers.iter().max().map_or(0, |&max| usize::from(max) + 1);
    let mut placed: Vec<Route> = (0..len).map(|_| Route::gone(sockets)).collect();
    for (route, &number) in routes.into_iter().zip(numbers) {
        if let Some(place) = placed.get_mut(usize::from(number)) {
            *place = route;
        }
    }
    placed
}

/// The routes of originations, which follow those for TLS that comes in.
pub(crate) fn originations(config: &Config, origins: Vec<Origin>) -> Vec<Route> {
    let route = |(origin, originate): (Origin, &Originate)| {
        let names: Vec<&str> = originate.to.iter().map(|to| to.given.as_str()).collect();
        Route {
            direction: Direction::Originate(origin),
            sources: Vec::new(),
            backend_name: names.join(", "),
            access: Access::default(),
            truncation: originate.truncation,
            backend_tls: None,
            sockets: SocketOptions::new(&config.sockets),
            takes: Takes::default(),
        }
    };
    origins
        .into_iter()
        .zip(&config.originate)
        .map(route)
        .collect()
}

/// Makes the configured routes ready. The error says which route, and what is wrong.
pub(crate) fn routes(
    config: &Config,
    certificates: &[Vec<Pem>],
    clients: &[Option<ClientTrust>],
    ticket_keys: &[u8],
    backends: &Backends,
    sessions: Option<&Sessions>,
    known: &mut Identities,
) -> Result<Vec<Route>, String> {
    let none = Vec::new();
    let asked = clients.iter().chain(std::iter::repeat(&None));
    let material = certificates.iter().chain(std::iter::repeat(&none));
    let routes = config.routes.iter().zip(material.zip(asked)).enumerate();
    let made = routes
        .map(|(n, (route, (pems, clients)))| {
            let mut made = without_context(config, route, backends);
            if let Direction::Terminate { context: room, .. } = &mut made.direction {
                let shown = (pems.as_slice(), clients);
                let context = context(config, route, shown, ticket_keys, sessions, known)
                    .map_err(|why| format!("route {}: {why}", n + 1))?;
                *room = Some(context);
            }
            Ok(made)
        })
        .collect();
    known.forget_others();
    made
}

/// The configured routes for TLS that comes in, all but their contexts: enough for connections that
/// are established.
pub(crate) fn without_contexts(config: &Config, backends: &Backends) -> Vec<Route> {
    let routes = config.routes.iter();
    routes
        .map(|route| without_context(config, route, backends))
        .collect()
}

fn without_context(config: &Config, route: &crate::config::Route, backends: &Backends) -> Route {
    let direction = match (route.pass_through, targets(route, backends)) {
        (true, Some(targets)) => Direction::PassThrough(targets),
        (_, targets) => Direction::Terminate {
            context: None,
            targets,
        },
    };
    Route {
        direction,
        sources: sources(&route.source_addresses),
        backend_name: names(&route.to),
        access: Access::of(route),
        truncation: route.truncation,
        backend_tls: BackendTls::of(route),
        sockets: SocketOptions::new(&config.sockets),
        takes: Takes::of(route),
    }
}

/// What contexts are made of, for as long as they are not all made.
pub(crate) struct LateContexts {
    handover: Handover,
    sessions: Option<Sessions>,
    next: usize,
}

impl LateContexts {
    /// Contexts for all routes of `handover`.
    pub(crate) fn new(handover: Handover, sessions: Option<Sessions>) -> LateContexts {
        LateContexts {
            handover,
            sessions,
            next: 0,
        }
    }

    /// Makes the next one. False: all are made. The error says which route, and what is wrong.
    /// Identities stay known for later.
    pub(crate) fn load_next(
        &mut self,
        routes: &mut [Route],
        known: &mut Identities,
    ) -> Result<bool, String> {
        let n = self.next;
        self.next += 1;
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
            let made = context(config, configured, (pems, clients), keys, sessions, known)
                .map_err(|why| format!("route {}: {why}", n + 1))?;
            *room = Some(made);
        }
        if let Some(Some(pem)) = self.handover.backend_tls.get(n) {
            backend_tls::make_context(configured, pem, route)
                .map_err(|why| format!("route {}: {why}", n + 1))?;
        }
        Ok(self.next < config.routes.len())
    }

    /// Ticket keys that came from main meanwhile are newer than those of the handover.
    pub(crate) fn set_ticket_keys(&mut self, exported: &[u8]) {
        self.handover.ticket_keys.zeroize();
        self.handover.ticket_keys = exported.to_vec();
    }
}

/// A handshake with itself for each route, so that the first client finds everything ready.
pub(crate) fn warm_up(routes: &[Route]) -> io::Result<()> {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    for route in routes {
        if let Direction::Terminate {
            context: Some(context),
            ..
        } = &route.direction
        {
            context
                .warm_up(UnixTime::since_unix_epoch(now))
                .map_err(io::Error::other)?;
        }
    }
    Ok(())
}

fn sources(given: &[SourceAddress]) -> Vec<IpAddr> {
    let address = |source: &SourceAddress| match source {
        SourceAddress::Auto => None,
        SourceAddress::Address(ip) => Some(*ip),
    };
    given.iter().filter_map(address).collect()
}

impl Route {
    /// How many addresses there are to connect from, `own` of them where the backend is on this
    /// machine.
    pub(crate) fn sources_count(&self, backend: &Addr, own: u32) -> u32 {
        match backend {
            Addr::Tcp(_) if !self.sources.is_empty() => self.sources.len() as u32,
            Addr::Tcp(address) if config::is_own_network(*address) => own.max(1),
            _ => 1,
        }
    }

    /// Address number `n` to connect from; `None`: the system's choice. All of 127.0.0.0/8 is this
    /// machine's, so backends on it are reached from as many addresses as it takes.
    pub(crate) fn source(&self, n: u32) -> Option<IpAddr> {
        match (self.sources.get(n as usize), n) {
            (Some(&ip), _) => Some(ip),
            (None, 0) => None,
            (None, n) => Some(IpAddr::V4(Ipv4Addr::from(OWN_SOURCES + n))),
        }
    }
}

/// 127.64.0.0.
const OWN_SOURCES: u32 = 0x7f40_0000;

fn context(
    config: &Config,
    route: &crate::config::Route,
    (pems, clients): (&[Pem], &Option<ClientTrust>),
    ticket_keys: &[u8],
    sessions: Option<&Sessions>,
    known: &mut Identities,
) -> Result<ServerContext, String> {
    let identities: Result<Vec<Identity>, _> = pems
        .iter()
        .map(|pem| known.of(pem).map_err(|e| e.to_string()))
        .collect();
    let mut settings = ServerSettings::new(identities?);
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
    } else {
        settings.sessions_by_id = sessions;
    }
    settings.unknown_name = match route.unknown_name {
        NameUnknown::Default => UnknownName::Default,
        NameUnknown::Refuse => UnknownName::Refuse,
    };
    settings.awaited = (route.acme.iter().map(ToString::to_string)).collect();
    settings.client_certificates = clients.as_ref().map(ClientTrust::settings);
    ServerContext::new(settings).map_err(|e| e.to_string())
}

fn suite(suite: TlsSuite) -> Suite {
    match suite {
        TlsSuite::Aes128Gcm => Suite::Aes128Gcm,
        TlsSuite::Aes256Gcm => Suite::Aes256Gcm,
        TlsSuite::Chacha20 => Suite::Chacha20,
        TlsSuite::EcdsaAes128Gcm => Suite::EcdsaAes128Gcm,
        TlsSuite::EcdsaAes256Gcm => Suite::EcdsaAes256Gcm,
        TlsSuite::EcdsaChacha20 => Suite::EcdsaChacha20,
        TlsSuite::RsaAes128Gcm => Suite::RsaAes128Gcm,
        TlsSuite::RsaAes256Gcm => Suite::RsaAes256Gcm,
        TlsSuite::RsaChacha20 => Suite::RsaChacha20,
    }
}

fn group(group: TlsGroup) -> Group {
    match group {
        TlsGroup::X25519MlKem768 => Group::X25519MlKem768,
        TlsGroup::X25519 => Group::X25519,
        TlsGroup::P256 => Group::P256,
        TlsGroup::P384 => Group::P384,
    }
}

pub(crate) fn alpn(names: &[String]) -> Vec<Vec<u8>> {
    names.iter().map(|name| name.as_bytes().to_vec()).collect()
}

pub(crate) fn version(version: TlsVersion) -> Version {
    match version {
        TlsVersion::Tls12 => Version::Tls12,
        TlsVersion::Tls13 => Version::Tls13,
    }
}

fn names(upstreams: &[Upstream]) -> String {
    let names: Vec<String> = upstreams.iter().map(ToString::to_string).collect();
    names.join(", ")
}

fn targets(route: &crate::config::Route, backends: &Backends) -> Option<Targets> {
    let all = Target::all_of(&route.to, backends);
    (!all.is_empty()).then(|| Targets {
        all,
        listed: route.to.clone(),
        balance: route.balance,
        failures_max: route.backend_failures,
        pause_ms: milliseconds(route.backend_pause),
        slow_start_ms: route.slow_start.map_or(0, milliseconds),
        owed: RefCell::default(),
    })
}

/// What every TCP socket is set to.
#[derive(Clone, Debug)]
pub(crate) struct SocketOptions {
    keepalive: Option<Keepalive>,
    user_timeout_ms: Option<u32>,
    send_buffer_bytes: usize,
    receive_buffer_bytes: usize,
}

impl SocketOptions {
    pub(crate) fn new(sockets: &Sockets) -> SocketOptions {
        SocketOptions {
            keepalive: sockets.keepalive_idle.map(|idle| Keepalive {
                idle_s: seconds(idle),
                interval_s: seconds(sockets.keepalive_interval),
                count: sockets.keepalive_count,
            }),
            user_timeout_ms: sockets
                .user_timeout
                .map(|timeout| u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX)),
            // Of data: the kernel allows as much again for its own overhead (socket(7)).
            send_buffer_bytes: sockets.socket_buffer.as_usize(),
            receive_buffer_bytes: (sockets.receive_buffer.or(sockets.socket_buffer)).as_usize(),
        }
    }

    /// For a connect to a backend.
    pub(crate) fn connect_options(&self, source: Option<IpAddr>) -> ConnectOptions {
        ConnectOptions {
            source: source.map(|ip| SocketAddr::new(ip, 0)),
            on_exec: OnExec::Keep,
            receive_buffer_bytes: Some(self.receive_buffer_bytes),
            send_buffer_bytes: Some(self.send_buffer_bytes),
        }
    }

    /// What the kernel may buffer for sending, per socket.
    pub(crate) fn send_buffer_bytes(&self) -> usize {
        self.send_buffer_bytes
    }

    /// Sets a listener. On Linux accepted sockets inherit all of it.
    pub(crate) fn apply_to_listener(&self, fd: Fd) {
        let _ = socket::set_receive_buffer(fd, self.receive_buffer_bytes);
        let _ = socket::set_send_buffer(fd, self.send_buffer_bytes);
        self.apply(fd);
    }

    /// Sets a client's connection, which has inherited everything else from its listener: the times
    /// of its keepalive probes are its own. Connections which were busy at the same moment are
    /// asked at the same moment otherwise, and again together by each retry; and what does not fit
    /// into the queue of a network device is dropped, so that peers which are well are taken for
    /// gone. (38,000 connections over loopback, all busy within one second: 12,082 were lost;
    /// none with times of their own.)
    pub(crate) fn apply_to_client(&self, fd: Fd) {
        if let Some(keepalive) = self.keepalive {
            let _ = socket::set_keepalive_times(fd, spread(keepalive, fd));
        }
    }

    /// Sets a connection to a backend. One on this machine cannot vanish without a word, so it is
    /// not asked for signs of life.
    pub(crate) fn apply_to_backend(&self, fd: Fd, backend: &Addr) {
        match backend {
            Addr::Unix(_) => {}
            Addr::Tcp(address) if address.ip().is_loopback() => {
                let _ = socket::set_nodelay(fd, true);
            }
            Addr::Tcp(_) => self.apply(fd),
        }
    }

    /// Sets a socket. A socket that is gone already will say so when it is used.
    pub(crate) fn apply(&self, fd: Fd) {
        let _ = socket::set_nodelay(fd, true);
        if let Some(keepalive) = self.keepalive {
            let _ = socket::set_keepalive(fd, Some(keepalive));
        }
        if let Some(timeout_ms) = self.user_timeout_ms {
            let _ = socket::set_user_timeout(fd, timeout_ms);
        }
    }
}

/// Between 4/5 of the idle time and all of it, and 3/5 of the interval and all of it: sooner, never
/// later, so that there are no fewer probes before `user_timeout` than were asked for. Descriptors
/// follow each other; multiplied by the golden ratio their fractions are as far apart as can be.
fn spread(keepalive: Keepalive, fd: Fd) -> Keepalive {
    const GOLDEN: u32 = 0x9E37_79B9;
    let fraction = fd.0.cast_unsigned().wrapping_mul(GOLDEN);
    let sooner = |whole_s: u32, most_s: u32| {
        let by_s = (u64::from(fraction) * (u64::from(most_s) + 1)) >> 32;
        whole_s - u32::try_from(by_s).unwrap_or(0)
    };
    Keepalive {
        idle_s: sooner(keepalive.idle_s, keepalive.idle_s / 5),
        interval_s: sooner(keepalive.interval_s, keepalive.interval_s * 2 / 5),
        ..keepalive
    }
}

fn seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)
}

pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_spread_evenly_and_never_later_than_asked_for() {
        let asked = Keepalive {
            idle_s: 120,
            interval_s: 15,
            count: 4,
        };
        let mut due = [0_u32; 121];
        for fd in 1000..26_000 {
            let own = spread(asked, Fd(fd));
            assert!((96..=120).contains(&own.idle_s) && (9..=15).contains(&own.interval_s));
            assert_eq!(own.count, 4);
            due[own.idle_s as usize] += 1;
        }
        assert!(
            due[96..].iter().all(|count| (950..=1050).contains(count)),
            "{due:?}"
        );
        let shortest = Keepalive {
            idle_s: 1,
            interval_s: 1,
            count: 1,
        };
        for fd in 0..100 {
            let own = spread(shortest, Fd(fd));
            assert_eq!((own.idle_s, own.interval_s), (1, 1));
        }
    }
}
