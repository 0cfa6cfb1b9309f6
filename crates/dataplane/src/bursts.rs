//! One line per burst: the log says what happens, not how often per second.
//!
//! The first event of a subject is logged at once; those which follow within ten seconds are
//! counted, and the count stands in the next line.

/// How long a subject keeps silent after a line.
pub(crate) const QUIET_MS: u64 = 10_000;

/// What a line is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Subject {
    HandshakeFailed,
    ClientRefused,
    HandshakeTimeout,
    ProxyHeader,
    Denied,
    BackendDown,
    BackendTls,
    PartialRecord,
    PacedClient,
    PacedAll,
    Paused,
    Truncated,
    TlsFailed,
    Refused,
    PlainFailed,
    Limit,
}

const SUBJECTS: usize = Subject::Limit as usize + 1;

#[derive(Clone, Copy, Default)]
struct Burst {
    logged_ms: Option<u64>,
    more: u64,
}

/// What was logged when.
#[derive(Default)]
pub(crate) struct Bursts {
    bursts: [Burst; SUBJECTS],
}

impl Bursts {
    /// Writes the line, or counts it. `write` gets how many were not written since the last.
    pub(crate) fn note(&mut self, subject: Subject, now_ms: u64, write: impl FnOnce(u64)) {
        let burst = &mut self.bursts[subject as usize];
        if burst
            .logged_ms
            .is_some_and(|logged_ms| now_ms < logged_ms + QUIET_MS)
        {
            burst.more += 1;
            return;
        }
        write(burst.more);
        *burst = Burst {
            logged_ms: Some(now_ms),
            more: 0,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_one_line_and_its_size_is_in_the_next() {
        let mut bursts = Bursts::default();
        let mut lines = Vec::new();
        for now_ms in [0, 5, 9_999, 10_000, 10_001, 30_000] {
            bursts.note(Subject::BackendDown, now_ms, |more| {
                lines.push((now_ms, more))
            });
        }
        assert_eq!(lines, vec![(0, 0), (10_000, 2), (30_000, 1)]);
        bursts.note(Subject::Paused, 30_001, |more| lines.push((1, more)));
        assert_eq!(
            lines.last(),
            Some(&(1, 0)),
            "subjects do not hide each other"
        );
    }
}
