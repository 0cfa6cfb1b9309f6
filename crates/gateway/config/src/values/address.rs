//! Reading addresses: `HOST:PORT`, `[IPv6]:PORT`, `:PORT`, `unix:PATH`, `echo:`.

use crate::mistakes::problem::{Problem, ReadResult};
use crate::mistakes::words::shortened;
use crate::option::context::ReadContext;
use crate::option::option_type::{Kind, Listed, OptionType};
use crate::option::value::RawValue;
use crate::values::endpoints::{Backend, Listen, PlainListen, Server};
use crate::values::host_name::{is_name, without_dot};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;

/// The longest path of a unix socket: `sun_path` has 108 bytes, one of them for the
/// zero at the end.
pub(crate) const UNIX_PATH_MAX: usize = 107;

impl OptionType for Listen {
    const KIND: Kind = Kind::new("an address to listen on", "\"127.0.0.1:8443\"", "ADDR");

    fn read(raw: &RawValue, context: &ReadContext<'_>) -> ReadResult<Self> {
        let mut addresses = Self::read_item(raw, context)?;
        Ok(addresses.remove(0))
    }
}

impl Listed for Listen {
    const KIND_OF_LIST: Kind = Kind::new(
        "a list of addresses",
        "[\"127.0.0.1:8443\", \"[::1]:8443\"]",
        "ADDR",
    );

    /// `:PORT` stands for two addresses, because a listener on `[::]` takes IPv6 only.
    fn read_item(raw: &RawValue, context: &ReadContext<'_>) -> ReadResult<Vec<Self>> {
        let text = text_of::<Self>(raw)?;
        if text.starts_with("unix:") {
            return Err(Problem::new("TLS is not supported on unix sockets")
                .label("write an IP address and a port here")
                .help(format!("write it like this: {}", Self::KIND.example))
                .into());
        }
        let (host, port) = host_and_port(text)?;
        let ips = match host {
            Host::All if context.ipv6 => {
                vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()]
            }
            Host::All => vec![Ipv4Addr::UNSPECIFIED.into()],
            Host::Ip(ip) => vec![ip],
            Host::Name(name) => vec![look_up(name, port, context)?.ip()],
        };
        let listen = |ip: IpAddr| Self {
            address: SocketAddr::new(ip, port),
            given: text.to_owned(),
        };
        Ok(ips.into_iter().map(listen).collect())
    }
}

impl OptionType for PlainListen {
    const KIND: Kind = Kind::new(
        "an address to listen on",
        "\"127.0.0.1:8080\" or \"unix:/run/app.sock\"",
        "ADDR",
    );

    fn read(raw: &RawValue, context: &ReadContext<'_>) -> ReadResult<Self> {
        let mut addresses = Self::read_item(raw, context)?;
        Ok(addresses.remove(0))
    }
}

impl Listed for PlainListen {
    const KIND_OF_LIST: Kind = Kind::new(
        "a list of addresses",
        "[\"127.0.0.1:8080\", \"unix:/run/app.sock\"]",
        "ADDR",
    );

    fn read_item(raw: &RawValue, context: &ReadContext<'_>) -> ReadResult<Vec<Self>> {
        match text_of::<Self>(raw)?.strip_prefix("unix:") {
            Some(path) => Ok(vec![Self::Unix(unix_path(path, context)?)]),
            None => {
                let listeners = Listen::read_item(raw, context)?;
                Ok(listeners.into_iter().map(Self::Tcp).collect())
            }
        }
    }
}

/// Maximum number of addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;

impl OptionType for Server {
    const KIND: Kind = Kind::new(
        "the address of a TLS server",
        "\"www.example.com:443\"",
        "HOST:PORT",
    );

    fn read(raw: &RawValue, context: &ReadContext<'_>) -> ReadResult<Self> {
        let text = text_of::<Self>(raw)?;
        if text.starts_with("unix:") {
            return Err(Problem::new("TLS is not supported on unix sockets")
                .label("write a host and a port here")
                .help(format!("write it like this: {}", Self::KIND.example))
                .into());
        }
        let (host, addresses) = match destination(text)? {
            (Destination::Ip(ip), port) => (ip.to_string(), vec![SocketAddr::new(ip, port)]),
            (Destination::Name(name), port) => {
                let addresses = look_up_for_to(name, port, context)?;
                (without_dot(name).to_owned(), first_of(addresses))
            }
        };
        Ok(Self {
            addresses,
            host,
            given: text.to_owned(),
        })
    }
}

