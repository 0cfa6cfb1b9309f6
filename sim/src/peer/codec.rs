//! Encoding of a peer's content: plain or by TLS.

use dormouse_engine::stream::{self, Connection, Event};
use dormouse_record::{self as record, State};

/// Result of handling received bytes.
#[derive(Debug)]
pub(crate) enum Handled {
    Bytes,
    End(End),
}

/// How a peer's receiving direction ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// Cleanly: everything has arrived.
    Clean,
    /// The transport ended without a close_notify.
    Truncated,
    /// The connection was reset.
    Reset,
    /// The gateway sent a fatal alert.
    Alert(u8),
    /// The handshake failed.
    NotEstablished(String),
    /// The gateway sent an invalid record or PROXY header.
    Refused(String),
}

/// The encoding of one end of a connection.
pub(crate) enum Codec {
    Plain,
    Tls(Box<Tls>),
}

pub(crate) struct Tls {
    pub(crate) connection: Connection,
    pub(crate) state: State,
    resumed: Option<bool>,
}

impl Codec {
    pub(crate) fn tls(connection: Connection, state: State) -> Codec {
        Codec::Tls(Box::new(Tls {
            connection,
            state,
            resumed: None,
        }))
    }

    pub(crate) fn is_tls(&self) -> bool {
        matches!(self, Codec::Tls(_))
    }

    /// Whether content can be sent.
    pub(crate) fn is_established(&self) -> bool {
        match self {
            Codec::Plain => true,
            Codec::Tls(tls) => !tls.connection.is_handshaking(),
        }
    }

    /// Whether a session was resumed; `None` before the handshake is complete, and without TLS.
    pub(crate) fn is_resumed(&self) -> Option<bool> {
        match self {
            Codec::Plain => None,
            Codec::Tls(tls) => tls.resumed,
        }
    }

    /// Handles received bytes; passes content to `on_content`.
    pub(crate) fn handle(
        &mut self,
        received: &mut [u8],
        mut on_content: impl FnMut(&[u8]),
    ) -> Handled {
        let Codec::Tls(tls) = self else {
            on_content(received);
            return Handled::Bytes;
        };
        let mut input = received;
        loop {
            match tls
                .connection
                .handle(&mut tls.state, dormouse_testkit::now(), &mut input)
            {
                Event::InputUsed => return Handled::Bytes,
                Event::Data(bytes) => on_content(bytes),
                Event::Established(info) => tls.resumed = Some(info.resumed),
                Event::Ticket(_) => {}
                Event::Ended(end) => return Handled::End(end.into()),
            }
        }
    }

    /// Handles the end of the transport.
    pub(crate) fn handle_eof(&mut self) -> End {
        match self {
            Codec::Plain => End::Clean,
            Codec::Tls(tls) => tls.connection.handle_eof(&tls.state).into(),
        }
    }

    /// Encodes content into `wire`.
    pub(crate) fn send(&mut self, content: &[u8], wire: &mut Vec<u8>) {
        match self {
            Codec::Plain => wire.extend_from_slice(content),
            Codec::Tls(tls) => {
                let sent = tls.connection.send(&mut tls.state, content);
                sent.expect("a connection that is not closed");
                tls.flush(wire);
            }
        }
    }

    /// Moves TLS output that is not content into `wire`: handshake messages, alerts, KeyUpdates.
    pub(crate) fn flush(&mut self, wire: &mut Vec<u8>) {
        if let Codec::Tls(tls) = self {
            tls.flush(wire);
        }
    }

    /// Encodes a KeyUpdate into `wire`, in TLS 1.3.
    pub(crate) fn update_key(&mut self, wire: &mut Vec<u8>) {
        if let Codec::Tls(tls) = self
            && tls.state.version() == record::Version::Tls13
        {
            let mut key = record::SealKey::new(&tls.state);
            let mut out = [0; record::SMALL_RECORD_MAX];
            let len = record::seal_key_update(&mut tls.state, &mut key, &mut out);
            wire.extend_from_slice(&out[..len.expect("a usable state")]);
        }
    }

    /// Ends the sending direction, with a close_notify or a fatal alert.
    pub(crate) fn end(&mut self, fatal: bool, wire: &mut Vec<u8>) {
        if let Codec::Tls(tls) = self {
            if fatal {
                let description = record::AlertDescription::InternalError;
                tls.connection.abort(&mut tls.state, description);
            } else {
                tls.connection.close(&mut tls.state);
            }
            tls.flush(wire);
        }
    }
}

impl Tls {
    fn flush(&mut self, wire: &mut Vec<u8>) {
        let output = self.connection.output();
        let len = output.len();
        wire.extend_from_slice(output);
        self.connection.output_sent(len);
    }
}

impl From<stream::End> for End {
    fn from(end: stream::End) -> End {
        match end {
            stream::End::Closed => End::Clean,
            stream::End::Truncated => End::Truncated,
            stream::End::Alert(number) => End::Alert(number),
            stream::End::Refused(refusal) => End::Refused(refusal.to_string()),
            stream::End::Handshake(failure) => End::NotEstablished(failure.to_string()),
        }
    }
}
