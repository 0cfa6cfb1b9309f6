//! A set of networks, to find those that have addresses in common.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// Networks as ranges of addresses, none of which is within another: two networks are apart, or one is in the other.
/// So the last range that begins before an address is the only one that can have it.
#[derive(Default)]
pub(super) struct Networks {
    /// The last address of each range, by its family and its first address.
    ranges: BTreeMap<(Family, u128), u128>,
    /// Whether one of them could not be read, so that it may have any address.
    has_unknown: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Family {
    V4,
    V6,
}

impl Networks {
    pub(super) fn add(&mut self, text: &str) {
        let Some((family, first, last)) = range(text) else {
            self.has_unknown = true;
            return;
        };
        if self.around(family, first).is_some_and(|end| end >= last) {
            return;
        }
        let inner = self.ranges.range((family, first)..=(family, last));
        let inner: Vec<_> = inner.map(|(start, _)| *start).collect();
        for start in inner {
            self.ranges.remove(&start);
        }
        self.ranges.insert((family, first), last);
    }

    /// Returns whether one of them has an address of this network. One that cannot be read may have.
    pub(super) fn overlap(&self, text: &str) -> bool {
        let is_empty = self.ranges.is_empty() && !self.has_unknown;
        let Some((family, first, last)) = range(text) else {
            return !is_empty;
        };
        let mut inner = self.ranges.range((family, first)..=(family, last));
        self.has_unknown
            || inner.next().is_some()
            || self.around(family, first).is_some_and(|end| end >= first)
    }

    /// Returns the end of the last range that begins at this address or before.
    fn around(&self, family: Family, first: u128) -> Option<u128> {
        let mut before = self.ranges.range((family, 0)..=(family, first));
        before.next_back().map(|(_, end)| *end)
    }
}

/// Returns the family of a network, with its first and last address.
fn range(text: &str) -> Option<(Family, u128, u128)> {
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix.parse::<u32>().ok()?)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let (family, bits, width) = match (address, address.to_canonical()) {
        (_, IpAddr::V4(v4)) if address.is_ipv4() || prefix.is_none_or(|n| n >= 96) => {
            (Family::V4, u128::from(u32::from(v4)), 32)
        }
        (IpAddr::V6(v6), _) => (Family::V6, u128::from(v6), 128),
        _ => return None,
    };
    // `::ffff:10.0.0.0/104` is 10.0.0.0/8.
    let mapped = if family == Family::V4 && address.is_ipv6() {
        96
    } else {
        0
    };
    let prefix = prefix.map_or(width, |n| n - mapped);
    let host = width.checked_sub(prefix)?;
    let host = u128::MAX.checked_shr(128 - host).unwrap_or(0);
    Some((family, bits & !host, bits | host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(all: &[&str]) -> Networks {
        let mut networks = Networks::default();
        all.iter().for_each(|one| networks.add(one));
        networks
    }

    #[test]
    fn overlaps() {
        let all = [
            "10.1.0.0/16",
            "10.1.2.0/24",
            "192.0.2.7",
            "2001:db8::/32",
            "::ffff:198.51.100.0/120",
        ];
        for order in [all.to_vec(), all.iter().rev().copied().collect()] {
            let networks = of(&order);
            for (text, does) in [
                ("10.1.255.255", true),
                ("10.2.0.0", false),
                ("10.0.0.0/8", true),
                ("10.0.255.255", false),
                ("0.0.0.0/0", true),
                ("::/0", true),
                ("192.0.2.6/31", true),
                ("192.0.2.8", false),
                ("2001:db9::1", false),
                ("2001:db8:ffff::/48", true),
                ("198.51.100.9", true),
                ("example.test", true),
            ] {
                assert_eq!(networks.overlap(text), does, "{text}");
            }
        }
        assert!(!of(&[]).overlap("example.test"));
        assert!(!of(&["10.0.0.0/8"]).overlap("::/0"));
        assert!(of(&["10.0.0.0/40"]).overlap("192.0.2.1"));
    }

    /// An answer does not take longer with the number of networks.
    #[test]
    fn many_networks() {
        let network = |n: usize| format!("10.{}.{}.{}", n >> 16, n >> 8 & 255, n & 255);
        let once = |count: usize| {
            let mut networks = Networks::default();
            (0..count).for_each(|n| networks.add(&network(n)));
            let start = std::time::Instant::now();
            for n in 0..2000 {
                assert!(!networks.overlap(&format!("192.0.2.{}/32", n % 256)));
            }
            start.elapsed()
        };
        // The shortest of several, because the machine is busy with other tests.
        let time = |count| (0..4).map(|_| once(count)).min().unwrap_or_default();
        let (few, many) = (time(100), time(100_000));
        assert!(many < few * 50, "{few:?} {many:?}");
    }
}
