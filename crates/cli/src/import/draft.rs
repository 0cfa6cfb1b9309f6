//! What an import has found, and how it is written down.

use std::fmt::Write as _;

/// A configuration of ours in the making.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    /// Options of the program: name and value as TOML.
    options: Vec<(&'static str, String)>,
    pub(super) sections: Vec<Section>,
    notes: Vec<Note>,
}

/// A line that could not be carried over; line 0 is one that is missing.
#[derive(Clone, Debug)]
struct Note {
    line: usize,
    what: String,
    why: String,
}

/// A `[[route]]` or `[[originate]]`.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) originate: bool,
    /// Where it comes from.
    pub(super) title: String,
    pub(super) options: Vec<(&'static str, String)>,
    notes: Vec<Note>,
}

impl Section {
    pub(super) fn new(originate: bool, title: impl Into<String>) -> Section {
        Section {
            originate,
            title: title.into(),
            options: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Sets an option; the last one wins.
    pub(super) fn set(&mut self, name: &'static str, value: impl Into<String>) {
        set(&mut self.options, name, value.into());
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.options.iter().any(|(option, _)| *option == name)
    }

    pub(super) fn note(&mut self, line: usize, what: &str, why: &str) {
        self.notes.push(note(line, what, why));
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

    pub(super) fn note(&mut self, line: usize, what: &str, why: &str) {
        self.notes.push(note(line, what, why));
    }

    /// How many lines could not be carried over.
    pub(super) fn left_out(&self) -> usize {
        let of_sections: usize = self.sections.iter().map(|one| one.notes.len()).sum();
        self.notes.len() + of_sections
    }

    /// The file.
    pub(super) fn render(&self, from: &str) -> String {
        let mut out = format!("# From {}, by `dormouse import`.\n", harmless(from));
        if self.left_out() > 0 {
            out.push_str("# What could not be carried over stands as a comment, with its line.\n");
        }
        notes(&mut out, &self.notes);
        options(&mut out, &self.options);
        for section in &self.sections {
            let kind = if section.originate {
                "originate"
            } else {
                "route"
            };
            // Writing into a String can't fail.
            let _ = write!(out, "\n# {}\n[[{kind}]]\n", harmless(&section.title));
            options(&mut out, &section.options);
            notes(&mut out, &section.notes);
        }
        out
    }
}

fn set(options: &mut Vec<(&'static str, String)>, name: &'static str, value: String) {
    match options.iter_mut().find(|(option, _)| *option == name) {
        Some((_, old)) => *old = value,
        None => options.push((name, value)),
    }
}

fn note(line: usize, what: &str, why: &str) -> Note {
    Note {
        line,
        what: what.split_whitespace().collect::<Vec<_>>().join(" "),
        why: why.to_owned(),
    }
}

fn options(out: &mut String, options: &[(&'static str, String)]) {
    for (name, value) in options {
        let _ = writeln!(out, "{name} = {value}");
    }
}

fn notes(out: &mut String, notes: &[Note]) {
    for Note { line, what, why } in notes {
        let _ = match line {
            0 => writeln!(out, "# {} -- {why}", harmless(what)),
            line => writeln!(out, "# line {line}: {} -- {why}", harmless(what)),
        };
    }
}

/// Fit for a comment: no end of line, not too long.
fn harmless(text: &str) -> String {
    let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    clean.take(160).collect()
}

/// A text in quotes.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
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

/// Certificates with their keys; without a key it is in the same file.
pub(super) fn certificates(pairs: &[(String, Option<String>)]) -> String {
    let one = |(cert, key): &(String, Option<String>)| {
        let key = key.as_ref().unwrap_or(cert);
        format!("{{ cert = {}, key = {} }}", quoted(cert), quoted(key))
    };
    let all: Vec<String> = pairs.iter().map(one).collect();
    format!("[{}]", all.join(", "))
}

/// What other programs call suites, as IANA does: OpenSSL's names of those that we have.
pub(super) fn suite(name: &str) -> Option<String> {
    if let Some(known) = [
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
    ]
    .into_iter()
    .find(|known| *known == name)
    {
        return Some(known.to_owned());
    }
    let kind = ["ECDSA", "RSA"]
        .into_iter()
        .find(|kind| name.starts_with(&format!("ECDHE-{kind}-")))?;
    let cipher = match name.strip_prefix(&format!("ECDHE-{kind}-"))? {
        "AES128-GCM-SHA256" => "AES_128_GCM_SHA256",
        "AES256-GCM-SHA384" => "AES_256_GCM_SHA384",
        "CHACHA20-POLY1305" => "CHACHA20_POLY1305_SHA256",
        _ => return None,
    };
    Some(format!("TLS_ECDHE_{kind}_WITH_{cipher}"))
}

/// The versions of TLS among what a program calls protocols. `None`: none that we have.
pub(super) fn versions<'a>(words: impl Iterator<Item = &'a str>) -> Option<(&'a str, &'a str)> {
    let mut found: Vec<&str> = words
        .filter_map(|word| match word.trim_start_matches('+') {
            "TLSv1.2" => Some("1.2"),
            "TLSv1.3" => Some("1.3"),
            _ => None,
        })
        .collect();
    found.sort_unstable();
    Some((found.first()?, found.last()?))
}
