//! Growth of garbage-collected runtimes: only memory that survives a collection can be a leak.
//!
//! From outside, garbage that is not collected yet looks like a leak, and so does a compiler that warms up. Therefore
//! only growth that remains after full collections, round by round, is called a leak. If the runtime could not be
//! asked to collect, the finding states the measurements and no more.

use super::catalogue::FindingId;
use super::finding::{Confidence, Severity};
use super::units::{bytes, whole};
use crate::model::GROWTH_BYTES;
use crate::model::{CollectedPoint, CollectedRounds, MemoryFigures};
use dormouse_measure::{Growth, Verdict};

/// Classes of which every connection has an instance and that nothing else needs.
const OF_CONNECTIONS: [&str; 6] = [
    "SSLEngine",
    "SSLSocketImpl",
    "SslHandler",
    "SocketChannel",
    "TLSSocket",
    "TLSWrap",
];
/// Class of a session in a JVM.
const OF_SESSIONS: &str = "SSLSession";
/// Objects per connection above which a class counts as allocated for every connection.
const EACH: f64 = 0.5;
/// Growth per round below which there is no finding, whatever the growth per connection.
pub(super) const GROWTH_PER_ROUND: f64 = 50_000.0;
/// Share of the growth that may remain if the growth was garbage.
const GIVEN_BACK: f64 = 0.1;

/// Growth of a garbage-collected heap and its likely cause.
pub(super) struct CollectedGrowth {
    pub(super) id: FindingId,
    pub(super) severity: Severity,
    pub(super) cause: String,
    pub(super) confidence: Confidence,
    /// Bytes of growth per connection, where they are known more exactly than from the whole process's memory.
    pub(super) per_connection: Option<f64>,
    /// Measurements besides the growth itself.
    pub(super) measured: String,
}

/// Judges the growth. `None`: it was garbage, or the heap had not reached its size yet. If the process's memory does
/// not clearly grow, a leak of objects that survive collections is still reported.
pub(super) fn judge(
    memory: &MemoryFigures,
    growth: &Growth,
    grows: bool,
) -> Option<CollectedGrowth> {
    look(memory, growth).filter(|kept| grows || kept.severity > Severity::Low)
}

fn look(memory: &MemoryFigures, growth: &Growth) -> Option<CollectedGrowth> {
    let Some(collected) = memory.growth_collected.value() else {
        let why = memory.growth_collected.why_not().unwrap_or("?");
        return Some(unknown(format!("what outlives a collection: {why}")));
    };
    match &collected.by {
        Some(by) => asked(by, collected),
        None => unasked(memory, growth, collected),
    }
}

/// Judges a runtime that was asked to collect before each point.
fn asked(by: &str, collected: &CollectedRounds) -> Option<CollectedGrowth> {
    let living = growth_of(collected, |point| point.living_bytes);
    let blocks = growth_of(collected, |point| point.in_use_bytes);
    let memory = growth_of(collected, |point| Some(point.pss_bytes))?;
    let rounds = collected.points.len();
    let living_words = living.as_ref().map(|living| {
        span(
            living,
            &format!("objects that outlive a collection by {by}"),
        )
    });
    if let Some(living) = living.as_ref().filter(|living| grows(living)) {
        let per_connection = living.bytes_per_connection()?;
        let (id, cause) = whose(collected);
        return Some(CollectedGrowth {
            id,
            severity: Severity::High,
            cause,
            confidence: Confidence::High,
            per_connection: Some(per_connection),
            measured: format!(
                "after each of {rounds} more rounds, {}: {} per connection{}",
                living_words.unwrap_or_default(),
                bytes(per_connection),
                classes(collected)
            ),
        });
    }
    let rise = |growth: &Growth| growth.slope.map_or(0.0, |slope| slope.per_unit);
    if let Some(blocks) =
        blocks.filter(|blocks| grows(blocks) && rise(&memory) > 0.5 * rise(blocks))
    {
        return Some(CollectedGrowth {
            id: FindingId::LeakPerConnection,
            severity: Severity::High,
            cause: "after full collections the runtime's own objects do not become more, but blocks of the C library do: native memory of connections which nobody frees".into(),
            confidence: Confidence::Medium,
            per_connection: blocks.bytes_per_connection(),
            measured: format!(
                "after each of {rounds} more rounds, {}",
                span(&blocks, "blocks of malloc")
            ),
        });
    }
    if !grows(&memory) {
        return None;
    }
    Some(CollectedGrowth {
        measured: format!(
            "after each of {rounds} more rounds, {}",
            living_words.unwrap_or_default()
        ),
        cause: "no leak: what outlives a full collection does not grow. It is the heap that the runtime has not used yet, or its compiled code".into(),
        ..unknown(String::new())
    })
}

