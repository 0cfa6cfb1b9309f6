//! A handshake in flight, either side.

pub(crate) mod call_scope;
pub(crate) mod driver;
mod failing;
mod first_bytes;
pub(crate) mod info;
pub(crate) mod record_assembly;
pub(crate) mod record_protection;
pub(crate) mod record_rules;
pub(crate) mod record_sealer;
pub(crate) mod rest;
pub(crate) mod scoped_suites;
pub(crate) mod secrets;
mod server_extensions;

use std::fmt;
use std::sync::Arc;

use dormouse_record::{self as record, Alert};
use rustls::client::Tls12ClientSessionValue;
use rustls::{
    CipherSuite, ClientConfig, CommonState, ContentType, Error, ProtocolVersion, ServerConfig,
};
use rustls_pki_types::{ServerName, UnixTime};

use self::call_scope::{CallScope, enter, in_scope};
use self::driver::{Driver, RustlsConnection, Wants};
use self::info::{Flights, HandshakeInfo, LocalFacts, handshake_info};
use self::record_rules::{FirstMessage, HeaderRules, Reading, RecordRefusal};
use self::rest::{Rested, establish};
use self::secrets::{Derivation, Secret};
use crate::failure::{Blame, FailureKind, HandshakeFailure};
use crate::hooks::exporter::ExporterSource;
use crate::sessions::client_session::{SessionHandle, SessionStore};
use crate::sessions::server_flight::ServerFlight;
use crate::sessions::ticket_watch::TicketWatch;
use crate::sessions::tickets::TicketMessages;

/// What a handshake may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandshakeLimits {
    /// Bytes received until it is done, and bytes received behind it before it rests.
    pub bytes_max: usize,
}

impl Default for HandshakeLimits {
    /// 64 KiB: long chains of certificates fit.
    fn default() -> Self {
        HandshakeLimits { bytes_max: 65_536 }
    }
}

/// How far a handshake is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// More must be received.
    Handshaking,
    /// Done: call [`Handshake::rest`].
    Established,
}

/// A handshake in flight. It is the caller's, on the heap, until it is done or has failed.
///
/// Invariants: what the peer sent behind the handshake is in `leftover` and was never shown to
/// rustls; `driver.output[sent..]` is what the peer must still get, in order; after a failure
/// nothing but `sent` changes any more.
pub struct Handshake {
    driver: Driver,
    /// Always there between calls.
    scope: Option<Box<CallScope>>,
    phase: Phase,
    limits: HandshakeLimits,
    leftover: Vec<u8>,
    /// How much of the output the caller has sent.
    sent: usize,
    /// What had been sent when the output was last emptied.
    sent_before: usize,
    flights: Flights,
    first_message: FirstMessage,
    /// `None` on the server's side.
    client: Option<ClientSide>,
}

/// What only a client's handshake has.
#[derive(Default)]
pub(crate) struct ClientSide {
    /// The server it wants to reach.
    pub(crate) server_name: String,
    /// How many tickets it will wait for.
    pub(crate) tickets_expected: u32,
    /// Whether the server's certificate is judged.
    pub(crate) judges: bool,
    /// Set if the caller keeps the sessions.
    pub(crate) sessions: Option<Arc<dyn ClientSessions>>,
    /// What the server says of the session in the clear; only where sessions are kept.
    pub(crate) server_flight: ServerFlight,
}

/// Learns how handshakes end, for the sessions that the caller keeps.
pub(crate) trait ClientSessions: Send + Sync {
    /// The handshake failed: a session that was offered in it is not tried again.
    fn failed(&self, scope: &CallScope);

    /// The handshake is done. Returns the chain to which the coming tickets belong.
    fn established(
        &self,
        scope: &mut CallScope,
        info: &HandshakeInfo,
        suite: CipherSuite,
        flight: &ServerFlight,
    ) -> Option<(Arc<dyn SessionStore>, u64)>;
}

enum Phase {
    /// Nothing is known of the peer yet.
    FirstBytes,
    Handshaking,
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

    /// Takes sessions from `store` and puts new ones there; before anything else. The context's
    /// settings say that the caller keeps them.
    pub fn keep_sessions(&mut self, store: Arc<dyn SessionStore>) {
        if let Some(scope) = &mut self.scope {
            scope.session_store = Some(store);
            scope.master_secret = Derivation::Captured(Secret::empty());
        }
    }

    /// Collects what an exporter is made of; before anything else.
    pub(crate) fn keep_exporter(mut self, wanted: bool) -> Self {
        if let (Some(scope), true) = (&mut self.scope, wanted) {
            scope.exporter = Some(ExporterSource::new());
        }
        self
    }

    /// The client of a loopback handshake.
    pub(crate) fn loopback_client(config: Arc<ClientConfig>, name: ServerName<'static>) -> Self {
        let side = ClientSide {
            tickets_expected: 1,
            ..ClientSide::default()
        };
        let limits = HandshakeLimits::default();
        let mut handshake = Handshake::with_client_config(config, name, limits, side);
        if let Some(scope) = &mut handshake.scope {
            scope.is_loopback = true;
        }
        handshake
    }

