//! `dormouse close`: closes connections of a running `serve` by their properties, at once or evenly over a period.
//!
//! The command counts the connections, then has the workers close a few at a time. So it may be stopped at any time:
//! nothing goes on without it.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use dormouse_config as config;
use dormouse_handover::connections::{CLOSED_MAX, Page, PagePlace};

use crate::admin::{AdminAddress, AdminArgs, Exit};
use crate::connections::{Counted, FilterArgs, conclude, misused};
use crate::terminal;

/// Maximum duration, as of a drain.
const OVER_MAX: Duration = Duration::from_secs(30 * 86_400);
/// Longest pause between two requests.
const STEP: Duration = Duration::from_millis(200);
/// Time for backends to end connections with TLS to them.
const BACKENDS_END: Duration = Duration::from_secs(5);
/// Number of lines about the progress.
const LINES: u32 = 10;

/// Arguments of `close`.
#[derive(Debug, Args)]
pub(crate) struct CloseArgs {
    #[command(flatten)]
    pub(crate) filter: FilterArgs,

    /// Time over which to close them evenly, so that not all clients come back at once [default: at once]
    #[arg(long, value_name = "TIME")]
    pub(crate) over: Option<String>,

    /// Close none, and print how many it would be
    #[arg(long)]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

pub(crate) fn run(args: &CloseArgs) -> Exit {
    if args.filter.is_empty() {
        let why = "name a property of the connections to close; `dormouse drain` closes all";
        return Err(misused(why.to_owned()));
    }
    let over = read_over(args.over.as_deref())?;
    args.filter.query(None).map_err(misused)?;
    if !args.dry_run {
        return run_closing(&args.filter, over, &args.admin);
    }
    let address = AdminAddress::find(&args.admin.instance)?;
    let Counted { matched, unknown } = args.filter.count(&address, None)?;
    match args.admin.json {
        true => terminal::print_json(&serde_json::json!({
            "closed": 0,
            "matched": matched,
            "unknown": unknown,
        })),
        false => terminal::line(format_args!("{} would be closed", connections(matched))),
    }
    Ok(conclude(unknown))
}

/// Reads the time over which to close; none is at once. Prints a mistake.
pub(crate) fn read_over(given: Option<&str>) -> Result<Duration, ExitCode> {
    let over = given.map(config::read_duration).transpose();
    let over = over.map_err(misused)?.unwrap_or_default();
    match over > OVER_MAX {
        true => Err(misused("`--over` may be at most 30 days".to_owned())),
        false => Ok(over),
    }
}

/// Closes connections, and prints how many.
pub(crate) fn run_closing(filter: &FilterArgs, over: Duration, admin: &AdminArgs) -> Exit {
    let address = AdminAddress::find(&admin.instance)?;
    let mut closing = Closing {
        filter,
        address: &address,
        begun: Instant::now(),
        closed: 0,
        noted: 0,
        ending: 0,
        unknown: 0,
    };
    closing.close(over, admin.json)?;
    if closing.ending > 0 {
        thread::sleep(BACKENDS_END);
        closing.reset_rest()?;
    }
    let Closing {
        closed, unknown, ..
    } = closing;
    match admin.json {
        true => terminal::print_json(&serde_json::json!({
            "closed": closed,
            "unknown": unknown,
        })),
        false => terminal::line(format_args!("closed {}", connections(closed))),
    }
    Ok(conclude(unknown))
}

fn connections(number: u64) -> String {
    match number {
        1 => "1 connection".to_owned(),
        _ => format!("{} connections", config::show_number(number)),
    }
}

/// A run of the command.
struct Closing<'a> {
    filter: &'a FilterArgs,
    address: &'a AdminAddress,
    /// Connections of clients that come back after this stay.
    begun: Instant,
    closed: u64,
    /// The number in the last line about the progress.
    noted: u64,
    ending: u64,
    unknown: u64,
}

impl Closing<'_> {
    /// Closes the connections, evenly over this time.
    fn close(&mut self, over: Duration, is_quiet: bool) -> Result<(), ExitCode> {
        let all = match over.is_zero() {
            true => 0,
            false => {
                self.filter
                    .count(self.address, Some(self.begun.elapsed()))?
                    .matched
            }
        };
        let start = Instant::now();
        let mut next_line = over / LINES;
        let mut from: Option<PagePlace> = None;
        loop {
            let passed = start.elapsed();
            let due = due(all, passed, over);
            if due.is_some_and(|due| due <= self.closed) {
                thread::sleep(
                    until_next(all, self.closed, over)
                        .saturating_sub(passed)
                        .min(STEP),
                );
                continue;
            }
            if passed >= next_line && !is_quiet && !over.is_zero() {
                next_line += over / LINES;
                self.note_progress(all);
            }
            let most = due.map_or(u64::from(CLOSED_MAX), |due| due - self.closed);
            let path = format!("/connections/close?most={}", most.min(CLOSED_MAX.into()));
            let since = Some(self.begun.elapsed());
            let page: Page = self.filter.page(self.address, "POST", &path, since, from)?;
            self.closed += u64::from(page.closed);
            self.ending += u64::from(page.ending);
            self.unknown += u64::from(page.unknown);
            from = page.next;
            if from.is_none() {
                return Ok(());
            }
        }
    }

    fn note_progress(&mut self, all: u64) {
        if self.closed > self.noted {
            self.noted = self.closed;
            let closed = config::show_number(self.closed);
            terminal::note(format_args!("closed {closed} of {}", connections(all)));
        }
    }

    /// Resets the connections whose backends did not follow the end.
    fn reset_rest(&self) -> Result<(), ExitCode> {
        let mut from: Option<PagePlace> = None;
        loop {
            let since = Some(self.begun.elapsed());
            let page: Page =
                self.filter
                    .page(self.address, "POST", "/connections/close", since, from)?;
            from = page.next;
            if from.is_none() {
                return Ok(());
            }
        }
    }
}

/// How many of `all` are to be closed when this time has passed. `None`: as many as there are.
fn due(all: u64, passed: Duration, over: Duration) -> Option<u64> {
    if passed >= over {
        return None;
    }
    let share = u128::from(all) * passed.as_millis() / over.as_millis().max(1);
    Some(share as u64 + u64::from(all > 0))
}

/// When the next one is due.
fn until_next(all: u64, closed: u64, over: Duration) -> Duration {
    let ms = over.as_millis() * u128::from(closed) / u128::from(all.max(1));
    Duration::from_millis((ms as u64).saturating_add(1)).min(over)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_closed_evenly() {
        let over = Duration::from_secs(10);
        let due_at = |all, ms| due(all, Duration::from_millis(ms), over);
        assert_eq!(due_at(100, 0), Some(1), "the first one at once");
        assert_eq!(due_at(100, 5_000), Some(51));
        assert_eq!(due_at(100, 10_000), None, "whatever is left");
        assert_eq!(due_at(0, 0), Some(0));
        assert_eq!(due(100, Duration::ZERO, Duration::ZERO), None, "at once");
        for closed in 0..100 {
            let at = until_next(100, closed, over);
            assert!(
                due(100, at, over).is_none_or(|due| due > closed),
                "{closed}"
            );
        }
        assert_eq!(until_next(0, 0, over), Duration::from_millis(1));
    }
}
