//! Findings about a server's sessions.

use super::catalogue::FindingId;
use super::finding::{Confidence, Finding, Severity};
use super::subject::AuditSubject;
use super::units::{percent, whole};
use crate::model::{AddressTrials, Resumption, ServerFigures, Trials};

/// Shares below which a server resumes in part, and above which it resumes at all.
const RESUMES: f64 = 0.9;
const RESUMES_AT_ALL: f64 = 0.02;

pub(super) fn judge(subject: &AuditSubject, figures: &ServerFigures, findings: &mut Vec<Finding>) {
    at_one_address(subject, &figures.resumption, findings);
    findings.extend(across_addresses(subject, figures));
    findings.extend(over_time(subject, figures));
}

fn at_one_address(subject: &AuditSubject, all: &[Resumption], findings: &mut Vec<Finding>) {
    let by_ticket: Vec<(&str, &Trials)> = all
        .iter()
        .filter(|entry| entry.by == "ticket")
        .filter_map(|entry| Some((entry.version.as_str(), entry.trials.value()?)))
        .collect();
    let each: Vec<_> = by_ticket
        .iter()
        .map(|(version, trials)| format!("{version}: {}", said(trials)))
        .collect();
    let by_id = all
        .iter()
        .find(|entry| entry.by == "session id")
        .and_then(|entry| entry.trials.value());
    let id_share = by_id.map_or(0.0, Trials::share);
    let none: Vec<_> = by_ticket
        .iter()
        .filter(|(_, trials)| trials.share() < RESUMES_AT_ALL)
        .collect();
    let reference = "all of them; a resumed handshake needs no signature and no certificate";
    let mut add = |id: FindingId, severity, title: String, cause: String, confidence| {
        findings.push(Finding {
            id,
            severity,
            title,
            measured: each.join("; "),
            reference: reference.into(),
            cause,
            confidence,
            advice: subject.advice(id),
            command: subject.bench("churn", "-n 1000 -c 8 --resume"),
        });
    };
    if !none.is_empty() && none.len() == by_ticket.len() {
        if id_share < RESUMES_AT_ALL {
            add(
                FindingId::NoResumption,
                Severity::High,
                "no session is ever resumed".into(),
                "tickets and session cache are off, or the keys change with every connection"
                    .into(),
                Confidence::High,
            );
        } else {
            add(
                FindingId::NoTickets,
                Severity::Low,
                "sessions are resumed by id only".into(),
                "tickets are off".into(),
                Confidence::High,
            );
        }
    } else if let Some((version, _)) = none.first() {
        add(
            FindingId::NoResumptionInOneVersion,
            Severity::Low,
            format!("no session of {version} is resumed"),
            "tickets are off for it".into(),
            Confidence::Medium,
        );
    }
    let partly = by_ticket
        .iter()
        .filter(|(_, trials)| (RESUMES_AT_ALL..RESUMES).contains(&trials.share()));
    let worst = partly.min_by(|a, b| a.1.share().total_cmp(&b.1.share()));
    if let Some((version, trials)) = worst {
        let title = format!(
            "only {} of the sessions of {version} are resumed",
            percent(trials.share())
        );
        add(
            FindingId::ResumptionPartial,
            Severity::High,
            title,
            why_partly(trials.share()),
            Confidence::Medium,
        );
    }
}

