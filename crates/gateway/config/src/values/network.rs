//! Networks: `10.0.0.0/8`, `2001:db8::/32`, or a single address.

use crate::mistakes::problem::{Problem, ReadResult};
use crate::mistakes::words::shortened;
use crate::option::context::ReadContext;
use crate::option::option_type::{Kind, Listed, OptionType, wrong_type};
use crate::option::value::RawValue;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network of IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Its first address.
    pub address: IpAddr,
    /// Number of leading bits that all its addresses share.
    pub prefix: u8,
}

impl Network {
    /// Returns whether the address is in the network.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differ = u32::from(own) ^ u32::from(other);
                differ
                    .checked_shr(32 - u32::from(self.prefix.min(32)))
                    .unwrap_or(0)
                    == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differ = u128::from(own) ^ u128::from(other);
                differ
                    .checked_shr(128 - u32::from(self.prefix.min(128)))
                    .unwrap_or(0)
                    == 0
            }
            _ => false,
        }
    }

    /// Returns the network in canonical form: `::ffff:10.0.0.0/104` is `10.0.0.0/8`, because
    /// clients' addresses are canonical too.
    fn canonical(self) -> Network {
        const MAPPED: u8 = 96;
        match (self.address.to_canonical(), self.prefix.checked_sub(MAPPED)) {
            (address @ IpAddr::V4(_), Some(prefix)) if self.address.is_ipv6() => {
                Network { address, prefix }
            }
            _ => self,
        }
    }

    /// Returns the network with this prefix length that contains the address.
    fn around(address: IpAddr, prefix: u8) -> Network {
        let address = match address {
            IpAddr::V4(ip) => {
                let host = u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from(u32::from(ip) & !host))
            }
            IpAddr::V6(ip) => {
                let host = u128::MAX.checked_shr(prefix.into()).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from(u128::from(ip) & !host))
            }
        };
        Network { address, prefix }
    }
}

/// Returns the number of bits in an address of this family.
fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.prefix == bits(self.address) {
            f.pad(&self.address.to_string())
        } else {
            f.pad(&format!("{}/{}", self.address, self.prefix))
        }
    }
}

impl OptionType for Network {
    const KIND: Kind = Kind::new("a network", "\"10.0.0.0/8\"", "NETWORK");

    fn read(raw: &RawValue, _: &ReadContext<'_>) -> ReadResult<Self> {
        let text = raw.as_text().ok_or_else(|| wrong_type::<Self>(raw))?;
        let no_network = || {
            Problem::new(format!("`{}` is not a network", shortened(text)))
                .help("write it like this: \"10.0.0.0/8\", \"2001:db8::/32\" or \"192.0.2.7\"")
        };
        let (address, prefix) = text.split_once('/').unzip();
        let address: IpAddr = address.unwrap_or(text).parse().map_err(|_| no_network())?;
        let most = bits(address);
        let prefix = match prefix {
            None => most,
            Some(prefix) if prefix.bytes().all(|b| b.is_ascii_digit()) => prefix
                .parse::<u8>()
                .ok()
                .filter(|&prefix| prefix <= most)
                .ok_or_else(|| no_network().label(format!("at most /{most} for this address")))?,
            Some(_) => return Err(no_network().into()),
        };
        let network = Network::around(address, prefix);
        if network.address != address {
            return Err(Problem::new(format!(
                "`{}` is an address inside a network",
                shortened(text)
            ))
            .help(format!(
                "write \"{network}\" for the network, or \"{address}\" for this address alone"
            ))
            .into());
        }
        Ok(network.canonical())
    }
}

impl Listed for Network {
    const KIND_OF_LIST: Kind = Kind::new(
        "a list of networks",
        "[\"10.0.0.0/8\", \"2001:db8::/32\"]",
        "NETWORK",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Network, String> {
        Network::read(&RawValue::builtin(text), &ReadContext::NONE)
            .map_err(|problems| problems[0].what.clone())
    }

    #[test]
    fn networks_contain_their_addresses() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.255.255", "11.0.0.0"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.6"),
            ("0.0.0.0/0", "255.1.2.3", "::1"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
            ("::/0", "::1", "127.0.0.1"),
            ("::1", "::1", "::2"),
            ("::ffff:10.0.0.0/104", "10.1.2.3", "11.0.0.0"),
            ("::ffff:192.0.2.7", "192.0.2.7", "192.0.2.6"),
            ("::ffff:0:0/96", "192.0.2.7", "::1"),
            // As the guide says for clients of a translator.
            (
                "64:ff9b::192.0.2.0/120",
                "64:ff9b::192.0.2.7",
                "64:ff9b::192.0.3.7",
            ),
            ("64:ff9b::/96", "64:ff9b::192.0.2.7", "192.0.2.7"),
        ] {
            let network = read(network).unwrap();
            assert!(
                network.contains(inside.parse().unwrap()),
                "{inside} in {network}"
            );
            assert!(
                !network.contains(outside.parse().unwrap()),
                "{outside} not in {network}"
            );
        }
    }

    #[test]
    fn refuses_invalid_networks() {
        for text in [
            "",
            "10",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "x/8",
            "10.0.0.1/8",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        assert_eq!(read("10.0.0.0/8").unwrap().to_string(), "10.0.0.0/8");
        assert_eq!(read("10.0.0.1/32").unwrap().to_string(), "10.0.0.1");
    }
}
