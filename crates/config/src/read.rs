//! From raw values to a [`Config`]: which option is which, and what is missing.

use std::collections::BTreeSet;

use super::checks;
use super::choices::{list_of, unknown_word};
use super::mistake::Collector;
use super::nearest::{containing, nearest};
use super::options::Route;
use super::placed::{Placed, PlacedRoute};
use super::raw::{Context, Key, Node, Place, Raw, Wrong, shortened};
use super::table::{Default, Group};
use super::types::ITEMS_MAX;
use super::{Config, OptionSpec, Section};

/// The names under which routes and originations stand in a file.
const SECTIONS: [&str; 2] = ["route", "originate"];

/// Everything that was written, still with its places.
pub(super) struct Written {
    /// The options of the program and, from a file, the routes among them.
    pub(super) entries: Vec<(Key, Raw)>,
    /// False if parts of it could not be read: then nothing is missing for sure.
    pub(super) complete: bool,
    /// Whether there is a file among the sources.
    pub(super) from_file: bool,
    /// What the flags are for.
    pub(super) section: Section,
}

/// Makes a configuration of what was written. It is of use only if there are no
/// errors among the mistakes.
pub(super) fn read<'a>(
    written: &'a Written,
    context: &Context<'_>,
    mistakes: &mut Collector<'_>,
) -> (Config, Placed<'a>) {
    let mut config = Config::blank();
    let mut placed = Placed::default();
    for (key, raw) in &written.entries {
        if mistakes.is_full() {
            break;
        }
        // What the parser made of a broken line is not what was meant.
        if !written.complete && mistakes.complained_about(&key.place) {
            continue;
        }
        if let Some(section) = Section::ALL.into_iter().find(|one| one.name() == key.name) {
            for raw in tables(section, raw, mistakes) {
                let reading = Reading {
                    section,
                    raw,
                    complete: written.complete,
                };
                let (list, unsound) = match section {
                    Section::Route => {
                        let (route, unsound) = reading.table(context, mistakes);
                        config.routes.push(route);
                        (&mut placed.routes, unsound)
                    }
                    Section::Originate => {
                        let (originate, unsound) = reading.table(context, mistakes);
                        config.originate.push(originate);
                        (&mut placed.originate, unsound)
                    }
                };
                list.push(PlacedRoute { raw, unsound });
            }
            continue;
        }
        match config.read_option(&key.name, raw, context) {
            Some(Ok(())) => {}
            Some(Err(wrongs)) => {
                report(wrongs, raw, mistakes);
                placed.unsound.insert(key.name.clone());
            }
            None => mistakes.error(&key.place, unknown_process_option(key, raw)),
        }
    }
    placed.entries = &written.entries;
    if written.complete {
        let meant = |name: &str| SECTIONS.contains(&name) || nearest(name, &SECTIONS).is_some();
        if !written.entries.iter().any(|(key, _)| meant(&key.name)) {
            mistakes.error(&Place::Whole, no_route(written));
        }
        checks::check(&config, &placed, mistakes);
    }
    (config, placed)
}

fn no_route(written: &Written) -> Wrong {
    let help = match (written.from_file, written.section) {
        (true, _) => "add a line [[route]], and under it `listen`, `to` and `certificates`",
        (false, Section::Route) => "give --listen, --to and a certificate, or a file with -c",
        (false, Section::Originate) => "give --listen and --to, or a file with -c",
    };
    Wrong::new("there is no route, so nothing would be served").help(help)
}

/// The routes or originations, also if they were written in a way that is nearly right.
fn tables<'a>(section: Section, raw: &'a Raw, mistakes: &mut Collector<'_>) -> Vec<&'a Raw> {
    let name = section.name();
    let items = match &raw.node {
        Node::List(items) => items.iter().collect(),
        // From flags there is one; in a file it lacks a pair of brackets.
        Node::Table(_) => {
            if matches!(raw.place, Place::File(_)) {
                mistakes.error(
                    &raw.place,
                    Wrong::new(format!(
                        "{}s stand under `[[{name}]]`, as there may be several",
                        section.noun()
                    ))
                    .label("two brackets on each side"),
                );
            }
            vec![raw]
        }
        _ => {
            mistakes.error(
                &raw.place,
                Wrong::wrong_type(
                    raw,
                    &format!("{}s", section.noun()),
                    &format!("[[{name}]] in a line of its own"),
                ),
            );
            return Vec::new();
        }
    };
    let (tables, others): (Vec<&Raw>, Vec<&Raw>) = items
        .into_iter()
        .partition(|item| matches!(item.node, Node::Table(_)));
    if let Some(first_too_many) = tables.get(ITEMS_MAX) {
        mistakes.error(
            &first_too_many.place,
            Wrong::new(format!("there are {} {}s", tables.len(), section.noun()))
                .label(format!("at most {ITEMS_MAX}")),
        );
    }
    for other in others {
        mistakes.error(
            &other.place,
            Wrong::wrong_type(
                other,
                section.one(),
                &format!("[[{name}]] in a line of its own"),
            ),
        );
    }
    tables.into_iter().take(ITEMS_MAX).collect()
}

/// A route or an origination that is being read.
#[derive(Clone, Copy)]
struct Reading<'a> {
    section: Section,
    raw: &'a Raw,
    complete: bool,
}

