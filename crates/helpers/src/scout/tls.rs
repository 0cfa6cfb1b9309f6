//! A check's TLS connection: the same handshake as clients' connections make with this backend, and
//! then no more than it takes to know that the backend is well.
//!
//! That a handshake is done says less than it seems: in TLS 1.3 a server judges our certificate when
//! for us all is over (RFC 8446 §4.4.2.4, and appendix E.1.2). So a check sends something, the request
//! or close_notify, and waits for what comes to it: an answer, a ticket, an end, or an alert. Tickets
//! are used for the next checks, but each tenth handshake is a full one, as is each after a failure:
//! what was resumed says nothing of the certificate.

use super::task::TlsProfile;
use dormouse_engine::stream::{Connection, End, Event};
use dormouse_engine::{ClientContext, HandshakeLimits, Roots, TrustStore, Version, alert_name};
use dormouse_handover::unix_time;
use dormouse_record::State;
use dormouse_routes::backend_tls;

/// One handshake in so many is a full one.
const FULL_EVERY: u64 = 10;

/// How TLS is spoken with some backends, in this process.
pub(super) struct TlsContexts {
    full: ClientContext,
    resuming: ClientContext,
}

impl TlsContexts {
    pub(super) fn new(profile: &TlsProfile) -> Result<TlsContexts, String> {
        let pem = &profile.pem;
        let roots = match &pem.roots {
            Some(text) => {
                let store = TrustStore::from_pem(text.as_bytes());
                Roots::Store(store.map_err(|error| error.to_string())?)
            }
            None => Roots::Insecure,
        };
        let make = |resumes| {
            backend_tls::context(&profile.alpn, roots.clone(), pem.identity.as_ref(), resumes)
        };
        Ok(TlsContexts {
            full: make(false)?,
            resuming: make(true)?,
        })
    }

    /// For the check of this number, which comes after one that was good or not.
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

/// What has come.
#[derive(Default)]
pub(super) struct Received {
    pub(super) plaintext: Vec<u8>,
    /// The backend has accepted us as its client: by a ticket, an end, or data.
    pub(super) is_accepted: bool,
    /// It has ended.
    pub(super) is_end: bool,
}

impl TlsCheck {
    /// Begins a handshake; what there is to send goes to `unsent`.
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

    /// Takes what was received. Once the handshake is done, sends `request`, or that nothing more
    /// will be sent. The error is in words; `unsent` then holds the alert.
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
                    // The backend's Finished comes last in TLS 1.2: it has judged all that it judges.
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
                    break Err(format!("it sent the alert {}", alert_name(number)));
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
