//! The provider's cipher suites, wrapped so that they follow the call scope.
//!
//! - *Sessions.* Session secrets are captured or replaced (`restore`). TLS 1.3: a ticket's key, which
//!   HKDF derives (RFC 8446 §4.6.1). TLS 1.2: the master secret, from which the key block is expanded (RFC 5246
//!   §6.3). Without an extended master secret (RFC 7627) nothing is captured, because a restored session would
//!   count as one that has it.
//! - *Tickets.* The keys of tickets are derived with our own nonces (`sessions::ticket_messages`).
//! - *Transcripts.* Messages are hashed as they were sent ([`hidden_extensions`](super::hidden_extensions)).
//! - *Records.* Sealing and opening pass through [`record_protection`](super::record_protection).

use std::sync::LazyLock;

use rustls::crypto::ActiveKeyExchange;
use rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES;
use rustls::crypto::hmac::Tag;
use rustls::crypto::tls12::Prf;
use rustls::crypto::tls13::{Hkdf, HkdfExpander, OkmBlock, OutputLengthError};
use rustls::{
    CipherSuite, CipherSuiteCommon, Error, SupportedCipherSuite, Tls12CipherSuite, Tls13CipherSuite,
};

use super::hidden_extensions::HashAsSent;
use super::record_protection::{ScopedTls12Aead, ScopedTls13Aead};
use crate::call_scope::if_in_scope;
use crate::secrets::{Derivation, SessionSecrets};
use crate::sessions::refusal::ServerResumption;
use crate::sessions::ticket_messages::TicketMessages;

/// RFC 5246 §8.1.
pub(crate) const MASTER_SECRET_LEN: usize = 48;

/// Returns the wrapped suite.
pub(crate) fn scoped(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    static SCOPED: LazyLock<Vec<Tls13CipherSuite>> = LazyLock::new(|| {
        let all = ALL_CIPHER_SUITES
            .iter()
            .filter_map(SupportedCipherSuite::tls13);
        all.map(scoped_tls13).collect()
    });
    let of_tls13 = SCOPED
        .iter()
        .find(|scoped| scoped.common.suite == suite.suite())
        .map(SupportedCipherSuite::Tls13);
    let of_tls12 = || find_tls12(suite.suite()).map(SupportedCipherSuite::Tls12);
    of_tls13.or_else(of_tls12).unwrap_or(suite)
}

fn scoped_tls13(suite: &'static Tls13CipherSuite) -> Tls13CipherSuite {
    // rustls requires suites with a static lifetime: there are three, made once per process.
    let hkdf_provider = Box::leak(Box::new(ScopedHkdf(suite.hkdf_provider)));
    Tls13CipherSuite {
        common: CipherSuiteCommon {
            suite: suite.common.suite,
            hash_provider: Box::leak(Box::new(HashAsSent(suite.common.hash_provider))),
            confidentiality_limit: suite.common.confidentiality_limit,
        },
        hkdf_provider,
        aead_alg: Box::leak(Box::new(ScopedTls13Aead(suite.aead_alg))),
        quic: suite.quic,
    }
}

