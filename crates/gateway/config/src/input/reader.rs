//! Turns raw values into a [`Config`], and reports unknown and missing options.

use crate::config::Config;
use crate::input::locations::{Locations, SectionLocation};
use crate::mistakes::collector::MistakeCollector;
use crate::mistakes::location::Location;
use crate::mistakes::nearest::{containing, nearest};
use crate::mistakes::problem::Problem;
use crate::mistakes::words::{list_of, shortened, unknown_word};
use crate::option::context::ReadContext;
use crate::option::group::Group;
use crate::option::option_type::{ITEMS_MAX, ROUTES_MAX};
use crate::option::spec::{OptionDefault, OptionSpec};
use crate::option::value::{Key, RawData, RawValue};
use crate::section::Section;
use crate::values::choices::ResolveNames;
use std::collections::BTreeSet;

/// Everything that was written, with its locations.
pub(crate) struct RawConfig {
    /// The options of the program and, from a file, the routes among them.
    pub(crate) entries: Vec<(Key, RawValue)>,
    /// False if a part could not be read: an option that seems to be missing may be in that part.
    pub(crate) complete: bool,
    /// Whether there is a file among the sources.
    pub(crate) from_file: bool,
    /// What the flags are for.
    pub(crate) section: Section,
}

impl RawConfig {
    /// Whether names may stay unresolved. Routes are read before this option if a flag sets it.
    pub(crate) fn is_lazy(&self) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|(key, raw)| {
            key.name == "resolve" && raw.as_text() == Some(ResolveNames::Lazy.as_str())
        })
    }
}

/// Builds a configuration from what was written. It is valid only if `mistakes` has no error.
pub(crate) fn read<'a>(
    written: &'a RawConfig,
    context: &ReadContext<'_>,
    mistakes: &mut MistakeCollector<'_>,
) -> (Config, Locations<'a>) {
    let mut config = Config::blank();
    let mut locations = Locations::default();
    for (key, raw) in &written.entries {
        if mistakes.is_full() {
            break;
        }
        // What the parser read in a broken line is not what the author meant.
        if !written.complete && mistakes.has_mistake_in_line(&key.location) {
            continue;
        }
        if let Some(section) = Section::named(&key.name) {
            for raw in tables(section, raw, mistakes) {
                let reading = SectionReader {
                    section,
                    raw,
                    complete: written.complete,
                };
                let (list, unsound) = match section {
                    Section::Route => {
                        let (route, unsound) = reading.table(context, mistakes);
                        config.routes.push(route);
                        (&mut locations.routes, unsound)
                    }
                    Section::Originate => {
                        let (originate, unsound) = reading.table(context, mistakes);
                        config.originate.push(originate);
                        (&mut locations.originate, unsound)
                    }
                };
                list.push(SectionLocation { raw, unsound });
            }
            continue;
        }
        match config.read_option(&key.name, raw, &context.of(&raw.location)) {
            Some(Ok(())) => {}
            Some(Err(problems)) => {
                report(problems, raw, mistakes);
                locations.unsound.insert(key.name.clone());
            }
            None => mistakes.error(&key.location, unknown_process_option(key, raw)),
        }
    }
    locations.entries = &written.entries;
    if written.complete {
        let meant = |name: &str| nearest(name, &section_names()).is_some();
        if !written.entries.iter().any(|(key, _)| meant(&key.name)) {
            mistakes.error(&Location::Whole, no_route(written));
        }
    }
    (config, locations)
}

fn no_route(written: &RawConfig) -> Problem {
    let help = match (written.from_file, written.section) {
        (true, _) => "add a line [[route]], and under it `listen`, `to` and `certificates`",
        (false, Section::Route) => "give --listen, --to and a certificate, or a file with -c",
        (false, Section::Originate) => "give --listen and --to, or a file with -c",
    };
    Problem::new("there is no route, so nothing would be served").help(help)
}

/// Returns the routes or originations, even if their notation is slightly wrong.
fn tables<'a>(
    section: Section,
    raw: &'a RawValue,
    mistakes: &mut MistakeCollector<'_>,
) -> Vec<&'a RawValue> {
    let name = section.name();
    let items = match &raw.data {
        RawData::List(items) => items.iter().collect(),
        // Flags describe exactly one; in a file, a pair of brackets is missing.
        RawData::Table(_) => {
            if matches!(raw.location, Location::File(_)) {
                mistakes.error(
                    &raw.location,
                    Problem::new(format!(
                        "{}s are written under `[[{name}]]`, because there may be several",
                        section.noun()
                    ))
                    .label("write two brackets on each side"),
                );
            }
            vec![raw]
        }
        _ => {
            mistakes.error(
                &raw.location,
                raw.wrong_type(
                    &format!("{}s", section.noun()),
                    &format!("[[{name}]] in a line of its own"),
                ),
            );
            return Vec::new();
        }
    };
    let (tables, others): (Vec<&RawValue>, Vec<&RawValue>) = items
        .into_iter()
        .partition(|item| matches!(item.data, RawData::Table(_)));
    let most = match section {
        Section::Route => ROUTES_MAX,
        Section::Originate => ITEMS_MAX,
    };
    if let Some(first_too_many) = tables.get(most) {
        mistakes.error(
            &first_too_many.location,
            Problem::new(format!("there are {} {}s", tables.len(), section.noun()))
                .label(format!("at most {most}")),
        );
    }
    for other in others {
        mistakes.error(
            &other.location,
            other.wrong_type(section.one(), &format!("[[{name}]] in a line of its own")),
        );
    }
    tables.into_iter().take(most).collect()
}

