//! Stateless session tickets (RFC 5077, RFC 8446 §4.6.1), and the keys that seal them.
//!
//! The keys are plain data: one process generates and rotates them and exports them to others, so that workers
//! and machines resume each other's sessions. There are three: *current* seals, and all three open, so that
//! processes with slightly different rotation times can open each other's tickets. At the rotation time every
//! process itself treats *next* as current; only the owner of the keys generates a new *next*.
//!
//! A ticket is `name (16) | nonce (24) | XAES-256-GCM(begun at (8) | policy (8) | names (8) | session) | tag (16)`,
//! with the name authenticated. Nonces are random; their length makes the number of tickets per key irrelevant
//! (`xaes`), for a fleet that shares its keys and for fixed keys, too.
//!
//! The policy is a digest of the client certificate settings under which the ticket was made. The names are those of
//! the server certificate, unless it covers the name that the client requested (`ServerResumption`). The other
//! conditions, and the time at which the ticket was made, are read from the session.
//!
//! *Begun at* is the time of the full handshake from which the session comes. A new ticket does not change it,
//! because the session still depends on that handshake's signature and certificates, and in TLS 1.2 on its master
//! secret: whoever steals the ticket key of today reads everything since then. So the time from there on is limited,
//! too (RFC 8446 §4.6.1, RFC 9325 §3.4): to the lifetime of a ticket in TLS 1.2, and to a week in TLS 1.3.

pub(crate) mod key_file;
mod keys;
mod sealed;
mod xaes;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use dormouse_record::Version;
use rustls::server::ProducesTickets;
use rustls_pki_types::UnixTime;
use zeroize::Zeroizing;

use crate::call_scope::{self, in_scope};
use crate::sessions::refusal::{NAMES_LEN, ResumptionRefused, ServerResumption};
use crate::sessions::resumption;
use crate::sessions::server_session::Session;
use crate::settings_error::SettingsError;
use crate::x509::client_auth::{ClientAuth, POLICY_LEN};
use keys::{NAME_LEN, Schedule, TicketKey};
use xaes::NONCE_LEN;

pub use keys::TicketKeys;

const TAG_LEN: usize = 16;
const TIME_LEN: usize = 8;
const BEFORE_SESSION_LEN: usize = TIME_LEN + POLICY_LEN + NAMES_LEN;
/// The code point of TLS 1.2 in a session.
const TLS12: u16 = Version::Tls12.number();
/// Seven days (RFC 8446 §4.6.1).
const LIFETIME_MAX_S: u32 = 604_800;
const PER_HANDSHAKE_MAX: usize = 16;
/// Maximum length of a session in a ticket. A client sends its ticket with every handshake, and a long
/// certificate chain would cost more than resumption saves.
const SESSION_MAX: usize = 3_072;
/// Maximum clock difference between machines with the same keys: a ticket may come from this far in the future.
const CLOCK_SKEW_MAX_S: u64 = 600;

/// Ticket settings of a server.
#[derive(Debug)]
pub struct TicketSettings {
    /// Shared keys, which their owner rotates ([`ServerContext::replace_ticket_keys`]). `None`: the context generates
    /// its own keys and rotates them every `lifetime_s`.
    ///
    /// [`ServerContext::replace_ticket_keys`]: crate::ServerContext::replace_ticket_keys
    pub keys: Option<TicketKeys>,
    /// Lifetime of a ticket in seconds. In TLS 1.2 it begins with the full handshake: a new ticket for a resumed
    /// session does not extend it.
    pub lifetime_s: u32,
    /// Number of tickets after a full TLS 1.3 handshake. After a resumed one the client gets one ticket at most.
    /// (TLS 1.2 always has one.)
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

/// The expanded keys.
struct Ring {
    keys: Vec<RingKey>,
    schedule: Schedule,
    /// [`TicketKeys::is_copy`].
    is_copy: bool,
}

struct RingKey {
    name: [u8; NAME_LEN],
    key: xaes::Key,
}

impl RingKey {
    fn new(key: &TicketKey) -> Result<RingKey, SettingsError> {
        Ok(RingKey {
            name: key.name,
            key: key.cipher()?,
        })
    }
}

impl Ring {
    fn new(keys: &TicketKeys) -> Result<Ring, SettingsError> {
        Ok(Ring {
            keys: keys
                .keys
                .iter()
                .map(RingKey::new)
                .collect::<Result<_, _>>()?,
            schedule: keys.schedule,
            is_copy: keys.is_copy,
        })
    }

