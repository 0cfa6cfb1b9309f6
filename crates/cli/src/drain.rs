//! `dormouse drain`: closes the connections of a running `serve` evenly over a period, and shows
//! its progress.

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use dormouse_config as config;
use dormouse_handover::status::{DrainStatus, Status};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::admin::{self, AdminAddress, AdminArgs, Exit, encoded, failed};
use crate::exit_status::ExitStatus;
use crate::{status, terminal};

/// The longest drain that `serve` accepts.
const OVER_MAX: Duration = Duration::from_secs(30 * 86_400);
/// Interval between two requests for the progress.
const LOOK: Duration = Duration::from_secs(1);
/// Time until the first request: then the workers of a server without connections have said that they are done.
const FIRST_LOOK: Duration = Duration::from_millis(100);
/// Number of lines over the whole time, where there is no terminal.
const LINES: u32 = 100;

/// Arguments of `drain`.
#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,

    /// Time over which to close all connections
    #[arg(
        long,
        value_name = "TIME",
        default_value = "10m",
        conflicts_with = "stop"
    )]
    pub(crate) over: String,

    /// Wait this long first, so that load balancers can notice and no new client is refused
    #[arg(long, value_name = "TIME", conflicts_with = "stop")]
    pub(crate) after: Option<String>,

    /// Which connections to close first: those that have been idle longest, or shortest
    #[arg(long, value_name = "ORDER", default_value = "longest", conflicts_with = "stop",
          value_parser = ["longest", "shortest"])]
    pub(crate) order: String,

    /// Stop a running drain, and accept new connections again
    #[arg(long)]
    pub(crate) stop: bool,

    /// Return at once instead of showing the progress
    #[arg(long, conflicts_with = "stop")]
    pub(crate) no_wait: bool,
}

pub(crate) fn run(args: &DrainArgs) -> Exit {
    if args.stop {
        return admin::run_order(&args.admin, "/drain/stop");
    }
    let address = AdminAddress::find(&args.admin.instance)?;
    let misused = |why: String| -> ExitCode {
        terminal::error(why);
        ExitStatus::Misused.into()
    };
    // Before the wait, so that a mistake is reported at once.
    let over = config::read_duration(&args.over).map_err(misused)?;
    if over > OVER_MAX {
        return Err(misused("a drain may last at most 30 days".to_owned()));
    }
    if let Some(after) = &args.after {
        thread::sleep(config::read_duration(after).map_err(misused)?);
    }
    let order = format!("/drain?over={}&order={}", encoded(&args.over), args.order);
    let result = address.order(&order).map_err(failed)?;
    let code = admin::show(&result, args.admin.json);
    if !result.done || args.no_wait {
        return Ok(code);
    }
    watch(&address, args.admin.json)
}

/// Shows the progress until no connection is left or the drain was stopped.
fn watch(address: &AdminAddress, json: bool) -> Exit {
    let mut progress = DrainProgress::new(json);
    thread::sleep(FIRST_LOOK);
    loop {
        let status: Status = address.question_again("/status").map_err(failed)?;
        let Some(drain) = &status.drain else {
            progress.end();
            terminal::note("the drain was stopped");
            return Ok(ExitStatus::Lost.into());
        };
        if drain.left == 0 {
            progress.end();
            show(drain, json);
            return Ok(ExitCode::SUCCESS);
        }
        progress.show(drain);
        thread::sleep(LOOK);
    }
}

/// The progress so far: one line that changes on a terminal, a line now and then elsewhere.
struct DrainProgress {
    json: bool,
    bar: Option<ProgressBar>,
    next_line: Instant,
}

impl DrainProgress {
    fn new(json: bool) -> Self {
        let is_watched = !json && io::stdout().is_terminal() && terminal::can_draw();
        Self {
            json,
            bar: is_watched.then(line),
            next_line: Instant::now(),
        }
    }

    fn show(&mut self, drain: &DrainStatus) {
        if let Some(bar) = &self.bar {
            bar.set_message(text(drain).trim_end().to_owned());
        } else if Instant::now() >= self.next_line {
            show(drain, self.json);
            let over = Duration::try_from_secs_f64(drain.over_s).unwrap_or_default();
            self.next_line = Instant::now() + over / LINES;
        }
    }

    /// Clears the line: what follows says how it ended.
    fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// A line on standard output that can change.
fn line() -> ProgressBar {
    let style = ProgressStyle::with_template("{msg}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
    ProgressBar::with_draw_target(None, ProgressDrawTarget::stdout()).with_style(style)
}

fn show(drain: &DrainStatus, json: bool) {
    if json {
        terminal::print_json_line(drain);
    } else {
        terminal::print(&text(drain));
    }
}

fn text(drain: &DrainStatus) -> String {
    let mut page = String::new();
    status::drain(&mut page, drain);
    page
}
