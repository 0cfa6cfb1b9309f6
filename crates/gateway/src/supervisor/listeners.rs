//! Listening sockets: opened by main, which alone may; polled by all workers.

use super::error::ServeError;
use crate::config::{Config, PlainListen};
use crate::route::SocketOptions;
use dormouse_reactor::socket::{self, Addr, ListenOptions};
use dormouse_reactor::{Fd, OnExec};
use std::io;

/// A listening socket of main's, and what it is for.
#[derive(Clone, Debug)]
pub(super) struct Listener {
    pub(super) address: Addr,
    pub(super) fd: Fd,
    /// The number of its route.
    pub(super) route: u16,
}

/// Opens the listeners of the configuration, in its order, but for those which are open already.
/// When one can't be opened, those that were are closed again.
pub(super) fn open(
    config: &Config,
    numbers: &[u16],
    open_already: &[Listener],
) -> Result<Vec<Listener>, ServeError> {
    let mut listeners: Vec<Listener> = Vec::new();
    for (address, shown, index) in wanted(config) {
        let route = numbers.get(index).copied().unwrap_or_default();
        let is_open = |listener: &&Listener| listener.address == address;
        let fd = match open_already.iter().find(is_open) {
            Some(listener) => Ok(listener.fd),
            None => listen_on(&address, &shown, &options(config)),
        };
        match fd {
            Ok(fd) => listeners.push(Listener { address, fd, route }),
            Err(error) => {
                close_all_but(open_already, &listeners);
                return Err(error);
            }
        }
    }
    let sockets = SocketOptions::new(&config.sockets);
    listeners
        .iter()
        .for_each(|listener| sockets.apply_to_listener(listener.fd));
    Ok(listeners)
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

/// The addresses of the configuration, as they are shown, and the index of each one's route:
/// originations are counted on behind the routes.
fn wanted(config: &Config) -> impl Iterator<Item = (Addr, String, usize)> + '_ {
    let routes = config.routes.iter().enumerate().flat_map(|(index, route)| {
        let of_route = route.listen.iter();
        of_route.map(move |listen| (Addr::Tcp(listen.address), listen.to_string(), index))
    });
    let behind = config.routes.len();
    let originations = config.originate.iter().enumerate();
    let originations = originations.flat_map(move |(index, originate)| {
        originate.listen.iter().map(move |listen| {
            let address = match listen {
                PlainListen::Tcp(listen) => Addr::Tcp(listen.address),
                PlainListen::Unix(path) => Addr::Unix(path.clone()),
            };
            (address, listen.to_string(), behind + index)
        })
    });
    routes.chain(originations)
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

/// Who connects from now on is refused by the kernel: workers have been told to accept nothing.
/// (A unix socket can't be made to listen again; its clients wait in the queue.)
pub(super) fn pause(listeners: &[Listener]) {
    for listener in listeners {
        if let Addr::Tcp(address) = &listener.address
            && let Err(error) = socket::pause_listening(listener.fd)
        {
            tracing::debug!(%error, %address, "a listener goes on listening");
        }
    }
}

/// Listens again. The error names those which can't.
pub(super) fn resume(listeners: &[Listener], config: &Config) -> Result<(), String> {
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

fn listen_on(address: &Addr, shown: &str, options: &ListenOptions) -> Result<Fd, ServeError> {
    socket::listen(address, options).map_err(|error| ServeError::System {
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
