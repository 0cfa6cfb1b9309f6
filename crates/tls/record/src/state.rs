//! The state: all that remains of a TLS connection at rest.
//!
//! # Layout
//!
//! 128 bytes, aligned to 8, plain integers in the machine's byte order. All zero means empty.
//!
//! | offset | size | field | |
//! |---|---|---|---|
//! | 0 | 1 | `layout` | [`LAYOUT_VERSION`]; written last by `establish` |
//! | 1 | 1 | `version` | 1 TLS 1.2, 2 TLS 1.3 |
//! | 2 | 1 | `suite` | 1 AES-128-GCM SHA-256, 2 AES-256-GCM SHA-384, 3 ChaCha20-Poly1305 SHA-256 |
//! | 3 | 1 | `role` | 1 server, 2 client |
//! | 4 | 1 | `flags` | see below |
//! | 5 | 1 | `message_have` | received bytes of a handshake message's header, 0 to 4 |
//! | 6 | 4 | `message_header` | those bytes: type, length |
//! | 10 | 2 | `message_left` | bytes of that message's body not yet received |
//! | 12 | 1 | `empty_records` | empty records since the last byte of data |
//! | 13 | 1 | `key_updates` | KeyUpdates received since the last byte of data |
//! | 14 | 1 | `warnings` | warnings received since the last byte of data |
//! | 15 | 1 | `reserved` | zero |
//! | 16 | 8 | `read_sequence` | of the next record to open |
//! | 24 | 8 | `write_sequence` | of the next record to seal |
//! | 32 | 48 | `read_secret` | TLS 1.3: traffic secret; TLS 1.2: key (32), IV (12), mark of the session (4); the rest is zero |
//! | 80 | 48 | `write_secret` | the same; in TLS 1.2 with AES-GCM the use of the key (4, see [`crate::GCM_UNITS_MAX`]) instead of the mark |
//!
//! # What a kill leaves behind
//!
//! The state lies in shared memory and outlives the process that writes it, so the order of its stores is part
//! of its contract. [`State::commit`] separates two stores wherever the order matters.
//!
//! * **Sealing** stores the next sequence number before the cipher runs. A kill after the store skips a number;
//!   a kill before it leaves nothing encrypted. No number is used twice.
//! * **Replacing a secret** marks the state (`REPLACING`), stores the new secret, sets the sequence number to
//!   zero, then clears the mark. The old secret never coexists with a sequence number that it has already used.
//!   A secret that is half old and half new is a third secret, which has never been used. The mark says that
//!   the connection is lost: [`State::validate`], opening and sealing refuse it.
//! * **Establishing** writes the layout version last: until then the state counts as empty.
//! * **Wiping** clears the layout version first: from then on the state counts as empty.
//!
//! After a crash, a state that was in use cannot be trusted in any case, because bytes may have been read from
//! its socket. The owner of the states marks the one in use, and resets its connection after a crash.

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use zeroize::Zeroize;

use crate::derive::{IV_LEN, SECRET_MAX, next_traffic_secret};
use crate::error::{Corrupt, Misuse};
use crate::layout::{
    CLOSED, FAILED, HALF_FATAL, HALF_WARNING, KEY_UPDATE_ASKED, KEY_UPDATE_REQUESTED,
    LAYOUT_VERSION, PEER_CLOSED, REPLACING,
};
use crate::limits::{
    Budget, EMPTY_RECORDS_MAX, GCM_UNITS_MAX, KEY_UPDATES_MAX, UNITS_OF_FULL_RECORD, WARNINGS_MAX,
    record_limit, rekey_at, units,
};
use crate::suite::{Role, Suite, Version};

