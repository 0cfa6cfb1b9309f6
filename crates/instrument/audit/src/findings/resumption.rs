//! Findings about session resumption by a server.

use super::subject::AuditSubject;
use super::units::{percent, whole};
use crate::catalogue::{Confidence, FindingId, Severity};
use crate::model::Finding;
use crate::model::{AddressTrials, ServerFigures, Trials};

/// Minimum share at which sessions count as resumed.
const RESUMES: f64 = 0.9;
/// Upper bound of the interval above which the server may resume all sessions.
const RESUMES_ALL: f64 = 0.95;
/// Maximum number of pairs of addresses that are named.
const PAIRS_MAX: usize = 4;

/// Bytes by which the ClientHello is longer with a ticket that holds its session.
const OF_SESSION: u32 = 150;
/// Bytes by which a ClientHello of TLS 1.3 is longer with a ticket that only names a session of the server: an id of 32 bytes,
/// and 63 bytes of framing, age and binder.
const NAMED_BYTES: u32 = 32 + 63;

/// What the trials say about a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Resumes {
    None,
    Partly,
    All,
}

impl Resumes {
    /// Judges by the share's confidence interval, so that a single refusal does not change the verdict. A single resumption
    /// does: no server resumes a session by chance.
    fn of(trials: &Trials) -> Self {
        let (_, most) = trials.interval();
        if trials.resumed == 0 {
            Self::None
        } else if most > RESUMES_ALL {
            Self::All
        } else {
            Self::Partly
        }
    }
}

pub(super) fn judge(subject: &AuditSubject, figures: &ServerFigures, findings: &mut Vec<Finding>) {
    findings.extend(refused(subject, figures));
    at_one_address(subject, figures, findings);
    findings.extend(across_addresses(subject, figures));
    findings.extend(over_time(subject, figures));
}

/// Reports that connections fail if they offer a session.
fn refused(subject: &AuditSubject, figures: &ServerFigures) -> Option<Finding> {
    let all = figures.resumption.iter();
    let tried = all.filter_map(|entry| Some((entry.version.as_str(), entry.trials.value()?)));
    let refusals: Vec<_> = tried
        .filter(|(_, trials)| trials.refusal.is_some())
        .collect();
    let why = refusals.first()?.1.refusal.as_deref()?;
    let mut versions: Vec<&str> = refusals.iter().map(|(version, _)| *version).collect();
    versions.dedup();
    let offered: u64 = refusals.iter().map(|(_, trials)| trials.offered).sum();
    let measured = format!(
        "each of {offered} connections that offered a session failed: {why}; connections without one, made before each, were established"
    );
    let id = FindingId::SessionOfferRefused;
    let found = subject.finding(id, Severity::High, measured);
    let found = found.with("versions", versions.join(" or "));
    let offer = figures.offer.value();
    let asks = offer.is_some_and(|offer| offer.client_certificate_asked == Some(true));
    Some(match subject.software().cause(id).filter(|_| asks) {
        Some(cause) => found.because(cause, Confidence::High),
        None => found,
    })
}

