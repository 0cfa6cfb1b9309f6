//! What an import has found, and how it is written down.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use dormouse_config::{self as config, Config, Machine, Mistake, OptionSpec, Severity, Source};

use super::fault::Spot;
use super::words::{self, Suites};

/// How often the result is looked at: each time something that does not fit is left out.
const ROUNDS_MAX: usize = 50;

/// A configuration of ours in the making.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    /// Options of the program.
    options: Options,
    /// Times that hold for the whole program here, in milliseconds, and where they were said.
    times: BTreeMap<&'static str, (u64, Spot, String)>,
    pub(super) sections: Vec<Section>,
    remarks: Remarks,
}

/// Names of options, and their values as TOML.
type Options = Vec<(&'static str, String)>;

/// What stands in comments.
#[derive(Clone, Debug, Default)]
struct Remarks {
    /// What could not be carried over, and why.
    left_out: Vec<String>,
    /// What has to be done before it can run.
    to_do: Vec<String>,
}

/// A `[[route]]` or `[[originate]]`.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) originate: bool,
    /// Where it comes from.
    pub(super) title: String,
    options: Options,
    remarks: Remarks,
}

/// The result.
pub(super) struct Page {
    pub(super) text: String,
    pub(super) left_out: usize,
    pub(super) to_do: usize,
    /// What stands in each line: the section, if any, and the option, if it is one.
    lines: Vec<(Option<usize>, Option<&'static str>)>,
}

impl Remarks {
    fn leave_out(&mut self, spot: &Spot, what: &str, why: &str) {
        let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
        let remark = format!("{spot}: {} -- {why}", harmless(&what));
        if !self.left_out.contains(&remark) {
            self.left_out.push(remark);
        }
    }

    fn do_this(&mut self, what: String) {
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

    /// The same with a text.
    pub(super) fn say(&mut self, name: &'static str, text: &str) {
        self.set(name, quoted(text));
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.options.iter().any(|(option, _)| *option == name)
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.options.retain(|(option, _)| *option != name);
    }

    /// This could not be carried over.
    pub(super) fn leave_out(&mut self, spot: &Spot, what: &str, why: &str) {
        self.remarks.leave_out(spot, what, why);
    }

    /// The same once more, whose remarks stand in the first one already.
    pub(super) fn again(&self) -> Section {
        Section {
            remarks: Remarks::default(),
            ..self.clone()
        }
    }

    /// This has to be done before it can run.
    pub(super) fn do_this(&mut self, spot: &Spot, what: &str) {
        self.remarks.do_this(format!("{what} ({spot})"));
    }

    /// A time that is a section's own.
    pub(super) fn time(&mut self, name: &'static str, ms: Option<u64>) {
        if let Some(ms) = ms.filter(|ms| *ms > 0) {
            self.say(name, &config::show_duration(Duration::from_millis(ms)));
        }
    }

    /// What may be spoken: versions by their names.
    pub(super) fn versions<'a>(
        &mut self,
        spot: &Spot,
        shown: &str,
        names: impl Iterator<Item = &'a str>,
    ) {
        match words::versions(names) {
            // These are ours without a word.
            Some(("1.2", "1.3")) => {}
            Some((min, max)) => {
                self.say("min_version", min);
                self.say("max_version", max);
            }
            None => self.leave_out(spot, shown, "TLS 1.2 is the oldest here"),
        }
    }

    /// Suites, by lists as OpenSSL takes them.
    pub(super) fn suites(
        &mut self,
        spot: &Spot,
        shown: &str,
        tls12: Option<&str>,
        tls13: Option<&str>,
    ) {
        match words::suites(tls12, tls13) {
            Suites::All => {}
            Suites::These(names) => self.set("suites", quoted_list(&names)),
            Suites::Words => self.leave_out(
                spot,
                shown,
                "all suites here are AEAD with forward secrecy; `suites` names fewer",
            ),
            Suites::None => self.leave_out(
                spot,
                shown,
                "none of these is known here, where all are AEAD with forward secrecy",
            ),
        }
    }

    /// Groups, by OpenSSL's names.
    pub(super) fn groups(&mut self, spot: &Spot, shown: &str, list: &str) {
        let (ours, others) = words::groups(list);
        if !ours.is_empty() {
            self.set("groups", quoted_list(&ours));
        }
        let others: Vec<&str> = others.into_iter().filter(|name| *name != "auto").collect();
        if !others.is_empty() {
            let why = format!("{} is not known here", others.join(", "));
            self.leave_out(spot, shown, &why);
        }
    }

