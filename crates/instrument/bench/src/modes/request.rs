//! Request: HTTP/1.1 over persistent connections, or over one connection per request.

use crate::load::{Cycle, Order};
use crate::session::Session;
use crate::spec::Request;
use dormouse_measure::Error;

use super::figures::{self, CpuCost};

pub(super) fn run(session: &mut Session<'_>, request: &Request) -> Result<(), Error> {
    let lanes = request.concurrency.max(1);
    let for_ms = (request.for_s * 1000.0) as u64;
    let cycle = if request.keep_alive {
        // A server may end a connection after some requests (nginx: 1,000); then a new one is
        // opened.
        Cycle {
            exchanges: None,
            exchanges_max: request.requests,
            ..Cycle::once(0, lanes)
        }
    } else {
        Cycle::once(request.requests, lanes)
    };
    let cycle = Cycle { for_ms, ..cycle };
    let before = session.settled(0);
    figures::memory(&mut session.run, "before", "before", before);
    let cost = CpuCost::now(session);
    let total = (request.requests > 0).then_some(request.requests);
    let harvest = session.order("requests", total, &Order::Cycle(cycle), |tally| {
        tally.answers
    })?;
    let spent = cost.since(session);
    let after = session.settled(0);
    figures::memory(&mut session.run, "after", "after", after);

    let tally = harvest.of.tally;
    let run = &mut session.run;
    let (answers, established) = (tally.answers as f64, tally.established as f64);
    let rate = answers / harvest.of.duration_s;
    run.figures([
        ("requests.count", "requests answered", answers, "1"),
        ("requests.per_second", "per second", rate, "1/s"),
        ("requests.connections", "connections", established, "1"),
    ]);
    if session.spec.tls.is_some() {
        let share = 100.0 * tally.resumed as f64 / established;
        run.figure("requests.resumed", "resumed handshakes", share, "%");
    }
    let heard = tally.bytes_heard as f64;
    run.figure("requests.bytes", "bytes received", heard, "bytes");
    session.keep_latencies(&harvest.latencies);
    spent.per_event(session, "request", "request", tally.answers);
    harvest.ensure_complete()
}
