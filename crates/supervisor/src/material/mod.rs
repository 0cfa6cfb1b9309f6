//! Certificates and keys: read by main, checked against each other before anything starts.

pub(crate) mod acme;
mod files;

use dormouse_config::{Ca, CertificateFiles, ClientAsk, Config, Originate, Route};
use dormouse_engine::{Identity, OcspProblem, Roots, TrustStore, read_pem_file};
use dormouse_handover::unix_time;
use dormouse_handover::{ClientTrust, OriginPem, Pem};
use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

pub use files::{PairFiles, pairs};

/// Reads what every route shows its clients. All mistakes are returned, one per entry. What was
/// made on the spot before (`former`) is not made again, so that clients see the same certificate.
pub(crate) fn load(config: &Config, former: &[Vec<Pem>]) -> Result<Vec<Vec<Pem>>, Vec<String>> {
    let mut mistakes = Vec::new();
    let loaded = config
        .routes
        .iter()
        .map(|route| {
            let mut pems = load_route(route, former, &mut mistakes);
            let (had, complaints) = acme::load(config, route, former);
            for complaint in complaints {
                tracing::warn!("a certificate will be had anew: {complaint}");
            }
            pems.extend(had);
            pems
        })
        .collect();
    acme::check(config, &mut mistakes);
    if mistakes.is_empty() {
        Ok(loaded)
    } else {
        Err(mistakes)
    }
}

/// The files that are looked at for changes: certificates and keys, authorities of clients,
/// revocation lists, and the directories of these.
pub(crate) fn watched(config: &Config) -> BTreeSet<PathBuf> {
    let mut all = BTreeSet::new();
    for route in &config.routes {
        all.extend(route.certificates.iter().flat_map(files::watched));
        let had = route.acme.iter();
        all.extend(had.map(|name| acme::file_of(config, name.as_str())));
        for path in route.client_ca.iter().chain(&route.client_crl) {
            all.insert(path.clone());
            all.extend(files::files_of(path, "file").unwrap_or_default());
        }
    }
    all
}

/// A byte more than any OCSP response has.
const OCSP_MAX: u64 = (16 << 10) + 1;

/// What became of files that have changed.
pub(crate) struct Renewed {
    /// What every route shows now.
    pub(crate) certificates: Vec<Vec<Pem>>,
    /// Those which are new, and those which are gone.
    pub(crate) names: Vec<String>,
    /// Why others are not.
    pub(crate) complaints: Vec<String>,
}

