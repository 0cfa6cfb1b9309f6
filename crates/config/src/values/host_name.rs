//! Names of hosts.

use std::net::IpAddr;

/// A name for a certificate: an IP address or a host name, its first label maybe `*`.
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
