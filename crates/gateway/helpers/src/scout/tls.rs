//! TLS of a check: the same handshake as for clients' connections to this backend, and then only as much
//! as it takes to know that the backend accepts us.
//!
//! A completed handshake proves less than it seems: in TLS 1.3 a server verifies our certificate after
//! the handshake is complete on our side (RFC 8446 §4.4.2.4, and appendix E.1.2). So a check sends
//! something, the request or close_notify, and waits for a reaction: data, a ticket, a close, or an
//! alert. Later checks resume with these tickets. But every tenth handshake is a full one, as is each
//! after a failure, because a resumed handshake does not verify the certificate.

use super::task::TlsProfile;
use dormouse_engine::stream::{Connection, End, Event};
use dormouse_engine::{ClientContext, HandshakeLimits, Roots, Version, alert_name};
use dormouse_handover::unix_time;
use dormouse_record::State;
use dormouse_routes::backend_tls::{self, Trust};

/// Every how many checks a full handshake is made.
const FULL_EVERY: u64 = 10;

/// TLS contexts of a profile.
pub(super) struct TlsContexts {
    full: ClientContext,
    resuming: ClientContext,
}

impl TlsContexts {
    pub(super) fn new(profile: &TlsProfile) -> Result<TlsContexts, String> {
        let pem = &profile.pem;
        let trust = pem.trust().map_err(|error| error.to_string())?;
        let roots = trust.map_or(Roots::Insecure, Roots::Store);
        let make = |resumes| {
            let trust = Trust {
                roots: roots.clone(),
                ids: profile.ids.as_deref(),
            };
            backend_tls::context(&profile.alpn, trust, pem.identity.as_ref(), resumes)
        };
        Ok(TlsContexts {
            full: make(false)?,
            resuming: make(true)?,
        })
    }

    /// The context for check `number`; `last_was_good` is the result of the check before.
    pub(super) fn context(&self, number: u64, last_was_good: bool) -> &ClientContext {
        if last_was_good && !number.is_multiple_of(FULL_EVERY) {
            &self.resuming
        } else {
            &self.full
        }
    }
}

/// A connection.
pub(super) struct TlsCheck {
    connection: Connection,
    state: Box<State>,
}

/// Bytes and events received from a backend.
#[derive(Default)]
pub(super) struct Received {
    pub(super) plaintext: Vec<u8>,
    /// The backend has accepted us as its client: it sent a ticket, a close or data.
    pub(super) is_accepted: bool,
    /// The backend has closed the connection.
    pub(super) is_end: bool,
}

impl TlsCheck {
    /// Begins a handshake. Appends the bytes to send to `unsent`.
    pub(super) fn begin(
        context: &ClientContext,
        server_name: &str,
        unsent: &mut Vec<u8>,
    ) -> Result<TlsCheck, String> {
        let connection = Connection::client(context, server_name, HandshakeLimits::default());
        let mut check = TlsCheck {
            connection: connection.map_err(|error| error.to_string())?,
            state: Box::default(),
        };
        check.receive(&mut [], None, unsent)?;
        Ok(check)
    }

    pub(super) fn is_established(&self) -> bool {
        !self.connection.is_handshaking()
    }

    /// Processes received bytes. After the handshake, sends `request`, or close_notify if there is none. On
    /// an error, `unsent` holds the alert to send.
    pub(super) fn receive(
        &mut self,
        mut input: &mut [u8],
        request: Option<&str>,
        unsent: &mut Vec<u8>,
    ) -> Result<Received, String> {
        let mut received = Received::default();
        let outcome = loop {
            let now = unix_time();
            match self.connection.handle(&mut self.state, now, &mut input) {
                Event::InputUsed => break Ok(()),
                Event::Established(info) => {
                    // In TLS 1.2 the server's Finished comes last: the server has verified everything.
                    received.is_accepted = info.protocol == Version::Tls12;
                    if let Err(why) = self.ask(request) {
                        break Err(why);
                    }
                }
                Event::Data(data) => {
                    received.is_accepted = true;
                    received.plaintext.extend_from_slice(data);
                }
                Event::Ticket(_) => received.is_accepted = true,
                Event::Ended(End::Closed) => {
                    (received.is_accepted, received.is_end) = (true, true);
                    break Ok(());
                }
                Event::Ended(End::Alert(number)) => {
                    break Err(format!(
                        "the backend sent the TLS alert {}",
                        alert_name(number)
                    ));
                }
                Event::Ended(End::Refused(refusal)) => break Err(refusal.to_string()),
                Event::Ended(end) => break Err(end.to_string()),
            }
        };
        unsent.extend_from_slice(self.connection.output());
        self.connection.output_sent(self.connection.output().len());
        outcome.map(|()| received)
    }

    fn ask(&mut self, request: Option<&str>) -> Result<(), String> {
        let Some(request) = request else {
            self.connection.close(&mut self.state);
            return Ok(());
        };
        let sent = self.connection.send(&mut self.state, request.as_bytes());
        sent.map_err(|error| error.to_string())
    }
}
