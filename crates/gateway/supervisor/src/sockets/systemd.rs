//! systemd: notifications about this service, and inherited listeners (sd_notify(3),
//! sd_listen_fds(3)).
//!
//! systemd configures both through environment variables: the address of a datagram socket for lines
//! about the service's state, and the number of inherited listening sockets, which begin at descriptor 3.
//! Without these variables this module does nothing.

use dormouse_config::{environment_number, hands_in_listeners, is_for_this_process};
use dormouse_reactor::Fd;
use dormouse_reactor::process;
use dormouse_reactor::socket::{self, Addr};
use std::ffi::OsStr;
use std::io;
use std::net::Ipv6Addr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The first inherited descriptor.
const FIRST: i32 = 3;
/// Maximum number of inherited sockets.
const INHERITED_MAX: i32 = 1000;

/// The notification socket, and the watchdog's period.
pub(crate) struct Notifier {
    socket: Option<UnixDatagram>,
    /// Interval of watchdog notifications: half of the watchdog's timeout.
    period_ms: Option<u64>,
    next_ms: u64,
}

impl Notifier {
    /// Reads the environment.
    pub(crate) fn from_environment() -> Notifier {
        let socket = std::env::var_os("NOTIFY_SOCKET");
        let socket = socket.filter(|path| !path.is_empty());
        let socket = socket.and_then(|path| match connect(&path) {
            Ok(socket) => Some(socket),
            Err(error) => {
                tracing::warn!(%error, "NOTIFY_SOCKET is unusable");
                None
            }
        });
        let period_ms = environment_number("WATCHDOG_USEC")
            .filter(|_| is_for_this_process("WATCHDOG_PID", true));
        Notifier {
            socket,
            period_ms: period_ms.map(|us| (us / 2000).max(1)),
            next_ms: 0,
        }
    }

    /// Reports that all workers are ready.
    pub(crate) fn ready(&self, workers: usize) {
        let pid = std::process::id();
        self.say(&format!(
            "READY=1\nMAINPID={pid}\nSTATUS=serving with {workers} workers\n"
        ));
    }

    /// Reports the start of a reload (`Type=notify-reload`): `systemctl reload` waits for its end.
    pub(crate) fn reloading(&self) {
        // The time tells systemd which reload an answer belongs to.
        let now_us = process::monotonic_us();
        self.say(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}\n"));
    }

    /// Reports the end of the reload.
    pub(crate) fn reloaded(&self, result: Result<&str, &str>) {
        let (Ok(words) | Err(words)) = result;
        let first = words.lines().next().unwrap_or_default();
        let refused = if result.is_err() {
            "last reload rejected: "
        } else {
            ""
        };
        self.say(&format!("READY=1\nSTATUS={refused}{first}\n"));
    }

    /// Reports the start of the stop.
    pub(crate) fn stopping(&self) {
        self.say("STOPPING=1\nSTATUS=closing connections\n");
    }

    /// Sends a watchdog notification if one is due.
    pub(crate) fn alive(&mut self, now_ms: u64) {
        let (Some(period_ms), Some(_)) = (self.period_ms, &self.socket) else {
            return;
        };
        if now_ms >= self.next_ms {
            self.next_ms = now_ms + period_ms;
            self.say("WATCHDOG=1\n");
        }
    }

    /// Time of the next watchdog notification.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.period_ms
            .filter(|_| self.socket.is_some())
            .map(|_| self.next_ms)
    }

    fn say(&self, text: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.send(text.as_bytes())
        {
            tracing::debug!(%error, "notification to systemd failed");
        }
    }
}

fn connect(path: &OsStr) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    socket.connect_addr(&address)?;
    // A service manager that does not read must not block main.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Whether this descriptor was inherited from systemd, by this binary or by an earlier one in this process,
/// which keeps the numbers.
pub(crate) fn was_inherited(fd: Fd) -> bool {
    let count = environment_number("LISTEN_FDS").filter(|_| hands_in_listeners());
    let number = u64::try_from(fd.0 - FIRST).ok();
    number.zip(count).is_some_and(|(at, count)| at < count)
}

/// Ports of the listeners that accept clients of both families on all addresses (`[::]:443` without
/// IPV6_V6ONLY). Only a service manager passes such listeners.
pub(crate) fn ports_of_both_families(listeners: impl IntoIterator<Item = Fd>) -> Vec<u16> {
    let port = |fd: Fd| match Addr::local(fd) {
        Ok(Addr::Tcp(address)) if address.ip() == Ipv6Addr::UNSPECIFIED => Some(address.port()),
        _ => None,
    };
    let both = |fd: &Fd| socket::takes_both_families(*fd).unwrap_or(false);
    listeners
        .into_iter()
        .filter(both)
        .filter_map(port)
        .collect()
}

/// The addresses that a listener serves: `0.0.0.0` too, if it accepts both families.
pub(crate) fn addresses_of(address: &Addr, fd: Fd) -> Vec<String> {
    let ports = ports_of_both_families([fd]);
    let ipv4 = ports.iter().map(|port| format!("0.0.0.0:{port}"));
    [address.to_string()].into_iter().chain(ipv4).collect()
}

/// Listening sockets that systemd has opened.
#[derive(Clone, Default)]
pub(crate) struct InheritedListeners {
    left: Vec<(Addr, Fd)>,
    /// All passed addresses, for error messages.
    handed_in: Vec<String>,
}

impl InheritedListeners {
    /// Reads the inherited listeners from the environment.
    pub(crate) fn from_environment() -> InheritedListeners {
        let count = if hands_in_listeners() {
            let count =
                environment_number("LISTEN_FDS").and_then(|count| i32::try_from(count).ok());
            count.unwrap_or(0).min(INHERITED_MAX)
        } else {
            0
        };
        let inherited = InheritedListeners::of((FIRST..FIRST + count).map(Fd));
        let handed_in = inherited
            .left
            .iter()
            .map(|(address, _)| address.to_string());
        InheritedListeners {
            handed_in: handed_in.collect(),
            ..inherited
        }
    }

    /// These listeners, which are free to be taken.
    pub(crate) fn of(sockets: impl IntoIterator<Item = Fd>) -> InheritedListeners {
        let left = sockets.into_iter().filter_map(|fd| match Addr::local(fd) {
            Ok(address) => Some((address, fd)),
            Err(error) => {
                tracing::warn!(fd = fd.0, %error, "inherited descriptor is not a socket");
                None
            }
        });
        InheritedListeners {
            left: left.collect(),
            handed_in: Vec::new(),
        }
    }

    /// The sockets that no listener has taken yet.
    pub(crate) fn left(&self) -> impl Iterator<Item = Fd> {
        self.left.iter().map(|&(_, fd)| fd)
    }

    /// The addresses of all passed sockets. `None`: there were none.
    pub(crate) fn handed_in(&self) -> Option<String> {
        (!self.handed_in.is_empty()).then(|| self.handed_in.join(", "))
    }

    /// The addresses of the remaining sockets.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let all = self.left.iter();
        all.flat_map(|(address, fd)| addresses_of(address, *fd))
            .collect()
    }

    /// Takes the socket that listens on this address, if there is one.
    pub(crate) fn take(&mut self, address: &Addr) -> Option<Fd> {
        let at = self.left.iter().position(|(there, _)| there == address)?;
        Some(self.left.swap_remove(at).1)
    }

    /// Closes the sockets that no route needs.
    pub(crate) fn close_rest(self) {
        for (address, fd) in self.left {
            tracing::warn!(%address, "inherited socket is unused; closing it");
            fd.close();
        }
    }
}
