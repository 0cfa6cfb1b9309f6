//! A handshake in flight, on either side.

pub(crate) mod driver;
pub(crate) mod exporter;
mod failing;
mod first_bytes;
mod hidden_extensions;
pub(crate) mod info;
pub(crate) mod record_assembly;
pub(crate) mod record_protection;
pub(crate) mod record_rules;
pub(crate) mod record_sealer;
pub(crate) mod rest;
pub(crate) mod scoped_suites;
mod second_attempt;
pub(crate) mod secret_log;
mod server_extensions;

use std::fmt;
use std::sync::Arc;

use dormouse_record::{self as record, Alert};
use rustls::{
    CipherSuite, ClientConfig, CommonState, ContentType, Error, ProtocolVersion, ServerConfig,
};
use rustls_pki_types::{ServerName, UnixTime};

use self::driver::{Driver, RustlsConnection, Wants};
use self::exporter::{ExporterSource, Exporting};
use self::info::{Flights, HandshakeInfo, LocalFacts, handshake_info};
use self::record_protection::Protection;
use self::record_rules::{FirstMessage, HeaderRules, Reading, RecordRefusal};
use self::rest::{Rested, establish, scrub_stack};
use crate::agreements::{NextAgreement, PreparedAgreement};
use crate::call_scope::{CallScope, Facts, enter, if_in_scope, in_scope};
use crate::client_hello::requested::Requested;
use crate::deferred::Deferred;
use crate::failure::{Blame, FailureKind, HandshakeFailure};
use crate::secrets::{Derivation, Secret, SessionSecrets};
use crate::sessions::client_facts::ClientResumption;
use crate::sessions::client_session::SessionStore;
use crate::sessions::refusal::ServerResumption;
use crate::sessions::server_flight::ServerFlight;
use crate::sessions::ticket_messages::TicketMessages;
use crate::sessions::ticket_watch::TicketWatch;
use crate::x509::facts::CertificateFacts;

/// Limits of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandshakeLimits {
    /// Maximum bytes received until the handshake is done, and maximum bytes received after it before the
    /// connection rests.
    pub bytes_max: usize,
}

impl Default for HandshakeLimits {
    /// Returns 64 KiB, enough for long certificate chains.
    fn default() -> Self {
        HandshakeLimits { bytes_max: 65_536 }
    }
}

/// Progress of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// More bytes must be received.
    Handshaking,
    /// Done: call [`Handshake::rest`].
    Established,
}

/// A handshake in flight. It stays on the heap until it is done or has failed.
///
/// Invariants: bytes that the peer sent after the handshake are in `leftover`, and rustls never sees them;
/// `driver.output[sent..]` is what remains to be sent to the peer, in order; after a failure only `sent`
/// changes.
pub struct Handshake {
    driver: Driver,
    /// Always `Some` between calls.
    scope: Option<Box<CallScope>>,
    phase: Phase,
    limits: HandshakeLimits,
    leftover: Vec<u8>,
    /// How many bytes of the output the caller has sent.
    sent: usize,
    /// How many bytes had been sent when the output was last cleared.
    sent_before: usize,
    flights: Flights,
    first_message: FirstMessage,
    /// `None` on the server side.
    client: Option<ClientSide>,
    /// What a second attempt needs, if a signature may be made elsewhere and was not needed yet.
    beginning: Option<Box<Beginning>>,
}

/// What a second attempt of a handshake needs.
struct Beginning {
    /// A connection that has not begun.
    connection: RustlsConnection,
    /// The time, which stands still until there is a signature: both attempts see the same.
    now: Option<UnixTime>,
    /// What was received.
    input: Vec<u8>,
}

/// The additional data of a client's handshake.
#[derive(Default)]
pub(crate) struct ClientSide {
    /// The requested server name.
    pub(crate) server_name: String,
    /// How many tickets it will wait for.
    pub(crate) tickets_expected: u32,
    /// Whether the server's certificate is verified.
    pub(crate) judges: bool,
    /// Set if the caller stores the sessions.
    pub(crate) sessions: Option<Arc<dyn ClientSessions>>,
    /// The server's unencrypted session data; read only if the caller stores sessions.
    pub(crate) server_flight: ServerFlight,
}

/// Receives the outcome of handshakes, for the sessions that the caller stores.
pub(crate) trait ClientSessions: Send + Sync {
    /// The handshake failed: a session that it offered is not offered again.
    fn failed(&self, scope: &mut CallScope);

