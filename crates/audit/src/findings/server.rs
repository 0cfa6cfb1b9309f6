//! Findings about what a server offers and spends.

use super::catalogue::FindingId;
use super::finding::{Confidence, Finding, Severity};
use super::quoted;
use super::resumption;
use super::subject::AuditSubject;
use super::units::{bytes, percent, whole};
use crate::model::{Certificate, CpuFigures, FirstConnection, Offer, ServerFigures};

/// CPU time of a full handshake over that of a good server.
const CPU_RATIO: [(f64, Severity); 3] = [
    (20.0, Severity::High),
    (8.0, Severity::Medium),
    (3.0, Severity::Low),
];
/// Idle CPU time: microseconds per connection and second.
const IDLE_US: [(f64, Severity); 2] = [(200.0, Severity::Medium), (50.0, Severity::Low)];
/// The first handshake: milliseconds of CPU time over a later one.
const FIRST_MS: [(f64, Severity); 2] = [(200.0, Severity::High), (20.0, Severity::Medium)];
const COMPRESSION: &str = "no compression: it leaks secrets (CRIME), and its contexts take memory; without them, {{advice.openssl.compression}}";
const DAY_S: i64 = 86_400;
/// Bytes that a server may send before the first acknowledgement (RFC 6928): ten segments.
const FIRST_WINDOW: u32 = 14_600;

pub(super) fn judge(subject: &AuditSubject, figures: &ServerFigures, findings: &mut Vec<Finding>) {
    if let Some(offer) = figures.offer.value() {
        offered(subject, offer, findings);
    }
    resumption::judge(subject, figures, findings);
    if let Some(cpu) = figures.cpu.value() {
        handshakes(subject, cpu, findings);
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
            id: FindingId::FlightLarge,
            severity: Severity::Low,
            title: "the server's first flight takes a round trip more".into(),
            measured: format!("{} bytes", whole(f64::from(most))),
            reference: format!(
                "{} bytes fit into the first ten segments",
                whole(f64::from(FIRST_WINDOW))
            ),
            cause: "a long chain of certificates".into(),
            confidence: Confidence::High,
            advice: subject.advice(FindingId::FlightLarge),
            command: subject.audit(),
        });
    }
}

fn offered(subject: &AuditSubject, offer: &Offer, findings: &mut Vec<Finding>) {
    let mut add =
        |id: FindingId, severity, title: &str, measured: String, reference: &str, cause: &str| {
            findings.push(Finding {
                id,
                severity,
                title: title.into(),
                measured,
                reference: reference.into(),
                cause: cause.into(),
                confidence: Confidence::High,
                advice: subject.advice(id),
                command: subject.audit(),
            });
        };
    if offer.compression == Some(true) {
        add(
            FindingId::CompressionAccepted,
            Severity::High,
            "TLS compression is on",
            "a ClientHello of TLS 1.2 with DEFLATE was answered by choosing it".into(),
            &quoted::filled(COMPRESSION),
            "a TLS library which was built with zlib, and compression not switched off",
        );
    }
    let old: Vec<_> = ["TLS 1.0", "TLS 1.1"]
        .into_iter()
        .filter(|v| offer.versions.get(*v) == Some(&true))
        .collect();
    if !old.is_empty() {
        let measured = format!("{} accepted", old.join(" and "));
        add(
            FindingId::OldVersions,
            Severity::Low,
            "versions of TLS which RFC 8996 has withdrawn are accepted",
            measured,
            "TLS 1.2 and 1.3 only",
            "the configuration allows them",
        );
    }
    if offer.versions.get("TLS 1.3") == Some(&false) {
        let measured = "a ClientHello for TLS 1.3 was not accepted".into();
        add(
            FindingId::NoTls13,
            Severity::Low,
            "TLS 1.3 is not offered",
            measured,
            "TLS 1.3: a round trip less",
            "an old library, or the configuration",
        );
    }
    if offer.secure_renegotiation == Some(false) {
        let measured = "no renegotiation_info in the ServerHello of TLS 1.2".into();
        add(
            FindingId::NoRenegotiationInfo,
            Severity::Low,
            "secure renegotiation is not announced",
            measured,
            "announced (RFC 5746), or TLS 1.3 only",
            "an old library",
        );
    }
    renegotiation(offer, &mut add);
    if offer.early_data_max_bytes.is_some_and(|bytes| bytes > 0) {
        let measured = format!(
            "tickets allow {} bytes of 0-RTT data",
            offer.early_data_max_bytes.unwrap_or(0)
        );
        add(
            FindingId::EarlyData,
            Severity::Info,
            "0-RTT data is accepted, which can be replayed",
            measured,
            "none, unless every request is safe to repeat",
            "it is switched on",
        );
    }
    expiry(offer, &mut add);
}

