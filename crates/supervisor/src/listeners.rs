//! Listening sockets: opened by main, which alone may; polled by all workers.

use super::error::ServeError;
use super::notify::{self, HandedIn};
use dormouse_config::{Config, PlainListen, SourceAddress};
use dormouse_handover::Handover;
use dormouse_reactor::socket::{self, Addr, ListenOptions};
use dormouse_reactor::{Fd, OnExec};
use dormouse_routes::socket_options::SocketOptions;
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};

/// A listening socket of main's, and what it is for.
#[derive(Clone, Debug)]
pub(super) struct Listener {
    pub(super) address: Addr,
    pub(super) fd: Fd,
    /// The number of its route; of several, the first.
    pub(super) route: u16,
    /// The numbers of all routes behind it.
    pub(super) door: Vec<u16>,
    /// Whether systemd has opened it, and has it still when this program has ended.
    pub(super) handed_in: bool,
}

/// Opens the listeners of the configuration, in its order, but for those which are open already.
/// When one can't be opened, those that were are closed again.
pub(super) fn open(
    config: &Config,
    numbers: &[u16],
    open_already: &[Listener],
) -> Result<Vec<Listener>, ServeError> {
    check_sources(config)?;
    let mut listeners: Vec<Listener> = Vec::new();
    // What systemd has opened is for the start.
    let mut handed_in = if open_already.is_empty() {
        HandedIn::from_environment()
    } else {
        HandedIn::default()
    };
    for (address, shown, indices) in wanted(config) {
        let door = door(&indices, numbers);
        let route = door.first().copied().unwrap_or_default();
        let is_open = |listener: &&Listener| listener.address == address;
        let open = match open_already.iter().find(is_open) {
            Some(listener) => Ok((listener.fd, listener.handed_in)),
            None => listen_on(&address, &shown, &options(config), &mut handed_in),
        };
        match open {
            Ok((fd, handed_in)) => listeners.push(Listener {
                address,
                fd,
                route,
                door,
                handed_in,
            }),
            Err(error) => {
                close_all_but(open_already, &listeners);
                return Err(error);
            }
        }
    }
    handed_in.close_rest();
    let sockets = SocketOptions::new(&config.sockets);
    listeners
        .iter()
        .for_each(|listener| sockets.apply_to_listener(listener.fd));
    Ok(listeners)
}

/// The listeners that another binary in this process has opened, in the order of its configuration.
pub(super) fn again(told: &Handover) -> Vec<Listener> {
    let open = &told.descriptors.listeners;
    let all = wanted(&told.config).into_iter().zip(open);
    all.map(|((address, _, indices), &(fd, route))| Listener {
        address,
        fd: Fd(fd),
        route,
        door: door(&indices, &told.numbers),
        handed_in: notify::was_handed_in(Fd(fd)),
    })
    .collect()
}

fn door(indices: &[usize], numbers: &[u16]) -> Vec<u16> {
    let numbers = indices.iter().map(|&index| numbers.get(index).copied());
    numbers.map(Option::unwrap_or_default).collect()
}

/// A source address which is not this machine's is told now, not by every connect.
fn check_sources(config: &Config) -> Result<(), ServeError> {
    let sources = config.routes.iter().flat_map(|one| &one.source_addresses);
    for source in sources {
        let SourceAddress::Address(ip) = source else {
            continue;
        };
        if let Err(error) = UdpSocket::bind((*ip, 0)) {
            return Err(ServeError::System {
                what: format!("connect to a backend from {ip} (source_addresses)"),
                hint: hint(&error),
                error,
            });
        }
    }
    Ok(())
}