    fn is_due(&self, now_s: u64) -> bool {
        matches!(self.schedule, Schedule::Rotating { rotates_at_s, .. } if now_s >= rotates_at_s)
    }

    /// Whether the next rotation is too far away, because the clock was set back.
    fn is_put_off(&self, now_s: u64) -> bool {
        match self.schedule {
            Schedule::Rotating {
                rotates_at_s,
                period_s,
            } => rotates_at_s > now_s.saturating_add(period_s.into()),
            Schedule::Fixed { .. } => false,
        }
    }

    /// Returns the number of rotations that are due. Where the owner sends new keys, they may be late, for example
    /// after the machine has slept, and *next* seals until they arrive. A copy gets no new keys, and no key may be used
    /// for ever.
    fn rotations_due(&self, now_s: u64) -> usize {
        let Schedule::Rotating {
            rotates_at_s,
            period_s,
        } = self.schedule
        else {
            return 0;
        };
        match now_s.checked_sub(rotates_at_s) {
            None => 0,
            Some(late_s) if self.is_copy => {
                let missed = late_s / u64::from(period_s.max(1));
                1 + missed.min(self.keys.len() as u64) as usize
            }
            Some(_) => 1,
        }
    }

    fn sealing(&self, now_s: u64) -> Option<&RingKey> {
        const CURRENT: usize = 1;
        self.keys.get(match self.schedule {
            Schedule::Fixed { sealing } => sealing,
            Schedule::Rotating { .. } => CURRENT + self.rotations_due(now_s),
        })
    }

    /// From the rotation time on, *previous* is not used any more, even if no process has rotated.
    fn opening(&self, name: &[u8; NAME_LEN], now_s: u64) -> Option<&RingKey> {
        self.keys
            .iter()
            .skip(self.rotations_due(now_s))
            .find(|key| key.name == *name)
    }
}

/// Ticket keys that contexts share: new ones reach all of them in one step, however many there are. Cloning it is cheap.
#[derive(Clone)]
pub struct TicketKeyring(Arc<RwLock<Arc<Ring>>>);

impl TicketKeyring {
    /// Prepares these keys.
    pub fn new(keys: &TicketKeys) -> Result<TicketKeyring, SettingsError> {
        let ring = Arc::new(Ring::new(keys)?);
        Ok(TicketKeyring(Arc::new(RwLock::new(ring))))
    }

    /// Replaces the keys in all contexts that have this keyring.
    pub fn replace(&self, keys: &TicketKeys) -> Result<(), SettingsError> {
        let ring = Arc::new(Ring::new(keys)?);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = ring;
        Ok(())
    }

    fn ring(&self) -> Arc<Ring> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for TicketKeyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKeyring").finish_non_exhaustive()
    }
}

/// Seals and opens sessions, and decides whether they may be resumed.
pub(crate) struct Ticketer {
    keyring: TicketKeyring,
    lifetime_s: u32,
    /// The keys, if this ticketer rotates them itself.
    own: Option<Mutex<TicketKeys>>,
    client_auth: Option<Arc<ClientAuth>>,
}

impl Ticketer {
    /// `shared`: the keys, in place of those in `settings`.
    pub(crate) fn new(
        settings: &TicketSettings,
        shared: Option<TicketKeyring>,
        client_auth: Option<Arc<ClientAuth>>,
    ) -> Result<Ticketer, SettingsError> {
        let lifetime_s = settings.lifetime_s;
        let long_ago = UnixTime::since_unix_epoch(Duration::ZERO);
        let (keyring, own) = match (shared, &settings.keys) {
            (Some(shared), _) => (shared, None),
            (None, Some(keys)) => (TicketKeyring::new(keys)?, None),
            // They are due at once, so the first ticket sets the rotation time.
            (None, None) => {
                let keys = TicketKeys::generate(long_ago, lifetime_s)?;
                (TicketKeyring::new(&keys)?, Some(Mutex::new(keys)))
            }
        };
        Ok(Ticketer {
            keyring,
            lifetime_s,
            own,
            client_auth,
        })
    }

    pub(crate) fn replace_keys(&self, keys: &TicketKeys) -> Result<(), SettingsError> {
        self.keyring.replace(keys)
    }

