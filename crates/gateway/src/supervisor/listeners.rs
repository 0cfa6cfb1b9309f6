//! Listening sockets: opened by main, which alone may; polled by all workers.

use super::error::ServeError;
use crate::config::{Config, PlainListen};
use crate::route::SocketOptions;
use dormouse_reactor::socket::{self, Addr, ListenOptions};
use dormouse_reactor::{Fd, OnExec};
use std::{fmt, io};

/// Opens all listeners of the configuration. Each comes with the index of its route.
pub(super) fn open(config: &Config) -> Result<Vec<(Fd, u16)>, ServeError> {
    let backlog = i32::try_from(config.sockets.backlog.or(4096)).unwrap_or(i32::MAX);
    let options = ListenOptions {
        backlog,
        on_exec: OnExec::Keep,
        v6only: true,
    };
    let sockets = SocketOptions::new(&config.sockets);
    let mut listeners = Vec::new();
    for (index, route) in config.routes.iter().enumerate() {
        for listen in &route.listen {
            let fd = listen_on(&Addr::Tcp(listen.address), listen, &options)?;
            sockets.apply_to_listener(fd);
            listeners.push((fd, index as u16));
        }
    }
    for (index, originate) in config.originate.iter().enumerate() {
        for listen in &originate.listen {
            let address = match listen {
                PlainListen::Tcp(listen) => Addr::Tcp(listen.address),
                PlainListen::Unix(path) => Addr::Unix(path.clone()),
            };
            let fd = listen_on(&address, listen, &options)?;
            sockets.apply_to_listener(fd);
            listeners.push((fd, (config.routes.len() + index) as u16));
        }
    }
    Ok(listeners)
}

fn listen_on(
    address: &Addr,
    shown: &dyn fmt::Display,
    options: &ListenOptions,
) -> Result<Fd, ServeError> {
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
