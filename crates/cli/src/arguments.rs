//! The command line. The options of `serve` and `connect` come from the configuration's table of
//! options.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};

use crate::import::ImportArgs;
use clap::builder::styling::{AnsiColor, Styles};
use clap::error::{ContextKind, ContextValue};
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use dormouse_config::Log;

use crate::admin::AdminArgs;
use crate::audit::AuditArgs;
use crate::bench::BenchArgs;
use crate::close::CloseArgs;
use crate::connections::ConnectionsArgs;
use crate::ctl::CtlArgs;
use crate::demo::{DemoArgs, HelperProcessArgs};
use crate::drain::DrainArgs;
use crate::exit_status::ExitStatus;
use crate::options::OptionFlags;
use crate::top::TopArgs;
use crate::trace::TraceArgs;
use crate::{logs, terminal};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\nrustls ",
    env!("DORMOUSE_RUSTLS"),
    "\naws-lc-rs ",
    env!("DORMOUSE_AWS_LC_RS"),
    " (aws-lc-sys ",
    env!("DORMOUSE_AWS_LC_SYS"),
    ")",
);

const EXAMPLES: &str = "\
Examples:
  Try it out, with a self-signed certificate:
    dormouse serve --listen 127.0.0.1:8443 --to echo: --self-signed localhost
  Terminate TLS in front of a server:
    dormouse serve --listen :443 --to 127.0.0.1:8080 --cert site.pem --key site.key
  Start from a configuration file, checked first:
    dormouse check dormouse.toml && dormouse serve dormouse.toml
  Convert a configuration of hitch, stunnel, nginx or HAProxy:
    dormouse import haproxy /etc/haproxy/haproxy.cfg > dormouse.toml

Exit status: 0 success, 1 it ran but something was lost or wrong, 2 wrong usage or
configuration, or the running program refused the command, 3 the operating system or the
target failed.";

const SERVE_EXAMPLES: &str = "\
Examples:
  dormouse serve --listen 127.0.0.1:8443 --to echo: --self-signed localhost
  dormouse serve --listen :443 --to unix:/run/app.sock --cert site.pem --key site.key
  dormouse serve dormouse.toml --log-level debug

Several routes need a configuration file: see configuration.md in the guide. When all
listeners are open, a log line `ready` is written to standard error.

Signals:
  HUP         reload the configuration
  TERM, INT   close connections at rest, finish pending bytes, exit
  QUIT, USR1  close all connections evenly over `shutdown_drain`, then exit
  USR2        upgrade to the new binary at the same path";

const CONNECT_EXAMPLES: &str = "\
Examples:
  dormouse connect --listen 127.0.0.1:8080 --to www.example.com:443
  curl -H 'Host: www.example.com' http://127.0.0.1:8080/
  dormouse connect --listen unix:/run/db.sock --to 192.0.2.7:5433 --ca db-ca.pem --warm 4
  dormouse connect --listen 127.0.0.1:8080 --to a.example:443 --to b.example:443

When all listeners are open, a log line `ready` is written to standard error. Signals are
the same as for `dormouse serve`.";

const CHECK_EXAMPLES: &str = "\
Examples:
  dormouse check dormouse.toml
  dormouse check dormouse.toml && dormouse reload

It reads certificates, keys and all other files that the configuration names, and starts
nothing. Each mistake is shown with its line and the remedy; the exit status is then 2, or 3
if only the operating system refuses something, such as an address that is in use.";

const IMPORT_EXAMPLES: &str = "\
Examples:
  dormouse import haproxy /etc/haproxy/haproxy.cfg > dormouse.toml
  dormouse check dormouse.toml

The result goes to standard output; no file is changed. The comment behind an option names
the lines that it comes from. A comment, with line and reason, stands for each setting that
could not be converted as it was. `todo` lists the steps to take before the result can run:
`check` and `serve` refuse it until you have removed each of them.

Exit status: 0 if nothing is left to do, 1 if the result has steps to do, 2 if the file cannot
be parsed or does not use TLS.";

const STATUS_EXAMPLES: &str = "\
Examples:
  dormouse status
  dormouse status --admin /run/edge/admin.sock --json