fn at_one_address(subject: &AuditSubject, figures: &ServerFigures, findings: &mut Vec<Finding>) {
    let of = |by: &str| {
        let entries = figures.resumption.iter().filter(|entry| entry.by == by);
        let tried =
            entries.filter_map(|entry| Some((entry.version.as_str(), entry.trials.value()?)));
        tried.collect::<Vec<(&str, &Trials)>>()
    };
    let mut by_ticket = of("ticket");
    by_ticket.retain(|(_, trials)| trials.refusal.is_none());
    let by_id = of("session id");
    let by_id = by_id
        .first()
        .map_or(Resumes::None, |(_, trials)| Resumes::of(trials));
    let which = |wanted: Resumes| {
        let tickets = by_ticket.iter().copied();
        tickets.filter(move |(_, trials)| Resumes::of(trials) == wanted)
    };
    let each: Vec<_> = by_ticket
        .iter()
        .map(|(version, trials)| format!("{version}: {}", outcome(trials)))
        .collect();
    let new = |id, severity| {
        let mut found = subject.finding(id, severity, each.join("; "));
        found.advice = advice(subject, figures, id);
        found
    };
    let none: Vec<_> = which(Resumes::None).collect();
    let has_by_id = by_id != Resumes::None;
    if !none.is_empty() && none.len() == by_ticket.len() {
        findings.push(if has_by_id {
            let sent = none.iter().any(|(_, trials)| trials.offered > 0);
            not_by_ticket(new(FindingId::NoTickets, Severity::Low), sent).with("of_version", "")
        } else {
            let (cause, confidence) = why_none(figures);
            new(FindingId::NoResumption, Severity::High).because(cause, confidence)
        });
    } else if let Some((version, trials)) = none.first() {
        let (id, severity) = match *version {
            "TLS 1.2" if has_by_id => (FindingId::NoTickets, Severity::Low),
            // Nearly all clients choose TLS 1.3 where a server offers it.
            "TLS 1.3" => (FindingId::NoResumptionInOneVersion, Severity::Medium),
            _ => (FindingId::NoResumptionInOneVersion, Severity::Low),
        };
        let found = not_by_ticket(new(id, severity), trials.offered > 0);
        findings.push(found.with("of_version", format!(" of {version}")));
    }
    let worst = which(Resumes::Partly).min_by(|a, b| a.1.share().total_cmp(&b.1.share()));
    if let Some((version, trials)) = worst {
        let found = new(FindingId::ResumptionPartial, Severity::High);
        let found = found.with("of_version", format!(" of {version}"));
        findings.push(partly(found.with("share", percent(trials.share())), trials));
    }
}

/// Explains that a server resumes sessions, but none by ticket; `sent`: it sends tickets.
fn not_by_ticket(found: Finding, sent: bool) -> Finding {
    if !sent {
        return found;
    }
    let cause = "the server sends tickets and accepts none of them: their keys do not outlive a connection, or they only name sessions that it does not keep";
    found.because(cause, Confidence::Medium)
}

/// Explains that no session is resumed.
fn why_none(figures: &ServerFigures) -> (&'static str, Confidence) {
    let offer = figures.offer.value();
    let is_off_in_12 = offer.is_some_and(|offer| offer.tickets_12 == Some(false));
    match sends_tickets(figures) {
        Some(false) => (
            "the server sends no tickets and remembers no sessions: both are off",
            Confidence::High,
        ),
        Some(true) if is_process_each(figures) => (
            "the server sends tickets and accepts none of them: each connection has a process of its own, with ticket keys of its own",
            Confidence::Medium,
        ),
        // SSL_OP_NO_TICKET of OpenSSL.
        Some(true) if is_off_in_12 => (
            "the server sends tickets in TLS 1.3 only, and accepts none of them: if tickets are off, those of OpenSSL only name a session there, and the server remembers none",
            Confidence::Medium,
        ),
        Some(true) => (
            "the server sends tickets and accepts none of them: each connection has a context with ticket keys of its own, or the TLS library refuses sessions",
            Confidence::Medium,
        ),
        None => {
            let row = FindingId::NoResumption.row();
            (row.cause, row.confidence)
        }
    }
}

/// Where tickets are on and their keys end with the process, the advice is about processes.
fn advice(subject: &AuditSubject, figures: &ServerFigures, id: FindingId) -> String {
    let is_of_processes = id == FindingId::NoResumption
        && is_process_each(figures)
        && sends_tickets(figures) == Some(true);
    subject.advice(if is_of_processes {
        FindingId::ProcessPerConnection
    } else {
        id
    })
}

fn is_process_each(figures: &ServerFigures) -> bool {
    let memory = figures.memory.value();
    memory.is_some_and(|memory| memory.is_process_each())
}

/// Whether the server sends tickets, if that is known.
fn sends_tickets(figures: &ServerFigures) -> Option<bool> {
    let offer = figures.offer.value()?;
    let some = offer.tickets_13.is_some_and(|tickets| tickets > 0);
    Some(offer.tickets_12 == Some(true) || some)
}

