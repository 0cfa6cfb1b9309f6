//! A check's TLS connection: the same handshake as clients' connections make with this backend, and
//! then no more than it takes to know that the backend is well.
//!
//! That a handshake is done says less than it seems: in TLS 1.3 a server judges our certificate when
//! for us all is over (RFC 8446 §4.4.2.4, and appendix E.1.2). So a check says something, the request
//! or close_notify, and waits for what comes to it: an answer, a ticket, an end, or an alert. Tickets
//! are used for the next checks, but each tenth handshake is a full one, as is each after a failure:
//! what was resumed says nothing of the certificate.

use super::Speech;
use dormouse_engine::{
    ClientContext, Handshake, HandshakeLimits, Progress, Roots, TicketWatch, TrustStore,
};
use dormouse_handover::unix_time;
use dormouse_record::{
    Alert, AlertDescription, OpenKey, Opened, Protocol, SealKey, State, open, record_room,
    seal_alert, seal_in_place, seal_key_update,
};
use dormouse_routes::backend_tls;

/// One handshake in so many is a full one.
const FULL_EVERY: u64 = 10;

/// Received before the answer is understood, at most.
const RECEIVED_MAX: usize = 128 << 10;

/// How TLS is spoken with some backends, in this process.
pub(super) struct Spoken {
    full: ClientContext,
    resuming: ClientContext,
}

