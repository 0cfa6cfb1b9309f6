//! Listening sockets: opened by main, which has the privilege, and polled by all workers.

use crate::error::ServeError;
use crate::route_numbers::RouteNumbers;
use crate::sockets::socket_file::SocketFile;
use crate::sockets::systemd::{self, InheritedListeners, addresses_of, ports_of_both_families};
use dormouse_config::{Config, PlainListen};
use dormouse_handover::{Descriptors, Handover};
use dormouse_reactor::socket::{self, Addr, ListenOptions};
use dormouse_reactor::{Fd, OnExec};
use dormouse_routes::socket_options::SocketOptions;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// A listening socket, and the routes that share it.
#[derive(Clone, Debug)]
struct Listener {
    address: Addr,
    fd: Fd,
    /// The file of a unix socket.
    file: Option<SocketFile>,
    /// Numbers of the routes that share it.
    routes: Vec<u16>,
    /// Opened by systemd, which keeps it open after this program has ended.
    inherited: bool,
}

impl Listener {
    /// Whether clients can reach it. The file of a unix socket may be lost; systemd has to make its own again.
    fn is_reachable(&self) -> bool {
        self.inherited || !self.file.as_ref().is_some_and(SocketFile::is_lost)
    }
}

/// All listening sockets, and the numbers of their routes.
pub(crate) struct Listening {
    /// Sockets that workers poll.
    listeners: Vec<Listener>,
    /// Sockets of plain HTTP, which have no route.
    redirects: Vec<Listener>,
    /// Sockets from systemd that no route uses since a reload. While systemd listens, nobody else can open them again,
    /// so they are kept for the next reload.
    spare: InheritedListeners,
    numbers: RouteNumbers,
}

impl Listening {
    /// Opens the listeners of a configuration at the start of the program.
    pub(crate) fn open(config: &Config) -> Result<Listening, ServeError> {
        let mut inherited = InheritedListeners::from_environment();
        let listening = Listening::of(config, RouteNumbers::default(), &[], &mut inherited)?;
        inherited.close_rest();
        Ok(listening)
    }

    /// Adopts the listeners that another binary in this process has opened.
    pub(crate) fn adopt(
        handover: &Handover,
        spare: &[i32],
        files: &[SocketFile],
        next_number: u16,
    ) -> Listening {
        let open = &handover.descriptors.listeners;
        let sockets = open.iter().map(|&(fd, _)| fd);
        let sockets = sockets.chain(handover.descriptors.redirects.iter().copied());
        let both = ports_of_both_families(sockets.map(Fd));
        let all = of_both_families(listen_targets(&handover.config), &both);
        let all = all.into_iter().zip(open);
        let adopt = |address: Addr, fd: i32, routes: Vec<u16>| Listener {
            file: path_of(&address).map(|path| SocketFile::adopt(path, files)),
            address,
            fd: Fd(fd),
            routes,
            inherited: systemd::was_inherited(Fd(fd)),
        };
        let listeners = all.map(|((address, _, indices), &(fd, _))| {
            adopt(address, fd, routes_behind(&indices, &handover.numbers))
        });
        let plain = of_both_families(redirect_targets(&handover.config), &both);
        let plain = plain.into_iter().zip(&handover.descriptors.redirects);
        Listening {
            listeners: listeners.collect(),
            redirects: plain
                .map(|((address, _, _), &fd)| adopt(address, fd, Vec::new()))
                .collect(),
            spare: InheritedListeners::of(spare.iter().copied().map(Fd)),
            numbers: RouteNumbers::adopt(&handover.config, &handover.numbers, next_number),
        }
    }

    /// Prepares the listeners of another configuration: open sockets are reused, new ones are opened.
    /// Nothing changes until [`Listening::replace_by`].
    pub(crate) fn prepare(&self, config: &Config) -> Result<Listening, ServeError> {
        let open = self.all();
        let mut spare = self.spare.clone();
        let mut next = Listening::of(config, self.numbers.clone(), &open, &mut spare)?;
        let wanted = next.all();
        let is_unused = |one: &&Listener| one.inherited && !is_among(&wanted, one);
        let unused = open.iter().filter(is_unused).map(|one| one.fd);
        next.spare = InheritedListeners::of(spare.left().chain(unused));
        Ok(next)
    }