/// A TLS connection at rest: 128 bytes of plain data, with the layout documented in the module.
///
/// Neither `Copy` nor `Clone`: a second copy could reuse a sequence number. It is wiped when dropped. Moving it
/// leaves its bytes behind, as with any value: keep it in one place, and call [`State::wipe`] there.
#[repr(C)]
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct State {
    layout: u8,
    version: u8,
    suite: u8,
    role: u8,
    flags: u8,
    pub(crate) message_have: u8,
    pub(crate) message_header: [u8; 4],
    pub(crate) message_left: u16,
    pub(crate) empty_records: u8,
    pub(crate) key_updates: u8,
    pub(crate) warnings: u8,
    reserved: u8,
    pub(crate) read_sequence: u64,
    write_sequence: u64,
    read_secret: [u8; SECRET_MAX],
    write_secret: [u8; SECRET_MAX],
}

const _: () = {
    use core::mem::{align_of, offset_of, size_of};
    assert!(size_of::<State>() == 128);
    assert!(AFTER_IV.end - AFTER_IV.start == size_of::<u32>());
    assert!(align_of::<State>() == 8);
    assert!(offset_of!(State, layout) == 0);
    assert!(offset_of!(State, version) == 1);
    assert!(offset_of!(State, suite) == 2);
    assert!(offset_of!(State, role) == 3);
    assert!(offset_of!(State, flags) == 4);
    assert!(offset_of!(State, message_have) == 5);
    assert!(offset_of!(State, message_header) == 6);
    assert!(offset_of!(State, message_left) == 10);
    assert!(offset_of!(State, empty_records) == 12);
    assert!(offset_of!(State, key_updates) == 13);
    assert!(offset_of!(State, warnings) == 14);
    assert!(offset_of!(State, reserved) == 15);
    assert!(offset_of!(State, read_sequence) == 16);
    assert!(offset_of!(State, write_sequence) == 24);
    assert!(offset_of!(State, read_secret) == 32);
    assert!(offset_of!(State, write_secret) == 80);
};

/// Key and IV of one direction, as a TLS 1.2 key block holds them.
///
/// The IV has twelve bytes. For AES-GCM these are the four of the salt and the eight that start the explicit
/// nonce; the latter are unused for receiving.
#[derive(Clone, Copy)]
pub struct KeyIv<'a> {
    /// AEAD key, [`Suite::key_len`] bytes.
    pub key: &'a [u8],
    /// Twelve bytes.
    pub iv: &'a [u8],
}

impl fmt::Debug for KeyIv<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyIv(..)")
    }
}

/// One of the two directions of a connection, from our point of view.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

impl State {
    /// Returns a state that holds no connection: all zero.
    pub const fn empty() -> Self {
        Self {
            layout: 0,
            version: 0,
            suite: 0,
            role: 0,
            flags: 0,
            message_have: 0,
            message_header: [0; 4],
            message_left: 0,
            empty_records: 0,
            key_updates: 0,
            warnings: 0,
            reserved: 0,
            read_sequence: 0,
            write_sequence: 0,
            read_secret: [0; SECRET_MAX],
            write_secret: [0; SECRET_MAX],
        }
    }

    /// Writes a finished TLS 1.3 handshake into this state, in place: the application traffic secrets and the
    /// current sequence number of each. Wipes the previous contents first. The caller wipes the sources.
    pub fn establish_tls13(
        &mut self,
        role: Role,
        suite: Suite,
        read_secret: &[u8],
        read_seq: u64,
        write_secret: &[u8],
        write_seq: u64,
    ) -> Result<(), Misuse> {
        self.wipe();
        let secret_len = suite.secret_len();
        for secret in [read_secret, write_secret] {
            if secret.len() != secret_len {
                return Err(Misuse::SecretLength {
                    expected: secret_len,
                    found: secret.len(),
                });
            }
        }
        self.read_secret[..secret_len].copy_from_slice(read_secret);
        self.write_secret[..secret_len].copy_from_slice(write_secret);
        self.establish(Version::Tls13, role, suite, read_seq, write_seq)
    }

