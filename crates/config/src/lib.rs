//! The configuration: plain data, checked as a whole.
//!
//! ```text
//! a file, flags ──> raw values with places ──> Config ──> Plan for this machine
//! ```
//!
//! The table in `options.rs` is the only place where an option is described. What
//! is wrong is collected, not returned at the first mistake, and every mistake has
//! its place, the reason and what would be right.
#![forbid(unsafe_code)]

mod acme;
mod address;
mod admin;
mod amounts;
mod bounds;
mod budget;
mod checks;
mod choices;
mod crypto;
mod endpoints;
mod file;
mod flags;
mod key_source;
mod listeners;
mod machine;
mod mistake;
mod nearest;
mod network;
mod options;
mod originate;
mod pem_files;
mod placed;
mod plan;
mod probe;
mod quantities;
mod raw;
mod read;
mod reference;
mod resumption;
mod rules;
mod sharing;
mod systemd;
mod table;
mod types;
mod units;
mod upstream;

#[cfg(test)]
mod tests;

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use acme::AcmeName;
pub use address::{of_one_family, usable};
pub use admin::Admin;
pub use amounts::{Amount, SourceAddress};
pub use budget::Cost;
pub use choices::{
    Balance, ClientAsk, LogFormat, LogLevel, NameUnknown, ProxyProtocol, Sandbox, TlsGroup,
    TlsProfile, TlsSuite, TlsVersion, Truncation,
};
pub use endpoints::{Backend, Listen, PlainListen, Server};
pub use flags::Flag;
pub use key_source::{KeySource, StoreAddress};
pub use machine::Machine;
pub use mistake::{Mistake, Mistakes, Severity, Source};
pub use network::Network;
pub use options::{Acme, Limits, Log, Originate, Process, Route, Sockets, Tickets, Timeouts};
pub use pem_files::{Ca, CertificateFiles};
pub use plan::Plan;
pub use plan::is_own_network;
pub use probe::{Probe, StatusCodes};
pub use quantities::{ByteSize, Count};
pub use reference::reference;
pub use rules::{ClientMatch, ServerName};
pub use systemd::{SYSTEMD_VARIABLES, environment_number, hands_in_listeners, is_for_this_process};
pub use table::{Default as OptionDefault, OptionSpec};
pub use types::Kind;
pub use units::{milliseconds, seconds};
pub use units::{show_duration, show_number};
pub(crate) use upstream::UPSTREAMS_MAX;
pub use upstream::Upstream;

use mistake::Collector;
use placed::{At, Placed};
use raw::{Context, Key, Node, Place, Raw, Resolve, Wrong};
use read::Written;
use table::Group;

/// Everything that `serve` does, decided before it starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// The ways through the program for TLS that comes in.
    pub routes: Vec<Route>,
    /// Those for TLS that goes out. There is at least one of either kind.
    pub originate: Vec<Originate>,
    /// The program as a whole.
    pub process: Process,
    /// How much there may be of everything.
    pub limits: Limits,
    /// How long anything may take.
    pub timeouts: Timeouts,
    /// What the kernel is asked for.
    pub sockets: Sockets,
    /// Resumption.
    pub tickets: Tickets,
    /// Where certificates are had from.
    #[serde(default)]
    pub acme: Acme,
    /// Standard error.
    pub log: Log,
}

/// A configuration without mistakes.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// What it comes to on this machine.
    pub plan: Plan,
    /// What can be lived with, but should be known.
    pub warnings: Mistakes,
}

impl Loaded {
    /// The same with every limit that was left to the program at the plan's number, for those who
    /// do not see the plan.
    #[must_use]
    pub fn settled(&self) -> Loaded {
        let mut settled = self.clone();
        let (limits, sockets) = (&mut settled.config.limits, &mut settled.config.sockets);
        limits.max_handshakes = Count::Exactly(self.plan.handshakes_max);
        limits.pending_memory = Amount::Exactly(self.plan.pending_memory);
        limits.kernel_memory = Amount::Exactly(self.plan.kernel_memory);
        sockets.receive_buffer = Amount::Exactly(self.plan.receive_buffer);
        sockets.backlog = Count::Exactly(self.plan.backlog);
        settled
    }
}

/// What a configuration is loaded for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To be run by this process: what this process may not do is an error.
    Serve,
    /// To be looked at, maybe by somebody with fewer privileges than the one who
    /// will run it: such things are warnings.
    Check,
}

/// What the flags describe which are not those of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// `[[route]]`: the flags of `serve`.
    Route,
    /// `[[originate]]`: the flags of `connect`.
    Originate,
}

