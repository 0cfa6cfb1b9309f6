//! The certificates of peers. Connections to the same server get the same chain, and share it.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

/// A chain, DER, the peer's own certificate first.
pub(crate) struct PeerChain {
    hash: u64,
    certificates: Vec<Vec<u8>>,
}

static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
static IN_USE: LazyLock<Mutex<HashMap<u64, Weak<PeerChain>>>> = LazyLock::new(Mutex::default);

impl PeerChain {
    /// The chain of these certificates. `None`: there are none.
    pub(crate) fn of(certificates: Vec<Vec<u8>>) -> Option<Arc<PeerChain>> {
        if certificates.is_empty() {
            return None;
        }
        let hash = HASHER.hash_one(&certificates);
        let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        let found = in_use.get(&hash).and_then(Weak::upgrade);
        if found
            .as_ref()
            .is_some_and(|chain| chain.certificates == certificates)
        {
            return found;
        }
        let chain = Arc::new(PeerChain { hash, certificates });
        in_use.insert(hash, Arc::downgrade(&chain));
        // Dropped before `found`, which takes the lock if it is the last reference.
        drop(in_use);
        Some(chain)
    }

    pub(crate) fn certificates(&self) -> &[Vec<u8>] {
        &self.certificates
    }
}

impl Drop for PeerChain {
    fn drop(&mut self) {
        let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        let is_gone = |chain: &Weak<PeerChain>| chain.strong_count() == 0;
        if in_use.get(&self.hash).is_some_and(is_gone) {
            in_use.remove(&self.hash);
        }
    }
}