fn renegotiation(
    offer: &Offer,
    add: &mut impl FnMut(FindingId, Severity, &str, String, &str, &str),
) {
    if offer.client_renegotiation != Some(true) {
        return;
    }
    let measured = "a second ClientHello on an established connection of TLS 1.2 was answered by a ServerHello".to_owned();
    let reference = "refused, or TLS 1.3 only, which knows no renegotiation";
    if offer.secure_renegotiation == Some(false) {
        add(
            FindingId::RenegotiationInsecure,
            Severity::High,
            "renegotiation without protection: what somebody else said is put before what the client says (CVE-2009-3555)",
            measured,
            reference,
            "an old library, or unsafe renegotiation was allowed",
        );
    } else {
        add(
            FindingId::RenegotiationByClient,
            Severity::Low,
            "a client may have the server make handshakes over and over on one connection",
            measured,
            reference,
            "it is allowed by the library or by the configuration",
        );
    }
}

fn expiry(offer: &Offer, add: &mut impl FnMut(FindingId, Severity, &str, String, &str, &str)) {
    let Some(left_s) = offer.chain.iter().map(Certificate::left_s).min() else {
        return;
    };
    let (severity, title) = match left_s {
        ..0 => (Severity::High, "a certificate of the chain has expired"),
        left if left < 14 * DAY_S => (Severity::Medium, "a certificate of the chain expires soon"),
        _ => return,
    };
    add(
        FindingId::CertificateExpires,
        severity,
        title,
        format!("{} days are left", left_s / DAY_S),
        "more than 14 days",
        "it was not renewed",
    );
}

