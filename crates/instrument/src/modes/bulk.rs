//! Bulk: what do bytes cost?

use crate::load::{Cycle, Order, Talk};
use crate::session::Session;
use crate::spec::Bulk;
use crate::trouble::Trouble;

use super::figures::{self, CpuCost, must_be_whole};

pub(super) fn run(session: &mut Session<'_>, bulk: &Bulk) -> Result<(), Trouble> {
    let http = matches!(session.spec.talk, Talk::Http { .. });
    let cycle = Cycle {
        connections: bulk.streams.into(),
        lanes: bulk.streams,
        // Over HTTP a stream is one response; its size is the server's.
        exchanges: 1,
        bulk_bytes: bulk.bytes,
        for_ms: 0,
    };
    let before = session.settled(0);
    figures::memory(&mut session.run, "before", "before", before);
    let cost = CpuCost::now(session);
    let total = (!http).then(|| bulk.bytes * u64::from(bulk.streams) / 1_000_000);
    let stage = "streaming (MB)";
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
    run.figure("bytes.heard", "received, and checked", heard, "bytes");
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
        session
            .run
            .figure("cpu.per_gb", &title, per_gb(spent.server.total_ns), "s/GB");
    }
    let title = format!("generators, per {what}");
    session.run.figure(
        "generator.cpu.per_gb",
        &title,
        per_gb(spent.generators.total_ns),
        "s/GB",
    );
    session.keep_latencies(&harvest.latencies);
    must_be_whole(&harvest)
}
