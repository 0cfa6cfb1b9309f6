//! Findings about memory that an idle connection retains.

use super::baseline::{self, ComparedCost};
use super::buffers::KeptBuffers;
use super::contexts;
use super::subject::AuditSubject;
use super::units::{bytes, counted, percent};
use crate::catalogue::{Confidence, FindingId, Severity};
use crate::model::Finding;
use crate::model::{Measured, MemoryFigures};
use dormouse_census::CensusReport;

/// Share from which one cause explains most of the memory.
const MOST: f64 = 0.5;
/// Share of the memory from which a part is named, and how many of a kind are.
const NAMED: f64 = 0.1;
const NAMED_MAX: usize = 3;
/// Share of the bytes in use that stays after closing, below which it is not worth a word.
const KEPT: f64 = 0.05;
const STACKS: &str = "most of the memory is the stack of each connection's thread: what its functions ever touched stays resident while the thread lives. Keep large arrays out of these functions, allocate them only while they are needed, or serve many connections in one thread. Not tried in the lab";

/// Judges the memory that an idle connection retains.
pub(super) fn judge(
    subject: &AuditSubject,
    memory: &MemoryFigures,
    census: Option<&CensusReport>,
    findings: &mut Vec<Finding>,
) {
    let idle = memory.per_connection_bytes();
    // The lab's figures are for connections without application data.
    let compared = subject.baseline().map(|known| known.compare(memory));
    let severity = match &compared {
        Some(compared) => compared.judge(),
        None => baseline::judge_unknown(idle),
    };
    let Some(severity) = severity else {
        return;
    };
    // The default cost of this interpreter is not known, or processes came with the connections, whose memory counts
    // too: a high cost is not called a fault.
    let is_foreign = compared.is_none() && subject.software().is_interpreted;
    let has_more_processes = memory.started_processes() > 0;
    let severity = if is_foreign || has_more_processes {
        severity.min(Severity::Low)
    } else {
        severity
    };
    if memory.is_process_each() {
        findings.push(process_each(subject, memory));
        return;
    }
    let mut explained = 0.0;
    let context =
        census.filter(|census| !has_more_processes && contexts::are_kept(subject, census));
    if let Some(census) = context {
        explained += census.heap_bytes_per_connection;
        findings.push(contexts::finding(subject, census));
    }
    let kept = census.and_then(|census| KeptBuffers::of(census, context.is_some()));
    if let Some(kept) = kept {
        explained += kept.bytes();
        // Buffers that make a connection cost more than the runtime's default settings do can be saved.
        let is_usual = is_foreign
            || has_more_processes
            || compared.as_ref().is_some_and(|cost| {
                !cost.is_unusual_by(kept.bytes()) || !cost.tells_buffers(subject.speaks_http())
            });
        // What a program needs itself, such as a database's buffers for each session, is not known.
        let is_own = compared.is_none() && kept.are_own();
        let most = if is_own || kept.bytes() < MOST * idle {
            Severity::Medium
        } else {
            Severity::High
        };
        let least = if is_usual {
            Severity::Info
        } else {
            Severity::Medium
        };
        findings.extend(kept.finding(subject, memory, severity.min(most).max(least)));
    }
    if explained < 0.6 * idle {
        findings.push(general(
            subject,
            memory,
            census,
            severity,
            compared.as_ref(),
        ));
    }
}

/// Reports a process for each connection. Its blocks are those of a whole program, so their sizes say nothing.
fn process_each(subject: &AuditSubject, memory: &MemoryFigures) -> Finding {
    let phases = memory.phases.iter();
    let held = phases.max_by_key(|phase| (phase.connections, phase.processes));
    let (processes, connections) = held.map_or((0, 0), |held| (held.processes, held.connections));
    let measured = format!(
        "{} processes for {} connections; {}",
        counted(processes),
        counted(connections),
        measured(memory)
    );
    let found = subject.finding(FindingId::ProcessPerConnection, Severity::Medium, measured);
    let found = found.with("bytes", bytes(memory.per_connection_bytes()));
    if !memory.keeps_processes() {
        return found;
    }
    let cause = "a process serves one connection at a time, and has a heap and a TLS context of its own; after the connections closed, the processes stayed for the next ones";
    found.because(cause, Confidence::High)
}

