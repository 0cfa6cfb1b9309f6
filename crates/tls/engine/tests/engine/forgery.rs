//! One of our handshakes with a stock peer that will misbehave.

use std::sync::Arc;

use dormouse_engine::{Handshake, HandshakeFailure, Progress, Protocols};
use dormouse_testkit::{Authority, now};
use rustls::crypto::CryptoProvider;
use rustls::crypto::cipher::{
    AeadKey, Iv, KeyBlockShape, MessageDecrypter, MessageEncrypter, OutboundChunks,
    OutboundOpaqueMessage, OutboundPlainMessage, Tls12AeadAlgorithm, Tls13AeadAlgorithm,
    UnsupportedOperationError,
};
use rustls::{
    CipherSuiteCommon, Connection, ConnectionTrafficSecrets, ContentType, Error, ServerConnection,
    SupportedCipherSuite, Tls12CipherSuite, Tls13CipherSuite,
};

use crate::ours::{self, client_with_hello, server_handshake};
use crate::stock::{NAME, client, client_config, outgoing, provider, server_config};

pub(crate) const CHANGE_CIPHER_SPEC: u8 = 20;
pub(crate) const ALERT: u8 = 21;
pub(crate) const HANDSHAKE: u8 = 22;
pub(crate) const DATA: u8 = 23;
pub(crate) const CLOSE_NOTIFY: u8 = 0;

/// Makes the type and content of a replacement record from a Finished message.
pub(crate) type Forge = fn(&[u8]) -> (u8, Vec<u8>);

pub(crate) fn record(typ: u8, content: &[u8]) -> Vec<u8> {
    let len = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&[typ, 3, 3][..], &len, content].concat()
}

/// One of our handshakes halfway through. The stock peer has received all our output, and its reply is in
/// `next`. In TLS 1.3 both have the handshake keys.
pub(crate) struct Scene {
    ours: Handshake,
    pub(crate) peer: Connection,
    /// The peer's records.
    next: Vec<Vec<u8>>,
}

impl Scene {
    /// Returns scenes with our server and our client, in both versions.
    pub(crate) fn all() -> Vec<Scene> {
        let both = [Protocols::TLS13, Protocols::TLS12];
        both.into_iter().flat_map(scenes_of).collect()
    }

    /// Returns both scenes in one version, with a peer that forges its Finished.
    pub(crate) fn forged(protocols: Protocols, forge: Forge) -> [Scene; 2] {
        let provider = Arc::new(forging(forge));
        [
            Scene::of_server(protocols, Arc::clone(&provider)),
            Scene::of_client(protocols, provider),
        ]
    }

    fn of_server(protocols: Protocols, provider: Arc<CryptoProvider>) -> Scene {
        let mut ours = server_handshake(&ours::server());
        let mut peer = client(&Arc::new(client_config(protocols, provider)));
        ours.handle_input(now(), &outgoing(&mut peer)).unwrap();
        let mut scene = Scene {
            ours,
            peer,
            next: Vec::new(),
        };
        scene.pass_to_peer().unwrap();
        scene
    }

    fn of_client(protocols: Protocols, provider: Arc<CryptoProvider>) -> Scene {
        let leaf = Authority::shared().ecdsa(&[NAME]);
        let config = Arc::new(server_config(&leaf, protocols, provider));
        let ours = client_with_hello(&ours::client());
        let mut scene = Scene {
            ours,
            peer: ServerConnection::new(config).unwrap().into(),
            next: Vec::new(),
        };
        scene.pass_to_peer().unwrap();
        // The ServerHello and the ChangeCipherSpec after it.
        scene.take(1);
        if protocols == Protocols::TLS12 {
            let rest = scene.next.len();
            scene.take(rest);
        }
        scene.pass_to_peer().unwrap();
        scene
    }

    /// Passes our output to the peer and fetches its reply.
    fn pass_to_peer(&mut self) -> Result<(), Error> {
        let output = self.ours.output().to_vec();
        self.ours.output_sent(output.len());
        let mut bytes = &output[..];
        while !bytes.is_empty() {
            self.peer.read_tls(&mut bytes).unwrap();
            self.peer.process_new_packets()?;
        }
        self.next.extend(records(&outgoing(&mut self.peer)));
        Ok(())
    }