    /// Writes a finished TLS 1.2 handshake into this state, in place: keys, IVs and the current sequence number
    /// of each direction. Wipes the previous contents first. The caller wipes the sources.
    pub fn establish_tls12(
        &mut self,
        role: Role,
        suite: Suite,
        read: KeyIv<'_>,
        read_seq: u64,
        write: KeyIv<'_>,
        write_seq: u64,
    ) -> Result<(), Misuse> {
        self.wipe();
        for KeyIv { key, iv } in [read, write] {
            if key.len() != suite.key_len() {
                return Err(Misuse::SecretLength {
                    expected: suite.key_len(),
                    found: key.len(),
                });
            }
            if iv.len() != IV_LEN {
                return Err(Misuse::SecretLength {
                    expected: IV_LEN,
                    found: iv.len(),
                });
            }
        }
        for (room, KeyIv { key, iv }) in [
            (&mut self.read_secret, read),
            (&mut self.write_secret, write),
        ] {
            room[..key.len()].copy_from_slice(key);
            room[TLS12_IV_AT..TLS12_IV_AT + IV_LEN].copy_from_slice(iv);
        }
        self.establish(Version::Tls12, role, suite, read_seq, write_seq)
    }

    fn establish(
        &mut self,
        version: Version,
        role: Role,
        suite: Suite,
        read_seq: u64,
        write_seq: u64,
    ) -> Result<(), Misuse> {
        self.version = version.code();
        self.suite = suite.code();
        self.role = role.code();
        self.read_sequence = read_seq;
        self.write_sequence = write_seq;
        self.commit();
        self.layout = LAYOUT_VERSION;
        self.validate().map_err(|corrupt| {
            self.wipe();
            Misuse::Unfit(corrupt)
        })
    }

    /// Copies what opens the next record from the peer, which this state has yet to open. The copy cannot seal: without the
    /// write secret, no sequence number is used twice.
    pub fn copy_reader(&self, to: &mut State) {
        to.as_mut_bytes().copy_from_slice(self.as_bytes());
        to.write_secret.zeroize();
    }

    /// Overwrites everything with zeros; the compiler cannot remove these stores.
    pub fn wipe(&mut self) {
        self.layout.zeroize();
        let words: &mut [u64; 16] = zerocopy::transmute_mut!(self);
        words.zeroize();
    }

    /// Returns the negotiated version; TLS 1.3 for an empty state.
    pub fn version(&self) -> Version {
        Version::from_code(self.version).unwrap_or(Version::Tls13)
    }

    /// Returns the negotiated suite; AES-128-GCM for an empty state.
    pub fn suite(&self) -> Suite {
        Suite::from_code(self.suite).unwrap_or(Suite::Aes128GcmSha256)
    }

    /// Returns our role; server for an empty state.
    pub fn role(&self) -> Role {
        Role::from_code(self.role).unwrap_or(Role::Server)
    }

    /// Whether this state holds no connection.
    pub fn is_empty(&self) -> bool {
        self.layout == 0
    }

    /// Whether close_notify was received: the peer's direction ended cleanly, and nothing more is opened.
    pub fn peer_closed(&self) -> bool {
        self.has(PEER_CLOSED) && !self.has(FAILED)
    }

    /// Whether close_notify or a fatal alert was sent, or a fatal alert received: nothing more is sealed.
    pub fn closed(&self) -> bool {
        self.has(CLOSED)
    }

    /// Whether the connection failed: a record was refused, or a fatal alert sent or received. Unless
    /// [`State::closed`], our own fatal alert can still be sealed.
    pub fn failed(&self) -> bool {
        self.has(FAILED)
    }

    /// Whether a KeyUpdate must be sent before the next application data: the peer requested one (then
    /// [`crate::seal_in_place`] refuses to seal without it), or one of the two keys nears its AEAD limit.
    pub fn owes_key_update(&self) -> bool {
        self.version() == Version::Tls13
            && !self.is_empty()
            && !self.has(CLOSED | FAILED)
            && (self.has(KEY_UPDATE_REQUESTED)
                || self.write_sequence >= rekey_at(self.suite())
                || self.should_ask_for_update())
    }

    /// Returns the sequence number of the next record to open.
    pub fn read_sequence(&self) -> u64 {
        self.read_sequence
    }

