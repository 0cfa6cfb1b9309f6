//! Growth of garbage-collected runtimes: only memory that survives a collection can be a leak.
//!
//! From outside, uncollected garbage looks like a leak, and so does a compiler that warms up. Therefore a finding calls
//! growth a leak only if it remains after a full collection in every round. If the audit could not make the runtime
//! collect, the finding states the measurements and names no cause.

use super::units::{bytes, counted};
use crate::catalogue::{Confidence, FindingId, Severity};
use crate::model::{ClassRounds, CollectedPoint, CollectedRounds, GROWTH_BYTES, MemoryFigures};
use crate::software::{SoftwareKind, jvm};
use dormouse_measure::{Growth, Slope, Verdict};

/// Objects per connection above which a class counts as allocated for every connection.
const EACH: f64 = 0.5;
/// The same for a leak that the sum of all objects does not show.
const ONE_EACH: f64 = 0.9;
/// Growth per round below which there is no finding, whatever the growth per connection: of resident memory, and of objects
/// or blocks that are counted. Scatter alone makes no slope certain, but a runtime adds code and caches steadily. The largest
/// certain slope of counted blocks in a healthy server of `lab/sick` was 9.7 kB per round, in Go; in C there was none.
pub(super) const GROWTH_PER_ROUND: f64 = 50_000.0;
pub(super) const COUNTED_PER_ROUND: f64 = 15_000.0;
/// Share of the growth that may remain after a collection if the growth was garbage.
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

/// Judges the growth. `None`: it was garbage, or the heap had not reached its usual size yet. Reports a leak of objects
/// that survive collections even if the process's memory does not clearly grow.
pub(super) fn judge(
    memory: &MemoryFigures,
    growth: &Growth,
    grows: bool,
) -> Option<CollectedGrowth> {
    let Some(collected) = memory.growth_collected.value() else {
        let why = memory.growth_collected.why_not().unwrap_or("?");
        let measured = format!("objects that survive a collection were not counted: {why}");
        return grows.then(|| unknown(measured));
    };
    let mut kept = match &collected.by {
        Some(by) => with_collections(by, collected)?,
        None => without_collections(memory, growth, collected)?,
    };
    bound(&mut kept, collected);
    of_application(&mut kept, collected);
    (grows || kept.severity > Severity::Low).then_some(kept)
}

/// A cache with fewer sessions than the JDK's own limit is not a fault: it ends there unless the program says otherwise.
fn bound(kept: &mut CollectedGrowth, collected: &CollectedRounds) {
    let mut classes = collected.classes.iter();
    let sessions = classes.find(|class| class.class.contains(jvm::JDK_SESSION_CLASS));
    let sessions = sessions.and_then(|class| class.ends().map(|[_, (_, last, _)]| last));
    let is_bounded = sessions.is_some_and(|count| count < jvm::JDK_SESSIONS);
    if kept.id != FindingId::SessionCacheGrows || !is_bounded {
        return;
    }
    kept.severity = Severity::Low;
    let all = kept.per_connection.map_or_else(String::new, |each| {
        format!(", {} at this size", bytes(each * jvm::JDK_SESSIONS as f64))
    });
    kept.cause += &format!(
        ". The JDK's own limit is {} sessions{all}",
        counted(jvm::JDK_SESSIONS)
    );
}

/// A server of HTTP may begin a session of its application for each request without a cookie, as a page in JSP does, and keep
/// it until its timeout. The audit's clients send no cookie, so such sessions are not a leak of connections.
fn of_application(kept: &mut CollectedGrowth, collected: &CollectedRounds) {
    if kept.id != FindingId::LeakPerConnection || collected.by.as_deref() != Some(jvm::NAME) {
        return;
    }
    let each = || {
        let all = collected.classes.iter();
        all.filter(|class| objects_each(class, collected) > EACH)
    };
    let session = each().find(|class| {
        let name = class.class.rsplit(['.', '$']).next().unwrap_or_default();
        name.contains("Session") && !jvm::NO_APPLICATION.iter().any(|part| name.contains(part))
    });
    let Some(session) = session.filter(|_| !each().any(is_of_connection)) else {
        return;
    };
    kept.id = FindingId::GrowsUnderChurn;
    kept.severity = kept.severity.min(Severity::Low);
    kept.confidence = Confidence::Medium;
    kept.cause = format!(
        "sessions of the application, not of TLS: after full collections there is one more {} for each connection, whose request had no cookie. They end by their timeout, which the audit did not wait for. With --http and a path that begins no session, the audit measures what a connection leaves behind",
        session.class
    );
}

