//! Tests whether the server still accepts a ticket after a delay. Tickets are set aside, the audit continues, and the
//! tickets are offered when they reach their age. Nothing is known about longer delays.

use std::time::{Duration, Instant};

use dormouse_engine::{ClientContext, Protocols};

use super::dialer::{Dialer, version_name};
use super::offer::TICKET_WAIT;
use super::resumption::{context, visit};
use super::spec::Effort;
use crate::model::{AgedTicket, Measured};
use dormouse_bench::{Console, MeasuredSide, Progress};
use dormouse_measure::{Error, Interrupts};

/// Share of its lifetime at which a ticket is offered that would otherwise expire first.
const NEARLY: f64 = 0.9;
/// Why a ticket was not offered.
const NO_TIME: &str = "the time limit of the audit was reached first; --time raises it";

/// A ticket to be offered later, in the store of its own context.
pub(super) struct AgeingTicket {
    protocols: Protocols,
    context: ClientContext,
    taken: Instant,
    lifetime_s: u32,
    age: Duration,
}

impl Effort {
    /// Ages at which tickets are offered, in seconds.
    fn ages(self) -> &'static [u64] {
        match self {
            Self::Quick => &[3],
            Self::Normal => &[30],
            Self::Thorough => &[60, 300, 600],
        }
    }
}

/// Sets tickets aside, one for each age. On a server that must not be loaded, only in the newest version.
pub(super) fn set_aside(
    dialer: &Dialer<'_>,
    effort: Effort,
    versions: &[Protocols],
) -> Result<Vec<AgeingTicket>, String> {
    let mut all = Vec::new();
    for &protocols in dialer.versions(versions) {
        let mut latest = Duration::ZERO;
        for &age_s in effort.ages() {
            let context = context(dialer, protocols, "ticket")?;
            let giver = visit(dialer, &context, TICKET_WAIT)?;
            giver.accepted()?;
            let lifetime_s = giver.tickets.first().map(|ticket| ticket.lifetime_s);
            giver.close();
            let Some(lifetime_s) = lifetime_s else { break };
            let age = within(Duration::from_secs(age_s), lifetime_s);
            // If several ages exceed the ticket's lifetime, one ticket shortly before its expiry is enough.
            if age > latest {
                latest = age;
                all.push(AgeingTicket {
                    protocols,
                    context,
                    taken: Instant::now(),
                    lifetime_s,
                    age,
                });
            }
        }
    }
    if all.is_empty() {
        return Err("the server sent no ticket".into());
    }
    all.sort_by_key(|ticket| ticket.taken + ticket.age);
    Ok(all)
}

/// Limits an age to the lifetime that the server announced: no client offers an expired ticket.
fn within(age: Duration, lifetime_s: u32) -> Duration {
    match lifetime_s {
        // The server announces no lifetime.
        0 => age,
        _ => age.min(Duration::from_secs(lifetime_s.into()).mul_f64(NEARLY)),
    }
}

/// Offers each ticket when it reaches its age, until an interrupt arrives.
pub(super) fn offer_all(
    dialer: &Dialer<'_>,
    mut waiting: Vec<AgeingTicket>,
    load_between: bool,
    interrupts: &Interrupts,
    console: &mut dyn Console,
) -> (Vec<AgedTicket>, Result<(), Error>) {
    let (began, all) = (Instant::now(), waiting.len() as u64);
    console.stage("tickets age", Some(all));
    let mut aged = Vec::new();
    let mut outcome = Ok(());
    while let Some(due) = due(&waiting) {
        outcome = interrupts.check();
        if outcome.is_err() {
            break;
        }
        if dialer.deadline.is_over(Instant::now()) {
            let late = |ticket: AgeingTicket| ticket.aged(load_between, Err(NO_TIME.into()));
            aged.extend(waiting.drain(..).map(late));
            break;
        }
        console.progress(&Progress {
            done: aged.len() as u64,
            total: Some(all),
            alive: 0,
            failed: 0,
            pss_bytes: None,
            elapsed: began.elapsed(),
            whose: MeasuredSide::Neither,
            left: last(&waiting).checked_duration_since(Instant::now()),
        });
        match due.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => {
                std::thread::sleep(left.min(Duration::from_millis(50)));
            }
            _ => {
                let ticket = waiting.remove(0);
                aged.push(ticket.aged(load_between, offer(dialer, &ticket)));
            }
        }
    }
    console.stage_over();
    (aged, outcome)
}

/// Time to offer the next ticket.
fn due(all: &[AgeingTicket]) -> Option<Instant> {
    all.first().map(|ticket| ticket.taken + ticket.age)
}

/// Time to offer the last ticket; now if there is none.
fn last(all: &[AgeingTicket]) -> Instant {
    let dues = all.iter().map(|ticket| ticket.taken + ticket.age);
    dues.max().unwrap_or_else(Instant::now)
}

/// Offers one ticket.
fn offer(dialer: &Dialer<'_>, ticket: &AgeingTicket) -> Result<bool, String> {
    let lifetime = Duration::from_secs(ticket.lifetime_s.into());
    if ticket.lifetime_s > 0 && ticket.taken.elapsed() >= lifetime {
        return Err(format!(
            "its announced lifetime of {} s is over, and no client offers an expired ticket",
            ticket.lifetime_s
        ));
    }
    let visit = visit(dialer, &ticket.context, Duration::ZERO)?;
    let resumed = visit.info.resumed;
    visit.close();
    Ok(resumed)
}

impl AgeingTicket {
    fn aged(&self, load_between: bool, resumed: Result<bool, String>) -> AgedTicket {
        AgedTicket {
            version: version_name(self.protocols).into(),
            age_s: self.taken.elapsed().as_secs_f64(),
            lifetime_s: self.lifetime_s,
            load_between,
            resumed: Measured::from(resumed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_are_offered_before_they_expire() {
        let s = Duration::from_secs;
        assert_eq!(within(s(60), 300), s(60));
        assert_eq!(within(s(600), 300), s(270));
        assert_eq!(within(s(600), 0), s(600));
        assert_eq!(within(s(600), 7200), s(600));
    }
}
