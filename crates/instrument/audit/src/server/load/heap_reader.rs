//! What the audit can read of a server's heap in the time that it has.

use std::time::Duration;

use dormouse_census::Snapshot;

/// How the server's heap is read. The first connections show it; a reader that fails is not tried again.
#[derive(Default)]
pub(super) struct HeapReader {
    /// Whether the server's runtime collects garbage.
    pub(super) collects: bool,
    /// Why its blocks in use are not counted.
    pub(super) no_census: Option<String>,
    /// Whether there is time for a census after each round.
    pub(super) counts_rounds: bool,
    pub(super) collection: Collection,
    /// Duration of a collection with a count by class, which may take much longer than one without.
    pub(super) classes_took: Duration,
}

/// Collections that a server's runtimes make for the audit.
#[derive(Clone, Copy, Default)]
pub(super) enum Collection {
    /// They make none.
    #[default]
    Never,
    /// Each takes so long.
    Takes(Duration),
    /// Each takes too long for the time limit.
    TooSlow,
}

impl Collection {
    pub(super) fn took(self) -> Option<Duration> {
        match self {
            Self::Takes(took) => Some(took),
            Self::Never | Self::TooSlow => None,
        }
    }
}

/// Bytes in use, where a census counts all of them.
pub(super) fn counted(snapshot: Option<&Snapshot>) -> Option<u64> {
    let snapshot = snapshot.filter(|it| it.unread.is_empty() && it.uncounted == 0)?;
    Some(snapshot.used_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The heap of a worker may change during each attempt to read it: memory did not shrink then.
    #[test]
    fn bytes_in_use_are_those_of_all_processes() {
        let mut snapshot = Snapshot {
            in_use_bytes: 5_000_000,
            ..Snapshot::default()
        };
        assert_eq!(counted(Some(&snapshot)), Some(5_000_000));
        snapshot.uncounted = 1;
        assert_eq!(counted(Some(&snapshot)), None);
    }
}
