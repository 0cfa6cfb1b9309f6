//! Findings about a server's offer and its CPU time.

use super::catalogue::FindingId;
use super::finding::{Confidence, Finding, Severity};
use super::hot_spots;
use super::quoted;
use super::records;
use super::resumption;
use super::serialised;
use super::subject::AuditSubject;
use super::units::{bytes, percent, whole};
use crate::model::{Certificate, CpuFigures, FirstConnection, Measured, Offer, ServerFigures};

/// CPU time of a full handshake, as a multiple of the time that it needs with this key.
const CPU_RATIO: [(f64, Severity); 3] = [
    (20.0, Severity::High),
    (8.0, Severity::Medium),
    (3.0, Severity::Low),
];
/// Factor by which an interpreter or runtime itself may exceed these limits.
const RUNTIME_TIMES: f64 = 3.0;
/// RSA key size in bits above which a signature costs more than its strength is worth, and the share of a handshake's
/// CPU time from which that is a finding.
const RSA_BITS: u32 = 2048;
const SIGNATURE_SHARE: f64 = 0.25;
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
const PERF: &str = "`perf record -g -p PID` while the command below runs, then `perf report`, shows what the server does";
const COMPRESSION: &str = "no compression: it leaks secrets (CRIME) and takes memory for every connection. Turned off with {{advice.openssl.compression}}";
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
        // What a handshake needs with a key of another kind is not known.
        let is_known = key.is_none_or(|key| key == cpu.reference.key);
        handshakes(subject, cpu, (is_known, is_process_each), findings);
        let quiet = memory.and_then(|memory| memory.at("after_quiet"));
        findings.extend(idle(subject, cpu, quiet.map(|phase| phase.connections)));
    }
    if let Some(first) = figures.first.value() {
        findings.extend(first_connection(subject, first));
    }
    let server_first = figures
        .flights
        .iter()
        .filter_map(|row| row.bytes.get(1))
        .max();
    if let Some(&most) = server_first.filter(|most| **most > FIRST_WINDOW) {
        findings.push(Finding {
            title: "the server's first flight takes an additional round trip".into(),
            measured: format!("{} bytes", whole(f64::from(most))),
            reference: format!(
                "{} bytes fit into the first ten segments",
                whole(f64::from(FIRST_WINDOW))
            ),
            cause: flight_cause(figures, most),
            ..subject.finding(FindingId::FlightLarge, Severity::Low)
        });
    }
}

/// Why the server's first flight is long.
fn flight_cause(figures: &ServerFigures, flight: u32) -> String {
    let chain = figures.offer.value().map(|offer| &offer.chain);
    let chain: u64 = chain.map_or(0, |chain| chain.iter().map(|each| each.bytes).sum());
    if 2 * chain > u64::from(flight) {
        return "the certificate chain is long".into();
    }
    format!(
        "the certificate chain has only {} bytes; the rest is padding, or a list of authorities for client certificates",
        whole(chain as f64)
    )
}

