//! Sessions that a client resumes, in the form that JavaScript keeps.
//!
//! ```text
//! | version 1 | problem 1 | name's length 1 | name | the engine's session |
//! ```
//!
//! The name and the problem are those of the connection that began the session: its server was verified then,
//! and is not verified again.

use std::sync::{Mutex, MutexGuard, PoisonError};

use dormouse_embed::{ResumableSession, SessionStore, UnixTime};
use zeroize::Zeroizing;

use crate::errors::{self, Result};

const VERSION: u8 = 1;

/// The session that a connection resumes, and the newest one that it has received.
#[derive(Debug, Default)]
pub(crate) struct OneSession {
    name: String,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    offered: Option<ResumableSession>,
    received: Option<ResumableSession>,
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Kept")
    }
}

impl OneSession {
    /// `name`: the server's.
    pub(crate) fn new(name: String, offered: Option<ResumableSession>) -> OneSession {
        let received = None;
        OneSession {
            name,
            kept: Mutex::new(Kept { offered, received }),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the newest session, as bytes for JavaScript.
    pub(crate) fn take_received(&self, problem: u8) -> Option<Zeroizing<Vec<u8>>> {
        let name = &self.name;
        let session = self.kept().received.take()?;
        let name_len = u8::try_from(name.len()).ok()?;
        let room = 3 + name.len() + session.bytes().len();
        let mut bytes = Zeroizing::new(Vec::with_capacity(room));
        bytes.extend([VERSION, problem, name_len]);
        bytes.extend(name.as_bytes());
        bytes.extend(session.bytes());
        Some(bytes)
    }

    /// Whether a received session was not taken yet.
    pub(crate) fn has_received(&self) -> bool {
        self.kept().received.is_some()
    }
}

impl SessionStore for OneSession {
    fn take(&self, _: UnixTime) -> Option<(u64, ResumableSession)> {
        self.kept().offered.take().map(|session| (0, session))
    }

    fn begin(&self, _: UnixTime) -> u64 {
        1
    }

    fn put(&self, _: u64, session: &ResumableSession) -> bool {
        self.kept().received = Some(session.clone());
        true
    }
}

/// A session from JavaScript, and the problem with its server.
pub(crate) struct Offered {
    pub(crate) session: ResumableSession,
    pub(crate) problem: u8,
}

/// Reads bytes from [`OneSession::take_received`]. `None`: the session is for another name.
pub(crate) fn read(bytes: &[u8], name: &str) -> Result<Option<Offered>> {
    let wrong =
        || errors::argument("options.session: these bytes are not a session of this package");
    let ([version, problem, name_len], rest) = bytes.split_first_chunk::<3>().ok_or_else(wrong)?;
    if *version != VERSION {
        return Err(wrong());
    }
    let (of, session) = rest
        .split_at_checked(usize::from(*name_len))
        .ok_or_else(wrong)?;
    let session = ResumableSession::from_bytes(session).ok_or_else(wrong)?;
    if of != name.as_bytes() {
        return Ok(None);
    }
    Ok(Some(Offered {
        session,
        problem: *problem,
    }))
}
