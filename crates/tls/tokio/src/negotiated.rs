//! What a handshake agreed on. Connections that agreed on the same share it.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use dormouse_embed::{Exporter, HandshakeInfo, Version};

/// What a handshake agreed on.
///
/// Connections with the same server name, protocols and certificates share it, so that it takes no memory of its own. A
/// server that asks for certificates keeps one for each client.
#[derive(Debug, PartialEq, Eq)]
pub struct Negotiated {
    pub(crate) agreed: Agreed,
    exporter: Option<Arc<Exporter>>,
}

/// The part that connections can have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Agreed {
    pub(crate) is_tls13: bool,
    pub(crate) suite: &'static str,
    pub(crate) is_resumed: bool,
    pub(crate) alpn: Option<Vec<u8>>,
    pub(crate) server_name: Option<String>,
    pub(crate) peer_certificates: Vec<Vec<u8>>,
}

static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
static SHARED: LazyLock<Mutex<HashMap<u64, Weak<Negotiated>>>> = LazyLock::new(Mutex::default);

impl Negotiated {
    /// The version of TLS.
    pub fn protocol_version(&self) -> Version {
        match self.agreed.is_tls13 {
            true => Version::Tls13,
            false => Version::Tls12,
        }
    }

    /// The cipher suite's IANA name.
    pub fn cipher_suite(&self) -> &'static str {
        self.agreed.suite
    }

    /// The application protocol.
    pub fn alpn_protocol(&self) -> Option<&[u8]> {
        self.agreed.alpn.as_deref()
    }

    /// The server name: sent by the client (server side), or requested by us (client side).
    pub fn server_name(&self) -> Option<&str> {
        self.agreed.server_name.as_deref()
    }

    /// The peer's certificates, DER, its own first; empty if it sent none. They are verified, unless the context says
    /// otherwise.
    pub fn peer_certificates(&self) -> &[Vec<u8>] {
        &self.agreed.peer_certificates
    }

    /// Whether an earlier session was resumed.
    pub fn is_resumed(&self) -> bool {
        self.agreed.is_resumed
    }

    /// Exports keying material (RFC 5705), if the context enables it.
    pub fn exporter(&self) -> Option<&Exporter> {
        self.exporter.as_deref()
    }

    pub(crate) fn of(info: HandshakeInfo) -> Arc<Negotiated> {
        let agreed = Agreed {
            is_tls13: info.protocol == Version::Tls13,
            suite: info.suite,
            is_resumed: info.resumed,
            alpn: info.alpn,
            server_name: info.sni,
            peer_certificates: info.peer_certificates,
        };
        match info.exporter {
            None => Negotiated::shared(agreed),
            exporter => Arc::new(Negotiated { agreed, exporter }),
        }
    }

    pub(crate) fn shared(agreed: Agreed) -> Arc<Negotiated> {
        let hash = HASHER.hash_one(&agreed);
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let found = shared.get(&hash).and_then(Weak::upgrade);
        if let Some(found) = found.as_ref().filter(|one| one.agreed == agreed) {
            return Arc::clone(found);
        }
        let new = Arc::new(Negotiated {
            agreed,
            exporter: None,
        });
        shared.insert(hash, Arc::downgrade(&new));
        // Dropped before `found`, which takes the lock if it is the last reference.
        drop(shared);
        new
    }
}

impl Drop for Negotiated {
    fn drop(&mut self) {
        if self.exporter.is_some() {
            return;
        }
        let hash = HASHER.hash_one(&self.agreed);
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if (shared.get(&hash)).is_some_and(|one| one.strong_count() == 0) {
            shared.remove(&hash);
            if shared.capacity() > 4 * shared.len() {
                shared.shrink_to_fit();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agreed(name: &str) -> Agreed {
        Agreed {
            is_tls13: true,
            suite: "TLS_AES_128_GCM_SHA256",
            is_resumed: false,
            alpn: Some(b"h2".to_vec()),
            server_name: Some(name.to_owned()),
            peer_certificates: Vec::new(),
        }
    }

    #[test]
    fn equal_ones_are_one_and_the_table_keeps_none() {
        let one = Negotiated::shared(agreed("one.test"));
        let same = Negotiated::shared(agreed("one.test"));
        let other = Negotiated::shared(agreed("other.test"));
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
        let is_kept = |name| {
            let hash = HASHER.hash_one(agreed(name));
            SHARED.lock().unwrap().contains_key(&hash)
        };
        drop(one);
        assert!(is_kept("one.test"));
        drop((same, other));
        assert!(!is_kept("one.test") && !is_kept("other.test"));
    }
}
