//! The certificates that routes serve to clients: read at the start and at each reload, and again after
//! their files have changed.

use super::acme;
use super::files;
use super::former::{self, Changes, Covered, Former};
use super::key_mode;
use super::layouts::Found;
use super::pair::PairFiles;
use super::pair::{keep_response, read_pair, read_staple, warnings_of};
use super::pushed;
use crate::material::findings::Findings;
use dormouse_config::{CertificateFiles, Config, Place, Route, TlsVersion};
use dormouse_engine::{Identity, KeyKind};
use dormouse_handover::{Pem, PemContents};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

/// Reads the certificates of every route. A self-signed certificate that serves is reused, so that clients keep seeing
/// the same one.
pub(super) fn load(
    config: &Config,
    former: &Former<'_>,
    findings: &mut Findings,
    changes: &mut Changes,
) -> Vec<Vec<Pem>> {
    let serving = former.certificates();
    let mut entries = Entries::new(former);
    let mut load = |(index, route): (usize, &Route)| {
        let mut pems = load_route(index, route, &mut entries, findings, changes);
        let (issued, complaints) = acme::load(config, route, former);
        for complaint in complaints {
            let what = format!("the certificate will be requested again: {complaint}");
            findings.warning(Place::of_route(index, "acme"), what);
        }
        pems.extend(issued);
        former.workload().place_certificates(route, &mut pems);
        check_suites(index, route, &pems, findings);
        pems
    };
    let loaded: Vec<_> = config.routes.iter().enumerate().map(&mut load).collect();
    changes.compare(serving, &loaded);
    acme::check(config, findings);
    loaded
}

fn load_route(
    index: usize,
    route: &Route,
    entries: &mut Entries<'_>,
    findings: &mut Findings,
    changes: &mut Changes,
) -> Vec<Pem> {
    let mut pems = Vec::new();
    let of_files = route.certificates.iter().enumerate();
    for (item, files) in of_files.filter(|(_, files)| files.spiffe().is_none()) {
        let place = Place::of_route(index, "certificates").item(item);
        match entries.read(files) {
            Ok(entry) => {
                let new: HashSet<&String> = entry.new.iter().collect();
                let same = entry.pems.iter().filter(|pem| !new.contains(&pem.name));
                let mut warnings: Vec<String> = same.flat_map(warnings_of_serving).collect();
                warnings.extend(entry.warnings);
                let kept = entry
                    .kept
                    .iter()
                    .map(|why| format!("certificate kept: {why}"));
                let skipped = entry.skipped.iter();
                let skipped = skipped.map(|why| format!("invalid certificate skipped: {why}"));
                // A start with these files would fail, and so does a reload.
                match entry.is_usable {
                    true => findings.warnings(place, kept.chain(skipped).collect()),
                    false => findings.errors(place, [&*entry.kept, &entry.skipped].concat()),
                }
                findings.errors(place, entry.mistakes);
                findings.warnings(place, warnings);
                changes.kept.extend(entry.kept);
                pems.extend(entry.pems);
                findings.warnings(place, entries.unused(files));
            }
            Err(why) => findings.error(place, why),
        }
    }
    if let Some(name) = &route.self_signed {
        match make_self_signed(name, entries.former) {
            Ok(pem) => pems.push(pem),
            Err(mistake) => findings.error(Place::of_route(index, "self_signed"), mistake),
        }
    }
    pems
}

