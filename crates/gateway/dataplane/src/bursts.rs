//! Rate limit of log lines: one line per subject and burst.
//!
//! The first event of a subject is logged at once. Events within the next ten seconds are only
//! counted; the next line has their number in the field `more`.

/// Minimum time between two lines of a subject.
pub(crate) const QUIET_MS: u64 = 10_000;

/// Subject of a log line.
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
    Stalled,
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

/// The last line of each subject, and the events since then.
#[derive(Default)]
pub(crate) struct Bursts {
    bursts: [Burst; SUBJECTS],
}

impl Bursts {
    /// Writes a line or counts the event. `write` receives the number of events counted since the
    /// last line.
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
    fn logs_one_line_per_burst_with_the_count_of_the_one_before() {
        let mut bursts = Bursts::default();
        let mut lines = Vec::new();
        for now_ms in [0, 5, 9_999, 10_000, 10_001, 30_000] {
            bursts.note(Subject::BackendDown, now_ms, |more| {
                lines.push((now_ms, more))
            });
        }
        assert_eq!(lines, vec![(0, 0), (10_000, 2), (30_000, 1)]);
        bursts.note(Subject::Paused, 30_001, |more| lines.push((1, more)));
        assert_eq!(lines.last(), Some(&(1, 0)), "subjects are independent");
    }
}