fn offered(subject: &AuditSubject, offer: &Offer, findings: &mut Vec<Finding>) {
    if offer.compression == Some(true) {
        findings.push(Finding {
            title: "the server accepts TLS compression".into(),
            measured: "the server chose DEFLATE when a ClientHello of TLS 1.2 offered it".into(),
            reference: quoted::filled(COMPRESSION),
            cause: "the TLS library was built with zlib, and compression is not switched off"
                .into(),
            ..subject.finding(FindingId::CompressionAccepted, Severity::High)
        });
    }
    let old: Vec<_> = ["TLS 1.0", "TLS 1.1"]
        .into_iter()
        .filter(|v| offer.versions.get(*v) == Some(&true))
        .collect();
    if !old.is_empty() {
        findings.push(Finding {
            title: "the server accepts TLS versions that RFC 8996 has withdrawn".into(),
            measured: format!("{} accepted", old.join(" and ")),
            reference: "TLS 1.2 and 1.3 only".into(),
            cause: "the configuration allows these versions".into(),
            ..subject.finding(FindingId::OldVersions, Severity::Low)
        });
    }
    if offer.versions.get("TLS 1.3") == Some(&false) {
        findings.push(Finding {
            title: "the server does not offer TLS 1.3".into(),
            measured: "the server refused a ClientHello for TLS 1.3".into(),
            reference: "TLS 1.3 needs one round trip less".into(),
            cause: "an old TLS library, or the configuration forbids it".into(),
            ..subject.finding(FindingId::NoTls13, Severity::Low)
        });
    }
    if offer.secure_renegotiation == Some(false) {
        findings.push(Finding {
            title: "the server does not announce secure renegotiation".into(),
            measured: "the ServerHello of TLS 1.2 has no renegotiation_info".into(),
            reference: "announced (RFC 5746), or TLS 1.3 only".into(),
            cause: "an old TLS library".into(),
            ..subject.finding(FindingId::NoRenegotiationInfo, Severity::Low)
        });
    }
    findings.extend(renegotiation(subject, offer));
    if let Some(max) = offer.early_data_max_bytes.filter(|bytes| *bytes > 0) {
        findings.push(Finding {
            title: "the server accepts 0-RTT data, which can be replayed".into(),
            measured: format!("tickets allow {max} bytes of 0-RTT data"),
            reference: "no 0-RTT, unless every request is safe to repeat".into(),
            cause: "0-RTT is switched on".into(),
            ..subject.finding(FindingId::EarlyData, Severity::Info)
        });
    }
    findings.extend(expiry(subject, offer));
}

fn renegotiation(subject: &AuditSubject, offer: &Offer) -> Option<Finding> {
    if offer.client_renegotiation != Some(true) {
        return None;
    }
    let (id, severity, title, cause) = if offer.secure_renegotiation == Some(false) {
        (
            FindingId::RenegotiationInsecure,
            Severity::High,
            "renegotiation is not protected: an attacker can insert data before the client's (CVE-2009-3555)",
            "an old TLS library, or a setting that allows unsafe renegotiation",
        )
    } else {
        (
            FindingId::RenegotiationByClient,
            Severity::Low,
            "a client can make the server repeat handshakes on one connection",
            "the TLS library or the configuration allows it",
        )
    };
    Some(Finding {
        title: title.into(),
        measured: "the server answered a second ClientHello on an established TLS 1.2 connection with a ServerHello".into(),
        reference: "the server refuses renegotiation, or offers TLS 1.3 only, which has none".into(),
        cause: cause.into(),
        ..subject.finding(id, severity)
    })
}

fn expiry(subject: &AuditSubject, offer: &Offer) -> Option<Finding> {
    let at_s = subject.at_s;
    let left_s = |certificate: &&Certificate| certificate.left_s(at_s);
    let first = offer.chain.iter().min_by_key(left_s)?;
    let (severity, title) = match first.left_s(at_s) {
        ..0 => (Severity::High, "a certificate of the chain has expired"),
        left if left < 14 * DAY_S => (Severity::Medium, "a certificate of the chain expires soon"),
        _ => return None,
    };
    Some(Finding {
        title: title.into(),
        measured: format!("{}: {}", first.subject, first.left_words(at_s)),
        reference: "more than 14 days".into(),
        cause: "the certificate was not renewed".into(),
        ..subject.finding(FindingId::CertificateExpires, severity)
    })
}

fn handshakes(
    subject: &AuditSubject,
    cpu: &CpuFigures,
    (is_known, is_process_each): (bool, bool),
    findings: &mut Vec<Finding>,
) {
    findings.extend(signature(subject, cpu));
    let mut full = full_handshake(subject, cpu).filter(|_| is_known);
    if let Some(finding) = full.as_mut().filter(|_| is_process_each) {
        finding.cause = format!("{PROCESS_EACH}; {}", finding.cause);
        finding.advice = subject.advice(FindingId::ProcessPerConnection);
    }
    findings.extend(full);
    not_cheaper(subject, cpu, findings);
}