    fn ring(&self) -> Arc<Ring> {
        self.keyring.ring()
    }

    /// Rotates its own keys if a rotation is due. A clock that was set back must not put off the rotation.
    fn rotate_own_if_due(&self, now: UnixTime) -> Option<()> {
        let own = self.own.as_ref()?;
        let ring = self.ring();
        if !ring.is_due(now.as_secs()) && !ring.is_put_off(now.as_secs()) {
            return None;
        }
        let mut keys = own.lock().unwrap_or_else(PoisonError::into_inner);
        let period_s = keys.period_s()?;
        keys.set_period(now, Duration::from_secs(period_s.into()));
        keys.rotate_if_due(now).ok()?;
        self.replace_keys(&keys).ok()
    }

    fn policy(&self) -> [u8; POLICY_LEN] {
        self.client_auth
            .as_ref()
            .map_or([0; POLICY_LEN], |client_auth| client_auth.policy())
    }

    /// Returns a ticket for the session. `None` means no ticket, which is harmless.
    pub(crate) fn seal(&self, session: &[u8], now: UnixTime) -> Option<Vec<u8>> {
        if session.len() > SESSION_MAX {
            in_scope(|resumption: &mut ServerResumption| resumption.withheld = true);
            return None;
        }
        self.rotate_own_if_due(now);
        let ring = self.ring();
        let sealing = ring.sealing(now.as_secs())?;
        let (begun_at_s, names) = in_scope(|resumption: &mut ServerResumption| {
            (resumption.begun_at_s, resumption.certificate_names)
        })
        .unwrap_or_default();
        let begun_at_s = begun_at_s.unwrap_or(now.as_secs());
        let mut inner = Vec::with_capacity(BEFORE_SESSION_LEN + session.len() + TAG_LEN);
        inner.extend_from_slice(&begun_at_s.to_be_bytes());
        inner.extend_from_slice(&self.policy());
        inner.extend_from_slice(&names);
        inner.extend_from_slice(session);
        let nonce = sealing.key.seal(&sealing.name, &mut inner).ok()?;
        let mut ticket = Vec::with_capacity(NAME_LEN + NONCE_LEN + inner.len());
        ticket.extend_from_slice(&sealing.name);
        ticket.extend_from_slice(&nonce);
        ticket.extend_from_slice(&inner);
        Some(ticket)
    }

    /// Whether the client needs no TLS 1.3 ticket for the session that rustls has just made.
    pub(crate) fn has_enough() -> bool {
        let has_enough = in_scope(|resumption: &mut ServerResumption| {
            let is_resumed = resumption.accepted;
            let messages = resumption.tickets.as_mut();
            messages.is_some_and(|messages| messages.has_enough(is_resumed))
        });
        has_enough == Some(true)
    }

    /// Passes a TLS 1.3 ticket to the messages that we send to the client.
    pub(crate) fn issue(&self, session: &[u8], ticket: Option<&[u8]>) -> bool {
        let lifetime_s = self.lifetime_within(LIFETIME_MAX_S);
        let is_ours = in_scope(|resumption: &mut ServerResumption| {
            let messages = resumption.tickets.as_mut()?;
            Some(messages.add(session, ticket, lifetime_s))
        });
        is_ours.flatten() == Some(true)
    }

    /// Returns the lifetime of a new ticket, for the client, if a session ends `total_s` after its full handshake.
    fn lifetime_within(&self, total_s: u32) -> u32 {
        let begun_at_s = in_scope(|resumption: &mut ServerResumption| resumption.begun_at_s);
        let age_s = call_scope::now()
            .zip(begun_at_s.flatten())
            .map(|(now, begun_at_s)| now.as_secs().saturating_sub(begun_at_s));
        let left_s = u64::from(total_s).saturating_sub(age_s.unwrap_or(0));
        // 0 would mean that the server does not say (RFC 5077 §3.3).
        u32::try_from(left_s).map_or(self.lifetime_s, |left_s| left_s.min(self.lifetime_s).max(1))
    }