/// Whether a class has an instance for every connection and for nothing else, in any runtime.
fn is_of_connection(class: &ClassRounds) -> bool {
    let mut known = SoftwareKind::ALL
        .iter()
        .flat_map(|kind| kind.program().connection_classes);
    known.any(|part| class.class.contains(part))
}

/// Judges a runtime that the audit made collect before each point.
fn with_collections(by: &str, collected: &CollectedRounds) -> Option<CollectedGrowth> {
    let living = growth_of(collected, |point| point.living_bytes);
    let blocks = growth_of(collected, |point| point.in_use_bytes);
    let memory = growth_of(collected, |point| Some(point.pss_bytes))?;
    let rounds = format!("{} more rounds, ", collected.points.len());
    let objects = format!("live objects after a collection by {by}");
    let objects = rounds.clone()
        + &living
            .as_ref()
            .map_or_else(String::new, |it| span(it, &objects));
    let leak = |(id, cause), confidence, each, measured| CollectedGrowth {
        id,
        severity: Severity::High,
        cause,
        confidence,
        per_connection: each,
        measured,
    };
    if let Some(living) = living.filter(|living| grows(living, COUNTED_PER_ROUND)) {
        let each = living.bytes_per_connection()?;
        let measured = format!(
            "{objects}, {} per connection{}",
            bytes(each),
            largest_class(collected)
        );
        return Some(leak(
            cause_by_class(collected),
            Confidence::High,
            Some(each),
            measured,
        ));
    }
    if let Some((each, words)) = class_of_each(collected) {
        let cause = cause_by_class(collected);
        return Some(leak(
            cause,
            Confidence::Medium,
            Some(each),
            objects + &words,
        ));
    }
    let rise = |growth: &Growth| growth.slope.map_or(0.0, |slope| slope.per_unit);
    let is_native =
        |blocks: &Growth| grows(blocks, GROWTH_PER_ROUND) && rise(&memory) > 0.5 * rise(blocks);
    if let Some(blocks) = blocks.filter(is_native) {
        let cause = "the runtime's live objects do not grow, but blocks of malloc do: each connection allocates native memory that is never freed";
        let (cause, each) = (
            (FindingId::LeakPerConnection, cause.into()),
            blocks.bytes_per_connection(),
        );
        return Some(leak(
            cause,
            Confidence::Medium,
            each,
            rounds + &span(&blocks, "blocks of malloc"),
        ));
    }
    grows(&memory, GROWTH_PER_ROUND).then(|| CollectedGrowth {
        cause: "no leak: the live objects after full collections do not grow. The growth is heap that the runtime reserves, or compiled code".into(),
        ..unknown(objects)
    })
}

/// Judges a runtime that the audit could not make collect, by whether its memory falls without that.
fn without_collections(
    memory: &MemoryFigures,
    growth: &Growth,
    collected: &CollectedRounds,
) -> Option<CollectedGrowth> {
    let first = growth.rounds.first()?.1;
    let last = growth.rounds.last()?.1;
    let resumed = memory.growth_resumed.value();
    let of_resumed = resumed.into_iter().flat_map(|growth| growth.rounds.iter());
    let later = collected.points.iter().map(|point| point.pss_bytes as f64);
    let least = later
        .chain(of_resumed.map(|round| round.1))
        .reduce(f64::min)?;
    if least <= first + GIVEN_BACK * (last - first) {
        return None;
    }
    // Only the later half of the rounds counts: by then, a heap that grows to its size has reached it.
    let later = collected.points.iter().skip(collected.points.len() / 2);
    let later: Vec<_> = later.map(|point| point.pss_bytes).collect();
    let later = Growth::judge(&later, collected.connections_per_round);
    // Where the time ended before there were enough of them, the rounds of resumed connections came later, too.
    let later = match (later.slope, resumed) {
        (None, Some(resumed)) => resumed,
        _ => &later,
    };
    let more = collected.points.len() as u64 * collected.connections_per_round;
    grows(later, GROWTH_PER_ROUND).then(|| unknown(format!(
        "memory kept growing over {} more connections, and the audit could not make the runtime collect",
        counted(more)
    )))
}

