//! Connections to stores and authorities: TCP, and TLS over it by our own engine; blocking, with a
//! deadline.

use dormouse_config::StoreAddress;
use dormouse_engine::stream::{BlockingStream, Connection};
use dormouse_engine::{ClientContext, ClientSettings, HandshakeLimits, Roots};
use dormouse_handover::unix_time;
use dormouse_record::State;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

/// Makes connections: settings and trust are parsed once.
pub(crate) struct Connector {
    tls: Option<ClientContext>,
}

impl Connector {
    /// Without TLS.
    pub(crate) fn plain() -> Connector {
        Connector { tls: None }
    }

    /// Over TLS, with servers that `roots` vouch for.
    pub(crate) fn tls(roots: Roots) -> Result<Connector, String> {
        let mut settings = ClientSettings::new(roots);
        // Connections are few, or live for long.
        settings.resumption = None;
        let context = ClientContext::new(settings).map_err(|e| e.to_string())?;
        Ok(Connector { tls: Some(context) })
    }

    /// To a store. `ca`: PEM of those that vouch for it; `None`: those that the system trusts.
    pub(crate) fn to_store(address: &StoreAddress, ca: Option<&str>) -> Result<Connector, String> {
        if !address.tls {
            return Ok(Connector::plain());
        }
        Connector::tls(match ca {
            Some(pem) => Roots::Pem(pem.as_bytes().to_vec()),
            None => Roots::System,
        })
    }

    /// Connects to the first of the host's addresses that answers.
    pub(crate) fn connect(
        &self,
        host: &str,
        port: u16,
        patience: Duration,
    ) -> io::Result<Transport> {
        let deadline = Instant::now() + patience;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
        for found in (host, port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&found, left(deadline)?) {
                Ok(tcp) => {
                    tcp.set_nodelay(true)?;
                    let tcp = Timed { tcp, deadline };
                    return match &self.tls {
                        None => Ok(Transport::Plain(tcp)),
                        Some(context) => tls(tcp, context, host).map(Transport::Tls),
                    };
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
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
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}

/// A socket whose reads and writes end with the deadline.
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

/// The kernel says EAGAIN when a timeout of a socket is over.
fn in_time(result: io::Result<usize>) -> io::Result<usize> {
    result.map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::new(io::ErrorKind::TimedOut, "no answer in time"),
        _ => error,
    })
}

/// TLS over a socket with a deadline.
type Tls = BlockingStream<Timed, Box<State>>;

/// A connection, plain or over TLS. It says goodbye when it is dropped.
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
