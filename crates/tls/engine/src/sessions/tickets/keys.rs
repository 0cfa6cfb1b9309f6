//! Ticket keys as plain data: generation, rotation, export and import.

use std::fmt;
use std::time::Duration;

use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use rustls_pki_types::UnixTime;
use zeroize::{Zeroize, Zeroizing};

use super::xaes;
use crate::settings_error::SettingsError;

pub(super) const NAME_LEN: usize = 16;
/// The longest form: HMAC-SHA256 and AES-256 keys, 32 bytes each.
const SECRET_MAX: usize = 64;
const KEY_LEN: usize = NAME_LEN + 1 + SECRET_MAX;
const FORMAT: u8 = 2;
/// Number of rotating keys: previous, current, next.
const ROTATING: usize = 3;

/// Ticket keys and their schedule.
///
/// The keys are rotating or fixed. There are three rotating keys, *previous*, *current* and *next*, with the
/// time at which *next* becomes *current*. Fixed keys come from a file: up to [`TicketKeys::MAX`], one of which
/// seals.
pub struct TicketKeys {
    pub(super) keys: Vec<TicketKey>,
    pub(super) schedule: Schedule,
    /// When the sealing key became current; 0 if unknown.
    since_s: u64,
    /// They are from the file of another program, which rotates them and does not send the new ones.
    pub(super) is_copy: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Schedule {
    Rotating { rotates_at_s: u64, period_s: u32 },
    Fixed { sealing: usize },
}

/// A key and its name, which is part of every ticket.
pub(super) struct TicketKey {
    pub(super) name: [u8; NAME_LEN],
    pub(super) form: Form,
    secret: [u8; SECRET_MAX],
}

/// The ticket format of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A key of 32 bytes for XAES-256-GCM.
    Ours,
    /// A 48-byte key, as OpenSSL-based programs use for AES-128. Their tickets contain an OpenSSL structure, so
    /// we use our own format, with a key derived from theirs.
    OpenSsl128,
    /// An 80-byte key, for AES-256.
    OpenSsl256,
}

impl Form {
    fn secret_len(self) -> usize {
        match self {
            Form::Ours | Form::OpenSsl128 => 32,
            Form::OpenSsl256 => 64,
        }
    }

    fn code(self) -> u8 {
        match self {
            Form::Ours => 1,
            Form::OpenSsl128 => 2,
            Form::OpenSsl256 => 3,
        }
    }

    fn from_code(code: u8) -> Option<Form> {
        [Form::Ours, Form::OpenSsl128, Form::OpenSsl256]
            .into_iter()
            .find(|form| form.code() == code)
    }
}

impl TicketKey {
    fn zeroed(form: Form) -> TicketKey {
        TicketKey {
            name: [0; NAME_LEN],
            form,
            secret: [0; SECRET_MAX],
        }
    }

    fn random() -> Result<TicketKey, SettingsError> {
        let mut key = TicketKey::zeroed(Form::Ours);
        let secret = key.secret.get_mut(..32).unwrap_or_default();
        aws_lc_rs::rand::fill(secret)
            .and_then(|()| aws_lc_rs::rand::fill(&mut key.name))
            .map_err(|_| SettingsError::Library("no random bytes".to_owned()))?;
        Ok(key)
    }

    /// Returns the key that seals tickets.
    pub(super) fn cipher(&self) -> Result<xaes::Key, SettingsError> {
        let secret = self.secret.get(..self.form.secret_len());
        let secret = secret.unwrap_or_default();
        let key = match self.form {
            Form::Ours => secret.try_into().map(Zeroizing::new),
            Form::OpenSsl128 | Form::OpenSsl256 => {
                Ok(derive(b"dormouse tickets", secret, &self.name)?)
            }
        };
        key.ok()
            .and_then(|key| xaes::Key::new(&key).ok())
            .ok_or(SettingsError::BadTicketKeys)
    }

    fn copy_from(&mut self, other: &TicketKey) {
        self.name = other.name;
        self.form = other.form;
        self.secret.copy_from_slice(&other.secret);
    }
}

impl Drop for TicketKey {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

impl TicketKeys {
    /// Maximum number of keys.
    pub const MAX: usize = 8;

    /// Length of the exported form.
    pub const EXPORT_LEN: usize = 1 + 1 + 8 + 4 + 8 + 1 + Self::MAX * KEY_LEN;

    /// Generates keys that rotate every `period_s` from `now` on. With a period equal to the tickets' lifetime,
    /// every ticket stays usable for its whole lifetime.
    pub fn generate(now: UnixTime, period_s: u32) -> Result<TicketKeys, SettingsError> {
        let mut keys = Vec::with_capacity(ROTATING);
        for _ in 0..ROTATING {
            keys.push(TicketKey::random()?);
        }
        Ok(TicketKeys {
            keys,
            schedule: Schedule::Rotating {
                rotates_at_s: now.as_secs().saturating_add(u64::from(period_s)),
                period_s: period_s.max(1),
            },
            since_s: now.as_secs(),
            is_copy: false,
        })
    }

