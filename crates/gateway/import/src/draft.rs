//! A configuration of Dormouse under construction.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;

use dormouse_config::{self as config, Config, Machine, Mistake, OptionSpec, Severity};

use crate::advice::{
    NO_TICKETS, NOT_PERMANENT, ONE_LINE_PER_CONNECTION, ONE_STATUS, PER_CLIENT,
    REDIRECTS_TO_OTHER_PORT,
};
use crate::origin::{Ledger, Origin, Origins};
use crate::page::ImportedConfig;
use crate::section::{Fate, Kind, OptionLine, Remark, Section, note_longest, time_value};
use crate::toml::{list, quoted};

/// Maximum number of checks of the result: after each one, options with mistakes are left out.
const ROUNDS_MAX: usize = 50;

/// Maximum number of sections: a configuration holds 1000 routes.
pub(super) const SECTIONS_MAX: usize = 1000;
/// Maximum number of settings that sections have to account for, counted for each section.
const OWED_MAX: usize = 200_000;
/// Maximum number of bytes in one value, and in all: a list of the configuration holds 1000 items.
const VALUE_MAX: usize = 300_000;
const VALUES_MAX: usize = 8 << 20;
/// Times that a route may have of its own: the option of the program, and that of the route.
const TIMES_OF_ROUTES: [(&str, &str); 2] = [
    ("idle_timeout", "route_idle_timeout"),
    ("backend_connect_timeout", "route_backend_connect_timeout"),
];
const LONG: &str = "this is more than a configuration of Dormouse holds: import a part of the file";
const TOO_MANY: &str = "this would be more than 1000 routes: import a part of the file";

/// What no converter has taken.
const UNKNOWN: &str = "`import` does not know this: find out what it did for clients and backends";

/// What has been read, and what has become of it so far.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    pub(super) ledger: Ledger,
    /// Options of the program.
    pub(super) program: Section,
    pub(super) sections: Vec<Section>,
    /// Times that apply to the whole program, in milliseconds, and where they were set.
    times: BTreeMap<&'static str, (u64, Origins)>,
    /// Addresses whose clients are redirected to https.
    redirects: Vec<(String, Origins)>,
    /// The port that all of them are redirected to: that of the first redirect that was read.
    redirect_port: Option<u16>,
    /// The status of all: that of the first permanent redirect.
    redirect_status: Option<String>,
    /// What continues behind Dormouse, each at its own address.
    behind: Vec<String>,
    /// Number of settings that the sections have to account for.
    owed: usize,
}

/// A redirect to the same host and path over https.
pub(super) struct Redirect {
    /// The status, as written.
    pub(super) status: String,
    /// The port of the https address.
    pub(super) port: u16,
}

impl Draft {
    /// Returns whether nothing with TLS was found.
    pub fn is_empty(&self) -> bool {
        self.sections.is_empty() && !self.has_steps()
    }

    /// Adds a section.
    pub(super) fn add(&mut self, section: Section) {
        match self.is_full() {
            false => {
                self.owed += section.owes.len();
                self.sections.push(section);
            }
            true => self.program.step(section.head, TOO_MANY),
        }
    }

    /// Takes all sections, to add others in their place.
    pub(super) fn take_sections(&mut self) -> Vec<Section> {
        self.owed = 0;
        std::mem::take(&mut self.sections)
    }

    pub(super) fn is_full(&self) -> bool {
        self.sections.len() >= SECTIONS_MAX || self.owed >= OWED_MAX
    }

    /// Says that a part is left out because there is no room for its sections.
    pub(super) fn too_many(&mut self, from: impl Into<Origins>) {
        self.program.step(from, TOO_MANY);
    }

    pub(super) fn has_steps(&self) -> bool {
        self.steps().next().is_some()
    }

    fn steps(&self) -> impl Iterator<Item = &Remark> {
        let all = self.sections.iter().chain([&self.program]);
        let remarks = all.flat_map(|one| &one.remarks);
        remarks.filter(|remark| remark.fate == Fate::ToDo)
    }

    /// Returns whether a section has this to do.
    pub(super) fn has_step(&self, what: &str) -> bool {
        self.steps().any(|one| one.why.starts_with(what))
    }

    /// Returns every setting that something in the result stands for, so far.
    pub(super) fn carried(&self) -> HashSet<Origin> {
        let sections = self.sections.iter().chain([&self.program]);
        let redirects = self.redirects.iter().flat_map(|(_, from)| from.iter());
        let times = self.times.values().flat_map(|(_, from)| from.iter());
        let all = sections.flat_map(Section::carried).chain(redirects);
        all.chain(times).collect()
    }

