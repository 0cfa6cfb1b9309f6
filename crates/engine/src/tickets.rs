//! Stateless session tickets (RFC 5077, RFC 8446 §4.6.1), and the keys which seal them.
//!
//! The keys are plain data: one process makes and rotates them, others import what it
//! exported, so that workers, and machines, resume each other's sessions. There are three:
//! *current* seals, and all three open, so that processes which rotate a little apart
//! understand each other. When its time has come every process takes *next* for current by
//! itself; only whoever owns the keys makes a new *next*.
//!
//! A ticket is `name (16) | nonce (12) | AES-256-GCM(issued at (8) | session) | tag (16)`,
//! the name authenticated with it. Nonces are random: 2^32 tickets per key are safe (NIST
//! SP 800-38D §8.3), which no rotation period in use comes near.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use rustls::server::ProducesTickets;
use rustls_pki_types::UnixTime;
use zeroize::{Zeroize, Zeroizing};

use crate::settings::SettingsError;
use crate::turn::with_turn;

const NAME_LEN: usize = 16;
const SECRET_LEN: usize = 32;
const NONCE_LEN: usize = 12;
const TAG_LEN: usize = 16;
const TIME_LEN: usize = 8;
const KEY_LEN: usize = NAME_LEN + SECRET_LEN;
const FORMAT: u8 = 1;
/// RFC 8446 §4.6.1: seven days.
const LIFETIME_MAX_S: u32 = 604_800;
const PER_HANDSHAKE_MAX: usize = 16;

/// How a server issues tickets.
#[derive(Debug)]
pub struct TicketSettings {
    /// The keys, when they are shared with others; `None`: the context makes keys of its own
    /// and rotates them as often as `lifetime_s`.
    pub keys: Option<TicketKeys>,
    /// How long a ticket may be used.
    pub lifetime_s: u32,
    /// How many tickets follow a TLS 1.3 handshake. (TLS 1.2 always has one.)
    pub per_handshake: usize,
}

impl Default for TicketSettings {
    fn default() -> Self {
        TicketSettings {
            keys: None,
            lifetime_s: 12 * 60 * 60,
            per_handshake: 2,
        }
    }
}

impl TicketSettings {
    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        if !(1..=LIFETIME_MAX_S).contains(&self.lifetime_s) {
            return Err(SettingsError::BadTicketLifetime(self.lifetime_s));
        }
        if self.per_handshake > PER_HANDSHAKE_MAX {
            return Err(SettingsError::TooManyTickets(self.per_handshake));
        }
        Ok(())
    }
}

/// A key's name, which goes with every ticket, and the key.
struct TicketKey {
    name: [u8; NAME_LEN],
    secret: [u8; SECRET_LEN],
}

impl TicketKey {
    fn random() -> Result<TicketKey, SettingsError> {
        let mut key = TicketKey {
            name: [0; NAME_LEN],
            secret: [0; SECRET_LEN],
        };
        aws_lc_rs::rand::fill(&mut key.name)
            .and_then(|()| aws_lc_rs::rand::fill(&mut key.secret))
            .map_err(|_| SettingsError::Library("no random bytes".to_owned()))?;
        Ok(key)
    }

    fn zeroed() -> TicketKey {
        TicketKey {
            name: [0; NAME_LEN],
            secret: [0; SECRET_LEN],
        }
    }

    fn copy_from(&mut self, other: &TicketKey) {
        self.name = other.name;
        self.secret.copy_from_slice(&other.secret);
    }
}

impl Drop for TicketKey {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

/// Three keys for tickets and the time at which *next* becomes *current*.
pub struct TicketKeys {
    previous: TicketKey,
    current: TicketKey,
    next: TicketKey,
    rotates_at_s: u64,
    period_s: u32,
}

impl TicketKeys {
    /// The length of the exported form.
    pub const EXPORT_LEN: usize = 1 + 8 + 4 + 3 * KEY_LEN;

    /// Fresh keys which rotate every `period_s` from `now` on. A period as long as the
    /// tickets' lifetime makes every ticket usable until its end.
    pub fn generate(now: UnixTime, period_s: u32) -> Result<TicketKeys, SettingsError> {
        Ok(TicketKeys {
            previous: TicketKey::random()?,
            current: TicketKey::random()?,
            next: TicketKey::random()?,
            rotates_at_s: now.as_secs().saturating_add(u64::from(period_s)),
            period_s: period_s.max(1),
        })
    }

