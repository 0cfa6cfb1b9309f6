//! A route at work: what its configuration became in this process.

use crate::backend_tls::BackendTls;
use crate::balance::{Target, Targets};
use crate::origin::Origin;
use crate::route_filter::RouteFilter;
use crate::socket_options::SocketOptions;
use dormouse_config::{
    self as config, BackendDown, Config, Network, Originate, ProxyProtocol, Sockets, SourceAddress,
    Truncation, Upstream, milliseconds,
};
use dormouse_engine::{ServerContext, SettingsError, TicketKeys};
use dormouse_reactor::socket::Addr;
use dormouse_tables::backends::Backends;
use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// One way through the program.
pub struct Route {
    /// Its name in logs and metrics.
    pub name: String,
    /// Which side speaks TLS, and where connections go.
    pub direction: Direction,
    /// Addresses from which the backend is connected to; none: see [`Route::source`].
    pub sources: Vec<IpAddr>,
    /// The backend as messages name it.
    pub backend_name: String,
    /// Who the client is, and who may be one.
    pub access: Access,
    /// What a TCP end without close_notify means here.
    pub truncation: Truncation,
    /// What a client sees when no backend can be reached.
    pub backend_down: BackendDown,
    /// How TLS is spoken with the backends, if it is.
    pub backend_tls: Option<BackendTls>,
    /// What the kernel is asked for, on both sides.
    pub sockets: SocketOptions,
    /// Which of the clients that come by its address are its own.
    pub filter: RouteFilter,
}

/// Who the client is, who says so, who is told, and who may come in.
#[derive(Clone, Debug)]
pub struct Access {
    /// Whether and how the backend is told who the client is.
    pub proxy_protocol: ProxyProtocol,
    /// Who says for others who they are.
    pub accept_proxy_from: Vec<Network>,
    /// Who may connect; empty: all.
    pub allow: Vec<Network>,
    /// Who may not.
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
    /// The configured route, all but its context.
    pub(crate) fn without_context(
        config: &Config,
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
            name: String::new(),
            direction,
            sources: sources(&route.source_addresses),
            backend_name: names(&route.to),
            access: Access::of(route),
            truncation: route.truncation,
            backend_down: route.backend_down,
            backend_tls: BackendTls::of(route),
            sockets: SocketOptions::new(&config.sockets),
            filter: RouteFilter::of(route),
        }
    }

    /// Where plaintext goes. None for `echo:`, and where plaintext comes in.
    pub fn targets(&self) -> Option<&Targets> {
        match &self.direction {
            Direction::Terminate { targets, .. } => targets.as_ref(),
            Direction::PassThrough(targets) => Some(targets),
            Direction::Originate(_) | Direction::Gone => None,
        }
    }

    /// The backend of this name has other addresses from now on. True: it is one of this route's.
    pub fn set_addresses(
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
            name: "removed".to_owned(),
            direction: Direction::Gone,
            backend_name: "none: a reload has removed the route".to_owned(),
            access: Access::default(),
            truncation: Truncation::Abort,
            backend_down: BackendDown::Alert,
            backend_tls: None,
            sources: Vec::new(),
            sockets: SocketOptions::new(sockets),
            filter: RouteFilter::default(),
        }
    }

    /// Has a reload removed it?
    pub fn is_gone(&self) -> bool {
        matches!(self.direction, Direction::Gone)
    }

    /// Does TLS go to its backend untouched?
    pub fn passes_through(&self) -> bool {
        matches!(self.direction, Direction::PassThrough(_))
    }

    /// Whether a ClientHello must be read to know whether its client is for this route.
    pub fn needs_client_hello(&self) -> bool {
        self.passes_through() || self.filter.is_selective()
    }

    /// Is there no plain side?
    pub fn is_echo(&self) -> bool {
        matches!(self.direction, Direction::Terminate { targets: None, .. })
    }

    /// RouteFilter new ticket keys into use, where TLS comes in.
    pub fn replace_ticket_keys(&self, keys: &TicketKeys) -> Result<(), SettingsError> {
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
/// Each gets its name; `routes` and `numbers` are in the order of the configuration.
pub fn by_number(routes: Vec<Route>, numbers: &[u16], config: &Config) -> Vec<Route> {
    let len = numbers.iter().max().map_or(0, |&max| usize::from(max) + 1);
    let gone = |_| Route::gone(&config.sockets);
    let mut placed: Vec<Route> = (0..len).map(gone).collect();
    let named = routes.into_iter().zip(config.route_names());
    for ((route, name), &number) in named.zip(numbers) {
        if let Some(place) = placed.get_mut(usize::from(number)) {
            *place = Route { name, ..route };
        }
    }
    placed
}

/// The routes of originations, which follow those for TLS that comes in.
pub fn originations(config: &Config, origins: Vec<Origin>) -> Vec<Route> {
    let route = |(origin, originate): (Origin, &Originate)| {
        let names: Vec<&str> = originate.to.iter().map(|to| to.given.as_str()).collect();
        Route {
            name: String::new(),
            direction: Direction::Originate(origin),
            sources: Vec::new(),
            backend_name: names.join(", "),
            access: Access::default(),
            truncation: originate.truncation,
            backend_down: BackendDown::Alert,
            backend_tls: None,
            sockets: SocketOptions::new(&config.sockets),
            filter: RouteFilter::default(),
        }
    };
    origins
        .into_iter()
        .zip(&config.originate)
        .map(route)
        .collect()
}

/// The configured routes for TLS that comes in, all but their contexts: enough for connections that
/// are established.
pub fn without_contexts(config: &Config, backends: &Backends) -> Vec<Route> {
    let routes = config.routes.iter();
    routes
        .map(|route| Route::without_context(config, route, backends))
        .collect()
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
    pub fn sources_count(&self, backend: &Addr, own: u32) -> u32 {
        match backend {
            Addr::Tcp(_) if !self.sources.is_empty() => self.sources.len() as u32,
            Addr::Tcp(address) if config::is_own_network(*address) => own.max(1),
            _ => 1,
        }
    }

    /// Address number `n` to connect from; `None`: the system's choice. All of 127.0.0.0/8 is this
    /// machine's, so backends on it are reached from as many addresses as it takes.
    pub fn source(&self, n: u32) -> Option<IpAddr> {
        match (self.sources.get(n as usize), n) {
            (Some(&ip), _) => Some(ip),
            (None, 0) => None,
            (None, n) => Some(IpAddr::V4(Ipv4Addr::from(OWN_SOURCES + n))),
        }
    }
}

/// 127.64.0.0.
const OWN_SOURCES: u32 = 0x7f40_0000;

fn names(upstreams: &[Upstream]) -> String {
    let names: Vec<String> = upstreams.iter().map(ToString::to_string).collect();
    names.join(", ")
}

fn targets(route: &dormouse_config::Route, backends: &Backends) -> Option<Targets> {
    // Not by whether there are any: a route whose backends are all out must not become an echo.
    (!route.is_echo()).then(|| Targets {
        all: Target::all_of(&route.to, backends),
        listed: route.to.clone(),
        balance: route.balance,
        failures_max: route.backend_failures,
        pause_ms: milliseconds(route.backend_pause),
        slow_start_ms: route.slow_start.map_or(0, milliseconds),
        owed: RefCell::default(),
    })
}