    /// Returns the session in a ticket, if the current connection may resume it.
    pub(crate) fn open(&self, ticket: &[u8], now: UnixTime) -> Result<Vec<u8>, ResumptionRefused> {
        let (begun_at_s, mut bytes) = self.unseal(ticket, now.as_secs())?;
        let session = Session::read(&bytes).ok_or(ResumptionRefused::Damaged)?;
        self.check_age(&session, begun_at_s, now.as_secs())?;
        resumption::judge(&session, self.client_auth.as_deref(), now)?;
        // If rustls makes a full handshake all the same, the new session counts as older than it is.
        in_scope(|resumption: &mut ServerResumption| resumption.begun_at_s = Some(begun_at_s));
        Ok(std::mem::take(&mut bytes))
    }

    /// Returns the time of the full handshake, and the session, which is wiped if it is refused.
    fn unseal(
        &self,
        ticket: &[u8],
        now_s: u64,
    ) -> Result<(u64, Zeroizing<Vec<u8>>), ResumptionRefused> {
        let damaged = ResumptionRefused::Damaged;
        let (name, rest) = ticket.split_first_chunk::<NAME_LEN>().ok_or(damaged)?;
        let ring = self.ring();
        let opening = ring
            .opening(name, now_s)
            .ok_or(ResumptionRefused::UnknownKey)?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>().ok_or(damaged)?;
        let mut inner = Zeroizing::new(sealed.to_vec());
        let plain = opening
            .key
            .open(nonce, name, &mut inner)
            .map_err(|_| damaged)?;
        let (begun_at_s, rest) = plain.split_first_chunk::<TIME_LEN>().ok_or(damaged)?;
        let (policy, rest) = rest.split_first_chunk::<POLICY_LEN>().ok_or(damaged)?;
        let (names, session) = rest.split_first_chunk::<NAMES_LEN>().ok_or(damaged)?;
        if *policy != self.policy() {
            return Err(ResumptionRefused::OtherClientPolicy);
        }
        let ours = in_scope(|resumption: &mut ServerResumption| resumption.certificate_names);
        let ours = ours.unwrap_or_default();
        if *names != ours {
            return Err(ResumptionRefused::OtherServerName);
        }
        let session = Zeroizing::new(session.to_vec());
        Ok((u64::from_be_bytes(*begun_at_s), session))
    }

    fn check_age(
        &self,
        session: &Session<'_>,
        begun_at_s: u64,
        now_s: u64,
    ) -> Result<(), ResumptionRefused> {
        let total_s = match session.version {
            TLS12 => self.lifetime_s,
            _ => LIFETIME_MAX_S,
        };
        let is_young = is_within(self.lifetime_s, session.created_s, now_s)
            && is_within(total_s, begun_at_s, now_s);
        is_young.then_some(()).ok_or(ResumptionRefused::Expired)
    }
}

/// Whether `now_s` is at most `lifetime_s` after `from_s`. Times in a future beyond the maximum clock difference are
/// not, so that a clock that was set back extends no life.
fn is_within(lifetime_s: u32, from_s: u64, now_s: u64) -> bool {
    from_s <= now_s.saturating_add(CLOCK_SKEW_MAX_S)
        && now_s.saturating_sub(from_s) <= u64::from(lifetime_s)
}

impl ProducesTickets for Ticketer {
    /// For TLS 1.2, rustls calls this only for clients that support tickets.
    fn enabled(&self) -> bool {
        in_scope(|resumption: &mut ServerResumption| resumption.knows_tickets = true);
        true
    }

    /// Only TLS 1.2 asks, because we send the message of TLS 1.3.
    fn lifetime(&self) -> u32 {
        self.lifetime_within(self.lifetime_s)
    }

    /// Returns `None` for TLS 1.3, because we send that message.
    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        if Ticketer::has_enough() {
            return None;
        }
        let ticket = self.seal(plain, call_scope::now()?);
        let is_ours = self.issue(plain, ticket.as_deref());
        ticket.filter(|_| !is_ours)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        let now = call_scope::now()?;
        resumption::note(self.open(cipher, now))
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

    fn ticketer_for(keys: &TicketKeys, lifetime_s: u32) -> Ticketer {
        let settings = TicketSettings {
            keys: Some(TicketKeys::import(&keys.export()).unwrap()),
            lifetime_s,
            ..TicketSettings::default()
        };
        Ticketer::new(&settings, None, None).unwrap()
    }

    fn ticketer(keys: &TicketKeys) -> Ticketer {
        ticketer_for(keys, LIFETIME_S)
    }