/// Reports machines behind one name that resume their own sessions but not each other's.
fn across_addresses(subject: &AuditSubject, figures: &ServerFigures) -> Option<Finding> {
    let all = figures.addresses.value()?.iter();
    let known = all.filter_map(|entry| Some((entry, entry.trials.value()?)));
    let known: Vec<_> = known.filter(|(_, trials)| trials.offered > 0).collect();
    let is_home = |(entry, trials): &(&AddressTrials, &Trials), address: &str, version: &str| {
        let is_own = entry.from == address && entry.to == address && entry.version == version;
        is_own && trials.resumed == trials.offered
    };
    let at_home =
        |address: &str, version: &str| known.iter().any(|one| is_home(one, address, version));
    // A refused ticket tells nothing unless both addresses resume their own tickets.
    let others = known.iter().filter(|(entry, _)| {
        entry.from != entry.to
            && at_home(&entry.from, &entry.version)
            && at_home(&entry.to, &entry.version)
    });
    let others: Vec<_> = others.collect();
    let taken: u64 = others.iter().map(|(_, trials)| trials.resumed).sum();
    let of: u64 = others.iter().map(|(_, trials)| trials.offered).sum();
    let share = taken as f64 / of.max(1) as f64;
    if of == 0 || share >= RESUMES {
        return None;
    }
    let refused = others
        .iter()
        .filter(|(_, trials)| trials.resumed < trials.offered);
    let mut pairs: Vec<String> = refused
        .map(|(entry, _)| format!("{} → {}", entry.from, entry.to))
        .collect();
    pairs.sort();
    pairs.dedup();
    let more = if pairs.len() > PAIRS_MAX { ", …" } else { "" };
    pairs.truncate(PAIRS_MAX);
    let (severity, words) = match taken {
        0 => (Severity::High, "none".to_owned()),
        _ => (Severity::Medium, percent(share)),
    };
    let measured = format!(
        "each address resumes its own sessions, but only {taken} of {of} of another address (refused: {}{more})",
        pairs.join(", ")
    );
    let found = subject.finding(FindingId::ResumptionNotShared, severity, measured);
    Some(found.with("share", words))
}

/// Reports tickets that the server refuses before their announced lifetime ends.
fn over_time(subject: &AuditSubject, figures: &ServerFigures) -> Option<Finding> {
    let resumes = |version: &str| {
        let all = figures.resumption.iter();
        let mut of_version = all.filter(|entry| entry.version == version && entry.by == "ticket");
        of_version.any(|entry| {
            entry
                .trials
                .value()
                .is_some_and(|trials| trials.share() > RESUMES)
        })
    };
    let aged = figures.aged.value()?;
    let early = aged.iter().find(|ticket| {
        ticket.resumed.value() == Some(&false)
            && ticket.age_s < f64::from(ticket.lifetime_s)
            && resumes(&ticket.version)
    })?;
    let measured = format!(
        "the server refused a ticket of {} that was {:.0} s old, and accepts new ones",
        early.version, early.age_s
    );
    let mut found = subject.finding(FindingId::ResumptionEndsEarly, Severity::Medium, measured);
    found = found.with("lifetime", whole(early.lifetime_s));
    if early.load_between && early.version == "TLS 1.3" && names_sessions(figures) {
        let cause = "the server keeps sessions in a cache, and its tickets only name them: the connections of this audit replaced the session";
        found.severity = Severity::Info;
        found.advice = "if as many connections as the audit made in this time are usual, enlarge the session cache, or turn tickets on that contain the session".into();
        found = found.because(cause, Confidence::Medium);
    } else if early.load_between && !holds_session(figures, &early.version) {
        found.severity = Severity::Low;
        let cause = format!(
            "{}, or this audit's load filled its session cache",
            found.cause
        );
        found = found.because(cause, Confidence::Low);
    }
    Some(found)
}

/// Whether a ticket of this version is the session itself, encrypted: then no cache can have lost it. A name in a cache has
/// 32 bytes, or a few more.
fn holds_session(figures: &ServerFigures, version: &str) -> bool {
    hello_growth(figures, version).is_some_and(|longer| longer >= OF_SESSION)
}

/// Whether tickets of TLS 1.3 are so short that they only name a session, which the server remembers.
fn names_sessions(figures: &ServerFigures) -> bool {
    hello_growth(figures, "TLS 1.3").is_some_and(|longer| longer <= NAMED_BYTES)
}

/// Bytes by which a ClientHello of this version is longer with a session.
fn hello_growth(figures: &ServerFigures, version: &str) -> Option<u32> {
    let hello = |is_resumed: bool| {
        let flights = figures.flights.iter();
        let mut of_version = flights.filter(|row| row.version == version);
        let row = of_version.find(|row| row.resumed == is_resumed)?;
        row.bytes.first().copied()
    };
    Some(hello(true)?.saturating_sub(hello(false)?))
}