    /// Who may vouch for clients, who must show a certificate (`optional` or `required`).
    pub(super) fn clients(&mut self, how: &str, ca: Option<&str>, crls: &[String]) {
        self.say("client_certificates", how);
        if let Some(ca) = ca {
            self.say("client_ca", ca);
        }
        if !crls.is_empty() {
            self.set("client_crl", quoted_list(crls));
        }
    }
}

impl Draft {
    /// Nothing that could be served.
    pub(super) fn is_empty(&self) -> bool {
        self.sections.is_empty()
    }

    pub(super) fn set(&mut self, name: &'static str, value: impl Into<String>) {
        set(&mut self.options, name, value.into());
    }

    pub(super) fn say(&mut self, name: &'static str, text: &str) {
        self.set(name, quoted(text));
    }

    /// A whole number; what is none is left out.
    pub(super) fn number(&mut self, name: &'static str, text: &str, spot: &Spot, shown: &str) {
        match text.parse::<u64>() {
            Ok(n) => self.set(name, n.to_string()),
            Err(_) => self.leave_out(spot, shown, &format!("`{name}` takes a whole number")),
        }
    }

    pub(super) fn leave_out(&mut self, spot: &Spot, what: &str, why: &str) {
        self.remarks.leave_out(spot, what, why);
    }

    /// A number that others have for each service, and we for the whole program.
    pub(super) fn largest(&mut self, name: &'static str, n: u64) {
        let found = self.options.iter().find(|(option, _)| *option == name);
        let before: Option<u64> = found.and_then(|(_, value)| value.parse().ok());
        self.set(name, before.unwrap_or(0).max(n).to_string());
    }

    /// A time that others have for each service, and we for the whole program: the longest holds,
    /// so that nobody is closed who was not before. 0 is no limit.
    pub(super) fn longest(&mut self, name: &'static str, ms: u64, spot: &Spot, shown: &str) {
        let endless = |ms: u64| if ms == 0 { u64::MAX } else { ms };
        let mut said = (ms, spot.clone(), shown.to_owned());
        if let Some(old) = self.times.get_mut(name) {
            if old.0 == ms {
                return;
            }
            if endless(ms) > endless(old.0) {
                std::mem::swap(old, &mut said);
            }
            let (_, spot, shown) = said;
            // Nobody said it: it was a default.
            if shown.is_empty() {
                return;
            }
            let why = format!("`{name}` is one for all here: the longest is taken");
            self.leave_out(&spot, &shown, &why);
            return;
        }
        self.times.insert(name, said);
    }