    /// Takes keys of 48 or 80 bytes, as nginx and HAProxy read them. Key number `sealing` seals; all of them
    /// open.
    pub fn fixed(keys: &[&[u8]], sealing: usize) -> Result<TicketKeys, SettingsError> {
        if keys.is_empty() || keys.len() > Self::MAX || sealing >= keys.len() {
            return Err(SettingsError::BadTicketKeys);
        }
        let keys = keys.iter().map(|bytes| {
            let form = match bytes.len() {
                48 => Form::OpenSsl128,
                80 => Form::OpenSsl256,
                _ => return Err(SettingsError::BadTicketKeys),
            };
            let mut key = TicketKey::zeroed(form);
            let mut rest = *bytes;
            key.name = take(&mut rest)?;
            let secret = key.secret.get_mut(..rest.len());
            secret
                .ok_or(SettingsError::BadTicketKeys)?
                .copy_from_slice(rest);
            Ok(key)
        });
        Ok(TicketKeys {
            keys: keys.collect::<Result<_, _>>()?,
            schedule: Schedule::Fixed { sealing },
            since_s: 0,
            is_copy: false,
        })
    }

    /// Called by the owner of the keys: when it is time, makes *next* current and generates a new *next*.
    /// Returns true if the keys changed and must be exported to the other processes.
    ///
    /// After a long pause it rotates several times, so that no key opens tickets beyond its time.
    pub fn rotate_if_due(&mut self, now: UnixTime) -> Result<bool, SettingsError> {
        let now_s = now.as_secs();
        let Schedule::Rotating {
            rotates_at_s,
            period_s,
        } = self.schedule
        else {
            return Ok(false);
        };
        let Some(late_s) = now_s.checked_sub(rotates_at_s) else {
            return Ok(false);
        };
        let periods = 1 + late_s / u64::from(period_s.max(1));
        for _ in 0..periods.min(ROTATING as u64) {
            self.shift()?;
        }
        self.since_s = now_s;
        self.schedule = Schedule::Rotating {
            rotates_at_s: now_s.saturating_add(u64::from(period_s)),
            period_s,
        };
        Ok(true)
    }

    /// Like [`TicketKeys::rotate_if_due`], but at once. Returns false if these keys do not rotate.
    pub fn rotate_now(&mut self, now: UnixTime) -> Result<bool, SettingsError> {
        if let Schedule::Rotating { rotates_at_s, .. } = &mut self.schedule {
            *rotates_at_s = now.as_secs();
        }
        self.rotate_if_due(now)
    }

    fn shift(&mut self) -> Result<(), SettingsError> {
        let fresh = TicketKey::random()?;
        let [previous, current, next] = self.keys.as_mut_slice() else {
            return Err(SettingsError::BadTicketKeys);
        };
        previous.copy_from(current);
        current.copy_from(next);
        next.copy_from(&fresh);
        Ok(())
    }

    /// Returns when they rotate next, in seconds of Unix time; `None` if they are fixed.
    pub fn rotates_at_s(&self) -> Option<u64> {
        match self.schedule {
            Schedule::Rotating { rotates_at_s, .. } => Some(rotates_at_s),
            Schedule::Fixed { .. } => None,
        }
    }

    /// Returns the rotation period; `None` if they are fixed.
    pub fn period_s(&self) -> Option<u32> {
        match self.schedule {
            Schedule::Rotating { period_s, .. } => Some(period_s),
            Schedule::Fixed { .. } => None,
        }
    }

    /// Changes the rotation period. If the next rotation is then due earlier, it happens earlier.
    pub fn set_period(&mut self, now: UnixTime, period: Duration) {
        if let Schedule::Rotating {
            rotates_at_s,
            period_s,
        } = &mut self.schedule
        {
            *period_s = u32::try_from(period.as_secs()).unwrap_or(u32::MAX).max(1);
            let latest_s = now.as_secs().saturating_add(u64::from(*period_s));
            *rotates_at_s = latest_s.min(*rotates_at_s);
        }
    }

    /// Returns when the current key became current; `None` if unknown.
    pub fn since_s(&self) -> Option<u64> {
        (self.since_s > 0).then_some(self.since_s)
    }

