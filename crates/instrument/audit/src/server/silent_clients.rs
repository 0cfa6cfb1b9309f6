//! Whether clients that connect and say nothing keep other clients from their handshake.
//!
//! A server that makes handshakes in the thread that accepts connections, or in a few threads that wait for their client,
//! answers no other client meanwhile. So the audit opens more and more silent connections, and after each it sends a
//! ClientHello on another one. A missing answer counts only if it arrives once the silent clients are gone.

use std::time::{Duration, Instant};

use dormouse_engine::Protocols;

use super::deadline::Deadline;
use super::dialer::Dialer;
use super::probe_connection::{self, ProbeConnection, Socket};
use super::probe_hello::{HelloAnswer, ProbeHello, TLS13};
use crate::model::{Measured, SilentClients};

/// Numbers of silent clients that are tried.
const SILENT: [u64; 5] = [1, 2, 4, 8, 16];
/// ClientHellos without silent clients, of which the slowest counts.
const ALONE: usize = 3;
/// Time for the server to begin with the silent clients: on a busy machine a thread of its own may begin later than that of
/// the next client.
const SETTLE: Duration = Duration::from_millis(100);
/// A missing answer: none for this long, and for this many times the usual time.
const WAIT_MIN: Duration = Duration::from_secs(2);
const WAIT_TIMES: u32 = 20;
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Time that this part may take on a server that blocks.
const NEEDED: Duration = Duration::from_secs(10);

/// Tries a handshake beside silent clients; not on a server that must not be loaded.
pub(super) fn examine(dialer: &Dialer<'_>) -> Measured<SilentClients> {
    if !dialer.free {
        return Measured::not(
            "the server is on another machine: no load without --i-own-this-server",
        );
    }
    if dialer.patience(NEEDED) < NEEDED {
        return Measured::not("the time was too short; --time raises the limit");
    }
    Measured::from(attempt(dialer))
}

fn attempt(dialer: &Dialer<'_>) -> Result<SilentClients, String> {
    let mut alone = Duration::ZERO;
    for _ in 0..ALONE {
        let took = answer(dialer, WAIT_MAX)?.ok_or("the server did not answer a ClientHello")?;
        alone = alone.max(took);
    }
    let wait = (alone * WAIT_TIMES).clamp(WAIT_MIN, WAIT_MAX);
    let mut figures = SilentClients {
        tried: 0,
        blocked_by: None,
        waited_ms: ms(wait),
        alone_ms: ms(alone),
        established_blocks: None,
    };
    let mut silent = Vec::new();
    for count in SILENT {
        while (silent.len() as u64) < count {
            let patience = dialer.patience(WAIT_MAX);
            let socket = Socket::connect(dialer.target, patience);
            silent.push(socket.map_err(|error| format!("connect: {error}"))?);
        }
        std::thread::sleep(dialer.patience(SETTLE));
        figures.tried = count;
        if answer(dialer, wait)?.is_none() {
            figures.blocked_by = Some(count);
            break;
        }
    }
    drop(silent);
    if figures.blocked_by.is_none() {
        return Ok(figures);
    }
    if answer(dialer, WAIT_MAX)?.is_none() {
        return Err("the server stopped answering, also after the silent clients had left".into());
    }
    if figures.blocked_by == Some(1) {
        figures.established_blocks = established_blocks(dialer, wait);
    }
    Ok(figures)
}

/// Whether one idle connection after its handshake blocks another client.
fn established_blocks(dialer: &Dialer<'_>, wait: Duration) -> Option<bool> {
    let context = dialer.context(Protocols::ALL, None).ok()?;
    let idle = ProbeConnection::make(dialer, &context).ok()?;
    let answered = answer(dialer, wait).ok()?;
    idle.close();
    Some(answered.is_none())
}

/// Sends a ClientHello. Returns the time to the answer, or `None` if there was none in time.
fn answer(dialer: &Dialer<'_>, wait: Duration) -> Result<Option<Duration>, String> {
    let began = Instant::now();
    let impatient = Dialer {
        deadline: Deadline::after(began, Some(wait)),
        ..*dialer
    };
    let name = dialer.name.parse::<std::net::IpAddr>().is_err();
    let hello = ProbeHello::all(TLS13, name.then_some(dialer.name));
    match probe_connection::ask(&impatient, &hello) {
        Ok(HelloAnswer::Silent) => Ok(None),
        // A server with STARTTLS says nothing before.
        Err(_) if began.elapsed() >= wait => Ok(None),
        Err(why) => Err(why),
        Ok(_) => Ok(Some(began.elapsed())),
    }
}

fn ms(time: Duration) -> f64 {
    1e3 * time.as_secs_f64()
}
