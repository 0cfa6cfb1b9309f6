//! One of the servers behind a route: its address, and how much it gets.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::checks;
use super::choices::unknown_word;
use super::endpoints::Backend;
use super::mistake::Collector;
use super::pem_files::Ca;
use super::probe::Probe;
use super::raw::{Context, Node, Raw, Read, Wrong};
use super::types::{Kind, Listed, OptionType};
use super::{At, Placed, Route, Section};

/// Servers behind all routes together, at most: each has a place in a table of fixed size.
pub(crate) const UPSTREAMS_MAX: usize = dormouse_tables::backends::BACKENDS_MAX;

/// A server behind a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upstream {
    /// Where it is.
    pub backend: Backend,
    /// Its share of the connections, beside those of the others.
    pub weight: u32,
    /// It gets connections only while none of the others can.
    pub backup: bool,
    /// Connections that it may have, from all workers together.
    pub max_connections: Option<u32>,
}

impl Upstream {
    /// One of which nothing but the address was said.
    pub fn plain(backend: Backend) -> Self {
        Self {
            backend,
            weight: 1,
            backup: false,
            max_connections: None,
        }
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.backend.fmt(f)
    }
}

const KEYS: [&str; 4] = ["address", "weight", "backup", "max_connections"];
const WEIGHT_MAX: u32 = 1000;

impl OptionType for Upstream {
    const KIND: Kind = Kind::new(
        "a backend",
        "{ address = \"127.0.0.1:8080\", weight = 2 }",
        "ADDR",
    );

    fn read(raw: &Raw, context: &Context<'_>) -> Read<Self> {
        let Node::Table(entries) = &raw.node else {
            return Backend::read(raw, context).map(Self::plain);
        };
        let mut wrongs = Vec::new();
        let mut address = None;
        let mut upstream = Self::plain(Backend::Echo);
        for (name, value) in entries {
            let read = match name.name.as_str() {
                "address" => Backend::read(value, context).map(|read| address = Some(read)),
                "weight" => u32::read(value, context).and_then(|weight| {
                    upstream.weight = within(weight, WEIGHT_MAX, "weight")?;
                    Ok(())
                }),
                "max_connections" => u32::read(value, context).and_then(|most| {
                    upstream.max_connections = Some(within(most, u32::MAX, "max_connections")?);
                    Ok(())
                }),
                "backup" => bool::read(value, context).map(|backup| upstream.backup = backup),
                other => {
                    wrongs.push(unknown_word("key", other, &KEYS).at(&name.place));
                    continue;
                }
            };
            if let Err(found) = read {
                wrongs.extend(found.into_iter().map(|wrong| wrong.at(&value.place)));
            }
        }
        match address {
            Some(backend) if wrongs.is_empty() => Ok(Self {
                backend,
                ..upstream
            }),
            None if wrongs.is_empty() => Err(Wrong::new("a backend needs `address`")
                .help(format!("write it like this: {}", Self::KIND.example))
                .into()),
            _ => Err(wrongs),
        }
    }
}

fn within(number: u32, most: u32, name: &str) -> Result<u32, Wrong> {
    if (1..=most).contains(&number) {
        return Ok(number);
    }
    Err(Wrong::new(format!("`{number}` is no {name}")).help(format!("it may be from 1 to {most}")))
}

impl Listed for Upstream {
    const KIND_OF_LIST: Kind = Kind::new(
        "a list of backends",
        "[\"127.0.0.1:8080\", { address = \"unix:/run/app.sock\", backup = true }]",
        "ADDR",
    );
}

impl Route {
    /// Whether it answers by itself.
    pub fn is_echo(&self) -> bool {
        self.to.iter().any(|to| to.backend == Backend::Echo)
    }
}

