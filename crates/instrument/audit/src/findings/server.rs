//! Findings about a server's offer and its CPU time.

use super::hot_spots;
use super::records;
use super::resumption;
use super::serialised;
use super::subject::AuditSubject;
use super::units::{bytes, counted, percent, whole};
use crate::catalogue::{Confidence, FindingId, Severity};
use crate::model::Finding;
use crate::model::{Certificate, CpuFigures, FirstConnection, Offer, ServerFigures};

/// CPU time of a full handshake, as a multiple of the time that it needs with this key.
const CPU_RATIO: [(f64, Severity); 3] = [
    (20.0, Severity::High),
    (8.0, Severity::Medium),
    (3.0, Severity::Low),
];
/// Factor by which an interpreter or runtime itself may exceed these limits.
const RUNTIME_TIMES: f64 = 3.0;
/// RSA key size in bits above which a signature costs more than its strength is worth.
const RSA_BITS: u32 = 2048;
/// Share of a handshake's CPU time from which such a signature is a finding.
const SIGNATURE_SHARE: [(f64, Severity); 2] = [(0.5, Severity::Medium), (0.25, Severity::Low)];
/// Share of a full handshake's CPU time that its signature takes, from which a resumed one should be seen to cost less.
const SAVING_SHARE: f64 = 0.2;
/// Share of a handshake's CPU time spent on parsing certificates, above which each connection seems to parse
/// certificates that all could share.
const PARSING_SHARE: f64 = 0.25;
/// Idle CPU time, in microseconds per connection and second.
const IDLE_US: [(f64, Severity); 2] = [(200.0, Severity::Medium), (50.0, Severity::Low)];
/// CPU time, in microseconds per second, that a server may also use without connections: the timers of its runtime.
const BACKGROUND_US: f64 = 10_000.0;
/// CPU time of the first handshake beyond that of a later one, in milliseconds.
const FIRST_MS: [(f64, Severity); 2] = [(200.0, Severity::High), (20.0, Severity::Medium)];
const PROCESS_EACH: &str =
    "each connection has a process of its own, which may cost more than its handshake";
const COMPILES: &str = "a virtual machine interprets and compiles its code during the first tens of thousands of handshakes; the audit did not measure the cost after that";
const PERF: &str = "`perf record -g -p PID` while the command below runs, then `perf report`, shows what the server does";
const DAY_S: i64 = 86_400;
/// Bytes that a server may send before the first acknowledgement: ten segments (RFC 6928).
const FIRST_WINDOW: u32 = 14_600;

pub(super) fn judge(subject: &AuditSubject, figures: &ServerFigures, findings: &mut Vec<Finding>) {
    if let Some(offer) = figures.offer.value() {
        offered(subject, offer, findings);
    }
    resumption::judge(subject, figures, findings);
    if let Some(figures) = figures.records.value() {
        records::judge(subject, figures, findings);
    }
    let silent = figures.silent_clients.value();
    let silent = silent.and_then(|figures| serialised::judge_silent(subject, figures));
    let parallel = figures.cpu.value().and_then(|cpu| cpu.parallel.value());
    let parallel = || serialised::judge_parallel(subject, parallel?);
    findings.extend(silent.or_else(parallel));
    if let Some(cpu) = figures.cpu.value() {
        let memory = figures.memory.value();
        let is_process_each = memory.is_some_and(|memory| memory.is_process_each());
        let key = figures.offer.value().and_then(Offer::key);
        findings.extend(signature(subject, cpu));
        // What a handshake needs with a key of another kind is not known.
        if key.is_none_or(|key| key == cpu.reference.key) {
            findings.extend(full_handshake(subject, cpu, is_process_each));
        }
        not_cheaper(subject, cpu, findings);
        let quiet = memory.and_then(|memory| memory.at("after_quiet"));
        findings.extend(idle(subject, cpu, quiet.map(|phase| phase.connections)));
    }
    if let Some(first) = figures.first.value() {
        findings.extend(first_connection(subject, first));
    }
    findings.extend(first_flight(subject, figures));
}