    /// The file, held against all that `dormouse check` holds it against but files and names of
    /// hosts. What does not fit and can do without is left out; the rest is to be done.
    pub(super) fn finish(mut self, from: &str) -> Page {
        for (name, (ms, ..)) in std::mem::take(&mut self.times) {
            match ms {
                0 if name == "idle_timeout" => {}
                0 => self.say(name, "10m"),
                ms => self.say(name, &config::show_duration(Duration::from_millis(ms))),
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
            if !self.without_what_does_not_fit(&page, &errors) {
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

    /// Leaves out options which do not fit. False: there are none.
    fn without_what_does_not_fit(&mut self, page: &Page, errors: &[&Mistake]) -> bool {
        let mut any = false;
        for mistake in errors {
            let Some((section, Some(name))) = page.origin(mistake) else {
                continue;
            };
            if !is_spare(name) {
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

    fn still_to_do(&mut self, page: &Page, mistake: &Mistake) {
        let what = words_of(mistake);
        let section = page.origin(mistake).and_then(|(section, _)| section);
        match section.and_then(|at| self.sections.get_mut(at)) {
            Some(section) => section.remarks.do_this(what),
            None => self.remarks.do_this(what),
        }
    }

    fn page(&self, from: &str) -> Page {
        let mut page = Page {
            text: String::new(),
            left_out: 0,
            to_do: 0,
            lines: Vec::new(),
        };
        page.line(
            None,
            None,
            &format!("# From {}, by `dormouse import`.", harmless(from)),
        );
        page.remarks(None, &self.remarks);
        page.options(None, &self.options);
        for (at, section) in self.sections.iter().enumerate() {
            let at = Some(at);
            page.line(at, None, "");
            page.line(at, None, &format!("# {}", harmless(&section.title)));
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

impl Page {
    fn line(&mut self, section: Option<usize>, option: Option<&'static str>, text: &str) {
        self.text.push_str(text);
        self.text.push('\n');
        self.lines.push((section, option));
    }

    fn options(&mut self, section: Option<usize>, options: &Options) {
        for (name, value) in options {
            self.line(section, Some(name), &format!("{name} = {value}"));
        }
    }

    fn remarks(&mut self, section: Option<usize>, remarks: &Remarks) {
        for what in &remarks.to_do {
            self.line(section, None, &format!("# TO DO: {what}"));
        }
        for what in &remarks.left_out {
            self.line(section, None, &format!("# {what}"));
        }
        self.to_do += remarks.to_do.len();
        self.left_out += remarks.left_out.len();
    }

    /// Where a mistake was made.
    fn origin(&self, mistake: &Mistake) -> Option<(Option<usize>, Option<&'static str>)> {
        let Source::Line { line, .. } = mistake.source else {
            return None;
        };
        self.lines.get(line.checked_sub(1)?).copied()
    }
}

/// Options without which nobody comes in who should not, and nothing goes where it should not: our
/// default is safe.
fn is_spare(name: &str) -> bool {
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

/// A mistake in one line.
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
    // Lines are those of a page that nobody has seen.
    let all = match all.split_once(" (line ") {
        Some((before, behind)) => {
            let rest = behind.split_once(')').map_or("", |(_, rest)| rest);
            format!("{before}{rest}")
        }
        None => all,
    };
    all.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn set(options: &mut Options, name: &'static str, value: String) {
    match options.iter_mut().find(|(option, _)| *option == name) {
        Some((_, old)) => *old = value,
        None => options.push((name, value)),
    }
}

/// Fit for a comment: no end of line, not too long.
fn harmless(text: &str) -> String {
    let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    clean.take(200).collect()
}

/// A text in quotes.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                // Writing into a String can't fail.
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// One, or a list of several.
pub(super) fn list(items: &[String]) -> String {
    match items {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

pub(super) fn quoted_list<S: AsRef<str>>(items: &[S]) -> String {
    let items: Vec<String> = items.iter().map(|item| quoted(item.as_ref())).collect();
    format!("[{}]", items.join(", "))
}

/// A certificate as other programs name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Certificate {
    /// The chain, or all of it, or a directory.
    pub(super) cert: String,
    pub(super) key: Option<String>,
    pub(super) ocsp: Option<String>,
}

impl Certificate {
    /// Chain and key in one file, or a directory.
    pub(super) fn whole(cert: impl Into<String>) -> Certificate {
        Certificate {
            cert: cert.into(),
            key: None,
            ocsp: None,
        }
    }
}

pub(super) fn certificates(all: &[Certificate]) -> String {
    let one = |one: &Certificate| {
        let cert = quoted(&one.cert);
        let key = one.key.as_ref().map(|key| quoted(key));
        match (key, &one.ocsp) {
            (None, None) => cert,
            (key, None) => format!("{{ cert = {cert}, key = {} }}", key.unwrap_or_default()),
            (key, Some(ocsp)) => format!(
                "{{ cert = {cert}, key = {}, ocsp = {} }}",
                key.unwrap_or_else(|| cert.clone()),
                quoted(ocsp)
            ),
        }
    };
    let all: Vec<String> = all.iter().map(one).collect();
    list(&all)
}

/// A backend, and how much it gets.
#[derive(Clone, Debug, Default)]
pub(super) struct Backend {
    pub(super) address: String,
    pub(super) weight: Option<u64>,
    pub(super) max_connections: Option<u64>,
    pub(super) is_backup: bool,
}

pub(super) fn backends(all: &[Backend]) -> String {
    let one = |one: &Backend| {
        let mut more = String::new();
        for (name, n) in [
            ("weight", one.weight),
            ("max_connections", one.max_connections),
        ] {
            if let Some(n) = n {
                let _ = write!(more, ", {name} = {n}");
            }
        }
        if one.is_backup {
            more.push_str(", backup = true");
        }
        match more.is_empty() {
            true => quoted(&one.address),
            false => format!("{{ address = {}{more} }}", quoted(&one.address)),
        }
    };
    let all: Vec<String> = all.iter().map(one).collect();
    list(&all)
}
