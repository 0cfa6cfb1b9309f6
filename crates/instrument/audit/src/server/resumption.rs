//! Tests whether the server resumes sessions. The handshake of each connection shows it: in TLS 1.3 the server selects
//! the offered PSK, in TLS 1.2 it makes an abbreviated handshake.

use std::time::{Duration, Instant};

use dormouse_engine::{ClientContext, Protocols, ResumptionSettings, Version};

use super::deadline::Deadline;
use super::dialer::{Dialer, version_name};
use super::offer::TICKET_WAIT;
use super::probe_connection::{PATIENCE, ProbeConnection, Socket, Ticket};
use crate::model::{FlightRow, Measured, Resumption, Trials};

/// Minimum number of trials, however slow the server is.
const TRIES_MIN: usize = 2;
/// Resumed sessions below which more trials are made, [this many](MORE) times as many: of four processes with keys of their
/// own, one trial in a hundred of sixteen finds none.
const RESUMED_FEW: u64 = 3;
const MORE: usize = 4;
/// Connections held open at the same time, so that several processes of a server are tested.
const TOGETHER: usize = 4;
/// Maximum number of a connection's tickets that a context stores.
const TICKETS_STORED: u32 = 1;
const NONE_WAIT: Duration = Duration::from_millis(50);
/// Connections that offer a session and fail, each beside one that offers none and is established, from which the offer
/// is the cause.
const REFUSALS: u64 = 2;

/// Results of the resumption trials.
#[derive(Default)]
pub(super) struct ResumptionFindings {
    pub(super) resumption: Vec<Resumption>,
    pub(super) flights: Vec<FlightRow>,
    /// Tickets of the first TLS 1.3 connection, including those sent after a request.
    pub(super) tickets_13: Vec<Ticket>,
    /// The most tickets of a resumed connection of TLS 1.3; `None`: none was resumed.
    pub(super) tickets_13_resumed: Option<u32>,
    /// Whether the server serves one connection at a time, so that an idle connection blocks the others.
    one_by_one: bool,
}

/// Tries each version and mechanism, with `tries` connections that offer a session. `offered`: the versions that the
/// server offers; if it is empty, that is unknown and all versions are tried. At `until` the trials made so far count.
pub(super) fn try_all(
    dialer: &Dialer<'_>,
    tries: usize,
    offered: &[Protocols],
    until: Deadline,
) -> ResumptionFindings {
    let mut learnt = ResumptionFindings::default();
    for protocols in [Protocols::TLS13, Protocols::TLS12] {
        let ways: &[&str] = if protocols == Protocols::TLS12 {
            &["ticket", "session id"]
        } else {
            &["ticket"]
        };
        for &by in ways {
            let is_offered = offered.is_empty() || offered.contains(&protocols);
            let trials = if is_offered {
                context(dialer, protocols, by)
            } else {
                Err(format!("{} is not offered", version_name(protocols)))
            }
            .and_then(|context| {
                let one_by_one = learnt.one_by_one;
                trials(dialer, &context, by, (tries, until), &mut learnt).or_else(|why| {
                    let refused = refused_offers(dialer, protocols, by).ok_or(why)?;
                    // Other connections beside them were not the reason.
                    learnt.one_by_one = one_by_one;
                    Ok(refused)
                })
            });
            learnt.resumption.push(Resumption {
                version: version_name(protocols).into(),
                by: by.into(),
                trials: Measured::from(trials),
            });
        }
        // With a client certificate configured, the flights without it are measured too, if the server accepts such a
        // connection.
        let bare = Dialer {
            identity: None,
            ..*dialer
        };
        if dialer.identity.is_some()
            && let Ok(visit) = context(&bare, protocols, "ticket")
                .and_then(|context| ProbeConnection::make(&bare, &context))
        {
            keep_flights(&bare, &mut learnt.flights, &visit);
            visit.close();
        }
    }
    learnt
}

/// Creates a client context for one version that resumes by one mechanism.
pub(super) fn context(
    dialer: &Dialer<'_>,
    protocols: Protocols,
    by: &str,
) -> Result<ClientContext, String> {
    let resumption = ResumptionSettings {
        sessions_max: 64,
        tickets_expected: TICKETS_STORED,
        ..ResumptionSettings::default()
    };
    let context = dialer.context(protocols, Some(resumption))?;
    Ok(if by == "session id" {
        context.with_session_ids_only()
    } else {
        context
    })
}

