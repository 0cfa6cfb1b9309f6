//! CAs that routes, originations and ACME trust, and the client certificates for servers.

use super::contents::OfHelpers;
use super::files::files_of;
use super::former::{self, Changes, Former};
use super::key_mode;
use super::pair::{read_pair, read_with, warnings_of};
use super::workload::{self, Workload};
use crate::material::findings::Findings;
use dormouse_config::{
    Ca, CertificateFiles, ClientAsk, ClientCa, Config, Originate, Place, Route, Severity,
    StapledOcsp,
};
use dormouse_engine::{
    ClientCertificates, IdentityError, IdentityProblem, PemFile, Roots, ServerCertificates,
    SettingsError,
};
use dormouse_handover::lists::RevocationList;
use dormouse_handover::unix_time;
use dormouse_handover::{ClientTrust, OriginPem, Pem, Revocation};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Reads the trusted CAs and the client certificate of each origination.
pub(super) fn load_origins(
    config: &Config,
    former: &Former<'_>,
    findings: &mut Findings,
    changes: &mut Changes,
) -> Vec<OriginPem> {
    let mut files = TrustInServers::new(former.workload());
    let all = config.originate.iter().enumerate();
    all.map(|(index, one)| load_origin(index, one, &mut files, former, findings, changes))
        .collect()
}

/// Reads the same again. An origination of which a file cannot be used stays as it is.
pub(super) fn renew_origins(
    config: &Config,
    former: &Former<'_>,
    current: &[OriginPem],
    changes: &mut Changes,
) -> Vec<OriginPem> {
    let mut files = TrustInServers::new(former.workload());
    let all = config.originate.iter().zip(current).enumerate();
    let renew = |(index, (originate, current))| {
        let mut findings = Findings::default();
        let read = load_origin(index, originate, &mut files, former, &mut findings, changes);
        keep_on_error(read, current, &findings, changes)
    };
    all.map(renew).collect()
}

fn load_origin<'a>(
    index: usize,
    originate: &'a Originate,
    trust_files: &mut TrustInServers<'a>,
    former: &Former<'_>,
    findings: &mut Findings,
    changes: &mut Changes,
) -> OriginPem {
    let place = |option| Place::of_origination(index, option);
    let mut trust = OriginPem::default();
    if !originate.insecure {
        let required = originate.ocsp == StapledOcsp::Required;
        let (ca, lists) = ((&originate.ca, "ca"), (&originate.crl[..], "crl"));
        trust = trust_files.get(ca, lists, required, place, findings);
    }
    let (files, place) = (&originate.certificates, place("certificates"));
    trust.identity = read_identity(files, place, former, findings, changes);
    trust
}

/// Reads the same for routes with TLS to their backends.
pub(super) fn load_backend_tls(
    config: &Config,
    former: &Former<'_>,
    findings: &mut Findings,
    changes: &mut Changes,
) -> Vec<Option<OriginPem>> {
    let mut files = TrustInServers::new(former.workload());
    let all = config.routes.iter().enumerate();
    all.map(|(index, one)| load_one_backend_tls(index, one, &mut files, former, findings, changes))
        .collect()
}

/// Reads the same again. A route of which a file cannot be used stays as it is.
pub(super) fn renew_backend_tls(
    config: &Config,
    former: &Former<'_>,
    current: &[Option<OriginPem>],
    changes: &mut Changes,
) -> Vec<Option<OriginPem>> {
    let mut files = TrustInServers::new(former.workload());
    let all = config.routes.iter().zip(current).enumerate();
    let renew = |(index, (route, current))| {
        let mut findings = Findings::default();
        let read = load_one_backend_tls(index, route, &mut files, former, &mut findings, changes);
        keep_on_error(read, current, &findings, changes)
    };
    all.map(renew).collect()
}