/// Judges a runtime that could not be asked to collect, by whether its memory falls by itself.
fn unasked(
    memory: &MemoryFigures,
    growth: &Growth,
    collected: &CollectedRounds,
) -> Option<CollectedGrowth> {
    let first = growth.rounds.first()?.1;
    let last = growth.rounds.last()?.1;
    let resumed = memory.growth_resumed.value();
    let resumed = resumed.into_iter().flat_map(|growth| growth.rounds.iter());
    let later = collected.points.iter().map(|point| point.pss_bytes as f64);
    let least = later.chain(resumed.map(|round| round.1)).reduce(f64::min)?;
    if least <= first + GIVEN_BACK * (last - first) {
        return None;
    }
    // Only the later half of the rounds counts: by then, a heap that grows to its size has reached it.
    let later = collected.points.len() / 2;
    let later: Vec<_> = collected.points.iter().skip(later).collect();
    let later: Vec<_> = later.iter().map(|point| point.pss_bytes).collect();
    let later = Growth::judge(&later, collected.connections_per_round);
    if !grows(&later) {
        return None;
    }
    let more = collected.points.len() as u64 * collected.connections_per_round;
    Some(unknown(format!(
        "it goes on for {} more connections, and nobody could be asked to collect",
        whole(more as f64)
    )))
}

fn unknown(measured: String) -> CollectedGrowth {
    CollectedGrowth {
        id: FindingId::GrowsUnderChurn,
        severity: Severity::Low,
        cause: "garbage which was not collected yet, the heap of a runtime that grows to its size, its compiled code; or a leak. It was not seen to collect, so these can't be told apart; more rounds (--thorough) may".into(),
        confidence: Confidence::Low,
        per_connection: None,
        measured,
    }
}

fn growth_of(
    collected: &CollectedRounds,
    of: fn(&CollectedPoint) -> Option<u64>,
) -> Option<Growth> {
    let points: Option<Vec<u64>> = collected.points.iter().map(of).collect();
    let growth = Growth::judge(&points?, collected.connections_per_round);
    growth.slope.is_some().then_some(growth)
}

/// Whether the growth is large enough for a finding, and certain.
fn grows(growth: &Growth) -> bool {
    growth.verdict == Verdict::Grows
        && growth.bytes_per_connection() > Some(GROWTH_BYTES)
        && growth
            .slope
            .is_some_and(|slope| slope.per_unit > GROWTH_PER_ROUND && slope.is_sure())
}

/// `objects: 12 MB → 15 MB`.
fn span(growth: &Growth, what: &str) -> String {
    let ends = growth.rounds.first().zip(growth.rounds.last());
    let ends = ends.map(|(first, last)| format!(": {} → {}", bytes(first.1), bytes(last.1)));
    format!("{what}{}", ends.unwrap_or_default())
}

/// Derives the cause from the classes that grew: connections or sessions.
fn whose(collected: &CollectedRounds) -> (FindingId, String) {
    // The classes were compared between the second and the last point.
    let rounds = collected.points.len().saturating_sub(2) as u64;
    let connections = (rounds * collected.connections_per_round).max(1) as f64;
    let each = |parts: &[&str]| {
        collected.grown.iter().find(|(class, had, has, _)| {
            parts.iter().any(|part| class.contains(part))
                && has.saturating_sub(*had) as f64 > EACH * connections
        })
    };
    if let Some((class, ..)) = each(&OF_CONNECTIONS) {
        let cause = format!(
            "connections that are closed are still held: there is one {class} more for each, after full collections"
        );
        return (FindingId::LeakPerConnection, cause);
    }
    if let Some((class, ..)) = each(&[OF_SESSIONS]) {
        let cause = format!(
            "sessions: one {class} more for each connection, after full collections, and nothing of connections: a cache without a bound, or one that is not full yet"
        );
        return (FindingId::SessionCacheGrows, cause);
    }
    let cause = "something of each connection is never let go: it outlives full collections, and it is neither connections nor sessions of the TLS library";
    (FindingId::LeakPerConnection, cause.into())
}