    /// Returns the sequence number of the next record to seal.
    pub fn write_sequence(&self) -> u64 {
        self.write_sequence
    }

    /// Returns how many full data records the current key can still seal. Only TLS 1.2 ever reaches zero.
    pub fn records_left(&self) -> u64 {
        let reserve = Budget::Data.reserve();
        if self.counts_units() {
            let left = (GCM_UNITS_MAX - reserve).saturating_sub(self.units_used());
            return u64::from(left / UNITS_OF_FULL_RECORD);
        }
        (record_limit(self.suite()) - u64::from(reserve)).saturating_sub(self.write_sequence)
    }

    /// TLS 1.2: sets the mark by which the caller finds the session that this connection uses.
    pub fn set_session_mark(&mut self, mark: u32) {
        if self.version() == Version::Tls12 {
            self.read_secret[AFTER_IV].copy_from_slice(&mark.to_ne_bytes());
        }
    }

    /// Returns the mark of the session that this connection uses; 0: none was set.
    pub fn session_mark(&self) -> u32 {
        match (self.version(), self.read_secret.last_chunk()) {
            (Version::Tls12, Some(mark)) => u32::from_ne_bytes(*mark),
            _ => 0,
        }
    }

    /// Whether a handshake message (or, in TLS 1.2, an alert) was received in part.
    pub fn awaits_rest_of_message(&self) -> bool {
        self.message_have > 0 || self.has(HALF_WARNING | HALF_FATAL)
    }
}

/// Offset of the IV in the field of a secret, TLS 1.2.
const TLS12_IV_AT: usize = 32;
/// Range after the IV in the fields of both secrets, TLS 1.2: the session's mark, and the use of the key.
const AFTER_IV: core::ops::Range<usize> = TLS12_IV_AT + IV_LEN..SECRET_MAX;

/// Used by the rest of this crate.
impl State {
    /// Returns version and suite, if the state holds a usable connection.
    pub(crate) fn kind(&self) -> Option<(Version, Suite)> {
        if self.layout != LAYOUT_VERSION || self.has(REPLACING) {
            return None;
        }
        Version::from_code(self.version).zip(Suite::from_code(self.suite))
    }

    pub(crate) fn has(&self, any: u8) -> bool {
        self.flags & any != 0
    }

    pub(crate) fn set(&mut self, flags: u8) {
        self.flags |= flags;
    }

    pub(crate) fn unset(&mut self, flags: u8) {
        self.flags &= !flags;
    }

    pub(crate) fn secret(&self, direction: Direction) -> &[u8; SECRET_MAX] {
        match direction {
            Direction::Read => &self.read_secret,
            Direction::Write => &self.write_secret,
        }
    }

    /// Returns key and IV of a TLS 1.2 direction.
    pub(crate) fn split_key_iv(suite: Suite, secret: &[u8; SECRET_MAX]) -> (&[u8], &[u8]) {
        (
            &secret[..suite.key_len()],
            &secret[TLS12_IV_AT..TLS12_IV_AT + IV_LEN],
        )
    }

    /// Discards a partly received message after a refusal.
    pub(crate) fn forget_partial_message(&mut self) {
        self.message_have = 0;
        self.message_header = [0; 4];
        self.message_left = 0;
        self.unset(HALF_WARNING | HALF_FATAL);
    }

    /// Whether the peer's key nears its limit and we have not requested a new one yet (RFC 8446 §5.5, §4.6.3).
    pub(crate) fn should_ask_for_update(&self) -> bool {
        self.read_sequence >= rekey_at(self.suite()) && !self.has(KEY_UPDATE_ASKED | PEER_CLOSED)
    }

    /// Takes the next sequence number for sealing. The number counts as used from here on.
    pub(crate) fn take_write_sequence(
        &mut self,
        content_len: usize,
        budget: Budget,
    ) -> Option<u64> {
        if !self.can_seal(content_len, budget) {
            return None;
        }
        if self.counts_units() {
            self.set_units_used(self.units_used() + units(content_len));
        }
        let sequence = self.write_sequence;
        self.write_sequence = sequence + 1;
        self.commit();
        Some(sequence)
    }