    /// Handles the next records of the peer.
    fn take(&mut self, count: usize) {
        for record in self.next.drain(..count) {
            self.ours.handle_input(now(), &record).unwrap();
        }
    }

    /// TLS 1.2: handles the peer's records up to its ChangeCipherSpec.
    pub(crate) fn change_cipher(&mut self) {
        let is_change = |record: &Vec<u8>| record[0] == CHANGE_CIPHER_SPEC;
        let at = self.next.iter().position(is_change).unwrap();
        self.take(at + 1);
    }

    pub(crate) fn output(&self) -> &[u8] {
        self.ours.output()
    }

    #[track_caller]
    pub(crate) fn assert_accepted(&mut self, bytes: &[u8]) {
        let progress = self.ours.handle_input(now(), bytes).unwrap();
        assert_eq!(progress, Progress::Handshaking);
    }

    /// Asserts that the handshake completes with the peer's own records.
    #[track_caller]
    pub(crate) fn assert_established(&mut self) {
        let mut progress = Progress::Handshaking;
        for record in std::mem::take(&mut self.next) {
            progress = self.ours.handle_input(now(), &record).unwrap();
        }
        assert_eq!(progress, Progress::Established);
        self.pass_to_peer().unwrap();
        assert!(!self.peer.is_handshaking());
    }

    pub(crate) fn failure(&mut self, bytes: &[u8]) -> HandshakeFailure {
        self.ours.handle_input(now(), bytes).unwrap_err()
    }

    /// Returns the failure that the peer's next records cause.
    pub(crate) fn next_failure(&mut self) -> HandshakeFailure {
        let bytes = std::mem::take(&mut self.next).concat();
        self.failure(&bytes)
    }

    /// Asserts a refusal whose alert the peer understands: protected if there are keys, otherwise unprotected.
    #[track_caller]
    pub(crate) fn assert_refused(&mut self, bytes: &[u8], alert: u8) {
        let failure = self.failure(bytes);
        self.assert_alert(&failure, alert);
    }

    #[track_caller]
    pub(crate) fn assert_next_refused(&mut self, alert: u8) {
        let failure = self.next_failure();
        self.assert_alert(&failure, alert);
    }

    #[track_caller]
    fn assert_alert(&mut self, failure: &HandshakeFailure, alert: u8) {
        assert_eq!(failure.alert_sent, Some(alert), "{failure}");
        assert_eq!(self.alert_at_peer(), Some(alert), "{failure}");
    }

    /// Returns the alert that the peer receives.
    pub(crate) fn alert_at_peer(&mut self) -> Option<u8> {
        match self.pass_to_peer() {
            Err(Error::AlertReceived(alert)) => Some(alert.into()),
            received => {
                eprintln!("instead of an alert: {received:?}");
                None
            }
        }
    }

    /// Whether a close_notify reaches the peer. In the middle of a handshake, stock rustls treats it as an
    /// error in TLS 1.3 and as a warning in TLS 1.2.
    pub(crate) fn peer_receives_close(&mut self) -> bool {
        if self.ours.output().is_empty() {
            return false;
        }
        match self.pass_to_peer() {
            Err(Error::AlertReceived(alert)) => u8::from(alert) == CLOSE_NOTIFY,
            Err(_) => false,
            Ok(()) => true,
        }
    }
}

/// Returns scenes with our server and our client.
pub(crate) fn scenes_of(protocols: Protocols) -> [Scene; 2] {
    [
        Scene::of_server(protocols, provider(None)),
        Scene::of_client(protocols, provider(None)),
    ]
}

fn records(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    while let [_, _, _, high, low, ..] = *bytes {
        let len = 5 + usize::from(u16::from_be_bytes([high, low]));
        let (record, rest) = bytes.split_at(len);
        records.push(record.to_vec());
        bytes = rest;
    }
    records
}