/// Reports signatures with an RSA key that is larger than necessary.
fn signature(subject: &AuditSubject, cpu: &CpuFigures) -> Option<Finding> {
    let r = &cpu.reference;
    let bits: u32 = r.key.strip_prefix("RSA ")?.parse().ok()?;
    let share = r.signature_us / cpu.full_us.max(1.0);
    if bits <= RSA_BITS || share < SIGNATURE_SHARE {
        return None;
    }
    let severity = if share > 0.5 {
        Severity::Medium
    } else {
        Severity::Low
    };
    Some(Finding {
        title: format!(
            "signatures with an {} key dominate the handshake",
            r.key.replace(' ', "-")
        ),
        measured: format!(
            "{} µs of CPU time per full handshake; one signature with such a key takes {} µs on this machine, {} of it",
            whole(cpu.full_us),
            whole(r.signature_us),
            percent(share.min(1.0))
        ),
        reference: format!(
            "a handshake with ECDSA P-256 takes {} µs on this machine, its signature included",
            whole(r.handshake_us)
        ),
        cause: format!("the certificate has a key of {bits} bits"),
        command: subject.bench("churn", "-n 2000 -c 16"),
        ..subject.finding(FindingId::SignatureDear, severity)
    })
}

/// Reports CPU time that the signature and the library do not explain.
fn full_handshake(subject: &AuditSubject, cpu: &CpuFigures) -> Option<Finding> {
    let r = &cpu.reference;
    // The client's certificate is parsed, and it and the client's signature are verified: about as much again.
    let of_client = if subject.sends_client_certificate() {
        r.handshake_us
    } else {
        0.0
    };
    let needed = r.needed_us() + of_client;
    let ratio = cpu.full_us / needed.max(1.0);
    let usual = if subject.kind.is_interpreted() {
        RUNTIME_TIMES
    } else {
        1.0
    };
    let severity = Severity::above(&CPU_RATIO, ratio / usual)?;
    let kernel = cpu.full_system_us / cpu.full_us.max(1.0);
    // A runtime that has just started also compiles code; its later cost was not measured.
    let compiles = subject.kind.compiles();
    let severity = if compiles { Severity::Low } else { severity };
    let parsing = cpu
        .profile
        .value()
        .map_or(0.0, |profile| hot_spots::parsing_share(profile));
    let severity = match severity {
        Severity::Low if parsing > PARSING_SHARE => Severity::Medium,
        other => other,
    };
    let (cause, confidence) = match cpu.profile.value() {
        Some(profile) if !compiles => (hot_spots::words(profile), Confidence::High),
        None if !compiles && kernel <= 0.6 => {
            let why = match &cpu.profile {
                Measured::NotMeasured(why) => why.as_str(),
                Measured::Value(_) => "",
            };
            (
                format!("what takes the time is not known, because {why}. {PERF}"),
                Confidence::Low,
            )
        }
        _ => (likely_cause(compiles).to_owned(), Confidence::Low),
    };
    Some(Finding {
        title: format!(
            "a connection with a full handshake costs {ratio:.0} times the CPU time that its handshake needs"
        ),
        measured: format!(
            "{} µs of CPU time per connection, {} of it in the kernel",
            whole(cpu.full_us),
            percent(kernel)
        ),
        reference: format!(
            "{} µs on this machine: {} for Dormouse's handshake ({} signature {}, key exchange {}), {} for the socket{}",
            whole(needed),
            whole(r.needed_us() - r.tcp_us),
            r.key,
            whole(r.signature_us),
            whole(r.exchange_us),
            whole(r.tcp_us),
            if of_client > 0.0 {
                format!(", {} for the client's certificate", whole(of_client))
            } else {
                String::new()
            }
        ),
        cause,
        confidence,
        advice: subject.advice_on_handshakes(cpu.profile.value().map(Vec::as_slice)),
        command: subject.bench("churn", "-n 2000 -c 16"),
        ..subject.finding(FindingId::HandshakeCpu, severity)
    })
}

fn not_cheaper(subject: &AuditSubject, cpu: &CpuFigures, findings: &mut Vec<Finding>) {
    // A signature that is a small part of a connection's cost saves less than the measurement varies.
    let shows = cpu.reference.signature_us > SAVING_SHARE * cpu.full_us;
    for (version, us) in cpu.resumed_us.iter().filter(|_| shows) {
        let Some(us) = us
            .value()
            .filter(|us| **us > 0.95 * cpu.full_us && cpu.full_us > 0.0)
        else {
            continue;
        };
        findings.push(Finding {
            title: format!("resuming a session of {version} saves no CPU time"),
            measured: format!("{} µs resumed, {} µs full", whole(*us), whole(cpu.full_us)),
            reference: "a resumed handshake saves at least the signature".into(),
            cause: "the server does other work for a resumed session, which costs as much as the signature".into(),
            confidence: Confidence::Low,
            command: subject.bench("churn", "-n 2000 -c 16 --resume"),
            ..subject.finding(FindingId::ResumptionNotCheaper, Severity::Low)
        });
    }
}