/// Reports what does not fit among the backends of a route.
pub(super) fn check(
    route: &Route,
    index: usize,
    placed: &Placed<'_>,
    mistakes: &mut Collector<'_>,
) {
    let at = At {
        section: Section::Route,
        index,
        placed,
    };
    if !at.sound(&["to"]) {
        return;
    }
    if route.to.is_empty() {
        mistakes.error(
            &at.place("to", None),
            Wrong::new("this list is empty, so plaintext could go nowhere")
                .help("to = \"127.0.0.1:8080\""),
        );
    }
    if route.is_echo() && route.to.len() > 1 {
        mistakes.error(
            &at.place("to", None),
            Wrong::new("`echo:` answers by itself, so it can't share a route with backends")
                .label("remove it, or the others"),
        );
    }
    for (n, upstream) in route.to.iter().enumerate() {
        let earlier = route.to.iter().take(n);
        if earlier
            .clone()
            .any(|other| other.backend == upstream.backend)
        {
            mistakes.error(
                &at.place("to", Some(n)),
                Wrong::new(format!("{upstream} is listed twice"))
                    .label("remove one of the two")
                    .help("`weight` gives one backend more than others"),
            );
        }
    }
    check_tls(route, at, mistakes);
    if !route.to.is_empty() && route.to.iter().all(|upstream| upstream.backup) {
        mistakes.error(
            &at.place("to", None),
            Wrong::new("every backend here is a backup, and none is what they are a backup for")
                .help("remove `backup` from one of them"),
        );
    }
}

/// Reports what does not fit with, or without, TLS to the backends.
fn check_tls(route: &Route, at: At<'_>, mistakes: &mut Collector<'_>) {
    if route.check == Probe::Tls && !route.backend_tls && !route.pass_through {
        mistakes.error(
            &at.place("check", None),
            Wrong::new("TLS is not spoken with these backends")
                .help("check = \"connect\"; or add backend_tls = true"),
        );
    }
    if !route.backend_tls {
        let given = [
            ("backend_ca", route.backend_ca != Ca::System),
            ("backend_name", route.backend_name.is_some()),
            (
                "backend_certificates",
                !route.backend_certificates.is_empty(),
            ),
            ("backend_alpn", !route.backend_alpn.is_empty()),
        ];
        for (name, _) in given.iter().filter(|(_, is_given)| *is_given) {
            let wrong = Wrong::new(format!(
                "`{name}` is of no use: TLS is not spoken with backends"
            ));
            mistakes.warning(&at.place(name, None), wrong.help("add backend_tls = true"));
        }
        return;
    }
    let place = at.place("backend_tls", None);
    if route.is_echo() {
        mistakes.error(
            &place,
            Wrong::new("`echo:` answers by itself: there is nobody to speak TLS with"),
        );
    }
    if route.pass_through {
        mistakes.error(
            &place,
            Wrong::new("TLS is between client and backend here (`pass_through`)")
                .label("remove one of the two"),
        );
    }
    let is_unix = |upstream: &&Upstream| matches!(upstream.backend, Backend::Unix(_));
    if let (Some(upstream), None) = (route.to.iter().find(is_unix), &route.backend_name) {
        mistakes.error(
            &place,
            Wrong::new(format!(
                "{upstream} has no name that its certificate could be for"
            ))
            .help("say it: backend_name = \"app.example.com\""),
        );
    }
    if route.backend_certificates.len() > 1 {
        mistakes.error(
            &at.place("backend_certificates", Some(1)),
            Wrong::new("a client has one certificate").label("remove all but one"),
        );
    }
    let name = route.backend_name.as_ref();
    if let Some(name) = name.filter(|name| !checks::is_host(name) || name.starts_with("*.")) {
        mistakes.error(
            &at.place("backend_name", None),
            Wrong::new(format!("`{name}` is neither a host name nor an IP address"))
                .help("write the name that the backends' certificate is for, without a port"),
        );
    }
    checks::alpn_of(at, "backend_alpn", &route.backend_alpn, mistakes);
}
