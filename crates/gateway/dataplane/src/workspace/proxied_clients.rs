//! Clients that a trusted proxy has named, while their connections to a backend begin. The socket's peer is the proxy, so
//! a further choice of a backend could not find the client's address otherwise.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// Addresses by the generations of the connections, each with the end of its time.
#[derive(Default)]
pub(crate) struct ProxiedClients(BTreeMap<u32, (IpAddr, u64)>);

impl ProxiedClients {
    /// Notes a client until a time after which no backend is chosen for it any more.
    pub(crate) fn note(&mut self, generation: u32, client: IpAddr, until_ms: u64, now_ms: u64) {
        // Clients whose connections ended early. Later connections are behind them.
        while let Some(oldest) = self.0.first_entry()
            && oldest.get().1 < now_ms
        {
            oldest.remove();
        }
        self.0.insert(generation, (client, until_ms));
    }

    /// The client of this connection, if a proxy named it.
    pub(crate) fn of(&self, generation: u32) -> Option<IpAddr> {
        self.0.get(&generation).map(|(client, _)| *client)
    }

    /// Forgets a client, whose backend is connected.
    pub(crate) fn forget(&mut self, generation: u32) {
        self.0.remove(&generation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_forgotten_after_their_time() {
        let ip = |n: u8| IpAddr::from([10, 0, 0, n]);
        let mut clients = ProxiedClients::default();
        for n in 1..=3 {
            clients.note(n.into(), ip(n), 100 + u64::from(n), 1);
        }
        assert_eq!(clients.of(2), Some(ip(2)));
        clients.forget(2);
        assert_eq!(clients.of(2), None);
        clients.note(4, ip(4), 300, 200);
        assert_eq!(clients.0.keys().copied().collect::<Vec<_>>(), [4]);
    }
}
