//! The results of handshakes, shared by connections with equal results.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use dormouse_embed::Issuers;

/// Names and certificates of connections.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Details {
    /// The server name that the client sent, or that we requested.
    pub(crate) server_name: Option<String>,
    /// The application protocol.
    pub(crate) alpn: Option<Vec<u8>>,
    /// The key exchange group.
    pub(crate) group: Option<String>,
    /// The peer's certificates, DER, its own first.
    pub(crate) peer: Vec<Vec<u8>>,
    /// The certificates that were trusted then.
    pub(crate) issuers: Option<TrustedIssuers>,
}

/// The trusted certificates of a context, which are equal only to themselves.
#[derive(Debug, Clone)]
pub(crate) struct TrustedIssuers(pub(crate) Arc<Issuers>);

impl PartialEq for TrustedIssuers {
    fn eq(&self, other: &TrustedIssuers) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for TrustedIssuers {}

impl Hash for TrustedIssuers {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

/// Entries without connections are removed when the map has doubled since the last removal.
struct Known {
    map: HashMap<Details, Weak<Details>>,
    clean_at: usize,
}

const CLEAN_MIN: usize = 64;

thread_local! {
    static KNOWN: RefCell<Known> = RefCell::new(Known {
        map: HashMap::new(),
        clean_at: CLEAN_MIN,
    });
}

impl Details {
    /// Returns the shared details equal to these. `None`: all of them are empty.
    pub(crate) fn shared(self) -> Option<Rc<Details>> {
        if self == Details::default() {
            return None;
        }
        KNOWN.with_borrow_mut(|known| {
            if let Some(found) = known.map.get(&self).and_then(Weak::upgrade) {
                return Some(found);
            }
            if known.map.len() >= known.clean_at {
                known.map.retain(|_, details| details.strong_count() > 0);
                known.map.shrink_to_fit();
                known.clean_at = CLEAN_MIN.max(2 * known.map.len());
            }
            let details = Rc::new(self);
            // The key is a copy; few connections have details of their own.
            known
                .map
                .insert(Details::clone(&details), Rc::downgrade(&details));
            Some(details)
        })
    }
}