    fn of(
        config: &Config,
        numbers: RouteNumbers,
        open: &[Listener],
        inherited: &mut InheritedListeners,
    ) -> Result<Listening, ServeError> {
        let numbers = numbers.of(config);
        let mut listeners: Vec<Listener> = Vec::new();
        let sockets = open.iter().map(|listener| listener.fd);
        let both = ports_of_both_families(sockets.chain(inherited.left()));
        let of_routes = of_both_families(listen_targets(config), &both);
        let count = of_routes.len();
        let redirects = of_both_families(redirect_targets(config), &both);
        for (address, shown, indices) in of_routes.into_iter().chain(redirects) {
            let routes = routes_behind(&indices, &numbers.list());
            let is_open = |one: &&Listener| one.address == address && one.is_reachable();
            let opened = match open.iter().find(is_open) {
                Some(listener) => Ok(listener.clone()),
                None => listen_on(&address, &shown, &options(config), inherited),
            };
            match opened {
                Ok(listener) => listeners.push(Listener { routes, ..listener }),
                Err(error) => {
                    close_all_but(open, &listeners);
                    return Err(error);
                }
            }
        }
        let sockets = SocketOptions::new(&config.sockets);
        listeners
            .iter()
            .for_each(|listener| sockets.apply_to_listener(listener.fd));
        let redirects = listeners.split_off(count);
        Ok(Listening {
            listeners,
            redirects,
            spare: InheritedListeners::default(),
            numbers,
        })
    }

    fn all(&self) -> Vec<Listener> {
        [self.listeners.as_slice(), &self.redirects].concat()
    }

    /// Switches to `next`, made by [`Listening::prepare`]. During a drain, new listeners are paused. With
    /// `backlog`, the length of the listen queues has changed.
    pub(crate) fn replace_by(&mut self, next: Listening, is_draining: bool, backlog: Option<i32>) {
        let (open, wanted) = (self.all(), next.all());
        if is_draining {
            let is_new = |l: &&Listener| !open.iter().any(|o| o.fd == l.fd);
            pause(wanted.iter().filter(is_new));
        }
        close_all_but(&wanted, &open);
        *self = next;
        if let (Some(backlog), false) = (backlog, is_draining) {
            // Reused listeners still have the old length.
            if let Err(error) = resume(&wanted, backlog) {
                tracing::warn!(error, "listener could not resume");
            }
        }
    }

    /// Refuses new connections, after workers were ordered to stop accepting.
    pub(crate) fn pause(&self) {
        pause(&self.all());
    }

    /// Accepts again. The error names the listeners that cannot.
    pub(crate) fn resume(&self, config: &Config) -> Result<(), String> {
        resume(&self.all(), backlog(config))
    }

    /// Restores the original settings of all listeners: a compromised worker may have changed them for all workers.
    pub(crate) fn restore(&self, config: &Config) {
        let all = self.all();
        let sockets = SocketOptions::new(&config.sockets);
        all.iter()
            .for_each(|listener| sockets.apply_to_listener(listener.fd));
        if let Err(error) = resume(&all, backlog(config)) {
            tracing::warn!(error, "listener could not resume");
        }
    }

    /// Refuses new connections at the end of the program. As [`Listening::pause`], but systemd's own sockets
    /// keep listening: clients wait there for the next start.
    pub(crate) fn leave(&self, config: &Config) {
        let all = self.all();
        let (theirs, ours): (Vec<_>, Vec<_>) = all.iter().partition(|one| one.inherited);
        ours.iter().for_each(|one| remove_file(one));
        pause(ours);
        // A drain may have paused these.
        if let Err(error) = resume(theirs, backlog(config)) {
            tracing::warn!(error, "listener could not resume");
        }
    }

    /// Numbers of routes, then of originations, in configuration order.
    pub(crate) fn numbers(&self) -> &RouteNumbers {
        &self.numbers
    }