fn handshakes(subject: &AuditSubject, cpu: &CpuFigures, findings: &mut Vec<Finding>) {
    let good = cpu.reference.handshake_us + cpu.reference.tcp_us;
    let ratio = cpu.full_us / good.max(1.0);
    let r = &cpu.reference;
    let reference = format!(
        "{} µs on this machine: {} for a handshake of dormouse ({} signature {}, key exchange {}), {} for the socket",
        whole(good),
        whole(r.handshake_us),
        r.key,
        whole(r.signature_us),
        whole(r.exchange_us),
        whole(r.tcp_us)
    );
    if let Some((_, severity)) = CPU_RATIO.iter().find(|(limit, _)| ratio > *limit) {
        let kernel = cpu.full_system_us / cpu.full_us.max(1.0);
        // A virtual machine that has just been started compiles as well; its later cost was not measured.
        let compiles = subject.kind.compiles();
        let severity = if compiles { &Severity::Low } else { severity };
        let cause = why_dear(compiles, kernel, *severity);
        findings.push(Finding {
            id: FindingId::HandshakeCpu,
            severity: *severity,
            title: format!("a full handshake costs {ratio:.0} times what it needs to"),
            measured: format!(
                "{} µs of CPU time per connection, {} of it in the kernel",
                whole(cpu.full_us),
                percent(kernel)
            ),
            reference: reference.clone(),
            cause: cause.into(),
            confidence: if *severity == Severity::Low {
                Confidence::Low
            } else {
                Confidence::Medium
            },
            advice: subject.advice(FindingId::HandshakeCpu),
            command: subject.bench("churn", "-n 2000 -c 16"),
        });
    }
    for (version, us) in &cpu.resumed_us {
        let Some(us) = us
            .value()
            .filter(|us| **us > 0.95 * cpu.full_us && cpu.full_us > 0.0)
        else {
            continue;
        };
        findings.push(Finding {
            id: FindingId::ResumptionNotCheaper,
            severity: Severity::Low,
            title: format!("resuming a session of {version} saves nothing"),
            measured: format!("{} µs resumed, {} µs full", whole(*us), whole(cpu.full_us)),
            reference: "the signature is saved at least".into(),
            cause: "the cost lies elsewhere: outside of the handshake's cryptography".into(),
            confidence: Confidence::Low,
            advice: subject.advice(FindingId::HandshakeCpu),
            command: subject.bench("churn", "-n 2000 -c 16 --resume"),
        });
    }
    let idle = cpu.idle_us_per_connection_s.value().copied().unwrap_or(0.0);
    if let Some((_, severity)) = IDLE_US.iter().find(|(limit, _)| idle > *limit) {
        findings.push(Finding {
            id: FindingId::IdleCpu,
            severity: *severity,
            title: "quiet connections cost CPU time".into(),
            measured: format!("{} µs per quiet connection and second", whole(idle)),
            reference: "0: nothing happens on a quiet connection".into(),
            cause: "timers, or polling of all connections".into(),
            confidence: Confidence::Medium,
            advice: subject.advice(FindingId::IdleCpu),
            command: subject.bench("hold", "-n 1000 --for 10s"),
        });
    }
}

fn why_dear(compiles: bool, kernel: f64, severity: Severity) -> &'static str {
    if compiles {
        "a virtual machine interprets and compiles its code during the first ten thousands of handshakes; what they cost later was not measured"
    } else if kernel > 0.6 {
        "most of it is spent in the kernel: many small system calls per connection, or memory given back and taken again"
    } else if severity == Severity::Low {
        "nothing stands out: the TLS library, and what the server does around it"
    } else {
        "something is made or parsed for every connection which could be shared: a context, a trust store, a key"
    }
}

fn first_connection(subject: &AuditSubject, first: &FirstConnection) -> Option<Finding> {
    let more = first.first_cpu_ms - first.later_cpu_ms;
    let (_, severity) = FIRST_MS.iter().find(|(limit, _)| more > *limit)?;
    if first.first_cpu_ms < 5.0 * first.later_cpu_ms {
        return None;
    }
    let mut measured = format!(
        "{:.0} ms of CPU time for the first handshake, {:.2} for later ones; the process held {}",
        first.first_cpu_ms,
        first.later_cpu_ms,
        bytes(first.held_bytes as f64)
    );
    let mut cause = "work that belongs to the start is left to the first connection: seeding, loading, compiling".to_owned();
    let mut confidence = Confidence::Medium;
    if let Some(larger) = &first.larger {
        let held = larger.held_bytes as f64 / (first.held_bytes as f64).max(1.0);
        let took = (larger.first_cpu_ms - larger.later_cpu_ms) / more;
        measured += &format!(
            "; {:.0} ms when it held {}",
            larger.first_cpu_ms,
            bytes(larger.held_bytes as f64)
        );
        if held > 1.5 && took > 1.5 {
            cause = "it walks over everything that the process holds, and takes time in proportion to it".into();
            confidence = Confidence::High;
        } else {
            cause += "; it does not grow with what the process holds";
        }
    }
    Some(Finding {
        id: FindingId::FirstConnectionSlow,
        severity: *severity,
        title: "the first connection pays for the start".into(),
        measured,
        reference: "what the thousandth costs".into(),
        cause,
        confidence,
        advice: subject.advice(FindingId::FirstConnectionSlow),
        command: subject.audit(),
    })
}