/// Reports a first flight that takes an additional round trip.
fn first_flight(subject: &AuditSubject, figures: &ServerFigures) -> Option<Finding> {
    let flights = figures.flights.iter().filter_map(|row| row.bytes.get(1));
    let most = *flights.max().filter(|most| **most > FIRST_WINDOW)?;
    let measured = format!("{} bytes", whole(most));
    let found = subject.finding(FindingId::FlightLarge, Severity::Low, measured);
    let found = found.with("window", whole(FIRST_WINDOW));
    let chain = figures.offer.value().map(|offer| &offer.chain);
    let chain: u64 = chain.map_or(0, |chain| chain.iter().map(|each| each.bytes).sum());
    if 2 * chain > u64::from(most) {
        return Some(found);
    }
    let cause = format!(
        "the certificate chain has only {} bytes; the rest is padding, or a list of authorities for client certificates",
        counted(chain)
    );
    Some(found.because(cause, Confidence::High))
}

fn offered(subject: &AuditSubject, offer: &Offer, findings: &mut Vec<Finding>) {
    let mut found = |id: FindingId, severity: Severity, measured: &str| {
        findings.push(subject.finding(id, severity, measured));
    };
    if offer.compression == Some(true) {
        let measured = "the server chose DEFLATE when a ClientHello of TLS 1.2 offered it";
        found(FindingId::CompressionAccepted, Severity::High, measured);
    }
    let accepts = |version: &&str| offer.versions.get(*version) == Some(&true);
    let old: Vec<_> = ["TLS 1.0", "TLS 1.1"].into_iter().filter(accepts).collect();
    if !old.is_empty() {
        let measured = format!("{} accepted", old.join(" and "));
        found(FindingId::OldVersions, Severity::Low, &measured);
    }
    if offer.versions.get("TLS 1.3") == Some(&false) {
        let measured = "the server refused a ClientHello for TLS 1.3";
        found(FindingId::NoTls13, Severity::Low, measured);
    }
    if offer.secure_renegotiation == Some(false) {
        let measured = "the ServerHello of TLS 1.2 has no renegotiation_info";
        found(FindingId::NoRenegotiationInfo, Severity::Low, measured);
    }
    if offer.client_renegotiation == Some(true) {
        let (id, severity) = match offer.secure_renegotiation {
            Some(false) => (FindingId::RenegotiationInsecure, Severity::High),
            _ => (FindingId::RenegotiationByClient, Severity::Low),
        };
        let measured = "the server answered a second ClientHello on an established TLS 1.2 connection with a ServerHello";
        found(id, severity, measured);
    }
    if let Some(max) = offer.early_data_max_bytes.filter(|bytes| *bytes > 0) {
        let measured = format!("tickets allow {max} bytes of 0-RTT data");
        found(FindingId::EarlyData, Severity::Info, &measured);
    }
    findings.extend(expiry(subject, offer));
}

fn expiry(subject: &AuditSubject, offer: &Offer) -> Option<Finding> {
    let at_s = subject.at_s;
    let left_s = |certificate: &&Certificate| certificate.left_s(at_s);
    let first = offer.chain.iter().min_by_key(left_s)?;
    let (severity, expires) = match first.left_s(at_s) {
        ..0 => (Severity::High, "has expired"),
        left if left < 14 * DAY_S => (Severity::Medium, "expires soon"),
        _ => return None,
    };
    let measured = format!("{}: {}", first.subject, first.left_words(at_s));
    let found = subject.finding(FindingId::CertificateExpires, severity, measured);
    Some(found.with("expires", expires))
}

/// Reports signatures with an RSA key that is larger than necessary.
fn signature(subject: &AuditSubject, cpu: &CpuFigures) -> Option<Finding> {
    let r = &cpu.reference;
    let bits: u32 = r.key.strip_prefix("RSA ")?.parse().ok()?;
    let share = r.signature_us / cpu.full_us.max(1.0);
    if bits <= RSA_BITS || share < SIGNATURE_SHARE[1].0 {
        return None;
    }
    let severity = Severity::above(&SIGNATURE_SHARE, share).unwrap_or(Severity::Low);
    let measured = format!(
        "{} µs of CPU time per full handshake; one signature with such a key takes {} µs on this machine, {} of it",
        whole(cpu.full_us),
        whole(r.signature_us),
        percent(share.min(1.0))
    );
    let found = subject.finding(FindingId::SignatureDear, severity, measured);
    let found = found
        .with("key", r.key.replace(' ', "-"))
        .with("bits", bits);
    Some(found.with("handshake", whole(r.handshake_us)))
}