    /// The addresses of all listeners.
    pub(crate) fn addresses(&self) -> Vec<String> {
        addresses_of_all(&self.all())
    }

    /// Whether clients can reach all listeners.
    pub(crate) fn are_reachable(&self) -> bool {
        self.all().iter().all(Listener::is_reachable)
    }

    /// The addresses that a reload can use: those of reachable listeners, and of sockets from systemd.
    pub(crate) fn usable_addresses(&self) -> Vec<String> {
        let mut usable = self.all();
        usable.retain(Listener::is_reachable);
        [addresses_of_all(&usable), self.spare.addresses()].concat()
    }

    /// The files of unix sockets.
    pub(crate) fn files(&self) -> impl Iterator<Item = &SocketFile> {
        self.listeners.iter().filter_map(|one| one.file.as_ref())
    }

    /// The sockets from systemd that no route uses.
    pub(crate) fn spare(&self) -> Vec<Fd> {
        self.spare.left().collect()
    }

    /// The sockets that workers poll.
    pub(crate) fn fds(&self) -> Vec<Fd> {
        self.listeners.iter().map(|listener| listener.fd).collect()
    }

    /// The sockets of plain HTTP.
    pub(crate) fn redirects(&self) -> Vec<Fd> {
        self.redirects.iter().map(|listener| listener.fd).collect()
    }

    /// Writes the listeners' descriptors, and the routes of each, into `descriptors`.
    pub(crate) fn describe(&self, descriptors: &mut Descriptors) {
        let first = |listener: &Listener| listener.routes.first().copied().unwrap_or_default();
        let listeners = self.listeners.iter();
        descriptors.listeners = listeners.clone().map(|l| (l.fd.0, first(l))).collect();
        descriptors.doors = listeners.map(|l| l.routes.clone()).collect();
        descriptors.redirects = self.redirects.iter().map(|l| l.fd.0).collect();
    }
}

fn addresses_of_all(listeners: &[Listener]) -> Vec<String> {
    let all = listeners.iter();
    all.flat_map(|one| addresses_of(&one.address, one.fd))
        .collect()
}

fn routes_behind(indices: &[usize], numbers: &[u16]) -> Vec<u16> {
    let numbers = indices.iter().map(|&index| numbers.get(index).copied());
    numbers.map(Option::unwrap_or_default).collect()
}

fn is_among(listeners: &[Listener], one: &Listener) -> bool {
    listeners.iter().any(|other| other.fd == one.fd)
}

/// Closes our own listeners that are not in `kept`.
fn close_all_but(kept: &[Listener], listeners: &[Listener]) {
    for listener in listeners {
        if !listener.inherited && !is_among(kept, listener) {
            listener.fd.close();
            remove_file(listener);
        }
    }
}

fn remove_file(listener: &Listener) {
    listener.file.iter().for_each(SocketFile::remove);
}

fn path_of(address: &Addr) -> Option<&Path> {
    match address {
        Addr::Tcp(_) => None,
        Addr::Unix(path) => Some(path),
    }
}

/// An address of the configuration, its text for the log, and the indices of the routes that share it.
type ListenTarget = (Addr, String, Vec<usize>);

/// Removes `0.0.0.0` on the ports `both`, where the listener of `[::]` accepts clients of both families,
/// provided that the same routes share the two.
fn of_both_families(mut all: Vec<ListenTarget>, both: &[u16]) -> Vec<ListenTarget> {
    for &port in both {
        let all_of = |ip: IpAddr| Addr::Tcp(SocketAddr::new(ip, port));
        let routes_of = |address: &Addr| {
            let found = all.iter().find(|(one, _, _)| one == address);
            found.map(|(_, _, routes)| routes)
        };
        let ipv4 = all_of(Ipv4Addr::UNSPECIFIED.into());
        let ipv6 = all_of(Ipv6Addr::UNSPECIFIED.into());
        if routes_of(&ipv4).is_some() && routes_of(&ipv4) == routes_of(&ipv6) {
            all.retain(|(address, _, _)| *address != ipv4);
        }
    }
    all
}