impl Listed for Server {
    const KIND_OF_LIST: Kind = Kind::new(
        "a list of TLS servers",
        "[\"www.example.com:443\", \"192.0.2.7:443\"]",
        "HOST:PORT",
    );
}

impl OptionType for Backend {
    const KIND: Kind = Kind::new(
        "the address of a backend",
        "\"127.0.0.1:8080\", \"unix:/run/app.sock\" or \"echo:\"",
        "ADDR",
    );

    fn read(raw: &RawValue, context: &ReadContext<'_>) -> ReadResult<Self> {
        let text = text_of::<Self>(raw)?;
        if text == "echo:" || text == "echo" {
            return Ok(Self::Echo);
        }
        if let Some(path) = text.strip_prefix("unix:") {
            return unix_path(path, context).map(Self::Unix);
        }
        if text.starts_with('/') || text.starts_with("./") {
            return Err(Problem::new(format!(
                "`{}` looks like the path of a unix socket",
                shortened(text)
            ))
            .help(format!("write \"unix:{}\"", shortened(text)))
            .into());
        }
        let addresses = match destination(text)? {
            (Destination::Ip(ip), port) => vec![SocketAddr::new(ip, port)],
            (Destination::Name(name), port) => of_one_family(look_up_for_to(name, port, context)?),
        };
        Ok(Self::Tcp {
            given: text.to_owned(),
            addresses,
        })
    }
}

/// Reads the path of a unix socket, without the prefix `unix:`.
pub(crate) fn unix_path(path: &str, context: &ReadContext<'_>) -> ReadResult<PathBuf> {
    if path.is_empty() || path.contains('\0') {
        return Err(Problem::new("a unix socket needs a path")
            .help("write it like this: \"unix:/run/app.sock\"")
            .into());
    }
    let path = context.path(path);
    let length = path.as_os_str().len();
    if length > UNIX_PATH_MAX {
        return Err(Problem::new(format!("the path of this unix socket is {length} bytes long"))
            .label(format!("at most {UNIX_PATH_MAX} bytes"))
            .help("the kernel does not allow a longer path: move the socket, or make a symbolic link to its directory")
            .into());
    }
    Ok(path)
}

fn text_of<T: OptionType>(raw: &RawValue) -> ReadResult<&str> {
    raw.as_text()
        .ok_or_else(|| raw.wrong_type(T::KIND.name, T::KIND.example).into())
}

#[derive(Debug, PartialEq, Eq)]
enum Host<'a> {
    All,
    Ip(IpAddr),
    Name(&'a str),
}

/// A host to connect to.
enum Destination<'a> {
    Ip(IpAddr),
    Name(&'a str),
}

/// Reads host and port to connect to, which can't be all addresses of the machine.
fn destination(text: &str) -> Result<(Destination<'_>, u16), Problem> {
    let (host, port) = host_and_port(text)?;
    let what = match host {
        Host::Name(name) => return Ok((Destination::Name(name), port)),
        Host::Ip(ip) if !ip.is_unspecified() => return Ok((Destination::Ip(ip), port)),
        Host::Ip(ip) => format!("`{ip}` stands for all addresses and cannot be connected to"),
        Host::All => format!("`{}` has no host", shortened(text)),
    };
    Err(Problem::new(what).help(format!("write \"127.0.0.1:{port}\" for this machine")))
}