    /// Returns the keys as bytes for other processes. These bytes open every ticket and must be kept secret.
    pub fn export(&self) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(Self::EXPORT_LEN));
        let (kind, at, period) = match self.schedule {
            Schedule::Rotating {
                rotates_at_s,
                period_s,
            } => (0, rotates_at_s, period_s),
            Schedule::Fixed { sealing } => (1, sealing as u64, 0),
        };
        bytes.extend_from_slice(&[FORMAT, kind]);
        bytes.extend_from_slice(&at.to_be_bytes());
        bytes.extend_from_slice(&period.to_be_bytes());
        bytes.extend_from_slice(&self.since_s.to_be_bytes());
        bytes.push(self.keys.len() as u8);
        for key in &self.keys {
            bytes.extend_from_slice(&key.name);
            bytes.push(key.form.code());
            bytes.extend_from_slice(&key.secret);
        }
        bytes.resize(Self::EXPORT_LEN, 0);
        bytes
    }

    /// Reads keys that another process exported.
    pub fn import(bytes: &[u8]) -> Result<TicketKeys, SettingsError> {
        let bad = SettingsError::BadTicketKeys;
        if bytes.len() != Self::EXPORT_LEN {
            return Err(bad);
        }
        let mut rest = bytes;
        let [FORMAT, kind] = take(&mut rest)? else {
            return Err(bad);
        };
        let at = u64::from_be_bytes(take(&mut rest)?);
        let period_s = u32::from_be_bytes(take(&mut rest)?);
        let since_s = u64::from_be_bytes(take(&mut rest)?);
        let [count] = take(&mut rest)?;
        let mut keys = Vec::with_capacity(usize::from(count).min(Self::MAX));
        for _ in 0..usize::from(count) {
            let name = take(&mut rest)?;
            let [code] = take(&mut rest)?;
            let form = Form::from_code(code).ok_or(SettingsError::BadTicketKeys)?;
            let mut key = TicketKey::zeroed(form);
            key.name = name;
            let secret: Zeroizing<[u8; SECRET_MAX]> = Zeroizing::new(take(&mut rest)?);
            key.secret.copy_from_slice(secret.as_slice());
            keys.push(key);
        }
        let schedule = match kind {
            0 if keys.len() == ROTATING && period_s > 0 => Schedule::Rotating {
                rotates_at_s: at,
                period_s,
            },
            1 if at < keys.len() as u64 => Schedule::Fixed {
                sealing: at as usize,
            },
            _ => return Err(bad),
        };
        let padding_is_empty = rest.iter().all(|&byte| byte == 0);
        padding_is_empty
            .then_some(TicketKeys {
                keys,
                schedule,
                since_s,
                is_copy: false,
            })
            .ok_or(bad)
    }
}

struct KeyLen;

impl KeyType for KeyLen {
    fn len(&self) -> usize {
        xaes::KEY_LEN
    }
}

/// Derives a key with HKDF-SHA256 (RFC 5869).
pub(super) fn derive(
    salt: &[u8],
    secret: &[u8],
    info: &[u8],
) -> Result<Zeroizing<[u8; xaes::KEY_LEN]>, SettingsError> {
    let mut key = Zeroizing::new([0; xaes::KEY_LEN]);
    Salt::new(HKDF_SHA256, salt)
        .extract(secret)
        .expand(&[info], KeyLen)
        .and_then(|okm| okm.fill(key.as_mut_slice()))
        .map_err(|_| SettingsError::BadTicketKeys)?;
    Ok(key)
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
            .field("schedule", &self.schedule)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: u64 = 1_800_000_000;

    fn at(seconds: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    }

    fn names(keys: &TicketKeys) -> Vec<[u8; NAME_LEN]> {
        keys.keys.iter().map(|key| key.name).collect()
    }

    #[test]
    fn only_exported_bytes_are_imported() {
        let keys = TicketKeys::generate(at(NOW_S), 60).unwrap();
        let bytes = keys.export();
        assert_eq!(bytes.len(), TicketKeys::EXPORT_LEN);
        assert_eq!(*TicketKeys::import(&bytes).unwrap().export(), *bytes);
        for len in 0..bytes.len() {
            assert!(TicketKeys::import(&bytes[..len]).is_err());
        }
        assert!(TicketKeys::import(&[&bytes[..], &[0]].concat()).is_err());
        assert!(!format!("{keys:?}").contains("secret"));
    }

    #[test]
    fn a_long_pause_leaves_no_old_key() {
        for (periods, left) in [(1, 2), (2, 1), (3, 0), (1_000, 0)] {
            let mut keys = TicketKeys::generate(at(NOW_S), 60).unwrap();
            let before = names(&keys);
            assert!(keys.rotate_if_due(at(NOW_S + periods * 60)).unwrap());
            let still = names(&keys)
                .iter()
                .filter(|name| before.contains(name))
                .count();
            assert_eq!(still, left, "after {periods} periods");
            assert_eq!(keys.rotates_at_s(), Some(NOW_S + (periods + 1) * 60));
        }
    }

    #[test]
    fn fixed_keys_have_48_or_80_bytes() {
        let (short, long) = ([1; 48], [2; 80]);
        let keys = TicketKeys::fixed(&[&short, &long], 1).unwrap();
        assert_eq!(keys.rotates_at_s(), None);
        assert_eq!(
            *TicketKeys::import(&keys.export()).unwrap().export(),
            *keys.export()
        );
        assert!(TicketKeys::fixed(&[&[0; 47]], 0).is_err());
        assert!(TicketKeys::fixed(&[&short], 1).is_err());
        assert!(TicketKeys::fixed(&[], 0).is_err());
    }
}
