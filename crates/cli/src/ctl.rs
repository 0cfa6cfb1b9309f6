//! `dormouse ctl`: commands that change a running `serve`, but none of its files.

mod certificates;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use dormouse_config as config;
use dormouse_handover::status::{BackendStatus, Status};

use crate::admin::{self, AdminAddress, AdminArgs, Exit, encoded, failed};
use crate::connections::{FilterArgs, misused};
use crate::exit_status::ExitStatus;
use crate::{close, table, terminal};
use certificates::{PushArgs, WithdrawArgs};

/// Interval between checks for a backend's remaining connections.
const LOOK: Duration = Duration::from_millis(500);
/// The value of `--wait` without a time.
const UNLIMITED: &str = "";

/// Arguments of `ctl`.
#[derive(Debug, Args)]
pub(crate) struct CtlArgs {
    #[command(subcommand)]
    order: Order,
}

/// What to change.
#[derive(Debug, Subcommand)]
enum Order {
    /// List the backends: routes, weights, connections, and whether each is in, out or down
    Backends(AdminArgs),
    /// Stop sending new connections to a backend; existing ones continue
    Out {
        #[command(flatten)]
        backend: BackendArgs,

        /// Wait until the backend has no connections left, at most this long [default: without a limit]
        #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = UNLIMITED,
              conflicts_with = "route")]
        wait: Option<String>,

        /// Then close the connections that are left
        #[arg(long, requires = "wait")]
        close_rest: bool,

        /// Time over which to close them evenly [default: at once]
        #[arg(long, value_name = "TIME", requires = "close_rest")]
        over: Option<String>,
    },
    /// Send new connections to a backend again
    In {
        #[command(flatten)]
        backend: BackendArgs,
    },
    /// Change a backend's share of new connections
    Weight {
        #[command(flatten)]
        backend: BackendArgs,

        /// The weight, relative to the other backends
        weight: u32,
    },
    /// Change the log level
    LogLevel {
        /// off, error, warn, info, debug or trace
        level: String,

        #[command(flatten)]
        keep: KeepArgs,

        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Replace the ticket key now; tickets of the previous key are accepted until the next rotation
    RotateTicketKeys(AdminArgs),
    /// Open the file of the connection log again, after its rotation; nothing else changes
    ReopenLogs(AdminArgs),
    /// List the certificates in use
    Certificates(AdminArgs),
    /// Use a certificate from now on, until the next reload
    PushCertificate(PushArgs),
    /// Stop using a certificate that was pushed
    WithdrawCertificate(WithdrawArgs),
}

/// The backend to change.
#[derive(Debug, Args)]
struct BackendArgs {
    /// Address or name of the backend, as in the configuration
    backend: String,

    /// Only in the route of this name; routes without a name are numbered from 1 [default: all
    /// routes that have the backend]
    #[arg(long, value_name = "NAME")]
    route: Option<String>,

    #[command(flatten)]
    keep: KeepArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

/// How long a change lasts.
#[derive(Debug, Args)]
struct KeepArgs {
    /// Also after a reload and a restart, until another order for the same (option `ctl_file`)
    #[arg(long)]
    keep: bool,
}

impl KeepArgs {
    fn parameter(&self) -> &'static str {
        if self.keep { "&keep=true" } else { "" }
    }
}

impl BackendArgs {
    fn request(&self, what: &str) -> String {
        let route = self.route.as_deref().map(encoded);
        let route = route.map_or(String::new(), |route| format!("&route={route}"));
        let keep = self.keep.parameter();
        format!(
            "/backends/{what}?address={}{route}{keep}",
            encoded(&self.backend)
        )
    }
}

pub(crate) fn run(args: &CtlArgs) -> Exit {
    match &args.order {
        Order::Backends(admin) => {
            let all = backends(admin)?;
            if admin.json {
                terminal::print_json(&all);
            } else {
                terminal::print(&dormouse_printable::lines(&table(&all)).to_string());
            }
            Ok(ExitCode::SUCCESS)
        }
        Order::Out {
            backend,
            wait,
            close_rest,
            over,
        } => {
            let limit = match wait.as_deref() {
                None | Some(UNLIMITED) => Duration::MAX,
                Some(text) => config::read_duration(text).map_err(misused)?,
            };
            let over = close::read_over(over.as_deref())?;
            let code = admin::run_order(&backend.admin, &backend.request("out"))?;
            if wait.is_none() || code != ExitCode::SUCCESS {
                return Ok(code);
            }
            match wait_until_empty(backend, limit)? {
                Waited::Ended(code) => Ok(code),
                Waited::Left(left) if !close_rest => {
                    terminal::error(format_args!(
                        "{} still has connections: {left}",
                        backend.backend
                    ));
                    Ok(ExitStatus::Lost.into())
                }
                Waited::Left(_) => {
                    let rest = FilterArgs::to_backend(&backend.backend);
                    close::run_closing(&rest, over, &backend.admin)
                }
            }
        }
        Order::In { backend } => admin::run_order(&backend.admin, &backend.request("in")),
        Order::Weight { backend, weight } => {
            let request = format!("{}&weight={weight}", backend.request("weight"));
            admin::run_order(&backend.admin, &request)
        }
        Order::LogLevel { level, keep, admin } => {
            let (level, keep) = (encoded(level), keep.parameter());
            admin::run_order(admin, &format!("/log-level?level={level}{keep}"))
        }
        Order::RotateTicketKeys(admin) => admin::run_order(admin, "/ticket-keys/rotate"),
        Order::ReopenLogs(admin) => admin::run_order(admin, "/logs/reopen"),
        Order::Certificates(admin) => certificates::list(admin),
        Order::PushCertificate(args) => certificates::push(args),
        Order::WithdrawCertificate(args) => certificates::withdraw(args),
    }
}

