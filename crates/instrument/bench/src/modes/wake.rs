//! Wake: the cost of waking a connection at rest.
//!
//! The same number of messages per second is sent twice: each on another connection, which has
//! rested while all others had their turn, and then on a few connections that are kept busy. The
//! difference is the price of rest; the same run with `--plain` shows how much of it is TLS.

use crate::load::{Messages, Order};
use crate::session::Session;
use crate::spec::Wake;
use dormouse_measure::Error;

use super::figures::CpuCost;

pub(super) fn run(session: &mut Session<'_>, wake: &Wake) -> Result<(), Error> {
    let n = wake.connections;
    let order = Order::Open {
        alive: n,
        per_s: wake.rate_per_s,
        in_flight_max: wake.in_flight,
    };
    let opened = session.order("opening", Some(n), &order, |tally| tally.alive)?;
    session.keep_latencies(&opened.latencies);
    let alive = opened.of.tally.alive;
    session.run.figures([
        ("connections.asked", "requested", n as f64, "1"),
        ("connections.alive", "alive", alive as f64, "1"),
    ]);
    opened.ensure_complete()?;
    session.pause("resting", session.spec.settle, alive);

    let rested_s = (alive as f64 / wake.per_s.max(0.001)).min(wake.for_s);
    let title = "longest rest of a connection before it wakes";
    session.run.figure("wake.rest", title, rested_s, "s");
    speak(session, wake, 0, "after rest")?;
    if wake.busy > 0 {
        speak(session, wake, wake.busy, "kept busy")?;
    }
    difference(session);
    session.order("closing", Some(alive), &Order::Close, |tally| tally.closed)?;
    Ok(())
}

fn speak(session: &mut Session<'_>, wake: &Wake, among: u32, name: &str) -> Result<(), Error> {
    let cost = CpuCost::now(session);
    let speak = Messages {
        per_s: wake.per_s,
        messages: 0,
        for_ms: (wake.for_s * 1000.0) as u64,
        among,
        bytes: 0,
        name: name.into(),
    };
    let total = (wake.per_s * wake.for_s) as u64;
    let harvest = session.order(name, Some(total), &Order::Messages(speak), |tally| {
        tally.answers
    })?;
    let spent = cost.since(session);
    session.keep_latencies(&harvest.latencies);
    let slug = name.replace(' ', "_");
    let tally = harvest.of.tally;
    let mut count = |which: &str, title: &str, count: u64| {
        let (which, title) = (format!("wake.{slug}.{which}"), format!("{name}: {title}"));
        session.run.figure(&which, &title, count as f64, "1");
    };
    count("answers", "answered", tally.answers);
    if tally.skipped > 0 {
        let why = "skipped, because the last message had no answer yet";
        count("skipped", why, tally.skipped);
    }
    let (event, what) = (format!("message_{slug}"), format!("message {name}"));
    spent.per_event(session, &event, &what, tally.answers);
    Ok(())
}

fn difference(session: &mut Session<'_>) {
    let latencies = &session.run.latencies;
    let (Some(rested), Some(busy)) = (latencies.get("after rest"), latencies.get("kept busy"))
    else {
        return;
    };
    let (p50, p99, p999) = (rested.p50_us, rested.p99_us, rested.p999_us);
    let (more50, more99) = (p50 - busy.p50_us, p99 - busy.p99_us);
    session.run.figures([
        ("wake.p50", "echo after rest, p50", p50, "us"),
        ("wake.p99", "echo after rest, p99", p99, "us"),
        ("wake.p999", "echo after rest, p99.9", p999, "us"),
        ("wake.price.p50", "latency added by rest, p50", more50, "us"),
        ("wake.price.p99", "latency added by rest, p99", more99, "us"),
    ]);
}