/// Closes those of `listeners` which are not among `kept`.
pub(super) fn close_all_but(kept: &[Listener], listeners: &[Listener]) {
    for listener in listeners {
        if !kept.iter().any(|other| other.fd == listener.fd) {
            listener.fd.close();
            if let Addr::Unix(path) = &listener.address {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// The addresses of the configuration, each once, as they are shown, and the indices of the routes
/// behind each: originations are counted on behind the routes.
fn wanted(config: &Config) -> Vec<(Addr, String, Vec<usize>)> {
    let mut all: Vec<(Addr, String, Vec<usize>)> = Vec::new();
    let mut places: HashMap<SocketAddr, usize> = HashMap::new();
    for (index, route) in config.routes.iter().enumerate() {
        for listen in &route.listen {
            match places.get(&listen.address).and_then(|&at| all.get_mut(at)) {
                Some((_, _, routes)) => routes.push(index),
                None => {
                    places.insert(listen.address, all.len());
                    all.push((Addr::Tcp(listen.address), listen.to_string(), vec![index]));
                }
            }
        }
    }
    let behind = config.routes.len();
    for (index, originate) in config.originate.iter().enumerate() {
        for listen in &originate.listen {
            let address = match listen {
                PlainListen::Tcp(listen) => Addr::Tcp(listen.address),
                PlainListen::Unix(path) => Addr::Unix(path.clone()),
            };
            all.push((address, listen.to_string(), vec![behind + index]));
        }
    }
    all
}

fn options(config: &Config) -> ListenOptions {
    ListenOptions {
        backlog: backlog(config),
        on_exec: OnExec::Keep,
        v6only: true,
    }
}

fn backlog(config: &Config) -> i32 {
    i32::try_from(config.sockets.backlog.or(4096)).unwrap_or(i32::MAX)
}

/// The program is to end. As [`pause`], but what systemd has opened is its own, and listens on:
/// those who connect wait for the next program there.
pub(super) fn leave(listeners: &[Listener], config: &Config) {
    let (theirs, ours): (Vec<_>, Vec<_>) = listeners.iter().partition(|one| one.handed_in);
    pause(ours);
    // A drain may have paused them.
    if let Err(error) = resume(theirs, config) {
        tracing::warn!("{error}");
    }
}

/// Who connects from now on is refused by the kernel: workers have been told to accept nothing.
/// (A unix socket can't be made to listen again; its clients wait in the queue.)
pub(super) fn pause<'a>(listeners: impl IntoIterator<Item = &'a Listener>) {
    for listener in listeners {
        if let Addr::Tcp(address) = &listener.address
            && let Err(error) = socket::pause_listening(listener.fd)
        {
            tracing::debug!(%error, %address, "a listener goes on listening");
        }
    }
}

/// Listens again. The error names those which can't.
pub(super) fn resume<'a>(
    listeners: impl IntoIterator<Item = &'a Listener>,
    config: &Config,
) -> Result<(), String> {
    let mut refused = Vec::new();
    for listener in listeners {
        if let Addr::Tcp(address) = &listener.address
            && let Err(error) = socket::resume_listening(listener.fd, backlog(config))
        {
            refused.push(format!("cannot listen on {address} again: {error}"));
        }
    }
    if refused.is_empty() {
        Ok(())
    } else {
        Err(refused.join("\n"))
    }
}

/// A listener, and whether it was handed in.
fn listen_on(
    address: &Addr,
    shown: &str,
    options: &ListenOptions,
    handed_in: &mut HandedIn,
) -> Result<(Fd, bool), ServeError> {
    let ready = match handed_in.take(address) {
        // Accepting must not wait, should another worker have been faster.
        Some(fd) => fd.set_nonblocking().map(|()| (fd, true)),
        None => socket::listen(address, options).map(|fd| (fd, false)),
    };
    ready.map_err(|error| ServeError::System {
        what: format!("listen on {shown}"),
        hint: hint(&error),
        error,
    })
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another process listens there: `ss -ltnp` shows which; stop it or choose another port"
        }
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need a privilege: run as root, or \
             `setcap cap_net_bind_service=+ep` on the binary, or choose a higher port"
        }
        io::ErrorKind::AddrNotAvailable => {
            "this machine has no such address: `ip addr` shows its own"
        }
        _ => "",
    }
}
