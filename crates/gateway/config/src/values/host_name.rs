//! Names of hosts.

use std::net::IpAddr;

/// Longest name of a host (RFC 1035 §2.3.4).
const LEN_MAX: usize = 253;

/// Returns the help for a text that is not a name: `usual`, or how to write a name with letters of other scripts
/// (RFC 5890 §2.3.2.1).
pub(crate) fn help<'a>(text: &str, usual: &'a str) -> &'a str {
    match text.is_ascii() {
        true => usual,
        false => {
            "write the name as DNS has it: a part with letters outside ASCII begins with `xn--`"
        }
    }
}

/// Returns whether this is the name of a host; underscores are allowed.
pub(crate) fn is_name(text: &str) -> bool {
    let is_label = |label: &str| {
        let mut bytes = label.bytes();
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    text.len() <= LEN_MAX && text.split('.').all(is_label)
}

/// Returns a name without the dot at its end, with which the resolver tries no search domains. Names in TLS and in
/// certificates have none (RFC 6066 §3).
pub(crate) fn without_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// Returns a host and its port without the dot at the end of the name, as the header `Host` has them.
pub(crate) fn authority(given: &str) -> String {
    match parts(given) {
        (host, Some(port)) => format!("{host}:{port}"),
        (host, None) => host.to_owned(),
    }
}

/// Whether both are the same host and port, perhaps in another spelling.
pub(crate) fn is_same_authority(one: &str, other: &str) -> bool {
    let ((host, port), (other, other_port)) = (parts(one), parts(other));
    port == other_port && host.eq_ignore_ascii_case(other)
}

fn parts(given: &str) -> (&str, Option<&str>) {
    match given.rsplit_once(':') {
        Some((host, port)) => (without_dot(host), Some(port)),
        None => (given, None),
    }
}

/// Returns whether a certificate can be for this: an IP address, or the name of a host, perhaps
/// after `*.`. The last part of such a name is not a number, so that it can't be taken for an address
/// (RFC 1123 §2.1).
pub(crate) fn is_in_certificates(text: &str) -> bool {
    let name = text.strip_prefix("*.").unwrap_or(text);
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_number = last.bytes().all(|b| b.is_ascii_digit());
    text.parse::<IpAddr>().is_ok() || is_name(name) && !is_number
}