/// The provider's HKDF. It does all the work; only a ticket's key may be replaced.
struct ScopedHkdf(&'static dyn Hkdf);

impl Hkdf for ScopedHkdf {
    fn extract_from_zero_ikm(&self, salt: Option<&[u8]>) -> Box<dyn HkdfExpander> {
        self.0.extract_from_zero_ikm(salt)
    }

    fn extract_from_secret(&self, salt: Option<&[u8]>, secret: &[u8]) -> Box<dyn HkdfExpander> {
        self.0.extract_from_secret(salt, secret)
    }

    fn extract_from_kx_shared_secret(
        &self,
        salt: Option<&[u8]>,
        kx: Box<dyn ActiveKeyExchange>,
        peer_pub_key: &[u8],
    ) -> Result<Box<dyn HkdfExpander>, Error> {
        self.0.extract_from_kx_shared_secret(salt, kx, peer_pub_key)
    }

    fn expander_for_okm(&self, okm: &OkmBlock) -> Box<dyn HkdfExpander> {
        let expander = self.0.expander_for_okm(okm);
        let issues = if_in_scope(|resumption: &mut ServerResumption| resumption.tickets.is_some());
        let handles = || {
            if_in_scope(|secrets: &mut SessionSecrets| {
                !matches!(secrets.psk, Derivation::Unchanged)
            })
        };
        match issues == Some(true) || handles() == Some(true) {
            true => Box::new(ScopedExpander(expander)),
            false => expander,
        }
    }

    fn hmac_sign(&self, key: &OkmBlock, message: &[u8]) -> Tag {
        self.0.hmac_sign(key, message)
    }

    fn fips(&self) -> bool {
        self.0.fips()
    }
}

struct ScopedExpander(Box<dyn HkdfExpander>);

impl ScopedExpander {
    /// Returns the key of a ticket that this connection issues. `info` is the encoding of HkdfLabel (RFC 8446
    /// §7.1), in the pieces that rustls passes.
    fn ticket_key(&self, info: &[&[u8]]) -> Option<OkmBlock> {
        let &[key_len, label_len, prefix, label @ b"resumption", _, _] = info else {
            return None;
        };
        let nonce = if_in_scope(|resumption: &mut ServerResumption| {
            resumption.tickets.as_mut().map(TicketMessages::next_nonce)
        });
        let nonce = [nonce.flatten()?];
        let info = [key_len, label_len, prefix, label, &[1], &nonce];
        Some(self.0.expand_block(&info))
    }
}

impl HkdfExpander for ScopedExpander {
    fn expand_slice(&self, info: &[&[u8]], output: &mut [u8]) -> Result<(), OutputLengthError> {
        self.0.expand_slice(info, output)
    }

    fn expand_block(&self, info: &[&[u8]]) -> OkmBlock {
        if let Some(key) = self.ticket_key(info) {
            return key;
        }
        // A scope that captures or replaces a ticket's key belongs to a call that handles a ticket and derives
        // nothing else.
        let derived = self.0.expand_block(info);
        let replaced = if_in_scope(|secrets: &mut SessionSecrets| match &mut secrets.psk {
            Derivation::Unchanged => None,
            Derivation::Captured(copy) => {
                copy.write(derived.as_ref());
                None
            }
            Derivation::Replaced(psk) => Some(OkmBlock::new(psk.bytes())),
        });
        replaced.flatten().unwrap_or(derived)
    }

    fn hash_len(&self) -> usize {
        self.0.hash_len()
    }
}

fn find_tls12(suite: CipherSuite) -> Option<&'static Tls12CipherSuite> {
    static SCOPED: LazyLock<Vec<Tls12CipherSuite>> = LazyLock::new(|| {
        let all = ALL_CIPHER_SUITES.iter().filter_map(tls12);
        all.map(scoped_tls12).collect()
    });
    SCOPED.iter().find(|scoped| scoped.common.suite == suite)
}

/// Returns the suite if it belongs to TLS 1.2.
pub(crate) fn tls12(suite: &SupportedCipherSuite) -> Option<&'static Tls12CipherSuite> {
    match suite {
        SupportedCipherSuite::Tls12(suite) => Some(suite),
        SupportedCipherSuite::Tls13(_) => None,
    }
}

fn scoped_tls12(suite: &'static Tls12CipherSuite) -> Tls12CipherSuite {
    // rustls requires suites with a static lifetime: there are six, made once per process.
    let prf_provider = Box::leak(Box::new(ScopedPrf(suite.prf_provider)));
    Tls12CipherSuite {
        common: CipherSuiteCommon {
            suite: suite.common.suite,
            hash_provider: Box::leak(Box::new(HashAsSent(suite.common.hash_provider))),
            confidentiality_limit: suite.common.confidentiality_limit,
        },
        prf_provider,
        kx: suite.kx,
        sign: suite.sign,
        aead_alg: Box::leak(Box::new(ScopedTls12Aead(suite.aead_alg))),
    }
}

/// The provider's PRF. It does all the work; only the master secret may be captured or replaced.
struct ScopedPrf(&'static dyn Prf);

impl Prf for ScopedPrf {
    fn for_key_exchange(
        &self,
        output: &mut [u8; MASTER_SECRET_LEN],
        kx: Box<dyn ActiveKeyExchange>,
        peer_pub_key: &[u8],
        label: &[u8],
        seed: &[u8],
    ) -> Result<(), Error> {
        let replaced = if_in_scope(|secrets: &mut SessionSecrets| match &secrets.master {
            Derivation::Replaced(master) => {
                let whole = master.bytes().len() == output.len();
                whole.then(|| output.copy_from_slice(master.bytes()))
            }
            Derivation::Captured(_) if label != b"extended master secret" => {
                secrets.master = Derivation::Unchanged;
                None
            }
            Derivation::Unchanged | Derivation::Captured(_) => None,
        });
        match replaced.flatten() {
            Some(()) => Ok(()),
            None => self
                .0
                .for_key_exchange(output, kx, peer_pub_key, label, seed),
        }
    }

    fn for_secret(&self, output: &mut [u8], secret: &[u8], label: &[u8], seed: &[u8]) {
        if label == b"key expansion" {
            if_in_scope(|secrets: &mut SessionSecrets| {
                if let Derivation::Captured(copy) = &mut secrets.master {
                    copy.write(secret);
                }
            });
        }
        self.0.for_secret(output, secret, label, seed);
    }

    fn fips(&self) -> bool {
        self.0.fips()
    }
}
