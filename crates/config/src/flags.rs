//! From flags of the command line to raw values with places.

use super::Section;
use super::mistake::Collector;
use super::raw::{Key, Node, Place, Raw, Wrong};

/// One flag with its value, as often as it was given.
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

    fn place(&self) -> Place {
        Place::Flag(format!("--{}", self.name))
    }
}

/// What flags say, in the form that a file has.
pub(super) struct FromFlags {
    /// Options of the program.
    pub(super) process: Vec<(Key, Raw)>,
    /// Options of the one route or origination which flags can describe.
    pub(super) section: Vec<(Key, Raw)>,
}

/// Sorts flags into options. `--cert` and `--key` become `certificates`.
pub(super) fn parse(section: Section, flags: &[Flag], mistakes: &mut Collector<'_>) -> FromFlags {
    let mut sorted = FromFlags {
        process: Vec::new(),
        section: Vec::new(),
    };
    for flag in flags {
        let name = flag.name.replace('-', "_");
        if name == "cert" || name == "key" {
            continue;
        }
        let spec = section
            .options()
            .options
            .iter()
            .find(|spec| spec.name == name);
        let (entries, list) = match spec {
            Some(spec) => (&mut sorted.section, spec.kind.list),
            None => (&mut sorted.process, false),
        };
        let value = Raw::flag(&format!("--{}", flag.name), &flag.value);
        match entries.iter_mut().find(|(key, _)| key.name == name) {
            None => {
                let node = if list {
                    Node::List(vec![value])
                } else {
                    value.node
                };
                let key = Key {
                    name,
                    place: flag.place(),
                };
                entries.push((
                    key,
                    Raw {
                        place: flag.place(),
                        node,
                    },
                ));
            }
            Some((
                _,
                Raw {
                    node: Node::List(values),
                    ..
                },
            )) => values.push(value),
            Some(_) => mistakes.error(
                &flag.place(),
                Wrong::new("this is given twice").help("give it once"),
            ),
        }
    }
    sorted.section.extend(certificates(flags, mistakes));
    sorted
}

/// Pairs the certificates with the keys, in the order in which they were given.
fn certificates(flags: &[Flag], mistakes: &mut Collector<'_>) -> Option<(Key, Raw)> {
    let of = |name: &str| {
        flags
            .iter()
            .filter(|flag| flag.name == name)
            .collect::<Vec<_>>()
    };
    let (certs, keys) = (of("cert"), of("key"));
    let first = certs.first().or(keys.first())?;
    if certs.len() != keys.len() {
        let (lacking, given) = if certs.len() > keys.len() {
            ("key", "cert")
        } else {
            ("cert", "key")
        };
        mistakes.error(
            &Place::Flag(format!("--{given}")),
            Wrong::new(format!(
                "{} --cert and {} --key are given",
                number(certs.len()),
                number(keys.len())
            ))
            .help(format!("each --{given} needs a --{lacking} beside it")),
        );
    }
    let key = |name: &str, flag: &Flag| Key {
        name: name.to_owned(),
        place: flag.place(),
    };
    let pair = |(cert, private): (&&Flag, &&Flag)| Raw {
        place: cert.place(),
        node: Node::Table(vec![
            (key("cert", cert), Raw::flag("--cert", &cert.value)),
            (key("key", private), Raw::flag("--key", &private.value)),
        ]),
    };
    let pairs: Vec<Raw> = certs.iter().zip(&keys).map(pair).collect();
    let value = Raw {
        place: first.place(),
        node: Node::List(pairs),
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
