//! The status socket: whoever may connect gets one JSON document, and nothing is read from them.

use dormouse_reactor::socket::{self, Addr, Attempt, ListenOptions};
use dormouse_reactor::{Fd, OnExec};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The listening socket and its path.
pub(crate) struct StatusSocket {
    fd: Fd,
    path: PathBuf,
}

impl StatusSocket {
    /// Opens it for the owner alone. A socket that a former process left is replaced.
    pub(crate) fn open(path: &Path) -> io::Result<StatusSocket> {
        let fd = socket::listen(&Addr::Unix(path.to_owned()), &ListenOptions::default())?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        Ok(StatusSocket {
            fd,
            path: path.to_owned(),
        })
    }

    pub(crate) fn fd(&self) -> Fd {
        self.fd
    }

    /// Answers everybody who waits. The document fits a socket's buffer; if it does not get
    /// through, the asker gets less.
    pub(crate) fn answer<'a>(
        &self,
        keepers: impl Iterator<Item = Option<i32>>,
        counts: impl Iterator<Item = (&'a str, u64)>,
        ticket_keys: serde_json::Value,
    ) {
        let document = serde_json::json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "keepers": keepers.collect::<Vec<_>>(),
            "counts": counts.map(|(name, value)| (name.to_owned(), value.into()))
                .collect::<serde_json::Map<_, _>>(),
            "ticket_keys": ticket_keys,
        });
        let text = format!("{document:#}\n");
        while let Ok(Attempt::Done(asker)) = socket::accept(self.fd, OnExec::Close) {
            let _ = socket::send(asker.fd, text.as_bytes());
            asker.fd.close();
        }
    }
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