    /// Returns the same, and what a section has to account for by itself. Only of other settings can it be said that
    /// nothing here uses them.
    pub(super) fn claimed(&self) -> HashSet<Origin> {
        let owed = self.sections.iter().flat_map(|one| &one.owes);
        self.carried().into_iter().chain(owed.copied()).collect()
    }

    /// Returns the address at which a part of the other program continues behind Dormouse. Parts
    /// with one address would answer each other's clients.
    pub(super) fn address_behind(&mut self, part: String) -> String {
        let found = self.behind.iter().position(|one| *one == part);
        let at = found.unwrap_or_else(|| {
            self.behind.push(part);
            self.behind.len() - 1
        });
        format!("127.0.0.1:{}", 8080 + at)
    }

    /// Redirects clients of these addresses to https.
    pub(super) fn redirect(
        &mut self,
        addresses: &[String],
        redirect: &Redirect,
        from: impl Into<Origins>,
    ) {
        let from = from.into();
        if *self.redirect_port.get_or_insert(redirect.port) != redirect.port {
            return self.program.step(from, REDIRECTS_TO_OTHER_PORT);
        }
        for address in addresses {
            match self.redirects.iter_mut().find(|(one, _)| one == address) {
                Some((_, before)) => before.add(&from),
                None => self.redirects.push((address.clone(), from.clone())),
            }
        }
        let status = &redirect.status;
        match status.as_str() {
            "301" | "308" => {
                let first = self.redirect_status.get_or_insert_with(|| status.clone());
                if first != status {
                    self.program.left_out(&from, ONE_STATUS);
                } else if status == "301" {
                    self.program.set("redirect_status", "301", &from);
                }
            }
            _ => self.program.left_out(&from, NOT_PERMANENT),
        }
        if redirect.port != 443 {
            let port = redirect.port.to_string();
            self.program.set("redirect_port", port, from);
        }
    }

    /// Turns tickets off for all routes, as this one has none.
    pub(super) fn no_tickets(&mut self, route: &mut Section, from: impl Into<Origins>) {
        route.has_no_tickets = true;
        self.program.set("tickets", "0", from);
    }

    /// Says that other routes lose their tickets, if there are any.
    fn say_no_tickets(&mut self) {
        let had_tickets = |one: &Section| {
            one.kind == Kind::Route && !one.has("pass_through") && !one.has_no_tickets
        };
        let off = self.program.option("tickets");
        let off = off.filter(|one| one.value == "0");
        if let Some(off) = off.filter(|_| self.sections.iter().any(had_tickets)) {
            let from = off.from.clone();
            self.program.left_out(from, NO_TICKETS);
        }
    }

    /// Sets the file of the connection log.
    pub(super) fn connection_log(&mut self, path: &str, from: impl Into<Origins>) {
        let (value, from) = (quoted(path), from.into());
        let why = match self.program.value("connection_log") {
            Some(before) if *before != value => "all routes share one `connection_log`",
            Some(_) => {
                self.program.also("connection_log", &from);
                ONE_LINE_PER_CONNECTION
            }
            None => {
                self.program.set("connection_log", value, &from);
                ONE_LINE_PER_CONNECTION
            }
        };
        self.program.left_out(from, why);
    }

    /// Sets a limit that the other program has per service and Dormouse for the whole program: the
    /// largest wins.
    pub(super) fn largest(&mut self, name: &'static str, n: u64, from: impl Into<Origins>) {
        let from = from.into();
        let before = self.program.value(name).and_then(|n| n.parse::<u64>().ok());
        let smaller = match before {
            Some(before) if before == n => return self.program.also(name, from),
            Some(before) if before > n => from,
            _ => {
                let smaller = self.program.remove(name);
                self.program.set(name, n.to_string(), from);
                smaller
            }
        };
        if !smaller.is_empty() {
            let why = format!("all routes share one `{name}`: the largest is used");
            self.program.left_out(smaller, why);
        }
    }

    /// Sets a time that the other program has per service and Dormouse for the whole program: the
    /// longest wins, so that no connection is closed earlier than before. 0 is no limit.
    pub(super) fn longest(
        &mut self,
        name: &'static str,
        ms: Option<u64>,
        from: impl Into<Origins>,
    ) {
        let from = from.into();
        let Some(ms) = ms else {
            return self.program.left_out(from, "this is not a time");
        };
        if let Some((_, shorter)) = note_longest(&mut self.times, name, ms, from) {
            let why = format!("all routes share one `{name}`: the longest is used");
            self.program.left_out(shorter, why);
        }
    }

    /// Returns the file after the checks of `dormouse check`, except those of files and host names.
    /// `source` names the file that was read.
    pub fn finish(mut self, source: &str) -> ImportedConfig {
        self.settle();
        self.check(source);
        self.once();
        self.page(source, true)
    }

