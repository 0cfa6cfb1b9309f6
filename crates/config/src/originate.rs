//! What must fit together in an origination.

use std::collections::BTreeMap;

use super::checks;
use super::mistake::Collector;
use super::options::Originate;
use super::pem_files::Ca;
use super::placed::{At, Placed};
use super::raw::Wrong;
use super::{Config, Section};

/// Reports what does not fit within it.
pub(super) fn check(
    originate: &Originate,
    index: usize,
    placed: &Placed<'_>,
    mistakes: &mut Collector<'_>,
) {
    let at = At {
        section: Section::Originate,
        index,
        placed,
    };
    checks::versions(at, originate.min_version, originate.max_version, mistakes);
    checks::alpn(at, &originate.alpn, mistakes);
    trust(originate, at, mistakes);
    if originate.to.is_empty() && at.sound(&["to"]) {
        mistakes.error(
            &at.place("to", None),
            Wrong::new("this list is empty, so there is no server to connect to")
                .help("to = \"www.example.com:443\""),
        );
    }
    if originate.certificates.len() > 1 {
        mistakes.error(
            &at.place("certificates", Some(1)),
            Wrong::new("a client has one certificate").label("remove all but one"),
        );
    }
    let name = originate.server_name.as_ref();
    if let Some(name) = name.filter(|name| !checks::is_host(name) || name.starts_with("*.")) {
        mistakes.error(
            &at.place("server_name", None),
            Wrong::new(format!("`{name}` is neither a host name nor an IP address"))
                .help("write the name that the server's certificate is for, without a port"),
        );
    }
}

fn trust(originate: &Originate, at: At<'_>, mistakes: &mut Collector<'_>) {
    if !originate.insecure {
        return;
    }
    let place = at.place("insecure", None);
    if matches!(originate.ca, Ca::File(_)) {
        mistakes.error(
            &place,
            Wrong::new("`insecure` takes any certificate, whatever `ca` says")
                .label("remove one of the two"),
        );
    } else {
        mistakes.warning(
            &place,
            Wrong::new(
                "ANY certificate is taken: whoever is between here and the server can read and change everything",
            )
            .help("only for trying out; otherwise give the authority that vouches for the server: ca = \"authority.pem\""),
        );
    }
}

/// Each file of sessions belongs to one origination.
pub(super) fn files(config: &Config, placed: &Placed<'_>, mistakes: &mut Collector<'_>) {
    let mut seen = BTreeMap::new();
    for (index, originate) in config.originate.iter().enumerate() {
        let Some(path) = &originate.session_file else {
            continue;
        };
        let place = placed.place_in(Section::Originate, index, "session_file", None);
        if seen.insert(path, index).is_some() {
            mistakes.error(
                &place,
                Wrong::new("another origination keeps its sessions in this file")
                    .help("give each a file of its own"),
            );
        }
    }
}
