//! Drives a rustls connection over our buffers.
//!
//! After each step rustls reports a state. The driver reduces these states to three outcomes: rustls needs
//! another record, the handshake is done, or it failed. It is done when rustls no longer reports
//! `is_handshaking` *and* has nothing left to encode. The state `WriteTraffic` alone comes too early, because a
//! server may write before the client's Finished arrives.

use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{ClientConfig, CommonState, Error, ServerConfig};
use rustls_pki_types::ServerName;

use crate::handshake::record_assembly::RecordAssembler;

/// Typical size of a server flight with one ECDSA certificate.
const FIRST_OUTPUT_CAPACITY: usize = 1_024;

pub(crate) enum RustlsConnection {
    /// A client that connects and sends nothing costs no library object.
    ServerToBe(Arc<ServerConfig>),
    Server(Box<UnbufferedServerConnection>),
    /// Created late, because rustls looks for a session as soon as a client exists, and needs the time for
    /// that.
    ClientToBe(Arc<ClientConfig>, ServerName<'static>),
    Client(Box<UnbufferedClientConnection>),
}

impl RustlsConnection {
    /// Returns another connection with the same configuration. `None`: this one has begun.
    pub(crate) fn anew(&self) -> Option<RustlsConnection> {
        match self {
            RustlsConnection::ServerToBe(config) => {
                Some(RustlsConnection::ServerToBe(Arc::clone(config)))
            }
            RustlsConnection::ClientToBe(config, name) => {
                let name = name.clone();
                Some(RustlsConnection::ClientToBe(Arc::clone(config), name))
            }
            RustlsConnection::Server(_) | RustlsConnection::Client(_) => None,
        }
    }
}

pub(crate) struct Driver {
    pub(crate) connection: RustlsConnection,
    pub(crate) records: RecordAssembler,
    pub(crate) output: Vec<u8>,
}

/// What rustls needs next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wants {
    /// Another step: it has written something.
    Another,
    /// Another record from the peer.
    Record,
    /// Nothing: the handshake is done.
    Nothing,
    /// Nothing: the peer closed the connection.
    PeerClosed,
    /// A state that never occurs in handshakes as we configure them.
    Unforeseen,
}

impl Driver {
    pub(crate) fn new(connection: RustlsConnection) -> Driver {
        Driver {
            connection,
            records: RecordAssembler::default(),
            output: Vec::new(),
        }
    }

    /// Runs steps until rustls needs something other than another step.
    pub(crate) fn advance(&mut self) -> Result<Wants, Error> {
        loop {
            match self.step()? {
                Wants::Another => {}
                wants => return Ok(wants),
            }
        }
    }

    /// After an error: fetches the alert, which rustls always emits first.
    ///
    /// Runs exactly one step: a second one would show rustls the same bad record again, which trips an
    /// assertion in rustls.
    pub(crate) fn fetch_alert(&mut self) {
        while self.common().is_some_and(CommonState::wants_write) {
            if self.step() != Ok(Wants::Another) {
                return;
            }
        }
    }

    fn step(&mut self) -> Result<Wants, Error> {
        match &self.connection {
            RustlsConnection::ServerToBe(config) => {
                let server = UnbufferedServerConnection::new(Arc::clone(config))?;
                self.connection = RustlsConnection::Server(Box::new(server));
            }
            RustlsConnection::ClientToBe(config, name) => {
                let client = UnbufferedClientConnection::new(Arc::clone(config), name.clone())?;
                self.connection = RustlsConnection::Client(Box::new(client));
            }
            RustlsConnection::Server(_) | RustlsConnection::Client(_) => {}
        }
        let shown = self.records.shown();
        let (discard, wants) = match &mut self.connection {
            RustlsConnection::Server(server) => {
                handle(server.process_tls_records(shown), &mut self.output)
            }
            RustlsConnection::Client(client) => {
                handle(client.process_tls_records(shown), &mut self.output)
            }
            RustlsConnection::ServerToBe(_) | RustlsConnection::ClientToBe(..) => {
                (0, Ok(Wants::Unforeseen))
            }
        };
        self.records.discard(discard);
        // A server may write before the handshake is done.
        let handshaking = self.common().is_none_or(CommonState::is_handshaking);
        match wants? {
            Wants::Nothing if handshaking => Ok(Wants::Record),
            wants => Ok(wants),
        }
    }

    pub(crate) fn common(&self) -> Option<&CommonState> {
        match &self.connection {
            RustlsConnection::Server(server) => Some(server),
            RustlsConnection::Client(client) => Some(client),
            RustlsConnection::ServerToBe(_) | RustlsConnection::ClientToBe(..) => None,
        }
    }
}

/// Returns the outcome of one step and the number of input bytes that rustls consumed.
fn handle<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    output: &mut Vec<u8>,
) -> (usize, Result<Wants, Error>) {
    let wants = match status.state {
        Err(error) => Err(error),
        Ok(ConnectionState::EncodeTlsData(mut data)) => {
            encode(output, |room| data.encode(room)).map(|()| Wants::Another)
        }
        // The encoded bytes are in `output`, which will be sent; rustls need not wait for that.
        Ok(ConnectionState::TransmitTlsData(data)) => {
            data.done();
            Ok(Wants::Another)
        }
        Ok(ConnectionState::BlockedHandshake) => Ok(Wants::Record),
        Ok(ConnectionState::WriteTraffic(_)) => Ok(Wants::Nothing),
        Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => Ok(Wants::PeerClosed),
        Ok(_) => Ok(Wants::Unforeseen),
    };
    (status.discard, wants)
}

/// Appends to `output`, which grows only when its capacity is insufficient.
fn encode(
    output: &mut Vec<u8>,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
) -> Result<(), Error> {
    let before = output.len();
    if output.capacity() == 0 {
        output.reserve_exact(FIRST_OUTPUT_CAPACITY);
    }
    output.resize(output.capacity(), 0);
    loop {
        let room = output.get_mut(before..).unwrap_or_default();
        match write(room) {
            Ok(written) => {
                output.truncate(before + written);
                return Ok(());
            }
            Err(EncodeError::InsufficientSize(insufficient)) => {
                output.resize(before + insufficient.required_size, 0);
            }
            Err(EncodeError::AlreadyEncoded) => {
                output.truncate(before);
                return Err(Error::General("a flight was encoded twice".to_owned()));
            }
        }
    }
}