/// Machines behind one name which resume their own sessions, and not each other's.
fn across_addresses(subject: &AuditSubject, figures: &ServerFigures) -> Option<Finding> {
    let all = figures.addresses.value()?;
    let known = |entry: &&AddressTrials| {
        entry
            .trials
            .value()
            .filter(|trials| trials.offered > 0)
            .is_some()
    };
    let resumed = |entry: &AddressTrials| entry.trials.value().map_or(0, |trials| trials.resumed);
    let offered = |entry: &AddressTrials| entry.trials.value().map_or(0, |trials| trials.offered);
    let (own, others): (Vec<_>, Vec<_>) = all
        .iter()
        .filter(known)
        .partition(|entry| entry.from == entry.to);
    let at_home = |address: &str, version: &str| {
        own.iter().any(|entry| {
            entry.from == address && entry.version == version && resumed(entry) == offered(entry)
        })
    };
    // Only where both resume at home does it tell anything.
    let others: Vec<_> = others
        .into_iter()
        .filter(|entry| at_home(&entry.from, &entry.version) && at_home(&entry.to, &entry.version))
        .collect();
    let taken: u64 = others.iter().map(|entry| resumed(entry)).sum();
    let of: u64 = others.iter().map(|entry| offered(entry)).sum();
    let share = taken as f64 / of.max(1) as f64;
    if of == 0 || share >= RESUMES {
        return None;
    }
    let mut pairs: Vec<String> = others
        .iter()
        .filter(|entry| resumed(entry) < offered(entry))
        .map(|entry| format!("{} → {}", entry.from, entry.to))
        .collect();
    pairs.sort();
    pairs.dedup();
    let count = pairs.len();
    pairs.truncate(4);
    let more = if count > 4 { ", …" } else { "" };
    Some(Finding {
        id: FindingId::ResumptionNotShared,
        severity: if taken == 0 {
            Severity::High
        } else {
            Severity::Medium
        },
        title: format!(
            "{} of the sessions are resumed at another address of the same name",
            if taken == 0 {
                "none".into()
            } else {
                percent(share)
            }
        ),
        measured: format!(
            "each address resumes its own sessions; {taken} of {of} at another one (not: {}{more})",
            pairs.join(", ")
        ),
        reference: "all of them: a client that comes back may meet any of the machines".into(),
        cause: "the machines have ticket keys or session caches of their own".into(),
        confidence: Confidence::High,
        advice: subject.advice(FindingId::ResumptionNotShared),
        command: subject.audit(),
    })
}

/// Tickets which are refused before the time that the server gave them is over.
fn over_time(subject: &AuditSubject, figures: &ServerFigures) -> Option<Finding> {
    let resumes = |version: &str| {
        figures
            .resumption
            .iter()
            .filter(|entry| entry.version == version && entry.by == "ticket")
            .filter_map(|entry| entry.trials.value())
            .any(|trials| trials.share() > RESUMES)
    };
    let aged = figures.aged.value()?;
    let early = aged.iter().find(|ticket| {
        ticket.resumed.value() == Some(&false)
            && ticket.age_s < f64::from(ticket.lifetime_s)
            && resumes(&ticket.version)
    })?;
    let (cause, confidence, severity) = if early.load_between {
        (
            "the keys were changed and the former ones forgotten; or sessions are kept in a cache, which the load of this audit has filled",
            Confidence::Low,
            Severity::Low,
        )
    } else {
        (
            "the ticket keys were changed, and the former ones forgotten",
            Confidence::Medium,
            Severity::Medium,
        )
    };
    Some(Finding {
        id: FindingId::ResumptionEndsEarly,
        severity,
        title: "a session is forgotten before its time is over".into(),
        measured: format!(
            "a ticket of {} was refused when it was {:.0} s old, new ones are taken",
            early.version, early.age_s
        ),
        reference: format!(
            "{} s, by the server's own account",
            whole(f64::from(early.lifetime_s))
        ),
        cause: cause.into(),
        confidence,
        advice: subject.advice(FindingId::ResumptionEndsEarly),
        command: subject.audit(),
    })
}

fn said(trials: &Trials) -> String {
    match trials.offered {
        // Without a ticket there is nothing to resume by.
        0 => "no ticket was sent".to_owned(),
        offered => format!("{} of {offered} resumed", trials.resumed),
    }
}

/// What a share looks like.
fn why_partly(share: f64) -> String {
    let places = (1.0 / share).round();
    if places < 2.0 {
        return "some of the processes or machines do not know the others' sessions, or a cache is too small".into();
    }
    format!(
        "it looks like {places:.0} processes or machines with ticket keys or a session cache of their own: \
         a client that comes back to another one is not known there"
    )
}
