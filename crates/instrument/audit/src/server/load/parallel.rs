//! Speed of one client and of several at a time, with what each side used of the processor meanwhile.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use super::lock_waits::LockSampler;
use crate::model::ParallelHandshakes;
use dormouse_bench::Session;
use dormouse_bench::load::{Cycle, Order};
use dormouse_measure::{Error, limits};

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
    let processors = processors(pids);
    let used = |session: &mut Session<'_>| {
        let (server, clients) = (session.server_cpu(), session.fleet.cpu());
        (
            server.total_ns as f64,
            clients.total_ns as f64,
            idle_s(&processors),
        )
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
        quota_cores: quota_cores(pids),
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

/// Processors that one of these processes may run on; none: not known.
fn processors(pids: &[i32]) -> BTreeSet<usize> {
    let each = pids.iter().filter_map(|pid| limits::processors(*pid));
    each.flatten().collect()
}

/// Cores whose time these processes may use, if all of them have a limit.
fn quota_cores(pids: &[i32]) -> Option<f64> {
    let each = pids.iter().map(|pid| limits::quota_cores(*pid));
    each.reduce(|one, other| Some(one?.max(other?))).flatten()
}

/// Idle time of these processors since the start of the machine; of all, if none is given.
fn idle_s(processors: &BTreeSet<usize>) -> Option<f64> {
    idle_in(&fs::read_to_string("/proc/stat").ok()?, processors)
}

fn idle_in(stat: &str, processors: &BTreeSet<usize>) -> Option<f64> {
    let wanted = |name: &str| match name.strip_prefix("cpu")? {
        "" => processors.is_empty().then_some(()),
        number => processors.contains(&number.parse().ok()?).then_some(()),
    };
    let idle = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        wanted(fields.next()?)?;
        let mut fields = fields.skip(3);
        let (idle, waiting): (f64, f64) =
            (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        Some((idle + waiting) / TICKS_PER_S)
    };
    let each: Vec<f64> = stat.lines().filter_map(idle).collect();
    (!each.is_empty()).then(|| each.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that may use one of two cores, while the other one is idle.
    #[test]
    fn cores_that_the_server_may_not_use_are_not_idle_for_it() {
        let stat =
            "cpu  9 0 9 700 100 0 0\ncpu0 9 0 9 0 0 0 0\ncpu1 0 0 0 700 100 0 0\nintr 5 6 7 8 9\n";
        let idle = |processors: &[usize]| idle_in(stat, &processors.iter().copied().collect());
        assert_eq!(idle(&[]), Some(8.0));
        assert_eq!(idle(&[0]), Some(0.0));
        assert_eq!(idle(&[0, 1]), Some(8.0));
        assert_eq!(idle(&[7]), None);
    }
}