fn trials(
    dialer: &Dialer<'_>,
    context: &ClientContext,
    by: &str,
    (tries, until): (usize, Deadline),
    learnt: &mut ResumptionFindings,
) -> Result<Trials, String> {
    let first = visit(dialer, context, TICKET_WAIT)?;
    first.accepted()?;
    keep_flights(dialer, &mut learnt.flights, &first);
    if offers_id_instead(by, first.info.protocol, &first.tickets) {
        first.close();
        return Ok(Trials::default());
    }
    // A server that sent no ticket within that time is assumed to send none; the same holds after a resumption.
    let wait = if first.tickets.is_empty() {
        NONE_WAIT
    } else {
        TICKET_WAIT
    };
    let mut wait_resumed = wait;
    // A TLS 1.3 ticket is used once; a TLS 1.2 session can be offered from now on.
    let single_use = first.info.protocol == Version::Tls13;
    let mut stock = stored(&first.tickets);
    if single_use {
        learnt.tickets_13.clone_from(&first.tickets);
    }
    first.close();
    let mut trials = Trials::default();
    let mut held = Vec::new();
    for _ in 0..2 * MORE * tries {
        let is_late = until.is_over(Instant::now()) && trials.outcomes.len() >= TRIES_MIN;
        if is_late
            || is_enough(&trials, tries, dialer.free)
            || (single_use && stock == 0 && wait == NONE_WAIT)
        {
            break;
        }
        let together = dialer.free && !learnt.one_by_one;
        if together {
            shift(dialer, trials.outcomes.len() % TOGETHER);
        }
        let patience = |resumed| if resumed { wait_resumed } else { wait };
        let visit = match visit_waiting(dialer, context, patience) {
            Err(_) if together => {
                held.clear();
                learnt.one_by_one = true;
                continue;
            }
            other => other?,
        };
        if visit.info.resumed && visit.tickets.is_empty() {
            wait_resumed = NONE_WAIT;
        }
        if visit.info.resumed && single_use {
            let tickets = u32::try_from(visit.tickets.len()).ok();
            learnt.tickets_13_resumed = learnt.tickets_13_resumed.max(tickets);
        }
        // Some servers send no new ticket after a resumption: a connection without a ticket is no trial.
        if !single_use || stock > 0 {
            trials.offered += 1;
            trials.resumed += u64::from(visit.info.resumed);
            trials.outcomes.push(visit.info.resumed);
        }
        stock = stock.saturating_sub(1) + stored(&visit.tickets);
        keep_flights(dialer, &mut learnt.flights, &visit);
        held.push(visit);
        if held.len() == TOGETHER || learnt.one_by_one {
            held.drain(..).for_each(ProbeConnection::close);
        }
    }
    held.into_iter().for_each(ProbeConnection::close);
    Ok(trials)
}

/// Whether the trials decide. `free`: the server may be loaded, so more of them can be made where few sessions are resumed.
fn is_enough(trials: &Trials, tries: usize, free: bool) -> bool {
    let most = if free && trials.resumed < RESUMED_FEW {
        MORE * tries
    } else {
        tries
    };
    trials.outcomes.len() >= most
}

/// Tells whether connections fail because they offer a session: they do, and those without one are established.
fn refused_offers(dialer: &Dialer<'_>, protocols: Protocols, by: &str) -> Option<Trials> {
    let mut trials = Trials::default();
    for _ in 0..REFUSALS {
        let context = context(dialer, protocols, by).ok()?;
        let first = visit(dialer, &context, TICKET_WAIT).ok()?;
        first.accepted().ok()?;
        first.close();
        trials.refusal = Some(visit(dialer, &context, NONE_WAIT).err()?);
        trials.offered += 1;
        trials.outcomes.push(false);
    }
    Some(trials)
}

/// Whether the server sent no ticket to a client of TLS 1.2 that resumes by ticket: such a client offers the session's id
/// instead, and a server that remembers sessions resumes it.
fn offers_id_instead(by: &str, version: Version, tickets: &[Ticket]) -> bool {
    by == "ticket" && version == Version::Tls12 && tickets.is_empty()
}