/// Reads all pairs of certificate and key again. Where one is not what it should be, the current
/// one stays. One that was found in a directory and is no longer there is gone.
pub(crate) fn renew(config: &Config, current: &[Vec<Pem>]) -> Renewed {
    let mut renewed = Renewed {
        certificates: Vec::new(),
        names: Vec::new(),
        complaints: Vec::new(),
    };
    for (route, former) in config.routes.iter().zip(current) {
        let mut pems = renew_route(route, former, &mut renewed);
        let (had, mut complaints) = acme::load(config, route, std::slice::from_ref(former));
        renewed.complaints.append(&mut complaints);
        for pem in had {
            if !former.iter().any(|other| other.chain == pem.chain) {
                renewed.names.push(pem.name.clone());
            }
            pems.push(pem);
        }
        for pem in former {
            if !pems.iter().any(|other| other.name == pem.name) {
                renewed.names.push(format!("{} (gone)", pem.name));
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
                // A directory that can't be read for a moment takes nothing away.
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
            let same = |pem: &&Pem| pem.name == name && pem.key_name == key_name;
            let current = former.iter().find(same);
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

/// What is there now; `None`: what was there before.
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
    let identity = read_staple(pair, &mut new).map_err(|why| vec![why])?;
    if same.is_some_and(|pem| pem.ocsp == new.ocsp) {
        return Ok(None);
    }
    warn_of(&identity, &new.name);
    Ok(Some(new))
}

/// What the authority says of it, if a file has that. What is about another certificate is an
/// error; what is not of now, a warning: the certificate is shown without it.
fn read_staple(pair: &PairFiles, pem: &mut Pem) -> Result<Identity, String> {
    let mut identity = pem.identity().map_err(|error| error.to_string())?;
    let Some(path) = &pair.ocsp else {
        return Ok(identity);
    };
    pem.ocsp_from_file = true;
    let shown = path.display();
    let read = fs::File::open(path).and_then(|file| {
        let mut bytes = Vec::new();
        file.take(OCSP_MAX).read_to_end(&mut bytes).map(|_| bytes)
    });
    let response = read.map_err(|error| format!("{shown}: cannot be read: {error}"))?;
    match identity.staple(&response, unix_time()) {
        Ok(_) => pem.ocsp = response,
        Err(problem @ OcspProblem::NotNow(_)) => tracing::warn!("{shown}: {problem}"),
        Err(problem) => return Err(format!("{shown}: {problem}")),
    }
    Ok(identity)
}

/// What an authority has said before of the same chain is still good.
fn keep_answer(pem: &mut Pem, former: &[Vec<Pem>]) {
    let is_same = |other: &&Pem| other.chain == pem.chain && !other.ocsp_from_file;
    if !pem.ocsp_from_file
        && let Some(other) = former.iter().flatten().find(is_same)
    {
        pem.ocsp = other.ocsp.clone();
    }
}

/// Reads whom originations trust and what they show.
pub(crate) fn load_origins(config: &Config) -> Result<Vec<OriginPem>, Vec<String>> {
    let mut mistakes = Vec::new();
    let loaded = config
        .originate
        .iter()
        .map(|originate| load_origin(originate, &mut mistakes))
        .collect();
    mistakes.dedup();
    if mistakes.is_empty() {
        Ok(loaded)
    } else {
        Err(mistakes)
    }
}

fn load_origin(originate: &Originate, mistakes: &mut Vec<String>) -> OriginPem {
    let roots = match originate.insecure {
        true => None,
        false => read_roots(&originate.ca, mistakes),
    };
    if originate.insecure {
        let names: Vec<&str> = originate.to.iter().map(|to| to.given.as_str()).collect();
        tracing::warn!(
            to = names.join(", "),
            "INSECURE: any certificate is taken; whoever is between here and the server can read \
             and change everything"
        );
    }
    let identity = read_identity(&originate.certificates, mistakes);
    OriginPem { roots, identity }
}

/// Reads whom routes trust that speak TLS with their backends, and what they show them.
pub(crate) fn load_backend_tls(config: &Config) -> Result<Vec<Option<OriginPem>>, Vec<String>> {
    let mut mistakes = Vec::new();
    let mut load = |route: &Route| {
        let roots = read_roots(&route.backend_ca, &mut mistakes);
        let identity = read_identity(&route.backend_certificates, &mut mistakes);
        OriginPem { roots, identity }
    };
    let load = |route: &Route| route.backend_tls.then(|| load(route));
    let loaded = config.routes.iter().map(load).collect();
    mistakes.dedup();
    if mistakes.is_empty() {
        Ok(loaded)
    } else {
        Err(mistakes)
    }
}

fn read_roots(ca: &Ca, mistakes: &mut Vec<String>) -> Option<String> {
    let read = authorities(ca);
    read.map_err(|mistake| mistakes.push(mistake)).ok()
}

/// Those who may vouch for a server, PEM.
pub(crate) fn authorities(ca: &Ca) -> Result<String, String> {
    match ca {
        Ca::System => Roots::system_pem().map_err(|error| {
            format!("{error}; install ca-certificates, or name a file of authorities")
        }),
        Ca::File(path) => read(path).and_then(|text| check_roots(path, text)),
    }
}

fn read_identity(files: &[CertificateFiles], mistakes: &mut Vec<String>) -> Option<Pem> {
    let mut identity = None;
    for files in files {
        if let Some(pem) = read_pair(&files.cert, &files.key, mistakes) {
            match pem.identity() {
                Ok(_) => identity = Some(pem),
                Err(error) => mistakes.push(error.to_string()),
            }
        }
    }
    identity
}

fn check_roots(path: &Path, text: String) -> Result<String, String> {
    match TrustStore::from_pem(text.as_bytes()) {
        Ok(_) => Ok(text),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// Reads who may vouch for clients, for every route which asks them for certificates.
pub(crate) fn load_clients(config: &Config) -> Result<Vec<Option<ClientTrust>>, Vec<String>> {
    let mut mistakes = Vec::new();
    let loaded = config
        .routes
        .iter()
        .map(|route| clients_of(route, &mut mistakes))
        .collect();
    if mistakes.is_empty() {
        Ok(loaded)
    } else {
        Err(mistakes)
    }
}

fn clients_of(route: &Route, mistakes: &mut Vec<String>) -> Option<ClientTrust> {
    let required = match route.client_certificates {
        ClientAsk::None => return None,
        ClientAsk::Optional => false,
        ClientAsk::Required => true,
    };
    let ca = route.client_ca.as_deref()?;
    let mut roots = String::new();
    let authorities = files::files_of(ca, "authority");
    for file in authorities.map_err(|why| mistakes.push(why)).ok()? {
        roots.push_str(&read(&file).map_err(|why| mistakes.push(why)).ok()?);
        roots.push('\n');
    }
    let mut crls = Vec::new();
    for path in &route.client_crl {
        let lists = files::files_of(path, "revocation list");
        for file in lists.map_err(|why| mistakes.push(why)).ok()? {
            let name = file.display().to_string();
            crls.push((name, read(&file).map_err(|why| mistakes.push(why)).ok()?));
        }
    }
    let trust = ClientTrust {
        required,
        roots,
        crls,
        allow: route.client_allow.clone(),
    };
    for warning in trust.settings().warnings(unix_time()) {
        tracing::warn!("{warning}");
    }
    if let Err(why) = trust.settings().check() {
        mistakes.push(format!("{}: {why}", ca.display()));
    }
    Some(trust)
}

fn load_route(route: &Route, former: &[Vec<Pem>], mistakes: &mut Vec<String>) -> Vec<Pem> {
    let mut pems = Vec::new();
    for files in &route.certificates {
        match files::pairs(files) {
            Ok(pairs) => load_pairs(&pairs, former, &mut pems, mistakes),
            Err(why) => mistakes.push(why),
        }
    }
    if let Some(name) = &route.self_signed {
        match make_self_signed(name, former) {
            Ok(pem) => pems.push(pem),
            Err(mistake) => mistakes.push(mistake),
        }
    }
    pems
}

/// Those which were found in a directory and are no good are left out, if others are good.
fn load_pairs(
    pairs: &[PairFiles],
    former: &[Vec<Pem>],
    pems: &mut Vec<Pem>,
    mistakes: &mut Vec<String>,
) {
    let before = pems.len();
    let mut left_out = Vec::new();
    for pair in pairs {
        let wrong = if pair.found {
            &mut left_out
        } else {
            &mut *mistakes
        };
        let Some(mut pem) = read_pair(&pair.cert, &pair.key, wrong) else {
            continue;
        };
        match read_staple(pair, &mut pem) {
            Ok(identity) => {
                warn_of(&identity, &pem.name);
                keep_answer(&mut pem, former);
                pems.push(pem);
            }
            Err(why) => wrong.push(why),
        }
    }
    if pems.len() == before {
        mistakes.append(&mut left_out);
    }
    for why in left_out {
        tracing::warn!("a certificate is left out: {why}");
    }
}

fn self_signed_name(name: &str) -> String {
    format!("self_signed {name}")
}

/// The one that was made before, or a new one.
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
        key: key.to_string(),
    })
}

fn read_pair(cert: &Path, key: &Path, mistakes: &mut Vec<String>) -> Option<Pem> {
    let names = (cert.display().to_string(), key.display().to_string());
    let chain = read_pem_file(cert).map_err(|error| error.to_string());
    match (chain.map(|text| certificates_in(&text)), read(key)) {
        (Ok(chain), Ok(key)) => Some(Pem {
            name: names.0,
            key_name: names.1,
            chain,
            ocsp: Vec::new(),
            ocsp_from_file: false,
            key,
        }),
        (chain, key) => {
            mistakes.extend([chain.err(), key.err()].into_iter().flatten());
            None
        }
    }
}

/// The certificates in a file which may hold their key as well: what is passed on as public has
/// nothing secret in it. A text without any is left as it is, for the mistake to be told.
pub(crate) fn certificates_in(text: &str) -> String {
    let mut certificates = String::with_capacity(text.len());
    let mut is_within = false;
    for line in text.lines() {
        let line = line.trim_end();
        is_within |= line == "-----BEGIN CERTIFICATE-----";
        if is_within {
            certificates.push_str(line);
            certificates.push('\n');
        }
        is_within &= line != "-----END CERTIFICATE-----";
    }
    if certificates.is_empty() {
        text.clone_into(&mut certificates);
    }
    certificates
}

fn warn_of(identity: &Identity, name: &str) {
    for warning in identity.warnings(unix_time()) {
        tracing::warn!("{name}: {warning}");
    }
}

/// The one reader of such files is the engine's: `check` says the same words.
fn read(path: &Path) -> Result<String, String> {
    match read_pem_file(path) {
        Ok(text) => Ok(text.as_str().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::certificates_in;

    #[test]
    fn a_key_beside_certificates_is_not_passed_on_as_public() {
        let block =
            |label: &str| format!("-----BEGIN {label}-----\r\nAAAA\r\n-----END {label}-----\r\n");
        let both = ["CERTIFICATE", "PRIVATE KEY", "EC PARAMETERS", "CERTIFICATE"].map(block);
        let one = block("CERTIFICATE").replace('\r', "");
        assert_eq!(certificates_in(&both.concat()), format!("{one}{one}"));
        let key = block("PRIVATE KEY");
        assert_eq!(certificates_in(&key), key, "the mistake is told elsewhere");
        assert_eq!(certificates_in(""), "");
    }
}
