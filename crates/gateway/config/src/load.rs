//! Loads a file and flags into a configuration and its plan, or reports all mistakes.

use crate::checks;
use crate::config::Config;
use crate::finding::{self, Finding};
use crate::former;
use crate::input::environment::Environment;
use crate::input::files::Files;
use crate::input::flags::Flag;
use crate::input::locations::Locations;
use crate::input::names::Names;
use crate::input::reader::RawConfig;
use crate::input::{flags, reader, toml_file};
use crate::mistakes::collector::MistakeCollector;
use crate::mistakes::location::Location;
use crate::mistakes::mistake::{Mistakes, Severity};
use crate::mistakes::problem::Problem;
use crate::option::context::{ReadContext, Resolve};
use crate::option::option_type::OptionType as _;
use crate::option::value::{Key, RawData, RawValue};
use crate::plan::kernel;
use crate::plan::machine::Machine;
use crate::plan::sizing::{self, Plan};
use crate::section::Section;
use crate::values::admin::Admin;
use crate::values::amounts::Amount;
use crate::values::network::Network;
use crate::values::quantities::Count;
use crate::values::units;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::Path;
use std::time::Duration;

/// The option that names the admin socket.
const ADMIN: &str = "admin";

/// A configuration without errors.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Its plan on this machine.
    pub plan: Plan,
    /// The warnings.
    pub warnings: Mistakes,
}