/// Reports CPU time while all connections are idle. A server that polls uses all of the core that it gets, so its cost
/// per connection depends on their number and on the machine's load; that it never sleeps does not.
fn idle(subject: &AuditSubject, cpu: &CpuFigures, held: Option<u64>) -> Option<Finding> {
    let idle = cpu.idle_us_per_connection_s.value().copied().unwrap_or(0.0);
    let is_background = held.is_some_and(|held| idle * held as f64 <= BACKGROUND_US);
    let by_cost = Severity::above(&IDLE_US, idle).filter(|_| !is_background);
    // Compilers and collectors may still be at work after the load.
    let threads = cpu.polling_threads.value().copied().unwrap_or(0);
    let polls = threads > 0 && !subject.kind.collects() && !subject.kind.compiles();
    let severity = by_cost.max(polls.then_some(Severity::Medium))?;
    let mut measured = format!("{} µs per idle connection and second", whole(idle));
    if polls {
        measured += &format!(
            "; {threads} {} never slept while nothing happened",
            if threads == 1 { "thread" } else { "threads" }
        );
    }
    Some(Finding {
        title: "the server uses CPU time while all connections are idle".into(),
        measured,
        reference: "0 µs: nothing happens on an idle connection".into(),
        cause: if polls {
            "a loop looks for events again and again instead of waiting for them"
        } else {
            "a timer for each connection, or a loop over all connections"
        }
        .into(),
        confidence: if polls {
            Confidence::High
        } else {
            Confidence::Medium
        },
        command: subject.bench("hold", "-n 1000 --for 10s"),
        ..subject.finding(FindingId::IdleCpu, severity)
    })
}

fn likely_cause(compiles: bool) -> &'static str {
    if compiles {
        "a virtual machine interprets and compiles its code during the first tens of thousands of handshakes; the audit did not measure the cost after that"
    } else {
        "most of the time is spent in the kernel: many small system calls per connection, or memory that the process returns and takes again. `strace -c -f -p PID` under load counts the calls"
    }
}

fn first_connection(subject: &AuditSubject, first: &FirstConnection) -> Option<Finding> {
    let more = first.first_cpu_ms - first.later_cpu_ms;
    let usual = Severity::above(&FIRST_MS, more)?;
    if first.first_cpu_ms < 5.0 * first.later_cpu_ms {
        return None;
    }
    let mut measured = format!(
        "{:.0} ms of CPU time for the first handshake, {:.2} for later ones; the process held {}",
        first.first_cpu_ms,
        first.later_cpu_ms,
        bytes(first.held_bytes as f64)
    );
    let mut cause = "the server seeds, loads or compiles something on the first connection instead of at its start".to_owned();
    let mut confidence = Confidence::Medium;
    let mut severity = usual;
    if subject.kind.compiles() {
        severity = severity.min(Severity::Low);
        cause = "the runtime loads and interprets its code on the first connection; the finding does not tell this from work of the program".into();
    }
    if let Some(larger) = &first.larger {
        let held = larger.held_bytes as f64 / (first.held_bytes as f64).max(1.0);
        let took = (larger.first_cpu_ms - larger.later_cpu_ms) / more;
        measured += &format!(
            "; {:.0} ms when it held {}",
            larger.first_cpu_ms,
            bytes(larger.held_bytes as f64)
        );
        if held > 1.5 && took > 1.5 {
            cause = "the first connection walks through all of the process's memory: its time grows in proportion".into();
            confidence = Confidence::High;
            severity = usual;
        } else {
            cause += "; the time does not grow with the memory that the process holds";
        }
    }
    Some(Finding {
        title: "the first connection does work that belongs to the server's start".into(),
        measured,
        reference: "the first connection costs as much as the thousandth".into(),
        cause,
        confidence,
        ..subject.finding(FindingId::FirstConnectionSlow, severity)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Audit;

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
