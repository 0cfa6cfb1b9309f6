//! Expanded keys: the form that a secret has for the duration of one event.

use aws_lc_rs::aead::{LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroize;

use crate::derive::{IV_LEN, SECRET_MAX, traffic_key};
use crate::state::{Direction, State};
use crate::suite::{Suite, Version};

/// An expanded read key. Expanding it from a [`State`] takes about a microsecond; keep it only for one event or
/// in a small cache.
///
/// A key remembers the secret it was derived from. [`open`](crate::open()) refuses it for another state, and
/// for the same state after its secret was replaced ([`crate::Reason::WrongKey`]).
pub struct OpenKey(pub(crate) Expanded);

/// An expanded write key, made from a [`State`]; keep it only for one event or in a small cache.
///
/// A key remembers the secret it was derived from. Sealing refuses it for another state, and for the same state
/// after its secret was replaced ([`crate::Misuse::WrongKey`]): otherwise an old key would meet sequence
/// numbers that restart at zero, and a nonce would be used twice.
pub struct SealKey(pub(crate) Expanded);

impl OpenKey {
    /// Expands the read key of `state`. An empty state yields a key that opens nothing.
    pub fn new(state: &State) -> Self {
        let mut key = Self(Expanded::EMPTY);
        key.0.expand(state, Direction::Read);
        key
    }

    /// Returns a key that opens nothing, until [`OpenKey::renew`] expands one in its place.
    pub fn empty() -> Self {
        Self(Expanded::EMPTY)
    }

    /// Whether this key was expanded from the current read secret of `state`.
    pub fn is_current(&self, state: &State) -> bool {
        self.0.belongs_to(state, Direction::Read).is_some()
    }

    /// Whether the expanded IV is `iv`. Key and IV have one source, so this tells secrets apart.
    pub fn has_iv(&self, iv: &[u8]) -> bool {
        self.0.has_iv(iv)
    }

    /// Expands the read key of `state` in place, unless this key is current.
    pub fn renew(&mut self, state: &State) {
        if !self.is_current(state) {
            self.0.expand(state, Direction::Read);
        }
    }
}

impl SealKey {
    /// Expands the write key of `state`. An empty state yields a key that seals nothing.
    pub fn new(state: &State) -> Self {
        let mut key = Self(Expanded::EMPTY);
        key.0.expand(state, Direction::Write);
        key
    }

    /// Returns a key that seals nothing, until [`SealKey::renew`] expands one in its place.
    pub fn empty() -> Self {
        Self(Expanded::EMPTY)
    }

    /// Whether this key was expanded from the current write secret of `state`.
    pub fn is_current(&self, state: &State) -> bool {
        self.0.belongs_to(state, Direction::Write).is_some()
    }

    /// Whether the expanded IV is `iv`. Key and IV have one source, so this tells secrets apart.
    pub fn has_iv(&self, iv: &[u8]) -> bool {
        self.0.has_iv(iv)
    }

    /// Expands the write key of `state` in place, unless this key is current.
    pub fn renew(&mut self, state: &State) {
        if !self.is_current(state) {
            self.0.expand(state, Direction::Write);
        }
    }
}

/// The expanded keys of both directions. They are boxed, so that moving them copies no secret.
#[derive(Debug)]
pub struct BothKeys {
    /// Opens the peer's records.
    pub open: Box<OpenKey>,
    /// Seals our records.
    pub seal: Box<SealKey>,
}

impl BothKeys {
    /// Expands both keys of `state`, in place.
    pub fn new(state: &State) -> Self {
        let mut keys = Self {
            open: Box::new(OpenKey::empty()),
            seal: Box::new(SealKey::empty()),
        };
        keys.open.renew(state);
        keys.seal.renew(state);
        keys
    }
}

impl core::fmt::Debug for OpenKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("OpenKey(..)")
    }
}

impl core::fmt::Debug for SealKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("SealKey(..)")
    }
}

pub(crate) struct Expanded {
    /// `None` if there was no secret to expand.
    aead: Option<LessSafeKey>,
    iv: [u8; IV_LEN],
    /// First bytes of the secret that this key was derived from; see [`Expanded::belongs_to`].
    mark: [u8; MARK_LEN],
}

const MARK_LEN: usize = 8;

impl Expanded {
    const EMPTY: Self = Self {
        aead: None,
        iv: [0; IV_LEN],
        mark: [0; MARK_LEN],
    };

    /// Expands the state's current secret in place; an intermediate copy would leave the IV on the stack.
    #[inline(never)]
    pub(crate) fn expand(&mut self, state: &State, direction: Direction) {
        self.aead = None;
        let Some((version, suite)) = state.kind() else {
            return;
        };
        let secret = state.secret(direction);
        match version {
            Version::Tls13 => self.expand_secret(suite, &secret[..suite.secret_len()]),
            Version::Tls12 => {
                let (key, iv) = State::split_key_iv(suite, secret);
                self.iv.copy_from_slice(iv);
                self.aead = aead(suite, key);
            }
        }
        self.mark.copy_from_slice(&secret[..MARK_LEN]);
    }

    fn expand_secret(&mut self, suite: Suite, secret: &[u8]) {
        let mut key = [0; SECRET_MAX];
        let mut iv = [0; SECRET_MAX];
        if traffic_key(suite, secret, &mut key, &mut iv) {
            self.iv.copy_from_slice(&iv[..IV_LEN]);
            self.aead = aead(suite, &key[..suite.key_len()]);
        }
        key.zeroize();
        iv.zeroize();
    }

    /// Returns the AEAD if it was derived from the secret that `state` holds now.
    pub(crate) fn belongs_to(&self, state: &State, direction: Direction) -> Option<&LessSafeKey> {
        let same = self.mark == state.secret(direction)[..MARK_LEN];
        self.aead.as_ref().filter(|_| same)
    }

    fn has_iv(&self, iv: &[u8]) -> bool {
        self.aead.is_some()
            && aws_lc_rs::constant_time::verify_slices_are_equal(&self.iv, iv).is_ok()
    }

    /// "The padded sequence number is XORed with either the static client_write_iv or server_write_iv"
    /// (RFC 8446 §5.3; RFC 7905 §2 for ChaCha20 in TLS 1.2; for AES-GCM in TLS 1.2 any unique nonce is allowed,
    /// RFC 5288 §3, and this one is).
    pub(crate) fn nonce(&self, sequence: u64) -> [u8; IV_LEN] {
        let mut nonce = self.iv;
        for (byte, seq) in nonce[IV_LEN - 8..].iter_mut().zip(sequence.to_be_bytes()) {
            *byte ^= seq;
        }
        nonce
    }

    /// TLS 1.2 AES-GCM, receiving: four bytes of salt, then the explicit nonce from the record (RFC 5288 §3).
    pub(crate) fn nonce_with_explicit(&self, explicit: &[u8; 8]) -> [u8; IV_LEN] {
        let mut nonce = self.iv;
        nonce[IV_LEN - 8..].copy_from_slice(explicit);
        nonce
    }
}

impl Drop for Expanded {
    fn drop(&mut self) {
        // The library wipes the AEAD context when it is freed.
        self.iv.zeroize();
        self.mark.zeroize();
    }
}

pub(crate) fn unique(nonce: [u8; IV_LEN]) -> Nonce {
    Nonce::assume_unique_for_key(nonce)
}

fn aead(suite: Suite, key: &[u8]) -> Option<LessSafeKey> {
    UnboundKey::new(suite.aead(), key)
        .ok()
        .map(LessSafeKey::new)
}

#[cfg(test)]
mod tests;