    /// Whether the write key may seal one more record.
    pub(crate) fn can_seal(&self, content_len: usize, budget: Budget) -> bool {
        let reserve = budget.reserve();
        if self.counts_units() {
            let left = (GCM_UNITS_MAX - reserve).saturating_sub(self.units_used());
            return units(content_len) <= left;
        }
        let limit = record_limit(self.suite()) - u64::from(reserve);
        self.write_sequence < limit
    }

    /// Whether the use of the write key is counted in units: it is AES-GCM's, and cannot be replaced.
    fn counts_units(&self) -> bool {
        self.version() == Version::Tls12 && self.suite().is_gcm()
    }

    /// Returns the use of the write key in units. All records count as full until the first is counted.
    fn units_used(&self) -> u32 {
        match self
            .write_secret
            .last_chunk()
            .map(|used| u32::from_ne_bytes(*used))
        {
            None | Some(0) => u32::try_from(self.write_sequence).map_or(GCM_UNITS_MAX, |records| {
                records.saturating_mul(UNITS_OF_FULL_RECORD)
            }),
            Some(used) => used,
        }
    }

    fn set_units_used(&mut self, units: u32) {
        self.write_secret[AFTER_IV].copy_from_slice(&units.to_ne_bytes());
    }

    /// Replaces a direction's traffic secret with the next generation and resets its sequence number ("Each
    /// sequence number is set to zero at the beginning of a connection and whenever the key is changed", RFC
    /// 8446 §5.3). The module's documentation says what a kill between any two stores leaves behind.
    pub(crate) fn replace_secret(&mut self, direction: Direction) -> bool {
        let suite = self.suite();
        let secret_len = suite.secret_len();
        let mut next = [0; SECRET_MAX];
        let done = next_traffic_secret(suite, &self.secret(direction)[..secret_len], &mut next);
        if done {
            for step in Replacement::STEPS {
                self.replace_step(step, direction, &next[..secret_len]);
                self.commit();
            }
        }
        next.zeroize();
        done
    }

    fn replace_step(&mut self, step: Replacement, direction: Direction, next: &[u8]) {
        let (secret, sequence) = match direction {
            Direction::Read => (&mut self.read_secret, &mut self.read_sequence),
            Direction::Write => (&mut self.write_secret, &mut self.write_sequence),
        };
        match step {
            Replacement::Mark => self.flags |= REPLACING,
            Replacement::Secret => secret[..next.len()].copy_from_slice(next),
            Replacement::Sequence => *sequence = 0,
            Replacement::Unmark => self.flags &= !REPLACING,
        }
    }

    /// Makes the compiler finish all earlier stores to this state here, and start no later store before.
    ///
    /// This is enough for another process to see the stores in order after a kill: the processor makes retired
    /// stores visible in program order.
    #[inline(always)]
    pub(crate) fn commit(&mut self) {
        core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
        core::hint::black_box(&mut *self);
        core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
    }
}

/// The steps of replacing a secret; each is committed before the next begins.
#[derive(Clone, Copy)]
enum Replacement {
    Mark,
    Secret,
    Sequence,
    Unmark,
}

impl Replacement {
    const STEPS: [Self; 4] = [Self::Mark, Self::Secret, Self::Sequence, Self::Unmark];
}

impl Drop for State {
    fn drop(&mut self) {
        self.wipe();
    }
}

impl Default for State {
    fn default() -> Self {
        Self::empty()
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("State(empty)");
        }
        f.debug_struct("State")
            .field("version", &self.version())
            .field("suite", &self.suite())
            .field("role", &self.role())
            .field("flags", &format_args!("{:#010b}", self.flags))
            .field("read_sequence", &self.read_sequence)
            .field("write_sequence", &self.write_sequence)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
mod validate;
