//! Turns flags of the command line into raw values with locations.

use crate::config::Config;
use crate::mistakes::collector::MistakeCollector;
use crate::mistakes::location::Location;
use crate::mistakes::problem::Problem;
use crate::option::spec::OptionSpec;
use crate::option::value::{Key, RawData, RawValue};
use crate::section::Section;

/// One occurrence of a flag, with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// Its name without dashes: `max-connections`.
    pub name: String,
    /// Its value.
    pub value: String,
}

impl Flag {
    /// A flag with a value.
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            value: value.into(),
        }
    }

    fn location(&self) -> Location {
        Location::Flag(format!("--{}", self.name))
    }
}

/// The options that flags set, in the form of a file's.
pub(crate) struct FlagValues {
    /// Options of the program.
    pub(crate) process: Vec<(Key, RawValue)>,
    /// Options of the one route or origination that flags can describe.
    pub(crate) section: Vec<(Key, RawValue)>,
}

/// Turns flags into options. `--cert` and `--key` become `certificates`.
pub(crate) fn parse(
    section: Section,
    flags: &[Flag],
    mistakes: &mut MistakeCollector<'_>,
) -> FlagValues {
    let mut sorted = FlagValues {
        process: Vec::new(),
        section: Vec::new(),
    };
    for flag in flags {
        let name = flag.name.replace('-', "_");
        if name == "cert" || name == "key" {
            continue;
        }
        let named = |spec: &&OptionSpec| spec.name == name;
        let of_program = Config::PROCESS_OPTIONS
            .iter()
            .flat_map(|group| group.options);
        let (entries, list) = match section.options().options.iter().find(named) {
            Some(spec) => (&mut sorted.section, spec.kind.list),
            None => {
                let list = of_program
                    .into_iter()
                    .find(named)
                    .is_some_and(|spec| spec.kind.list);
                (&mut sorted.process, list)
            }
        };
        let value = RawValue::flag(&format!("--{}", flag.name), &flag.value);
        match entries.iter_mut().find(|(key, _)| key.name == name) {
            None => {
                let data = if list {
                    RawData::List(vec![value])
                } else {
                    value.data
                };
                let key = Key {
                    name,
                    location: flag.location(),
                };
                entries.push((
                    key,
                    RawValue {
                        location: flag.location(),
                        data,
                    },
                ));
            }
            Some((
                _,
                RawValue {
                    data: RawData::List(values),
                    ..
                },
            )) => values.push(value),
            Some(_) => mistakes.error(
                &flag.location(),
                Problem::new("this is given twice").help("give it once"),
            ),
        }
    }
    sorted.section.extend(certificates(flags, mistakes));
    sorted
}

/// Pairs the certificates with the keys, in the order in which they were given. Without any `--key`, each
/// file has its key in it, as in a configuration that names one file.
fn certificates(flags: &[Flag], mistakes: &mut MistakeCollector<'_>) -> Option<(Key, RawValue)> {
    let of = |name: &str| {
        flags
            .iter()
            .filter(|flag| flag.name == name)
            .collect::<Vec<_>>()
    };
    let certs = of("cert");
    let keys = match of("key") {
        none if none.is_empty() => certs.clone(),
        keys => keys,
    };
    let first = certs.first().or(keys.first())?;
    if certs.len() != keys.len() {
        let (given, help) = if certs.len() > keys.len() {
            let help = "each --cert needs a --key beside it; without any --key, each file has its key in it";
            ("cert", help)
        } else {
            ("key", "each --key needs a --cert beside it")
        };
        mistakes.error(
            &Location::Flag(format!("--{given}")),
            Problem::new(format!(
                "{} --cert and {} --key are given",
                number(certs.len()),
                number(keys.len())
            ))
            .help(help),
        );
    }
    let key = |name: &str, flag: &Flag| Key {
        name: name.to_owned(),
        location: flag.location(),
    };
    let pair = |(cert, private): (&&Flag, &&Flag)| RawValue {
        location: cert.location(),
        data: RawData::Table(vec![
            (key("cert", cert), RawValue::flag("--cert", &cert.value)),
            (key("key", private), RawValue::flag("--key", &private.value)),
        ]),
    };
    let pairs: Vec<RawValue> = certs.iter().zip(&keys).map(pair).collect();
    let value = RawValue {
        location: first.location(),
        data: RawData::List(pairs),
    };
    Some((key("certificates", first), value))
}

fn number(count: usize) -> String {
    match count {
        0 => "no".to_owned(),
        1 => "one".to_owned(),
        more => more.to_string(),
    }
}