impl Loaded {
    /// Returns a copy in which every `auto` limit has the plan's number, for code that does not see
    /// the plan.
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

/// Loads the configuration from a file (`-`: standard input), flags, or both. Flags override the
/// file; routes come from the file or the flags, not from both.
pub fn load(
    file: Option<&Path>,
    section: Section,
    flags: &[Flag],
    machine: &Machine,
) -> Result<Loaded, Mistakes> {
    load_with(file, section, flags, machine, &look_up, &|_| Vec::new())
}

/// Asks the operating system for the addresses of a host, and waits for the answer.
pub fn look_up(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((name, port).to_socket_addrs()?.collect())
}

/// Tries what a configuration names (files, addresses, users), and returns what is wrong with it.
pub type Examine<'a> = &'a dyn Fn(&Config) -> Vec<Finding>;

/// Loads like [`load`], but looks names up with `resolve` and tries what the configuration names
/// with `examine`. Reports all mistakes at once, each with its location.
pub fn load_with(
    file: Option<&Path>,
    section: Section,
    flags: &[Flag],
    machine: &Machine,
    resolve: Resolve<'_>,
    examine: Examine<'_>,
) -> Result<Loaded, Mistakes> {
    let text = match file {
        Some(path) => toml_file::read(path)?,
        None => String::new(),
    };
    Loader {
        file,
        text: &text,
        section,
        flags,
        machine,
        resolve,
        environment: &|name| std::env::var_os(name),
        examine,
    }
    .load()
}

/// Returns the mistakes in a configuration that is in no file yet. Looks up no names: each is taken
/// to have an address of its own.
pub fn judge(text: &str, file: &Path, machine: &Machine) -> Mistakes {
    let answer = Loader {
        file: Some(file),
        text,
        section: Section::Route,
        flags: &[],
        machine,
        resolve: &stand_in,
        environment: &|_| None,
        examine: &|_| Vec::new(),
    }
    .load();
    answer.map_or_else(|mistakes| mistakes, |loaded| loaded.warnings)
}

/// Returns the admin socket that a configuration names. Judges nothing else: a command must reach the running program
/// while names cannot be looked up, from a shell with other limits and variables, and after a mistake in another line.
///
/// # Errors
/// The file cannot be read, or the value of `admin` is wrong.
pub fn admin_of(file: &Path) -> Result<Admin, Mistakes> {
    let text = toml_file::read(file)?;
    let given: Environment<'_> = &|name| std::env::var_os(name);
    // Only the program may have a variable of another line.
    let anything: Environment<'_> = &|name| Some(given(name).unwrap_or_default());
    let read = |environment| {
        let mut files = Files::of(Some(file), &text, environment);
        files.include(&[], environment);
        files
    };
    let is_admin = |(key, _): &&(Key, RawValue)| key.name == ADMIN;
    let has_admin = |files: &Files| files.entries.iter().any(|entry| is_admin(&entry));
    let mut files = read(given);
    if !has_admin(&files) {
        let others = read(anything);
        if !has_admin(&others) {
            files = others;
        }
    }
    let mut mistakes = MistakeCollector::new(&files.texts);
    let mut config = Config::blank();
    let written = files.entries.iter().find(is_admin);
    for (location, problem) in files.problems {
        mistakes.error(&location, problem);
    }
    // If it is missing, or in a broken line, those are the mistakes; those of other lines are for the program.
    let sound = written.filter(|(key, _)| !mistakes.has_mistake_in_line(&key.location));
    if let Some((_, raw)) = sound {
        mistakes = MistakeCollector::new(&files.texts);
        let context = ReadContext {
            texts: Some(&files.texts),
            place: None,
            resolve: &stand_in,
            is_lazy: false,
            ipv6: true,
        };
        let read = config.read_option(ADMIN, raw, &context.of(&raw.location));
        if let Some(Err(problems)) = read {
            reader::report(problems, raw, &mut mistakes);
        }
    }
    let (errors, _) = mistakes.into_parts(Some(file));
    match (errors.list.is_empty(), config.process.admin) {
        (false, _) => Err(errors),
        // Once the way to write `metrics`.
        (true, Admin::Loopback(_)) => Ok(Admin::Auto),
        (true, admin) => Ok(admin),
    }
}

/// Returns an address of the test networks (RFC 2544), always the same for the same name.
fn stand_in(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let [.., a, b, c] = name.bytes().fold(0x811c_9dc5, mix).to_be_bytes();
    let address = match name {
        "localhost" => [127, 0, 0, 1],
        _ => [198, 18 | (a & 1), b, c],
    };
    Ok(vec![SocketAddr::new(address.into(), port)])
}

/// Returns the plan for a loaded configuration that has been changed since. `None`: it no longer
/// fits this machine.
pub fn plan_for(config: &Config, machine: &Machine) -> Option<Plan> {
    plan_with(config, machine, 0).ok()
}

/// Returns the plan for a configuration whose certificates, keys and revocation lists have this many bytes.
///
/// # Errors
/// Why it does not fit this machine; the remedy is in the lines after the first.
pub fn plan_with(config: &Config, machine: &Machine, material: u64) -> Result<Plan, String> {
    let plan = sizing::plan(config, machine, material);
    plan.map_err(|(_, problem)| match problem.help {
        Some(help) => format!("{}\n{help}", problem.what),
        None => problem.what,
    })
}

/// Reads a duration of a command as people write it: a year at most, as in timeouts of the
/// configuration.
///
/// # Errors
/// The error says what would be right.
pub fn read_duration(text: &str) -> Result<Duration, String> {
    const MAX: Duration = Duration::from_secs(365 * 86_400);
    match units::duration(text) {
        Ok(duration) if duration <= MAX => Ok(duration),
        Ok(_) => Err(format!(
            "`{text}` is too long: at most {}",
            units::show_duration(MAX)
        )),
        Err(_) => Err(format!(
            "`{text}` is not a duration; write it like 90s, 10m or 1h"
        )),
    }
}

/// Parses a network as in the configuration, for a flag of another command.
///
/// # Errors
/// The error says what would be right.
pub fn read_network(text: &str) -> Result<Network, String> {
    let read = Network::read(&RawValue::builtin(text), &ReadContext::NONE);
    read.map_err(|problems| {
        let all = problems.iter().map(|problem| match &problem.help {
            Some(help) => format!("{}; {help}", problem.what),
            None => problem.what.clone(),
        });
        all.collect::<Vec<String>>().join("; ")
    })
}

/// Everything that loading depends on, so that tests need no real machine.
pub(crate) struct Loader<'a> {
    pub(crate) file: Option<&'a Path>,
    pub(crate) text: &'a str,
    pub(crate) section: Section,
    pub(crate) flags: &'a [Flag],
    pub(crate) machine: &'a Machine,
    pub(crate) resolve: Resolve<'a>,
    pub(crate) environment: Environment<'a>,
    pub(crate) examine: Examine<'a>,
}

