//! Bulk: the cost of bytes.

use crate::load::{Cycle, Order, Traffic};
use crate::session::Session;
use crate::spec::Bulk;
use dormouse_measure::{CpuTime, Error};

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

    let tally = harvest.of.tally;
    let (said, heard) = (tally.bytes_said as f64, tally.bytes_heard as f64);
    let rate = heard / 1e6 / harvest.of.duration_s;
    let run = &mut session.run;
    run.figure("bytes.said", "sent", said, "bytes");
    let what = if http {
        let answers = tally.answers as f64;
        run.figures([
            (
                "bytes.heard",
                "received, heads of responses included",
                heard,
                "bytes",
            ),
            ("requests.count", "requests answered", answers, "1"),
            ("bytes.rate", "received, all streams", rate, "MB/s"),
        ]);
        "GB received"
    } else {
        run.figures([
            ("bytes.heard", "received and checked", heard, "bytes"),
            ("bytes.rate", "each way, all streams", rate, "MB/s"),
        ]);
        "GB echoed"
    };
    let mut per_gb = |name: &str, whose: &str, spent: CpuTime| {
        let each = spent.total_ns as f64 / heard;
        run.figure(name, &format!("{whose}, per {what}"), each, "s/GB");
    };
    if session.server.is_some() {
        per_gb("cpu.server.per_gb", "server", spent.server);
    }
    per_gb("generator.cpu.per_gb", "generators", spent.generators);
    session.keep_latencies(&harvest.latencies);
    harvest.ensure_complete()
}

/// Streams of echoes, or of responses: `bytes` in all.
fn cycle(bulk: &Bulk, bytes: u64, http: bool) -> Cycle {
    if http {
        // The server decides the size of a response and the end of a connection, so requests are
        // repeated until enough bytes have arrived.
        Cycle {
            exchanges: None,
            bytes_heard_max: bytes,
            ..Cycle::once(0, bulk.streams)
        }
    } else {
        Cycle {
            bulk_bytes: bulk.bytes,
            ..Cycle::once(bulk.streams.into(), bulk.streams)
        }
    }
}
