//! What the meaning of a value depends on beside its text.

use crate::input::location::Location;
use crate::input::texts::Texts;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Looks up a host name.
pub(crate) type Resolve<'a> = &'a dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// What the meaning of a value depends on.
#[derive(Clone, Copy)]
pub(crate) struct ReadContext<'a> {
    /// Paths are relative to the directory of the text that they stand in.
    pub(crate) texts: Option<&'a Texts>,
    /// Where the value stands that is being read.
    pub(crate) place: Option<usize>,
    /// How host names are looked up.
    pub(crate) resolve: Resolve<'a>,
    /// Whether the machine speaks IPv6, which decides what `:PORT` means.
    pub(crate) ipv6: bool,
}

impl ReadContext<'_> {
    /// For values of the table itself, which have neither paths nor names.
    pub(crate) const NONE: Self = Self {
        texts: None,
        place: None,
        resolve: &|_, _| Err(io::ErrorKind::Unsupported.into()),
        ipv6: true,
    };

    /// The same for a value that stands there.
    pub(crate) fn of(&self, location: &Location) -> Self {
        let place = match location {
            Location::File(span) => Some(span.start),
            Location::Flag(_) | Location::Whole => None,
        };
        Self { place, ..*self }
    }

    /// The path with its base.
    pub(crate) fn path(&self, text: &str) -> PathBuf {
        match self.texts.and_then(|texts| texts.base(self.place)) {
            Some(base) => base.join(text),
            None => PathBuf::from(text),
        }
    }
}
