//! OpenSSL's names of suites, groups and versions.

/// Suites of TLS 1.2, with OpenSSL's names for them; and of TLS 1.3, whose names are the same
/// everywhere.
const SUITES: [(&str, &str); 9] = [
    ("TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"),
    ("TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"),
    (
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_CHACHA20_POLY1305_SHA256",
    ),
    (
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    ),
    (
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    ),
    (
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    ),
    (
        "ECDHE-RSA-AES128-GCM-SHA256",
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    ),
    (
        "ECDHE-RSA-AES256-GCM-SHA384",
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    ),
    (
        "ECDHE-RSA-CHACHA20-POLY1305",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    ),
];

/// Exclusions that are usual in lists, of suites that Dormouse never has.
const EXCLUDED: [&str; 19] = [
    "!aNULL",
    "!eNULL",
    "!NULL",
    "!ADH",
    "!AECDH",
    "!EXPORT",
    "!EXP",
    "!LOW",
    "!MEDIUM",
    "!MD5",
    "!SHA1",
    "!RC4",
    "!DES",
    "!3DES",
    "!CAMELLIA",
    "!DSS",
    "!PSK",
    "!SRP",
    "!kRSA",
];

/// The result of converting a list of suites.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Suites {
    /// All supported suites: no option is needed.
    All,
    /// These, under their IANA names.
    These(Vec<&'static str>),
    /// The list has keywords (`HIGH`, `EECDH+AESGCM`) instead of names.
    Words,
    /// No supported suite.
    None,
}

/// Returns whether a list of suites demands a security level above 2: `HIGH:@SECLEVEL=3`.
pub(super) fn is_high_level(list: &str) -> bool {
    let mut levels = list.split("@SECLEVEL=").skip(1);
    levels.any(|rest| !rest.starts_with(['0', '1', '2']))
}

/// Returns the supported suites in a list for TLS 1.2 and one for TLS 1.3. `None`: all of that
/// version.
pub(super) fn suites(tls12: Option<&str>, tls13: Option<&str>) -> Suites {
    let is_tls13 = |name: &str| name.starts_with("TLS_AES") || name.starts_with("TLS_CHACHA20");
    let mut chosen = Vec::new();
    for (list, of_tls13) in [(tls13, true), (tls12, false)] {
        let ours = SUITES.iter().filter(|(_, iana)| is_tls13(iana) == of_tls13);
        let Some(list) = list else {
            chosen.extend(ours.map(|(_, iana)| *iana));
            continue;
        };
        let names: Vec<&str> = list
            .split([':', ',', ' '])
            .filter(|name| !name.is_empty() && !EXCLUDED.contains(name))
            .collect();
        if names.is_empty() || names.iter().any(|name| !is_name(name)) {
            return Suites::Words;
        }
        let before = chosen.len();
        // In the list's order, though in Dormouse the client's preference decides.
        for name in names {
            let found = ours
                .clone()
                .find(|(theirs, iana)| [*theirs, *iana].contains(&name));
            chosen.extend(
                found
                    .map(|(_, iana)| *iana)
                    .filter(|iana| !chosen.contains(iana)),
            );
        }
        if chosen.len() == before {
            return Suites::None;
        }
    }
    match chosen.len() {
        n if n == SUITES.len() => Suites::All,
        _ => Suites::These(chosen),
    }
}

/// Returns whether a word is the name of one suite, not a keyword or an operator.
fn is_name(word: &str) -> bool {
    word.starts_with("TLS_")
        || (word.contains('-')
            && word.starts_with(|c: char| c.is_ascii_uppercase())
            && word
                .bytes()
                .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'-'))
}

/// Returns the supported groups of a list, and the others.
pub(super) fn groups(list: &str) -> (Vec<&'static str>, Vec<&str>) {
    let (mut ours, mut others) = (Vec::new(), Vec::new());
    for name in list.split([':', ',', ' ']).filter(|name| !name.is_empty()) {
        match name.to_ascii_lowercase().as_str() {
            "x25519mlkem768" => ours.push("X25519MLKEM768"),
            "x25519" => ours.push("x25519"),
            "prime256v1" | "secp256r1" | "p-256" => ours.push("secp256r1"),
            "secp384r1" | "p-384" => ours.push("secp384r1"),
            _ => others.push(name),
        }
    }
    (ours, others)
}

/// Returns Dormouse's name of a TLS version. stunnel and nginx ignore the case.
pub(super) fn version(text: &str) -> Option<&'static str> {
    let name = text.trim_start_matches('+').to_ascii_lowercase();
    match name.as_str() {
        "tlsv1.2" => Some("1.2"),
        "tlsv1.3" => Some("1.3"),
        _ => None,
    }
}

/// Returns whether this is a version that is too old for Dormouse.
pub(super) fn is_old_version(text: &str) -> bool {
    let name = text.trim_start_matches('+').to_ascii_lowercase();
    let old = ["sslv2", "sslv3", "tlsv1", "tlsv1.0", "tlsv1.1", "all"];
    old.contains(&&*name)
}

/// Returns the oldest and the newest supported version of a list.
pub(super) fn versions<'a>(
    words: impl Iterator<Item = &'a str>,
) -> Option<(&'static str, &'static str)> {
    let mut found: Vec<&str> = words.filter_map(version).collect();
    found.sort_unstable();
    Some((found.first()?, found.last()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_by_their_names() {
        assert_eq!(suites(None, None), Suites::All);
        assert_eq!(suites(Some("HIGH:!aNULL"), None), Suites::Words);
        assert_eq!(suites(Some("EECDH+AESGCM:EDH+AESGCM"), None), Suites::Words);
        assert_eq!(suites(Some("!aNULL:!MD5"), None), Suites::Words);
        let excluding = suites(
            Some("ECDHE-RSA-AES128-GCM-SHA256:!aNULL:!MD5"),
            Some("TLS_AES_128_GCM_SHA256"),
        );
        assert_eq!(
            suites(Some("AES128-SHA:DHE-RSA-AES128-GCM-SHA256"), None),
            Suites::None
        );
        let one = suites(
            Some("ECDHE-RSA-AES128-GCM-SHA256:DHE-RSA-AES128-GCM-SHA256"),
            Some("TLS_AES_128_GCM_SHA256"),
        );
        let want = [
            "TLS_AES_128_GCM_SHA256",
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        ];
        assert_eq!(one, Suites::These(want.to_vec()));
        assert_eq!(excluding, one);
    }

    #[test]
    fn separates_supported_groups() {
        let (ours, others) = groups("X25519:P-256:X448:secp384r1");
        assert_eq!(ours, ["x25519", "secp256r1", "secp384r1"]);
        assert_eq!(others, ["X448"]);
    }
}
