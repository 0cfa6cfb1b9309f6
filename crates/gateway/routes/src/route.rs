//! A route at run time.

use crate::backend_tls::BackendTls;
use crate::balance::{Target, Targets};
use crate::origin::Origin;
use crate::parsed::Uses;
use crate::route_filter::RouteFilter;
use crate::socket_options::SocketOptions;
use dormouse_config::{
    self as config, BackendDown, ByteSize, Config, ConnectTime, Lifetime, Network, Originate,
    ProxyProtocol, RouteDefaults, SourceAddress, Starttls, Truncation, Upstream, milliseconds,
};
use dormouse_engine::ServerContext;
use dormouse_handover::stored::Digest;
use dormouse_reactor::socket::Addr;
use dormouse_tables::backends::Backends;
use dormouse_tables::pace::Pace;
use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// A route or an origination.
pub struct Route {
    /// The name in logs and metrics.
    pub name: String,
    /// Which side speaks TLS, and where connections go.
    pub direction: Direction,
    /// Source addresses for connections to backends; if empty, see [`Route::source`].
    pub sources: Vec<IpAddr>,
    /// The backends' names in messages.
    pub backend_name: String,
    /// Networks of clients, and the PROXY protocol.
    pub access: Access,
    /// The protocol in which clients ask for TLS; of an origination, the one in which its servers are asked for it.
    pub starttls: Starttls,
    /// How to treat a TLS peer that closes without close_notify.
    pub truncation: Truncation,
    /// Whether the backend's direction stays open after the client has closed its own.
    pub half_close: bool,
    /// When a connection to a backend is made.
    pub backend_connect: ConnectTime,
    /// What the client gets when no backend can be reached.
    pub backend_down: BackendDown,
    /// TLS settings for backends. `None`: plaintext.
    pub backend_tls: Option<BackendTls>,
    /// Socket options of both sides.
    pub sockets: SocketOptions,
    /// How long its connections may last.
    pub lifetime: Lifetime,
    /// Limits on all its connections together.
    pub limits: RouteLimits,
    /// One of its connections in this many gets a line in the connection log. 0: none.
    pub log_one_in: u32,
    /// The clients of the listener that this route serves.
    pub filter: RouteFilter,
    /// What it was made from.
    pub made_from: MadeFrom,
}

/// What a route was made from, by which a reload knows whether it has changed.
#[derive(Clone, Copy, Default)]
pub struct MadeFrom {
    /// The digest of everything that it depends on. `None`: it was changed since.
    pub(crate) digest: Option<Digest>,
    /// The same for the same rules for client certificates.
    pub(crate) client_rules: Option<u64>,
    pub(crate) uses: Uses,
}

/// Limits on all connections of a route together, over all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteLimits {
    /// Established connections.
    pub connections_max: Option<u32>,
    /// Handshakes.
    pub handshakes: Option<Pace>,
    /// Bytes in both directions.
    pub bytes: Option<Pace>,
    /// Share of the memory for connections, in percent.
    pub memory_share: Option<u32>,
}

impl RouteLimits {
    fn new(
        connections_max: Option<u32>,
        handshakes: Option<u32>,
        bytes: Option<ByteSize>,
        memory_share: Option<u32>,
    ) -> RouteLimits {
        RouteLimits {
            connections_max,
            handshakes: handshakes.map(|each_s| Pace {
                bytes_per_s: each_s.into(),
                burst_bytes: each_s.into(),
            }),
            bytes: bytes.map(|bytes| Pace {
                bytes_per_s: bytes.0,
                burst_bytes: bytes.0 / 4,
            }),
            memory_share,
        }
    }
}

/// Networks of clients, and the PROXY protocol.
#[derive(Clone, Debug)]
pub struct Access {
    /// The PROXY header for backends.
    pub proxy_protocol: ProxyProtocol,
    /// Trusted proxies, which must send a PROXY header.
    pub accept_proxy_from: Vec<Network>,
    /// Networks that may connect; empty: all.
    pub allow: Vec<Network>,
    /// Networks that may not connect.
    pub deny: Vec<Network>,
}

