//! Addresses of `bind` and `server`.

use std::collections::HashSet;

use super::config::Config;
use super::syntax::{HaproxySection, Line};
use crate::value::with_ports;

/// An address of a `bind`.
pub(super) enum BindAddress {
    /// TCP addresses: several, if it has a range of ports.
    Tcp(Vec<String>),
    /// A listener of QUIC.
    Quic,
    /// A unix socket, a variable, or too many ports.
    Other,
}

/// Returns the addresses of a bind, each with its text.
pub(super) fn of_bind<'a>(
    line: &'a Line,
    config: &'a Config,
) -> impl Iterator<Item = (&'a str, BindAddress)> {
    let all = line.word(1).split(',');
    all.map(move |one| (one, of_one(one, line, config)))
}

/// On Linux `:::443` accepts IPv4 clients, too, unless another bind does.
fn of_one(text: &str, line: &Line, config: &Config) -> BindAddress {
    if text.starts_with("quic") && text.contains('@') {
        return BindAddress::Quic;
    }
    let Some(addresses) = of_one_family(text) else {
        return BindAddress::Other;
    };
    let both = |address: String| match address.strip_prefix("[::]:") {
        Some(port)
            if !line.has_word("v6only") && !config.ipv4.contains(&format!("0.0.0.0:{port}")) =>
        {
            format!(":{port}")
        }
        _ => address,
    };
    BindAddress::Tcp(addresses.into_iter().map(both).collect())
}

/// Returns the addresses of all binds, before those of both families are told from those of one.
pub(super) fn of_all(parts: &[HaproxySection]) -> HashSet<String> {
    let binds = parts.iter().flat_map(|part| part.all("bind"));
    let texts = binds.flat_map(|bind| bind.word(1).split(','));
    texts
        .flat_map(|one| of_one_family(one).unwrap_or_default())
        .collect()
}

/// Converts `*:443`, `:443`, `ipv4@1.2.3.4:443`, `:::443` or `:10000-10009`. `None`: not a TCP address.
fn of_one_family(text: &str) -> Option<Vec<String>> {
    let (family, text) = text.split_once('@').unwrap_or(("", text));
    if !matches!(family, "" | "ipv4" | "ipv6" | "tcp" | "tcp4" | "tcp6")
        || text.starts_with('/')
        || text.contains('$')
    {
        return None;
    }
    let (host, ports) = text.rsplit_once(':')?;
    let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_number(first) || !is_number(last) {
        return None;
    }
    let host = match (host, family) {
        ("" | "*", "ipv6" | "tcp6") | ("::" | "[::]", _) => "[::]".to_owned(),
        ("" | "*", _) => "0.0.0.0".to_owned(),
        (host, _) if host.contains(':') && !host.starts_with('[') => format!("[{host}]"),
        (host, _) => host.to_owned(),
    };
    with_ports(&host, ports)
}

/// An address of a `server`.
pub(super) enum ServerAddress {
    /// As in `to`.
    Whole(String),
    /// A host; the port is that of the client's connection, plus this.
    SamePort(String, i32),
    /// Dormouse cannot connect there.
    Other,
}

/// Converts `host:port`, `ipv4@host:port`, `unix@/path`, `/path`, `::1:80`, `host` or `host:+1000`.
pub(super) fn of_server(text: &str) -> ServerAddress {
    if text.starts_with('/') {
        return ServerAddress::Whole(format!("unix:{text}"));
    }
    let (family, text) = text.split_once('@').unwrap_or(("", text));
    match family {
        "unix" => return ServerAddress::Whole(format!("unix:{text}")),
        "" | "ipv4" | "ipv6" | "tcp" | "tcp4" | "tcp6" => {}
        _ => return ServerAddress::Other,
    }
    // `_web._tcp.example` is the name of SRV records, which Dormouse does not look up.
    if text.is_empty() || text.contains('$') || text.starts_with('_') {
        return ServerAddress::Other;
    }
    let with_brackets = |host: &str| match host.contains(':') && !host.starts_with('[') {
        true => format!("[{host}]"),
        false => host.to_owned(),
    };
    match text.rsplit_once(':') {
        Some((host, port)) if !text.ends_with(']') => {
            if port.starts_with(['+', '-']) || matches!(port, "" | "0") {
                let offset = port.parse().unwrap_or(0);
                return ServerAddress::SamePort(with_brackets(host), offset);
            }
            ServerAddress::Whole(format!("{}:{port}", with_brackets(host)))
        }
        _ => ServerAddress::SamePort(with_brackets(text), 0),
    }
}