/// A route or an origination that is being read.
#[derive(Clone, Copy)]
struct SectionReader<'a> {
    section: Section,
    raw: &'a RawValue,
    complete: bool,
}

impl SectionReader<'_> {
    /// Reads the section. The second value names the options that could not be read.
    fn table<G: Group>(
        self,
        context: &ReadContext<'_>,
        mistakes: &mut MistakeCollector<'_>,
    ) -> (G, BTreeSet<String>) {
        let mut table = G::blank();
        let mut unsound = BTreeSet::new();
        let RawData::Table(entries) = &self.raw.data else {
            return (table, unsound);
        };
        for (key, value) in entries {
            if mistakes.is_full() {
                break;
            }
            if !self.complete && mistakes.has_mistake_in_line(&key.location) {
                continue;
            }
            match table.read(&key.name, value, &context.of(&value.location)) {
                Some(Ok(())) => {}
                Some(Err(problems)) => {
                    report(problems, value, mistakes);
                    unsound.insert(key.name.clone());
                }
                None => mistakes.error(&key.location, unknown_section_option(self.section, key)),
            }
        }
        // A misspelt option has been reported as such.
        let names = names_in(self.section);
        let meant = |name: &str, spec: &OptionSpec| {
            let misspelt = !names.contains(&name) && nearest(name, &names) == Some(spec.name);
            name == spec.name || misspelt
        };
        let missing = |spec: &&OptionSpec| {
            matches!(spec.default, OptionDefault::Required(_))
                && !entries.iter().any(|(key, _)| meant(&key.name, spec))
        };
        for spec in G::OPTIONS.iter().filter(missing).filter(|_| self.complete) {
            let problem = missing_option(self.section, spec, &self.raw.location);
            mistakes.error(&self.raw.location, problem);
            unsound.insert(spec.name.to_owned());
        }
        (table, unsound)
    }
}

pub(crate) fn report(problems: Vec<Problem>, raw: &RawValue, mistakes: &mut MistakeCollector<'_>) {
    for problem in problems {
        mistakes.error(&raw.location, problem);
    }
}

fn missing_option(section: Section, spec: &OptionSpec, location: &Location) -> Problem {
    let example = spec.default.text();
    match location {
        Location::File(_) => {
            Problem::new(format!("this {} has no `{}`", section.noun(), spec.name))
                .help(format!("add {} = \"{example}\"", spec.name))
        }
        _ => Problem::new(format!("--{} is missing", spec.flag())).help(format!(
            "add --{} {}",
            spec.flag(),
            spec.default.text()
        )),
    }
    .at(location)
}

fn unknown_process_option(key: &Key, raw: &RawValue) -> Problem {
    let name = key.name.as_str();
    for section in Section::ALL {
        if names_in(section).contains(&name) {
            return Problem::new(format!("`{name}` is an option of {}", section.one()))
                .help(format!("write it below a line [[{}]]", section.name()));
        }
    }
    if matches!(key.location, Location::Flag(_)) {
        return Problem::new("there is no such flag");
    }
    // A section, as in other programs' files.
    if matches!(raw.data, RawData::Table(_) | RawData::List(_)) {
        let problem = unknown_word("section", name, &section_names());
        if !problem.label.is_empty() {
            return problem
                .help(
                "write routes under [[route]], originations under [[originate]], and everything else above the first of them",
            );
        }
        return Problem::new(format!("unknown section `{}`", shortened(name))).help(
            "the only sections are [[route]] and [[originate]]; write all other options above them, without a section",
        );
    }
    let mut known = Config::option_names();
    known.extend(section_names());
    let of_process = unknown_word("option", name, &known);
    if !of_process.label.is_empty() {
        return of_process;
    }
    let of_route = unknown_word("option", name, &names_in(Section::Route));
    // If several options of the program contain the word, one of a route that does is no better.
    if !of_route.label.is_empty() && containing(name, &known).len() < 2 {
        return of_route.help("it is an option of a route: write it below a line [[route]]");
    }
    let problem = Problem::new(format!("unknown option `{}`", shortened(name)));
    match containing(name, &known).as_slice() {
        [] => problem.help("docs/guide/reference.md and `dormouse reference` list all options"),
        candidates => problem.help(format!("did you mean one of {}?", list_of(candidates))),
    }
}

fn unknown_section_option(section: Section, key: &Key) -> Problem {
    let (one, location) = (section.one(), section.name());
    let name = key.name.as_str();
    let process = Config::option_names();
    if process.contains(&name) {
        return Problem::new(format!(
            "`{name}` is not an option of {one} but of the whole program"
        ))
        .help(format!("write it above the first [[{location}]]"));
    }
    if name == "cert" || name == "key" {
        return Problem::new(format!("unknown option `{name}` of {one}"))
            .label("this belongs in `certificates`")
            .help("certificates = [{ cert = \"site.pem\", key = \"site.key\" }]");
    }
    let own = unknown_word("option", name, &names_in(section));
    if !own.label.is_empty() {
        return own;
    }
    let of_process = unknown_word("option", name, &process);
    if !of_process.label.is_empty() {
        return of_process.help(format!(
            "it is an option of the whole program: write it above the first [[{location}]]"
        ));
    }
    Problem::new(format!("unknown option `{}` of {one}", shortened(name)))
        .help(format!("{one} has {}", list_of(&names_in(section))))
}

fn section_names() -> [&'static str; 2] {
    Section::ALL.map(Section::name)
}

fn names_in(section: Section) -> Vec<&'static str> {
    let options = section.options().options;
    options.iter().map(|spec| spec.name).collect()
}