    /// Returns the same without the checks.
    #[cfg(test)]
    pub(super) fn unchecked(mut self, source: &str) -> ImportedConfig {
        self.settle();
        self.once();
        self.page(source, true)
    }

    /// Sets what several parts of the source have decided together, and accounts for every setting.
    fn settle(&mut self) {
        for (name, (ms, from)) in std::mem::take(&mut self.times) {
            let value = time_value(name, ms);
            self.program.set_text(name, &value, from);
        }
        for (name, of_route) in TIMES_OF_ROUTES {
            self.settle_times(name, of_route);
        }
        for section in &mut self.sections {
            // One route that asks for it is enough, because without it the start fails.
            let from = section.remove("resolve");
            match self.program.has("resolve") {
                _ if from.is_empty() => {}
                true => self.program.also("resolve", from),
                false => self.program.set_text("resolve", "lazy", from),
            }
        }
        if !self.redirects.is_empty() {
            let redirects = std::mem::take(&mut self.redirects);
            let (all, from): (Vec<String>, Vec<Origins>) = redirects
                .into_iter()
                .map(|(one, from)| (quoted(&one), from))
                .unzip();
            let from: Origins = from.iter().flat_map(Origins::iter).collect();
            self.program.set("redirect", list(&all), from);
        }
        if let Some(one) = self.program.option("connections_per_client") {
            let from = one.from.clone();
            self.program.left_out(from, PER_CLIENT);
        }
        self.program.name_lost();
        self.say_no_tickets();
        self.limit();
        self.account();
        self.in_order_of_the_reference();
    }

    /// Sets a time that routes may have of their own: the one that most routes have is that of the program.
    fn settle_times(&mut self, name: &'static str, of_route: &'static str) {
        // Without one, connections may be idle for any time, and connects have the default.
        let may_last = name == "idle_timeout";
        let mut counts: BTreeMap<Option<u64>, usize> = BTreeMap::new();
        for section in &self.sections {
            let ms = section.times.get(name).map(|(ms, _)| *ms);
            if may_last || ms.is_some() {
                *counts.entry(ms).or_default() += 1;
            }
        }
        let usual = counts.into_iter().max_by_key(|(_, count)| *count);
        let usual = usual.and_then(|(ms, _)| ms);
        for section in &mut self.sections {
            match section.times.remove(name) {
                Some((ms, from)) if usual == Some(ms) && self.program.has(name) => {
                    self.program.also(name, from);
                }
                Some((ms, from)) if usual == Some(ms) => {
                    self.program.set_text(name, &time_value(name, ms), from);
                }
                Some((ms, from)) => section.set_text(of_route, &time_value(name, ms), from),
                None if may_last && usual.is_some_and(|ms| ms > 0) => {
                    section.set_text(of_route, "off", Origins::default());
                }
                None => {}
            }
        }
    }

    /// Makes values that no configuration holds a step to do.
    fn limit(&mut self) {
        let mut room = VALUES_MAX;
        for section in self.sections.iter_mut().chain([&mut self.program]) {
            let is_long = |one: &OptionLine, room: usize| one.value.len() > VALUE_MAX.min(room);
            while let Some(one) = section.options.iter().find(|one| is_long(one, room)) {
                let name = one.name;
                let from = section.remove(name);
                section.step(from, LONG);
            }
            let all = section.options.iter().map(|one| one.value.len());
            room = room.saturating_sub(all.sum());
        }
    }

    /// Makes each setting that nothing in the result stands for a step to do: first those that a section has to
    /// account for, then all others.
    fn account(&mut self) {
        let of_program: HashSet<Origin> = self.program.carried().collect();
        let counts: HashSet<Origin> = self.ledger.all().collect();
        for section in &mut self.sections {
            let carried: HashSet<Origin> = section.carried().collect();
            let is_lost = |one: &Origin| {
                !carried.contains(one) && !of_program.contains(one) && counts.contains(one)
            };
            let lost: Vec<Origin> = section.owes.iter().copied().filter(is_lost).collect();
            if !lost.is_empty() {
                section.step(lost, UNKNOWN);
            }
        }
        let carried = self.carried();
        let lost: Vec<Origin> = (self.ledger.all())
            .filter(|one| !carried.contains(one))
            .collect();
        if !lost.is_empty() {
            self.program.step(lost, UNKNOWN);
        }
    }