/// Returns a stock provider that forges Finished records.
fn forging(forge: Forge) -> CryptoProvider {
    let mut provider = CryptoProvider::clone(&provider(None));
    for suite in &mut provider.cipher_suites {
        *suite = match *suite {
            SupportedCipherSuite::Tls13(of) => {
                SupportedCipherSuite::Tls13(Box::leak(Box::new(Tls13CipherSuite {
                    common: common(&of.common),
                    hkdf_provider: of.hkdf_provider,
                    aead_alg: Box::leak(Box::new(Forging13(of.aead_alg, forge))),
                    quic: None,
                })))
            }
            SupportedCipherSuite::Tls12(of) => {
                SupportedCipherSuite::Tls12(Box::leak(Box::new(Tls12CipherSuite {
                    common: common(&of.common),
                    prf_provider: of.prf_provider,
                    kx: of.kx,
                    sign: of.sign,
                    aead_alg: Box::leak(Box::new(Forging12(of.aead_alg, forge))),
                })))
            }
        };
    }
    provider
}

fn common(of: &CipherSuiteCommon) -> CipherSuiteCommon {
    CipherSuiteCommon {
        suite: of.suite,
        hash_provider: of.hash_provider,
        confidentiality_limit: of.confidentiality_limit,
    }
}

struct ForgingEncrypter(Box<dyn MessageEncrypter>, Forge);

impl MessageEncrypter for ForgingEncrypter {
    fn encrypt(
        &mut self,
        message: OutboundPlainMessage<'_>,
        sequence: u64,
    ) -> Result<OutboundOpaqueMessage, Error> {
        const ENCRYPTED_EXTENSIONS: u8 = 8;
        const FINISHED: u8 = 20;
        let content = message.payload.to_vec();
        // A TLS 1.3 server sends Finished at the end of its flight.
        let at = content.len().saturating_sub(4 + 48);
        let starts = (at..content.len()).chain([0]);
        let is_finished = |start: &usize| {
            let end = content.get(*start..).unwrap_or_default();
            matches!(end, [FINISHED, 0, 0, len, rest @ ..] if usize::from(*len) == rest.len())
        };
        let found = starts.into_iter().find(is_finished);
        let (ContentType::Handshake, Some(start)) = (message.typ, found) else {
            return self.0.encrypt(message, sequence);
        };
        let (typ, made) = (self.1)(&content[start..]);
        // Messages before Finished in the flight stay.
        let replaces_all = matches!(made[..], [] | [ENCRYPTED_EXTENSIONS, ..]);
        let is_flight = typ == HANDSHAKE && !replaces_all;
        let head = &content[..if is_flight { start } else { 0 }];
        let forged = [head, &made].concat();
        let message = OutboundPlainMessage {
            typ: ContentType::from(typ),
            version: message.version,
            payload: OutboundChunks::Single(&forged),
        };
        self.0.encrypt(message, sequence)
    }

    fn encrypted_payload_len(&self, payload_len: usize) -> usize {
        self.0.encrypted_payload_len(payload_len)
    }
}

struct Forging13(&'static dyn Tls13AeadAlgorithm, Forge);

impl Tls13AeadAlgorithm for Forging13 {
    fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
        Box::new(ForgingEncrypter(self.0.encrypter(key, iv), self.1))
    }

    fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
        self.0.decrypter(key, iv)
    }

    fn key_len(&self) -> usize {
        self.0.key_len()
    }

    fn extract_keys(
        &self,
        key: AeadKey,
        iv: Iv,
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        self.0.extract_keys(key, iv)
    }
}

struct Forging12(&'static dyn Tls12AeadAlgorithm, Forge);

impl Tls12AeadAlgorithm for Forging12 {
    fn encrypter(&self, key: AeadKey, iv: &[u8], extra: &[u8]) -> Box<dyn MessageEncrypter> {
        Box::new(ForgingEncrypter(self.0.encrypter(key, iv, extra), self.1))
    }

    fn decrypter(&self, key: AeadKey, iv: &[u8]) -> Box<dyn MessageDecrypter> {
        self.0.decrypter(key, iv)
    }

    fn key_block_shape(&self) -> KeyBlockShape {
        self.0.key_block_shape()
    }

    fn extract_keys(
        &self,
        key: AeadKey,
        iv: &[u8],
        explicit: &[u8],
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        self.0.extract_keys(key, iv, explicit)
    }
}