    /// Sets what a loopback handshake uses in place of what it would agree on.
    pub(crate) fn prescribe(&mut self, master_secret: Derivation, issued: SessionHandle) {
        if let Some(scope) = &mut self.scope {
            (scope.master_secret, scope.issued) = (master_secret, Some(issued));
        }
    }

    /// Takes rustls' value of the TLS 1.2 session that a loopback handshake has made.
    pub(crate) fn take_tls12_value(&mut self) -> Option<Tls12ClientSessionValue> {
        self.scope.as_mut()?.tls12_value.take()
    }

    fn new(
        connection: RustlsConnection,
        limits: HandshakeLimits,
        client: Option<ClientSide>,
    ) -> Handshake {
        let mut scope = CallScope::new();
        scope.ticket_messages = client.is_none().then(TicketMessages::default);
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
        }
    }

    /// Takes what was received, cut anywhere. Afterwards there may be [`Handshake::output`],
    /// also when it failed; a failure is final.
    pub fn handle_input(
        &mut self,
        now: UnixTime,
        received: &[u8],
    ) -> Result<Progress, HandshakeFailure> {
        match &self.phase {
            Phase::Failed(failure) => return Err(failure.clone()),
            Phase::Established => return self.keep_or_fail(received),
            Phase::FirstBytes | Phase::Handshaking => {}
        }
        let mut scope = self.scope.take().unwrap_or_else(CallScope::new);
        scope.now = now;
        let (taken, written) = (self.driver.records.taken(), self.driver.output.len());
        let (scope, outcome) = enter(scope, || self.take_records(received));
        let from_client = self.is_server();
        self.flights
            .add(from_client, self.driver.records.taken() - taken);
        self.flights
            .add(!from_client, self.driver.output.len() - written);
        self.scope = Some(scope);
        outcome.map_err(|cause| self.fail(cause, written))
    }

    /// What must be sent to the peer, in order; a failed handshake's last words too.
    pub fn output(&self) -> &[u8] {
        self.driver.output.get(self.sent..).unwrap_or_default()
    }

    /// The first `count` bytes of the output were sent.
    pub fn output_sent(&mut self, count: usize) {
        self.sent = self
            .sent
            .saturating_add(count)
            .min(self.driver.output.len());
        if self.sent == self.driver.output.len() {
            self.sent_before += self.sent;
            // Waiting for the peer takes a round trip, or for ever: nothing is held for that.
            self.driver.output = Vec::new();
            self.sent = 0;
        }
    }

    /// Whether the peer has been told anything: on the server's side, whether the costly part, the
    /// answer to its hello, is behind us.
    pub fn has_answered(&self) -> bool {
        self.sent_before > 0 || self.sent > 0 || !self.driver.output.is_empty()
    }

    /// Whether the output is nothing but tickets (RFC 8446 §4.6.1), for which nobody waits, and the
    /// client has already said more: then it can go with the answer to that, in one segment.
    pub fn output_can_wait(&self) -> bool {
        let protocol = self.driver.common().and_then(CommonState::protocol_version);
        matches!(self.phase, Phase::Established)
            && self.is_server()
            && protocol == Some(ProtocolVersion::TLSv1_3)
            && !self.leftover.is_empty()
    }

    /// Whether it is the server's side.
    pub fn is_server(&self) -> bool {
        self.client.is_none()
    }

    /// Bytes this handshake holds on the heap in buffers, rustls' own state not counted.
    pub fn buffered_bytes(&self) -> usize {
        self.driver.records.capacity() + self.driver.output.capacity() + self.leftover.capacity()
    }

    /// The certificates the peer showed, its own first; in a resumed handshake those of the
    /// session's beginning. Empty before it is established.
    pub fn peer_certificates(&self) -> Vec<Vec<u8>> {
        let common = self.driver.common();
        let chain = common.and_then(|common| common.peer_certificates());
        chain
            .unwrap_or_default()
            .iter()
            .map(|certificate| certificate.to_vec())
            .collect()
    }

    /// Ends an established handshake: its secrets go into `state`, in place, and every object
    /// of the library is gone afterwards, but for what [`Rested::tickets`] keeps.
    pub fn rest(mut self, state: &mut record::State) -> Result<Rested, HandshakeFailure> {
        match self.phase {
            Phase::Established => {}
            Phase::Failed(failure) => return Err(failure),
            Phase::FirstBytes | Phase::Handshaking => {
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
            None => (scope.server_name.clone(), ClientSide::default()),
        };
        let local = LocalFacts {
            sni,
            verified: side.judges,
            of_client,
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
        let kernel = establish(self.driver.connection, &scope, state)?;
        self.driver.output.drain(..self.sent);
        Ok(Rested {
            unsent: self.driver.output,
            leftover: self.leftover,
            info,
            tickets: kernel
                .filter(|_| side.tickets_expected > 0)
                .map(|kernel| TicketWatch::new(kernel, side.tickets_expected, chain)),
        })
    }
}

/// Why the handshake can't go on.
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
    /// Shows rustls one record after the other, until the handshake is done or `received` is
    /// used up. What follows a handshake that is done goes to `leftover`, unseen by rustls: it
    /// would handle a KeyUpdate itself, and the secrets we caught would be stale.
    fn take_records(&mut self, mut received: &[u8]) -> Result<Progress, Cause> {
        if !self.is_server() && matches!(self.phase, Phase::FirstBytes) {
            self.advance()?;
        }
        while self.next_record(&mut received)? {
            self.read_server_flight();
            let wants = self.advance()?;
            self.note_server_hello();
            if wants == Wants::Nothing {
                return self.establish(received);
            }
        }
        self.driver.records.release();
        Ok(Progress::Handshaking)
    }

    /// Completes the next record for rustls, judged as far as it can be without its key.
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
            return Ok(true);
        }
    }

    fn header_rules(&self) -> HeaderRules {
        let reading = in_scope(|scope| scope.reading).unwrap_or(Reading::Clear);
        let is_server = self.is_server();
        HeaderRules {
            reading,
            is_server,
            is_first: matches!(self.phase, Phase::FirstBytes),
            // A server that has chosen TLS 1.3 and has no keys yet has asked for another hello.
            skips_early_data: is_server && reading == Reading::Clear && self.is_tls13(),
        }
    }

    fn is_tls13(&self) -> bool {
        let version = self.driver.common().and_then(CommonState::protocol_version);
        version == Some(ProtocolVersion::TLSv1_3)
    }

    /// A ChangeCipherSpec between two messages of TLS 1.3: rustls takes two of them at most.
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
            in_scope(|scope| scope.reading = Reading::Tls12);
        }
        Ok(())
    }

    /// rustls is done.
    fn establish(&mut self, behind: &[u8]) -> Result<Progress, Cause> {
        if !self.driver.records.is_empty() {
            // rustls refuses messages which straddle the change of keys (RFC 8446 §5.1).
            let failure = HandshakeFailure::internal("rustls is done, but not with its input");
            return Err(RecordRefusal::from(failure).into());
        }
        self.check_client()?;
        self.seal_tickets();
        self.phase = Phase::Established;
        Ok(self.keep(behind)?)
    }

    /// Sends the tickets of TLS 1.3, as many in a record as fit.
    fn seal_tickets(&mut self) {
        let taken = in_scope(|scope| {
            let messages = scope.ticket_messages.as_mut()?.take();
            Some((messages, scope.sealer.clone()?))
        });
        let Some((messages, sealer)) = taken.flatten() else {
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
            in_scope(|scope| {
                if let Some(exporter) = &mut scope.exporter {
                    exporter.note_first_record(record);
                }
            });
        }
        if let Some(side) = self.client.as_mut().filter(|side| side.sessions.is_some()) {
            side.server_flight.record(self.driver.records.completed());
        }
    }

    /// Server side: shows the exporter the first flight.
    fn note_server_hello(&self) {
        if self.is_server() && self.sent_before == 0 {
            in_scope(|scope| {
                if let Some(exporter) = &mut scope.exporter {
                    exporter.note_first_record(&self.driver.output);
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

    /// No client gets in with a certificate that was not judged in this very handshake, whatever
    /// rustls took from a session.
    fn check_client(&self) -> Result<(), RecordRefusal> {
        let shown = self
            .driver
            .common()
            .is_some_and(|common| common.peer_certificates().is_some());
        let judged = in_scope(|scope| scope.resumption.client_judged).unwrap_or_default();
        if self.is_server() && shown && !judged {
            let what = "a client's certificate was not judged";
            return Err(HandshakeFailure::internal(what).into());
        }
        Ok(())
    }

    fn keep_or_fail(&mut self, received: &[u8]) -> Result<Progress, HandshakeFailure> {
        let written = self.driver.output.len();
        self.keep(received)
            .map_err(|refusal| self.fail(refusal.into(), written))
    }

    /// Keeps what came behind the handshake.
    fn keep(&mut self, received: &[u8]) -> Result<Progress, RecordRefusal> {
        // What came together with the end of the handshake was the caller's to bound.
        if !self.leftover.is_empty() && self.leftover.len() + received.len() > self.limits.bytes_max
        {
            return Err(self.too_large());
        }
        self.leftover.extend_from_slice(received);
        Ok(Progress::Established)
    }

    fn too_large(&self) -> RecordRefusal {
        let max = self.limits.bytes_max;
        RecordRefusal {
            failure: HandshakeFailure::new(
                Blame::Limit,
                FailureKind::TooLarge,
                format!("the peer sent more than the {max} bytes a handshake may have"),
            ),
            alert: Some(Alert::fatal(record::AlertDescription::IllegalParameter)),
        }
    }
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = match self.phase {
            Phase::FirstBytes => "first bytes",
            Phase::Handshaking => "handshaking",
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