    /// For whoever owns the keys: makes next current and a new next, when it is time.
    /// `true`: the keys have changed and are to be exported to the others.
    pub fn rotate_if_due(&mut self, now: UnixTime) -> Result<bool, SettingsError> {
        if now.as_secs() < self.rotates_at_s {
            return Ok(false);
        }
        let fresh = TicketKey::random()?;
        self.previous.copy_from(&self.current);
        self.current.copy_from(&self.next);
        self.next.copy_from(&fresh);
        self.rotates_at_s = now.as_secs().saturating_add(u64::from(self.period_s));
        Ok(true)
    }

    /// When they rotate next, in seconds of Unix time.
    pub fn rotates_at_s(&self) -> u64 {
        self.rotates_at_s
    }

    /// The keys as bytes, for other processes. These bytes open every ticket: keep them so.
    pub fn export(&self) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(Self::EXPORT_LEN));
        bytes.push(FORMAT);
        bytes.extend_from_slice(&self.rotates_at_s.to_be_bytes());
        bytes.extend_from_slice(&self.period_s.to_be_bytes());
        for key in [&self.previous, &self.current, &self.next] {
            bytes.extend_from_slice(&key.name);
            bytes.extend_from_slice(&key.secret);
        }
        bytes
    }

    /// Keys which another process exported.
    pub fn import(bytes: &[u8]) -> Result<TicketKeys, SettingsError> {
        let mut rest = bytes;
        let [FORMAT] = take(&mut rest)? else {
            return Err(SettingsError::BadTicketKeys);
        };
        let rotates_at_s = u64::from_be_bytes(take(&mut rest)?);
        let period_s = u32::from_be_bytes(take(&mut rest)?);
        let mut keys = TicketKeys {
            previous: TicketKey::zeroed(),
            current: TicketKey::zeroed(),
            next: TicketKey::zeroed(),
            rotates_at_s,
            period_s,
        };
        for key in [&mut keys.previous, &mut keys.current, &mut keys.next] {
            key.name = take(&mut rest)?;
            let secret: Zeroizing<[u8; SECRET_LEN]> = Zeroizing::new(take(&mut rest)?);
            key.secret.copy_from_slice(secret.as_slice());
        }
        if rest.is_empty() && period_s > 0 {
            Ok(keys)
        } else {
            Err(SettingsError::BadTicketKeys)
        }
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], SettingsError> {
    let (head, tail) = rest
        .split_first_chunk()
        .ok_or(SettingsError::BadTicketKeys)?;
    *rest = tail;
    Ok(*head)
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKeys")
            .field("rotates_at_s", &self.rotates_at_s)
            .finish_non_exhaustive()
    }
}

/// The three keys, expanded.
struct Ring {
    previous: RingKey,
    current: RingKey,
    next: RingKey,
    rotates_at_s: u64,
}

struct RingKey {
    name: [u8; NAME_LEN],
    key: RandomizedNonceKey,
}

impl RingKey {
    fn new(key: &TicketKey) -> Result<RingKey, SettingsError> {
        Ok(RingKey {
            name: key.name,
            key: RandomizedNonceKey::new(&AES_256_GCM, &key.secret)
                .map_err(|_| SettingsError::BadTicketKeys)?,
        })
    }
}

impl Ring {
    fn new(keys: &TicketKeys) -> Result<Ring, SettingsError> {
        Ok(Ring {
            previous: RingKey::new(&keys.previous)?,
            current: RingKey::new(&keys.current)?,
            next: RingKey::new(&keys.next)?,
            rotates_at_s: keys.rotates_at_s,
        })
    }

    fn sealing(&self, now_s: u64) -> &RingKey {
        if now_s < self.rotates_at_s {
            &self.current
        } else {
            &self.next
        }
    }

