//! What the meaning of a value depends on beside its text.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Looks up a host name.
pub(crate) type Resolve<'a> = &'a dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// What the meaning of a value depends on.
#[derive(Clone, Copy)]
pub(crate) struct ReadContext<'a> {
    /// Paths are relative to this directory.
    pub(crate) base: Option<&'a Path>,
    /// How host names are looked up.
    pub(crate) resolve: Resolve<'a>,
    /// Whether the machine speaks IPv6, which decides what `:PORT` means.
    pub(crate) ipv6: bool,
}

impl ReadContext<'_> {
    /// For values of the table itself, which have neither paths nor names.
    pub(crate) const NONE: Self = Self {
        base: None,
        resolve: &|_, _| Err(io::ErrorKind::Unsupported.into()),
        ipv6: true,
    };

    /// The path with its base.
    pub(crate) fn path(&self, text: &str) -> PathBuf {
        match self.base {
            Some(base) => base.join(text),
            None => PathBuf::from(text),
        }
    }
}
