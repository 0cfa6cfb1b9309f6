//! A route at work: what its configuration became in this process.

use crate::config::{Backend, Config, Originate, Sockets, TlsVersion, Truncation};
use crate::handover::{Handover, Pem};
use crate::origin::Origin;
use dormouse_engine::{
    Identity, Protocols, ServerContext, ServerSettings, SettingsError, TicketKeys, TicketSettings,
    Version,
};
use dormouse_reactor::socket::{self, Addr, ConnectOptions, Keepalive};
use dormouse_reactor::{Fd, OnExec};
use std::time::Duration;
use zeroize::Zeroize as _;

/// One way through the program.
pub(crate) struct Route {
    pub(crate) direction: Direction,
    /// The backend as messages name it.
    pub(crate) backend_name: String,
    /// What a TCP end without close_notify means here.
    pub(crate) truncation: Truncation,
    /// What the kernel is asked for, on both sides.
    pub(crate) sockets: SocketOptions,
}

/// Which side of a route speaks TLS.
pub(crate) enum Direction {
    /// Those who connect to us; plaintext goes to a backend.
    Terminate {
        /// Certificates, keys and suites: one for all connections, parsed once. `None` for the
        /// first moments of a worker that found connections: they are served before it is parsed.
        context: Option<ServerContext>,
        /// Where plaintext goes; `None`: back to where it came from.
        backend: Option<Addr>,
    },
    /// Those whom we connect to; plaintext comes from local clients.
    Originate(Origin),
    /// A reload has removed the route. Its connections go on; nothing new is for it.
    Gone,
}

impl Route {
    /// Where plaintext goes. None for `echo:`, and where plaintext comes in.
    pub(crate) fn backend(&self) -> Option<&Addr> {
        match &self.direction {
            Direction::Terminate { backend, .. } => backend.as_ref(),
            Direction::Originate(_) | Direction::Gone => None,
        }
    }

    /// What stands where a route was that a reload has removed.
    fn gone(sockets: &Sockets) -> Route {
        Route {
            direction: Direction::Gone,
            backend_name: "none: a reload has removed the route".to_owned(),
            truncation: Truncation::Abort,
            sockets: SocketOptions::new(sockets),
        }
    }

    /// Has a reload removed it?
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.direction, Direction::Gone)
    }

    /// Is there no plain side?
    pub(crate) fn is_echo(&self) -> bool {
        matches!(self.direction, Direction::Terminate { backend: None, .. })
    }

    /// Takes new ticket keys into use, where TLS comes in.
    pub(crate) fn replace_ticket_keys(&self, keys: &TicketKeys) -> Result<(), SettingsError> {
        match &self.direction {
            Direction::Terminate {
                context: Some(context),
                ..
            } => context.replace_ticket_keys(keys),
            Direction::Terminate { context: None, .. }
            | Direction::Originate(_)
            | Direction::Gone => Ok(()),
        }
    }
}