fn general(
    subject: &AuditSubject,
    memory: &MemoryFigures,
    census: Option<&CensusReport>,
    severity: Severity,
    compared: Option<&ComparedCost>,
) -> Finding {
    let idle = memory.per_connection_bytes();
    let found = subject.finding(FindingId::BytesPerConnection, severity, measured(memory));
    let mut found = where_it_is(subject, census, idle, found);
    if memory.is_growth_only() {
        found.title = match subject.software().collects {
            false => "an idle connection takes at least {bytes}".into(),
            true => {
                "resident memory grows by {bytes} for each idle connection, garbage included".into()
            }
        };
    }
    found.title = found.title.replace("{bytes}", &bytes(idle));
    if let Some(compared) = compared {
        found.reference = format!("{}; {}", compared.words(), found.reference);
    }
    // Most of it may be the stack of a thread that the program itself starts for each connection.
    let stacks = census.map_or(0.0, |census| census.stack_bytes_per_connection);
    if stacks > MOST * idle && !subject.software().has_stacks {
        found.advice = STACKS.into();
    }
    found
}

/// Describes the part of the bytes in use that a connection leaves behind, if it matters.
fn kept(memory: &MemoryFigures) -> String {
    let all = memory.used_bytes.value().copied().unwrap_or(0.0);
    let kept = memory.kept_bytes.value().copied().unwrap_or(0.0);
    if kept < KEPT * all {
        return String::new();
    }
    format!(
        ", of which {} stay in use after it has closed, for later connections or with a session",
        bytes(kept)
    )
}

/// Describes the figures: bytes in use, and the growth of resident memory.
fn measured(memory: &MemoryFigures) -> String {
    let idle = memory.per_connection_bytes();
    let mut text = match &memory.used_bytes {
        Measured::Value(_) => format!("{} in use per idle connection{}", bytes(idle), kept(memory)),
        Measured::NotMeasured(_) if memory.process_bytes().is_some() => {
            format!("a process with a connection takes {}", bytes(idle))
        }
        Measured::NotMeasured(why) => format!(
            "resident memory grew by {} per idle connection (blocks in use are not known: {why})",
            bytes(idle)
        ),
    };
    let moments = [
        ("the handshake", &memory.after_handshake_bytes),
        ("an exchange", &memory.after_exchange_bytes),
        ("16 kB each way", &memory.after_large_records_bytes),
    ];
    let steps: Vec<_> = moments
        .iter()
        .filter_map(|(what, value)| Some(format!("after {what} {}", bytes(*value.value()?))))
        .collect();
    if !steps.is_empty() {
        text += &format!("; growth of resident memory: {}", steps.join(", "));
    }
    match memory.started_processes() {
        started @ 1.. if !memory.is_process_each() => {
            let processes = if started == 1 { "process" } else { "processes" };
            let started = counted(started);
            text + &format!(
                "; the server started {started} more {processes} meanwhile, whose memory is included"
            )
        }
        _ => text,
    }
}

/// Names the cause: where a connection's bytes are, as far as the census can tell.
fn where_it_is(
    subject: &AuditSubject,
    census: Option<&CensusReport>,
    idle: f64,
    found: Finding,
) -> Finding {
    if let Some(cause) = subject.software().cause(found.id) {
        return found.because(cause, Confidence::Low);
    }
    let parts = census.map_or_else(Vec::new, |census| parts(subject, census, NAMED * idle));
    let explained: f64 = parts.iter().map(|(bytes, _)| bytes).sum();
    let parts: Vec<_> = parts.into_iter().map(|(_, words)| words).collect();
    let share = explained / idle.max(1.0);
    let words = parts.join("; ");
    if parts.is_empty() {
        let has_blocks = census.is_some_and(|census| !census.classes.is_empty());
        let why = match has_blocks {
            true => "no block size stands out",
            false => "the audit cannot read the heap that holds it",
        };
        let cause = format!(
            "not known: {why}. A heap profiler for the server's language or allocator shows what allocates it"
        );
        found.because(cause, Confidence::Low)
    } else if share > MOST {
        found.with("parts", words)
    } else {
        let share = percent(share);
        let cause = format!(
            "the largest parts are {words}: {share} of the memory; the rest is in many sizes"
        );
        found.because(cause, Confidence::Medium)
    }
}