fn host_and_port(text: &str) -> Result<(Host<'_>, u16), Problem> {
    let shown = shortened(text);
    if let Some((scheme, rest)) = text.split_once("://") {
        return Err(Problem::new(format!("`{shown}` is a URL"))
            .label("an address is expected here")
            .help(url_help(scheme, rest)));
    }
    let several = text.split([',', ';', ' ']);
    let several: Vec<&str> = several.filter(|one| !one.is_empty()).collect();
    if several.len() > 1 && several.iter().all(|one| split(one).is_some()) {
        return Err(Problem::new(format!("`{shown}` is more than one address"))
            .help(format!("write a list: [\"{}\"]", several.join("\", \""))));
    }
    let Some((host, port)) = split(text) else {
        return Err(match text.parse::<Ipv6Addr>() {
            Ok(ip) => Problem::new(format!("`{shown}` has no port"))
                .help(format!("write it like this: \"[{ip}]:8443\"")),
            Err(_) if text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty() => {
                Problem::new(format!("`{shown}` is only a port")).help(format!(
                    "write \":{text}\" for all addresses of the machine, or \"127.0.0.1:{text}\""
                ))
            }
            Err(_) => Problem::new(format!("`{shown}` has no port"))
                .help(format!("write it like this: \"{shown}:8443\"")),
        });
    };
    let port = read_port(port)?;
    let host = match host {
        "" | "*" => Host::All,
        _ => match host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
        {
            // `::ffff:192.0.2.1` is an IPv4 address, as in the addresses of clients.
            Some(inner) => match inner.parse::<Ipv6Addr>() {
                Ok(ip) => Host::Ip(ip.to_canonical()),
                Err(_) => {
                    let what = format!("`{}` is not an IPv6 address", shortened(inner));
                    return Err(Problem::new(what).help("write it like this: \"[::1]:8443\""));
                }
            },
            None if host.contains(':') => {
                return Err(Problem::new(format!(
                    "`{shown}` is ambiguous: it is not clear where the address ends"
                ))
                .help(match host.parse::<Ipv6Addr>() {
                    Ok(ip) => format!("write IPv6 addresses in brackets: \"[{ip}]:{port}\""),
                    Err(_) => "write IPv6 addresses in brackets: \"[::1]:8443\"".to_owned(),
                }));
            }
            None => name_or_ipv4(host)?,
        },
    };
    Ok((host, port))
}

/// Splits at the last colon, unless the colon is part of an address in brackets.
fn split(text: &str) -> Option<(&str, &str)> {
    let (host, port) = text.rsplit_once(':')?;
    // `::1` and `[::1]` have no port.
    let whole_is_ip = text.parse::<Ipv6Addr>().is_ok() && text != "::" && host.ends_with(':');
    (!port.contains(']') && !whole_is_ip).then_some((host, port))
}

fn read_port(text: &str) -> Result<u16, Problem> {
    let problem = |what: String| Problem::new(what).help("ports are numbers from 1 to 65535");
    if text.is_empty() {
        return Err(problem("the port is missing after the colon".to_owned()));
    }
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(problem(format!("`{}` is not a port", shortened(text))));
    }
    match text.parse::<u16>() {
        Ok(0) => Err(problem(
            "port 0 would be a different port at every start".to_owned(),
        )),
        Ok(port) => Ok(port),
        Err(_) => Err(problem(format!("port {} is too large", shortened(text)))),
    }
}

fn name_or_ipv4(host: &str) -> Result<Host<'_>, Problem> {
    if let Ok(ip) = host.parse::<Ipv4Addr>() {
        return Ok(Host::Ip(ip.into()));
    }
    if host.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Err(
            Problem::new(format!("`{}` is not an IPv4 address", shortened(host)))
                .help("four numbers from 0 to 255 with dots between them"),
        );
    }
    if is_name(without_dot(host)) {
        Ok(Host::Name(host))
    } else {
        Err(
            Problem::new(format!("`{}` is not a host name", shortened(host)))
                .help("letters, digits and hyphens, with dots between the parts"),
        )
    }
}

/// Returns the first IPv4 address of a name, or else its first address.
fn look_up(name: &str, port: u16, context: &ReadContext<'_>) -> Result<SocketAddr, Problem> {
    let addresses = look_up_every(name, port, context)?;
    Ok(addresses[0])
}

/// Returns the addresses of a name in `to`, IPv4 first. With `resolve = "lazy"` there may be none.
fn look_up_for_to(
    name: &str,
    port: u16,
    context: &ReadContext<'_>,
) -> Result<Vec<SocketAddr>, Problem> {
    match look_up_every(name, port, context) {
        Err(_) if context.is_lazy => Ok(Vec::new()),
        found => found,
    }
}

