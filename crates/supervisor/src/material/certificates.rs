//! The certificates that routes serve to clients: read at the start and at each reload, and again after
//! their files have changed.

use super::acme;
use super::files;
use super::key_mode;
use super::layouts::PairFiles;
use super::pair::{keep_response, read_pair, read_staple, warnings_of};
use super::pushed;
use crate::findings::Findings;
use dormouse_config::{Config, Place, Route, TlsVersion};
use dormouse_engine::{Identity, KeyKind};
use dormouse_handover::Pem;
use std::path::Path;

/// Reads the certificates of every route. A self-signed certificate in `former` is reused, so that
/// clients keep seeing the same one.
pub(super) fn load(config: &Config, former: &[Vec<Pem>], findings: &mut Findings) -> Vec<Vec<Pem>> {
    let mut load = |(index, route): (usize, &Route)| {
        let mut pems = load_route(index, route, former, findings);
        let (issued, complaints) = acme::load(config, route, former);
        for complaint in complaints {
            let what = format!("the certificate will be requested again: {complaint}");
            findings.warning(Place::of_route(index, "acme"), what);
        }
        pems.extend(issued);
        check_suites(index, route, &pems, findings);
        pems
    };
    let loaded = config.routes.iter().enumerate().map(&mut load).collect();
    acme::check(config, findings);
    loaded
}

fn load_route(
    index: usize,
    route: &Route,
    former: &[Vec<Pem>],
    findings: &mut Findings,
) -> Vec<Pem> {
    let mut pems = Vec::new();
    for (item, files) in route.certificates.iter().enumerate() {
        let place = Place::of_route(index, "certificates").item(item);
        match files::pairs(files) {
            Ok(pairs) => {
                load_pairs(&pairs, former, &mut pems, place, findings);
                findings.warnings(place, files::unused(files));
            }
            Err(why) => findings.error(place, why),
        }
    }
    if let Some(name) = &route.self_signed {
        match make_self_signed(name, former) {
            Ok(pem) => pems.push(pem),
            Err(mistake) => findings.error(Place::of_route(index, "self_signed"), mistake),
        }
    }
    pems
}

/// Skips invalid certificates of a directory, unless all of them are invalid.
fn load_pairs(
    pairs: &[PairFiles],
    former: &[Vec<Pem>],
    pems: &mut Vec<Pem>,
    place: Place,
    findings: &mut Findings,
) {
    let before = pems.len();
    let (mut mistakes, mut left_out, mut warnings) = (Vec::new(), Vec::new(), Vec::new());
    for pair in pairs {
        let wrong = if pair.found {
            &mut left_out
        } else {
            &mut mistakes
        };
        let Some(mut pem) = read_pair(&pair.cert, &pair.key, wrong) else {
            continue;
        };
        match read_staple(pair, &mut pem, &mut warnings) {
            Ok(identity) => {
                warnings.extend(warnings_of(&identity, &pem.name));
                warnings.extend(key_mode::warning_of(&pair.key));
                keep_response(&mut pem, former);
                pems.push(pem);
            }
            Err(why) => wrong.push(why),
        }
    }
    if pems.len() == before {
        mistakes.append(&mut left_out);
    }
    findings.errors(place, mistakes);
    let left_out = left_out.into_iter();
    warnings.extend(left_out.map(|why| format!("invalid certificate skipped: {why}")));
    findings.warnings(place, warnings);
}

/// Warns of suites for TLS 1.2 that fit no key of the route: clients without TLS 1.3 could not connect.
fn check_suites(index: usize, route: &Route, pems: &[Pem], findings: &mut Findings) {
    let suites: Vec<bool> = route
        .suites
        .iter()
        .filter_map(|one| one.is_for_rsa())
        .collect();
    if suites.is_empty() || route.oldest_version() > TlsVersion::Tls12 {
        return;
    }
    let identities = pems.iter().filter_map(|pem| pem.identity().ok());
    let is_rsa = |identity: Identity| matches!(identity.key_kind(), KeyKind::Rsa { .. });
    let mut keys: Vec<bool> = identities.map(is_rsa).collect();
    // Those to come are for ECDSA.
    keys.extend((!route.acme.is_empty()).then_some(false));
    if let Some(first) = keys.first()
        && !keys.iter().any(|key| suites.contains(key))
    {
        let kind = if *first { "RSA" } else { "ECDSA" };
        findings.warning(
            Place::of_route(index, "suites"),
            format!(
                "no suite for TLS 1.2 fits a certificate of this route, so clients without TLS 1.3 cannot connect\n\
                 add one such as TLS_ECDHE_{kind}_WITH_AES_128_GCM_SHA256, or set min_version = \"1.3\""
            ),
        );
    }
}

fn self_signed_name(name: &str) -> String {
    format!("self_signed {name}")
}

/// Reuses the certificate from `former`, or generates one.
fn make_self_signed(name: &str, former: &[Vec<Pem>]) -> Result<Pem, String> {
    let shown = self_signed_name(name);
    if let Some(pem) = former.iter().flatten().find(|pem| pem.name == shown) {
        return Ok(pem.clone());
    }
    let (chain, key) = Identity::self_signed_pem(name).map_err(|error| error.to_string())?;
    Ok(Pem {
        key_name: shown.clone(),
        name: shown,
        chain,
        ocsp: Vec::new(),
        ocsp_from_file: false,
        is_pushed: false,
        key: key.to_string(),
    })
}

