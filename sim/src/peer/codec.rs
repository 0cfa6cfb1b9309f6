//! How a peer puts what it says on the wire: as it is, or by TLS.

use dormouse_engine::stream::{self, Connection, Event};
use dormouse_record::{self as record, State};

/// What came of what was received.
#[derive(Debug)]
pub(crate) enum Heard {
    Bytes,
    End(End),
}

/// How what a peer hears has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// As it should: everything has arrived.
    Clean,
    /// The transport has ended without a close_notify.
    Truncated,
    /// The connection was reset.
    Reset,
    /// The gateway has sent a fatal alert.
    Alert(u8),
    /// No connection came about.
    NotEstablished(String),
    /// The gateway has sent a record that can't be right.
    Refused(String),
}

/// One end of a conversation.
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

    /// Can anything be said yet?
    pub(crate) fn is_established(&self) -> bool {
        match self {
            Codec::Plain => true,
            Codec::Tls(tls) => !tls.connection.is_handshaking(),
        }
    }

    /// Whether a session was resumed, once TLS is there.
    pub(crate) fn is_resumed(&self) -> Option<bool> {
        match self {
            Codec::Plain => None,
            Codec::Tls(tls) => tls.resumed,
        }
    }

    /// Takes what was received; `hear` gets the content.
    pub(crate) fn take(&mut self, received: &mut [u8], mut hear: impl FnMut(&[u8])) -> Heard {
        let Codec::Tls(tls) = self else {
            hear(received);
            return Heard::Bytes;
        };
        let mut input = received;
        loop {
            match tls
                .connection
                .handle(&mut tls.state, dormouse_testkit::now(), &mut input)
            {
                Event::InputUsed => return Heard::Bytes,
                Event::Data(bytes) => hear(bytes),
                Event::Established(info) => tls.resumed = Some(info.resumed),
                Event::Ticket(_) => {}
                Event::Ended(end) => return Heard::End(end.into()),
            }
        }
    }

    /// The transport has ended.
    pub(crate) fn take_end(&mut self) -> End {
        match self {
            Codec::Plain => End::Clean,
            Codec::Tls(tls) => tls.connection.handle_eof(&tls.state).into(),
        }
    }

    /// Puts content on the wire.
    pub(crate) fn say(&mut self, content: &[u8], wire: &mut Vec<u8>) {
        match self {
            Codec::Plain => wire.extend_from_slice(content),
            Codec::Tls(tls) => {
                let said = tls.connection.send(&mut tls.state, content);
                said.expect("a connection that is not closed");
                tls.flush(wire);
            }
        }
    }

    /// Puts on the wire what TLS has to say by itself.
    pub(crate) fn flush(&mut self, wire: &mut Vec<u8>) {
        if let Codec::Tls(tls) = self {
            tls.flush(wire);
        }
    }

    /// Puts a KeyUpdate on the wire, where there is such a thing.
    pub(crate) fn update_key(&mut self, wire: &mut Vec<u8>) {
        if let Codec::Tls(tls) = self
            && tls.state.protocol() == record::Protocol::Tls13
        {
            let mut key = record::SealKey::new(&tls.state);
            let mut out = [0; record::SMALL_RECORD_MAX];
            let len = record::seal_key_update(&mut tls.state, &mut key, &mut out);
            wire.extend_from_slice(&out[..len.expect("a state that can go on")]);
        }
    }

    /// Ends the sending direction. `fatal`: by an alert that says that something is wrong.
    pub(crate) fn end(&mut self, fatal: bool, wire: &mut Vec<u8>) {
        if let Codec::Tls(tls) = self {
            if fatal {
                let why = record::AlertDescription::InternalError;
                tls.connection.abort(&mut tls.state, why);
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
