//! Churn: the cost of a short connection, and the memory it leaves behind.

use std::time::Duration;

use crate::load::{Cycle, FleetReport, Order};
use crate::session::Session;
use crate::spec::Churn;
use dormouse_measure::Error;
use dormouse_measure::Growth;
use dormouse_measure::TreeSample;

use super::figures::{self, CpuCost};

pub(super) fn run(session: &mut Session<'_>, churn: &Churn) -> Result<(), Error> {
    let resume = session.spec.tls.as_ref().is_some_and(|tls| tls.resume);
    let cycle = |connections| {
        Order::Cycle(Cycle {
            exchanges: Some(churn.exchange.into()),
            ..Cycle::once(connections, churn.concurrency)
        })
    };
    let before = session.settled(0);
    figures::memory(&mut session.run, "before", "before", before);
    if resume {
        // On its first connection, a client has no session to resume: it is not counted.
        let order = cycle(churn.concurrency.into());
        let primed = session.order("first handshakes", None, &order, |tally| tally.closed)?;
        primed.ensure_complete()?;
    }
    let mut sum = FleetReport::default();
    let mut spent = CpuCost::default();
    let mut after_rounds = Vec::new();
    let mut end = Ok(());
    for round in 1..=churn.rounds {
        let cost = CpuCost::now(session);
        let stage = format!("round {round} of {}", churn.rounds);
        let (total, order) = (Some(churn.connections), cycle(churn.connections));
        let harvest = session.order(&stage, total, &order, |tally| tally.closed)?;
        let used = cost.since(session);
        spent.server += used.server;
        spent.generators += used.generators;
        end = harvest.ensure_complete();
        add(&mut sum, harvest);
        if session.is_over() || end.is_err() {
            break;
        }
        if let Some(sample) = session.settled(0) {
            after_rounds.push(sample.memory.data());
            let (name, when) = (format!("round_{round:03}"), format!("after round {round}"));
            figures::memory(&mut session.run, &name, &when, Some(sample));
        }
    }
    let length = Duration::from_secs_f64(churn.after_s);
    session.pause("after the last round", length, 0);
    let (after, when) = (session.now(0), "some time after the last round");
    figures::memory(&mut session.run, "after", when, after);
    left_behind(session, churn, (before, after), &after_rounds);
    report(session, churn, &sum, &spent);
    end
}

/// Adds the memory that is retained, and its growth from round to round.
fn left_behind(
    session: &mut Session<'_>,
    churn: &Churn,
    (before, after): (Option<TreeSample>, Option<TreeSample>),
    after_rounds: &[u64],
) {
    if let (Some(before), Some(after)) = (before, after) {
        let left = after.memory.data() as f64 - before.memory.data() as f64;
        let title = "retained, compared with before";
        session.run.figure("memory.left", title, left, "bytes");
    }
    if !after_rounds.is_empty() {
        let growth = Growth::judge(after_rounds, churn.connections);
        if let Some(slope) = growth.slope {
            let (name, title) = ("memory.growth_per_round", "growth per round");
            session.run.figure(name, title, slope.per_unit, "bytes");
        }
        session.run.growth = Some(growth);
    }
}

fn report(session: &mut Session<'_>, churn: &Churn, sum: &FleetReport, spent: &CpuCost) {
    let tally = sum.of.tally;
    let run = &mut session.run;
    let established = tally.established as f64;
    let rate = established / sum.of.duration_s;
    run.figures([
        ("handshakes.count", "handshakes", established, "1"),
        ("handshakes.per_second", "per second", rate, "1/s"),
    ]);
    if session.spec.tls.is_some() {
        let share = 100.0 * tally.resumed as f64 / established;
        run.figure("handshakes.resumed", "resumed", share, "%");
    }
    session.keep_latencies(&sum.latencies);
    let what = match churn.exchange {
        true => "connection (connect, handshake, exchange, close)",
        false => "connection (connect, handshake, close)",
    };
    spent.per_event(session, "handshake", what, tally.established);
}

fn add(sum: &mut FleetReport, round: FleetReport) {
    sum.of.tally.add(&round.of.tally);
    sum.of.duration_s += round.of.duration_s;
    for (name, latencies) in round.latencies {
        sum.latencies
            .entry(name)
            .or_default()
            .add(&latencies.to_sparse());
    }
}
