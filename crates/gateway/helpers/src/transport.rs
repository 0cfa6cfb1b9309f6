//! Blocking connections with a deadline to ticket stores, OCSP responders and ACME servers: TCP, or
//! TLS by our own engine.

use dormouse_engine::stream::{BlockingStream, Connection};
use dormouse_engine::{ClientContext, ClientSettings, HandshakeLimits, Identity, Roots};
use dormouse_handover::unix_time;
use dormouse_record::State;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

/// Connects to servers; TLS settings and trusted roots are parsed once.
pub(crate) struct Connector {
    tls: Option<ClientContext>,
}

impl Connector {
    /// A connector without TLS.
    pub(crate) fn plain() -> Connector {
        Connector { tls: None }
    }

    /// A connector with TLS. `roots` verify the servers' certificates, and `identity` is shown to a server that requests
    /// one.
    pub(crate) fn tls(roots: Roots, identity: Option<Identity>) -> Result<Connector, String> {
        let mut settings = ClientSettings::new(roots);
        settings.identity = identity;
        // Connections are rare or long-lived, so sessions are not worth keeping.
        settings.resumption = None;
        let context = ClientContext::new(settings).map_err(|e| e.to_string())?;
        Ok(Connector { tls: Some(context) })
    }

    /// Connects to the first of the host's addresses that accepts.
    pub(crate) fn connect(
        &self,
        host: &str,
        port: u16,
        timeout: Duration,
    ) -> io::Result<Transport> {
        let deadline = Instant::now() + timeout;
        let found: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
        let tcp = first_that_accepts(&found, deadline)?;
        tcp.set_nodelay(true)?;
        let tcp = Timed { tcp, deadline };
        match &self.tls {
            None => Ok(Transport::Plain(tcp)),
            Some(context) => tls(tcp, context, host).map(Transport::Tls),
        }
    }
}

/// Shortest time for one of many addresses.
const ADDRESS_TIMEOUT_MIN: Duration = Duration::from_millis(100);

/// Connects to the addresses in turn. Each gets its share of the time that is left, because an address may swallow all
/// packets (IPv6 without a route to the outside, say), and then the others must have time too.
fn first_that_accepts(addresses: &[SocketAddr], deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for (address, others) in addresses.iter().zip((0..addresses.len()).rev()) {
        let share = left(deadline)? / u32::try_from(others + 1).unwrap_or(u32::MAX);
        match TcpStream::connect_timeout(address, share.max(ADDRESS_TIMEOUT_MIN)) {
            Ok(tcp) => return Ok(tcp),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn tls(tcp: Timed, context: &ClientContext, host: &str) -> io::Result<Box<Tls>> {
    let connection = Connection::client(context, host, HandshakeLimits::default());
    let connection = connection.map_err(io::Error::other)?;
    let state = Box::new(State::empty());
    let mut tls = BlockingStream::new(tcp, connection, state, unix_time);
    tls.handshake()?;
    Ok(Box::new(tls))
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(late());
    }
    Ok(left)
}

/// A socket whose reads and writes fail after the deadline.
pub(crate) struct Timed {
    tcp: TcpStream,
    deadline: Instant,
}

impl Read for Timed {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.tcp.set_read_timeout(Some(left(self.deadline)?))?;
        in_time(self.tcp.read(bytes))
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.tcp.set_write_timeout(Some(left(self.deadline)?))?;
        in_time(self.tcp.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no response in time")
}

/// A socket timeout arrives as EAGAIN; this makes it `TimedOut`.
fn in_time(result: io::Result<usize>) -> io::Result<usize> {
    result.map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => late(),
        _ => error,
    })
}

/// TLS over a socket with a deadline.
type Tls = BlockingStream<Timed, Box<State>>;

/// A connection, plain or over TLS. Dropping a TLS connection sends close_notify.
pub(crate) enum Transport {
    Plain(Timed),
    Tls(Box<Tls>),
}

impl Transport {
    pub(crate) fn set_deadline(&mut self, after: Duration) {
        let tcp = match self {
            Transport::Plain(tcp) => tcp,
            Transport::Tls(tls) => tls.transport(),
        };
        tcp.deadline = Instant::now() + after;
    }
}

impl Read for Transport {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(tcp) => tcp.read(bytes),
            Transport::Tls(tls) => tls.read(bytes),
        }
    }
}

impl Write for Transport {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(tcp) => tcp.write(bytes),
            Transport::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        if let Transport::Tls(tls) = self {
            let _ = tls.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_reactor::OnExec;
    use dormouse_reactor::socket::{self, Addr, ListenOptions};
    use std::net::TcpListener;

    #[test]
    fn a_silent_address_leaves_time_for_the_next() {
        // The kernel drops connection requests once the queue of this listener is full.
        let options = ListenOptions {
            backlog: 0,
            v6only: true,
            on_exec: OnExec::Close,
        };
        let any = Addr::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
        let full = socket::listen(&any, &options).expect("a listener");
        let Ok(Addr::Tcp(silent)) = Addr::local(full) else {
            panic!("a listener has an address");
        };
        let short = Duration::from_millis(200);
        let queued: Vec<TcpStream> = (0..8)
            .map_while(|_| TcpStream::connect_timeout(&silent, short).ok())
            .collect();
        assert!(queued.len() < 8, "the queue has no limit");
        let accepts = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let accepts = accepts.local_addr().expect("bound");
        let deadline = Instant::now() + Duration::from_secs(4);
        let tcp = first_that_accepts(&[silent, accepts], deadline).expect("the second address");
        assert_eq!(tcp.peer_addr().expect("connected"), accepts);
        assert!(left(deadline).is_ok());
        full.close();
    }
}
