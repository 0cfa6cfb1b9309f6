//! Handshake failures: the reason for the caller and the alert for the peer.

use dormouse_record::{Alert, AlertDescription, AlertLevel};
use rustls::{ContentType, Error, PeerIncompatible};

use super::first_bytes::HTTP_ANSWER;
use super::record_protection::Protection;
use super::record_rules::RecordRefusal;
use super::record_sealer::RecordSealer;
use super::{Cause, Handshake, Phase};
use crate::call_scope::{CallScope, enter};
use crate::client_hello::requested::Requested;
use crate::failure::{FailureKind, HandshakeFailure, alert_owed};
use crate::messages::Reader;
use crate::messages::content_type::ALERT;
use crate::sessions::refusal::ServerResumption;
use crate::x509::facts::CertificateFacts;

impl Handshake {
    /// Ends the handshake. `written` is the length of the output before the failed step.
    pub(super) fn fail(&mut self, cause: Cause, written: usize) -> HandshakeFailure {
        let refused = self.facts::<Protection>().refused.take();
        let failure = match (cause, refused) {
            (Cause::Ours(refusal), _) | (Cause::Rustls(_), Some(refusal)) => self.refuse(refusal),
            (Cause::Rustls(error), None) => self.fail_by_rustls(&error, written),
        };
        if let Some(side) = &self.client
            && let (Some(sessions), Some(scope)) = (&side.sessions, self.scope.as_deref_mut())
        {
            sessions.failed(scope);
        }
        if let Some(session) = self.facts::<ServerResumption>().stored.take() {
            session.forget();
        }
        self.phase = Phase::Failed(failure.clone());
        failure
    }

    fn refuse(&mut self, refusal: RecordRefusal) -> HandshakeFailure {
        let RecordRefusal { failure, alert } = refusal;
        if failure.kind == FailureKind::PlainHttp {
            self.driver.output.extend_from_slice(HTTP_ANSWER);
        }
        let Some(alert) = alert else {
            return failure;
        };
        self.write_alert([alert.level as u8, alert.description.code()]);
        let is_error = alert.level == AlertLevel::Fatal;
        failure.with_alert(is_error.then_some(alert.description.code()))
    }

    fn fail_by_rustls(&mut self, error: &Error, written: usize) -> HandshakeFailure {
        if let Some((failure, alert)) = self.no_certificate() {
            // Only rustls' own alert was written since then, and it is the wrong one.
            self.driver.output.truncate(written);
            self.driver.output.extend_from_slice(&alert);
            return failure;
        }
        if self.first_message.is_old_client() && is_about_signatures(error) {
            // rustls looks for a certificate first, and old clients do not list the signatures they accept.
            self.driver.output.truncate(written);
            let alert = Some(Alert::fatal(AlertDescription::ProtocolVersion));
            let failure = HandshakeFailure::too_old();
            return self.refuse(RecordRefusal { failure, alert });
        }
        let rustls = self.take_alert();
        let by_caller = self.facts::<CertificateFacts>().alert.take();
        let alert = match (error, by_caller) {
            (Error::InvalidCertificate(_), Some(alert)) => Some(alert.code()),
            _ => alert_owed(error, rustls, self.is_tls13()),
        };
        if let Some(description) = alert {
            self.write_alert([AlertLevel::Fatal as u8, description]);
        }
        self.describe(error).with_alert(alert)
    }

    /// Returns the failure and the alert if there was no certificate to present.
    fn no_certificate(&mut self) -> Option<(HandshakeFailure, [u8; 7])> {
        let requested = self.facts::<Requested>();
        let why = requested.no_certificate.take()?;
        let name = requested.server_name.as_deref();
        Some(HandshakeFailure::no_certificate(why, name))
    }

    fn describe(&mut self, error: &Error) -> HandshakeFailure {
        let is_server = self.is_server();
        let facts = self.facts::<CertificateFacts>();
        let failure = HandshakeFailure::from_rustls(error, facts.problem.take());
        match is_server {
            true => failure.about_client(facts.client.as_deref()),
            false => failure,
        }
    }

    /// Lets rustls write its alert, and removes it from the output. The sealer left it unprotected.
    fn take_alert(&mut self) -> Option<u8> {
        let from = self.driver.output.len();
        let scope = self.scope.take().unwrap_or_else(CallScope::new);
        let (scope, ()) = enter(scope, || self.driver.fetch_alert());
        self.scope = Some(scope);
        let output = &mut self.driver.output;
        let (at, description) = find_alert(output.get(from..).unwrap_or_default())?;
        output.truncate(from + at);
        Some(description)
    }

    /// Writes an alert, protected if the connection already has keys (RFC 8446 §6).
    fn write_alert(&mut self, alert: [u8; 2]) {
        let sealer = self.facts::<Protection>().sealer.clone();
        match sealer.filter(RecordSealer::is_active) {
            Some(sealer) => {
                let sealed = sealer.seal(ContentType::Alert, &alert);
                self.driver.output.extend(sealed.unwrap_or_default());
            }
            None => {
                let output = &mut self.driver.output;
                output.extend_from_slice(&[ALERT, 3, 3, 0, 2]);
                output.extend_from_slice(&alert);
            }
        }
    }
}

/// Returns the offset and description of rustls' alert.
fn find_alert(records: &[u8]) -> Option<(usize, u8)> {
    let mut rest = Reader::new(records);
    let mut at = 0;
    loop {
        let [typ, _, _] = rest.array()?;
        let content = rest.vector16()?;
        if let (ALERT, &[_level, description]) = (typ, content) {
            return Some((at, description));
        }
        at += 5 + content.len();
    }
}

fn is_about_signatures(error: &Error) -> bool {
    matches!(
        error,
        Error::PeerIncompatible(
            PeerIncompatible::NoSignatureSchemesInCommon
                | PeerIncompatible::SignatureAlgorithmsExtensionRequired
        )
    )
}
