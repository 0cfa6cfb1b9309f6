//! Speed of one client and of several at a time, with what each side used of the processor meanwhile.

use std::fs;
use std::time::{Duration, Instant};

use super::lock_waits::LockSampler;
use crate::model::ParallelHandshakes;
use dormouse_bench::Session;
use dormouse_bench::load::{Cycle, Order};
use dormouse_measure::Error;

/// How long one client, and several, open connections, and how many at most.
const ALONE: (u64, u64) = (500, 200);
const TOGETHER: (u64, u64) = (1_000, 1_000);
/// Minimum number of connections for a rate.
const CONNECTIONS_MIN: u64 = 3;
/// Unit of the times in `/proc/stat`.
const TICKS_PER_S: f64 = 100.0;

/// Connections that came and went.
struct Pace {
    connections: u64,
    seconds: f64,
}

impl Pace {
    fn per_s(&self) -> f64 {
        self.connections as f64 / self.seconds.max(1e-9)
    }
}

/// Measures the speed of one client, and of `clients` at a time. The inner error says why there is no figure.
pub(super) fn measure(
    session: &mut Session<'_>,
    clients: u32,
    pids: &[i32],
) -> Result<Result<ParallelHandshakes, String>, Error> {
    if clients < 2 {
        return Ok(Err("the server serves one connection at a time".into()));
    }
    let alone = pace(session, "one client", 1, ALONE)?;
    let locks = LockSampler::start(pids);
    let used = |session: &mut Session<'_>| {
        let (server, clients) = (session.server_cpu(), session.fleet.cpu());
        (server.total_ns as f64, clients.total_ns as f64, idle_s())
    };
    let before = used(session);
    let together = pace(session, "several clients", clients, TOGETHER);
    let after = used(session);
    // Stopped also if the clients failed.
    let lock = locks.stop();
    let together = together?;
    if alone.connections < CONNECTIONS_MIN || together.connections < CONNECTIONS_MIN {
        return Ok(Err("the server is too slow for a rate".into()));
    }
    let cores = |after: f64, before: f64| (after - before).max(0.0) / 1e9 / together.seconds;
    let idle = before.2.zip(after.2);
    Ok(Ok(ParallelHandshakes {
        clients,
        alone_per_s: alone.per_s(),
        together_per_s: together.per_s(),
        server_cores: cores(after.0, before.0),
        client_cores: cores(after.1, before.1),
        idle_cores: idle.map_or(0.0, |(before, after)| (after - before) / together.seconds),
        lock: lock.into(),
    }))
}

/// Opens and closes connections for a time.
fn pace(
    session: &mut Session<'_>,
    stage: &str,
    lanes: u32,
    (for_ms, connections): (u64, u64),
) -> Result<Pace, Error> {
    let order = Order::Cycle(Cycle {
        for_ms,
        ..Cycle::once(connections, lanes)
    });
    let began = Instant::now();
    let report = session.order(stage, None, &order, |tally| tally.closed)?;
    let took: Duration = began.elapsed();
    report.ensure_complete()?;
    Ok(Pace {
        connections: report.of.tally.closed,
        seconds: took.as_secs_f64(),
    })
}

/// Idle time of all cores since the start of the machine.
fn idle_s() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let mut fields = stat.lines().next()?.split_ascii_whitespace().skip(4);
    let (idle, waiting): (f64, f64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some((idle + waiting) / TICKS_PER_S)
}
