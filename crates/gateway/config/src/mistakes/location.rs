//! Where something was written.

use std::ops::Range;

/// Where something was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// These bytes of the files ([`Texts`](crate::mistakes::texts::Texts)).
    File(Range<usize>),
    /// The flag of this name.
    Flag(String),
    /// The configuration as a whole, or the table of options.
    Whole,
}

impl Location {
    /// Returns the offset of its first byte in the files.
    pub(crate) fn offset(&self) -> Option<usize> {
        match self {
            Location::File(span) => Some(span.start),
            Location::Flag(_) | Location::Whole => None,
        }
    }
}