impl Reading<'_> {
    /// Reads it; the second value names the options which can't be relied on.
    fn table<G: Group>(
        self,
        context: &Context<'_>,
        mistakes: &mut Collector<'_>,
    ) -> (G, BTreeSet<String>) {
        let mut table = G::blank();
        let mut unsound = BTreeSet::new();
        let Node::Table(entries) = &self.raw.node else {
            return (table, unsound);
        };
        for (key, value) in entries {
            if mistakes.is_full() {
                break;
            }
            if !self.complete && mistakes.complained_about(&key.place) {
                continue;
            }
            match table.read(&key.name, value, context) {
                Some(Ok(())) => {}
                Some(Err(wrongs)) => {
                    report(wrongs, value, mistakes);
                    unsound.insert(key.name.clone());
                }
                None => mistakes.error(&key.place, unknown_section_option(self.section, key)),
            }
        }
        // A misspelt one has been reported as such.
        let names = names::<G>();
        let meant = |name: &str, spec: &OptionSpec| {
            let misspelt = !names.contains(&name) && nearest(name, &names) == Some(spec.name);
            name == spec.name || misspelt
        };
        let missing = |spec: &&OptionSpec| {
            matches!(spec.default, Default::Required(_))
                && !entries.iter().any(|(key, _)| meant(&key.name, spec))
        };
        for spec in G::OPTIONS.iter().filter(missing).filter(|_| self.complete) {
            let wrong = missing_option(self.section, spec, &self.raw.place);
            mistakes.error(&self.raw.place, wrong);
            unsound.insert(spec.name.to_owned());
        }
        (table, unsound)
    }
}

fn report(wrongs: Vec<Wrong>, raw: &Raw, mistakes: &mut Collector<'_>) {
    for wrong in wrongs {
        mistakes.error(&raw.place, wrong);
    }
}

fn missing_option(section: Section, spec: &OptionSpec, place: &Place) -> Wrong {
    let example = spec.default.text();
    match place {
        Place::File(_) => Wrong::new(format!("this {} has no `{}`", section.noun(), spec.name))
            .help(format!("add {} = \"{example}\"", spec.name)),
        _ => Wrong::new(format!("--{} is missing", spec.flag())).help(format!(
            "add --{} {}",
            spec.flag(),
            spec.default.text()
        )),
    }
    .at(place)
}

fn unknown_process_option(key: &Key, raw: &Raw) -> Wrong {
    let name = key.name.as_str();
    for section in Section::ALL {
        if names_in(section).contains(&name) {
            return Wrong::new(format!("`{name}` is an option of {}", section.one())).help(
                format!("write it under a line which says [[{}]]", section.name()),
            );
        }
    }
    if matches!(key.place, Place::Flag(_)) {
        return Wrong::new("there is no such flag");
    }
    // A section, as other programs have them.
    if matches!(raw.node, Node::Table(_) | Node::List(_)) {
        let wrong = unknown_word("section", name, &SECTIONS);
        if !wrong.label.is_empty() {
            return wrong
                .help(
                "routes stand under [[route]], originations under [[originate]], everything else above the first of them",
            );
        }
        return Wrong::new(format!("unknown section `{}`", shortened(name))).help(
            "the only sections are [[route]] and [[originate]]; all other options stand above them, without a section",
        );
    }
    let mut known = Config::option_names();
    known.extend(SECTIONS);
    let of_process = unknown_word("option", name, &known);
    if !of_process.label.is_empty() {
        return of_process;
    }
    let of_route = unknown_word("option", name, &names::<Route>());
    if !of_route.label.is_empty() {
        return of_route
            .help("it is an option of a route: write it under a line which says [[route]]");
    }
    let wrong = Wrong::new(format!("unknown option `{}`", shortened(name)));
    match containing(name, &known).as_slice() {
        [] => wrong.help("docs/guide/reference.md has them all, and so does `dormouse reference`"),
        candidates => wrong.help(format!("did you mean one of {}?", list_of(candidates))),
    }
}

fn unknown_section_option(section: Section, key: &Key) -> Wrong {
    let (one, place) = (section.one(), section.name());
    let name = key.name.as_str();
    let process = Config::option_names();
    if process.contains(&name) {
        return Wrong::new(format!(
            "`{name}` is not an option of {one} but of the whole program"
        ))
        .help(format!("write it above the first [[{place}]]"));
    }
    if name == "cert" || name == "key" {
        return Wrong::new(format!("unknown option `{name}` of {one}"))
            .label("this belongs into `certificates`")
            .help("certificates = [{ cert = \"site.pem\", key = \"site.key\" }]");
    }
    let own = unknown_word("option", name, &names_in(section));
    if !own.label.is_empty() {
        return own;
    }
    let of_process = unknown_word("option", name, &process);
    if !of_process.label.is_empty() {
        return of_process.help(format!(
            "it is an option of the whole program: write it above the first [[{place}]]"
        ));
    }
    Wrong::new(format!("unknown option `{}` of {one}", shortened(name)))
        .help(format!("{one} has {}", list_of(&names_in(section))))
}

fn names<G: Group>() -> Vec<&'static str> {
    G::OPTIONS.iter().map(|spec| spec.name).collect()
}

fn names_in(section: Section) -> Vec<&'static str> {
    let options = section.options().options;
    options.iter().map(|spec| spec.name).collect()
}