/// Doubtful properties of a certificate that serves already.
fn warnings_of_serving(pem: &Pem) -> Vec<String> {
    let identity = pem.identity();
    let mut warnings = identity.map_or_else(|_| Vec::new(), |one| warnings_of(one, &pem.name));
    warnings.extend(key_mode::warning_of(Path::new(&pem.key_name)));
    warnings
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
    let is_rsa = |identity: &Identity| matches!(identity.key_kind(), KeyKind::Rsa { .. });
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
fn make_self_signed(name: &str, former: &Former<'_>) -> Result<Pem, String> {
    let shown = self_signed_name(name);
    if let Some(pem) = former.named(&shown) {
        return Ok(pem.clone());
    }
    let (chain, key) = Identity::self_signed_pem(name).map_err(|error| error.to_string())?;
    Ok(Pem::from(PemContents {
        key_name: shown.clone(),
        name: shown,
        chain,
        ocsp: Vec::new(),
        ocsp_from_file: false,
        is_pushed: false,
        key: key.to_string(),
    }))
}

/// Reads the certificates of every route again, after a change of their files.
pub(super) fn renew(config: &Config, former: &Former<'_>, changes: &mut Changes) -> Vec<Vec<Pem>> {
    let mut certificates = Vec::new();
    let mut entries = Entries::new(former);
    for (route, serving) in config.routes.iter().zip(former.certificates()) {
        let mut pems = renew_route(route, serving, &mut entries, changes);
        let (issued, complaints) = acme::load(config, route, former);
        changes.kept.extend(complaints);
        for pem in issued {
            if !serving.iter().any(|other| other.chain == pem.chain) {
                changes.new.push(pem.name.clone());
            }
            pems.push(pem);
        }
        former.workload().place_certificates(route, &mut pems);
        certificates.push(pushed::with_pushed(serving, pems));
    }
    changes.compare(former.certificates(), &certificates);
    certificates
}

fn renew_route(
    route: &Route,
    serving: &[Pem],
    entries: &mut Entries<'_>,
    changes: &mut Changes,
) -> Vec<Pem> {
    let own = route.self_signed.as_deref().map(self_signed_name);
    let made = |pem: &&Pem| own.as_ref() == Some(&pem.name);
    let mut pems: Vec<Pem> = serving.iter().filter(made).cloned().collect();
    let of_files = route.certificates.iter();
    for files in of_files.filter(|files| files.spiffe().is_none()) {
        match entries.read(files) {
            Ok(entry) => {
                for warning in entry.warnings {
                    tracing::warn!(warning, "certificate warning");
                }
                changes.new.extend(entry.new);
                changes.kept.extend(entry.kept);
                changes.kept.extend(entry.mistakes);
                changes.skipped.extend(entry.skipped);
                pems.extend(entry.pems);
            }
            Err(why) => {
                changes.kept.push(why);
                let former = entries.former.within(&files.cert).into_iter();
                pems.extend(former.cloned());
            }
        }
    }
    pems
}

/// The entries of `certificates` that were read. Routes often name the same: its files are read once.
struct Entries<'a> {
    former: &'a Former<'a>,
    read: BTreeMap<CertificateFiles, Result<Entry, String>>,
    unused: BTreeMap<CertificateFiles, Vec<String>>,
}

impl<'a> Entries<'a> {
    fn new(former: &'a Former<'a>) -> Entries<'a> {
        Entries {
            former,
            read: BTreeMap::new(),
            unused: BTreeMap::new(),
        }
    }

    /// Fails if it cannot be found out which files an entry means.
    fn read(&mut self, files: &CertificateFiles) -> Result<Entry, String> {
        if let Some(known) = self.read.get(files) {
            return known.clone();
        }
        let read = read_entry(files, self.former);
        self.read.insert(files.clone(), read.clone());
        read
    }

    /// What else may be a certificate or a key in the directory of an entry that was read.
    fn unused(&mut self, files: &CertificateFiles) -> Vec<String> {
        let Some(Ok(entry)) = self.read.get(files) else {
            return Vec::new();
        };
        let known = self.unused.entry(files.clone());
        let unused = || files::not_used(&files.cert, &entry.others);
        known.or_insert_with(unused).clone()
    }
}

/// What an entry of `certificates` has: a pair, or those of a directory.
#[derive(Clone, Default)]
struct Entry {
    pems: Vec<Pem>,
    /// Files and directories in its directory that belong to no pair.
    others: Vec<PathBuf>,
    /// Whether one of the pairs can be used as it is in its files.
    is_usable: bool,
    /// Files of new certificates.
    new: Vec<String>,
    /// Why certificates that serve are not replaced or removed.
    kept: Vec<String>,
    /// Why pairs of a directory that do not serve are not used.
    skipped: Vec<String>,
    /// Errors of the pair that the configuration names.
    mistakes: Vec<String>,
    /// Doubtful properties of new certificates.
    warnings: Vec<String>,
}