impl Loader<'_> {
    pub(crate) fn load(&self) -> Result<Loaded, Mistakes> {
        let mut files = Files::of(self.file, self.text, self.environment);
        files.include(self.flags, self.environment);
        let mut mistakes = MistakeCollector::new(&files.texts);
        for (location, problem) in files.problems {
            mistakes.error(&location, problem);
        }
        let written = self.written(files.entries, files.complete, &mut mistakes);
        let is_lazy = written.is_lazy();
        let names = Names::new(self.resolve, is_lazy);
        let context = ReadContext {
            texts: Some(&files.texts),
            place: None,
            resolve: &|name, port| names.addresses(name, port),
            is_lazy,
            ipv6: self.machine.ipv6,
        };
        let (mut config, locations) = reader::read(&written, &context, &mut mistakes);
        former::take_over(&mut config, &locations, &mut mistakes);
        if written.complete {
            checks::check(&config, &locations, &mut mistakes);
            finding::report((self.examine)(&config), &locations, &mut mistakes);
        }
        let plan = self.fit(&config, &locations, &mut mistakes);
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

    /// Merges file and flags; a flag replaces the file's line.
    fn written(
        &self,
        mut entries: Vec<(Key, RawValue)>,
        complete: bool,
        mistakes: &mut MistakeCollector<'_>,
    ) -> RawConfig {
        let flags = flags::parse(self.section, self.flags, mistakes);
        entries.retain(|(key, _)| !flags.process.iter().any(|(flag, _)| flag.name == key.name));
        entries.extend(flags.process);
        match (self.file, flags.section.first()) {
            (Some(_), Some((key, _))) => mistakes.error(
                &key.location,
                Problem::new(match self.section {
                    Section::Route => "with a configuration file, routes come from the file only",
                    Section::Originate => {
                        "with a configuration file, originations come from the file only"
                    }
                })
                .help("remove this flag, or the file"),
            ),
            (None, Some(_)) => {
                let route = RawValue {
                    location: Location::Whole,
                    data: RawData::Table(flags.section),
                };
                let key = Key {
                    name: self.section.name().to_owned(),
                    location: Location::Whole,
                };
                entries.push((key, route));
            }
            (_, None) => {}
        }
        RawConfig {
            entries,
            complete,
            from_file: self.file.is_some(),
            section: self.section,
        }
    }

    /// Checks the configuration against the machine.
    fn fit(
        &self,
        config: &Config,
        locations: &Locations<'_>,
        mistakes: &mut MistakeCollector<'_>,
    ) -> Option<Plan> {
        if config.sockets.backlog.or(0) > self.machine.backlog_max {
            let location = locations.option("backlog");
            let problem = Problem::new(format!(
                "the kernel lowers backlog to {} here",
                self.machine.backlog_max
            ));
            let help = format!(
                "raise the kernel's limit: sysctl net.core.somaxconn={}",
                config.sockets.backlog
            );
            mistakes.add(Severity::Warning, &location, problem.help(help));
        }
        let plan = sizing::plan(config, self.machine, 0)
            .map_err(|(options, problem)| mistakes.error(&locations.first_of(options), problem))
            .ok()?;
        if let Some(problem) = sizing::few_descriptors(config, &plan, self.machine) {
            mistakes.warning(&Location::Whole, problem);
        }
        for problem in kernel::low_limits(config, &plan, self.machine) {
            mistakes.warning(&locations.option("max_connections"), problem);
        }
        if let Some((index, problem)) = sizing::only_warm(config, &plan) {
            let location = locations.location_in(Section::Originate, index, "warm", None);
            mistakes.error(&location, problem);
        }
        if let Some((route, problem)) = sizing::silent_clients(config, &plan) {
            mistakes.warning(&locations.in_route(route, "proxy_protocol", None), problem);
        }
        Some(plan)
    }
}
