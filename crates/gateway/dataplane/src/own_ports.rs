//! Local ports for connections to backends that may rest.
//!
//! The kernel does not know the port of a resting connection, and gives it to the next connection to the same backend,
//! whose SYN would end the resting one. So Dormouse binds such connections to ports outside of the range from which the
//! kernel chooses, and remembers which of them rest. The kernel refuses those that are awake. Each worker has its own part
//! of the ports, since it does not know what rests in another one. Nor does it know what rests in another program, a second
//! Dormouse or one whose main process has died: so each worker begins at another port than those before it. That only
//! postpones a collision, because each connection to any backend takes the next port.

use dormouse_reactor::sandbox::OwnPorts;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

/// The ports of one worker, and those that rest.
#[derive(Debug)]
pub(crate) struct PortChoice {
    /// The ports from which this worker may choose.
    pub(crate) own: OwnPorts,
    /// All of them.
    all: Vec<u16>,
    /// The place from which the next port is searched.
    next: usize,
    /// The ports that rest, by backend and local address.
    resting: HashMap<SocketAddr, HashMap<IpAddr, HashSet<u16>>>,
}

impl PortChoice {
    /// A choice from these ports, from a place on that follows from `seed`.
    pub(crate) fn from(own: OwnPorts, seed: u64) -> PortChoice {
        let all: Vec<u16> = own.all().collect();
        // Neighbouring seeds lead far apart (Fibonacci hashing).
        let place = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        PortChoice {
            own,
            next: place as usize % all.len().max(1),
            all,
            resting: HashMap::new(),
        }
    }

    /// Chooses a port for a connection to this backend. `source`: the local address; `None` if the kernel chooses it.
    pub(crate) fn choose(&mut self, backend: SocketAddr, source: Option<IpAddr>) -> Option<u16> {
        let resting = self.resting.get(&backend);
        let rests = |port: &u16| {
            resting.is_some_and(|resting| match source {
                Some(ip) => resting.get(&ip).is_some_and(|ports| ports.contains(port)),
                None => resting.values().any(|ports| ports.contains(port)),
            })
        };
        for _ in 0..self.all.len() {
            let port = self.all.get(self.next % self.all.len()).copied();
            self.next = (self.next + 1) % self.all.len();
            if let Some(port) = port.filter(|port| !rests(port)) {
                return Some(port);
            }
        }
        None
    }

    /// Notes a connection that rests.
    pub(crate) fn note(&mut self, backend: SocketAddr, local: SocketAddr) {
        let resting = self.resting.entry(backend).or_default();
        resting.entry(local.ip()).or_default().insert(local.port());
    }

    /// Forgets a connection that rests no more.
    pub(crate) fn forget(&mut self, backend: SocketAddr, local: SocketAddr) {
        let Some(resting) = self.resting.get_mut(&backend) else {
            return;
        };
        if let Some(ports) = resting.get_mut(&local.ip()) {
            ports.remove(&local.port());
            if ports.is_empty() {
                resting.remove(&local.ip());
            }
        }
        if resting.is_empty() {
            self.resting.remove(&backend);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn no_port_is_chosen_that_rests_with_the_same_backend() {
        let mut ports = PortChoice::from(OwnPorts::outside("10002 65535", 0, 1), 0);
        let (backend, other) = (address("192.0.2.1:80"), address("192.0.2.2:80"));
        let source = "198.51.100.1".parse().expect("an address");
        ports.note(backend, SocketAddr::new(source, 10_000));
        for chosen in [Some(source), None] {
            assert_eq!(
                [0; 3].map(|_| ports.choose(backend, chosen)),
                [Some(10_001); 3]
            );
        }
        ports.note(backend, SocketAddr::new(source, 10_001));
        assert_eq!(ports.choose(backend, None), None, "all rest");
        assert!(ports.choose(other, None).is_some());
        ports.forget(backend, SocketAddr::new(source, 10_000));
        assert_eq!(ports.choose(backend, Some(source)), Some(10_000));
        ports.forget(backend, SocketAddr::new(source, 10_001));
        assert!(ports.resting.is_empty());
    }

    #[test]
    fn programs_that_start_one_after_the_other_begin_at_distant_ports() {
        let backend = address("192.0.2.1:80");
        let first = |seed| {
            let mut ports = PortChoice::from(OwnPorts::outside("32768 60999", 0, 1), seed);
            ports.choose(backend, None).expect("a port")
        };
        let mut chosen: Vec<u16> = (0..20).map(|seed| first(5_000_000 + seed)).collect();
        chosen.sort_unstable();
        let nearest = chosen.windows(2).map(|pair| pair[1] - pair[0]).min();
        assert!(nearest > Some(100), "{chosen:?}");
        assert!(
            PortChoice::from(OwnPorts::NONE, 7)
                .choose(backend, None)
                .is_none()
        );
    }
}