/// Reports CPU time that the signature and the library do not explain.
fn full_handshake(
    subject: &AuditSubject,
    cpu: &CpuFigures,
    is_process_each: bool,
) -> Option<Finding> {
    let r = &cpu.reference;
    // The client's certificate is parsed, and it and the client's signature are verified: about as much again.
    let of_client = if subject.sends_certificate {
        r.handshake_us
    } else {
        0.0
    };
    let needed = r.needed_us() + of_client;
    let times = cpu.full_us / needed.max(1.0);
    let software = subject.software();
    let usual = if software.is_interpreted {
        RUNTIME_TIMES
    } else {
        1.0
    };
    let severity = match Severity::above(&CPU_RATIO, times / usual)? {
        // A runtime that has just started also compiles code; its later cost was not measured.
        _ if software.compiles && subject.parsing_share > PARSING_SHARE => Severity::Medium,
        _ if software.compiles => Severity::Low,
        Severity::Low if subject.parsing_share > PARSING_SHARE => Severity::Medium,
        severity => severity,
    };
    let kernel = cpu.full_system_us / cpu.full_us.max(1.0);
    let measured = format!(
        "{} µs of CPU time per connection, {} of it in the kernel",
        whole(cpu.full_us),
        percent(kernel)
    );
    let mut found = subject
        .finding(FindingId::HandshakeCpu, severity, measured)
        .with("times", format!("{times:.0}"))
        .with("needed", whole(needed))
        .with("handshake", whole(r.needed_us() - r.tcp_us))
        .with("key", &r.key)
        .with("signature", whole(r.signature_us))
        .with("exchange", whole(r.exchange_us))
        .with("socket", whole(r.tcp_us));
    found = found.with(
        "certificate",
        match of_client {
            0.0 => String::new(),
            of_client => format!(", {} for the client's certificate", whole(of_client)),
        },
    );
    found.advice = subject.advice_on_handshakes(cpu.profile.value().map(Vec::as_slice));
    found = match (cpu.profile.value(), cpu.profile.why_not()) {
        _ if software.compiles => found.because(COMPILES, Confidence::Low),
        (Some(profile), _) => found.because(hot_spots::words(profile), Confidence::High),
        (_, Some(why)) if kernel <= 0.6 => {
            let cause = format!("what takes the time is not known, because {why}. {PERF}");
            found.because(cause, Confidence::Low)
        }
        _ => found,
    };
    if is_process_each {
        found.cause = format!("{PROCESS_EACH}; {}", found.cause);
        found.advice = subject.advice(FindingId::ProcessPerConnection);
    }
    Some(found)
}

fn not_cheaper(subject: &AuditSubject, cpu: &CpuFigures, findings: &mut Vec<Finding>) {
    // A signature that is a small part of a connection's cost saves less than the measurement varies.
    let shows = cpu.reference.signature_us > SAVING_SHARE * cpu.full_us && cpu.full_us > 0.0;
    for (version, us) in cpu.resumed_us.iter().filter(|_| shows) {
        if let Some(us) = us.value().filter(|us| **us > 0.95 * cpu.full_us) {
            let measured = format!("{} µs resumed, {} µs full", whole(*us), whole(cpu.full_us));
            let found = subject.finding(FindingId::ResumptionNotCheaper, Severity::Low, measured);
            findings.push(found.with("version", version));
        }
    }
}

/// Reports CPU time while all connections are idle. A server that polls uses all of the core that it gets, so its cost
/// per connection depends on their number and on the machine's load; that it never sleeps does not.
fn idle(subject: &AuditSubject, cpu: &CpuFigures, held: Option<u64>) -> Option<Finding> {
    let idle = cpu.idle_us_per_connection_s.value().copied().unwrap_or(0.0);
    let is_background = held.is_some_and(|held| idle * held as f64 <= BACKGROUND_US);
    let by_cost = Severity::above(&IDLE_US, idle).filter(|_| !is_background);
    // Compilers and collectors may still be at work after the load.
    let software = subject.software();
    let threads = cpu.polling_threads.value().copied().unwrap_or(0);
    let polls = threads > 0 && !software.collects && !software.compiles;
    let severity = by_cost.max(polls.then_some(Severity::Medium))?;
    let measured = format!("{} µs per idle connection and second", whole(idle));
    let mut found = subject.finding(FindingId::IdleCpu, severity, measured);
    if polls {
        let cause = "a loop looks for events again and again instead of waiting for them";
        found = found.because(cause, Confidence::High);
        let threads = match threads {
            1 => "1 thread".to_owned(),
            several => format!("{several} threads"),
        };
        found.measured += &format!("; {threads} never slept while nothing happened");
    }
    Some(found)
}

