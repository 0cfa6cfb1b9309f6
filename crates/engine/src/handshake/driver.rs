//! Drives a rustls connection over buffers of ours.
//!
//! rustls says after each step what it wants; here that becomes three outcomes: it needs
//! another record, the handshake is done, or it failed. It is done when rustls no longer calls
//! itself handshaking *and* has nothing left to encode: the state `WriteTraffic` alone comes
//! too early (a server may write before the client's Finished arrived).

use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{ClientConfig, CommonState, Error, ServerConfig};
use rustls_pki_types::ServerName;

use crate::handshake::record_assembly::RecordAssembler;

/// Real server flights with one ECDSA certificate are near this.
const FIRST_OUTPUT_CAPACITY: usize = 1_024;

pub(crate) enum RustlsConnection {
    /// Whoever connects and says nothing costs no library object.
    ServerToBe(Arc<ServerConfig>),
    Server(Box<UnbufferedServerConnection>),
    /// rustls looks for a session as soon as a client is made, for which it needs the time.
    ClientToBe(Arc<ClientConfig>, ServerName<'static>),
    Client(Box<UnbufferedClientConnection>),
}

pub(crate) struct Driver {
    pub(crate) connection: RustlsConnection,
    pub(crate) records: RecordAssembler,
    pub(crate) output: Vec<u8>,
}

/// What rustls wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wants {
    /// To be asked again: it has written something.
    Another,
    /// Another record of the peer.
    Record,
    /// Nothing: the handshake is done.
    Nothing,
    /// Nothing: the peer has closed.
    PeerClosed,
    /// Something that a handshake as we configure it never has.
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

    /// Makes steps until rustls wants something else than to be asked again.
    pub(crate) fn advance(&mut self) -> Result<Wants, Error> {
        loop {
            match self.step()? {
                Wants::Another => {}
                wants => return Ok(wants),
            }
        }
    }

    /// After an error: fetches the alert, which rustls gives out before anything else.
    ///
    /// Not one step more than that: rustls would look at the same bad record again and refuse
    /// it a second time, which it asserts never to do.
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
        // "May write" is not "is done".
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

/// One step's outcome, and how many bytes of the input rustls is done with.
fn handle<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    output: &mut Vec<u8>,
) -> (usize, Result<Wants, Error>) {
    let wants = match status.state {
        Err(error) => Err(error),
        Ok(ConnectionState::EncodeTlsData(mut data)) => {
            encode(output, |room| data.encode(room)).map(|()| Wants::Another)
        }
        // What was encoded is in `output`, which will be sent: rustls need not wait for it.
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

/// Appends to `output`, which grows only when what it has does not suffice.
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
