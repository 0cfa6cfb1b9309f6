//! Signals by which a user, a terminal that goes, or the system ends a run.

use dormouse_reactor::OnExec;
use dormouse_reactor::signal::{Signal, Signals};

/// Opens them; `None` when the operating system refuses.
pub fn open() -> Option<Signals> {
    let mut ends = vec![Signal::Interrupt, Signal::Terminate];
    // Who was started by `nohup` has said that it does not matter.
    if !is_ignored(Signal::Hangup) {
        ends.push(Signal::Hangup);
    }
    Signals::open(&ends, OnExec::Close).ok()
}

fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored_in(&status).is_some_and(|mask| mask >> (signal as u32 - 1) & 1 == 1)
}

/// The mask of ignored signals in the text of `/proc/PID/status`.
fn ignored_in(status: &str) -> Option<u64> {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals() {
        let of_nohup = "Name:\tdormouse\nSigIgn:\t0000000000001001\nSigCgt:\t0\n";
        assert_eq!(ignored_in(of_nohup), Some(0x1001));
        assert_eq!(ignored_in("Name:\tdormouse\n"), None);
        assert!(!is_ignored(Signal::Terminate));
    }
}
