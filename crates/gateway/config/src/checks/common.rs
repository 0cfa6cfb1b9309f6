//! Checks that routes and originations share.

use crate::input::locations::SectionRef;
use crate::mistakes::collector::MistakeCollector;
use crate::mistakes::location::Location;
use crate::mistakes::problem::Problem;
use crate::values::choices::TlsVersion;
use crate::values::host_name::is_in_certificates;
use crate::values::pem_files::CertificateFiles;
use crate::values::token_key::TokenKey;
use std::collections::BTreeSet;

/// Reports TLS versions that no client could use, and TLS 1.3 turned off.
pub(crate) fn versions(
    at: SectionRef<'_>,
    min: TlsVersion,
    max: TlsVersion,
    mistakes: &mut MistakeCollector<'_>,
) {
    if !at.sound(&["min_version", "max_version"]) {
        return;
    }
    if min > max {
        mistakes.error(
            &at.location("min_version", None),
            Problem::new(format!(
                "min_version {min} is above max_version {max}, so no client could connect",
            ))
            .help("remove both for TLS 1.2 and 1.3"),
        );
    } else if max == TlsVersion::Tls12 {
        mistakes.warning(
            &at.location("max_version", None),
            Problem::new("TLS 1.3 is turned off")
                .help("TLS 1.3 is faster and safer, and clients without it use TLS 1.2"),
        );
    }
}

/// Returns the problem of a fraction of a second where whole seconds are counted.
pub(crate) fn not_whole(option: &str) -> Problem {
    Problem::new(format!("`{option}` must be in whole seconds")).help("round it to the next second")
}

/// Reports the name of a TLS server that no certificate can be for. `whose` is its certificate.
pub(crate) fn name_of_server(
    at: SectionRef<'_>,
    option: &str,
    name: Option<&String>,
    whose: &str,
    mistakes: &mut MistakeCollector<'_>,
) {
    let name = name.filter(|name| !is_in_certificates(name) || name.starts_with("*."));
    if let Some(name) = name {
        let problem = Problem::new(format!("`{name}` is neither a host name nor an IP address"));
        let help = format!("write the name that {whose} certificate is for, without a port");
        mistakes.error(&at.location(option, None), problem.help(help));
    }
}

/// Reports client certificates after the first. `second` is the place of the second.
pub(crate) fn one_certificate(
    second: impl FnOnce() -> Location,
    given: &[CertificateFiles],
    mistakes: &mut MistakeCollector<'_>,
) {
    if given.len() > 1 {
        mistakes.error(
            &second(),
            Problem::new("only one client certificate can be used").label("remove all but one"),
        );
    }
}

/// Reports client certificates whose keys are in a token, where processes use them that cannot wait for a signature.
/// `item` is the place of one.
pub(crate) fn keys_in_files(
    item: impl Fn(usize) -> Location,
    given: &[CertificateFiles],
    mistakes: &mut MistakeCollector<'_>,
) {
    for (n, _) in given
        .iter()
        .enumerate()
        .filter(|(_, one)| TokenKey::is_uri(&one.key))
    {
        let problem = Problem::new("here the key must be in a file");
        let help = "keys in tokens are supported in `certificates` of routes and originations";
        mistakes.error(&item(n), problem.help(help));
    }
}

/// Reports application protocols that are listed twice, or with others in one text.
pub(crate) fn protocols(
    at: SectionRef<'_>,
    option: &str,
    protocols: &[String],
    mistakes: &mut MistakeCollector<'_>,
) {
    no_item_twice(|n| at.location(option, Some(n)), protocols, mistakes);
    let all = protocols.iter().enumerate();
    for (n, several) in all.filter(|(_, protocol)| protocol.contains([',', ' '])) {
        let names = several.split([',', ' ']).filter(|name| !name.is_empty());
        let names: Vec<String> = names.map(|name| format!("\"{name}\"")).collect();
        let problem = Problem::new(format!("`{several}` is not a protocol"));
        let help = format!("write a list: {option} = [{}]", names.join(", "));
        mistakes.error(&at.location(option, Some(n)), problem.help(help));
    }
}

/// Reports items that a list has twice. `location` is that of an item.
pub(crate) fn no_item_twice(
    location: impl Fn(usize) -> Location,
    items: impl IntoIterator<Item: ToString>,
    mistakes: &mut MistakeCollector<'_>,
) {
    let mut seen = BTreeSet::new();
    for (n, item) in items.into_iter().enumerate() {
        let item = item.to_string();
        let problem = Problem::new(format!("`{item}` is listed twice"));
        if !seen.insert(item) {
            mistakes.error(&location(n), problem.label("remove one of the two"));
        }
    }
}
