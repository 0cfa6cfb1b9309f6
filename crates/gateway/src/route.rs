//! A route at work: what its configuration became in this process.

use crate::config::{Backend, Config, Originate, Sockets, TlsVersion, Truncation};
use crate::handover::{ClientTrust, Material};
use crate::origin::Origin;
use crate::session_cache::Sessions;
use dormouse_engine::{
    Identity, Protocols, ServerContext, ServerSettings, SettingsError, TicketKeys, TicketSettings,
    Version,
};
use dormouse_reactor::socket::{self, Addr, ConnectOptions, Keepalive};
use dormouse_reactor::{Fd, OnExec};
use std::sync::Arc;
use std::time::Duration;

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
        /// Certificates, keys and suites: one for all connections, parsed once.
        context: ServerContext,
        /// Where plaintext goes; `None`: back to where it came from.
        backend: Option<Addr>,
    },
    /// Those whom we connect to; plaintext comes from local clients.
    Originate(Origin),
}

impl Route {
    /// Where plaintext goes. None for `echo:`, and where plaintext comes in.
    pub(crate) fn backend(&self) -> Option<&Addr> {
        match &self.direction {
            Direction::Terminate { backend, .. } => backend.as_ref(),
            Direction::Originate(_) => None,
        }
    }

    /// Is there no plain side?
    pub(crate) fn is_echo(&self) -> bool {
        matches!(self.direction, Direction::Terminate { backend: None, .. })
    }

    /// Takes new ticket keys into use, where TLS comes in.
    pub(crate) fn replace_ticket_keys(&self, keys: &TicketKeys) -> Result<(), SettingsError> {
        match &self.direction {
            Direction::Terminate { context, .. } => context.replace_ticket_keys(keys),
            Direction::Originate(_) => Ok(()),
        }
    }
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

/// Makes the configured routes ready. The error says which route, and what is wrong.
pub(crate) fn routes(
    config: &Config,
    certificates: &[Material],
    ticket_keys: &[u8],
    sessions: Option<&Sessions>,
) -> Result<Vec<Route>, String> {
    let none = Material::default();
    let material = certificates.iter().chain(std::iter::repeat(&none));
    config
        .routes
        .iter()
        .zip(material)
        .enumerate()
        .map(|(n, (route, material))| {
            let context = context(config, route, material, ticket_keys, sessions)
                .map_err(|why| format!("route {}: {why}", n + 1))?;
            Ok(Route {
                direction: Direction::Terminate {
                    context,
                    backend: address(&route.to),
                },
                backend_name: route.to.to_string(),
                truncation: route.truncation,
                sockets: SocketOptions::new(&config.sockets),
            })
        })
        .collect()
}

fn context(
    config: &Config,
    route: &crate::config::Route,
    material: &Material,
    ticket_keys: &[u8],
    sessions: Option<&Sessions>,
) -> Result<ServerContext, String> {
    let identities: Result<Vec<Identity>, _> = material
        .pems
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
    settings.sessions = sessions.map(|sessions| Arc::new(sessions.clone()) as _);
    settings.client_certificates = material.clients.as_ref().map(ClientTrust::settings);
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