    /// The handshake is done. Returns the chain to which the following tickets belong.
    fn established(
        &self,
        scope: &mut CallScope,
        info: &HandshakeInfo,
        suite: CipherSuite,
        flight: &ServerFlight,
    ) -> Option<(Arc<dyn SessionStore>, u64)>;
}

enum Phase {
    /// Nothing has been received from the peer.
    FirstBytes,
    Handshaking,
    /// Nothing is read until the signature has arrived.
    AwaitsSignature,
    Established,
    Failed(HandshakeFailure),
}

impl Handshake {
    pub(crate) fn with_server_config(config: Arc<ServerConfig>, limits: HandshakeLimits) -> Self {
        Handshake::new(RustlsConnection::ServerToBe(config), limits, None)
    }

    pub(crate) fn with_client_config(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
        limits: HandshakeLimits,
        side: ClientSide,
    ) -> Self {
        Handshake::new(
            RustlsConnection::ClientToBe(config, name),
            limits,
            Some(side),
        )
    }

    /// Takes sessions from `store` and puts new ones there. Call it first. The context's settings must say that
    /// the caller stores sessions.
    pub fn keep_sessions(&mut self, store: Arc<dyn SessionStore>) {
        self.facts::<ClientResumption>().store = Some(store);
        self.facts::<SessionSecrets>().master = Derivation::Captured(Secret::empty());
    }

    /// Uses this agreement, if the handshake answers the share that it was made for. Call it before the first byte.
    pub fn use_agreement(&mut self, prepared: Box<PreparedAgreement>) {
        self.facts::<NextAgreement>().0 = Some(prepared);
    }

    /// Collects the secrets for an exporter. Call it first.
    pub(crate) fn keep_exporter(mut self, wanted: bool) -> Self {
        if wanted {
            self.facts::<Exporting>().0 = Some(ExporterSource::new());
        }
        self
    }

    /// Keeps what a second attempt needs. Call it first.
    pub(crate) fn keep_beginning(mut self) -> Self {
        self.facts::<Deferred>();
        self.beginning = self.driver.connection.anew().map(|connection| {
            Box::new(Beginning {
                connection,
                now: None,
                input: Vec::new(),
            })
        });
        self
    }

    /// Starts the client of a loopback handshake.
    pub(crate) fn loopback_client(config: Arc<ClientConfig>, name: ServerName<'static>) -> Self {
        let side = ClientSide {
            tickets_expected: 1,
            ..ClientSide::default()
        };
        let limits = HandshakeLimits::default();
        let mut handshake = Handshake::with_client_config(config, name, limits, side);
        handshake.scope().is_loopback = true;
        handshake
    }

    /// Returns the scope, which is here between calls.
    fn scope(&mut self) -> &mut CallScope {
        self.scope.get_or_insert_with(CallScope::new)
    }

    /// Returns the facts of a subject about this connection.
    pub(crate) fn facts<T: Facts>(&mut self) -> &mut T {
        self.scope().of()
    }

    fn new(
        connection: RustlsConnection,
        limits: HandshakeLimits,
        client: Option<ClientSide>,
    ) -> Handshake {
        let mut scope = CallScope::new();
        if client.is_none() {
            scope.of::<ServerResumption>().tickets = Some(TicketMessages::default());
        }
        Handshake {
            driver: Driver::new(connection),
            scope: Some(scope),
            phase: Phase::FirstBytes,
            limits,
            leftover: Vec::new(),
            sent: 0,
            sent_before: 0,
            flights: Flights::default(),
            first_message: FirstMessage::default(),
            client,
            beginning: None,
        }
    }

    /// Handles received bytes, split anywhere. Afterwards there may be [`Handshake::output`], even after a
    /// failure. A failure is final.
    pub fn handle_input(
        &mut self,
        now: UnixTime,
        received: &[u8],
    ) -> Result<Progress, HandshakeFailure> {
        let progress = self.take_input(now, received);
        // The peer may never answer, and this worker may have nothing else to do.
        scrub_stack();
        progress
    }

