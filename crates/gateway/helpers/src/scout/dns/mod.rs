//! The lifetime of a name's addresses, from the TTLs of DNS (RFC 1035 §3.2.1).
//!
//! The operating system resolves names by /etc/hosts and nsswitch.conf, but returns no lifetimes. So this
//! module asks the servers of resolv.conf for the lifetime only. Its answers never provide an address: a
//! wrong, late or forged answer only changes the time of the next lookup, within bounds. That is why there
//! is no cache, no EDNS and no DNSSEC, and why one try per server is enough.
//!
//! ```text
//!   message         questions and answers
//!   resolver_files  resolv.conf, hosts and nsswitch.conf
//! ```

mod message;
mod resolver_files;
#[cfg(test)]
mod tests;

pub(super) use resolver_files::ResolverFiles;

use message::{Answer, InvalidAnswer, Question, Rtype};
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// Whether bytes are a valid answer to a question about `example.com` with the id 0.
pub(crate) fn understands(bytes: &[u8]) -> bool {
    let question = Question::new(0, "example.com", Rtype::A);
    question.is_some_and(|question| question.understand(bytes).is_ok())
}

/// Time for a server to answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Datagrams that are not the answer, after which a server is given up.
const UNRELATED_MAX: usize = 64;

/// The answer of DNS for a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lifetime {
    /// The name has these addresses for this long.
    Of(Vec<IpAddr>, Duration),
    /// The name does not exist, or has no address, for this long.
    OfNothing(Duration),
    /// Unknown: DNS was not asked, or no server gave a valid answer.
    Unknown,
}

/// Returns the lifetime of this host's addresses.
pub(super) fn lifetime(host: &str, files: &ResolverFiles) -> Lifetime {
    if host.parse::<IpAddr>().is_ok() || !files.asks_dns_for(host) {
        return Lifetime::Unknown;
    }
    let mut nothing = Lifetime::Unknown;
    for name in files.candidates(host) {
        match of_name(&name, &files.servers) {
            Lifetime::Unknown => return Lifetime::Unknown,
            found @ Lifetime::Of(..) => return found,
            none @ Lifetime::OfNothing(_) => nothing = sooner(nothing, none),
        }
    }
    nothing
}

/// Of two negative answers, the one with the shorter lifetime.
fn sooner(one: Lifetime, other: Lifetime) -> Lifetime {
    match (one, other) {
        (Lifetime::OfNothing(one), Lifetime::OfNothing(other)) => {
            Lifetime::OfNothing(one.min(other))
        }
        (_, other) => other,
    }
}

fn of_name(name: &str, servers: &[SocketAddr]) -> Lifetime {
    match of_kind(name, Rtype::A, servers) {
        // IPv6 addresses are used only if there is no IPv4 address.
        Lifetime::OfNothing(v4) => match of_kind(name, Rtype::AAAA, servers) {
            Lifetime::Of(addresses, v6) => Lifetime::Of(addresses, v4.min(v6)),
            other => sooner(Lifetime::OfNothing(v4), other),
        },
        other => other,
    }
}

/// Asks the servers in turn until one answers.
fn of_kind(name: &str, kind: Rtype, servers: &[SocketAddr]) -> Lifetime {
    for &server in servers {
        let Some(asked) = Question::new(random_id(), name, kind) else {
            return Lifetime::Unknown;
        };
        let said = match by_udp(&asked, server) {
            Ok(Answer::Truncated) => by_tcp(&asked, server),
            said => said,
        };
        let seconds = |ttl_s: u32| Duration::from_secs(ttl_s.into());
        match said {
            Ok(Answer::Addresses { all, ttl_s }) => return Lifetime::Of(all, seconds(ttl_s)),
            Ok(Answer::Nothing { ttl_s }) => return Lifetime::OfNothing(seconds(ttl_s)),
            Ok(Answer::Truncated | Answer::Failed) | Err(_) => {}
        }
    }
    Lifetime::Unknown
}

/// An unpredictable id, against forged answers. The kernel chooses the port, which is unpredictable
/// too.
fn random_id() -> u16 {
    use std::hash::{BuildHasher as _, Hasher as _, RandomState};
    RandomState::new().build_hasher().finish() as u16
}

fn by_udp(asked: &Question, server: SocketAddr) -> io::Result<Answer> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    // From now on the kernel drops datagrams from other addresses.
    socket.connect(server)?;
    socket.send(asked.bytes())?;
    let deadline = Instant::now() + TIMEOUT;
    let mut room = [0; 4096];
    for _ in 0..UNRELATED_MAX {
        socket.set_read_timeout(Some(left(deadline)?))?;
        let len = socket.recv(&mut room)?;
        match asked.understand(room.get(..len).unwrap_or_default()) {
            Ok(said) => return Ok(said),
            // A forged answer, or a late one to an earlier question: the right answer may still come.
            Err(InvalidAnswer::OtherQuestion) => {}
            Err(InvalidAnswer::Broken) => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// Asks over TCP, for answers that do not fit a datagram (RFC 7766).
fn by_tcp(asked: &Question, server: SocketAddr) -> io::Result<Answer> {
    let deadline = Instant::now() + TIMEOUT;
    let mut tcp = TcpStream::connect_timeout(&server, TIMEOUT)?;
    let mut question = (asked.bytes().len() as u16).to_be_bytes().to_vec();
    question.extend_from_slice(asked.bytes());
    tcp.set_write_timeout(Some(left(deadline)?))?;
    tcp.write_all(&question)?;
    let mut len = [0; 2];
    read_all(&mut tcp, &mut len, deadline)?;
    let mut answer = vec![0; usize::from(u16::from_be_bytes(len))];
    read_all(&mut tcp, &mut answer, deadline)?;
    let said = asked.understand(&answer);
    said.map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Fills `room` before the deadline; each read gets the remaining time, so that single bytes cannot
/// extend it.
fn read_all(tcp: &mut TcpStream, room: &mut [u8], deadline: Instant) -> io::Result<()> {
    let mut at = 0;
    while let Some(rest) = room.get_mut(at..).filter(|rest| !rest.is_empty()) {
        tcp.set_read_timeout(Some(left(deadline)?))?;
        match tcp.read(rest)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => at += n,
        }
    }
    Ok(())
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(io::ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}