    fn seal(ticketer: &Ticketer, now_s: u64) -> Vec<u8> {
        ticketer.seal(b"session", at(now_s)).unwrap()
    }

    #[test]
    fn processes_with_equal_keys_open_each_others_tickets() {
        let keys = keys();
        let copy = TicketKeys::import(&keys.export()).unwrap();
        let ticket = seal(&ticketer(&keys), NOW_S);
        assert_eq!(
            ticketer(&copy).unseal(&ticket, NOW_S + 1).unwrap(),
            (NOW_S, Zeroizing::new(b"session".to_vec()))
        );
    }

    #[test]
    fn a_changed_ticket_is_refused_at_every_byte() {
        let ticketer = ticketer(&keys());
        let ticket = seal(&ticketer, NOW_S);
        for i in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[i] ^= 1;
            assert!(ticketer.unseal(&changed, NOW_S).is_err(), "byte {i}");
            assert!(ticketer.unseal(&ticket[..i], NOW_S).is_err(), "cut at {i}");
        }
    }

    /// Whether a session of this version may be resumed, whose ticket was made at `created_s`.
    fn is_young(version: u16, begun_at_s: u64, created_s: u64, now_s: u64) -> bool {
        let session = Session {
            server_name: None,
            version,
            suite: 0,
            secret: &[],
            extended_master_secret: true,
            client_chain: Vec::new(),
            alpn: None,
            created_s,
            age_add: 0,
        };
        let ticketer = ticketer(&keys());
        ticketer.check_age(&session, begun_at_s, now_s).is_ok()
    }

    const TLS13: u16 = Version::Tls13.number();

    #[test]
    fn a_ticket_expires_after_its_lifetime() {
        let end_s = NOW_S + u64::from(LIFETIME_S);
        for version in [TLS12, TLS13] {
            let is_young = |now_s| is_young(version, NOW_S, NOW_S, now_s);
            assert!(is_young(end_s) && !is_young(end_s + 1));
            // Machines with the same keys have different clocks.
            let earliest_s = NOW_S - CLOCK_SKEW_MAX_S;
            assert!(is_young(earliest_s) && !is_young(earliest_s - 1));
        }
    }

    #[test]
    fn a_new_ticket_does_not_extend_a_session_for_ever() {
        for (version, total_s) in [(TLS12, LIFETIME_S), (TLS13, LIFETIME_MAX_S)] {
            let end_s = NOW_S + u64::from(total_s);
            let is_young = |now_s| is_young(version, NOW_S, now_s - 10, now_s);
            assert!(is_young(end_s) && !is_young(end_s + 1), "{version:#x}");
        }
    }

    #[test]
    fn rotation_keeps_tickets_for_one_period_and_forgets_the_key_after_two() {
        let mut keys = keys();
        let ticketer = ticketer_for(&keys, LIFETIME_MAX_S);
        let ticket = seal(&ticketer, NOW_S);
        assert!(!keys.rotate_if_due(at(NOW_S + 999)).unwrap());
        for (rotation, readable) in [(1, true), (2, false)] {
            let now_s = NOW_S + rotation * 1_000;
            assert!(keys.rotate_if_due(at(now_s)).unwrap());
            ticketer.replace_keys(&keys).unwrap();
            assert_eq!(ticketer.unseal(&ticket, now_s).is_ok(), readable);
        }
    }

    #[test]
    fn processes_with_different_rotation_times_open_each_others_tickets() {
        let mut ahead = keys();
        let behind = ticketer(&ahead);
        let now_s = NOW_S + u64::from(PERIOD_S);
        assert!(ahead.rotate_if_due(at(now_s)).unwrap());
        let ahead = ticketer(&ahead);
        let ticket = seal(&ahead, now_s);
        for clock_s in [now_s - 300, now_s] {
            assert!(behind.unseal(&ticket, clock_s).is_ok(), "clocks differ");
        }
        let ticket = seal(&behind, now_s);
        assert!(ahead.unseal(&ticket, now_s).is_ok());
    }

    /// A program that reads another one's key file gets no newer keys from it.
    #[test]
    fn copied_keys_are_not_used_for_ever() {
        let secret = [7; 32];
        let sealed = keys().seal(&secret).unwrap();
        let settings = TicketSettings {
            keys: Some(TicketKeys::from_file(&sealed, &secret).unwrap()),
            lifetime_s: LIFETIME_MAX_S,
            ..TicketSettings::default()
        };
        let copy = Ticketer::new(&settings, None, None).unwrap();
        let [current, next] = [999, 1_999].map(|after_s| seal(&copy, NOW_S + after_s));
        assert_ne!(current[..NAME_LEN], next[..NAME_LEN]);
        assert!(copy.seal(b"session", at(NOW_S + 2_000)).is_none());
        for (ticket, end_s) in [(&current, NOW_S + 2_000), (&next, NOW_S + 3_000)] {
            assert!(copy.unseal(ticket, end_s - 1).is_ok());
            let refused = copy.unseal(ticket, end_s).unwrap_err();
            assert_eq!(refused, ResumptionRefused::UnknownKey);
        }
        assert!(copy.seal(b"session", at(u64::MAX)).is_none());
    }

    /// After a machine has slept, its workers wait for the new keys, but their clients do not.
    #[test]
    fn keys_that_their_owner_replaces_late_still_seal_and_open() {
        let ticketer = ticketer(&keys());
        for now_s in [NOW_S + 1_000, NOW_S + 2_000, NOW_S + 1_000_000] {
            let ticket = seal(&ticketer, now_s);
            assert!(ticketer.unseal(&ticket, now_s).is_ok());
        }
    }

    #[test]
    fn fixed_keys_all_open_and_one_seals() {
        let (old, new) = ([1; 48], [2; 80]);
        let one = ticketer(&TicketKeys::fixed(&[&old], 0).unwrap());
        let both = ticketer(&TicketKeys::fixed(&[&new, &old], 0).unwrap());
        let ticket = seal(&one, NOW_S);
        assert!(both.unseal(&ticket, NOW_S).is_ok());
        let ticket = seal(&both, NOW_S);
        let refused = one.unseal(&ticket, NOW_S).unwrap_err();
        assert_eq!(refused, ResumptionRefused::UnknownKey);
        assert!(both.unseal(&ticket, NOW_S + u64::from(LIFETIME_S)).is_ok());
    }

    #[test]
    fn new_keys_reach_all_contexts_that_share_a_keyring() {
        let [former, next] = [keys(), keys()];
        let keyring = TicketKeyring::new(&former).unwrap();
        let settings = TicketSettings {
            lifetime_s: LIFETIME_S,
            ..TicketSettings::default()
        };
        let [one, other] = [(); 2]
            .map(|()| Ticketer::new(&settings, Some(keyring.clone()), None))
            .map(Result::unwrap);
        let ticket = seal(&one, NOW_S);
        assert!(other.unseal(&ticket, NOW_S).is_ok());
        keyring.replace(&next).unwrap();
        for ticketer in [&one, &other] {
            let refused = ticketer.unseal(&ticket, NOW_S).unwrap_err();
            assert_eq!(refused, ResumptionRefused::UnknownKey);
        }
        assert!(other.unseal(&seal(&one, NOW_S), NOW_S).is_ok());
    }

    #[test]
    fn own_keys_rotate_by_themselves() {
        let ticketer = Ticketer::new(
            &TicketSettings {
                lifetime_s: LIFETIME_S,
                ..TicketSettings::default()
            },
            None,
            None,
        )
        .unwrap();
        let first = seal(&ticketer, NOW_S);
        assert!(ticketer.unseal(&first, NOW_S + 600).is_ok());
        let names: Vec<_> = (0..3_u64)
            .map(|period| seal(&ticketer, NOW_S + period * 600))
            .map(|ticket| ticket[..NAME_LEN].to_vec())
            .collect();
        assert_eq!(names[0], first[..NAME_LEN]);
        assert!(names[0] != names[1] && names[1] != names[2]);
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_put_off_the_rotation_of_own_keys() {
        let settings = TicketSettings {
            lifetime_s: LIFETIME_S,
            ..TicketSettings::default()
        };
        let ticketer = Ticketer::new(&settings, None, None).unwrap();
        let name = |now_s| seal(&ticketer, now_s)[..NAME_LEN].to_vec();
        name(NOW_S);
        let earlier_s = NOW_S - 100_000;
        let before = name(earlier_s);
        assert_eq!(name(earlier_s + 599), before);
        assert_ne!(name(earlier_s + 600), before);
    }
}