impl Section {
    /// Both.
    const ALL: [Self; 2] = [Self::Route, Self::Originate];

    /// How it is written in the file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Route => "route",
            Self::Originate => "originate",
        }
    }

    /// One of them, in messages.
    pub(crate) fn one(self) -> &'static str {
        match self {
            Self::Route => "a route",
            Self::Originate => "an origination",
        }
    }

    /// The same without its article.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Self::Route => "route",
            Self::Originate => "origination",
        }
    }

    /// Its options.
    pub fn options(self) -> OptionGroup {
        match self {
            Self::Route => OptionGroup::of::<Route>(),
            Self::Originate => OptionGroup::of::<Originate>(),
        }
    }
}

/// Loads the configuration from a file, flags, or both. Flags win over the file;
/// routes come from either of them.
pub fn load(
    file: Option<&Path>,
    section: Section,
    flags: &[Flag],
    machine: &Machine,
    purpose: Purpose,
) -> Result<Loaded, Mistakes> {
    load_with(file, section, flags, machine, purpose, &look_up)
}

/// Asks the operating system for the addresses of a host, and waits for the answer.
pub fn look_up(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((name, port).to_socket_addrs()?.collect())
}

/// As [`load`], with names looked up by somebody else.
pub fn load_with(
    file: Option<&Path>,
    section: Section,
    flags: &[Flag],
    machine: &Machine,
    purpose: Purpose,
    resolve: Resolve<'_>,
) -> Result<Loaded, Mistakes> {
    let text = match file {
        Some(path) => file::read(path)?,
        None => String::new(),
    };
    Loader {
        file,
        text: &text,
        section,
        flags,
        machine,
        purpose,
        resolve,
    }
    .load()
}

/// What would be wrong with a configuration that stands in no file yet. No name is looked up: each
/// is taken to have an address of its own.
pub fn judge(text: &str, file: &Path, machine: &Machine) -> Mistakes {
    let answer = Loader {
        file: Some(file),
        text,
        section: Section::Route,
        flags: &[],
        machine,
        purpose: Purpose::Check,
        resolve: &stand_in,
    }
    .load();
    answer.map_or_else(|mistakes| mistakes, |loaded| loaded.warnings)
}

/// An address of the networks that are for tests (RFC 2544), the same for the same name.
fn stand_in(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let [.., a, b, c] = name.bytes().fold(0x811c_9dc5, mix).to_be_bytes();
    let address = match name {
        "localhost" => [127, 0, 0, 1],
        _ => [198, 18 | (a & 1), b, c],
    };
    Ok(vec![SocketAddr::new(address.into(), port)])
}

/// Reads a duration as people write it.
///
/// # Errors
/// What would be right, in words.
pub fn read_duration(text: &str) -> Result<Duration, String> {
    units::duration(text)
        .map_err(|_| format!("`{text}` is no duration; write it like 90s, 10m or 1h"))
}

/// Everything that loading depends on, so that tests can do it without a machine.
struct Loader<'a> {
    file: Option<&'a Path>,
    text: &'a str,
    section: Section,
    flags: &'a [Flag],
    machine: &'a Machine,
    purpose: Purpose,
    resolve: Resolve<'a>,
}

