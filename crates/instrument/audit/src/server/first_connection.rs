//! The first connection after the server's start, compared with later ones.
//!
//! The audit starts the server itself. It checks the open port without a handshake, so the first measured handshake is
//! the server's first.

use std::thread::sleep;
use std::time::{Duration, Instant};

use dormouse_engine::Protocols;

use super::deadline::Deadline;
use super::dialer::Dialer;
use super::probe_connection::ProbeConnection;
use super::spec::ServerSpec;
use crate::model::{FirstConnection, Measured};
use dormouse_measure::{Error, Interrupts, Server, ServerSource, TreeSample};

/// Number of later connections to compare with.
const LATER: usize = 8;
/// Maximum number of checks whether the server is idle, the time between two, and the CPU time of an idle server in it.
const IDLE_CHECKS: u32 = 60;
const IDLE_EVERY: Duration = Duration::from_millis(50);
const IDLE_NS: u64 = 1_000_000;
/// Why the first connection is not compared.
const NEVER_IDLE: &str = "the server was never idle, so the CPU time of its first connection cannot be distinguished from its other work";

/// Measures the first connection to a server that the audit has started.
pub(super) fn measure(
    spec: &ServerSpec,
    dialer: &Dialer<'_>,
    server: Option<&Server>,
    larger: Option<FirstConnection>,
    until: Deadline,
) -> Measured<FirstConnection> {
    let (ServerSource::Command(_), Some(server)) = (&spec.source, server) else {
        return Measured::not("the server was already running; --cmd starts it for the audit");
    };
    let measured = measure_started(dialer, server, until).map(|first| FirstConnection {
        larger: larger.map(Box::new),
        ..first
    });
    Measured::from(measured)
}

/// Measures the first connection to the server with more data. That server is started before the other one and stopped
/// again.
pub(super) fn measure_larger(
    spec: &ServerSpec,
    dialer: &Dialer<'_>,
    interrupts: &Interrupts,
) -> Result<Option<FirstConnection>, Error> {
    let Some(command) = &spec.larger else {
        return Ok(None);
    };
    let source = ServerSource::Command(command.clone());
    let server = Server::open(&source, dialer.target, &mut || interrupts.check().is_ok())?;
    let Some(server) = server else {
        return Ok(None);
    };
    let measured = measure_started(dialer, &server, Deadline::NONE);
    measured
        .map(Some)
        .map_err(|why| Error::target(format!("--cmd-larger: {why}")))
}

/// Makes the first connections to a server that has just started.
fn measure_started(
    dialer: &Dialer<'_>,
    server: &Server,
    until: Deadline,
) -> Result<FirstConnection, String> {
    let context = dialer.context(Protocols::ALL, None)?;
    let sample = || server.sample().map_err(|error| error.message);
    let at_start = idle(&sample, until)?;
    let visit = || -> Result<Duration, String> {
        let visit = ProbeConnection::make(dialer, &context)?;
        let took = visit.took;
        visit.close();
        Ok(took)
    };
    let first = visit()?;
    let after_first = idle(&sample, until)?;
    let mut later = Vec::new();
    for _ in 0..LATER {
        later.push(visit()?);
    }
    let after_later = idle(&sample, until)?;
    later.sort();
    let median = later.get(LATER / 2).copied().unwrap_or_default();
    let ms = |ns: u64| ns as f64 / 1e6;
    Ok(FirstConnection {
        first_ms: first.as_secs_f64() * 1e3,
        first_cpu_ms: ms((after_first.cpu - at_start.cpu).total_ns),
        later_ms: median.as_secs_f64() * 1e3,
        later_cpu_ms: ms((after_later.cpu - after_first.cpu).total_ns) / LATER as f64,
        held_bytes: at_start.memory.pss,
        larger: None,
    })
}

/// Samples until the server is idle, so that its start-up work does not count as its first connection.
///
/// # Errors
/// If it never is, such as a server that polls.
fn idle(
    sample: &impl Fn() -> Result<TreeSample, String>,
    until: Deadline,
) -> Result<TreeSample, String> {
    let mut before = sample()?;
    for _ in 0..IDLE_CHECKS {
        if until.is_over(Instant::now()) {
            break;
        }
        sleep(IDLE_EVERY);
        let now = sample()?;
        if (now.cpu - before.cpu).total_ns < IDLE_NS {
            return Ok(now);
        }
        before = now;
    }
    Err(NEVER_IDLE.into())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A server that polls used 3.2 s of CPU time while the audit waited for it to be idle, which counted as its first
    /// connection.
    #[test]
    fn a_server_that_is_never_idle_is_not_compared() {
        let used = Cell::new(0);
        let sample = |each_ns: u64| {
            used.set(used.get() + each_ns);
            let mut sample = TreeSample::default();
            sample.cpu.total_ns = used.get();
            Ok(sample)
        };
        let until = Deadline::after(Instant::now(), Some(Duration::from_millis(200)));
        assert_eq!(idle(&|| sample(50_000_000), until), Err(NEVER_IDLE.into()));
        assert!(idle(&|| sample(100_000), Deadline::NONE).is_ok());
    }
}