It asks the running `serve` over the admin socket (option `admin`).";

const TOP_EXAMPLES: &str = "\
Examples:
  dormouse top
  dormouse top --admin 127.0.0.1:9901 --every 5

Press q to quit.";

const RELOAD_EXAMPLES: &str = "\
Examples:
  dormouse reload
  dormouse reload -c dormouse.toml

`serve` reads its configuration file again. A configuration with a mistake is
refused as a whole, and the running one stays. Connections continue.";

const DRAIN_EXAMPLES: &str = "\
Examples:
  dormouse drain --over 10m
  dormouse drain --over 1h --order shortest --no-wait
  dormouse drain --stop

While it drains, `serve` accepts no new connections; `--stop` ends the drain.";

const TRACE_EXAMPLES: &str = "\
Examples:
  dormouse trace --client 192.0.2.7
  dormouse trace --client 2001:db8::/64 --for 1h

The lines are in the log of the program, without plaintext and keys.";

const CONNECTIONS_EXAMPLES: &str = "\
Examples:
  dormouse connections --route shop --idle 1h
  dormouse connections --client 192.0.2.0/24 --count
  dormouse connections --by route
  dormouse connections --older 7d --json | jq -r .client

A connection is listed if it has all properties. Connections are served meanwhile, so those
that open or close during the list may be missing. `--json` prints one object per line, with
the fields of the connection log. The server name, the bytes and some other facts are known
only while there is a connection log (option `connection_log`).

Exit status 1: for some connections, the fact that decides is unknown.";

const CLOSE_EXAMPLES: &str = "\
Examples:
  dormouse close --client 192.0.2.7 --dry-run
  dormouse close --client 192.0.2.7
  dormouse close --backend 10.0.0.7:8080 --over 10m
  dormouse close --route mqtt --older 7d --over 1h

Clients get close_notify and backends a FIN, as after `total_timeout`; both get a reset if
one of them has sent bytes that the other one did not get. Connections established after
the command has begun stay: a client may come back at once, unless `deny` or another limit
forbids it. With `--over`, stopping the command stops the closing.";

const CTL_EXAMPLES: &str = "\
Examples:
  dormouse ctl backends
  dormouse ctl out 10.0.0.7:8080 --wait && ssh 10.0.0.7 reboot
  dormouse ctl out 10.0.0.7:8080 --wait 30m --close-rest --over 5m
  dormouse ctl in 10.0.0.7:8080
  dormouse ctl weight app.internal:8080 3 --route 2
  dormouse ctl log-level debug
  dormouse ctl out 10.0.0.8:8080 --keep

Changes last until the next reload or restart, which read the file again; only ticket keys
stay rotated after a reload, and with --keep a change stays until another order for the same.
Changes survive a worker's crash and an upgrade.";

const UPGRADE_EXAMPLES: &str = "\
Examples:
  apt install ./dormouse_2.0_amd64.deb && dormouse upgrade
  dormouse upgrade --binary /opt/dormouse-2.0/dormouse

The new binary is checked first. If anything fails before it has taken over all
connections, the running binary continues and says why. SIGUSR2 does the same.";

