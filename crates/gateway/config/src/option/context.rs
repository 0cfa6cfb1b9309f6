//! What reading a value depends on, besides its text.

use crate::mistakes::location::Location;
use crate::mistakes::texts::Texts;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Looks up a host name.
pub(crate) type Resolve<'a> = &'a dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// What reading a value depends on.
#[derive(Clone, Copy)]
pub(crate) struct ReadContext<'a> {
    /// The texts: a path is relative to the directory of the text that has it.
    pub(crate) texts: Option<&'a Texts>,
    /// Offset of the value that is being read, if it is in a file.
    pub(crate) place: Option<usize>,
    /// How host names are looked up.
    pub(crate) resolve: Resolve<'a>,
    /// Whether a name in `to` may stay without addresses (`resolve = "lazy"`).
    pub(crate) is_lazy: bool,
    /// Whether the machine speaks IPv6, which decides what `:PORT` means.
    pub(crate) ipv6: bool,
}

impl ReadContext<'_> {
    /// Context for defaults and bounds in the table of options, which have neither paths nor host
    /// names.
    pub(crate) const NONE: Self = Self {
        texts: None,
        place: None,
        resolve: &|_, _| Err(io::ErrorKind::Unsupported.into()),
        is_lazy: false,
        ipv6: true,
    };

    /// Returns the context of a value at this location.
    pub(crate) fn of(&self, location: &Location) -> Self {
        let place = location.offset();
        Self { place, ..*self }
    }

    /// Returns the path, joined to the directory that it is relative to.
    pub(crate) fn path(&self, text: &str) -> PathBuf {
        let base = self.texts.and_then(|texts| texts.base(self.place));
        base.unwrap_or(Path::new("")).join(text)
    }
}
