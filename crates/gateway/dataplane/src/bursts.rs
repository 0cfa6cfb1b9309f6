//! Rate limit of log lines: one line per subject, place and burst. A dead backend of one route hides no other one.
//!
//! The first event of a subject at a place is logged at once. Events within the next ten seconds are only
//! counted; the next line has their number in the field `more`.

use std::collections::BTreeMap;

/// Minimum time between two lines of a subject and place.
pub(crate) const QUIET_MS: u64 = 10_000;

/// Maximum number of subjects and places with their own limits. Others share those of their subjects.
const BURSTS_MAX: usize = 512;

/// Subject of a log line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Subject {
    HandshakeFailed,
    ClientRefused,
    HandshakeTimeout,
    ProxyHeader,
    Denied,
    DeniedRouteConnections,
    DeniedRouteRate,
    DeniedRouteMemory,
    BackendDown,
    BackendMarked,
    BackendRecovered,
    BackendTls,
    ConnectionLog,
    PartialRecord,
    Stalled,
    PacedClient,
    PacedAll,
    PacedRoute,
    Paused,
    Truncated,
    TlsFailed,
    Refused,
    PlainFailed,
    Limit,
}

/// Where it happened.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Place {
    /// Not at one of several routes or backends.
    Program,
    /// The route with this number.
    Route(u16),
    /// The backend whose address has this hash.
    Backend(u64),
}

impl Place {
    /// The place of a handshake, which may have no route yet.
    pub(crate) fn of_route(number: Option<u16>) -> Place {
        number.map_or(Place::Program, Place::Route)
    }

    /// The place of the backend with this address.
    pub(crate) fn of_backend(address: &str) -> Place {
        Place::Backend(dormouse_tables::hash::of_text(address))
    }
}

#[derive(Clone, Copy)]
struct Burst {
    logged_ms: u64,
    more: u64,
}

/// The last line of each subject and place, and the events since then.
#[derive(Default)]
pub(crate) struct Bursts {
    bursts: BTreeMap<(Subject, Place), Burst>,
}

impl Bursts {
    /// Writes a line or counts the event. `write` receives the number of events counted since the
    /// last line.
    pub(crate) fn note(
        &mut self,
        subject: Subject,
        place: Place,
        now_ms: u64,
        write: impl FnOnce(u64),
    ) {
        let is_recent = |burst: &Burst| now_ms < burst.logged_ms + QUIET_MS;
        let mut key = (subject, place);
        if self.bursts.len() >= BURSTS_MAX && !self.bursts.contains_key(&key) {
            self.bursts.retain(|_, burst| is_recent(burst));
            if self.bursts.len() >= BURSTS_MAX {
                key = (subject, Place::Program);
            }
        }
        let mut more = 0;
        if let Some(burst) = self.bursts.get_mut(&key) {
            if is_recent(burst) {
                burst.more += 1;
                return;
            }
            more = burst.more;
        }
        write(more);
        let burst = Burst {
            logged_ms: now_ms,
            more: 0,
        };
        self.bursts.insert(key, burst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines that these events write, with their times and the numbers of events before them.
    fn lines(bursts: &mut Bursts, place: Place, events: &[u64]) -> Vec<(u64, u64)> {
        let mut lines = Vec::new();
        for &now_ms in events {
            bursts.note(Subject::BackendDown, place, now_ms, |more| {
                lines.push((now_ms, more))
            });
        }
        lines
    }

    #[test]
    fn logs_one_line_per_burst_with_the_count_of_the_one_before() {
        let mut bursts = Bursts::default();
        let events = [0, 5, 9_999, 10_000, 10_001, 30_000];
        let logged = lines(&mut bursts, Place::Program, &events);
        assert_eq!(logged, [(0, 0), (10_000, 2), (30_000, 1)]);
        let mut others = 0;
        bursts.note(Subject::Paused, Place::Program, 30_001, |_| others += 1);
        assert_eq!(others, 1, "subjects are independent");
        for place in [Place::Route(0), Place::Route(1), Place::of_backend("a")] {
            let logged = lines(&mut bursts, place, &[30_001, 30_002]);
            assert_eq!(logged, [(30_001, 0)], "places are independent");
        }
    }

    #[test]
    fn more_places_than_have_room_share_a_limit() {
        let mut bursts = Bursts::default();
        for number in 0..BURSTS_MAX as u16 {
            let logged = lines(&mut bursts, Place::Route(number), &[0]);
            assert_eq!(logged, [(0, 0)]);
        }
        for (number, logged) in [(1_000, 1), (1_001, 0), (3, 0)] {
            let lines = lines(&mut bursts, Place::Route(number), &[5]);
            assert_eq!(lines.len(), logged, "{number}");
        }
        assert!(bursts.bursts.len() <= BURSTS_MAX + 1);
        // Those of the last burst make room.
        let logged = lines(&mut bursts, Place::Route(1_001), &[10_000]);
        assert_eq!(logged, [(10_000, 0)]);
        assert_eq!(bursts.bursts.len(), 2);
    }
}
