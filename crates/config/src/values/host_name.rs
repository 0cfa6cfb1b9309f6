//! Names of hosts.

use std::net::IpAddr;

/// Returns whether a certificate can be for this name: an IP address, or a host name whose first
/// label may be `*`.
pub(crate) fn is_host(name: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    let labels = name.strip_prefix("*.").unwrap_or(name);
    name.parse::<IpAddr>().is_ok() || labels.split('.').all(is_label)
}
