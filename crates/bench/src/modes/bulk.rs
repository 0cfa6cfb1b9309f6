//! Bulk: the cost of bytes.

use crate::load::{Cycle, Order, Traffic};
use crate::session::Session;
use crate::spec::Bulk;
use dormouse_measure::Error;

use super::figures::{self, CpuCost};

pub(super) fn run(session: &mut Session<'_>, bulk: &Bulk) -> Result<(), Error> {
    let http = matches!(session.spec.talk, Traffic::Http { .. });
    let bytes = bulk.bytes.saturating_mul(bulk.streams.into());
    let cycle = cycle(bulk, bytes, http);
    let before = session.settled(0);
    figures::memory(&mut session.run, "before", "before", before);
    let cost = CpuCost::now(session);
    let stage = "streaming (MB)";
    let total = Some(bytes / 1_000_000);
    let harvest = session.order(stage, total, &Order::Cycle(cycle), |tally| {
        tally.bytes_heard / 1_000_000
    })?;
    let spent = cost.since(session);
    let after = session.now(0);
    figures::memory(&mut session.run, "after", "after", after);

    let (said, heard) = (
        harvest.of.tally.bytes_said as f64,
        harvest.of.tally.bytes_heard as f64,
    );
    let run = &mut session.run;
    run.figure("bytes.said", "sent", said, "bytes");
    let title = if http {
        "received, heads of responses included"
    } else {
        "received and checked"
    };
    run.figure("bytes.heard", title, heard, "bytes");
    if http {
        let answers = harvest.of.tally.answers as f64;
        run.figure("requests.count", "requests answered", answers, "1");
    }
    let way = if http { "received" } else { "each way" };
    run.figure(
        "bytes.rate",
        &format!("{way}, all streams"),
        heard / 1e6 / harvest.of.duration_s,
        "MB/s",
    );
    let per_gb = |total_ns: u64| total_ns as f64 / heard;
    let what = if http { "GB received" } else { "GB echoed" };
    if session.server.is_some() {
        let title = format!("server, per {what}");
        session.run.figure(
            "cpu.server.per_gb",
            &title,
            per_gb(spent.server.total_ns),
            "s/GB",
        );
    }
    let title = format!("generators, per {what}");
    session.run.figure(
        "generator.cpu.per_gb",
        &title,
        per_gb(spent.generators.total_ns),
        "s/GB",
    );
    session.keep_latencies(&harvest.latencies);
    harvest.ensure_complete()
}

/// Streams of echoes, or of responses: `bytes` in all.
fn cycle(bulk: &Bulk, bytes: u64, http: bool) -> Cycle {
    if http {
        // The server decides the size of a response and the end of a connection, so requests are
        // repeated until enough bytes have arrived.
        Cycle {
            connections: 0,
            lanes: bulk.streams,
            exchanges: 0,
            exchanges_max: 0,
            bytes_heard_max: bytes,
            bulk_bytes: 0,
            for_ms: 0,
        }
    } else {
        Cycle {
            connections: bulk.streams.into(),
            lanes: bulk.streams,
            exchanges: 1,
            exchanges_max: 0,
            bytes_heard_max: 0,
            bulk_bytes: bulk.bytes,
            for_ms: 0,
        }
    }
}