impl Spoken {
    pub(super) fn new(speech: &Speech) -> Result<Spoken, String> {
        let pem = &speech.pem;
        let roots = match &pem.roots {
            Some(text) => {
                let store = TrustStore::from_pem(text.as_bytes());
                Roots::Store(store.map_err(|error| error.to_string())?)
            }
            None => Roots::Insecure,
        };
        let make = |resumes| {
            backend_tls::context(&speech.alpn, roots.clone(), pem.identity.as_ref(), resumes)
        };
        Ok(Spoken {
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

/// A connection, at whatever stage.
pub(super) struct Talk(Stage);

enum Stage {
    Shaking(Box<Handshake>),
    Established(Box<Established>),
    /// Nothing is said any more.
    Over,
}

struct Established {
    state: State,
    key: OpenKey,
    tickets: Option<TicketWatch>,
    received: Vec<u8>,
}

/// What has been understood.
#[derive(Default)]
pub(super) struct Heard {
    /// Plaintext.
    pub(super) data: Vec<u8>,
    /// The backend has taken us for its client: by a ticket, an end, or data.
    pub(super) is_accepted: bool,
    /// It has ended.
    pub(super) is_end: bool,
}

impl Talk {
    /// Begins a handshake; what there is to send goes to `unsent`.
    pub(super) fn begin(
        context: &ClientContext,
        server_name: &str,
        unsent: &mut Vec<u8>,
    ) -> Result<Talk, String> {
        let limits = HandshakeLimits::default();
        let handshake = Handshake::client(context, server_name, limits);
        let mut handshake = handshake.map_err(|error| error.to_string())?;
        let begun = handshake.handle_input(unix_time(), &[]);
        begun.map_err(|failure| failure.to_string())?;
        take_output(&mut handshake, unsent);
        Ok(Talk(Stage::Shaking(Box::new(handshake))))
    }

    pub(super) fn is_established(&self) -> bool {
        matches!(self.0, Stage::Established(_))
    }

    /// Takes what was received. Once the handshake is done, `request` is said, or that nothing more
    /// will be. The error is in words; what there is to say to it is in `unsent` too.
    pub(super) fn hear(
        &mut self,
        received: &[u8],
        request: Option<&str>,
        unsent: &mut Vec<u8>,
    ) -> Result<Heard, String> {
        if let Stage::Shaking(handshake) = &mut self.0 {
            let progress = handshake.handle_input(unix_time(), received);
            take_output(handshake, unsent);
            match progress {
                Ok(Progress::Handshaking) => return Ok(Heard::default()),
                Ok(Progress::Established) => {}
                Err(failure) => return Err(failure.to_string()),
            }
            return self.establish(request, unsent);
        }
        match &mut self.0 {
            Stage::Established(established) => established.hear(received, unsent),
            Stage::Shaking(_) | Stage::Over => Ok(Heard::default()),
        }
    }

    fn establish(&mut self, request: Option<&str>, unsent: &mut Vec<u8>) -> Result<Heard, String> {
        let Stage::Shaking(handshake) = std::mem::replace(&mut self.0, Stage::Over) else {
            return Ok(Heard::default());
        };
        let mut state = State::empty();
        let rested = handshake.rest(&mut state);
        let rested = rested.map_err(|failure| failure.to_string())?;
        unsent.extend_from_slice(&rested.unsent);
        let key = OpenKey::new(&state);
        let mut established = Box::new(Established {
            state,
            key,
            tickets: rested.tickets,
            received: Vec::new(),
        });
        match request {
            Some(request) => established.say(request.as_bytes(), unsent)?,
            None => established.say_goodbye(unsent)?,
        }
        let heard = established.hear(&rested.leftover, unsent);
        let is_old = established.state.protocol() == Protocol::Tls12;
        self.0 = Stage::Established(established);
        // Here its Finished comes last: all that it judges, it has judged.
        heard.map(|heard| Heard {
            is_accepted: heard.is_accepted || is_old,
            ..heard
        })
    }
}

fn take_output(handshake: &mut Handshake, unsent: &mut Vec<u8>) {
    unsent.extend_from_slice(handshake.output());
    let sent = handshake.output().len();
    handshake.output_sent(sent);
}

impl Established {
    /// Seals one record of it: a request is shorter than that.
    fn say(&mut self, said: &[u8], unsent: &mut Vec<u8>) -> Result<(), String> {
        let room = record_room(&self.state);
        let mut record = vec![0; room.header];
        record.extend_from_slice(said);
        record.resize(room.header + said.len() + room.trailer, 0);
        let mut key = SealKey::new(&self.state);
        let sealed = seal_in_place(&mut self.state, &mut key, &mut record, said.len());
        let len = sealed.map_err(|error| error.to_string())?;
        unsent.extend_from_slice(record.get(..len).unwrap_or_default());
        Ok(())
    }

    fn say_goodbye(&mut self, unsent: &mut Vec<u8>) -> Result<(), String> {
        self.alert(Alert::CLOSE_NOTIFY, unsent)
    }

    fn alert(&mut self, alert: Alert, unsent: &mut Vec<u8>) -> Result<(), String> {
        let mut record = [0; dormouse_record::SMALL_RECORD_MAX];
        let mut key = SealKey::new(&self.state);
        let sealed = seal_alert(&mut self.state, &mut key, alert, &mut record);
        let len = sealed.map_err(|error| error.to_string())?;
        unsent.extend_from_slice(record.get(..len).unwrap_or_default());
        Ok(())
    }

    fn hear(&mut self, received: &[u8], unsent: &mut Vec<u8>) -> Result<Heard, String> {
        self.received.extend_from_slice(received);
        if self.received.len() > RECEIVED_MAX {
            return Err(format!("it sent more than {RECEIVED_MAX} bytes at once"));
        }
        let mut heard = Heard::default();
        let mut at = 0;
        while let Some(rest) = self.received.get_mut(at..).filter(|rest| !rest.is_empty()) {
            match open(&mut self.state, &mut self.key, rest) {
                Ok(Opened::Partial { .. }) => break,
                Ok(Opened::Data {
                    consumed,
                    plaintext,
                }) => {
                    heard.data.extend_from_slice(&rest[plaintext]);
                    heard.is_accepted = true;
                    at += consumed;
                }
                Ok(Opened::Ticket { consumed, fragment }) => {
                    heard.is_accepted = true;
                    if let Some(watch) = &mut self.tickets
                        && watch.handle_fragment(unix_time(), &rest[fragment]).is_err()
                    {
                        // A ticket that makes no sense is of no use; the backend is.
                        self.tickets = None;
                    }
                    at += consumed;
                }
                Ok(Opened::Handled { consumed } | Opened::NoRenegotiation { consumed }) => {
                    at += consumed;
                }
                Ok(Opened::PeerClosed { consumed }) => {
                    (heard.is_accepted, heard.is_end) = (true, true);
                    at += consumed;
                }
                Ok(Opened::PeerAlert { description, .. }) => {
                    return Err(match AlertDescription::from_code(description) {
                        Some(alert) => format!("it sent the alert {alert}"),
                        None => format!("it sent the alert {description}"),
                    });
                }
                Err(refusal) => {
                    let _ = self.alert(refusal.answer(), unsent);
                    return Err(refusal.to_string());
                }
            }
        }
        self.received.drain(..at.min(self.received.len()));
        if self.state.owes_key_update() && !self.state.closed() {
            let mut update = [0; dormouse_record::SMALL_RECORD_MAX];
            let mut key = SealKey::new(&self.state);
            if let Ok(len) = seal_key_update(&mut self.state, &mut key, &mut update) {
                unsent.extend_from_slice(update.get(..len).unwrap_or_default());
            }
        }
        Ok(heard)
    }
}

impl Drop for Established {
    fn drop(&mut self) {
        self.state.wipe();
    }
}
