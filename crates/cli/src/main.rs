//! The binary `dormouse`: arguments, wiring, terminal output.
#![forbid(unsafe_code)]

mod admin;
mod arguments;
mod audit;
mod bench;
mod certificates;
mod check;
mod ctl;
mod demo;
mod drain;
mod exit_status;
#[cfg(test)]
mod guide_tests;
mod import;
mod journal;
mod log_format;
mod logs;
mod mistakes;
mod options;
mod pages;
mod paint;
mod results;
mod serve;
mod show;
mod status;
mod syslog_format;
mod table;
mod terminal;
mod top;
mod upgrade;

use std::process::ExitCode;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    match Arguments::read().command {
        Command::Serve(args) => serve::run(&args),
        Command::Connect(args) => serve::run_connect(&args),
        Command::Check(args) => check::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Reload(args) => admin::run_order(&args, "/reload"),
        Command::Upgrade(args) => upgrade::run(&args),
        Command::Ctl(args) => ctl::run(&args),
        Command::Drain(args) => drain::run(&args),
        Command::Bench(args) => bench::run(*args),
        Command::Audit(args) => audit::run(args),
        Command::Demo(args) => demo::run(&args),
        Command::DemoPart(args) => demo::run_part(&args),
        Command::Import(args) => import::run(&args),
        Command::Man(args) => pages::man(&args),
        Command::Completions(args) => pages::completions(&args),
        Command::Reference => {
            terminal::print(&dormouse_config::reference());
            ExitCode::SUCCESS
        }
        Command::Schema => {
            terminal::print(&dormouse_config::schema());
            ExitCode::SUCCESS
        }
        Command::Errand { args } => {
            of_serve(dormouse_helpers::errand::process_entry(&args, logs::start))
        }
        Command::Control { args } => {
            of_serve(dormouse_helpers::control::process_entry(&args, logs::start))
        }
        Command::TicketStore { args } => {
            of_serve(dormouse_helpers::fleet::process_entry(&args, logs::start))
        }
        Command::LogWriter { args } => of_serve(dormouse_helpers::connection_log::process_entry(
            &args,
            logs::start,
        )),
        Command::Redirect { args } => of_serve(dormouse_helpers::redirect::process_entry(
            &args,
            logs::start,
        )),
        Command::Scout { args } => {
            of_serve(dormouse_helpers::scout::process_entry(&args, logs::start))
        }
        Command::Keeper { args } => of_serve(dormouse_dataplane::keeper::process_entry(
            &args,
            logs::start,
        )),
    }
}

/// Ends a process that only `serve` may start.
fn of_serve(ended: Option<ExitCode>) -> ExitCode {
    ended.unwrap_or_else(|| {
        terminal::note("dormouse: only `dormouse serve` can start this command");
        ExitCode::from(2)
    })
}
