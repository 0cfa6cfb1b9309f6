//! What an import has found, and how it is written down.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use dormouse_config::{self as config, Config, Machine, Mistake, OptionSpec, Severity, Source};

use crate::advice::{NOT_PERMANENT, ONE_LINE_PER_CONNECTION};
use crate::error::Position;
use crate::section::{Options, Remarks, Section, harmless, set};
use crate::toml::{list, quoted};

/// Maximum number of checks of the result: after each one, options with mistakes are left out.
const ROUNDS_MAX: usize = 50;
/// Maximum number of characters in a comment.
const COMMENT_MAX: usize = 1000;

/// A configuration of Dormouse under construction.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// Options of the program.
    options: Options,
    /// Times that apply to the whole program, in milliseconds, and where they were set.
    times: BTreeMap<&'static str, (u64, Position, String)>,
    pub(super) sections: Vec<Section>,
    /// Addresses whose clients are redirected to https.
    redirects: Vec<String>,
    remarks: Remarks,
    /// What continues behind Dormouse, each at its own address.
    behind: Vec<String>,
}

/// A redirect to the same host and path over https.
pub(super) struct Redirect {
    /// The status, as written.
    pub(super) status: String,
    /// The port of the https address.
    pub(super) port: u16,
}

/// The result.
pub struct ImportedConfig {
    /// The configuration, with comments.
    pub text: String,
    /// Number of settings that could not be converted.
    pub left_out: usize,
    /// Number of things to do before the result can run.
    pub to_do: usize,
    /// Section and option of each line, if it has any.
    lines: Vec<(Option<usize>, Option<&'static str>)>,
}

impl Draft {
    /// Returns whether the draft has no section.
    pub fn is_empty(&self) -> bool {
        self.sections.is_empty()
    }

    pub(super) fn set(&mut self, name: &'static str, value: impl Into<String>) {
        set(&mut self.options, name, value.into());
    }

    pub(super) fn set_text(&mut self, name: &'static str, text: &str) {
        self.set(name, quoted(text));
    }

    /// Sets a whole number; any other value is left out.
    pub(super) fn number(
        &mut self,
        name: &'static str,
        text: &str,
        position: &Position,
        shown: &str,
    ) {
        match text.parse::<u64>() {
            Ok(n) => self.set(name, n.to_string()),
            Err(_) => self.leave_out(position, shown, &format!("`{name}` takes a whole number")),
        }
    }

    pub(super) fn leave_out(&mut self, position: &Position, what: &str, why: &str) {
        self.remarks.leave_out(position, what, why);
    }

    /// Adds something to do before the result can run.
    pub(super) fn add_to_do(&mut self, position: &Position, what: &str) {
        self.remarks.add_to_do(format!("{what} ({position})"));
    }

    /// Returns whether a section has this to do.
    pub(super) fn has_step(&self, what: &str) -> bool {
        let mut all = self.sections.iter().flat_map(|one| &one.remarks.to_do);
        all.any(|there| there.starts_with(what))
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
        position: &Position,
        shown: &str,
    ) {
        for address in addresses {
            if !self.redirects.contains(address) {
                self.redirects.push(address.clone());
            }
        }
        let all: Vec<String> = self.redirects.iter().map(|one| quoted(one)).collect();
        self.set("redirect", list(&all));
        match redirect.status.as_str() {
            "301" => self.set("redirect_status", "301"),
            "308" => {}
            _ => self.leave_out(position, shown, NOT_PERMANENT),
        }
        if redirect.port != 443 {
            self.set("redirect_port", redirect.port.to_string());
        }
    }

    /// Sets the file of the connection log.
    pub(super) fn connection_log(&mut self, path: &str, position: &Position, shown: &str) {
        let value = quoted(path);
        let found = self
            .options
            .iter()
            .find(|(name, _)| *name == "connection_log");
        let why = match found {
            Some((_, before)) if *before != value => "all routes share one `connection_log`",
            _ => ONE_LINE_PER_CONNECTION,
        };
        if found.is_none() {
            self.set("connection_log", value);
        }
        self.leave_out(position, shown, why);
    }

    /// Sets a limit that the other program has per service and Dormouse for the whole program: the
    /// largest wins.
    pub(super) fn largest(&mut self, name: &'static str, n: u64) {
        let found = self.options.iter().find(|(option, _)| *option == name);
        let before: Option<u64> = found.and_then(|(_, value)| value.parse().ok());
        self.set(name, before.unwrap_or(0).max(n).to_string());
    }

    /// Sets a time that the other program has per service and Dormouse for the whole program: the
    /// longest wins, so that no connection is closed earlier than before. 0 is no limit.
    pub(super) fn longest(
        &mut self,
        name: &'static str,
        ms: u64,
        position: &Position,
        shown: &str,
    ) {
        let endless = |ms: u64| if ms == 0 { u64::MAX } else { ms };
        let mut said = (ms, position.clone(), shown.to_owned());
        if let Some(old) = self.times.get_mut(name) {
            if old.0 == ms {
                return;
            }
            if endless(ms) > endless(old.0) {
                std::mem::swap(old, &mut said);
            }
            let (_, position, shown) = said;
            // It was a default, so there is nothing to report.
            if shown.is_empty() {
                return;
            }
            let why = format!("all routes share one `{name}`: the longest is used");
            self.leave_out(&position, &shown, &why);
            return;
        }
        self.times.insert(name, said);
    }