/// TLS terminator whose quiet connections cost about 200 bytes and survive crashes and upgrades.
#[derive(Debug, Parser)]
#[command(
    name = "dormouse",
    version,
    long_version = LONG_VERSION,
    after_help = EXAMPLES,
    styles = STYLES,
    max_term_width = 100,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Terminate TLS and pass the plaintext on to backends
    #[command(after_help = SERVE_EXAMPLES, arg_required_else_help = true)]
    Serve(ServeArgs<false>),
    /// Accept plain connections on this machine and carry them to a server over TLS
    #[command(after_help = CONNECT_EXAMPLES, arg_required_else_help = true)]
    Connect(ServeArgs<true>),
    /// Check a configuration and all files it names, and show what would run
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// Convert the TLS part of another program's configuration
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(ImportArgs),
    /// Show the status of a running `serve`
    #[command(after_help = STATUS_EXAMPLES)]
    Status(AdminArgs),
    /// Watch the status of a running `serve`, full screen
    #[command(after_help = TOP_EXAMPLES)]
    Top(TopArgs),
    /// Reload the configuration of a running `serve`; connections continue
    #[command(after_help = RELOAD_EXAMPLES)]
    Reload(AdminArgs),
    /// List or count connections of a running `serve`, by their properties
    #[command(after_help = CONNECTIONS_EXAMPLES)]
    Connections(ConnectionsArgs),
    /// Close some connections of a running `serve`, by their properties
    #[command(after_help = CLOSE_EXAMPLES, arg_required_else_help = true)]
    Close(CloseArgs),
    /// Log handshakes and ends of some clients' connections with a running `serve`, for a limited time
    #[command(after_help = TRACE_EXAMPLES, arg_required_else_help = true)]
    Trace(TraceArgs),
    /// Close all connections of a running `serve` evenly over a period
    #[command(after_help = DRAIN_EXAMPLES)]
    Drain(DrainArgs),
    /// Change a running `serve`: backends, certificates, log level, ticket keys
    #[command(after_help = CTL_EXAMPLES)]
    Ctl(CtlArgs),
    /// Replace the binary of a running `serve`; established connections continue
    #[command(after_help = UPGRADE_EXAMPLES)]
    Upgrade(UpgradeArgs),
    /// Measure a TLS server: memory, handshakes, throughput, latency
    Bench(Box<BenchArgs>),
    /// Find where a TLS server's or client's memory and CPU time go, and what to change
    Audit(AuditArgs),
    /// Watch thousands of connections go to rest, wake, and survive a killed worker
    Demo(DemoArgs),
    /// Process that only `demo` starts
    #[command(hide = true)]
    DemoPart(HelperProcessArgs),
    /// Write man pages into a directory
    #[command(hide = true)]
    Man(ManArgs),
    /// Print completions for a shell
    #[command(hide = true)]
    Completions(CompletionsArgs),
    /// Print the reference of all options as markdown
    #[command(hide = true)]
    Reference,
    /// Try whether quiet connections can leave the kernel on this machine
    #[command(hide = true)]
    RestTrial,
    /// Print a JSON schema of the configuration, for completion and checks in editors
    Schema,
    /// Process that only `serve` starts
    #[command(hide = true, disable_help_flag = true)]
    Keeper(ProcessArgs),
    /// Process that only `serve` starts
    #[command(hide = true, disable_help_flag = true)]
    AcmeHook(ProcessArgs),
    /// Process that only `serve` starts
    #[command(hide = true, disable_help_flag = true)]
    Errand(ProcessArgs),
    /// Process that only `serve` starts
    #[command(hide = true, disable_help_flag = true)]
    Control(ProcessArgs),
    /// Process that only `serve` starts
    #[command(hide = true, disable_help_flag = true)]
    Signer(ProcessArgs),
    /// Process that only `serve` starts
    #[command(hide = true, disable_help_flag = true)]
    SpiffeClient(ProcessArgs),
    /// Process that only `serve` starts
    #[command(hide = true, disable_help_flag = true)]
    TcpRepair(ProcessArgs),
    /// Process that only `serve` starts
    #[command(hide = true, disable_help_flag = true)]
    TicketStore(ProcessArgs),
    /// Process that only `serve` starts
    #[command(hide = true, disable_help_flag = true)]
    LogWriter(ProcessArgs),
    /// Process that only `serve` starts
    #[command(hide = true, disable_help_flag = true)]
    Redirect(ProcessArgs),
    /// Process that only `serve` starts
    #[command(hide = true, disable_help_flag = true)]
    Scout(ProcessArgs),
    /// Process that only `serve` starts
    #[command(hide = true, disable_help_flag = true)]
    UpgradeTrial(ProcessArgs),
}

impl Arguments {
    /// Parses the command line of this process. Exits if it is wrong, or asks for help.
    pub(crate) fn read() -> Arguments {
        Arguments::try_parse().unwrap_or_else(|error| exit(&without_hidden_suggestions(error)))
    }
}

/// Writes the help, the version or the mistake, and exits.
fn exit(answer: &clap::Error) -> ! {
    let written = answer.print().and_then(|()| io::stdout().flush());
    if !answer.use_stderr() {
        terminal::end_unless_written(written);
    }
    process::exit(answer.exit_code())
}

