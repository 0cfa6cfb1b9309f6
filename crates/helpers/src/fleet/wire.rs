//! A connection to a store or an authority: TCP, and TLS over it by our own engine; blocking, with a
//! deadline.

use dormouse_config::StoreAddress;
use dormouse_engine::{ClientContext, ClientSettings, Handshake, HandshakeLimits, Progress, Roots};
use dormouse_handover::unix_time;
use dormouse_record::{
    Alert, CONTENT_MAX, OpenKey, Opened, SMALL_RECORD_MAX, SealKey, State, open, record_room,
    seal_alert, seal_in_place, seal_key_update,
};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

/// What is kept of records which were not taken yet.
const RECEIVED_MAX: usize = 64 << 10;

/// Makes connections: settings and trust are parsed once.
pub(crate) struct Connector {
    tls: Option<ClientContext>,
}

impl Connector {
    pub(crate) fn new(address: &StoreAddress, ca: Option<&str>) -> Result<Connector, String> {
        if !address.tls {
            return Ok(Connector { tls: None });
        }
        let roots = match ca {
            Some(pem) => Roots::Pem(pem.as_bytes().to_vec()),
            None => Roots::System,
        };
        let mut settings = ClientSettings::new(roots);
        // One connection lives for long.
        settings.resumption = None;
        let context = ClientContext::new(settings).map_err(|e| e.to_string())?;
        Ok(Connector { tls: Some(context) })
    }

    /// To authorities, over TLS. `trust`: PEM of those who may vouch for them.
    pub(crate) fn to_authority(trust: &str) -> Result<Connector, String> {
        let mut settings = ClientSettings::new(Roots::Pem(trust.as_bytes().to_vec()));
        settings.resumption = None;
        let context = ClientContext::new(settings).map_err(|e| e.to_string())?;
        Ok(Connector { tls: Some(context) })
    }

    /// Connects, by the first of its addresses that answers.
    pub(crate) fn connect(&self, address: &StoreAddress, patience: Duration) -> io::Result<Wire> {
        let deadline = Instant::now() + patience;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
        for found in (address.host.as_str(), address.port).to_socket_addrs()? {
            let left = left(deadline)?;
            match TcpStream::connect_timeout(&found, left) {
                Ok(tcp) => {
                    tcp.set_nodelay(true)?;
                    let tcp = Timed { tcp, deadline };
                    return match &self.tls {
                        None => Ok(Wire::Plain(tcp)),
                        Some(context) => Tls::connect(tcp, context, &address.host)
                            .map(|tls| Wire::Tls(Box::new(tls))),
                    };
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
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

/// Plain or TLS.
pub(crate) enum Wire {
    Plain(Timed),
    Tls(Box<Tls>),
}

impl Wire {
    pub(crate) fn set_deadline(&mut self, after: Duration) {
        let tcp = match self {
            Wire::Plain(tcp) => tcp,
            Wire::Tls(tls) => &mut tls.tcp,
        };
        tcp.deadline = Instant::now() + after;
    }
}

impl Read for Wire {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Wire::Plain(tcp) => tcp.read(bytes),
            Wire::Tls(tls) => tls.read(bytes),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Wire::Plain(tcp) => tcp.write(bytes),
            Wire::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// TLS, client side: a record state and what was received.
pub(crate) struct Tls {
    tcp: Timed,
    state: State,
    received: Vec<u8>,
    opened: Vec<u8>,
}

impl Tls {
    fn connect(mut tcp: Timed, context: &ClientContext, host: &str) -> io::Result<Tls> {
        let limits = HandshakeLimits::default();
        let mut shake = Handshake::client(context, host, limits).map_err(io::Error::other)?;
        let mut bytes = vec![0; 16 << 10];
        let mut count = 0;
        loop {
            let received = bytes.get(..count).unwrap_or_default();
            let progress = shake.handle_input(unix_time(), received);
            let output = shake.output().to_vec();
            shake.output_sent(output.len());
            // An alert is sent as far as it gets; the reason is told in any case.
            let sent = tcp.write_all(&output);
            if progress.map_err(io::Error::other)? == Progress::Established {
                sent?;
                break;
            }
            sent?;
            count = tcp.read(&mut bytes)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let mut state = State::empty();
        let rested = shake.rest(&mut state).map_err(io::Error::other)?;
        tcp.write_all(&rested.unsent)?;
        Ok(Tls {
            tcp,
            state,
            received: rested.leftover,
            opened: Vec::new(),
        })
    }

    /// Opens what there is of whole records. `false`: the store has closed.
    fn open_received(&mut self) -> io::Result<bool> {
        let mut key = OpenKey::new(&self.state);
        let mut at = 0;
        let mut goes_on = true;
        while goes_on && at < self.received.len() {
            let rest = self.received.get_mut(at..).unwrap_or_default();
            at += match open(&mut self.state, &mut key, rest).map_err(io::Error::other)? {
                Opened::Partial { .. } => break,
                Opened::Data {
                    consumed,
                    plaintext,
                } => {
                    self.opened
                        .extend_from_slice(rest.get(plaintext).unwrap_or_default());
                    consumed
                }
                Opened::Handled { consumed }
                | Opened::Ticket { consumed, .. }
                | Opened::NoRenegotiation { consumed } => consumed,
                Opened::PeerClosed { consumed } | Opened::PeerAlert { consumed, .. } => {
                    goes_on = false;
                    consumed
                }
            };
        }
        self.received.drain(..at.min(self.received.len()));
        Ok(goes_on)
    }

    fn answer_key_update(&mut self, key: &mut SealKey) -> io::Result<()> {
        if !self.state.owes_key_update() {
            return Ok(());
        }
        let mut record = [0; SMALL_RECORD_MAX];
        let n = seal_key_update(&mut self.state, key, &mut record).map_err(io::Error::other)?;
        self.tcp.write_all(record.get(..n).unwrap_or_default())
    }
}

impl Read for Tls {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while self.opened.is_empty() {
            let goes_on = self.open_received()?;
            if !self.opened.is_empty() {
                // The end, if it came with it, is found again at the next read.
                break;
            }
            if !goes_on {
                return Ok(0);
            }
            if self.received.len() > RECEIVED_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let mut more = [0; 4096];
            let n = self.tcp.read(&mut more)?;
            if n == 0 {
                return Ok(0);
            }
            self.received
                .extend_from_slice(more.get(..n).unwrap_or_default());
        }
        let n = bytes.len().min(self.opened.len());
        for (to, from) in bytes.iter_mut().zip(self.opened.drain(..n)) {
            *to = from;
        }
        Ok(n)
    }
}

impl Write for Tls {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut key = SealKey::new(&self.state);
        self.answer_key_update(&mut key)?;
        let n = bytes.len().min(CONTENT_MAX);
        let room = record_room(&self.state);
        let mut record = vec![0; room.header];
        record.extend_from_slice(bytes.get(..n).unwrap_or_default());
        record.resize(room.header + n + room.trailer, 0);
        let len =
            seal_in_place(&mut self.state, &mut key, &mut record, n).map_err(io::Error::other)?;
        self.tcp.write_all(record.get(..len).unwrap_or_default())?;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Tls {
    fn drop(&mut self) {
        let mut key = SealKey::new(&self.state);
        let mut record = [0; SMALL_RECORD_MAX];
        if let Ok(n) = seal_alert(&mut self.state, &mut key, Alert::CLOSE_NOTIFY, &mut record) {
            let _ = self.tcp.write_all(record.get(..n).unwrap_or_default());
        }
        self.state.wipe();
    }
}
