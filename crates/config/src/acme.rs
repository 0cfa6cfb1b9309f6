//! Names for which certificates are had: whether they can be, and from whom.

use super::checks::is_host;
use super::mistake::Collector;
use super::placed::Placed;
use super::raw::{Context, Place, Raw, Read, Wrong};
use super::types::{Kind, Listed, OptionType, wrong_type};
use super::{Config, Route};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

/// Longest name of a host (RFC 1035 §2.3.4).
const NAME_LEN_MAX: usize = 253;

/// A name for which a certificate can be had: one that is known in the whole world, in lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AcmeName(String);

impl AcmeName {
    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AcmeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl OptionType for AcmeName {
    const KIND: Kind = Kind::new("a host name", "\"www.example.com\"", "NAME");

    fn read(raw: &Raw, _: &Context<'_>) -> Read<Self> {
        let text = raw.as_text().ok_or_else(|| wrong_type::<Self>(raw))?;
        if text.starts_with('*') {
            let wrong = Wrong::new(format!("`{text}`: tls-alpn-01 is for single names only"));
            return Err(wrong.help("list the names one by one").into());
        }
        let is_address = text.parse::<IpAddr>().is_ok();
        let is_known = text.contains('.') && !text.contains('_') && text.len() <= NAME_LEN_MAX;
        if is_address || !is_host(text) || !is_known {
            let wrong = Wrong::new(format!(
                "`{}` is no name that an ACME server looks for",
                raw.text()
            ));
            return Err(wrong.help("write it like this: \"www.example.com\"").into());
        }
        Ok(Self(text.to_ascii_lowercase()))
    }
}

impl Listed for AcmeName {
    const KIND_OF_LIST: Kind = Kind::new(
        "a list of host names",
        "[\"example.com\", \"www.example.com\"]",
        "NAME",
    );
}

pub(super) fn check(config: &Config, placed: &Placed<'_>, mistakes: &mut Collector<'_>) {
    for (index, route) in config.routes.iter().enumerate() {
        if placed.sound_in_route(index, &["acme"]) {
            names(route, index, placed, mistakes);
        }
    }
    let first = config
        .routes
        .iter()
        .position(|route| !route.acme.is_empty());
    let Some(first) = first else {
        without_names(placed, mistakes);
        return;
    };
    let acme = &config.acme;
    if !acme.acme_terms_agreed && placed.sound(&["acme_terms_agreed"]) {
        let wrong = Wrong::new("certificates can be had only by who agrees to the server's terms")
            .label(format!("from {}", acme.acme_server))
            .help("read them, and add acme_terms_agreed = true above the first [[route]]");
        mistakes.error(&placed.in_route(first, "acme", None), wrong);
    }
    server(config, placed, mistakes);
}

fn server(config: &Config, placed: &Placed<'_>, mistakes: &mut Collector<'_>) {
    let acme = &config.acme;
    let url = &acme.acme_server;
    let host = url.strip_prefix("https://").unwrap_or_default();
    if placed.sound(&["acme_server"]) && (host.is_empty() || host.starts_with('/')) {
        let wrong = Wrong::new(format!("`{url}` is not the directory of an ACME server"))
            .help("write it like this: \"https://acme-v02.api.letsencrypt.org/directory\"");
        mistakes.error(&placed.option("acme_server"), wrong);
    }
    let email = acme.acme_email.as_deref();
    if let Some(email) = email.filter(|email| !is_email(email)) {
        let wrong = Wrong::new(format!("`{email}` is not an e-mail address"))
            .help("write it like this: \"hostmaster@example.com\"");
        mistakes.error(&placed.option("acme_email"), wrong);
    }
    let both = ["acme_eab_id", "acme_eab_key_file"];
    if placed.sound(&both) && acme.acme_eab_id.is_some() != acme.acme_eab_key_file.is_some() {
        let wrong =
            Wrong::new("an account is bound by an id and a key, and one of them is missing")
                .help("give both acme_eab_id and acme_eab_key_file, or neither");
        mistakes.error(&placed.first_of(&both), wrong);
    }
}

/// Each name once.
fn names(route: &Route, index: usize, placed: &Placed<'_>, mistakes: &mut Collector<'_>) {
    let mut seen = BTreeSet::new();
    for (at, name) in route.acme.iter().enumerate() {
        if !seen.insert(name) {
            let wrong = Wrong::new(format!("`{name}` is listed twice"));
            mistakes.error(
                &placed.in_route(index, "acme", Some(at)),
                wrong.label("remove one of the two"),
            );
        }
    }
}

/// Options of something that nobody wants.
fn without_names(placed: &Placed<'_>, mistakes: &mut Collector<'_>) {
    for name in [
        "acme_server",
        "acme_terms_agreed",
        "acme_email",
        "acme_folder",
        "acme_ca",
        "acme_eab_id",
        "acme_eab_key_file",
    ] {
        let place = placed.option(name);
        if place != Place::Whole {
            let wrong = Wrong::new(format!(
                "`{name}` has no effect: no route has names in `acme`"
            ));
            mistakes.warning(
                &place,
                wrong.help("add acme = [\"site.example\"] to a [[route]]"),
            );
            return;
        }
    }
}

fn is_email(text: &str) -> bool {
    let sound =
        |part: &str| !part.is_empty() && !part.contains([' ', '@', ',', ';', '<', '>', ':']);
    text.split_once('@')
        .is_some_and(|(who, host)| sound(who) && sound(host))
}

impl Config {
    /// All names for which certificates are had, each once.
    pub fn acme_names(&self) -> BTreeSet<&str> {
        let names = self.routes.iter().flat_map(|route| &route.acme);
        names.map(|name| name.as_str()).collect()
    }
}
