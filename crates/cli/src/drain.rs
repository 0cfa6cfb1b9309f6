//! `dormouse drain`: closes the connections of a running `serve` evenly over a period, and shows
//! its progress.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Args;
use dormouse_config as config;
use dormouse_handover::status::{DrainStatus, Status};

use crate::admin::{self, AdminAddress, AdminArgs, Exit, encoded, failed};
use crate::exit_status::ExitStatus;
use crate::{status, terminal};

/// Interval between two requests for the progress.
const LOOK: Duration = Duration::from_secs(1);

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
    config::read_duration(&args.over).map_err(misused)?;
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
    loop {
        let status: Status = address.question("/status").map_err(failed)?;
        let Some(drain) = &status.drain else {
            terminal::note("the drain was stopped");
            return Ok(ExitStatus::Lost.into());
        };
        show(drain, json);
        if drain.left == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        thread::sleep(LOOK);
    }
}

fn show(drain: &DrainStatus, json: bool) {
    if json {
        terminal::print_json_line(drain);
    } else {
        let mut page = String::new();
        status::drain(&mut page, drain);
        terminal::print(&page);
    }
}