/// The addresses of plain HTTP.
fn redirect_targets(config: &Config) -> Vec<ListenTarget> {
    let all = config.redirect.redirect.iter();
    all.map(|listen| (Addr::Tcp(listen.address), listen.to_string(), Vec::new()))
        .collect()
}

/// The addresses that workers poll, each once. Originations are numbered after the routes.
fn listen_targets(config: &Config) -> Vec<ListenTarget> {
    let mut all: Vec<ListenTarget> = Vec::new();
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

/// Length of each listen queue.
pub(crate) fn backlog(config: &Config) -> i32 {
    i32::try_from(config.sockets.backlog.or(4096)).unwrap_or(i32::MAX)
}

/// Makes the kernel refuse new connections. A unix socket could not listen again, so it is not paused;
/// its clients wait in the queue.
fn pause<'a>(listeners: impl IntoIterator<Item = &'a Listener>) {
    for listener in listeners {
        if let Addr::Tcp(address) = &listener.address
            && let Err(error) = socket::pause_listening(listener.fd)
        {
            tracing::debug!(%error, %address, "listener could not be paused");
        }
    }
}

/// Listens again. The error names the listeners that cannot.
fn resume<'a>(
    listeners: impl IntoIterator<Item = &'a Listener>,
    backlog: i32,
) -> Result<(), String> {
    let mut refused = Vec::new();
    for listener in listeners {
        if let Addr::Tcp(address) = &listener.address
            && let Err(error) = socket::resume_listening(listener.fd, backlog)
        {
            refused.push(format!("cannot listen on {address} again: {error}"));
        }
    }
    if refused.is_empty() {
        Ok(())
    } else {
        Err(refused.join("; "))
    }
}

/// Opens a listener, still without routes, or takes it from systemd.
fn listen_on(
    address: &Addr,
    shown: &str,
    options: &ListenOptions,
    inherited: &mut InheritedListeners,
) -> Result<Listener, ServeError> {
    let ready = match inherited.take(address) {
        // Another worker may accept the client first; accept must not block then.
        Some(fd) => fd.set_nonblocking().map(|()| (fd, true)),
        None => socket::listen(address, options).map(|fd| (fd, false)),
    };
    let ready = ready.map(|(fd, inherited)| Listener {
        address: address.clone(),
        fd,
        file: path_of(address).map(SocketFile::at),
        routes: Vec::new(),
        inherited,
    });
    ready.map_err(|error| match inherited.handed_in() {
        Some(others) => ServeError::System {
            what: format!(
                "listen on {shown}: systemd passed no socket for it (it passed {others})"
            ),
            hint: NOT_PASSED,
            error,
        },
        None => ServeError::System {
            what: format!("listen on {shown}"),
            hint: hint(address, &error),
            error,
        },
    })
}

pub(crate) const NOT_PASSED: &str = "add a ListenStream= for this address to the socket unit. \
    ListenStream=443 serves IPv4 and IPv6 if the configuration has `:443`; \
    for different routes on the two, pass one socket for each (BindIPv6Only=ipv6-only)";

/// Returns what to do when nothing can listen on this address.
pub(crate) fn hint(address: &Addr, error: &io::Error) -> &'static str {
    match (error.kind(), address) {
        (io::ErrorKind::AddrInUse, Addr::Unix(_)) => {
            "another process listens there; `ss -lxp` shows which: stop it, or choose another path"
        }
        (io::ErrorKind::AlreadyExists, _) => "remove the file, or choose another path",
        (io::ErrorKind::AddrInUse, _) => {
            "another process listens there; `ss -ltnp` shows which: stop it, or choose another port"
        }
        (io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound, Addr::Unix(_)) => {
            "create its directory with write access for the user who starts dormouse"
        }
        (io::ErrorKind::PermissionDenied, _) => {
            "ports below 1024 need a privilege: run as root, use \
             `setcap cap_net_bind_service=+ep` on the binary, lower \
             `sysctl net.ipv4.ip_unprivileged_port_start`, or choose a higher port"
        }
        (io::ErrorKind::AddrNotAvailable, _) => {
            "this machine does not have the address; `ip addr` lists its addresses"
        }
        _ => "",
    }
}
