//! Messages between main and the ticket store's process.

use super::secret::Secret;
use base64::prelude::*;
use dormouse_config::StoreAddress;
use dormouse_handover::Pem;
use dormouse_reactor::socket::MESSAGE_MAX;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::time::Duration;
use zeroize::Zeroizing;

/// Settings of the ticket store.
pub struct StoreSettings {
    /// Its address.
    pub address: StoreAddress,
    /// The fleet's secret, which seals the keys.
    pub secret: Secret,
    /// PEM of the authorities for the store's certificate. `None`: the system's roots.
    pub ca: Option<String>,
    /// The certificate that a store with TLS may request, and its key.
    pub identity: Option<Pem>,
    /// Time between rotations.
    pub rotation: Duration,
}

/// Arguments of the process. They hold nothing secret.
#[derive(Serialize, Deserialize)]
pub(super) struct StoreArguments {
    /// The process's end of the channel.
    pub(super) channel: i32,
    /// [`TlsFile`](crate::tls_file::TlsFile) for a store with TLS.
    pub(super) tls: Option<i32>,
}

/// The first message through the channel, and the only one from main.
#[derive(Serialize, Deserialize)]
pub(super) struct FirstMessage {
    pub(super) address: StoreAddress,
    pub(super) secret: SecretBytes,
    /// Time between rotations.
    pub(super) rotation: Duration,
    /// Main's keys, to be written to a store that has none.
    pub(super) keys: SecretBytes,
}

/// The process's report after each poll of the store.
#[derive(Serialize, Deserialize)]
pub(super) struct StoreReport {
    pub(super) state: StoreState,
    /// New keys, if there are any.
    pub(super) keys: Option<SecretBytes>,
}

/// Secret bytes of a message, in base64: the parser copies a string without escapes once. From a list of numbers it
/// would make a vector that grows and leaves copies behind.
pub(super) struct SecretBytes(pub(super) Zeroizing<Vec<u8>>);

impl Serialize for SecretBytes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&Zeroizing::new(BASE64_STANDARD.encode(&*self.0)))
    }
}

impl<'de> Deserialize<'de> for SecretBytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<SecretBytes, D::Error> {
        let text = Zeroizing::new(String::deserialize(from)?);
        let room = base64::decoded_len_estimate(text.len());
        let mut bytes = Zeroizing::new(Vec::with_capacity(room));
        let decoded = BASE64_STANDARD.decode_vec(text.as_bytes(), &mut bytes);
        decoded.map_err(D::Error::custom)?;
        Ok(SecretBytes(bytes))
    }
}

/// Serialises a message for the channel.
pub(super) fn message(content: &impl Serialize) -> Result<Zeroizing<Vec<u8>>, String> {
    // Allocate everything at once: a growing buffer leaves copies behind that are never wiped.
    let mut bytes = Zeroizing::new(Vec::with_capacity(MESSAGE_MAX));
    serde_json::to_writer(&mut *bytes, content).map_err(|e| e.to_string())?;
    Ok(bytes)
}

/// State of the store, as this machine sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum StoreState {
    /// The store holds the fleet's keys.
    Reachable = 1,
    /// The store does not answer, or not in time.
    Unreachable = 2,
    /// The store answers with an error (wrong password, out of memory, read-only), or another client interferes.
    Refuses = 3,
    /// The store holds a value that is not encrypted with our secret.
    Unreadable = 4,
}

impl StoreState {
    /// The word for this state in `status`.
    pub(crate) fn word(code: u64) -> &'static str {
        match code {
            1 => "reachable",
            2 => "unreachable",
            3 => "refuses",
            4 => "unreadable",
            _ => "none",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists of numbers and escapes would leave copies behind where they are parsed.
    #[test]
    fn secrets_are_plain_strings_in_messages() {
        let secret = |n: u8| SecretBytes(Zeroizing::new((0..=n).collect()));
        let first = FirstMessage {
            address: StoreAddress {
                host: "store".to_owned(),
                port: 6379,
                tls: true,
                database: 0,
                user: None,
                password: None,
            },
            secret: secret(31),
            rotation: Duration::from_secs(60),
            keys: secret(255),
        };
        let report = StoreReport {
            state: StoreState::Reachable,
            keys: Some(secret(255)),
        };
        let [first, report] = [message(&first), message(&report)].map(|made| made.expect("JSON"));
        for bytes in [&first, &report] {
            let text = std::str::from_utf8(bytes).expect("UTF-8");
            assert!(!text.contains(['[', '\\']), "{text}");
        }
        let first: FirstMessage = serde_json::from_slice(&first).expect("a message");
        assert_eq!(*first.secret.0, *secret(31).0);
        assert_eq!(*first.keys.0, *secret(255).0);
        let report: StoreReport = serde_json::from_slice(&report).expect("a report");
        assert_eq!(*report.keys.expect("keys").0, *secret(255).0);
        let broken: Result<SecretBytes, _> = serde_json::from_str("\"A\"");
        assert!(broken.is_err());
    }
}