/// Makes all routes for TLS that comes in ready at once, in the order of the configuration.
pub(crate) fn routes(
    config: &Config,
    certificates: &[Vec<Pem>],
    ticket_keys: &[u8],
) -> Result<Vec<Route>, String> {
    let mut routes = without_contexts(config);
    let none = Vec::new();
    let pems = certificates.iter().chain(std::iter::repeat(&none));
    for (n, ((route, configured), pems)) in
        routes.iter_mut().zip(&config.routes).zip(pems).enumerate()
    {
        let made = context(config, configured, pems, ticket_keys)
            .map_err(|why| format!("route {}: {why}", n + 1))?;
        if let Direction::Terminate { context, .. } = &mut route.direction {
            *context = Some(made);
        }
    }
    Ok(routes)
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
            backend_name: names.join(", "),
            truncation: originate.truncation,
            sockets: SocketOptions::new(&config.sockets),
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
pub(crate) fn without_contexts(config: &Config) -> Vec<Route> {
    let route = |route: &crate::config::Route| Route {
        direction: Direction::Terminate {
            context: None,
            backend: address(&route.to),
        },
        backend_name: route.to.to_string(),
        truncation: route.truncation,
        sockets: SocketOptions::new(&config.sockets),
    };
    config.routes.iter().map(route).collect()
}

/// What contexts are made of, for as long as they are not all made.
pub(crate) struct LateContexts {
    handover: Handover,
    next: usize,
}

impl LateContexts {
    /// Contexts for all routes of `handover`.
    pub(crate) fn new(handover: Handover) -> LateContexts {
        LateContexts { handover, next: 0 }
    }

    /// Makes the next one. False: all are made. The error says which route, and what is wrong.
    pub(crate) fn load_next(&mut self, routes: &mut [Route]) -> Result<bool, String> {
        let n = self.next;
        self.next += 1;
        let config = &self.handover.config;
        let number = self.handover.numbers.get(n).copied().map_or(n, usize::from);
        let (Some(route), Some(configured)) = (routes.get_mut(number), config.routes.get(n)) else {
            return Ok(false);
        };
        let pems = self.handover.certificates.get(n);
        let pems = pems.map_or(&[] as &[Pem], Vec::as_slice);
        let made = context(config, configured, pems, &self.handover.ticket_keys)
            .map_err(|why| format!("route {}: {why}", n + 1))?;
        if let Direction::Terminate { context, .. } = &mut route.direction {
            *context = Some(made);
        }
        Ok(self.next < config.routes.len())
    }

    /// Ticket keys that came from main meanwhile are newer than those of the handover.
    pub(crate) fn set_ticket_keys(&mut self, exported: &[u8]) {
        self.handover.ticket_keys.zeroize();
        self.handover.ticket_keys = exported.to_vec();
    }
}

fn context(
    config: &Config,
    route: &crate::config::Route,
    pems: &[Pem],
    ticket_keys: &[u8],
) -> Result<ServerContext, String> {
    let identities: Result<Vec<Identity>, _> = pems
        .iter()
        .map(|pem| pem.identity().map_err(|e| e.to_string()))
        .collect();
    let mut settings = ServerSettings::new(identities?);
    settings.alpn = alpn(&route.alpn);
    settings.protocols = Protocols {
        min: version(route.min_version),
        max: version(route.max_version),
    };
    settings.tickets = match config.tickets.tickets {
        0 => None,
        count => Some(TicketSettings {
            keys: Some(TicketKeys::import(ticket_keys).map_err(|e| e.to_string())?),
            lifetime_s: seconds(config.tickets.ticket_lifetime),
            per_handshake: count as usize,
        }),
    };
    ServerContext::new(settings).map_err(|e| e.to_string())
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

fn address(backend: &Backend) -> Option<Addr> {
    match backend {
        Backend::Tcp { address, .. } => Some(Addr::Tcp(*address)),
        Backend::Unix(path) => Some(Addr::Unix(path.clone())),
        Backend::Echo => None,
    }
}

/// What every TCP socket is set to.
#[derive(Clone, Debug)]
pub(crate) struct SocketOptions {
    keepalive: Option<Keepalive>,
    user_timeout_ms: Option<u32>,
    buffer_bytes: usize,
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
            buffer_bytes: sockets.socket_buffer.as_usize(),
        }
    }

    /// For a connect to a backend.
    pub(crate) fn connect_options(&self) -> ConnectOptions {
        ConnectOptions {
            source: None,
            on_exec: OnExec::Keep,
            receive_buffer_bytes: Some(self.buffer_bytes),
            send_buffer_bytes: Some(self.buffer_bytes),
        }
    }

    /// Sets a listener. On Linux accepted sockets inherit all of it, so a new client costs no
    /// system call here.
    pub(crate) fn apply_to_listener(&self, fd: Fd) {
        let _ = socket::set_receive_buffer(fd, self.buffer_bytes);
        let _ = socket::set_send_buffer(fd, self.buffer_bytes);
        self.apply(fd);
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

fn seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX)
}

pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
