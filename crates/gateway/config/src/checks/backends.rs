//! Checks of a route's backends.

use crate::checks::common::{keys_in_files, name_of_server, one_certificate, protocols};
use crate::input::locations::SectionRef;
use crate::mistakes::collector::MistakeCollector;
use crate::mistakes::problem::Problem;
use crate::options::Route;
use crate::values::endpoints::Backend;
use crate::values::probe::Probe;
use crate::values::upstream::Upstream;
use std::net::SocketAddr;

/// Reports mistakes among the backends of a route.
pub(crate) fn check(route: &Route, at: SectionRef<'_>, mistakes: &mut MistakeCollector<'_>) {
    if !at.sound(&["to"]) {
        return;
    }
    if route.to.is_empty() {
        mistakes.error(
            &at.location("to", None),
            Problem::new("this list is empty, so there is no backend to connect to")
                .help("to = \"127.0.0.1:8080\""),
        );
    }
    if route.is_echo() && route.to.len() > 1 {
        mistakes.error(
            &at.location("to", None),
            Problem::new("`echo:` answers by itself, so it cannot share a route with backends")
                .label("remove it, or the others"),
        );
    }
    for (n, upstream) in route.to.iter().enumerate() {
        let earlier = route.to.iter().take(n);
        if earlier
            .clone()
            .any(|other| other.backend.is_same(&upstream.backend))
        {
            mistakes.error(
                &at.location("to", Some(n)),
                Problem::new(format!("{upstream} is listed twice"))
                    .label("remove one of the two")
                    .help("to send one backend more connections than others, give it a `weight`"),
            );
        }
    }
    check_tls(route, at, mistakes);
    same_address(route, at, mistakes);
    if !route.to.is_empty() && route.to.iter().all(|upstream| upstream.backup) {
        mistakes.error(
            &at.location("to", None),
            Problem::new("every backend of this route is a backup, but at least one must not be")
                .help("remove `backup` from one of them"),
        );
    }
}

/// Reports mistakes in the options of TLS to the backends.
fn check_tls(route: &Route, at: SectionRef<'_>, mistakes: &mut MistakeCollector<'_>) {
    let uses_tls = route.backend_tls || route.pass_through;
    if route.check == Probe::Tls && !uses_tls && at.sound(&["backend_tls", "pass_through"]) {
        mistakes.error(
            &at.location("check", None),
            Problem::new("connections to these backends do not use TLS")
                .help("set check = \"connect\", or add backend_tls = true"),
        );
    }
    if !route.backend_tls {
        return;
    }
    let location = at.location("backend_tls", None);
    if route.is_echo() {
        mistakes.error(
            &location,
            Problem::new("`echo:` answers by itself, so there is no backend to use TLS with"),
        );
    }
    if !route.half_close {
        mistakes.error(
            &at.location("half_close", None),
            Problem::new("with `backend_tls`, each direction ends with its own close_notify")
                .help("remove half_close, or backend_tls"),
        );
    }
    if route.pass_through {
        mistakes.error(
            &location,
            Problem::new("with `pass_through`, TLS is between the client and the backend")
                .label("remove one of the two"),
        );
    }
    let is_unix = |upstream: &&Upstream| matches!(upstream.backend, Backend::Unix(_));
    if let (Some(upstream), None) = (route.to.iter().find(is_unix), &route.backend_name)
        && at.sound(&["backend_name"])
    {
        mistakes.error(
            &location,
            Problem::new(format!(
                "{upstream} has no host name to verify its certificate against"
            ))
            .help("add backend_name = \"app.example.com\""),
        );
    }
    let given = &route.backend_certificates;
    let second = || at.location("backend_certificates", Some(1));
    one_certificate(second, given, mistakes);
    let item = |n| at.location("backend_certificates", Some(n));
    keys_in_files(item, given, mistakes);
    let name = route.backend_name.as_ref();
    name_of_server(at, "backend_name", name, "the backends'", mistakes);
    protocols(at, "backend_alpn", &route.backend_alpn, mistakes);
    same_protocol(route, at, mistakes);
}

/// Warns if two backends with different names have an address in common that is checked over TLS: an address is checked
/// once, with the first name.
fn same_address(route: &Route, at: SectionRef<'_>, mistakes: &mut MistakeCollector<'_>) {
    let names_each = route.backend_tls && route.backend_name.is_none();
    let is_checked = matches!(route.check, Probe::Tls | Probe::Get(_));
    if !names_each || !is_checked || !at.sound(&["backend_name", "check"]) {
        return;
    }
    for (n, upstream) in route.to.iter().enumerate() {
        let own = &upstream.backend;
        let shared = |address: SocketAddr| {
            let mut earlier = route.to.iter().take(n).map(|one| &one.backend);
            // The same backend twice is an error already.
            let first = earlier
                .find(|one| one.addresses().any(|other| other == address) && !one.is_same(own))?;
            Some((first, address))
        };
        let Some((Backend::Tcp { given, .. }, address)) = own.addresses().find_map(shared) else {
            continue;
        };
        let what = format!(
            "`{given}` has the address {address} as well, and its name is the server name of the health checks of this address"
        );
        let help = "remove one of the two, add `backend_name`, or set check = \"connect\"";
        mistakes.warning(&at.location("to", Some(n)), Problem::new(what).help(help));
    }
}

/// Warns if a client and its backend may choose different protocols: each chooses for itself.
fn same_protocol(route: &Route, at: SectionRef<'_>, mistakes: &mut MistakeCollector<'_>) {
    if !at.sound(&["alpn", "backend_alpn"]) {
        return;
    }
    let mut clients = route.alpn.iter();
    let (option, what) = match route.backend_alpn.as_slice() {
        [] if clients.any(|one| one == "h2") => (
            "alpn",
            "clients may choose `h2`, which is not offered to the backends".to_owned(),
        ),
        [] => return,
        [only] => match clients.find(|one| *one != only) {
            Some(other) => (
                "backend_alpn",
                format!("clients may choose `{other}`, which is not offered to the backends"),
            ),
            None => return,
        },
        [first, second, ..] => (
            "backend_alpn",
            format!("a backend may choose `{first}` while its client speaks `{second}`"),
        ),
    };
    let help = "bytes are passed on unchanged: make a route for each protocol, with the same one in `alpn` and `backend_alpn`";
    mistakes.warning(&at.location(option, None), Problem::new(what).help(help));
}