    fn in_order_of_the_reference(&mut self) {
        let of_program = Config::PROCESS_OPTIONS.iter();
        let of_program: Vec<OptionSpec> = of_program
            .flat_map(|group| group.options)
            .copied()
            .collect();
        for section in self.sections.iter_mut().chain([&mut self.program]) {
            let options = match section.kind {
                Kind::Program => &of_program[..],
                Kind::Route => config::Section::Route.options().options,
                Kind::Originate => config::Section::Originate.options().options,
            };
            let place = |name: &str| options.iter().position(|one| one.name == name);
            section.options.sort_by_key(|one| place(one.name));
        }
    }

    /// Leaves out optional settings with mistakes. Every other mistake is a step to do.
    fn check(&mut self, source: &str) {
        let machine = Machine::read();
        for round in 0..ROUNDS_MAX {
            let page = self.page(source, false);
            let mistakes = config::judge(&page.text, Path::new("dormouse.toml"), &machine);
            let errors = mistakes.list.iter();
            let errors: Vec<&Mistake> = errors
                .filter(|one| one.severity == Severity::Error)
                .collect();
            let is_last = round + 1 == ROUNDS_MAX;
            if is_last || !self.leave_out_mistakes(&page, &errors) {
                for mistake in errors {
                    self.still_to_do(&page, mistake);
                }
                return;
            }
        }
    }

    fn section_mut(&mut self, at: Option<usize>) -> &mut Section {
        match at.filter(|at| *at < self.sections.len()) {
            Some(at) => &mut self.sections[at],
            None => &mut self.program,
        }
    }

    /// Leaves out options with mistakes. Returns `false` if there are none.
    fn leave_out_mistakes(&mut self, page: &ImportedConfig, errors: &[&Mistake]) -> bool {
        let mut any = false;
        for mistake in errors {
            let Some((section, Some(name))) = page.origin(mistake) else {
                continue;
            };
            let section = self.section_mut(section);
            let value = section.value(name).map(str::to_owned);
            if let Some(value) = value.filter(|_| is_optional(name)) {
                let from = section.remove(name);
                let value = dormouse_printable::line(&value).to_string();
                section.left_out(from, format!("{name} = {value}: {}", words_of(mistake)));
                any = true;
            }
        }
        any
    }

    fn still_to_do(&mut self, page: &ImportedConfig, mistake: &Mistake) {
        let (section, name) = page.origin(mistake).unwrap_or_default();
        let section = self.section_mut(section);
        let option = name.and_then(|name| section.option(name));
        let from = option.map_or(&section.head, |one| &one.from).clone();
        let is_said =
            |one: &Remark| one.fate == Fate::ToDo && from.iter().all(|each| one.from.has(each));
        // With better advice.
        if option.is_none() || !section.remarks.iter().any(is_said) {
            section.step(from, words_of(mistake));
        }
    }

    /// Moves what several sections say of the same settings to the program.
    fn once(&mut self) {
        let mut seen = BTreeSet::new();
        let mut again = BTreeSet::new();
        for section in &self.sections {
            let own: BTreeSet<&Remark> = section.remarks.iter().collect();
            for remark in own {
                if !seen.insert(remark) && !remark.from.is_empty() {
                    again.insert(remark.clone());
                }
            }
        }
        for section in &mut self.sections {
            section.remarks.retain(|one| !again.contains(one));
        }
        self.program.remarks.extend(again);
    }

    fn page(&self, source: &str, with_steps: bool) -> ImportedConfig {
        ImportedConfig::of(
            &self.ledger,
            &self.program,
            &self.sections,
            source,
            with_steps,
        )
    }
}

/// Returns whether an option can be left out safely: without it, no other client is accepted and no
/// data goes elsewhere.
fn is_optional(name: &str) -> bool {
    let amounts = [
        "workers",
        "max_connections",
        "backlog",
        "balance",
        "backend_failures",
        "backend_pause",
        "slow_start",
        "shutdown_grace",
        "session_cache",
        "ticket_lifetime",
        "ticket_rotation",
    ];
    let beginnings = ["check", "keepalive_", "resume_"];
    name.ends_with("_timeout")
        || amounts.contains(&name)
        || beginnings.iter().any(|start| name.starts_with(start))
}

/// Returns a mistake as one line.
fn words_of(mistake: &Mistake) -> String {
    let parts = [
        Some(mistake.what.as_str()),
        Some(mistake.label.as_str()),
        mistake.help.as_deref(),
    ];
    let parts: Vec<&str> = parts
        .into_iter()
        .flatten()
        .filter(|part| !part.is_empty())
        .collect();
    let all = parts.join("; ");
    // Line numbers of the draft mean nothing to the user.
    let all = match all.split_once(" (line ") {
        Some((before, behind)) => {
            let rest = behind.split_once(')').map_or("", |(_, rest)| rest);
            format!("{before}{rest}")
        }
        None => all,
    };
    all.split_whitespace().collect::<Vec<_>>().join(" ")
}
