//! Checks of an origination.

use crate::checks::common::{
    name_of_server, no_item_twice, not_whole, one_certificate, protocols, versions,
};
use crate::checks::unused;
use crate::config::Config;
use crate::input::locations::{Locations, SectionRef};
use crate::mistakes::collector::MistakeCollector;
use crate::mistakes::problem::Problem;
use crate::options::Originate;
use crate::section::Section;
use crate::values::choices::StapledOcsp;
use crate::values::host_name::authority;
use crate::values::pem_files::Ca;
use std::collections::BTreeMap;

/// Reports mistakes within an origination.
pub(crate) fn check(
    originate: &Originate,
    at: SectionRef<'_>,
    mistakes: &mut MistakeCollector<'_>,
) {
    versions(at, originate.min_version, originate.max_version, mistakes);
    protocols(at, "alpn", &originate.alpn, mistakes);
    let servers = originate.to.iter();
    let servers = servers.map(|server| authority(&server.given).to_ascii_lowercase());
    no_item_twice(|n| at.location("to", Some(n)), servers, mistakes);
    trust(originate, at, mistakes);
    unused::of_origination(originate, at, mistakes);
    if originate.to.is_empty() && at.sound(&["to"]) {
        mistakes.error(
            &at.location("to", None),
            Problem::new("this list is empty, so there is no server to connect to")
                .help("to = \"www.example.com:443\""),
        );
    }
    let second = || at.location("certificates", Some(1));
    one_certificate(second, &originate.certificates, mistakes);
    let name = originate.server_name.as_ref();
    name_of_server(at, "server_name", name, "the server's", mistakes);
    if originate.resume_age.subsec_nanos() != 0 {
        mistakes.error(&at.location("resume_age", None), not_whole("resume_age"));
    }
}

fn trust(originate: &Originate, at: SectionRef<'_>, mistakes: &mut MistakeCollector<'_>) {
    let lists = originate.crl.iter().map(|path| path.display());
    no_item_twice(|n| at.location("crl", Some(n)), lists, mistakes);
    if originate.crl.is_empty() && at.has("crl") && at.sound(&["crl"]) {
        mistakes.error(
            &at.location("crl", None),
            Problem::new("`crl` is an empty list")
                .label("without this option, revoked certificates of servers are accepted")
                .help("remove the option if that is meant"),
        );
    }
    if !originate.insecure {
        return;
    }
    let location = at.location("insecure", None);
    let contradicting = [
        ("ca", originate.ca != Ca::System),
        ("crl", !originate.crl.is_empty()),
        ("ocsp", originate.ocsp != StapledOcsp::Optional),
    ];
    let mut contradicting = contradicting.iter().filter(|(_, is_set)| *is_set);
    if let Some((option, _)) = contradicting.next() {
        mistakes.error(
            &location,
            Problem::new(format!(
                "`insecure` accepts any certificate, whatever `{option}` says"
            ))
            .label("remove one of the two"),
        );
    } else {
        mistakes.warning(
            &location,
            Problem::new(
                "ANY certificate is accepted: anyone between this machine and the server can read and change everything",
            )
            .help("use it only for tests; otherwise name the authority that signs the server's certificate: ca = \"authority.pem\""),
        );
    }
}

/// Reports session files that several originations share.
pub(crate) fn files(
    config: &Config,
    locations: &Locations<'_>,
    mistakes: &mut MistakeCollector<'_>,
) {
    let mut seen = BTreeMap::new();
    for (index, originate) in config.originate.iter().enumerate() {
        let Some(path) = &originate.session_file else {
            continue;
        };
        let location = locations.location_in(Section::Originate, index, "session_file", None);
        if seen.insert(path, index).is_some() {
            mistakes.error(
                &location,
                Problem::new("another origination keeps its sessions in this file")
                    .help("give each a file of its own"),
            );
        }
    }
}