fn backends(args: &AdminArgs) -> Result<Vec<BackendStatus>, ExitCode> {
    let status = AdminAddress::find(&args.instance)?.question::<Status>("/status");
    Ok(status.map_err(failed)?.backends)
}

/// The end of a wait for a backend's connections.
enum Waited {
    /// None is left, or the backend is in again.
    Ended(ExitCode),
    /// The time is over, and so many are left.
    Left(u64),
}

/// Waits until a backend that is out has no connection left, or is in again, or the time is over.
fn wait_until_empty(backend: &BackendArgs, limit: Duration) -> Result<Waited, ExitCode> {
    let address = AdminAddress::find(&backend.admin.instance)?;
    let begun = Instant::now();
    let mut noted = None;
    let written = &backend.backend;
    // As `status` writes it: `[::1]:80` for `[0:0::1]:80`.
    let usual = written.parse::<SocketAddr>().map(|it| it.to_string());
    let usual = usual.as_ref().unwrap_or(written);
    let is_it = |one: &&BackendStatus| one.address == *usual || one.name.as_ref() == Some(written);
    loop {
        let status: Status = address.question_again("/status").map_err(failed)?;
        let all = status.backends;
        let mut of_it = all.iter().filter(is_it).peekable();
        if of_it.peek().is_none() {
            terminal::error(format_args!(
                "{written} is out, but not among the {} backends that `dormouse status` lists: cannot wait",
                all.len()
            ));
            return Ok(Waited::Ended(ExitStatus::Lost.into()));
        }
        let left = of_it.filter(|one| one.out).map(|one| one.connections).max();
        match left {
            Some(0) => return Ok(Waited::Ended(ExitCode::SUCCESS)),
            Some(left) if begun.elapsed() >= limit => return Ok(Waited::Left(left)),
            Some(left) => {
                note_progress(backend, left, &mut noted);
                thread::sleep(LOOK);
            }
            None => {
                terminal::error(format_args!(
                    "{} is no longer out; stopped waiting",
                    backend.backend
                ));
                return Ok(Waited::Ended(ExitStatus::Lost.into()));
            }
        }
    }
}

/// Prints how many connections are left: at first, and when a tenth of those of the last line have ended. `noted`: their
/// number in that line.
fn note_progress(backend: &BackendArgs, left: u64, noted: &mut Option<u64>) {
    if !backend.admin.json && noted.is_none_or(|noted| left + noted.div_ceil(10) <= noted) {
        *noted = Some(left);
        let left = config::show_number(left);
        terminal::note(format_args!(
            "{}: connections left: {left}",
            backend.backend
        ));
    }
}

fn table(all: &[BackendStatus]) -> String {
    let head = ["route", "backend", "weight", "connections", "state"];
    let mut rows = vec![head.map(str::to_owned)];
    for one in all {
        let state = |out: bool| match (out, one.up) {
            (true, _) => "out",
            (false, true) => "in",
            (false, false) => "down",
        };
        let name = match &one.name {
            Some(name) => format!("{name} ({})", one.address),
            None => one.address.clone(),
        };
        let differs = |route: &String| one.differing.iter().any(|other| other.route == *route);
        let others = one.routes.iter().filter(|route| !differs(route));
        let others: Vec<&str> = others.map(String::as_str).collect();
        let differing = one.differing.iter();
        let differing = differing.map(|of| (of.route.clone(), of.weight, of.out));
        let all = (!others.is_empty()).then(|| (others.join(", "), one.weight, one.out));
        for (n, (routes, weight, out)) in all.into_iter().chain(differing).enumerate() {
            // Connections are counted for all routes together.
            let connections = match n {
                0 => one.connections.to_string(),
                _ => String::new(),
            };
            let weight = weight.to_string();
            rows.push([
                routes,
                name.clone(),
                weight,
                connections,
                state(out).to_owned(),
            ]);
        }
    }
    table::columns(&rows, [false, false, true, true, false])
}
