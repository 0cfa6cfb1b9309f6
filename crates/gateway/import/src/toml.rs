//! Values as TOML: texts, lists, certificates, backends.

use std::collections::HashSet;
use std::fmt::Write as _;

/// Returns a text in quotes. `${` would be a variable of the environment.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.replace("${", "$${").chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if !dormouse_printable::is_printable(c) => {
                // Writing into a String can't fail.
                let _ = match u32::from(c) {
                    short @ ..=0xffff => write!(out, "\\u{short:04X}"),
                    long => write!(out, "\\U{long:08X}"),
                };
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Returns one item, or a list of several, each once: a list that has an item twice is refused.
pub(super) fn list(items: &[String]) -> String {
    let items = each_once(items);
    match &items[..] {
        [one] => one.to_string(),
        several => format!("[{}]", several.join(", ")),
    }
}

/// Returns a list of texts, each once.
pub(super) fn quoted_list<S: AsRef<str>>(items: &[S]) -> String {
    let items: Vec<String> = items.iter().map(|item| quoted(item.as_ref())).collect();
    format!("[{}]", each_once(&items).join(", "))
}

fn each_once(items: &[String]) -> Vec<&str> {
    let mut seen = HashSet::new();
    let all = items.iter().map(String::as_str);
    all.filter(|item| seen.insert(*item)).collect()
}

/// A certificate as other programs name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Certificate {
    /// The chain, or the file with chain and key, or a directory.
    pub(super) cert: String,
    pub(super) key: Option<String>,
    pub(super) ocsp: Option<String>,
}

impl Certificate {
    /// Returns a certificate with chain and key in one file, or a directory.
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

/// A backend and its share of the connections.
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