    /// Returns the file after the checks of `dormouse check`, except those of files and host names.
    /// Options with mistakes are left out if the result is safe without them; all other mistakes
    /// are left to do.
    pub fn finish(mut self, from: &str) -> ImportedConfig {
        for (name, (ms, ..)) in std::mem::take(&mut self.times) {
            match ms {
                0 if name == "idle_timeout" => {}
                0 => self.set_text(name, "10m"),
                ms => self.set_text(name, &config::show_duration(Duration::from_millis(ms))),
            }
        }
        self.in_order_of_the_reference();
        let machine = Machine::read();
        for _ in 0..ROUNDS_MAX {
            let page = self.page(from);
            let mistakes = config::judge(&page.text, Path::new("dormouse.toml"), &machine);
            let errors = mistakes.list.iter();
            let errors: Vec<&Mistake> = errors
                .filter(|one| one.severity == Severity::Error)
                .collect();
            if !self.leave_out_mistakes(&page, &errors) {
                errors
                    .iter()
                    .for_each(|mistake| self.still_to_do(&page, mistake));
                break;
            }
        }
        self.page(from)
    }

    fn in_order_of_the_reference(&mut self) {
        let place =
            |options: &[OptionSpec], name: &str| options.iter().position(|one| one.name == name);
        let of_program: Vec<OptionSpec> = Config::PROCESS_OPTIONS
            .iter()
            .flat_map(|group| group.options)
            .copied()
            .collect();
        self.options
            .sort_by_key(|(name, _)| place(&of_program, name));
        for section in &mut self.sections {
            let kind = if section.originate {
                config::Section::Originate
            } else {
                config::Section::Route
            };
            section
                .options
                .sort_by_key(|(name, _)| place(kind.options().options, name));
        }
    }

    /// Leaves out options with mistakes. Returns `false` if there are none.
    fn leave_out_mistakes(&mut self, page: &ImportedConfig, errors: &[&Mistake]) -> bool {
        let mut any = false;
        for mistake in errors {
            let Some((section, Some(name))) = page.origin(mistake) else {
                continue;
            };
            if !is_optional(name) {
                continue;
            }
            let (options, remarks) = match section.and_then(|at| self.sections.get_mut(at)) {
                Some(section) => (&mut section.options, &mut section.remarks),
                None => (&mut self.options, &mut self.remarks),
            };
            if let Some(at) = options.iter().position(|(option, _)| *option == name) {
                let (_, value) = options.remove(at);
                remarks.left_out.push(format!(
                    "{name} = {} -- {}",
                    harmless(&value),
                    words_of(mistake)
                ));
                any = true;
            }
        }
        any
    }

    fn still_to_do(&mut self, page: &ImportedConfig, mistake: &Mistake) {
        let what = words_of(mistake);
        let section = page.origin(mistake).and_then(|(section, _)| section);
        match section.and_then(|at| self.sections.get_mut(at)) {
            Some(section) => section.remarks.add_to_do(what),
            None => self.remarks.add_to_do(what),
        }
    }

    fn page(&self, from: &str) -> ImportedConfig {
        let mut page = ImportedConfig {
            text: String::new(),
            left_out: 0,
            to_do: 0,
            lines: Vec::new(),
        };
        page.comment(None, &format!("From {from}, by `dormouse import`."));
        page.remarks(None, &self.remarks);
        page.options(None, &self.options);
        for (at, section) in self.sections.iter().enumerate() {
            let at = Some(at);
            page.line(at, None, "");
            page.comment(at, &section.title);
            let kind = if section.originate {
                "originate"
            } else {
                "route"
            };
            page.line(at, None, &format!("[[{kind}]]"));
            page.options(at, &section.options);
            page.remarks(at, &section.remarks);
        }
        page
    }
}

impl ImportedConfig {
    fn line(&mut self, section: Option<usize>, option: Option<&'static str>, text: &str) {
        self.text.push_str(text);
        self.text.push('\n');
        self.lines.push((section, option));
    }

    /// A comment may quote the source file: no character in it ends the line or breaks the TOML.
    fn comment(&mut self, section: Option<usize>, text: &str) {
        let text = dormouse_printable::line_up_to(text, COMMENT_MAX);
        self.line(section, None, &format!("# {text}"));
    }

    fn options(&mut self, section: Option<usize>, options: &Options) {
        for (name, value) in options {
            self.line(section, Some(name), &format!("{name} = {value}"));
        }
    }

    fn remarks(&mut self, section: Option<usize>, remarks: &Remarks) {
        for what in &remarks.to_do {
            self.comment(section, &format!("TO DO: {what}"));
        }
        for what in &remarks.left_out {
            self.comment(section, what);
        }
        self.to_do += remarks.to_do.len();
        self.left_out += remarks.left_out.len();
    }

    /// Returns the section and the option of a mistake.
    fn origin(&self, mistake: &Mistake) -> Option<(Option<usize>, Option<&'static str>)> {
        let Source::Line { line, .. } = mistake.source else {
            return None;
        };
        self.lines.get(line.checked_sub(1)?).copied()
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
