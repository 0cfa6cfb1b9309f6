//! A section of the result: its options, and its comments.

use std::time::Duration;

use dormouse_config as config;

use crate::error::Position;
use crate::openssl::{self, Suites};
use crate::toml::{quoted, quoted_list};

/// Names of options, and their values as TOML.
pub(super) type Options = Vec<(&'static str, String)>;

/// A `[[route]]` or `[[originate]]`.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) originate: bool,
    /// Its origin, for a comment.
    pub(super) title: String,
    pub(super) options: Options,
    pub(super) remarks: Remarks,
}

/// Remarks, which become comments.
#[derive(Clone, Debug, Default)]
pub(super) struct Remarks {
    /// What could not be converted, and why.
    pub(super) left_out: Vec<String>,
    /// What to do before the result can run.
    pub(super) to_do: Vec<String>,
}

impl Remarks {
    pub(super) fn leave_out(&mut self, position: &Position, what: &str, why: &str) {
        let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
        let remark = format!("{position}: {} -- {why}", harmless(&what));
        if !self.left_out.contains(&remark) {
            self.left_out.push(remark);
        }
    }

    pub(super) fn add_to_do(&mut self, what: String) {
        if !self.to_do.contains(&what) {
            self.to_do.push(what);
        }
    }
}

impl Section {
    pub(super) fn new(originate: bool, title: impl Into<String>) -> Section {
        Section {
            originate,
            title: title.into(),
            options: Vec::new(),
            remarks: Remarks::default(),
        }
    }

    /// Sets an option; the last one wins.
    pub(super) fn set(&mut self, name: &'static str, value: impl Into<String>) {
        set(&mut self.options, name, value.into());
    }

    /// Sets an option to a text.
    pub(super) fn set_text(&mut self, name: &'static str, text: &str) {
        self.set(name, quoted(text));
    }

    /// Returns the value of an option, as TOML.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let found = self.options.iter().find(|(option, _)| *option == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.options.retain(|(option, _)| *option != name);
    }

    /// Adds a remark about what could not be converted.
    pub(super) fn leave_out(&mut self, position: &Position, what: &str, why: &str) {
        self.remarks.leave_out(position, what, why);
    }

    /// Returns a copy without remarks, which the first section has already.
    pub(super) fn without_remarks(&self) -> Section {
        Section {
            remarks: Remarks::default(),
            ..self.clone()
        }
    }

    /// Adds something to do before the result can run.
    pub(super) fn add_to_do(&mut self, position: &Position, what: &str) {
        self.remarks.add_to_do(format!("{what} ({position})"));
    }

    /// Sets a time of this section.
    pub(super) fn time(&mut self, name: &'static str, ms: Option<u64>) {
        if let Some(ms) = ms.filter(|ms| *ms > 0) {
            self.set_text(name, &config::show_duration(Duration::from_millis(ms)));
        }
    }

    /// Sets the TLS versions.
    pub(super) fn versions<'a>(
        &mut self,
        position: &Position,
        shown: &str,
        names: impl Iterator<Item = &'a str>,
    ) {
        match openssl::versions(names) {
            // These are the defaults.
            Some(("1.2", "1.3")) => {}
            Some((min, max)) => {
                self.set_text("min_version", min);
                self.set_text("max_version", max);
            }
            None => self.leave_out(position, shown, "TLS 1.2 is the oldest supported version"),
        }
    }

    /// Sets the suites from OpenSSL's lists.
    pub(super) fn suites(
        &mut self,
        position: &Position,
        shown: &str,
        tls12: Option<&str>,
        tls13: Option<&str>,
    ) {
        let both = openssl::suites(tls12, tls13);
        if matches!(both, Suites::Words | Suites::None) {
            // The list for the other version may still be one of names.
            for (tls12, tls13) in [(None, tls13), (tls12, None)] {
                if let Suites::These(names) = openssl::suites(tls12, tls13) {
                    self.set("suites", quoted_list(&names));
                }
            }
        }
        match both {
            Suites::All => {}
            Suites::These(names) => self.set("suites", quoted_list(&names)),
            Suites::Words => self.leave_out(
                position,
                shown,
                "all suites here are AEAD with forward secrecy; to allow fewer, set `suites`",
            ),
            Suites::None => self.leave_out(
                position,
                shown,
                "none of these is supported: all suites here are AEAD with forward secrecy",
            ),
        }
    }

    /// Sets the groups from OpenSSL's names.
    pub(super) fn groups(&mut self, position: &Position, shown: &str, list: &str) {
        let (ours, others) = openssl::groups(list);
        if !ours.is_empty() {
            self.set("groups", quoted_list(&ours));
        }
        let others: Vec<&str> = others.into_iter().filter(|name| *name != "auto").collect();
        if !others.is_empty() {
            let why = format!("{} is not supported", others.join(", "));
            self.leave_out(position, shown, &why);
        }
    }

    /// Sets the verification of client certificates (`optional` or `required`) and its authorities.
    pub(super) fn clients(&mut self, how: &str, ca: Option<&str>, crls: &[String]) {
        self.set_text("client_certificates", how);
        if let Some(ca) = ca {
            self.set_text("client_ca", ca);
        }
        if !crls.is_empty() {
            self.set("client_crl", quoted_list(crls));
        }
    }
}

pub(super) fn set(options: &mut Options, name: &'static str, value: String) {
    match options.iter_mut().find(|(option, _)| *option == name) {
        Some((_, old)) => *old = value,
        None => options.push((name, value)),
    }
}

/// Returns a text that is safe in a comment.
pub(super) fn harmless(text: &str) -> String {
    dormouse_printable::line(text).to_string()
}
