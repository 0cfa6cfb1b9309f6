//! Command-line flags, generated from the configuration's table of options: one flag for each
//! option.

use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};
use dormouse_config::{Config, Flag, OptionDefault, OptionSpec, Section};

/// Certificates are a table in the file and two flags on the command line.
const CERTIFICATES: &str = "certificates";
/// Steps that are still to take stand in the file; a flag would hide them.
const STEPS: &str = "todo";

/// Flags from the command line, in the order of the table: for `serve` those of a route and of
/// the program, for `connect` those of an origination and of the program.
#[derive(Clone, Debug, Default)]
pub(crate) struct OptionFlags<const CONNECT: bool> {
    pub(crate) given: Vec<Flag>,
}

impl<const CONNECT: bool> OptionFlags<CONNECT> {
    /// The section that the flags describe, beside the options of the program.
    pub(crate) const SECTION: Section = if CONNECT {
        Section::Originate
    } else {
        Section::Route
    };

    /// Adds a flag for each option.
    fn add(command: Command) -> Command {
        let section = Self::SECTION.options();
        let mut command = command.next_help_heading(section.title);
        for spec in section.options {
            command = match spec.name {
                CERTIFICATES => command.args(certificate_args(CONNECT)),
                _ => command.arg(arg(spec)),
            };
        }
        for group in Config::PROCESS_OPTIONS {
            let options = group.options.iter().filter(|spec| spec.name != STEPS);
            command = command
                .next_help_heading(group.title)
                .args(options.map(arg));
        }
        command
    }
}

impl<const CONNECT: bool> clap::Args for OptionFlags<CONNECT> {
    fn augment_args(command: Command) -> Command {
        // Only a process that parses them, or shows their help, needs them: no worker, and no other command.
        command.defer(Self::add)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const CONNECT: bool> FromArgMatches for OptionFlags<CONNECT> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for (id, flag, is_list) in ids(Self::SECTION) {
            let values = matches.get_many::<String>(id).into_iter().flatten();
            for value in values {
                let items = if is_list {
                    items(value)
                } else {
                    vec![value.clone()]
                };
                let flags = items.into_iter().map(|item| Flag::new(&flag, item));
                self.given.extend(flags);
            }
        }
        Ok(())
    }
}

/// Splits the value of a list's flag at its commas. `\,` is a comma within an item.
fn items(value: &str) -> Vec<String> {
    // No argument of a program has a zero byte.
    let value = value.replace("\\,", "\0");
    let items = value.split(',').map(|item| item.replace('\0', ","));
    items.collect()
}

/// Returns every argument with the name of its flag, and whether it is a list's.
fn ids(section: Section) -> impl Iterator<Item = (&'static str, String, bool)> {
    let of_process = Config::PROCESS_OPTIONS
        .iter()
        .flat_map(|group| group.options);
    let of_table = section.options().options.iter().chain(of_process);
    of_table
        .filter(|spec| ![CERTIFICATES, STEPS].contains(&spec.name))
        .map(|spec| (spec.name, spec.flag(), spec.kind.list))
        .chain(["cert", "key"].map(|name| (name, name.to_owned(), false)))
}

fn arg(spec: &'static OptionSpec) -> Arg {
    // clap keeps names for the life of the process; there is one per option.
    let flag: &'static str = Box::leak(spec.flag().into_boxed_str());
    let mut help = spec.summary();
    if !spec.kind.choices.is_empty() {
        help.push_str(&format!(" [{}]", spec.kind.choices.join(", ")));
    }
    if let OptionDefault::Is(default) = spec.default
        && !["", "none"].contains(&default)
    {
        help.push_str(&format!(" [default: {default}]"));
    }
    let mut long_help = spec.explanation();
    for (name, value) in details(spec) {
        long_help.push_str(&format!("\n[{name}: {value}]"));
    }
    let arg = Arg::new(spec.name)
        .long(flag)
        .value_name(spec.kind.placeholder)
        .help(help)
        .long_help(long_help)
        // A value that begins with a hyphen is an invalid value, not an unknown flag.
        .allow_hyphen_values(true);
    if spec.kind.choices.is_empty() && spec.kind.placeholder == "true|false" {
        // The flag without a value means true.
        arg.num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .action(ArgAction::Append)
    } else {
        arg.action(ArgAction::Append)
    }
}

/// Properties of an option for its help text: choices, default, range, cost.
fn details(spec: &OptionSpec) -> impl Iterator<Item = (&'static str, String)> {
    let choices = (!spec.kind.choices.is_empty()).then(|| ("one of", spec.kind.choices.join(", ")));
    let default = match spec.default {
        OptionDefault::Is("" | "none") => None,
        OptionDefault::Required(_) => Some(("default", "none, must be set".to_owned())),
        OptionDefault::Is(default) => Some(("default", default.to_owned())),
    };
    let range = spec
        .range
        .map(|(least, greatest)| ("range", format!("{least} to {greatest}")));
    let cost = (!spec.cost.is_empty()).then(|| ("costs", spec.cost.to_owned()));
    [choices, default, range, cost].into_iter().flatten()
}

fn certificate_args(connect: bool) -> [Arg; 2] {
    let arg = |id: &'static str, help: &'static str| {
        Arg::new(id)
            .long(id)
            .value_name("FILE")
            .action(ArgAction::Append)
            .help(help)
    };
    [
        arg(
            "cert",
            if connect {
                "Client certificate chain as PEM, leaf first, for servers that request one; with its key in the same file or in that of --key"
            } else {
                "Certificate chain as PEM, leaf first, with its key in the same file or in that of --key; or a directory of such files. May be given several times"
            },
        ),
        arg(
            "key",
            "Private key of the certificate as PEM, if the file of --cert has none",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::items;

    #[test]
    fn a_comma_behind_a_backslash_does_not_separate_items() {
        assert_eq!(items("h2"), ["h2"]);
        assert_eq!(items("cn=a,cn=b"), ["cn=a", "cn=b"]);
        assert_eq!(
            items(r"cn=Smith\, Ann,cn=b\c"),
            ["cn=Smith, Ann", r"cn=b\c"]
        );
    }
}