fn first_of(mut addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    addresses.truncate(ADDRESSES_MAX);
    addresses
}

fn look_up_every(
    name: &str,
    port: u16,
    context: &ReadContext<'_>,
) -> Result<Vec<SocketAddr>, Problem> {
    let unknown = |why: String| {
        Problem::new(format!(
            "the host name `{}` cannot be looked up",
            shortened(name)
        ))
        .label(why)
        .help("check the spelling, or write the IP address")
    };
    usable((context.resolve)(name, port)).map_err(unknown)
}

/// Returns a name's addresses, IPv4 first. The error says why there are none.
pub fn usable(found: io::Result<Vec<SocketAddr>>) -> Result<Vec<SocketAddr>, String> {
    let mut addresses = found.map_err(|error| reason(&error))?;
    addresses.sort_by_key(SocketAddr::is_ipv6);
    addresses.dedup();
    if addresses.is_empty() {
        return Err("it has no address".to_owned());
    }
    Ok(addresses)
}

/// Returns the IPv4 addresses of a backend's name, or its IPv6 addresses if this machine reaches only these: both
/// together would be the same server twice. Their order does not depend on the resolver's.
pub fn of_one_family(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    of_reachable_family(addresses, has_route)
}

fn of_reachable_family(
    mut addresses: Vec<SocketAddr>,
    has_route: impl Fn(&SocketAddr) -> bool,
) -> Vec<SocketAddr> {
    let has = |v4: bool| addresses.iter().any(|one| one.is_ipv4() == v4);
    let reaches = |v4: bool| {
        let mut family = addresses.iter().filter(|one| one.is_ipv4() == v4);
        family.any(&has_route)
    };
    // If both families seem unreachable, the network may not be up yet.
    let uses_v4 = has(true) && (!has(false) || reaches(true) || !reaches(false));
    addresses.retain(|one| one.is_ipv4() == uses_v4);
    addresses.sort_unstable();
    addresses.dedup();
    addresses.truncate(ADDRESSES_MAX);
    addresses
}

/// Returns whether this machine has a route to an address. Connecting a datagram socket sends nothing.
fn has_route(address: &SocketAddr) -> bool {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    UdpSocket::bind((any, 0)).is_ok_and(|socket| socket.connect(address).is_ok())
}

/// Returns the resolver's own words, without "failed to lookup address information".
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(": ") {
        Some((_, words)) => words.to_owned(),
        None => text,
    }
}

fn url_help(scheme: &str, rest: &str) -> String {
    let host = rest.split(['/', '?']).next().unwrap_or_default();
    let with_port = match (host.contains(':'), scheme) {
        (true, _) => host.to_owned(),
        (false, "https") => format!("{host}:443"),
        (false, _) => format!("{host}:80"),
    };
    format!("write only host and port: \"{}\"", shortened(&with_port))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine without IPv4 uses a name's IPv6 addresses, one without IPv6 or without any network the IPv4 ones.
    #[test]
    fn a_name_stands_for_addresses_of_a_family_with_a_route() {
        let all = |texts: &[&str]| -> Vec<SocketAddr> {
            texts.iter().map(|one| one.parse().unwrap()).collect()
        };
        let v4 = ["192.0.2.1:80", "192.0.2.2:80"];
        let v6 = ["[2001:db8::1]:80", "[2001:db8::2]:80"];
        let both = [v6[1], v4[1], v4[0], v6[0]];
        for (found, routes, used) in [
            (&both[..], &[v4, v6].concat()[..], &v4[..]),
            (&both, &v4, &v4),
            (&both, &v6, &v6),
            (&both, &[v4[1], v6[1]], &v4),
            (&both, &[], &v4),
            (&v4, &v6, &v4),
            (&v6, &v4, &v6),
            (&v6, &[], &v6),
        ] {
            let routes = all(routes);
            let chosen = of_reachable_family(all(found), |one| routes.contains(one));
            assert_eq!(chosen, all(used), "{found:?} with routes to {routes:?}");
        }
    }

    #[test]
    fn this_machine_is_reachable() {
        assert!(has_route(&([127, 0, 0, 1], 9).into()));
    }
}