/// Describes the class that grew most.
fn classes(collected: &CollectedRounds) -> String {
    let Some((class, had, has, more)) = collected.grown.first() else {
        return String::new();
    };
    format!(
        "; most of it in objects of {class}: {} → {}, {} more",
        whole(*had as f64),
        whole(*has as f64),
        bytes(*more as f64)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Measured;

    /// Creates figures in which the rounds took this many bytes, the first round excluded.
    fn memory(rounds: &[u64], collected: Measured<CollectedRounds>) -> (MemoryFigures, Growth) {
        let all: Vec<u64> = rounds.first().into_iter().chain(rounds).copied().collect();
        let growth = Growth::judge(&all, 250);
        let memory = MemoryFigures {
            growth: Measured::Value(growth.clone()),
            growth_collected: collected,
            ..MemoryFigures::not_measured()
        };
        (memory, growth)
    }

    fn collected(by: Option<&str>, points: &[(u64, Option<u64>, Option<u64>)]) -> CollectedRounds {
        let point = |&(pss_bytes, living_bytes, in_use_bytes): &_| CollectedPoint {
            pss_bytes,
            living_bytes,
            in_use_bytes,
        };
        CollectedRounds {
            by: by.map(str::to_owned),
            points: points.iter().map(point).collect(),
            connections_per_round: 250,
            grown: Vec::new(),
        }
    }

    fn judged(
        rounds: &[u64],
        collected: CollectedRounds,
    ) -> Option<(FindingId, Severity, Confidence)> {
        let (memory, growth) = memory(rounds, Measured::Value(collected));
        let kept = judge(&memory, &growth, true)?;
        Some((kept.id, kept.severity, kept.confidence))
    }

    /// Netty with the JDK's engine and default settings, which was wrongly called a leak: 0.16 MB more in each round.
    /// The rounds are from a recorded audit; the figures for live objects below are invented.
    const NETTY: [u64; 4] = [377_461_760, 377_687_040, 377_810_944, 377_948_160];

    #[test]
    fn a_jvm_that_warms_up_has_no_leak() {
        let living = [9_810_000, 9_822_000, 9_818_000, 9_825_000, 9_820_000];
        let blocks = [12_343_184, 31_426_336, 25_434_816, 31_002_112, 27_110_400];
        let points: Vec<_> = (0..5)
            .map(|i| {
                (
                    378_050_000 + 130_000 * i as u64,
                    Some(living[i]),
                    Some(blocks[i]),
                )
            })
            .collect();
        let of = judged(&NETTY, collected(Some("the JVM"), &points));
        assert_eq!(
            of,
            Some((FindingId::GrowsUnderChurn, Severity::Low, Confidence::Low))
        );
        // A heap whose objects were not counted gives no proof of a leak either.
        let (memory, growth) = memory(&NETTY, Measured::not("jcmd is missing"));
        assert!(judge(&memory, &growth, false).is_none());
        let kept = judge(&memory, &growth, true).unwrap();
        assert_eq!(
            (kept.id, kept.severity),
            (FindingId::GrowsUnderChurn, Severity::Low)
        );
        assert!(
            kept.measured.contains("jcmd is missing"),
            "{}",
            kept.measured
        );
    }

    #[test]
    fn what_outlives_collections_is_a_leak_and_its_classes_say_of_what() {
        let points: Vec<_> = (0..5)
            .map(|i| (378_000_000, Some(9_800_000 + 505_000 * i), Some(30_000_000)))
            .collect();
        let mut leak = collected(Some("the JVM"), &points);
        let high = |id| Some((id, Severity::High, Confidence::High));
        // The leak is also found in a heap so large that the process's memory does not show it.
        let (flat, none) = memory(&[378_000_000; 4], Measured::Value(leak.clone()));
        let kept = judge(&flat, &none, false).unwrap();
        assert_eq!(
            (kept.id, kept.per_connection),
            (FindingId::LeakPerConnection, Some(2020.0))
        );
        assert_eq!(
            judged(&NETTY, leak.clone()),
            high(FindingId::LeakPerConnection)
        );
        leak.grown = vec![
            ("[B".into(), 9_000, 10_500, 900_000),
            ("sun.security.ssl.SSLSessionImpl".into(), 500, 1250, 200_000),
        ];
        assert_eq!(
            judged(&NETTY, leak.clone()),
            high(FindingId::SessionCacheGrows)
        );
        let engine = "sun.security.ssl.SSLEngineImpl".into();
        leak.grown.push((engine, 500, 1250, 60_000));
        assert_eq!(judged(&NETTY, leak), high(FindingId::LeakPerConnection));
    }

    #[test]
    fn native_memory_that_nobody_frees_is_a_leak_of_a_jvm_too() {
        let points: Vec<_> = (0..5)
            .map(|i| {
                let more = 2_600_000 * i;
                (378_000_000 + more, Some(9_800_000), Some(30_000_000 + more))
            })
            .collect();
        let of = judged(&NETTY, collected(Some("the JVM"), &points));
        assert_eq!(
            of,
            Some((
                FindingId::LeakPerConnection,
                Severity::High,
                Confidence::Medium
            ))
        );
    }

    /// Go's io.Copy: 12 MB more in each round of a recorded audit. The later points are invented: memory grows on
    /// until the runtime collects.
    #[test]
    fn who_collects_by_itself_has_no_leak() {
        let go = [141_450_240, 152_166_400, 164_904_960, 177_496_064];
        let goes_on = |i: u64| (177_496_064 + 12_000_000 * i, None, None);
        let mut points: Vec<_> = (1..=15).map(goes_on).collect();
        let low = Some((FindingId::GrowsUnderChurn, Severity::Low, Confidence::Low));
        assert_eq!(judged(&go, collected(None, &points)), low);
        points.push((15_550_000, None, None));
        assert_eq!(judged(&go, collected(None, &points)), None);
        // A heap that has reached its size has no leak either.
        let flat: Vec<_> = (0..15)
            .map(|i| (177_496_064 + 9_000_000 * i.min(6), None, None))
            .collect();
        assert_eq!(judged(&go, collected(None, &flat)), None);
    }
}