fn outcome(trials: &Trials) -> String {
    let (least, most) = trials.interval();
    match trials.offered {
        // Without a ticket there is nothing to resume.
        0 => "the server sent no ticket".to_owned(),
        offered if trials.resumed == 0 || trials.resumed == offered => {
            format!("{} of {offered} resumed", trials.resumed)
        }
        offered => format!(
            "{} of {offered} resumed (95 % interval of the share: {} to {})",
            trials.resumed,
            percent(least),
            percent(most)
        ),
    }
}

/// Explains a partial share.
fn partly(found: Finding, trials: &Trials) -> Finding {
    let (least, most) = trials.interval();
    let places = |share: f64| (1.0 / share.max(0.001)).round();
    if places(trials.share()) < 2.0 {
        let cause = "some processes or machines do not share ticket keys or a session cache with the others, or a session cache is too small";
        return found.because(cause, Confidence::Medium);
    }
    let found = found.with("places", places(trials.share()));
    found
        .with("least", places(most))
        .with("most", places(least))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(resumed: u64, offered: u64) -> Resumes {
        Resumes::of(&Trials {
            offered,
            resumed,
            outcomes: Vec::new(),
            refusal: None,
        })
    }

    #[test]
    fn one_refusal_does_not_change_the_verdict_and_one_resumption_does() {
        assert_eq!(judged(0, 16), Resumes::None);
        assert_eq!(judged(1, 16), Resumes::Partly);
        assert_eq!(judged(4, 16), Resumes::Partly);
        assert_eq!(judged(8, 16), Resumes::Partly);
        assert_eq!(judged(15, 16), Resumes::All);
        assert_eq!(judged(16, 16), Resumes::All);
        assert_eq!(judged(100, 200), Resumes::Partly);
        assert_eq!(judged(12, 200), Resumes::Partly);
    }

    /// Recorded: OpenSSL without a session id context, beside client certificates.
    #[test]
    fn a_refused_offer_is_worse_than_a_full_handshake() {
        let entry = |version: &str, refusal: Option<&str>| crate::model::Resumption {
            version: version.into(),
            by: "ticket".into(),
            trials: crate::model::Measured::Value(Trials {
                offered: 2,
                refusal: refusal.map(str::to_owned),
                ..Trials::default()
            }),
        };
        let alert = Some("the peer sent the alert internal_error");
        let figures = ServerFigures {
            resumption: vec![entry("TLS 1.3", alert), entry("TLS 1.2", alert)],
            ..ServerFigures::default()
        };
        let subject = AuditSubject::new(&crate::model::Audit::begin("server", "s", "127.0.0.1:1"));
        let mut findings = Vec::new();
        judge(&subject, &figures, &mut findings);
        let ids: Vec<_> = findings.iter().map(|it| (it.id, it.severity)).collect();
        assert_eq!(ids, [(FindingId::SessionOfferRefused, Severity::High)]);
        assert!(
            findings[0].title.contains("TLS 1.3 or TLS 1.2"),
            "{}",
            findings[0].title
        );
        assert!(
            findings[0].measured.contains("4 connections"),
            "{}",
            findings[0].measured
        );
    }

    /// Recorded: Node.js with new ticket keys every 20 s, whose tickets hold their sessions; and HAProxy with Debian's
    /// `no-tls-tickets`, which keeps 20,000 sessions, and the audit made more.
    #[test]
    fn a_session_that_was_lost_from_a_cache_did_not_end_early() {
        let hello = |is_resumed: bool, bytes: u32| crate::model::FlightRow {
            version: "TLS 1.3".into(),
            resumed: is_resumed,
            client_certificate: false,
            bytes: vec![bytes, 812, 80],
        };
        let judged = |resumed_bytes: u32| {
            let figures = ServerFigures {
                flights: vec![hello(false, 230), hello(true, resumed_bytes)],
                resumption: vec![crate::model::Resumption {
                    version: "TLS 1.3".into(),
                    by: "ticket".into(),
                    trials: crate::model::Measured::Value(Trials {
                        offered: 16,
                        resumed: 16,
                        ..Trials::default()
                    }),
                }],
                aged: crate::model::Measured::Value(vec![crate::model::AgedTicket {
                    version: "TLS 1.3".into(),
                    age_s: 125.0,
                    lifetime_s: 7200,
                    load_between: true,
                    resumed: crate::model::Measured::Value(false),
                }]),
                ..ServerFigures::default()
            };
            let subject = AuditSubject::new(&crate::model::Audit::begin("server", "s", "h:1"));
            let found = over_time(&subject, &figures).unwrap();
            (found.severity, found.cause.contains("only name them"))
        };
        // A ticket of 80 bytes more only names a session; one of 120 may do either.
        assert_eq!(judged(309), (Severity::Info, true));
        assert_eq!(judged(350), (Severity::Low, false));
        assert_eq!(judged(390), (Severity::Medium, false));
    }

    #[test]
    fn a_version_without_resumption_weighs_as_much_as_its_clients() {
        let entry = |version: &str, by: &str, resumed| crate::model::Resumption {
            version: version.into(),
            by: by.into(),
            trials: crate::model::Measured::Value(Trials {
                offered: 16,
                resumed,
                outcomes: Vec::new(),
                refusal: None,
            }),
        };
        let judged = |all: [u64; 3]| -> Vec<_> {
            let [v13, v12, by_id] = all;
            let figures = ServerFigures {
                resumption: vec![
                    entry("TLS 1.3", "ticket", v13),
                    entry("TLS 1.2", "ticket", v12),
                    entry("TLS 1.2", "session id", by_id),
                ],
                ..ServerFigures::default()
            };
            let subject =
                AuditSubject::new(&crate::model::Audit::begin("server", "s", "127.0.0.1:1"));
            let mut findings = Vec::new();
            at_one_address(&subject, &figures, &mut findings);
            let findings = findings.into_iter();
            findings.map(|it| (it.id, it.severity)).collect()
        };
        let in_one = FindingId::NoResumptionInOneVersion;
        assert_eq!(judged([0, 16, 0]), [(in_one, Severity::Medium)]);
        assert_eq!(judged([16, 0, 0]), [(in_one, Severity::Low)]);
        assert_eq!(judged([16, 0, 16]), [(FindingId::NoTickets, Severity::Low)]);
        assert_eq!(judged([16, 16, 0]), []);
    }

    #[test]
    fn tickets_are_called_off_only_where_none_was_sent() {
        let judged = |offered| {
            let entry = |version: &str, offered, resumed| crate::model::Resumption {
                version: version.into(),
                by: "ticket".into(),
                trials: crate::model::Measured::Value(Trials {
                    offered,
                    resumed,
                    ..Trials::default()
                }),
            };
            let figures = ServerFigures {
                resumption: vec![entry("TLS 1.3", 16, 16), entry("TLS 1.2", offered, 0)],
                ..ServerFigures::default()
            };
            let subject = AuditSubject::new(&crate::model::Audit::begin("server", "s", "h:1"));
            let mut findings = Vec::new();
            at_one_address(&subject, &figures, &mut findings);
            let found = findings.remove(0);
            assert_eq!(found.id, FindingId::NoResumptionInOneVersion);
            (found.cause.contains("are off"), found.confidence)
        };
        assert_eq!(judged(0), (true, Confidence::High));
        assert_eq!(judged(16), (false, Confidence::Medium));
    }

    /// Recorded: PostgreSQL turns tickets off. Prosody and ejabberd do, too, but OpenSSL then sends some in TLS 1.3.
    #[test]
    fn tickets_that_are_refused_are_not_called_off() {
        let why = |tickets_12, tickets_13| {
            let offer = crate::model::Offer {
                tickets_12: Some(tickets_12),
                tickets_13: Some(tickets_13),
                ..Default::default()
            };
            let figures = ServerFigures {
                offer: crate::model::Measured::Value(offer),
                ..ServerFigures::default()
            };
            why_none(&figures)
        };
        let (cause, confidence) = why(false, 0);
        assert!(cause.contains("both are off") && confidence == Confidence::High);
        let (cause, confidence) = why(false, 2);
        assert!(cause.contains("only name a session") && confidence == Confidence::Medium);
        let (cause, _) = why(true, 2);
        assert!(cause.contains("ticket keys of its own"), "{cause}");
    }

    #[test]
    fn the_interval_is_wilsons() {
        let trials = Trials {
            offered: 16,
            resumed: 4,
            outcomes: Vec::new(),
            refusal: None,
        };
        let (least, most) = trials.interval();
        assert!((least - 0.102).abs() < 0.001 && (most - 0.495).abs() < 0.001);
        assert_eq!(Trials::default().interval(), (0.0, 1.0));
    }
}