impl Access {
    fn of(route: &dormouse_config::Route) -> Access {
        Access {
            proxy_protocol: route.proxy_protocol,
            accept_proxy_from: route.accept_proxy_from.clone(),
            allow: route.allow.clone(),
            deny: route.deny.clone(),
        }
    }
}

/// Which side of a route speaks TLS.
pub enum Direction {
    /// The client; plaintext goes to a backend.
    Terminate {
        /// Certificates, keys and suites, shared by all connections. `None` until a new worker that
        /// took over connections has parsed them.
        context: Option<ServerContext>,
        /// The backends. `None`: plaintext goes back to the client (`echo:`).
        targets: Option<Targets>,
    },
    /// TLS passes through to a backend unchanged.
    PassThrough(Targets),
    /// The server; plaintext comes from local clients.
    Originate(Origin),
    /// A reload has removed the route. Its connections continue; it gets no new ones.
    Removed,
}

impl Route {
    /// Creates the configured route without its TLS context, which established connections do not need.
    pub fn without_context(
        defaults: &RouteDefaults,
        name: String,
        route: &dormouse_config::Route,
        backends: &Backends,
    ) -> Route {
        let direction = match (route.pass_through, targets(route, backends)) {
            (true, Some(targets)) => Direction::PassThrough(targets),
            (_, targets) => Direction::Terminate {
                context: None,
                targets,
            },
        };
        Route {
            name,
            direction,
            sources: sources(&route.source_addresses),
            backend_name: names(&route.to),
            access: Access::of(route),
            starttls: route.starttls,
            truncation: route.truncation,
            half_close: route.half_close,
            backend_connect: route.backend_connect,
            backend_down: route.backend_down,
            backend_tls: BackendTls::of(route),
            sockets: SocketOptions::new(&defaults.sockets),
            lifetime: route.lifetime(&defaults.timeouts),
            limits: RouteLimits::new(
                route.route_max_connections,
                route.route_handshakes_per_second,
                route.route_bytes_per_second,
                route.route_memory_share,
            ),
            log_one_in: (route.route_connection_log_one_in).or(defaults.connection_log_one_in),
            filter: RouteFilter::of(route),
            made_from: MadeFrom::default(),
        }
    }

    /// The backends. `None` for `echo:` and for originations.
    pub fn targets(&self) -> Option<&Targets> {
        match &self.direction {
            Direction::Terminate { targets, .. } => targets.as_ref(),
            Direction::PassThrough(targets) => Some(targets),
            Direction::Originate(_) | Direction::Removed => None,
        }
    }

    /// The TLS context for clients, if there is one.
    pub fn context(&self) -> Option<&ServerContext> {
        match &self.direction {
            Direction::Terminate { context, .. } => context.as_ref(),
            Direction::PassThrough(_) | Direction::Originate(_) | Direction::Removed => None,
        }
    }

    /// The servers of an origination. `None` for other routes.
    pub fn origin(&self) -> Option<&Origin> {
        match &self.direction {
            Direction::Originate(origin) => Some(origin),
            Direction::Terminate { .. } | Direction::PassThrough(_) | Direction::Removed => None,
        }
    }

    /// Changes the addresses of the backend with this name. Returns `true` if the route has it.
    pub fn set_addresses(
        &mut self,
        name: &str,
        addresses: &[SocketAddr],
        known: &Backends,
    ) -> bool {
        let is_changed = self.replace_addresses(name, addresses, known);
        if is_changed {
            self.made_from.digest = None;
        }
        is_changed
    }

    fn replace_addresses(
        &mut self,
        name: &str,
        addresses: &[SocketAddr],
        known: &Backends,
    ) -> bool {
        let targets = match &mut self.direction {
            Direction::Terminate { targets, .. } => targets.as_mut(),
            Direction::PassThrough(targets) => Some(targets),
            Direction::Originate(origin) => return origin.set_addresses(name, addresses),
            Direction::Removed => None,
        };
        targets.is_some_and(|targets| targets.set_addresses(name, addresses, known))
    }

