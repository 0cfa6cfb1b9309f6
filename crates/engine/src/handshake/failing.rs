//! The failure of a handshake: what is said of it, and the alert for the peer.

use rustls::{AlertDescription, Error, PeerIncompatible};

use super::call_scope::{CallScope, enter};
use super::{Cause, Handshake};
use crate::failure::{HandshakeFailure, hidden_alert};

impl Handshake {
    /// Ends the handshake. `written`: how much output there was before the step that failed.
    pub(super) fn fail(&mut self, cause: Cause, written: usize) -> HandshakeFailure {
        let error = match cause {
            Cause::Ours(failure) => return failure,
            Cause::Rustls(error) => error,
        };
        if let Some((failure, alert)) = self.no_certificate() {
            // Nothing but rustls' own alert, of another kind, has been written since.
            self.driver.output.truncate(written);
            self.driver.output.extend_from_slice(&alert);
            return failure;
        }
        if self.is_old && is_about_signatures(&error) {
            // rustls looks for a certificate first, and old clients don't say what they take.
            self.driver.output.truncate(written);
            let alert = Some(AlertDescription::ProtocolVersion.into());
            self.alert_in_the_clear(alert);
            return HandshakeFailure::too_old().with_alert(alert);
        }
        let alert = self.alert_for(&error);
        self.describe(&error).with_alert(alert)
    }

    /// The failure and the alert, if there was no certificate to show.
    fn no_certificate(&mut self) -> Option<(HandshakeFailure, [u8; 7])> {
        let scope = self.scope.as_mut()?;
        let why = scope.no_certificate.take()?;
        let name = scope.server_name.as_deref();
        Some(HandshakeFailure::no_certificate(why, name))
    }

    /// Lets rustls write its alert, and finds out which.
    fn alert_for(&mut self, error: &Error) -> Option<u8> {
        let alert_at = self.driver.output.len();
        self.fetch_alert();
        let hidden = hidden_alert(error);
        if self.driver.output.len() == alert_at {
            self.alert_in_the_clear(hidden);
        }
        self.alert_since(alert_at).or(hidden)
    }

    fn describe(&mut self, error: &Error) -> HandshakeFailure {
        let scope = self.scope.as_deref_mut();
        let problem = scope.and_then(|scope| scope.certificate_problem.take());
        let failure = HandshakeFailure::from_rustls(error, problem);
        let scope = self.scope.as_deref();
        match &self.client {
            None => failure.about_client(scope.and_then(|scope| scope.client.as_deref())),
            Some(side) => {
                if let (Some(sessions), Some(scope)) = (&side.sessions, scope) {
                    sessions.failed(scope);
                }
                failure
            }
        }
    }

    fn fetch_alert(&mut self) {
        let scope = self.scope.take().unwrap_or_else(CallScope::new);
        let (scope, ()) = enter(scope, || self.driver.fetch_alert());
        self.scope = Some(scope);
    }

    /// rustls has no alert for what it can't parse. As long as nothing has been sent, nothing can
    /// have been encrypted, and the alert can be written here (RFC 8446 §6.2).
    pub(super) fn alert_in_the_clear(&mut self, description: Option<u8>) {
        let nothing_sent = self.sent_before == 0 && self.driver.output.is_empty();
        if let Some(description) = description.filter(|_| nothing_sent) {
            const FATAL: u8 = 2;
            self.driver
                .output
                .extend_from_slice(&[21, 3, 3, 0, 2, FATAL, description]);
        }
    }

    /// The alert in the output from `start` on, if it can be read there.
    fn alert_since(&self, start: usize) -> Option<u8> {
        match self.driver.output.get(start..)? {
            &[21, _, _, 0, 2, _level, description] => Some(description),
            _ => None,
        }
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
