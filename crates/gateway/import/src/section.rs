//! A part of the result: its options, and what is said about what could not become one.

use std::collections::BTreeMap;
use std::time::Duration;

use dormouse_config as config;

use crate::advice::SECURITY_LEVEL;
use crate::openssl::{self, Suites};
use crate::origin::{Origin, Origins};
use crate::toml::{quoted, quoted_list};

/// An option: its name, its value as TOML, and where it comes from.
#[derive(Clone, Debug)]
pub(super) struct OptionLine {
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) from: Origins,
}

/// What became of settings that are no option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fate {
    /// Somebody has to act, or decide, before the result can run.
    ToDo,
    /// It has another form in Dormouse, or none, and clients or backends may notice.
    LeftOut,
    /// It makes no difference here.
    WithoutEffect,
    /// The other program continues to do it. The settings are counted, not quoted.
    Stays,
}

/// A statement about settings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Remark {
    pub(super) fate: Fate,
    pub(super) from: Origins,
    pub(super) why: String,
}

/// The program as a whole, a `[[route]]` or an `[[originate]]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    #[default]
    Program,
    Route,
    Originate,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Section {
    pub(super) kind: Kind,
    /// Its origin, in words.
    pub(super) title: String,
    /// The setting that begins it.
    pub(super) head: Origins,
    pub(super) options: Vec<OptionLine>,
    /// Other values of options of the program, and where they were set: the last value counts.
    pub(super) others: BTreeMap<(&'static str, String), Origins>,
    /// Settings that options of the program stand for, whatever their value.
    pub(super) beside: BTreeMap<&'static str, Origins>,
    /// Whether clients of this route had no tickets.
    pub(super) has_no_tickets: bool,
    pub(super) remarks: Vec<Remark>,
    /// Settings that this section has to account for.
    pub(super) owes: Vec<Origin>,
    /// Times that a route may have of its own, in milliseconds, by the option of the program, and where they were set.
    pub(super) times: BTreeMap<&'static str, (u64, Origins)>,
    /// The addresses that it listens on and connects to, as the source names them.
    pub(super) doors: Vec<String>,
    pub(super) targets: Vec<String>,
}

/// Notes a time. Returns the shorter one, if two differ and a setting is lost.
pub(super) fn note_longest(
    times: &mut BTreeMap<&'static str, (u64, Origins)>,
    name: &'static str,
    ms: u64,
    from: Origins,
) -> Option<(u64, Origins)> {
    let endless = |ms: u64| if ms == 0 { u64::MAX } else { ms };
    let mut said = (ms, from);
    let Some(old) = times.get_mut(name) else {
        times.insert(name, said);
        return None;
    };
    if old.0 == ms {
        old.1.add(said.1);
        return None;
    }
    if endless(ms) > endless(old.0) {
        std::mem::swap(old, &mut said);
    }
    // A default is no setting, so there is nothing to report.
    (!said.1.is_empty()).then_some(said)
}

/// A time as an option's value.
pub(super) fn time_value(name: &str, ms: u64) -> String {
    match ms {
        0 if name.ends_with("idle_timeout") => "off".to_owned(),
        // There is no endless wait for a handshake or a backend.
        0 => "10m".to_owned(),
        ms => config::show_duration(Duration::from_millis(ms)),
    }
}

impl Section {
    /// Returns a section that has to account for these settings.
    pub(super) fn new(
        kind: Kind,
        title: impl Into<String>,
        head: impl Into<Origins>,
        owes: impl IntoIterator<Item = Origin>,
    ) -> Section {
        Section {
            kind,
            title: title.into(),
            head: head.into(),
            owes: owes.into_iter().collect(),
            ..Section::default()
        }
    }

    /// Returns a copy that accounts for nothing: the first section does, and has the remarks.
    pub(super) fn twin(&self) -> Section {
        Section {
            remarks: Vec::new(),
            owes: Vec::new(),
            ..self.clone()
        }
    }

    /// Sets an option. The last value wins. Of an option of the program, which services set for themselves, the others
    /// are kept for [`Section::name_lost`].
    pub(super) fn set(
        &mut self,
        name: &'static str,
        value: impl Into<String>,
        from: impl Into<Origins>,
    ) {
        let (value, from) = (value.into(), from.into());
        let Some(old) = self.options.iter_mut().find(|one| one.name == name) else {
            return self.options.push(OptionLine { name, value, from });
        };
        if self.kind != Kind::Program {
            *old = OptionLine { name, value, from };
            return;
        }
        if old.value == value {
            return old.from.add(from);
        }
        // Sets that have grown are moved, not copied: thousands of services may set two values in turn.
        let mut all = self
            .others
            .remove(&(name, value.clone()))
            .unwrap_or_default();
        all.add(from);
        let line = OptionLine {
            name,
            value,
            from: all,
        };
        let before = std::mem::replace(old, line);
        self.others.insert((name, before.value), before.from);
    }

    /// Names the values of options of the program that are lost, once all have their last one.
    pub(super) fn name_lost(&mut self) {
        for ((name, value), from) in std::mem::take(&mut self.others) {
            // A default is no setting.
            if !from.is_empty() {
                let why = format!("all routes share one `{name}`: {value} is lost");
                self.left_out(from, why);
            }
        }
        for (name, from) in std::mem::take(&mut self.beside) {
            self.also(name, from);
        }
    }

    /// Adds origins to an option of the program that belong to it whatever its value.
    pub(super) fn beside(&mut self, name: &'static str, from: impl Into<Origins>) {
        self.beside.entry(name).or_default().add(from);
    }

    /// Sets an option to a text.
    pub(super) fn set_text(&mut self, name: &'static str, text: &str, from: impl Into<Origins>) {
        self.set(name, quoted(text), from);
    }

    /// Adds origins to an option that is set.
    pub(super) fn also(&mut self, name: &str, from: impl Into<Origins>) {
        if let Some(one) = self.options.iter_mut().find(|one| one.name == name) {
            one.from.add(from);
        }
    }

    pub(super) fn option(&self, name: &str) -> Option<&OptionLine> {
        self.options.iter().find(|one| one.name == name)
    }

    /// Returns the value of an option, as TOML.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.option(name).map(|one| one.value.as_str())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.option(name).is_some()
    }

    /// Removes an option, and returns its origins.
    pub(super) fn remove(&mut self, name: &str) -> Origins {
        let at = self.options.iter().position(|one| one.name == name);
        at.map_or_else(Origins::default, |at| self.options.remove(at).from)
    }

    pub(super) fn say(&mut self, fate: Fate, from: impl Into<Origins>, why: impl Into<String>) {
        let (from, why) = (from.into(), why.into());
        if !from.is_empty() || matches!(fate, Fate::ToDo | Fate::LeftOut) {
            self.remarks.push(Remark { fate, from, why });
        }
    }

    /// Says what somebody has to do, or decide, before the result can run.
    pub(super) fn step(&mut self, from: impl Into<Origins>, why: impl Into<String>) {
        self.say(Fate::ToDo, from, why);
    }

    /// Says what could not be converted, and why.
    pub(super) fn left_out(&mut self, from: impl Into<Origins>, why: impl Into<String>) {
        self.say(Fate::LeftOut, from, why);
    }

    /// Says why settings make no difference.
    pub(super) fn without_effect(&mut self, from: impl Into<Origins>, why: impl Into<String>) {
        self.say(Fate::WithoutEffect, from, why);
    }

    /// Says what a list of the same settings in another order does: the last one counts.
    pub(super) fn replaced(&mut self, from: impl Into<Origins>) {
        self.without_effect(from, "a later line replaces it");
    }

    /// Returns every setting that an option or a remark of this section stands for.
    pub(super) fn carried(&self) -> impl Iterator<Item = Origin> {
        let options = self.options.iter().flat_map(|one| one.from.iter());
        let times = self.times.values().flat_map(|(_, from)| from.iter());
        let others = self.others.values().chain(self.beside.values());
        let options = options.chain(others.flat_map(Origins::iter));
        let options = options.chain(self.head.iter()).chain(times);
        options.chain(self.remarks.iter().flat_map(|one| one.from.iter()))
    }

    /// Sets a time that the other program has for each side, and Dormouse for the route: the longest wins, so that no
    /// connection is closed earlier than before. 0 is no limit.
    pub(super) fn longest(
        &mut self,
        name: &'static str,
        ms: Option<u64>,
        from: impl Into<Origins>,
    ) {
        let from = from.into();
        let Some(ms) = ms else {
            return self.left_out(from, "this is not a time");
        };
        if let Some((_, shorter)) = note_longest(&mut self.times, name, ms, from) {
            let why = format!("a route has one `{name}`: the longest is used");
            self.left_out(shorter, why);
        }
    }

    /// Sets a time of this section, in milliseconds.
    pub(super) fn time(&mut self, name: &'static str, ms: Option<u64>, from: impl Into<Origins>) {
        match ms {
            Some(0) => self.without_effect(from, "0 is no time"),
            Some(ms) => {
                let value = config::show_duration(Duration::from_millis(ms));
                self.set_text(name, &value, from);
            }
            None => self.left_out(from, "this is not a time"),
        }
    }

    /// Sets a whole number; any other value is left out.
    pub(super) fn number(&mut self, name: &'static str, text: &str, from: impl Into<Origins>) {
        match text.parse::<u64>() {
            Ok(n) => self.set(name, n.to_string(), from),
            Err(_) => self.left_out(from, format!("`{name}` takes a whole number")),
        }
    }

    /// Sets a limit that the other program has in several places: the smallest wins. 0 is no limit.
    pub(super) fn lowest(&mut self, name: &'static str, text: &str, from: impl Into<Origins>) {
        let mut from = from.into();
        let before = self.value(name).and_then(|n| n.parse::<u64>().ok());
        match text.parse::<u64>() {
            Err(_) => self.left_out(from, format!("`{name}` takes a whole number")),
            Ok(0) => self.without_effect(from, "0 is no limit"),
            Ok(n) if before.is_some_and(|before| before <= n) => self.also(name, from),
            Ok(n) => {
                from.add(self.remove(name));
                self.set(name, n.to_string(), from);
            }
        }
    }

    /// Sets the TLS versions.
    pub(super) fn versions<'a>(
        &mut self,
        names: impl Iterator<Item = &'a str>,
        from: impl Into<Origins>,
    ) {
        let from = from.into();
        let names: Vec<&str> = names.collect();
        let is_known =
            |name: &&str| openssl::version(name).is_some() || openssl::is_old_version(name);
        match openssl::versions(names.iter().copied()) {
            _ if !names.iter().all(is_known) => self.step(from, NO_VERSION),
            Some(("1.2", "1.3")) => self.without_effect(from, "these versions are the default"),
            Some((min, max)) => {
                self.set_text("min_version", min, &from);
                self.set_text("max_version", max, from);
            }
            None => self.left_out(from, OLD_VERSION),
        }
    }

    /// Sets one end of the versions; an old minimum becomes the oldest supported version.
    pub(super) fn version(&mut self, name: &'static str, word: &str, from: impl Into<Origins>) {
        let from = from.into();
        let is_end = |ours| ours == if name == "min_version" { "1.2" } else { "1.3" };
        match openssl::version(word) {
            Some(ours) if is_end(ours) && !self.has(name) => {
                self.without_effect(from, "this version is the default");
            }
            Some(ours) => self.set_text(name, ours, from),
            None if !openssl::is_old_version(word) => self.step(from, NO_VERSION),
            None if name == "min_version" => {
                let mut from = from;
                from.add(self.remove(name));
                self.left_out(from, OLD_VERSION);
            }
            None => self.step(from, NO_NEW_VERSION),
        }
    }

    /// Sets the suites from OpenSSL's lists for TLS 1.2 and for TLS 1.3, which have their own origins.
    pub(super) fn suites(
        &mut self,
        tls12: Option<(&str, Origins)>,
        tls13: Option<(&str, Origins)>,
    ) {
        let text = |one: &Option<(&str, Origins)>| one.as_ref().map(|(text, _)| (*text).to_owned());
        let (old, new) = (text(&tls12), text(&tls13));
        let mut from = Origins::default();
        for (_, origins) in [tls12, tls13].into_iter().flatten() {
            from.add(origins);
        }
        if from.is_empty() {
            return;
        }
        if [&old, &new]
            .into_iter()
            .flatten()
            .any(|list| openssl::is_high_level(list))
        {
            self.step(&from, SECURITY_LEVEL);
        }
        let both = openssl::suites(old.as_deref(), new.as_deref());
        if matches!(both, Suites::Words | Suites::None) {
            // The list for the other version may still be one of names.
            for (tls12, tls13) in [(None, new.as_deref()), (old.as_deref(), None)] {
                if let Suites::These(names) = openssl::suites(tls12, tls13) {
                    self.set("suites", quoted_list(&names), &from);
                }
            }
        }
        match both {
            Suites::All => self.without_effect(from, "these are all suites of Dormouse"),
            Suites::These(names) => self.set("suites", quoted_list(&names), from),
            Suites::Words => self.left_out(
                from,
                "all suites here are AEAD with forward secrecy; to allow fewer, set `suites`",
            ),
            Suites::None => self.left_out(
                from,
                "none of these is supported: all suites here are AEAD with forward secrecy",
            ),
        }
    }

    /// Sets the groups from OpenSSL's names.
    pub(super) fn groups(&mut self, list: &str, from: impl Into<Origins>) {
        let from = from.into();
        let (ours, others) = openssl::groups(list);
        let others: Vec<&str> = others.into_iter().filter(|name| *name != "auto").collect();
        if !others.is_empty() {
            let why = format!("{} is not supported", others.join(", "));
            match ours.is_empty() {
                true => self.step(
                    &from,
                    format!("{why}, and other groups were refused: set `groups`"),
                ),
                false => self.left_out(&from, why),
            }
        } else if ours.is_empty() {
            self.without_effect(&from, "all groups of Dormouse are the default");
        }
        if !ours.is_empty() {
            self.set("groups", quoted_list(&ours), from);
        }
    }
}

pub(super) const OLD_VERSION: &str = "TLS 1.2 is the oldest supported version";
const NO_VERSION: &str = "`import` does not know this version: set `min_version` and `max_version`";
pub(super) const NO_NEW_VERSION: &str =
    "only versions older than TLS 1.2 were allowed: these clients are refused here";