    /// Whether it was made from what has this digest, and each of its backends has the same place as then.
    pub(crate) fn is_made_from(&self, digest: Option<Digest>, known: &Backends) -> bool {
        let targets = self.targets();
        let mut targets = targets.iter().flat_map(|targets| &targets.all);
        let lacks_context = matches!(self.direction, Direction::Terminate { context: None, .. })
            || (self.backend_tls.as_ref()).is_some_and(|tls| tls.context.is_none());
        digest.is_some()
            && self.made_from.digest == digest
            && !lacks_context
            && targets.all(|target| target.place != 0 && known.place(&target.name) == target.place)
    }

    /// Whether both have the same rules for client certificates.
    pub fn has_same_client_rules(&self, other: &Route) -> bool {
        self.made_from.client_rules == other.made_from.client_rules
    }

    /// Takes the TLS contexts of a route that was made from the same.
    pub fn take_contexts(&mut self, from: Route) {
        if let (
            Direction::Terminate { context, .. },
            Direction::Terminate {
                context: of_other, ..
            },
        ) = (&mut self.direction, from.direction)
        {
            *context = of_other;
        }
        self.backend_tls = from.backend_tls;
        let digest = self.made_from.digest;
        self.made_from = MadeFrom {
            digest,
            ..from.made_from
        };
    }

    /// Placeholder for a route that a reload has removed.
    pub fn removed(defaults: &RouteDefaults) -> Route {
        Route {
            name: "removed".to_owned(),
            direction: Direction::Removed,
            backend_name: "none: a reload removed the route".to_owned(),
            access: Access::default(),
            starttls: Starttls::Off,
            truncation: Truncation::Abort,
            half_close: true,
            backend_connect: ConnectTime::AtOnce,
            backend_down: BackendDown::Alert,
            backend_tls: None,
            sources: Vec::new(),
            sockets: SocketOptions::new(&defaults.sockets),
            lifetime: defaults.lifetime_without_route(),
            limits: RouteLimits::default(),
            log_one_in: defaults.connection_log_one_in,
            filter: RouteFilter::default(),
            made_from: MadeFrom::default(),
        }
    }

    /// Whether a reload has removed the route.
    pub fn is_removed(&self) -> bool {
        matches!(self.direction, Direction::Removed)
    }

    /// Whether TLS passes through to the backend.
    pub fn passes_through(&self) -> bool {
        matches!(self.direction, Direction::PassThrough(_))
    }

    /// Whether the ClientHello must be read to decide if the route serves its client.
    pub fn needs_client_hello(&self) -> bool {
        self.passes_through() || self.filter.is_selective()
    }

    /// Whether the route echoes plaintext and has no backend.
    pub fn is_echo(&self) -> bool {
        matches!(self.direction, Direction::Terminate { targets: None, .. })
    }
}

impl Default for Access {
    /// Allows all clients, and sends no PROXY header.
    fn default() -> Access {
        Access {
            proxy_protocol: ProxyProtocol::Off,
            accept_proxy_from: Vec::new(),
            allow: Vec::new(),
            deny: Vec::new(),
        }
    }
}

/// Creates the routes of originations.
pub fn originations(config: &Config, origins: Vec<Origin>) -> Vec<Route> {
    let defaults = config.route_defaults();
    let names = config.route_names().into_iter();
    let names_and_lifetimes = names.zip(config.lifetimes()).skip(config.routes.len());
    let route = |((origin, originate), (name, lifetime)): ((Origin, &Originate), _)| {
        let names: Vec<&str> = originate.to.iter().map(|to| to.given.as_str()).collect();
        Route {
            name,
            lifetime,
            direction: Direction::Originate(origin),
            backend_name: names.join(", "),
            starttls: originate.starttls,
            truncation: originate.truncation,
            limits: RouteLimits::new(
                originate.route_max_connections,
                None,
                originate.route_bytes_per_second,
                originate.route_memory_share,
            ),
            log_one_in: (originate.route_connection_log_one_in)
                .or(config.log.connection_log_one_in),
            ..Route::removed(&defaults)
        }
    };
    let all = origins.into_iter().zip(&config.originate);
    all.zip(names_and_lifetimes).map(route).collect()
}

