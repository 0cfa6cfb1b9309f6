//! The secrets that rustls reports: those of the state are captured, and a log of the caller may get all, so that tools
//! like Wireshark can decrypt captured traffic.

use std::fmt;
use std::sync::Arc;

use rustls::KeyLog;

use super::exporter::{EXPORTER_SECRET, Exporting};
use crate::call_scope::{Facts, Subject, if_in_scope, in_scope, is_loopback};
use crate::secrets::Secret;

/// Receives the secrets of every connection of a context.
///
/// Anyone with the secrets can read and forge the traffic. A program must set this hook only at its operator's
/// request, never by default.
pub trait SecretLog: fmt::Debug + Send + Sync {
    /// Receives one secret: its label in the NSS key log format (`CLIENT_TRAFFIC_SECRET_0`), the ClientHello's
    /// random bytes, which identify the connection, and the secret.
    fn log_secret(&self, label: &str, client_random: &[u8], secret: &[u8]);
}

/// Returns a line of a key log file without its line feed: label, random bytes and secret.
pub fn secret_log_line(label: &str, client_random: &[u8], secret: &[u8]) -> String {
    let mut line =
        String::with_capacity(label.len() + 2 + 2 * (client_random.len() + secret.len()));
    line.push_str(label);
    for bytes in [client_random, secret] {
        line.push(' ');
        for byte in bytes {
            for digit in [byte >> 4, byte & 15] {
                line.extend(char::from_digit(digit.into(), 16));
            }
        }
    }
    line
}

/// The traffic secrets of the current connection.
pub(crate) struct CapturedSecrets {
    /// `client_application_traffic_secret_0`.
    pub(crate) client: Secret,
    /// `server_application_traffic_secret_0`.
    pub(crate) server: Secret,
}

impl Facts for CapturedSecrets {
    const SUBJECT: Subject = Subject::TrafficSecrets;
}

impl Default for CapturedSecrets {
    fn default() -> CapturedSecrets {
        CapturedSecrets {
            client: Secret::empty(),
            server: Secret::empty(),
        }
    }
}

/// Captures the application traffic secrets and the exporter's secrets of the current connection. Passes
/// secrets only to the log that the caller configured.
#[derive(Debug, Default)]
pub(crate) struct SecretCatcher {
    pub(crate) log: Option<Arc<dyn SecretLog>>,
}

pub(crate) const CLIENT_TRAFFIC_SECRET: &str = "CLIENT_TRAFFIC_SECRET_0";
pub(crate) const SERVER_TRAFFIC_SECRET: &str = "SERVER_TRAFFIC_SECRET_0";

impl KeyLog for SecretCatcher {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        match label {
            CLIENT_TRAFFIC_SECRET => {
                in_scope(|captured: &mut CapturedSecrets| captured.client.write(secret));
            }
            SERVER_TRAFFIC_SECRET => {
                in_scope(|captured: &mut CapturedSecrets| captured.server.write(secret));
            }
            _ => {}
        }
        if_in_scope(|Exporting(source)| {
            if let Some(source) = source {
                source.note_secret(label, client_random, secret);
            }
        });
        // Outside the scope, because the caller's log may open a scope of its own.
        if let (Some(log), Some(false)) = (&self.log, is_loopback()) {
            log.log_secret(label, client_random, secret);
        }
    }

    fn will_log(&self, label: &str) -> bool {
        let wanted_by_exporter = || {
            label == EXPORTER_SECRET
                && if_in_scope(|Exporting(source)| source.is_some()) == Some(true)
        };
        matches!(label, CLIENT_TRAFFIC_SECRET | SERVER_TRAFFIC_SECRET)
            || self.log.is_some()
            || wanted_by_exporter()
    }
}