    /// From the time of rotation on *previous* is forgotten, even if nobody rotated.
    fn opening(&self, name: &[u8; NAME_LEN], now_s: u64) -> Option<&RingKey> {
        let previous = (now_s < self.rotates_at_s).then_some(&self.previous);
        [Some(&self.current), Some(&self.next), previous]
            .into_iter()
            .flatten()
            .find(|key| key.name == *name)
    }
}

/// Seals and opens tickets for rustls.
pub(crate) struct Ticketer {
    ring: RwLock<Arc<Ring>>,
    lifetime_s: u32,
    /// The keys, if they are this ticketer's own to rotate.
    own: Option<Mutex<TicketKeys>>,
}

impl Ticketer {
    pub(crate) fn new(keys: &TicketKeys, lifetime_s: u32) -> Result<Ticketer, SettingsError> {
        Ok(Ticketer {
            ring: RwLock::new(Arc::new(Ring::new(keys)?)),
            lifetime_s,
            own: None,
        })
    }

    /// A ticketer with keys of its own. They are due at once, so the first ticket sets the
    /// time of rotation.
    pub(crate) fn with_own_keys(lifetime_s: u32) -> Result<Ticketer, SettingsError> {
        let long_ago = UnixTime::since_unix_epoch(Duration::ZERO);
        let keys = TicketKeys::generate(long_ago, lifetime_s)?;
        Ok(Ticketer {
            own: Some(Mutex::new(keys)),
            ..Ticketer::new(&TicketKeys::generate(long_ago, lifetime_s)?, lifetime_s)?
        })
    }

    pub(crate) fn replace_keys(&self, keys: &TicketKeys) -> Result<(), SettingsError> {
        let ring = Arc::new(Ring::new(keys)?);
        *self.ring.write().unwrap_or_else(PoisonError::into_inner) = ring;
        Ok(())
    }

    fn ring(&self) -> Arc<Ring> {
        Arc::clone(&self.ring.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn rotate_own_if_due(&self, now_s: u64) -> Option<()> {
        let own = self.own.as_ref()?;
        let mut keys = own.lock().unwrap_or_else(PoisonError::into_inner);
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now_s));
        if keys.rotate_if_due(now).ok()? {
            self.replace_keys(&keys).ok()?;
        }
        Some(())
    }

    fn seal(&self, session: &[u8], now_s: u64) -> Option<Vec<u8>> {
        let mut ring = self.ring();
        if now_s >= ring.rotates_at_s && self.own.is_some() {
            self.rotate_own_if_due(now_s);
            ring = self.ring();
        }
        let sealing = ring.sealing(now_s);
        let mut inner = Vec::with_capacity(TIME_LEN + session.len() + TAG_LEN);
        inner.extend_from_slice(&now_s.to_be_bytes());
        inner.extend_from_slice(session);
        let nonce = sealing
            .key
            .seal_in_place_append_tag(Aad::from(&sealing.name), &mut inner)
            .ok()?;
        let mut ticket = Vec::with_capacity(NAME_LEN + NONCE_LEN + inner.len());
        ticket.extend_from_slice(&sealing.name);
        ticket.extend_from_slice(nonce.as_ref());
        ticket.extend_from_slice(&inner);
        Some(ticket)
    }

    fn open(&self, ticket: &[u8], now_s: u64) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_first_chunk::<NAME_LEN>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let ring = self.ring();
        let opening = ring.opening(name, now_s)?;
        let mut inner = Zeroizing::new(sealed.to_vec());
        let plain = opening
            .key
            .open_in_place(Nonce::from(nonce), Aad::from(name), &mut inner)
            .ok()?;
        let (issued_at_s, session) = plain.split_first_chunk::<TIME_LEN>()?;
        // A clock which was set back must not make tickets immortal: from the future is old too.
        let age_s = now_s.checked_sub(u64::from_be_bytes(*issued_at_s))?;
        (age_s <= u64::from(self.lifetime_s)).then(|| session.to_vec())
    }
}

impl ProducesTickets for Ticketer {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.lifetime_s
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.seal(plain, with_turn(|turn| turn.now.as_secs())?)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.open(cipher, with_turn(|turn| turn.now.as_secs())?)
    }
}