/// Removes suggestions of commands and flags that `--help` does not show: they are not for users.
fn without_hidden_suggestions(mut error: clap::Error) -> clap::Error {
    let hidden = hidden_words(&Arguments::command());
    let is_shown = |text: &str| {
        let mut words = text.split([' ', '\'']);
        words.all(|word| !hidden.iter().any(|hidden| hidden == word))
    };
    for kind in [
        ContextKind::SuggestedSubcommand,
        ContextKind::SuggestedArg,
        ContextKind::Suggested,
    ] {
        match error.remove(kind) {
            Some(ContextValue::Strings(mut names)) => {
                names.retain(|name| is_shown(name));
                if !names.is_empty() {
                    error.insert(kind, ContextValue::Strings(names));
                }
            }
            Some(value) => {
                let text = value.to_string();
                // An empty list would be printed as an empty line.
                if !text.is_empty() && is_shown(&text) {
                    error.insert(kind, value);
                }
            }
            None => {}
        }
    }
    error
}

/// Names of hidden commands below this one, and of hidden flags with their dashes.
fn hidden_words(command: &clap::Command) -> Vec<String> {
    let flags = command.get_arguments().filter(|flag| flag.is_hide_set());
    let flags = flags.filter_map(|flag| Some(format!("--{}", flag.get_long()?)));
    let mut words: Vec<String> = flags.collect();
    for verb in command.get_subcommands() {
        if verb.is_hide_set() {
            words.push(verb.get_name().to_owned());
        }
        words.extend(hidden_words(verb));
    }
    words
}

/// Entry point of a process that `serve` starts: its arguments, and what sets the log level and format. `None`: it was
/// started by hand.
type ProcessEntry = fn(&[String], fn(&Log)) -> Option<ExitCode>;

/// Arguments of a process that only `serve` starts.
#[derive(Debug, Args)]
pub(crate) struct ProcessArgs {
    /// Arguments from the parent process.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

impl ProcessArgs {
    /// Runs the process with this entry point, if `serve` has started it.
    pub(crate) fn run(&self, entry: ProcessEntry) -> ExitCode {
        entry(&self.args, logs::start).unwrap_or_else(|| {
            terminal::note("dormouse: only `dormouse serve` can start this command");
            ExitStatus::Misused.into()
        })
    }
}

/// The configuration file, as in `serve FILE`, or with `-c`.
#[derive(Debug, Args)]
pub(crate) struct FileArgs {
    /// Configuration file, or `-` for standard input; flags for options of the program override it
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Same as FILE
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
}

impl FileArgs {
    /// Returns the file, if one was given.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.file.as_deref().or(self.config.as_deref())
    }
}

/// Arguments of `serve`, or with `CONNECT` those of `connect`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs<const CONNECT: bool> {
    #[command(flatten)]
    pub(crate) file: FileArgs,

    #[command(flatten)]
    pub(crate) options: OptionFlags<CONNECT>,

    #[command(flatten)]
    pub(crate) place: PlaceArgs,
}

/// The state from which a process continues in an upgrade; never given by hand.
#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// Continue from the state that the replaced binary left in this descriptor
    #[arg(long, value_name = "FD", hide = true)]
    pub(crate) resume: Option<i32>,

    /// Report whether this binary could continue from that state
    #[arg(long, value_name = "FD", hide = true)]
    pub(crate) try_resume: Option<i32>,
}

/// Arguments of `upgrade`.
#[derive(Debug, Args)]
pub(crate) struct UpgradeArgs {
    /// The new binary [default: the file that is now at the running binary's path]
    #[arg(long, value_name = "PATH")]
    pub(crate) binary: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The configuration to check
    #[arg(value_name = "FILE", required_unless_present = "config")]
    pub(crate) file: Option<PathBuf>,

    /// Same as FILE
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    pub(crate) config: Option<PathBuf>,
}

/// Arguments of `dormouse man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Directory for the pages, created if missing
    pub(crate) directory: PathBuf,
}

/// Arguments of `dormouse completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Shell to print completions for
    pub(crate) shell: Shell,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