fn load_one_backend_tls<'a>(
    index: usize,
    route: &'a Route,
    trust_files: &mut TrustInServers<'a>,
    former: &Former<'_>,
    findings: &mut Findings,
    changes: &mut Changes,
) -> Option<OriginPem> {
    if !route.backend_tls {
        return None;
    }
    let place = |option| Place::of_route(index, option);
    let required = route.backend_ocsp == StapledOcsp::Required;
    let ca = (&route.backend_ca, "backend_ca");
    let lists = (&route.backend_crl[..], "backend_crl");
    let mut trust = trust_files.get(ca, lists, required, place, findings);
    let (files, place) = (&route.backend_certificates, place("backend_certificates"));
    trust.identity = read_identity(files, place, former, findings, changes);
    Some(trust)
}

/// What was read for the routes or originations before, as [`TrustFiles`].
struct TrustInServers<'a> {
    read: HashMap<(&'a Ca, &'a [PathBuf], bool), OriginPem>,
    workload: &'a Workload,
}

impl<'a> TrustInServers<'a> {
    fn new(workload: &'a Workload) -> TrustInServers<'a> {
        TrustInServers {
            read: HashMap::new(),
            workload,
        }
    }

    /// CAs and revocation lists, each with its option. The result has no certificate yet.
    fn get(
        &mut self,
        ca: (&'a Ca, &'static str),
        lists: (&'a [PathBuf], &'static str),
        ocsp_required: bool,
        place: impl Fn(&'static str) -> Place,
        findings: &mut Findings,
    ) -> OriginPem {
        let known = match self.read.entry((ca.0, lists.0, ocsp_required)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let from = (place, self.workload);
                match read_trust_in_servers(ca, lists, ocsp_required, from, findings) {
                    Some(read) => new.insert(read),
                    None => return OriginPem::default(),
                }
            }
        };
        known.clone()
    }
}

/// Reads and checks the CAs and revocation lists for servers' certificates. `None`: there is an error.
fn read_trust_in_servers(
    (ca, ca_option): (&Ca, &'static str),
    (lists, lists_option): (&[PathBuf], &'static str),
    ocsp_required: bool,
    (place, workload): (impl Fn(&'static str) -> Place, &Workload),
    findings: &mut Findings,
) -> Option<OriginPem> {
    let roots = match ca.trust_domain() {
        Some(domain) => Some(workload.authorities(domain).to_owned()),
        None => read_roots(ca, place(ca_option), findings),
    };
    let lists_place = place(lists_option);
    let lists = read_lists(lists, lists_place, findings);
    // Both are read before an error returns, so that each error is reported.
    let (roots, Lists { files, crls }) = (roots?, lists?);
    if !files.is_empty() {
        // Of the files as they are, so that an error has the right line.
        let settings = ServerCertificates {
            roots: roots.clone().into_bytes(),
            crls: files,
            ocsp_required,
        };
        findings.warnings(lists_place, settings.warnings(unix_time()));
        if let Err(why) = settings.store() {
            let place = match why {
                SettingsError::Crl(_) => lists_place,
                _ => place(ca_option),
            };
            findings.error(place, why.to_string());
            return None;
        }
    }
    Some(OriginPem {
        roots: Some(roots),
        revocation: Revocation {
            crls,
            ocsp_required,
        },
        identity: None,
    })
}

/// Reads the certificates that helpers show to the store of ticket keys and to the ACME server.
pub(super) fn load_of_helpers(
    config: &Config,
    former: &Former<'_>,
    findings: &mut Findings,
    changes: &mut Changes,
) -> OfHelpers {
    let mut read = |files: &[CertificateFiles], option| {
        read_identity(files, Place::Program(option), former, findings, changes)
    };
    let store = &config.tickets.ticket_store_certificates;
    OfHelpers {
        store: read(store, "ticket_store_certificates"),
        acme: read(&config.acme.acme_certificates, "acme_certificates"),
    }
}

/// The same for a program that runs, which goes on without those that cannot be read.
pub(crate) fn certificates_of_helpers(config: &Config) -> OfHelpers {
    let (mut findings, mut changes) = (Findings::default(), Changes::default());
    load_of_helpers(config, &Former::none(), &mut findings, &mut changes)
}

/// Reads them again. If one cannot be used, the current ones stay.
pub(super) fn renew_of_helpers(
    config: &Config,
    former: &Former<'_>,
    current: &OfHelpers,
    changes: &mut Changes,
) -> OfHelpers {
    let mut findings = Findings::default();
    let read = load_of_helpers(config, former, &mut findings, changes);
    keep_on_error(read, current, &findings, changes)
}

/// What was read, or without change what is in use if there were errors.
fn keep_on_error<T: Clone>(read: T, current: &T, findings: &Findings, changes: &mut Changes) -> T {
    match findings.has_errors() {
        true => {
            changes.kept.extend(findings.words(Severity::Error));
            current.clone()
        }
        false => read,
    }
}

/// Reads the CAs and revocation lists of every route that requests client certificates.
pub(super) fn load_client_trust(
    config: &Config,
    workload: &Workload,
    findings: &mut Findings,
) -> Vec<Option<ClientTrust>> {
    let mut files = TrustFiles::new(workload);
    let all = config.routes.iter().enumerate();
    all.map(|(index, route)| files.of_route(index, route, findings))
        .collect()
}

/// Reads the same again. A route of which a file cannot be used stays as it is: it never verifies less than its
/// configuration says.
pub(super) fn renew_client_trust(
    config: &Config,
    workload: &Workload,
    current: &[Option<ClientTrust>],
    changes: &mut Changes,
) -> Vec<Option<ClientTrust>> {
    let mut files = TrustFiles::new(workload);
    let all = config.routes.iter().zip(current).enumerate();
    all.map(|(index, (route, current))| {
        let mut findings = Findings::default();
        let read = files.of_route(index, route, &mut findings);
        keep_on_error(read, current, &findings, changes)
    })
    .collect()
}

/// CAs, PEM, and revocation lists.
type Trust = (String, Vec<RevocationList>);

/// What was read for the routes before. Files that several routes name are read and parsed once: a revocation list may have
/// many megabytes.
struct TrustFiles<'a> {
    read: HashMap<(&'a Option<ClientCa>, &'a Vec<PathBuf>), Trust>,
    workload: &'a Workload,
}

impl<'a> TrustFiles<'a> {
    fn new(workload: &'a Workload) -> TrustFiles<'a> {
        TrustFiles {
            read: HashMap::new(),
            workload,
        }
    }

    /// `None`: the route requests no client certificates, or there is an error.
    fn of_route(
        &mut self,
        index: usize,
        route: &'a Route,
        findings: &mut Findings,
    ) -> Option<ClientTrust> {
        let required = match route.client_certificates {
            ClientAsk::None => return None,
            ClientAsk::Optional => false,
            ClientAsk::Required => true,
        };
        let (roots, crls) = match self.read.entry((&route.client_ca, &route.client_crl)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(read_trust(index, route, self.workload, findings)?),
        };
        if let Some(domain) = route.client_ca.as_ref().and_then(|ca| ca.trust_domain()) {
            let trust = (roots.clone(), crls.clone());
            return Some(workload::client_trust(route, domain, trust));
        }
        Some(ClientTrust {
            required,
            roots: roots.clone(),
            crls: crls.clone(),
            allow: route.client_allow.clone(),
        })
    }
}

/// Reads and checks the CAs and revocation lists of a route. `None`: there is an error.
fn read_trust(
    index: usize,
    route: &Route,
    workload: &Workload,
    findings: &mut Findings,
) -> Option<Trust> {
    let place = Place::of_route(index, "client_ca");
    let ca = route.client_ca.as_ref()?;
    let roots = match ca {
        ClientCa::Files(path) => read_all(path, "authority", PemFile::authorities, place, findings),
        ClientCa::Spiffe(domain) => {
            let text = workload.authorities(domain);
            let file = PemFile::of(text.as_bytes(), &domain.to_string());
            Some(vec![(file, text.to_owned())])
        }
    };
    let lists_place = Place::of_route(index, "client_crl");
    // All of them are read before an error returns, so that each error is reported.
    let lists = read_lists(&route.client_crl, lists_place, findings);
    let roots = roots?;
    let untimely = roots
        .iter()
        .filter_map(|(file, _)| file.untimely_authorities(unix_time()));
    findings.warnings(place, untimely.collect());
    let roots: String = roots.into_iter().map(|(_, text)| text).collect();
    let Lists { files, crls } = lists?;
    // Of the files as they are, so that an error has the right line.
    let settings = ClientCertificates {
        required: true,
        roots: roots.clone().into_bytes(),
        crls: files,
        allow: Vec::new(),
    };
    findings.warnings(place, settings.warnings(unix_time()));
    match settings.verifier() {
        Ok(verifier) => {
            let warning = verifier.warning();
            let warning = warning.map(|warning| format!("{ca}: {warning}"));
            findings.warnings(place, warning.into_iter().collect());
        }
        Err(why) => {
            let place = match why {
                SettingsError::Crl(_) => lists_place,
                _ => place,
            };
            findings.error(place, why.to_string());
            return None;
        }
    }
    Some((roots, crls))
}

/// Revocation lists that were read.
struct Lists {
    /// The files as they are, with their names.
    files: Vec<(String, Vec<u8>)>,
    /// The lists in them.
    crls: Vec<RevocationList>,
}

/// Reads the revocation lists of an option. `None`: there is an error.
fn read_lists(paths: &[PathBuf], place: Place, findings: &mut Findings) -> Option<Lists> {
    let lists = paths.iter().enumerate().map(|(item, path)| {
        let (what, place) = ("revocation list", place.item(item));
        read_all(path, what, PemFile::revocation_lists, place, findings)
    });
    let lists: Vec<_> = lists.collect();
    let lists: Option<Vec<_>> = lists.into_iter().collect();
    let named = lists?.into_iter().flatten().map(|(file, text)| {
        let name = file.name().to_owned();
        let list = RevocationList::new(name.clone(), text);
        ((name, file.text().to_vec()), list)
    });
    let (files, crls) = named.unzip();
    Some(Lists { files, crls })
}

/// Reads a file, or all files of a directory, each with its content. `None`: an error was found.
fn read_all(
    path: &Path,
    what: &str,
    content: fn(&PemFile) -> Result<String, IdentityError>,
    place: Place,
    findings: &mut Findings,
) -> Option<Vec<(PemFile, String)>> {
    let files = files_of(path, what);
    let files = files.map_err(|why| findings.error(place, why)).ok()?;
    let in_directory = path.is_dir();
    let (mut contents, mut passed_over) = (Vec::new(), Vec::new());
    let mut is_sound = true;
    for file in files {
        let read = read_with(PemFile::read_trust, &file);
        let read = read.map(|file| content(&file).map(|content| (file, content)));
        match read {
            Ok(Ok(read)) => contents.push(read),
            // A README, or what a program for authorities keeps beside its lists.
            Ok(Err(refused)) if in_directory && refused.problem == IdentityProblem::NoSection => {
                passed_over.push(format!(
                    "{}: passed over, because it is not PEM",
                    refused.file
                ));
            }
            Ok(Err(refused)) => {
                is_sound = false;
                findings.error(place, refused.to_string());
            }
            Err(why) => {
                is_sound = false;
                findings.error(place, why);
            }
        }
    }
    if contents.is_empty() && is_sound {
        is_sound = false;
        findings.error(
            place,
            format!("{}: no {what} in this directory", path.display()),
        );
    }
    findings.warnings(place, passed_over);
    is_sound.then_some(contents)
}

fn read_roots(ca: &Ca, place: Place, findings: &mut Findings) -> Option<String> {
    let (trusted, file) = trusted(ca)
        .map_err(|mistake| findings.error(place, mistake))
        .ok()?;
    let untimely = file.and_then(|file| file.untimely_authorities(unix_time()));
    findings.warnings(place, untimely.into_iter().collect());
    Some(trusted)
}

/// The trusted CAs for a server, PEM.
pub(crate) fn authorities(ca: &Ca) -> Result<String, String> {
    trusted(ca).map(|(trusted, _)| trusted)
}

/// The same with the file that they are from, if they are not the system's.
fn trusted(ca: &Ca) -> Result<(String, Option<PemFile>), String> {
    match ca {
        Ca::Spiffe(domain) => Err(format!(
            "{domain}: the authorities of a trust domain are only for `ca`, `backend_ca` and `client_ca`"
        )),
        Ca::System => Roots::system_pem()
            .map(|system| (system, None))
            .map_err(|error| format!("{error}; install ca-certificates, or set a CA file")),
        Ca::File(path) if is_missing(path) => Err(format!(
            "{}: no such file\nname a PEM file with the authorities, or \"system\" for those of the operating system",
            path.display()
        )),
        Ca::File(path) => trusted_in(path).map(|(trusted, file)| (trusted, Some(file))),
    }
}

fn trusted_in(path: &Path) -> Result<(String, PemFile), String> {
    let file = read_with(PemFile::read_trust, path)?;
    let trusted = file.authorities().map_err(|error| error.to_string())?;
    Ok((trusted, file))
}

fn is_missing(path: &Path) -> bool {
    fs::metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// The CAs in a PEM file.
pub(crate) fn authorities_of(path: &Path) -> Result<String, String> {
    trusted_in(path).map(|(trusted, _)| trusted)
}

fn read_identity(
    files: &[CertificateFiles],
    place: Place,
    former: &Former<'_>,
    findings: &mut Findings,
    changes: &mut Changes,
) -> Option<Pem> {
    if let Some(own) = former.workload().own_certificate(files) {
        return own;
    }
    let mut identity = None;
    for (item, files) in files.iter().enumerate() {
        let place = place.item(item);
        let mut mistakes = Vec::new();
        let passphrase = files.passphrase.as_deref();
        if let Some(pem) = read_pair(&files.cert, &files.key, passphrase, None, &mut mistakes) {
            match pem.identity() {
                Ok(own) => {
                    findings.warnings(place, warnings_of(own, &pem.name));
                    let exposed = key_mode::warning_of(&files.key);
                    findings.warnings(place, exposed.into_iter().collect());
                    let current = former.pair(&files.cert, &files.key);
                    identity = Some(match current.zip(former::is_worse(own, current)) {
                        Some((current, why)) => {
                            changes.kept.push(format!("{}: {why}", pem.name));
                            current.clone()
                        }
                        None => pem,
                    });
                }
                Err(error) => mistakes.push(error.to_string()),
            }
        }
        findings.errors(place, mistakes);
    }
    identity
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_config::{Flag, Machine, Section, Severity};
    use dormouse_testkit::Authority;

    /// Loads the trust of a route with these lists. Returns it with all errors and warnings.
    fn load(ca: &Path, lists: &Path) -> (Option<ClientTrust>, Vec<String>, Vec<String>) {
        let flags = [
            ("listen", "127.0.0.1:8443"),
            ("to", "echo:"),
            ("self-signed", "x"),
            ("client-certificates", "required"),
            ("client-ca", &ca.display().to_string()),
            ("client-crl", &lists.display().to_string()),
        ];
        let flags = flags.map(|(name, value)| Flag::new(name, value));
        let loaded = dormouse_config::load(None, Section::Route, &flags, &Machine::read());
        let config = loaded.unwrap_or_else(|wrong| panic!("{wrong}")).config;
        let mut findings = Findings::default();
        let mut trust = load_client_trust(&config, &Workload::none(), &mut findings);
        let [errors, warnings] =
            [Severity::Error, Severity::Warning].map(|severity| findings.words(severity));
        (trust.pop().flatten(), errors, warnings)
    }

    /// `openssl ca` keeps its database beside its lists, and somebody wrote what the directory is for.
    #[test]
    fn other_files_in_a_directory_of_lists_are_passed_over_and_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &[u8]| {
            fs::write(folder.path().join(name), text).expect("written");
        };
        let authority = Authority::shared();
        let (ca, lists) = (folder.path().join("ca.pem"), folder.path().join("lists"));
        fs::create_dir(&lists).expect("a directory");
        write("ca.pem", authority.certificate_pem().as_bytes());
        write("lists/README", b"The lists of our authority.\n");
        let (trust, errors, _) = load(&ca, &lists);
        assert!(trust.is_none());
        assert!(
            errors[0].ends_with("lists: no revocation list in this directory"),
            "{errors:?}"
        );

        let list = authority.revocation_list(&[]);
        write("lists/crl.pem", list.as_bytes());
        write(
            "lists/latin1.pem",
            &[b"# F\xf5o\n", list.as_bytes()].concat(),
        );
        let (trust, errors, warnings) = load(&ca, &lists);
        assert_eq!(errors, [""; 0]);
        let names: Vec<String> = trust
            .expect("trust")
            .crls
            .into_iter()
            .map(|list| list.name)
            .collect();
        assert!(
            names.len() == 2 && names[0].ends_with("lists/crl.pem"),
            "{names:?}"
        );
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(
            warnings[0].contains("lists/README: passed over"),
            "{warnings:?}"
        );

        // What may be a list is not passed over, and each error is at its file and line.
        let trimmed = list.trim_end();
        write("lists/glued.pem", format!("{trimmed}{list}").as_bytes());
        write("lists/empty.pem", b"");
        let (trust, errors, _) = load(&ca, &lists);
        assert!(trust.is_none());
        let shown = errors.join("\n");
        let place = format!("lists/glued.pem:{}: -----END", trimmed.lines().count());
        assert!(errors.len() == 2 && shown.contains(&place), "{shown}");
        assert!(shown.contains("lists/empty.pem: is empty"), "{shown}");
    }

    /// It may have many megabytes.
    #[test]
    fn routes_share_a_revocation_list() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).expect("written");
            path.display().to_string()
        };
        let authority = Authority::shared();
        let ca = write("ca.pem", &authority.certificate_pem());
        let crl = write("crl.pem", &authority.revocation_list(&[]));
        let route = |(port, ask)| {
            format!(
                "[[route]]\nlisten = '127.0.0.1:{port}'\nto = '127.0.0.1:1'\nself_signed = 'x'\n\
                 client_certificates = '{ask}'\nclient_ca = '{ca}'\nclient_crl = '{crl}'\n\
                 backend_tls = true\nbackend_ca = '{ca}'\nbackend_crl = '{crl}'\n"
            )
        };
        let routes: String = [(5001, "required"), (5002, "optional")].map(route).concat();
        let file = write("dormouse.toml", &routes);
        let (file, machine) = (Path::new(&file), Machine::read());
        let loaded = dormouse_config::load(Some(file), Section::Route, &[], &machine);
        let config = loaded.unwrap_or_else(|wrong| panic!("{wrong}")).config;
        let mut findings = Findings::default();
        let clients = load_client_trust(&config, &Workload::none(), &mut findings);
        let (former, changes) = (Former::none(), &mut Changes::default());
        let backends = load_backend_tls(&config, &former, &mut findings, changes);
        assert_eq!(findings.words(Severity::Error), [""; 0]);
        let of_clients = clients.iter().flatten().map(|trust| &trust.crls[0]);
        let of_backends = backends.iter().flatten();
        let of_backends = of_backends.map(|trust| &trust.revocation.crls[0]);
        for lists in [of_clients.collect::<Vec<_>>(), of_backends.collect()] {
            assert!(lists.len() == 2 && lists[0].shares_text(lists[1]));
        }
    }
}