/// The parts of a connection's memory that take more than this: bytes, and what they are.
fn parts(subject: &AuditSubject, census: &CensusReport, least: f64) -> Vec<(f64, String)> {
    let blocks = census
        .classes
        .iter()
        .filter(|class| class.bytes_per_connection > least);
    let blocks = blocks.take(NAMED_MAX).map(|class| {
        let known = subject
            .library
            .block(class.size_bytes)
            .unwrap_or(&class.heap);
        let words = format!(
            "{:.1} blocks of {} bytes ({known}, {} zero)",
            class.per_connection,
            counted(class.size_bytes),
            percent(class.zero_share)
        );
        (class.bytes_per_connection, words)
    });
    let stacks = census.stack_bytes_per_connection;
    let stacks = (stacks > least).then(|| (stacks, format!("stacks, {}", bytes(stacks))));
    let objects = census
        .managed
        .iter()
        .filter(|class| class.bytes_per_connection > least);
    let objects = objects.take(NAMED_MAX).map(|class| {
        let words = format!(
            "{:.1} objects of {}, {}",
            class.per_connection,
            class.class,
            bytes(class.bytes_per_connection)
        );
        (class.bytes_per_connection, words)
    });
    blocks.chain(stacks).chain(objects).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Audit, MemoryPhase};
    use crate::software::{Software, SoftwareKind};
    use dormouse_census::SizeClass;

    fn findings_of(audit: &Audit, memory: &MemoryFigures, census: &CensusReport) -> Vec<Finding> {
        let mut findings = Vec::new();
        let subject = AuditSubject::new(audit);
        judge(&subject, memory, Some(census), &mut findings);
        findings
    }

    /// The buffers of a healthy Node.js server were called kept for the life of a connection: V8 had not collected them.
    #[test]
    fn buffers_that_a_runtime_may_have_dropped_are_not_called_kept() {
        let class = SizeClass {
            heap: "malloc".into(),
            size_bytes: 16_400,
            blocks: [0, 500, 1_001],
            per_connection: 1.0,
            bytes_per_connection: 16_400.0,
            resident_per_connection: None,
            zero_share: 0.07,
        };
        let census = CensusReport {
            classes: vec![class],
            ..CensusReport::without_malloc("")
        };
        let judged = |used: Measured<f64>| {
            let mut audit = Audit::begin("server", "s", "127.0.0.1:1");
            audit.software = Measured::Value(Software {
                kind: SoftwareKind::Node,
                program: None,
                version: None,
                library: None,
                evidence: Vec::new(),
            });
            let memory = MemoryFigures {
                used_bytes: used.clone(),
                used_after_handshake_bytes: used,
                after_handshake_bytes: Measured::Value(120_000.0),
                ..MemoryFigures::default()
            };
            findings_of(&audit, &memory, &census).swap_remove(0)
        };
        let unknown = judged(Measured::not("V8's heap was not read"));
        assert_eq!(
            (unknown.id, unknown.severity),
            (FindingId::RecordBuffersKept, Severity::Low)
        );
        assert!(
            unknown.cause.starts_with("these buffers may be garbage"),
            "{}",
            unknown.cause
        );
        let collected = judged(Measured::Value(120_000.0));
        // Recorded: Apache, whose thread waits for the first request with one buffer.
        assert!(!collected.cause.contains("each direction"), "{collected:?}");
        assert_eq!(
            (collected.id, collected.severity),
            (FindingId::RecordBuffersKept, Severity::Medium)
        );
    }

    /// Recorded: Vert.x, whose heap grew by 12 MB while 47 connections were open, and Envoy, which took free memory again.
    #[test]
    fn the_growth_of_resident_memory_is_not_called_what_a_connection_takes() {
        let title = |kind| {
            let mut subject = AuditSubject::new(&Audit::begin("server", "s", "127.0.0.1:1"));
            subject.kind = kind;
            let memory = MemoryFigures {
                after_quiet_bytes: Measured::Value(251_859.0),
                ..MemoryFigures::default()
            };
            let mut findings = Vec::new();
            judge(&subject, &memory, None, &mut findings);
            findings.swap_remove(0).title
        };
        assert!(title(SoftwareKind::Jvm).ends_with("garbage included"));
        assert!(title(SoftwareKind::OpenSsl).contains("at least 252 kB"));
    }

    /// Recorded: axum in its usual configuration, which was compared with an echo server on tokio-rustls.
    #[test]
    fn a_buffer_of_http_is_not_compared_with_an_echo_server() {
        let class = SizeClass {
            heap: "malloc".into(),
            size_bytes: 16_400,
            blocks: [0, 450, 899],
            per_connection: 1.0,
            bytes_per_connection: 16_400.0,
            resident_per_connection: None,
            zero_share: 0.91,
        };
        let census = CensusReport {
            classes: vec![class],
            ..CensusReport::without_malloc("")
        };
        let judged = |options: &str| {
            let mut audit = Audit::begin("server", "s", "127.0.0.1:1");
            audit.settings.insert("options".into(), options.into());
            audit.software = Measured::Value(Software {
                kind: SoftwareKind::Rustls,
                program: None,
                version: None,
                library: None,
                evidence: Vec::new(),
            });
            let memory = MemoryFigures {
                used_bytes: Measured::Value(38_940.0),
                used_after_handshake_bytes: Measured::Value(38_940.0),
                touched_after_handshake_bytes: Measured::Value(36_034.0),
                ..MemoryFigures::default()
            };
            let finding = findings_of(&audit, &memory, &census).swap_remove(0);
            (finding.id, finding.severity)
        };
        let kept = FindingId::RecordBuffersKept;
        assert_eq!(judged("--ca ca.pem --http /"), (kept, Severity::Low));
        assert_eq!(judged("--ca ca.pem"), (kept, Severity::Medium));
    }

    /// A server on GnuTLS that loads the system's authorities for each connection, from a recorded audit: 17,684 nodes of
    /// libtasn1.
    #[test]
    fn certificates_in_nodes_of_one_size_are_a_context() {
        let class = SizeClass {
            heap: "malloc".into(),
            size_bytes: 192,
            blocks: [0, 353_678, 707_356],
            per_connection: 17_683.9,
            bytes_per_connection: 3_395_000.0,
            resident_per_connection: None,
            zero_share: 0.64,
        };
        let census = CensusReport {
            blocks_per_connection: 21_000.0,
            heap_bytes_per_connection: 3_866_000.0,
            classes: vec![class],
            ..CensusReport::without_malloc("")
        };
        let judged = |share| {
            let spot = dormouse_census::HotSpot {
                object: "libtasn1.so.6.6.3".into(),
                function: None,
                share,
            };
            let mut audit = Audit::begin("server", "s", "127.0.0.1:1");
            audit.server = Some(crate::model::ServerFigures {
                cpu: Measured::Value(crate::model::CpuFigures::with_profile(vec![spot])),
                ..Default::default()
            });
            let memory = MemoryFigures {
                used_bytes: Measured::Value(3_866_000.0),
                ..MemoryFigures::default()
            };
            let findings = findings_of(&audit, &memory, &census).into_iter();
            findings.map(|finding| finding.id).collect::<Vec<_>>()
        };
        assert_eq!(judged(0.3), [FindingId::ContextPerConnection]);
        assert_eq!(judged(0.01), [FindingId::BytesPerConnection]);
    }

    /// Recorded: Prosody holds a connection in 236 blocks of Lua's objects.
    #[test]
    fn objects_of_an_interpreter_are_no_context() {
        let census = CensusReport {
            blocks_per_connection: 236.0,
            heap_bytes_per_connection: 47_000.0,
            classes: [
                (8_400, 0.9),
                (7_616, 1.0),
                (512, 9.0),
                (528, 8.0),
                (544, 8.0),
            ]
            .map(|(size_bytes, per_connection)| SizeClass {
                heap: "malloc".into(),
                size_bytes,
                blocks: [0, 200, 400],
                per_connection,
                bytes_per_connection: size_bytes as f64 * per_connection,
                resident_per_connection: None,
                zero_share: 0.1,
            })
            .to_vec(),
            ..CensusReport::without_malloc("")
        };
        let judged = |kind| {
            let mut audit = Audit::begin("server", "s", "127.0.0.1:1");
            audit.software = Measured::Value(Software {
                kind,
                program: None,
                version: None,
                library: None,
                evidence: Vec::new(),
            });
            let memory = MemoryFigures {
                used_bytes: Measured::Value(47_000.0),
                ..MemoryFigures::default()
            };
            let findings = findings_of(&audit, &memory, &census);
            // Two blocks are a third of the memory, and were called most of it.
            assert!(!findings[0].cause.contains("most of"), "{findings:?}");
            (findings[0].id, findings[0].severity)
        };
        let lua = judged(SoftwareKind::Lua);
        assert_eq!(lua, (FindingId::BytesPerConnection, Severity::Low));
        let openssl = judged(SoftwareKind::OpenSsl);
        assert_eq!(openssl, (FindingId::ContextPerConnection, Severity::High));
    }

    /// Recorded: lighttpd held 40 connections; its table of sessions had grown before the first half was counted.
    #[test]
    fn a_table_that_grew_once_is_no_context() {
        let judged = |blocks: [[u64; 3]; 4]| {
            let sizes = [80, 7_616, 144, 64];
            let classes = sizes.into_iter().zip(blocks).map(|(size_bytes, blocks)| {
                let per_connection = (blocks[2] - blocks[0]) as f64 / 40.0;
                SizeClass {
                    heap: "malloc".into(),
                    size_bytes,
                    blocks,
                    per_connection,
                    bytes_per_connection: size_bytes as f64 * per_connection,
                    resident_per_connection: None,
                    zero_share: 0.5,
                }
            });
            let census = CensusReport {
                blocks_per_connection: 286.0,
                heap_bytes_per_connection: 35_249.0,
                classes: classes.collect(),
                ..CensusReport::without_malloc("")
            };
            let audit = Audit::begin("server", "s", "127.0.0.1:1");
            let memory = MemoryFigures {
                used_bytes: Measured::Value(35_522.0),
                ..MemoryFigures::default()
            };
            let findings = findings_of(&audit, &memory, &census);
            let context = |finding: &Finding| finding.id == FindingId::ContextPerConnection;
            findings.iter().any(context)
        };
        let grew_once = [
            [1_298, 7_915, 8_028],
            [0, 20, 40],
            [676, 2_051, 2_071],
            [409, 2_497, 2_603],
        ];
        assert!(!judged(grew_once));
        let of_each = [
            [1_298, 4_663, 8_028],
            [0, 20, 40],
            [676, 1_374, 2_071],
            [409, 1_506, 2_603],
        ];
        assert!(judged(of_each));
    }

    /// Blocks of a Dovecot login process, from a recorded audit: they look like a context of the connection's own.
    #[test]
    fn a_process_for_each_connection_is_no_context_for_each() {
        let census = CensusReport {
            blocks_per_connection: 6_835.0,
            heap_bytes_per_connection: 657_000.0,
            ..CensusReport::without_malloc("")
        };
        let judged = |processes: [u64; 2]| -> Vec<(FindingId, String)> {
            let memory = MemoryFigures {
                used_bytes: Measured::Value(674_302.0),
                phases: vec![
                    MemoryPhase::of("before", 0, processes[0]),
                    MemoryPhase::of("2n", 40, processes[1]),
                    // Postfix: the processes stay after the connections have closed.
                    MemoryPhase::of("closed", 0, processes[1]),
                ],
                ..MemoryFigures::default()
            };
            let audit = Audit::begin("server", "s", "127.0.0.1:1");
            let findings = findings_of(&audit, &memory, &census).into_iter();
            let each = findings.map(|finding| (finding.id, finding.measured));
            each.collect()
        };
        let ids = |processes| {
            let found = judged(processes).into_iter();
            found.map(|(id, _)| id).collect::<Vec<_>>()
        };
        assert_eq!(ids([7, 47]), [FindingId::ProcessPerConnection]);
        let (_, measured) = &judged([7, 47])[0];
        assert!(
            measured.starts_with("47 processes for 40 connections"),
            "{measured}"
        );
        // Apache starts workers, each with a heap of its own: no process for each, and no context for each.
        assert_eq!(ids([4, 5]), [FindingId::BytesPerConnection]);
        // Audits by older versions did not count processes.
        assert_ne!(ids([0, 0]), [FindingId::ProcessPerConnection]);
    }
}
