//! The binary `dormouse`: arguments, wiring, terminal output.
#![forbid(unsafe_code)]

mod admin;
mod arguments;
mod audit;
mod bench;
mod certificates;
mod check;
mod close;
mod connections;
mod ctl;
mod demo;
mod drain;
mod exit_status;
mod figures;
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
mod reload;
mod rest_trial;
mod results;
mod serve;
mod show;
mod status;
mod syslog_format;
mod table;
mod terminal;
mod top;
mod trace;
mod upgrade;

use std::process::ExitCode;

use admin::Exit;
use arguments::{Arguments, Command};
use dormouse_dataplane::keeper;
use dormouse_helpers::{
    acme_hook, connection_log, control, errand, fleet, redirect, scout, signer, spiffe, tcp_repair,
    upgrade_trial,
};
use dormouse_reactor::wiping::WipingAllocator;

#[global_allocator]
static ALLOCATOR: WipingAllocator = WipingAllocator;

fn main() -> ExitCode {
    let (Ok(code) | Err(code)) = run(Arguments::read().command);
    code
}

fn run(command: Command) -> Exit {
    Ok(match command {
        Command::Serve(args) => serve::run(&args),
        Command::Connect(args) => serve::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Status(args) => status::run(&args)?,
        Command::Top(args) => top::run(&args)?,
        Command::Reload(args) => reload::run(&args)?,
        Command::Upgrade(args) => upgrade::run(&args)?,
        Command::Ctl(args) => ctl::run(&args)?,
        Command::Connections(args) => connections::run(&args)?,
        Command::Trace(args) => trace::run(&args)?,
        Command::Close(args) => close::run(&args)?,
        Command::Drain(args) => drain::run(&args)?,
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
        Command::RestTrial => rest_trial::run(),
        Command::AcmeHook(args) => args.run(acme_hook::process_entry),
        Command::Control(args) => args.run(control::process_entry),
        Command::Errand(args) => args.run(errand::process_entry),
        Command::Keeper(args) => args.run(keeper::process_entry),
        Command::LogWriter(args) => args.run(connection_log::process_entry),
        Command::Redirect(args) => args.run(redirect::process_entry),
        Command::Scout(args) => args.run(scout::process_entry),
        Command::Signer(args) => args.run(signer::process_entry),
        Command::SpiffeClient(args) => args.run(spiffe::process_entry),
        Command::TcpRepair(args) => args.run(tcp_repair::process_entry),
        Command::TicketStore(args) => args.run(fleet::process_entry),
        Command::UpgradeTrial(args) => args.run(upgrade_trial::process_entry),
    })
}
