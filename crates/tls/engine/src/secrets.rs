//! Buffers for secrets that pass between rustls and a handshake.

use zeroize::Zeroize;

use crate::call_scope::{Facts, Subject};

/// The longest traffic secret: SHA-384.
const SECRET_MAX: usize = 48;

/// Buffer for a traffic secret; wiped when dropped.
pub(crate) struct Secret {
    bytes: [u8; SECRET_MAX],
    len: usize,
}

impl Secret {
    pub(crate) const fn empty() -> Secret {
        Secret {
            bytes: [0; SECRET_MAX],
            len: 0,
        }
    }

    pub(crate) fn of(secret: &[u8]) -> Secret {
        let mut room = Secret::empty();
        room.write(secret);
        room
    }

    /// Writes a secret. One that is too long for any TLS 1.3 suite leaves the buffer empty, which is refused
    /// later.
    pub(crate) fn write(&mut self, secret: &[u8]) {
        self.bytes.zeroize();
        self.len = 0;
        if let Some(room) = self.bytes.get_mut(..secret.len()) {
            room.copy_from_slice(secret);
            self.len = secret.len();
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}

/// The session secrets that the wrapped provider derives.
#[derive(Default)]
pub(crate) struct SessionSecrets {
    /// The master secret of TLS 1.2.
    pub(crate) master: Derivation,
    /// A ticket's key in TLS 1.3.
    pub(crate) psk: Derivation,
}

impl Facts for SessionSecrets {
    const SUBJECT: Subject = Subject::SessionSecrets;
}

/// How the wrapped provider handles a secret that it derives.
#[derive(Default)]
pub(crate) enum Derivation {
    /// Leaves it unchanged.
    #[default]
    Unchanged,
    /// Copies it here.
    Captured(Secret),
    /// Replaces it with this secret.
    Replaced(Secret),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlong_secret_is_not_stored() {
        let mut secret = Secret::empty();
        secret.write(&[7; 32]);
        secret.write(&[7; 49]);
        assert!(secret.bytes().is_empty());
        assert_eq!(secret.bytes, [0; SECRET_MAX]);
    }
}