/// Number of a connection's tickets that the context stores: a connection without a stored one offers no session, and
/// says nothing about resumption.
fn stored(tickets: &[Ticket]) -> usize {
    tickets.len().min(TICKETS_STORED as usize)
}

/// Connects and waits for tickets.
pub(super) fn visit(
    dialer: &Dialer<'_>,
    context: &ClientContext,
    wait: Duration,
) -> Result<ProbeConnection, String> {
    visit_waiting(dialer, context, |_| wait)
}

/// Connects and waits for tickets; the maximum wait depends on whether the connection was resumed.
fn visit_waiting(
    dialer: &Dialer<'_>,
    context: &ClientContext,
    wait: impl Fn(bool) -> Duration,
) -> Result<ProbeConnection, String> {
    let mut visit = ProbeConnection::make(dialer, context)?;
    // The session must be in the store before the next connection. In TLS 1.2 it already is.
    if visit.info.protocol == Version::Tls13 {
        visit.await_tickets_or_ask(dialer.words, wait(visit.info.resumed));
    }
    Ok(visit)
}

/// Opens connections without a handshake. If processes or machines serve connections in turn, the one that issued a
/// ticket would otherwise never get the next connection, or always get it.
fn shift(dialer: &Dialer<'_>, count: usize) {
    for _ in 0..count {
        let _ = Socket::connect(dialer.target, dialer.patience(PATIENCE));
    }
}

fn keep_flights(dialer: &Dialer<'_>, flights: &mut Vec<FlightRow>, visit: &ProbeConnection) {
    let bytes = visit.info.flights.bytes();
    // The certificate is in a flight after the ClientHello; without a certificate that flight is small.
    let mut later = bytes.iter().skip(2).step_by(2);
    let shown = dialer.chain_bytes();
    let row = FlightRow {
        version: visit.info.protocol.to_string(),
        resumed: visit.info.resumed,
        client_certificate: shown.is_some_and(|shown| later.any(|bytes| *bytes >= shown)),
        bytes: bytes.to_vec(),
    };
    let key = |row: &FlightRow| (row.version.clone(), row.resumed, row.client_certificate);
    if !flights.iter().any(|other| key(other) == key(&row)) {
        flights.push(row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded: HAProxy with Debian's `no-tls-tickets` was said to resume 40 of 40 sessions of TLS 1.2 by ticket.
    #[test]
    fn a_session_that_is_resumed_by_id_is_not_counted_as_a_ticket() {
        let ticket = Ticket {
            lifetime_s: 7200,
            early_data_max_bytes: 0,
        };
        let tickets = std::slice::from_ref(&ticket);
        assert!(offers_id_instead("ticket", Version::Tls12, &[]));
        assert!(!offers_id_instead("ticket", Version::Tls12, tickets));
        assert!(!offers_id_instead("session id", Version::Tls12, &[]));
        assert!(!offers_id_instead("ticket", Version::Tls13, &[]));
    }

    #[test]
    fn few_resumed_sessions_ask_for_more_trials() {
        let made = |outcomes: usize, resumed: u64| Trials {
            offered: outcomes as u64,
            resumed,
            outcomes: vec![false; outcomes],
            refusal: None,
        };
        assert!(!is_enough(&made(15, 15), 16, true));
        assert!(is_enough(&made(16, 3), 16, true));
        assert!(!is_enough(&made(16, 2), 16, true));
        assert!(is_enough(&made(16, 2), 16, false));
        assert!(!is_enough(&made(63, 0), 16, true));
        assert!(is_enough(&made(64, 0), 16, true));
    }

    /// Recorded: Node.js sends two tickets after a full handshake. On a busy machine those after a resumed one came too
    /// late, and every second connection, which had nothing to offer, counted as refused.
    #[test]
    fn a_connection_without_a_stored_ticket_is_no_trial() {
        let ticket = Ticket {
            lifetime_s: 7200,
            early_data_max_bytes: 0,
        };
        let after_full = stored(&[ticket; 2]);
        let after_resumed = after_full.saturating_sub(1) + stored(&[]);
        assert_eq!((after_full, after_resumed), (1, 0));
    }
}
