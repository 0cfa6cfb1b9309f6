//! Source addresses: one address has some 28,000 ports to a target, loopback has 16 million addresses.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use dormouse_reactor::socket::Addr;

/// Source addresses per generator for loopback targets. With 64, neither a million held
/// connections nor those in TIME-WAIT after a long churn use up the ports.
const PER_GENERATOR: u8 = 64;

/// The source that every server takes for its own machine.
pub(super) const USUAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// Connections from it: some three quarters of its ports. With fewer free ones the kernel searches long.
pub(super) const USUAL_MAX: u64 = 20_000;

/// Whether the first connections of generator `index` come from [`USUAL`]: one generator has enough of its ports.
pub(super) fn has_usual(target: &Addr, sources: &[IpAddr], index: u32) -> bool {
    let loopback = |address: &SocketAddr| address.is_ipv4() && address.ip().is_loopback();
    let is_own = |ip: &IpAddr| matches!(ip, IpAddr::V4(ip) if ip.octets().starts_with(&[127, 64]));
    index == 0
        && matches!(target, Addr::Tcp(address) if loopback(address))
        && sources.first().is_some_and(is_own)
}

/// Returns the source addresses of generator `index` for a target; empty if the system chooses.
pub(super) fn for_target(target: SocketAddr, given: &[IpAddr], index: u32) -> Vec<IpAddr> {
    if !given.is_empty() {
        return given.to_vec();
    }
    match target.ip() {
        IpAddr::V4(ip) if ip.is_loopback() => {
            // 127.64.0.0/10 is for the load; servers usually listen in 127.0.0.0/10.
            let block = 64 + u8::try_from(index % 64).unwrap_or(0);
            let row = u8::try_from(index / 64 % 256).unwrap_or(0);
            (1..=PER_GENERATOR)
                .map(|host| IpAddr::V4(Ipv4Addr::new(127, block, row, host)))
                .collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn generators_do_not_share_addresses() {
        let target = "127.0.0.1:8443".parse().unwrap();
        let all: Vec<_> = (0..200)
            .flat_map(|index| for_target(target, &[], index))
            .collect();
        assert_eq!(
            all.iter().collect::<HashSet<_>>().len(),
            200 * usize::from(PER_GENERATOR)
        );
        assert!(all.iter().all(IpAddr::is_loopback));
    }

    #[test]
    fn the_first_generator_begins_at_the_usual_address() {
        let target = "127.0.0.1:8443".parse().unwrap();
        let own = for_target(target, &[], 0);
        assert!(has_usual(&Addr::Tcp(target), &own, 0));
        assert!(!has_usual(&Addr::Tcp(target), &own, 1));
        // Addresses that the user chose are kept to.
        assert!(!has_usual(
            &Addr::Tcp(target),
            &["127.0.0.9".parse().unwrap()],
            0
        ));
        assert!(!has_usual(&Addr::Tcp("[::1]:1".parse().unwrap()), &[], 0));
    }

    #[test]
    fn elsewhere_the_system_chooses() {
        assert!(for_target("192.0.2.1:443".parse().unwrap(), &[], 0).is_empty());
        assert!(for_target("[::1]:443".parse().unwrap(), &[], 0).is_empty());
    }
}