impl fmt::Debug for Ticketer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticketer").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: u64 = 1_800_000_000;
    const PERIOD_S: u32 = 1_000;
    const LIFETIME_S: u32 = 600;

    fn at(seconds: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    }

    fn keys() -> TicketKeys {
        TicketKeys::generate(at(NOW_S), PERIOD_S).unwrap()
    }

    fn ticketer(keys: &TicketKeys) -> Ticketer {
        Ticketer::new(keys, LIFETIME_S).unwrap()
    }

    #[test]
    fn processes_with_the_same_keys_open_each_others_tickets() {
        let keys = keys();
        let copy = TicketKeys::import(&keys.export()).unwrap();
        let ticket = ticketer(&keys).seal(b"session", NOW_S).unwrap();
        assert_eq!(
            ticketer(&copy).open(&ticket, NOW_S + 1).unwrap(),
            b"session"
        );
    }

    #[test]
    fn a_changed_ticket_is_refused_at_every_byte() {
        let ticketer = ticketer(&keys());
        let ticket = ticketer.seal(b"session", NOW_S).unwrap();
        for i in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[i] ^= 1;
            assert!(ticketer.open(&changed, NOW_S).is_none(), "byte {i}");
            assert!(ticketer.open(&ticket[..i], NOW_S).is_none(), "cut at {i}");
        }
    }

    #[test]
    fn a_ticket_ends_with_its_lifetime() {
        let ticketer = ticketer(&keys());
        let ticket = ticketer.seal(b"session", NOW_S).unwrap();
        let end_s = NOW_S + u64::from(LIFETIME_S);
        assert!(ticketer.open(&ticket, end_s).is_some());
        assert!(ticketer.open(&ticket, end_s + 1).is_none());
        assert!(ticketer.open(&ticket, NOW_S - 1).is_none());
    }

    #[test]
    fn rotation_keeps_tickets_for_one_period_and_forgets_the_key_after_two() {
        let mut keys = keys();
        let ticketer = Ticketer::new(&keys, LIFETIME_MAX_S).unwrap();
        let ticket = ticketer.seal(b"session", NOW_S).unwrap();
        assert!(!keys.rotate_if_due(at(NOW_S + 999)).unwrap());
        for (rotation, readable) in [(1, true), (2, false)] {
            let now_s = NOW_S + rotation * 1_000;
            assert!(keys.rotate_if_due(at(now_s)).unwrap());
            ticketer.replace_keys(&keys).unwrap();
            assert_eq!(ticketer.open(&ticket, now_s).is_some(), readable);
        }
    }

    #[test]
    fn processes_which_rotate_apart_understand_each_other() {
        let mut ahead = keys();
        let behind = ticketer(&ahead);
        let now_s = NOW_S + u64::from(PERIOD_S);
        assert!(ahead.rotate_if_due(at(now_s)).unwrap());
        let ahead = ticketer(&ahead);
        let ticket = ahead.seal(b"session", now_s).unwrap();
        assert!(behind.open(&ticket, now_s - 5).is_none(), "from the future");
        assert!(behind.open(&ticket, now_s).is_some());
        let ticket = behind.seal(b"session", now_s).unwrap();
        assert!(ahead.open(&ticket, now_s).is_some());
    }

    #[test]
    fn own_keys_rotate_by_themselves() {
        let ticketer = Ticketer::with_own_keys(LIFETIME_S).unwrap();
        let first = ticketer.seal(b"session", NOW_S).unwrap();
        assert!(ticketer.open(&first, NOW_S + 600).is_some());
        let names: Vec<_> = (0..3_u64)
            .map(|period| ticketer.seal(b"session", NOW_S + period * 600).unwrap())
            .map(|ticket| ticket[..NAME_LEN].to_vec())
            .collect();
        assert_eq!(names[0], first[..NAME_LEN]);
        assert!(names[0] != names[1] && names[1] != names[2]);
    }

    #[test]
    fn what_was_not_exported_is_not_imported() {
        let bytes = keys().export();
        assert_eq!(bytes.len(), TicketKeys::EXPORT_LEN);
        for len in 0..bytes.len() {
            assert!(TicketKeys::import(&bytes[..len]).is_err());
        }
        assert!(TicketKeys::import(&[&bytes[..], &[0]].concat()).is_err());
        assert!(!format!("{:?}", keys()).contains("secret"));
    }
}