fn sources(given: &[SourceAddress]) -> Vec<IpAddr> {
    let address = |source: &SourceAddress| match source {
        SourceAddress::Auto => None,
        SourceAddress::Address(ip) => Some(*ip),
    };
    given.iter().filter_map(address).collect()
}

impl Route {
    /// Number of source addresses for this backend; `own` is the number for a loopback backend without
    /// configured ones.
    pub fn sources_count(&self, backend: &Addr, own: u32) -> u32 {
        match backend {
            Addr::Tcp(_) if !self.sources.is_empty() => self.sources.len() as u32,
            Addr::Tcp(address) if config::is_own_network(*address) => own.max(1),
            _ => 1,
        }
    }

    /// The source address number `n`. `None`: the kernel chooses. For loopback backends, any number of
    /// addresses in 127.0.0.0/8 is available.
    pub fn source(&self, n: u32) -> Option<IpAddr> {
        match (self.sources.get(n as usize), n) {
            (Some(&ip), _) => Some(ip),
            (None, 0) => None,
            (None, n) => Some(IpAddr::V4(Ipv4Addr::from(OWN_SOURCES + n))),
        }
    }
}

/// 127.64.0.0, the base of source addresses for loopback backends.
const OWN_SOURCES: u32 = 0x7f40_0000;

fn names(upstreams: &[Upstream]) -> String {
    let names: Vec<String> = upstreams.iter().map(ToString::to_string).collect();
    names.join(", ")
}

fn targets(route: &dormouse_config::Route, backends: &Backends) -> Option<Targets> {
    // A route whose backends were all taken out must not become an echo, so their number is not checked.
    (!route.is_echo()).then(|| Targets {
        all: Target::all_of(&route.to, backends),
        listed: route.to.clone(),
        balance: route.balance,
        failures_max: route.backend_failures,
        pause_ms: milliseconds(route.backend_pause),
        slow_start_ms: route.slow_start.map_or(0, milliseconds),
        credits: RefCell::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_config::Backend;

    /// Names are looked up for every kind of route with backends.
    #[test]
    fn new_addresses_of_a_name_reach_the_route() {
        let known = Backends::create(1).expect("memory");
        let [old, new] =
            ["10.0.0.1:443", "10.0.0.2:443"].map(|one| one.parse().expect("an address"));
        let named = Backend::Tcp {
            given: "db.example:443".to_owned(),
            addresses: vec![old],
        };
        let targets = || {
            let listed = vec![Upstream::plain(named.clone())];
            Targets {
                all: Target::all_of(&listed, &known),
                listed,
                balance: dormouse_config::Balance::RoundRobin,
                failures_max: 1,
                pause_ms: 1_000,
                slow_start_ms: 0,
                credits: RefCell::default(),
            }
        };
        let terminates = Direction::Terminate {
            context: None,
            targets: Some(targets()),
        };
        let flags = [
            ("listen", "127.0.0.1:8443"),
            ("to", "echo:"),
            ("self-signed", "x"),
        ];
        let flags = flags.map(|(name, value)| config::Flag::new(name, value));
        let (section, machine) = (config::Section::Route, config::Machine::read());
        let loaded = config::load(None, section, &flags, &machine);
        let config = loaded.expect("valid").config;
        for direction in [terminates, Direction::PassThrough(targets())] {
            let mut route = Route {
                direction,
                ..Route::removed(&config.route_defaults())
            };
            assert!(!route.set_addresses("other.example:443", &[new], &known));
            assert!(route.set_addresses("db.example:443", &[new], &known));
            let all = &route.targets().expect("backends").all;
            let addresses: Vec<&Addr> = all.iter().map(|target| &target.address).collect();
            assert_eq!(addresses, [&Addr::Tcp(new)]);
        }
        known.fds().close();
    }
}