/// The certificates after a change of their files.
pub(crate) struct Renewed {
    /// The certificates of every route.
    pub(crate) certificates: Vec<Vec<Pem>>,
    /// Names of new and removed certificates.
    pub(crate) names: Vec<String>,
    /// Why other certificates were not replaced.
    pub(crate) complaints: Vec<String>,
}

/// Reads all pairs of certificate and key again. An invalid new pair does not replace the current one. A
/// pair that has disappeared from its directory is removed.
pub(crate) fn renew(config: &Config, current: &[Vec<Pem>]) -> Renewed {
    let mut renewed = Renewed {
        certificates: Vec::new(),
        names: Vec::new(),
        complaints: Vec::new(),
    };
    for (route, former) in config.routes.iter().zip(current) {
        let mut pems = renew_route(route, former, &mut renewed);
        let (issued, mut complaints) = acme::load(config, route, std::slice::from_ref(former));
        renewed.complaints.append(&mut complaints);
        for pem in issued {
            if !former.iter().any(|other| other.chain == pem.chain) {
                renewed.names.push(pem.name.clone());
            }
            pems.push(pem);
        }
        let pems = pushed::with_pushed(former, pems);
        for pem in former {
            if !pems.iter().any(|other| other.name == pem.name) {
                renewed.names.push(format!("{} (removed)", pem.name));
            }
        }
        renewed.certificates.push(pems);
    }
    renewed
}

fn renew_route(route: &Route, former: &[Pem], renewed: &mut Renewed) -> Vec<Pem> {
    let own = route.self_signed.as_deref().map(self_signed_name);
    let made = |pem: &&Pem| own.as_ref() == Some(&pem.name);
    let mut pems: Vec<Pem> = former.iter().filter(made).cloned().collect();
    for files in &route.certificates {
        let pairs = match files::pairs(files) {
            Ok(pairs) => pairs,
            Err(why) => {
                // A directory that is unreadable for a moment removes nothing.
                renewed.complaints.push(why);
                let within = |pem: &&Pem| Path::new(&pem.name).starts_with(&files.cert);
                pems.extend(former.iter().filter(within).cloned());
                continue;
            }
        };
        for pair in pairs {
            let (name, key_name) = (
                pair.cert.display().to_string(),
                pair.key.display().to_string(),
            );
            // A key that is missing for a moment is looked for in the chain's file, so the names may differ.
            let same_chain = || former.iter().filter(|pem| pem.name == name);
            let same = same_chain().find(|pem| pem.key_name == key_name);
            let current = same.or_else(|| same_chain().next());
            match read_again(&pair, current) {
                Ok(None) => pems.extend(current.cloned()),
                Ok(Some(new)) => {
                    renewed.names.push(new.name.clone());
                    pems.push(new);
                }
                Err(why) => {
                    renewed.complaints.extend(why);
                    pems.extend(current.cloned());
                }
            }
        }
    }
    pems
}

/// Reads the pair. `None`: it has not changed.
fn read_again(pair: &PairFiles, current: Option<&Pem>) -> Result<Option<Pem>, Vec<String>> {
    let mut mistakes = Vec::new();
    let Some(mut new) = read_pair(&pair.cert, &pair.key, &mut mistakes) else {
        return Err(mistakes);
    };
    let is_same = |pem: &Pem| new.chain == pem.chain && new.key == pem.key;
    let same = current.filter(|pem| is_same(pem));
    if pair.ocsp.is_none() && same.is_some_and(|pem| !pem.ocsp_from_file) {
        return Ok(None);
    }
    let mut warnings = Vec::new();
    let identity = read_staple(pair, &mut new, &mut warnings).map_err(|why| vec![why])?;
    if same.is_some_and(|pem| pem.ocsp == new.ocsp) {
        return Ok(None);
    }
    warnings.extend(warnings_of(&identity, &new.name));
    warnings.extend(key_mode::warning_of(&pair.key));
    for warning in warnings {
        tracing::warn!(warning, "certificate warning");
    }
    Ok(Some(new))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_config::{Flag, Machine, Section, Severity, load as load_config};

    #[test]
    fn suites_that_fit_no_key_are_reported() {
        const TLS13: &str = "TLS_AES_128_GCM_SHA256";
        const ECDSA: &str = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";
        const RSA: &str = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
        let warnings = |suites: &[&str], min_version: &str| {
            let mut flags = vec![
                Flag::new("listen", "127.0.0.1:8443"),
                Flag::new("to", "echo:"),
                // Its key is for ECDSA.
                Flag::new("self-signed", "x"),
                Flag::new("min-version", min_version),
            ];
            flags.extend(suites.iter().map(|&suite| Flag::new("suites", suite)));
            let loaded = load_config(None, Section::Route, &flags, &Machine::read());
            let config = loaded
                .unwrap_or_else(|mistakes| panic!("{mistakes}"))
                .config;
            let mut findings = Findings::default();
            load(&config, &[], &mut findings);
            findings.words(Severity::Warning)
        };
        assert_eq!(warnings(&[TLS13, RSA], "1.2").len(), 1);
        assert_eq!(warnings(&[TLS13, RSA], "1.3"), [""; 0]);
        assert_eq!(warnings(&[TLS13, ECDSA], "1.2"), [""; 0]);
        assert_eq!(warnings(&[TLS13, RSA, ECDSA], "1.2"), [""; 0]);
    }
}
