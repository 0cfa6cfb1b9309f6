//! From raw values to a [`Config`]: which option is which, and what is missing.

use std::collections::BTreeSet;

use super::checks::{self, Placed, PlacedRoute};
use super::choices::{list_of, unknown_word};
use super::mistake::Collector;
use super::nearest::{containing, nearest};
use super::options::Route;
use super::raw::{Context, Key, Node, Place, Raw, Wrong, shortened};
use super::table::{Default, Group};
use super::types::ITEMS_MAX;
use super::{Config, OptionSpec};

/// The name under which routes stand in a file.
pub(super) const ROUTE: &str = "route";

/// Everything that was written, still with its places.
pub(super) struct Written {
    /// The options of the program and, from a file, the routes among them.
    pub(super) entries: Vec<(Key, Raw)>,
    /// False if parts of it could not be read: then nothing is missing for sure.
    pub(super) complete: bool,
    /// Whether there is a file among the sources.
    pub(super) from_file: bool,
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
        if key.name == ROUTE {
            for route in routes(raw, mistakes) {
                let (read, unsound) = read_route(route, written.complete, context, mistakes);
                config.routes.push(read);
                placed.routes.push(PlacedRoute {
                    raw: route,
                    unsound,
                });
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
        let meant = |name: &str| name == ROUTE || nearest(name, &[ROUTE]).is_some();
        if !written.entries.iter().any(|(key, _)| meant(&key.name)) {
            mistakes.error(&Place::Whole, no_route(written.from_file));
        }
        checks::check(&config, &placed, mistakes);
    }
    (config, placed)
}

fn no_route(from_file: bool) -> Wrong {
    Wrong::new("there is no route, so nothing would be served").help(if from_file {
        "add a line [[route]], and under it `listen`, `to` and `certificates`"
    } else {
        "give --listen, --to and a certificate, or a file with -c"
    })
}

/// The routes, also if they were written in a way that is nearly right.
fn routes<'a>(raw: &'a Raw, mistakes: &mut Collector<'_>) -> Vec<&'a Raw> {
    let items = match &raw.node {
        Node::List(items) => items.iter().collect(),
        // From flags there is one; in a file it lacks a pair of brackets.
        Node::Table(_) => {
            if matches!(raw.place, Place::File(_)) {
                mistakes.error(
                    &raw.place,
                    Wrong::new("routes stand under `[[route]]`, as there may be several")
                        .label("two brackets on each side"),
                );
            }
            vec![raw]
        }
        _ => {
            mistakes.error(
                &raw.place,
                Wrong::wrong_type(raw, "routes", "[[route]] in a line of its own"),
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
            Wrong::new(format!("there are {} routes", tables.len()))
                .label(format!("at most {ITEMS_MAX}")),
        );
    }
    for other in others {
        mistakes.error(
            &other.place,
            Wrong::wrong_type(other, "a route", "[[route]] in a line of its own"),
        );
    }
    tables.into_iter().take(ITEMS_MAX).collect()
}

/// Reads a route; the second value names the options which can't be relied on.
fn read_route(
    raw: &Raw,
    complete: bool,
    context: &Context<'_>,
    mistakes: &mut Collector<'_>,
) -> (Route, BTreeSet<String>) {
    let mut route = Route::blank();
    let mut unsound = BTreeSet::new();
    let Node::Table(entries) = &raw.node else {
        return (route, unsound);
    };
    for (key, value) in entries {
        if mistakes.is_full() {
            break;
        }
        if !complete && mistakes.complained_about(&key.place) {
            continue;
        }
        match route.read(&key.name, value, context) {
            Some(Ok(())) => {}
            Some(Err(wrongs)) => {
                report(wrongs, value, mistakes);
                unsound.insert(key.name.clone());
            }
            None => mistakes.error(&key.place, unknown_route_option(key)),
        }
    }
    // A misspelt one has been reported as such.
    let names = names::<Route>();
    let meant = |name: &str, spec: &OptionSpec| {
        name == spec.name || (!names.contains(&name) && nearest(name, &names) == Some(spec.name))
    };
    let missing = |spec: &&OptionSpec| {
        matches!(spec.default, Default::Required(_))
            && !entries.iter().any(|(key, _)| meant(&key.name, spec))
    };
    for spec in Route::OPTIONS.iter().filter(missing).filter(|_| complete) {
        mistakes.error(&raw.place, missing_option(spec, &raw.place));
        unsound.insert(spec.name.to_owned());
    }
    (route, unsound)
}

fn report(wrongs: Vec<Wrong>, raw: &Raw, mistakes: &mut Collector<'_>) {
    for wrong in wrongs {
        mistakes.error(&raw.place, wrong);
    }
}

fn missing_option(spec: &OptionSpec, place: &Place) -> Wrong {
    let example = spec.default.text();
    match place {
        Place::File(_) => Wrong::new(format!("this route has no `{}`", spec.name))
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
    if names::<Route>().contains(&name) {
        return Wrong::new(format!("`{name}` is an option of a route"))
            .help("write it under a line which says [[route]]");
    }
    if matches!(key.place, Place::Flag(_)) {
        return Wrong::new("there is no such flag");
    }
    // A section, as other programs have them.
    if matches!(raw.node, Node::Table(_) | Node::List(_)) {
        let wrong = unknown_word("section", name, &[ROUTE]);
        if !wrong.label.is_empty() {
            return wrong
                .help("routes stand under [[route]], everything else above the first of them");
        }
        return Wrong::new(format!("unknown section `{}`", shortened(name))).help(
            "the only section is [[route]]; all other options stand above it, without a section",
        );
    }
    let mut known = Config::option_names();
    known.push(ROUTE);
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

fn unknown_route_option(key: &Key) -> Wrong {
    let name = key.name.as_str();
    let process = Config::option_names();
    if process.contains(&name) {
        return Wrong::new(format!(
            "`{name}` is not an option of a route but of the whole program"
        ))
        .help("write it above the first [[route]]");
    }
    if name == "cert" || name == "key" {
        return Wrong::new(format!("unknown option `{name}` of a route"))
            .label("this belongs into `certificates`")
            .help("certificates = [{ cert = \"site.pem\", key = \"site.key\" }]");
    }
    let of_route = unknown_word("option", name, &names::<Route>());
    if !of_route.label.is_empty() {
        return of_route;
    }
    let of_process = unknown_word("option", name, &process);
    if !of_process.label.is_empty() {
        return of_process
            .help("it is an option of the whole program: write it above the first [[route]]");
    }
    Wrong::new(format!("unknown option `{}` of a route", shortened(name)))
        .help(format!("a route has {}", list_of(&names::<Route>())))
}

fn names<G: Group>() -> Vec<&'static str> {
    G::OPTIONS.iter().map(|spec| spec.name).collect()
}