    #[inline(never)]
    fn take_input(&mut self, now: UnixTime, received: &[u8]) -> Result<Progress, HandshakeFailure> {
        match &self.phase {
            Phase::Failed(failure) => return Err(failure.clone()),
            Phase::Established => return self.keep_or_fail(received),
            Phase::AwaitsSignature => {
                let what = "nothing is received while a signature is awaited";
                return Err(HandshakeFailure::new(
                    Blame::Misuse,
                    FailureKind::Misuse,
                    what,
                ));
            }
            Phase::FirstBytes | Phase::Handshaking => {}
        }
        let mut scope = self.scope.take().unwrap_or_else(CallScope::new);
        scope.now = match &mut self.beginning {
            Some(beginning) => {
                beginning.input.extend_from_slice(received);
                *beginning.now.get_or_insert(now)
            }
            None => now,
        };
        let (taken, written) = (self.driver.records.taken(), self.driver.output.len());
        let (scope, outcome) = enter(scope, || self.take_records(received));
        let from_client = self.is_server();
        self.flights
            .add(from_client, self.driver.records.taken() - taken);
        self.flights
            .add(!from_client, self.driver.output.len() - written);
        self.scope = Some(scope);
        if self.has_answered() {
            // Now it was used, or never will be.
            self.scope().forget::<NextAgreement>();
        }
        if outcome.is_err() && self.signature_request().is_some() {
            self.phase = Phase::AwaitsSignature;
            return Ok(Progress::Handshaking);
        }
        outcome.map_err(|cause| self.fail(cause, written))
    }

    /// Returns the bytes to send to the peer, in order, including the alert of a failed handshake.
    pub fn output(&self) -> &[u8] {
        self.driver.output.get(self.sent..).unwrap_or_default()
    }

    /// Records that the first `count` bytes of the output were sent.
    pub fn output_sent(&mut self, count: usize) {
        self.sent = self
            .sent
            .saturating_add(count)
            .min(self.driver.output.len());
        if self.sent == self.driver.output.len() {
            self.sent_before += self.sent;
            // Waiting for the peer takes a round trip or longer, so no buffer is kept meanwhile.
            self.driver.output = Vec::new();
            self.sent = 0;
        }
    }

    /// Whether anything was sent to the peer. On the server side, the expensive part, the reply to its hello,
    /// is then done.
    pub fn has_answered(&self) -> bool {
        self.sent_before > 0 || self.sent > 0 || !self.driver.output.is_empty()
    }

    /// Whether the output consists only of tickets (RFC 8446 §4.6.1), which no client waits for, and the client
    /// has already sent data. The tickets can then share a segment with the reply to that data.
    pub fn output_can_wait(&self) -> bool {
        let protocol = self.driver.common().and_then(CommonState::protocol_version);
        matches!(self.phase, Phase::Established)
            && self.is_server()
            && protocol == Some(ProtocolVersion::TLSv1_3)
            && !self.leftover.is_empty()
    }

    /// Whether this is the server side.
    pub fn is_server(&self) -> bool {
        self.client.is_none()
    }

    /// Returns the number of bytes that complete the next record's header, or that record. A caller that passes no more
    /// keeps all bytes after the handshake.
    pub fn missing(&self) -> usize {
        self.driver.records.missing()
    }

    /// Returns the heap bytes in this handshake's buffers, without rustls' own state.
    pub fn buffered_bytes(&self) -> usize {
        self.driver.records.capacity() + self.driver.output.capacity() + self.leftover.capacity()
    }

    /// Returns the peer's certificates, as [`HandshakeInfo::peer_certificates`]. Empty until the handshake is
    /// established.
    pub fn peer_certificates(&self) -> Vec<Vec<u8>> {
        let client = self.client.as_ref();
        let by_caller = client.is_some_and(|side| side.sessions.is_some());
        let common = self.driver.common();
        common.map_or_else(Vec::new, |common| {
            info::peer_certificates(common, by_caller)
        })
    }