fn first_connection(subject: &AuditSubject, first: &FirstConnection) -> Option<Finding> {
    let more = first.first_cpu_ms - first.later_cpu_ms;
    let usual = Severity::above(&FIRST_MS, more)?;
    if first.first_cpu_ms < 5.0 * first.later_cpu_ms {
        return None;
    }
    let measured = format!(
        "{:.0} ms of CPU time for the first handshake, {:.2} for later ones; the process held {}",
        first.first_cpu_ms,
        first.later_cpu_ms,
        bytes(first.held_bytes as f64)
    );
    let mut found = subject.finding(FindingId::FirstConnectionSlow, usual, measured);
    if subject.software().compiles {
        found.severity = usual.min(Severity::Low);
        found.cause = "the runtime loads and interprets its code on the first connection; the finding does not tell this from work of the program".into();
    }
    if let Some(larger) = &first.larger {
        let held = larger.held_bytes as f64 / (first.held_bytes as f64).max(1.0);
        let took = (larger.first_cpu_ms - larger.later_cpu_ms) / more;
        found.measured += &format!(
            "; {:.0} ms when it held {}",
            larger.first_cpu_ms,
            bytes(larger.held_bytes as f64)
        );
        if held > 1.5 && took > 1.5 {
            let cause = "the first connection walks through all of the process's memory: its time grows in proportion";
            found = found.because(cause, Confidence::High);
            found.severity = usual;
        } else {
            found.cause += "; the time does not grow with the memory that the process holds";
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Audit, Measured};

    /// A stored audit is judged again, or drawn, long after it was made.
    #[test]
    fn a_certificate_is_judged_at_the_time_of_the_audit() {
        let judged = |at_s: u64| {
            let mut audit = Audit::begin("server", "s", "127.0.0.1:1");
            audit.started_at_s = at_s;
            let offer = Offer {
                chain: vec![Certificate {
                    subject: "CN=a".into(),
                    key: "ECDSA 256".into(),
                    bytes: 500,
                    expires_at_s: 1_000 * DAY_S,
                }],
                ..Offer::default()
            };
            let mut findings = Vec::new();
            offered(&AuditSubject::new(&audit), &offer, &mut findings);
            let found = findings.into_iter().next();
            found.map(|found| (found.severity, found.measured))
        };
        let day = |day: u64| judged(day * 86_400);
        assert_eq!(day(900), None);
        let soon = (Severity::Medium, "CN=a: 10 days left".to_owned());
        assert_eq!(day(990), Some(soon));
        let over = (Severity::High, "CN=a: expired 3 days ago".to_owned());
        assert_eq!(day(1_003), Some(over));
    }

    /// Recorded: Apache and HAProxy with a key that signs in 19 µs: a connection costs 717 to 1,109 µs, of which a resumed one
    /// saves less than two measurements of the same differ.
    #[test]
    fn a_saving_that_cannot_be_seen_is_not_missed() {
        let subject = AuditSubject::new(&Audit::begin("server", "s", "127.0.0.1:1"));
        let judged = |signature_us, full_us, resumed_us| {
            let mut cpu = CpuFigures::with_profile(Vec::new());
            cpu.reference.signature_us = signature_us;
            cpu.full_us = full_us;
            let version = "TLS 1.3".to_owned();
            cpu.resumed_us.insert(version, Measured::Value(resumed_us));
            let mut findings = Vec::new();
            not_cheaper(&subject, &cpu, &mut findings);
            findings.into_iter().next().map(|finding| finding.id)
        };
        assert_eq!(judged(19.0, 717.0, 765.0), None);
        let rsa = judged(700.0, 1_668.0, 1_660.0);
        assert_eq!(rsa, Some(FindingId::ResumptionNotCheaper));
        assert_eq!(judged(700.0, 1_668.0, 701.0), None);
    }

    /// A slow server is held with few connections, among which the work of its timers is divided.
    #[test]
    fn timers_of_a_runtime_are_no_cost_of_connections() {
        let subject = AuditSubject::new(&Audit::begin("server", "s", "127.0.0.1:1"));
        let severity = |us, held| {
            let mut cpu = CpuFigures::with_profile(Vec::new());
            cpu.idle_us_per_connection_s = Measured::Value(us);
            idle(&subject, &cpu, held).map(|finding| finding.severity)
        };
        assert_eq!(severity(250.0, Some(20)), None);
        assert_eq!(severity(250.0, Some(500)), Some(Severity::Medium));
        assert_eq!(severity(60.0, Some(500)), Some(Severity::Low));
        assert_eq!(severity(250.0, None), Some(Severity::Medium));
    }
}