fn unknown(measured: String) -> CollectedGrowth {
    CollectedGrowth {
        id: FindingId::GrowsUnderChurn,
        severity: Severity::Low,
        cause: "not known: uncollected garbage, a heap that still grows to its usual size, compiled code, or a leak. The audit saw no collection, so it cannot distinguish them; more rounds (--thorough) may".into(),
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
fn grows(growth: &Growth, per_round: f64) -> bool {
    growth.verdict == Verdict::Grows
        && growth.bytes_per_connection() > Some(GROWTH_BYTES)
        && growth
            .slope
            .is_some_and(|slope| slope.per_unit > per_round && slope.is_sure())
}

/// `objects: 12 MB → 15 MB`.
fn span(growth: &Growth, what: &str) -> String {
    let ends = growth.rounds.first().zip(growth.rounds.last());
    let ends = ends.map(|(first, last)| format!(": {} → {}", bytes(first.1), bytes(last.1)));
    format!("{what}{}", ends.unwrap_or_default())
}

/// Finds a class that has one more object for each closed connection in every round, and is large enough for a finding:
/// bytes per connection, and words. The sum of all live objects varies by more than a leak of a few kB, because a runtime
/// loads code and fills caches meanwhile, and a JVM counts the fillers of its heap as arrays.
fn class_of_each(collected: &CollectedRounds) -> Option<(f64, String)> {
    let per_round = collected.connections_per_round.max(1) as f64;
    let each = |slope: Option<Slope>| Some(slope.filter(Slope::is_sure)?.per_unit / per_round);
    let leaks = collected.classes.iter().filter_map(|class| {
        let (objects, bytes) = (each(class.objects())?, each(class.bytes())?);
        let is_large = bytes > GROWTH_BYTES && bytes * per_round > COUNTED_PER_ROUND;
        (objects > ONE_EACH && is_large).then_some((class, objects, bytes))
    });
    let (class, objects, of_each) = leaks.max_by(|a, b| a.2.total_cmp(&b.2))?;
    let words = format!(
        "; {}: {objects:.2} and {} for each closed connection, in every round",
        class_words(class),
        bytes(of_each),
    );
    Some((of_each, words))
}

/// Additional objects of a class per closed connection.
fn objects_each(class: &ClassRounds, collected: &CollectedRounds) -> f64 {
    let Some([(first, had, _), (last, has, _)]) = class.ends() else {
        return 0.0;
    };
    let connections = u64::from(last.saturating_sub(first)) * collected.connections_per_round;
    has.saturating_sub(had) as f64 / connections.max(1) as f64
}

/// Derives the cause from the classes that grew: connections or sessions.
fn cause_by_class(collected: &CollectedRounds) -> (FindingId, String) {
    let mut each = collected
        .classes
        .iter()
        .filter(|class| objects_each(class, collected) > EACH);
    if let Some(class) = each.clone().find(|class| is_of_connection(class)) {
        let cause = format!(
            "closed connections are still referenced: after full collections there is one more {} for each",
            class.class
        );
        return (FindingId::LeakPerConnection, cause);
    }
    if let Some(class) = each.find(|class| class.class.contains(jvm::SESSION_CLASS)) {
        let cause = format!(
            "sessions: after full collections there is one more {} for each connection, and no object of a connection. The session cache has no limit, or it is not full yet",
            class.class
        );
        return (FindingId::SessionCacheGrows, cause);
    }
    let cause = "each connection leaves objects behind that survive full collections; they are neither connections nor sessions of the TLS library";
    (FindingId::LeakPerConnection, cause.into())
}

/// Describes the class that grew most.
fn largest_class(collected: &CollectedRounds) -> String {
    let Some(class) = collected.classes.first() else {
        return String::new();
    };
    let [(.., had), (.., has)] = class.ends().unwrap_or_default();
    let more = bytes(has.saturating_sub(had) as f64);
    format!(
        "; of all classes, these grew most, by {more}: {}",
        class_words(class)
    )
}

/// `objects of class [B: 16,672 → 17,508`.
fn class_words(class: &ClassRounds) -> String {
    let [first, last] = class.ends().unwrap_or_default();
    format!(
        "objects of class {}: {} → {}",
        class.class,
        counted(first.1),
        counted(last.1)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Measured;

    /// Recorded: Tomcat, whose page in JSP begins a session for each request without a cookie, was said to leak 443 bytes for
    /// each closed connection, with high severity.
    #[test]
    fn sessions_of_an_application_are_no_leak_of_connections() {
        let points = [25_590_656, 25_701_406, 25_812_156, 25_922_906]
            .map(|living| (240_000_000, Some(living), Some(18_000_000)));
        let judged = |classes: &[(&str, u64)]| {
            let mut rounds = collected(Some(jvm::NAME), &points);
            let classes = classes.iter();
            rounds.classes = classes
                .map(|(name, bytes)| grown(name, [375, 1_125], *bytes))
                .collect();
            let (memory, growth) = memory(&[240_000_000; 4], Measured::Value(rounds));
            let kept = judge(&memory, &growth, true).unwrap();
            (kept.id, kept.severity)
        };
        let of_tomcat = ("org.apache.catalina.session.StandardSession", 66_000);
        let own = ("java.util.concurrent.ConcurrentHashMap", 96_000);
        let leak = (FindingId::LeakPerConnection, Severity::High);
        assert_eq!(judged(&[own]), leak);
        let sessions = judged(&[own, of_tomcat]);
        assert_eq!(sessions, (FindingId::GrowsUnderChurn, Severity::Low));
        let connections = (
            "org.apache.tomcat.util.net.NioChannel.SocketChannel",
            66_000,
        );
        assert_eq!(judged(&[connections, of_tomcat]), leak);
    }

    /// Creates figures in which the rounds took this many bytes, the first round excluded.
    fn memory(rounds: &[u64], collected: Measured<CollectedRounds>) -> (MemoryFigures, Growth) {
        let all: Vec<u64> = rounds.first().into_iter().chain(rounds).copied().collect();
        let growth = Growth::judge(&all, 250);
        let memory = MemoryFigures {
            growth: Measured::Value(growth.clone()),
            growth_collected: collected,
            ..MemoryFigures::default()
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
            classes: Vec::new(),
        }
    }

    /// Objects of a class and their bytes after the second round and each later one.
    fn class(class: &str, counts: [(u64, u64); 4]) -> ClassRounds {
        ClassRounds {
            class: class.into(),
            rounds: (2..)
                .zip(counts)
                .map(|(n, (objects, bytes))| (n, objects, bytes))
                .collect(),
        }
    }

    /// A class that grew evenly.
    fn grown(name: &str, objects: [u64; 2], bytes: u64) -> ClassRounds {
        let more = (objects[1] - objects[0]) / 3;
        class(
            name,
            [0, 1, 2, 3].map(|i| (objects[0] + i * more, i * bytes / 3)),
        )
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

    /// Recorded: Node.js without its inspector, which kept the socket of each closed connection. There was time for one
    /// more round only, and the growth was not mentioned.
    #[test]
    fn growth_goes_on_in_the_rounds_of_resumed_connections() {
        let rounds = [63_810_560, 78_478_336, 83_939_328, 92_387_584];
        let resumed = [
            140_000_000,
            150_709_248,
            160_774_144,
            169_579_520,
            178_936_640,
        ];
        let one_more = collected(None, &[(96_446_720, None, None)]);
        let (mut memory, growth) = memory(&rounds, Measured::Value(one_more));
        assert!(judge(&memory, &growth, true).is_none());
        memory.growth_resumed = Measured::Value(Growth::judge(&resumed, 954));
        let kept = judge(&memory, &growth, true).unwrap();
        assert_eq!(
            (kept.id, kept.severity),
            (FindingId::GrowsUnderChurn, Severity::Low)
        );
    }

    #[test]
    fn objects_that_survive_collections_are_a_leak_and_their_classes_name_the_cause() {
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
        let sessions = |ends| {
            vec![
                grown("[B", [9_000, 10_500], 900_000),
                grown("sun.security.ssl.SSLSessionImpl", ends, 200_000),
            ]
        };
        // More than the JDK keeps by default.
        leak.classes = sessions([24_500, 25_250]);
        assert_eq!(
            judged(&NETTY, leak.clone()),
            high(FindingId::SessionCacheGrows)
        );
        // Recorded: Jetty as it comes, whose cache fills up to the JDK's limit.
        leak.classes = sessions([500, 1_250]);
        let bounded = (
            FindingId::SessionCacheGrows,
            Severity::Low,
            Confidence::High,
        );
        assert_eq!(judged(&NETTY, leak.clone()), Some(bounded));
        leak.classes.push(grown(
            "sun.security.ssl.SSLEngineImpl",
            [500, 1_250],
            60_000,
        ));
        assert_eq!(judged(&NETTY, leak), high(FindingId::LeakPerConnection));
    }

    /// Recorded on a busy machine: a server on Node.js that kept an array of 2,000 bytes for each of 20 connections per round.
    #[test]
    fn a_few_connections_show_a_leak_of_counted_objects() {
        let living = [5_465_128, 5_503_856, 5_547_432, 5_588_976, 5_630_128];
        let points = living.map(|living| (100_000_000, Some(living), None));
        let leak = CollectedRounds {
            connections_per_round: 20,
            ..collected(Some("V8"), &points)
        };
        let high = (
            FindingId::LeakPerConnection,
            Severity::High,
            Confidence::High,
        );
        assert_eq!(judged(&NETTY, leak), Some(high));
        // A healthy one, whose code was still being compiled.
        let living = [3_951_792, 3_954_912, 3_961_440, 3_960_240, 3_961_584];
        let points = living.map(|living| (100_000_000, Some(living), None));
        let none = judged(&NETTY, collected(Some("V8"), &points));
        assert_eq!(none.filter(|it| it.1 > Severity::Low), None);
    }

    /// Recorded on a busy machine: a server in Java that kept an array of 2,000 bytes for each connection. The sum of its
    /// live objects varied by more than the rounds added.
    #[test]
    fn a_class_with_an_object_of_each_connection_is_a_leak() {
        let living = [8_979_400, 9_582_744, 13_123_776, 11_874_536, 12_493_704];
        let points = living.map(|living| (183_500_000, Some(living), Some(5_200_000)));
        let mut leak = collected(Some("the JVM"), &points);
        let none = judged(&NETTY, leak.clone()).filter(|it| it.1 > Severity::Low);
        assert_eq!(none, None);
        let of = |objects: [u64; 4], bytes: [u64; 4]| {
            let counts = [0, 1, 2, 3].map(|i| (objects[i], bytes[i]));
            vec![class("[B", counts)]
        };
        leak.classes = of(
            [16_672, 16_950, 17_228, 17_508],
            [3_900_000, 4_405_000, 4_910_000, 5_415_896],
        );
        let high = (
            FindingId::LeakPerConnection,
            Severity::High,
            Confidence::Medium,
        );
        assert_eq!(judged(&NETTY, leak.clone()), Some(high));
        // A leak is one also beside connections that are not closed yet: more or fewer of them after each round.
        leak.classes.push(class(
            "sun.nio.ch.NioSocketImpl",
            [(106, 8_480), (131, 10_480), (90, 7_200), (160, 12_800)],
        ));
        assert_eq!(judged(&NETTY, leak.clone()), Some(high));
        // Its twin, which kept a hundred; and with 27 more connections that it had not closed yet after the last round.
        for objects in [
            [16_672, 16_720, 16_760, 16_810],
            [15_672, 15_690, 15_660, 16_367],
        ] {
            leak.classes = of(objects, [3_900_000, 3_905_000, 3_899_000, 4_100_784]);
            let none = judged(&NETTY, leak.clone()).filter(|it| it.1 > Severity::Low);
            assert_eq!(none, None);
        }
    }

    #[test]
    fn native_memory_that_is_never_freed_is_a_leak_in_a_jvm_too() {
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
    fn a_runtime_that_collects_has_no_leak() {
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