    /// Ends an established handshake: writes its secrets into `state`, in place, and drops every library object
    /// except those in [`Rested`].
    pub fn rest(mut self, state: &mut record::State) -> Result<Rested, HandshakeFailure> {
        match self.phase {
            Phase::Established => {}
            Phase::Failed(failure) => return Err(failure),
            Phase::FirstBytes | Phase::Handshaking | Phase::AwaitsSignature => {
                return Err(HandshakeFailure::new(
                    Blame::Misuse,
                    FailureKind::Misuse,
                    "the handshake is not done yet",
                ));
            }
        }
        let mut scope = self.scope.take().unwrap_or_else(CallScope::new);
        let of_client = self.client.is_some();
        let (sni, side) = match self.client.take() {
            Some(side) => (Some(side.server_name.clone()), side),
            None => {
                let requested = scope.of::<Requested>();
                (requested.server_name.clone(), ClientSide::default())
            }
        };
        let local = LocalFacts {
            sni,
            verified: side.judges,
            of_client,
            by_caller: side.sessions.is_some(),
            bytes_in: self.driver.records.taken(),
            bytes_out: self.sent_before + self.driver.output.len(),
            flights: self.flights,
        };
        let info = match self.driver.common() {
            Some(common) => handshake_info(common, &mut scope, local)?,
            None => {
                return Err(HandshakeFailure::internal(
                    "established without a connection",
                ));
            }
        };
        let suite = self
            .driver
            .common()
            .and_then(CommonState::negotiated_cipher_suite);
        let chain = match (&side.sessions, suite) {
            (Some(sessions), Some(suite)) => {
                sessions.established(&mut scope, &info, suite.suite(), &side.server_flight)
            }
            _ => None,
        };
        // Servers replace the ticket that a resumption has used.
        let tickets_expected = match info.resumed {
            true => side.tickets_expected.min(1),
            false => side.tickets_expected,
        };
        let (kernel, keys) = establish(self.driver.connection, &mut scope, state)?;
        let resumption = scope.find::<ClientResumption>();
        let since_s = resumption.map_or(0, |resumption| resumption.since_s);
        self.driver.output.drain(..self.sent);
        Ok(Rested {
            unsent: self.driver.output,
            leftover: self.leftover,
            info,
            keys,
            tickets: kernel
                .filter(|_| tickets_expected > 0)
                .map(|kernel| TicketWatch::new(kernel, tickets_expected, chain, since_s)),
        })
    }
}

/// Cause of a handshake failure.
enum Cause {
    Ours(RecordRefusal),
    Rustls(Error),
}

impl From<Error> for Cause {
    fn from(error: Error) -> Self {
        Cause::Rustls(error)
    }
}

impl From<RecordRefusal> for Cause {
    fn from(refusal: RecordRefusal) -> Self {
        Cause::Ours(refusal)
    }
}

impl Handshake {
    /// Passes records to rustls one at a time, until the handshake is done or `received` is used up. Bytes
    /// after a completed handshake go to `leftover`, where rustls does not see them: it would handle a
    /// KeyUpdate itself, and the captured secrets would be stale.
    fn take_records(&mut self, mut received: &[u8]) -> Result<Progress, Cause> {
        if !self.is_server() && matches!(self.phase, Phase::FirstBytes) {
            self.advance()?;
        }
        while self.next_record(&mut received)? {
            self.read_server_flight();
            let wants = self.advance()?;
            let is_skipped = in_scope(|own: &mut Protection| std::mem::take(&mut own.is_skipped));
            if is_skipped == Some(true) {
                // rustls does not discard a record that it skips, and would count it again.
                self.driver.records.discard_shown();
            }
            self.note_server_hello();
            if wants == Wants::Nothing {
                return self.establish(received);
            }
        }
        self.driver.records.release();
        Ok(Progress::Handshaking)
    }

    /// Assembles the next record for rustls and checks it as far as possible without its key.
    fn next_record(&mut self, received: &mut &[u8]) -> Result<bool, Cause> {
        loop {
            let rules = self.header_rules();
            let judge = |header| rules.judge(header);
            let is_complete = self.driver.records.complete_record(received, judge)?;
            if self.driver.records.taken() > self.limits.bytes_max {
                return Err(self.too_large().into());
            }
            if !is_complete {
                return Ok(false);
            }
            self.phase = Phase::Handshaking;
            if self.is_dummy() {
                let len = self.driver.records.completed().len();
                self.driver.records.discard(len);
                continue;
            }
            self.judge_record(rules.reading)?;
            if rules.is_server && rules.reading == Reading::Clear {
                hidden_extensions::hide(&mut self.driver);
            }
            return Ok(true);
        }
    }

    fn header_rules(&self) -> HeaderRules {
        let reading = in_scope(|own: &mut Protection| own.reading).unwrap_or(Reading::Clear);
        let is_server = self.is_server();
        HeaderRules {
            reading,
            is_server,
            is_first: matches!(self.phase, Phase::FirstBytes),
            // A server that has chosen TLS 1.3 and has no keys yet has sent a HelloRetryRequest.
            skips_early_data: is_server && reading == Reading::Clear && self.is_tls13(),
        }
    }

    fn is_tls13(&self) -> bool {
        let version = self.driver.common().and_then(CommonState::protocol_version);
        version == Some(ProtocolVersion::TLSv1_3)
    }

    /// Whether the record is a ChangeCipherSpec between two TLS 1.3 messages. They are dropped, because rustls
    /// accepts only two.
    fn is_dummy(&self) -> bool {
        let records = &self.driver.records;
        self.is_tls13()
            && records.is_alone()
            && record_rules::is_dummy_change_cipher_spec(records.completed())
    }

