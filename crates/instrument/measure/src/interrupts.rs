//! Signals by which a user, a closing terminal or the system ends a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dormouse_reactor::OnExec;
use dormouse_reactor::signal::{Signal, Signals};
use dormouse_reactor::socket::Attempt;

use crate::error::Error;

/// Signals that request the end of a run. While this value exists, they do not end the process.
/// Clones share them.
#[derive(Clone)]
pub struct Interrupts(Arc<Received>);

struct Received {
    signals: Option<Signals>,
    any: AtomicBool,
}

impl Interrupts {
    /// Receives the signals. If the operating system refuses, none is ever reported.
    pub fn open() -> Self {
        let mut ends = vec![Signal::Interrupt, Signal::Terminate];
        // Under `nohup`, a hangup must not end the run.
        if !is_ignored(Signal::Hangup) {
            ends.push(Signal::Hangup);
        }
        Self(Arc::new(Received {
            signals: Signals::open(&ends, OnExec::Close).ok(),
            any: AtomicBool::new(false),
        }))
    }

    /// Returns whether a signal has arrived so far.
    pub fn arrived(&self) -> bool {
        let receive = || self.0.signals.as_ref().map(Signals::receive);
        while let Some(Ok(Attempt::Done(_))) = receive() {
            self.0.any.store(true, Ordering::Relaxed);
        }
        self.0.any.load(Ordering::Relaxed)
    }

    /// Ends a run if a signal has arrived.
    ///
    /// # Errors
    /// If a signal has arrived.
    pub fn check(&self) -> Result<(), Error> {
        if self.arrived() {
            return Err(Error::interrupted());
        }
        Ok(())
    }
}

fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored_in(&status).is_some_and(|mask| mask >> (signal as u32 - 1) & 1 == 1)
}

/// Returns the mask of ignored signals in the text of `/proc/PID/status`.
pub(crate) fn ignored_in(status: &str) -> Option<u64> {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_mask_of_ignored_signals() {
        let of_nohup = "Name:\tdormouse\nSigIgn:\t0000000000001001\nSigCgt:\t0\n";
        assert_eq!(ignored_in(of_nohup), Some(0x1001));
        assert_eq!(ignored_in("Name:\tdormouse\n"), None);
        assert!(!is_ignored(Signal::Terminate));
    }
}