/// Reads the files of an entry. Fails if it cannot be found out which files these are.
fn read_entry(files: &CertificateFiles, former: &Former<'_>) -> Result<Entry, String> {
    let Found { pairs, others, .. } = files::pairs(files)?;
    let mut entry = Entry {
        others,
        ..Entry::default()
    };
    for pair in &pairs {
        match read_again(pair, former.pair(&pair.cert, &pair.key)) {
            Look::Same(current) => {
                entry.is_usable = true;
                entry.pems.push(current.clone());
            }
            Look::New(mut pem, warnings) => {
                keep_response(&mut pem, former);
                entry.is_usable = true;
                entry.new.push(pem.name.clone());
                entry.warnings.extend(warnings);
                entry.pems.push(*pem);
            }
            Look::Worse(current, why) => {
                entry.is_usable = true;
                entry.kept.push(why);
                entry.pems.push(current.clone());
            }
            Look::Invalid(why) if !pair.found => {
                entry.mistakes.extend(why);
                entry
                    .pems
                    .extend(former.within(&pair.cert).into_iter().cloned());
            }
            Look::Invalid(why) => {
                let current = former.pair(&pair.cert, &pair.key);
                let list = match current {
                    Some(_) => &mut entry.kept,
                    None => &mut entry.skipped,
                };
                list.extend(why);
                entry.pems.extend(current.cloned());
            }
        }
    }
    if pairs.iter().any(|pair| pair.found) {
        keep_missing(&files.cert, former, &mut entry);
    }
    Ok(entry)
}

/// Adds the certificates that serve from this directory, and of which files are missing, unless they are removed.
fn keep_missing(directory: &Path, former: &Former<'_>, entry: &mut Entry) {
    let read: HashSet<&str> = entry.pems.iter().map(|pem| &*pem.name).collect();
    let missing = former.within_but(directory, |name| read.contains(name));
    if missing.is_empty() {
        return;
    }
    let mut covered = Covered::default();
    entry.pems.iter().for_each(|pem| covered.add(pem));
    for pem in missing {
        if !covered.has_all_of(pem)
            && let Some(why) = former.missing(pem, directory)
        {
            entry.kept.push(why);
            covered.add(pem);
            entry.pems.push(pem.clone());
        }
    }
    entry
        .pems
        .sort_by_cached_key(|pem| former::place_in(directory, &pem.name));
}

/// A pair of files, compared with the certificate that serves from them.
enum Look<'a> {
    /// It is that certificate.
    Same(&'a Pem),
    /// Another one, with its doubtful properties.
    New(Box<Pem>, Vec<String>),
    /// Another one that does not replace the certificate that serves, and why.
    Worse(&'a Pem, String),
    /// It cannot be used.
    Invalid(Vec<String>),
}

fn read_again<'a>(pair: &PairFiles, current: Option<&'a Pem>) -> Look<'a> {
    let mut mistakes = Vec::new();
    let Some(mut new) = read_pair(
        &pair.cert,
        &pair.key,
        pair.passphrase.as_deref(),
        current,
        &mut mistakes,
    ) else {
        return Look::Invalid(mistakes);
    };
    let has_files = |pem: &&Pem| pem.chain == new.chain && pem.key == new.key;
    let same = current.filter(has_files);
    if let Some(same) = same.filter(|pem| pair.ocsp.is_none() && !pem.ocsp_from_file) {
        return Look::Same(same);
    }
    let mut warnings = Vec::new();
    let mut identity = match new.identity() {
        Ok(identity) => identity.clone(),
        Err(error) => return Look::Invalid(vec![error.to_string()]),
    };
    match (
        read_staple(pair, &mut new, &mut identity, &mut warnings),
        same,
    ) {
        (Ok(()), _) => {}
        (Err(why), _) if !pair.found => return Look::Invalid(vec![why]),
        // It may be half written.
        (Err(why), Some(same)) => return Look::Worse(same, why),
        (Err(why), None) => {
            warnings.push(format!("{why}; the certificate is served without it"));
        }
    }
    if let Some(same) = same.filter(|pem| pem.ocsp == new.ocsp) {
        return Look::Same(same);
    }
    let other = current.filter(|_| same.is_none());
    if let Some((current, why)) = other.zip(former::is_worse(&identity, other)) {
        return Look::Worse(current, format!("{}: {why}", new.name));
    }
    warnings.extend(warnings_of(&identity, &new.name));
    warnings.extend(key_mode::warning_of(&pair.key));
    Look::New(Box::new(new), warnings)
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
            let mut changes = Changes::default();
            load(&config, &Former::none(), &mut findings, &mut changes);
            findings.words(Severity::Warning)
        };
        assert_eq!(warnings(&[TLS13, RSA], "1.2").len(), 1);
        assert_eq!(warnings(&[TLS13, RSA], "1.3"), [""; 0]);
        assert_eq!(warnings(&[TLS13, ECDSA], "1.2"), [""; 0]);
        assert_eq!(warnings(&[TLS13, RSA, ECDSA], "1.2"), [""; 0]);
    }
}