    fn judge_record(&mut self, reading: Reading) -> Result<(), RecordRefusal> {
        let record = self.driver.records.completed();
        record_rules::judge_clear(reading, record)?;
        self.first_message.take(record);
        self.first_message.judge()?;
        if record_rules::changes_cipher(reading, record) {
            in_scope(|own: &mut Protection| own.reading = Reading::Tls12);
        }
        Ok(())
    }

    /// rustls is done.
    fn establish(&mut self, behind: &[u8]) -> Result<Progress, Cause> {
        if !self.driver.records.is_empty() {
            // rustls refuses messages that straddle a change of keys (RFC 8446 §5.1).
            let failure = HandshakeFailure::internal("rustls is done, but not with its input");
            return Err(RecordRefusal::from(failure).into());
        }
        self.check_client()?;
        self.seal_tickets();
        self.phase = Phase::Established;
        Ok(self.keep(behind)?)
    }

    /// Seals the TLS 1.3 tickets, as many per record as fit.
    fn seal_tickets(&mut self) {
        let messages = in_scope(|resumption: &mut ServerResumption| {
            let messages = resumption.tickets.as_mut();
            messages.map(TicketMessages::take)
        });
        let sealer = in_scope(|own: &mut Protection| own.sealer.clone());
        let (Some(messages), Some(sealer)) = (messages.flatten(), sealer.flatten()) else {
            return;
        };
        for content in messages.chunks(record::CONTENT_MAX) {
            let sealed = sealer.seal(ContentType::Handshake, content);
            self.driver.output.extend(sealed.unwrap_or_default());
        }
    }

    fn read_server_flight(&mut self) {
        if !self.is_server() {
            let record = self.driver.records.completed();
            if_in_scope(|Exporting(source)| {
                if let Some(source) = source {
                    source.note_first_record(record);
                }
            });
        }
        if let Some(side) = self.client.as_mut().filter(|side| side.sessions.is_some()) {
            side.server_flight.record(self.driver.records.completed());
        }
    }

    /// Server side: passes the first flight to the exporter.
    fn note_server_hello(&self) {
        if self.is_server() && self.sent_before == 0 {
            if_in_scope(|Exporting(source)| {
                if let Some(source) = source {
                    source.note_first_record(&self.driver.output);
                }
            });
        }
    }

    fn advance(&mut self) -> Result<Wants, Cause> {
        match self.driver.advance()? {
            Wants::PeerClosed => Err(record_rules::closed().into()),
            Wants::Unforeseen => {
                let what = "rustls is in a state which a handshake never has";
                Err(RecordRefusal::from(HandshakeFailure::internal(what)).into())
            }
            wants => Ok(wants),
        }
    }

    /// Refuses a client whose certificate was not verified in this handshake, whatever rustls took from a
    /// session.
    fn check_client(&self) -> Result<(), RecordRefusal> {
        let shown = self
            .driver
            .common()
            .is_some_and(|common| common.peer_certificates().is_some());
        let judged = in_scope(|facts: &mut CertificateFacts| facts.client_judged);
        if self.is_server() && shown && judged != Some(true) {
            let what = "a client's certificate was not verified";
            return Err(HandshakeFailure::internal(what).into());
        }
        Ok(())
    }

    fn keep_or_fail(&mut self, received: &[u8]) -> Result<Progress, HandshakeFailure> {
        let written = self.driver.output.len();
        self.keep(received)
            .map_err(|refusal| self.fail(refusal.into(), written))
    }

    /// Keeps bytes received after the handshake.
    fn keep(&mut self, received: &[u8]) -> Result<Progress, RecordRefusal> {
        // Bytes received together with the end of the handshake are limited by the caller.
        if !self.leftover.is_empty() && self.leftover.len() + received.len() > self.limits.bytes_max
        {
            return Err(self.too_large());
        }
        self.leftover.extend_from_slice(received);
        Ok(Progress::Established)
    }

    fn too_large(&self) -> RecordRefusal {
        RecordRefusal {
            failure: HandshakeFailure::too_large(self.limits.bytes_max),
            alert: Some(Alert::fatal(record::AlertDescription::IllegalParameter)),
        }
    }
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = match self.phase {
            Phase::FirstBytes => "first bytes",
            Phase::Handshaking => "handshaking",
            Phase::AwaitsSignature => "awaits a signature",
            Phase::Established => "established",
            Phase::Failed(_) => "failed",
        };
        f.debug_struct("Handshake")
            .field("phase", &phase)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