impl Loader<'_> {
    fn load(&self) -> Result<Loaded, Mistakes> {
        let mut mistakes = Collector::new(self.text);
        let context = Context {
            base: self.file.and_then(Path::parent),
            resolve: self.resolve,
            ipv6: self.machine.ipv6,
        };
        let written = self.written(&mut mistakes);
        let (config, placed) = read::read(&written, &context, &mut mistakes);
        let plan = self.fit(&config, &placed, &mut mistakes);
        let (errors, warnings) = mistakes.into_parts(self.file);
        match plan {
            Some(plan) if errors.list.is_empty() => Ok(Loaded {
                config,
                plan,
                warnings,
            }),
            _ => Err(errors),
        }
    }

    /// File and flags as one; a flag replaces the line of the file.
    fn written(&self, mistakes: &mut Collector<'_>) -> Written {
        let flags = flags::parse(self.section, self.flags, mistakes);
        let (mut entries, complete) = match self.file {
            Some(_) => file::parse(self.text, mistakes),
            None => (Vec::new(), true),
        };
        entries.retain(|(key, _)| !flags.process.iter().any(|(flag, _)| flag.name == key.name));
        entries.extend(flags.process);
        match (self.file, flags.section.first()) {
            (Some(_), Some((key, _))) => mistakes.error(
                &key.place,
                Wrong::new(match self.section {
                    Section::Route => "routes come from the file when there is one",
                    Section::Originate => "originations come from the file when there is one",
                })
                .help("remove this flag, or do without -c"),
            ),
            (None, Some(_)) => {
                let route = Raw {
                    place: Place::Whole,
                    node: Node::Table(flags.section),
                };
                let key = Key {
                    name: self.section.name().to_owned(),
                    place: Place::Whole,
                };
                entries.push((key, route));
            }
            (_, None) => {}
        }
        Written {
            entries,
            complete,
            from_file: self.file.is_some(),
            section: self.section,
        }
    }

    /// Holds the configuration against the machine.
    fn fit(
        &self,
        config: &Config,
        placed: &Placed<'_>,
        mistakes: &mut Collector<'_>,
    ) -> Option<Plan> {
        let severity = match self.purpose {
            Purpose::Serve => Severity::Error,
            Purpose::Check => Severity::Warning,
        };
        for listener in listeners::all(config, placed) {
            let privileged = |port: u16| port < self.machine.privileged_below;
            if privileged(listener.address.port()) {
                let wrong = privileged_wrong(listener.address, self.machine);
                mistakes.add(severity, &listener.place, wrong);
            }
        }
        if config.sockets.backlog.or(0) > self.machine.backlog_max {
            let place = placed.option("backlog");
            let wrong = Wrong::new(format!(
                "the kernel lowers backlog to {} here",
                self.machine.backlog_max
            ));
            let help = format!(
                "raise it: sysctl net.core.somaxconn={}",
                config.sockets.backlog
            );
            mistakes.add(Severity::Warning, &place, wrong.help(help));
        }
        plan::plan(config, self.machine)
            .map_err(|(options, wrong)| mistakes.error(&placed.first_of(options), wrong))
            .ok()
    }
}

fn privileged_wrong(address: SocketAddr, machine: &Machine) -> Wrong {
    let (port, below) = (address.port(), machine.privileged_below);
    Wrong::new(format!("port {port} needs privileges which this process does not have"))
        .label(format!("ports below {below} are privileged"))
        .help(format!(
            "use a port from {below}, start as root, or allow it: setcap cap_net_bind_service=+ep on the binary, or sysctl net.ipv4.ip_unprivileged_port_start={port}"
        ))
}

/// A group of options, for `--help` and the reference.
#[derive(Clone, Copy, Debug)]
pub struct OptionGroup {
    /// Its heading.
    pub title: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// Its options.
    pub options: &'static [OptionSpec],
}

impl OptionGroup {
    const fn of<G: Group>() -> Self {
        Self {
            title: G::TITLE,
            about: G::ABOUT,
            options: G::OPTIONS,
        }
    }
}

impl Config {
    /// The options of a route.
    pub const ROUTE_OPTIONS: OptionGroup = OptionGroup::of::<Route>();

    /// The options of the program, in the order of the reference.
    pub const PROCESS_OPTIONS: &'static [OptionGroup] = &[
        OptionGroup::of::<Process>(),
        OptionGroup::of::<Limits>(),
        OptionGroup::of::<Timeouts>(),
        OptionGroup::of::<Sockets>(),
        OptionGroup::of::<Tickets>(),
        OptionGroup::of::<Acme>(),
        OptionGroup::of::<Log>(),
    ];

    /// Every option at its default, and no route.
    fn blank() -> Self {
        Self {
            routes: Vec::new(),
            originate: Vec::new(),
            process: Process::blank(),
            limits: Limits::blank(),
            timeouts: Timeouts::blank(),
            sockets: Sockets::blank(),
            tickets: Tickets::blank(),
            acme: Acme::blank(),
            log: Log::blank(),
        }
    }

    /// Reads an option of the program. `None`: there is none of this name.
    fn read_option(
        &mut self,
        name: &str,
        raw: &Raw,
        context: &Context<'_>,
    ) -> Option<raw::Read<()>> {
        self.process
            .read(name, raw, context)
            .or_else(|| self.limits.read(name, raw, context))
            .or_else(|| self.timeouts.read(name, raw, context))
            .or_else(|| self.sockets.read(name, raw, context))
            .or_else(|| self.tickets.read(name, raw, context))
            .or_else(|| self.acme.read(name, raw, context))
            .or_else(|| self.log.read(name, raw, context))
    }

    /// The names of all options of the program.
    fn option_names() -> Vec<&'static str> {
        let options = Self::PROCESS_OPTIONS.iter().flat_map(|group| group.options);
        options.map(|spec| spec.name).collect()
    }
}
