//! The certificates that serve while their files are read again.
//!
//! A certificate that serves is replaced by a better one or kept; only an explicit removal removes it. So these are kept:
//!
//! - a certificate whose files are invalid, do not match each other, or cannot be read
//! - a valid certificate whose files now have one that has expired, or is not valid yet
//! - all certificates of a directory that cannot be read, or is empty: perhaps its file system is not mounted
//! - a certificate of a directory of which some files are missing, or all of them for the first time: many programs remove a
//!   file before they write it again
//!
//! A certificate is removed when the configuration no longer names it or its directory, when two looks in a row find none of
//! its files, or when its files are missing and another certificate of the directory has all its names.

use super::contents::Material;
use super::workload::Workload;
use dormouse_engine::{DateProblem, Identity, IdentityWarning};
use dormouse_handover::{OriginPem, Pem, unix_time};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};

/// What serves now, and which files there were at the last look.
pub(crate) struct Former<'a> {
    material: Option<&'a Material>,
    /// The certificates from files, by the file of the chain ([`key`]): there may be tens of thousands, and each is looked up.
    by_chain_file: BTreeMap<String, Vec<&'a Pem>>,
    /// Those with an OCSP response that was fetched, by their chain.
    by_chain: HashMap<&'a str, &'a Pem>,
    was_there: &'a dyn Fn(&str) -> bool,
}

impl<'a> Former<'a> {
    /// Nothing serves yet.
    pub(crate) fn none() -> Former<'static> {
        Former {
            material: None,
            by_chain_file: BTreeMap::new(),
            by_chain: HashMap::new(),
            was_there: &|_| false,
        }
    }

    /// `was_there` returns whether the file with this name was there at the last look.
    pub(crate) fn of(material: &'a Material, was_there: &'a dyn Fn(&str) -> bool) -> Former<'a> {
        let mut former = Former {
            material: Some(material),
            was_there,
            ..Former::none()
        };
        for pem in of_files(material) {
            let of_file = former.by_chain_file.entry(key(&pem.name));
            of_file.or_default().push(pem);
        }
        let all = material.certificates.iter().flatten();
        for pem in all.filter(|pem| !pem.ocsp_from_file && !pem.ocsp.is_empty()) {
            former.by_chain.entry(&pem.chain).or_insert(pem);
        }
        former
    }

    /// The certificates of each route.
    pub(crate) fn certificates(&self) -> &'a [Vec<Pem>] {
        self.material.map_or(&[], |material| &material.certificates)
    }

    /// What the SPIFFE agent has given.
    pub(super) fn workload(&self) -> &'a Workload {
        static NONE: Workload = Workload::none();
        self.material.map_or(&NONE, |material| &material.workload)
    }

    /// The certificate that serves from these files.
    pub(super) fn pair(&self, cert: &Path, key: &Path) -> Option<&'a Pem> {
        let key_name = key.display().to_string();
        // A key that is missing for a moment is looked for in the chain's file, so the names may differ.
        let same_chain = self.of_chain_file(cert);
        let same = same_chain.iter().find(|pem| pem.key_name == key_name);
        same.or_else(|| same_chain.first()).copied()
    }

    /// The certificates whose chain is in this file.
    fn of_chain_file(&self, path: &Path) -> &[&'a Pem] {
        // Names are what is shown of a path.
        self.by_chain_file
            .get(&key(&path.display().to_string()))
            .map_or(&[], Vec::as_slice)
    }

    /// The certificate with this name, of an ACME server or made here: it may be in no file.
    pub(super) fn named(&self, name: &str) -> Option<&'a Pem> {
        let of_file = self.by_chain_file.get(&key(name));
        of_file.and_then(|pems| pems.first()).copied()
    }

    /// The certificate with this chain that has an OCSP response which was fetched.
    pub(super) fn with_chain(&self, chain: &str) -> Option<&'a Pem> {
        self.by_chain.get(chain).copied()
    }

    /// The certificates that serve from this file, or from files below this directory, ordered by name.
    pub(super) fn within(&self, path: &Path) -> Vec<&'a Pem> {
        self.within_but(path, |_| false)
    }

    /// As [`Former::within`], without those with a name that `is_known`.
    pub(super) fn within_but(&self, path: &Path, is_known: impl Fn(&str) -> bool) -> Vec<&'a Pem> {
        let file = key(&path.display().to_string());
        let directory = match file.ends_with('/') {
            true => file.clone(),
            false => format!("{file}/"),
        };
        let range = (Bound::Included(&directory), Bound::Unbounded);
        let below = self.by_chain_file.range::<String, _>(range);
        let below = below.take_while(|(file, _)| file.starts_with(&directory));
        let below = below.map(|(_, pems)| pems);
        let all = self.by_chain_file.get(&file).into_iter().chain(below);
        let all = all.filter_map(|pems| pems.last().copied());
        let mut found: Vec<&Pem> = all.filter(|pem| !is_known(&pem.name)).collect();
        found.sort_by(|one, other| Path::new(&one.name).cmp(Path::new(&other.name)));
        found
    }

    /// Why a certificate stays that this directory no longer has completely. `None`: it is removed.
    pub(super) fn missing(&self, pem: &Pem, directory: &Path) -> Option<String> {
        let (chain, key) = (Path::new(&pem.name), Path::new(&pem.key_name));
        let folder = chain.parent().unwrap_or(directory);
        let is_own = folder != Path::new(&directory.display().to_string());
        let remains = if is_own && is_there(folder) {
            format!("no certificate with its key in {}", folder.display())
        } else if is_there(chain) {
            format!("{}: is not a readable file", pem.name)
        } else if key != chain && is_there(key) {
            format!(
                "{}: no such file, but its key {} is there",
                pem.name, pem.key_name
            )
        } else if (self.was_there)(&pem.name) {
            format!(
                "{}: no such file; the certificate is removed unless the next look finds it",
                pem.name
            )
        } else {
            return None;
        };
        Some(remains)
    }
}

/// A path as it is shown, in one form, so that it can be compared byte by byte: to compare paths part by part takes long.
fn key(shown: &str) -> String {
    let path: PathBuf = Path::new(shown).components().collect();
    path.display().to_string()
}

/// The certificates that were not pushed, those of originations and for backends included.
fn of_files(material: &Material) -> impl Iterator<Item = &Pem> {
    let backends = material.backend_tls.iter().flatten();
    let origins = material.origins.iter().chain(backends);
    let of_origins = origins.filter_map(|OriginPem { identity, .. }| identity.as_ref());
    let certificates = material.certificates.iter().flatten();
    certificates
        .filter(|pem| !pem.is_pushed)
        .chain(of_origins)
        .chain(material.of_helpers.iter())
}

/// Whether there is a file, a link or a directory with this name, or that cannot be found out.
fn is_there(path: &Path) -> bool {
    let found = fs::symlink_metadata(path);
    !found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Position of a certificate among those of a directory: the name of its file, or of its own folder, there.
pub(super) fn place_in(directory: &Path, name: &str) -> PathBuf {
    let relative = Path::new(name).strip_prefix(directory.display().to_string());
    let first = relative.ok().and_then(|path| path.components().next());
    first.map_or_else(PathBuf::new, |first| directory.join(first))
}

/// The names of certificates that are valid now.
#[derive(Default)]
pub(super) struct Covered {
    certificates: usize,
    /// The certificates that have a name, by number; the name in lower case.
    by_name: HashMap<String, Vec<usize>>,
}

impl Covered {
    /// Adds the names of a certificate, if it is valid.
    pub(super) fn add(&mut self, pem: &Pem) {
        let valid = pem.identity().ok().filter(|one| untimely(one).is_none());
        for name in valid.into_iter().flat_map(Identity::names) {
            let having = self.by_name.entry(name.to_ascii_lowercase()).or_default();
            having.push(self.certificates);
        }
        self.certificates += usize::from(valid.is_some());
    }

    /// Whether one of the certificates has all names of this one.
    pub(super) fn has_all_of(&self, pem: &Pem) -> bool {
        let Ok(own) = pem.identity() else {
            return true;
        };
        let mut names = own.names().iter();
        let having = |name: &String| {
            let found = self.by_name.get(&name.to_ascii_lowercase());
            found.map_or(&[][..], Vec::as_slice)
        };
        match names.next() {
            None => self.certificates > 0,
            Some(first) => having(first)
                .iter()
                .any(|one| names.clone().all(|name| having(name).contains(one))),
        }
    }
}

/// Why the certificate `new` of the files of `current` does not replace it: it is not valid now, and `current` is.
pub(super) fn is_worse(new: &Identity, current: Option<&Pem>) -> Option<String> {
    let why = untimely(new)?;
    let identity = current?.identity();
    let is_valid = identity.is_ok_and(|current| untimely(current).is_none());
    is_valid.then_some(why)
}

/// Why a certificate is not valid now.
fn untimely(identity: &Identity) -> Option<String> {
    let is_of_time = |warning: &IdentityWarning| {
        matches!(
            warning,
            IdentityWarning::Dates(DateProblem::Expired { .. } | DateProblem::NotYetValid { .. })
        )
    };
    let warnings = identity.warnings(unix_time());
    let warning = warnings.into_iter().find(is_of_time);
    warning.map(|warning| warning.to_string())
}

/// How a read of the files differs from what served before.
#[derive(Default)]
pub(crate) struct Changes {
    /// Certificates that stay in use although their files say otherwise, each with the reason.
    pub(crate) kept: Vec<String>,
    /// Certificates whose files are new.
    pub(crate) new: Vec<String>,
    /// Certificates that no longer serve.
    pub(crate) removed: Vec<String>,
    /// Names that no certificate has any more.
    pub(crate) lost: Vec<String>,
    /// Files that are invalid, and whose certificates never served.
    pub(crate) skipped: Vec<String>,
}

impl Changes {
    /// Logs the names that are lost.
    pub(crate) fn log_lost(&self) {
        if !self.lost.is_empty() {
            let names = self.lost.join(", ");
            tracing::warn!(names, "names have no certificate any more");
        }
    }

    /// Adds what `former` has and `next` has no longer.
    pub(crate) fn compare(&mut self, former: &[Vec<Pem>], next: &[Vec<Pem>]) {
        let [former, next] = [former, next].map(|all| all.iter().flatten());
        let files: HashMap<&str, &Pem> = next.clone().map(|pem| (&*pem.name, pem)).collect();
        let mut lost = BTreeSet::new();
        let mut removed = BTreeSet::new();
        for pem in former {
            let successor = files.get(&*pem.name);
            if successor.is_none() && !pem.is_pushed {
                removed.insert(pem.name.clone());
            }
            // Nearly always they are the same, and nothing needs to be parsed.
            if successor.is_none_or(|successor| successor.chain != pem.chain) {
                let kept = successor.map(|pem| names_of(pem)).unwrap_or_default();
                lost.extend(
                    names_of(pem)
                        .into_iter()
                        .filter(|name| !kept.contains(name)),
                );
            }
        }
        if !lost.is_empty() {
            let have: HashSet<String> = next.flat_map(names_of).collect();
            lost.retain(|name| !have.contains(name));
        }
        self.removed.extend(removed);
        self.lost.extend(lost);
    }
}

fn names_of(pem: &Pem) -> Vec<String> {
    let identity = pem.identity();
    identity.map_or_else(|_| Vec::new(), |identity| identity.names().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::material::findings::Findings;
    use dormouse_config::{Config, Flag, Machine, Section, Severity};

    /// A directory with certificates, and the configuration that names it.
    struct Certificates {
        folder: tempfile::TempDir,
        config: Config,
    }

    impl Certificates {
        fn of(names: &[&str]) -> Certificates {
            let folder = tempfile::tempdir().expect("a folder");
            let flags = [
                ("listen", "127.0.0.1:8443"),
                ("to", "echo:"),
                ("certificates", &folder.path().display().to_string()),
            ];
            let flags = flags.map(|(name, value)| Flag::new(name, value));
            let machine = Machine::read();
            let loaded = dormouse_config::load(None, Section::Route, &flags, &machine);
            let loaded = loaded.unwrap_or_else(|mistakes| panic!("{mistakes}"));
            let certificates = Certificates {
                folder,
                config: loaded.config,
            };
            for name in names {
                let (chain, key) = made(name);
                certificates.write(&format!("{name}.pem"), &chain);
                certificates.write(&format!("{name}.key"), &key);
            }
            certificates
        }

        fn at(&self, file: &str) -> PathBuf {
            self.folder.path().join(file)
        }

        fn write(&self, file: &str, text: &str) {
            fs::write(self.at(file), text).expect("written");
        }

        fn remove(&self, files: &[&str]) {
            for file in files {
                fs::remove_file(self.at(file)).expect("removed");
            }
        }

        /// As at a start.
        fn start(&self) -> Material {
            self.read(&Former::none()).expect("valid certificates").0
        }

        /// As at a reload. The error is that of the rejected configuration.
        fn reload(&self, now: &Material) -> Result<(Material, Changes), Vec<String>> {
            self.read(&Former::of(now, &|_| true))
        }

        fn read(&self, former: &Former<'_>) -> Result<(Material, Changes), Vec<String>> {
            let mut findings = Findings::default();
            let read = Material::load(&self.config, former, &mut findings);
            let errors = findings.words(Severity::Error);
            errors.is_empty().then_some(read).ok_or(errors)
        }
    }

    fn made(name: &str) -> (String, String) {
        let (chain, key) = Identity::self_signed_pem(name).expect("a certificate");
        (chain, key.to_string())
    }

    /// A certificate for a.example of 2010 to 2015, and its key.
    const EXPIRED: [&str; 2] = [
        "\
-----BEGIN CERTIFICATE-----
MIIBCjCBsKADAgECAgEBMAoGCCqGSM49BAMCMAAwHhcNMTAwMTAxMDAwMDAwWhcN
MTUwMTAxMDAwMDAwWjAAMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEJdutDeQs
SlvRA1OdeZOZgI80/oX5hBCeEVA5DlM/CKDzPhUilTSehy2bhVPnVtVh6Pic1fxb
nEOOp44yiAQEwaMbMBkwFwYDVR0RAQH/BA0wC4IJYS5leGFtcGxlMAoGCCqGSM49
BAMCA0kAMEYCIQDJIHQaVPRBC1Hex5wbMXT5gzmrkCod8ioHA6lYNWnNZQIhAMZv
P4i9lUIIaxfkgy2QGZ5NrwBAhQko9Xu8sW6Bo4dI
-----END CERTIFICATE-----
",
        "\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgB51xpstQiujgm4Mq
JQOmHCW4UC9Wgl/+j/4x4Piy2GihRANCAAQl260N5CxKW9EDU515k5mAjzT+hfmE
EJ4RUDkOUz8IoPM+FSKVNJ6HLZuFU+dW1WHo+JzV/FucQ46njjKIBATB
-----END PRIVATE KEY-----
",
    ];

    fn served(material: &Material) -> Vec<&str> {
        let pems = material.certificates[0].iter();
        pems.map(|pem| pem.chain.as_str()).collect()
    }

    #[test]
    fn a_reload_in_the_middle_of_a_rotation_keeps_what_serves() {
        let (chain, key) = made("a.example");
        let half = &key[..key.len() / 2];
        type Step<'a> = (&'a str, &'a dyn Fn(&Certificates));
        let steps: [Step<'_>; 8] = [
            ("the key", &|at| at.write("a.example.key", &key)),
            ("the certificate", &|at| at.write("a.example.pem", &chain)),
            ("half of the key", &|at| at.write("a.example.key", half)),
            ("an empty certificate", &|at| at.write("a.example.pem", "")),
            ("no key", &|at| at.remove(&["a.example.key"])),
            ("no certificate", &|at| at.remove(&["a.example.pem"])),
            ("neither", &|at| {
                at.remove(&["a.example.pem", "a.example.key"])
            }),
            ("a broken link", &|at| {
                at.remove(&["a.example.pem", "a.example.key"]);
                let link = at.at("a.example.pem");
                std::os::unix::fs::symlink("nowhere", link).expect("a link");
            }),
        ];
        for (what, step) in steps {
            let at = Certificates::of(&["a.example", "b.example"]);
            let now = at.start();
            step(&at);
            let (next, changes) = at
                .reload(&now)
                .unwrap_or_else(|why| panic!("{what}: {why:?}"));
            assert_eq!(served(&next), served(&now), "{what}");
            assert_eq!(changes.kept.len(), 1, "{what}: {:?}", changes.kept);
            assert!(changes.kept[0].contains("a.example."), "{:?}", changes.kept);
            assert!(
                changes.removed.is_empty() && changes.lost.is_empty(),
                "{what}"
            );
            // Another look, with the next binary, keeps it as well.
            let (renewed, _) = next.renew(&at.config, &|_| true);
            assert_eq!(served(&renewed), served(&now), "{what}");
            at.write("a.example.pem", &chain);
            at.write("a.example.key", &key);
            let (next, changes) = at.reload(&next).expect("valid certificates");
            assert_eq!(served(&next)[0], chain, "{what}");
            assert!(changes.kept.is_empty(), "{what}: {:?}", changes.kept);
        }
    }

    /// A start with such a directory would fail, so a reload is rejected and changes nothing.
    #[test]
    fn a_reload_without_any_usable_certificate_is_rejected() {
        let steps: [&dyn Fn(&Certificates); 3] = [
            &|at| at.write("a.example.key", &made("a.example").1),
            &|at| at.remove(&["a.example.pem", "a.example.key"]),
            &|at| {
                fs::rename(at.folder.path(), at.folder.path().with_extension("away"))
                    .expect("renamed")
            },
        ];
        for (n, step) in steps.iter().enumerate() {
            let at = Certificates::of(&["a.example"]);
            let now = at.start();
            step(&at);
            assert!(at.reload(&now).is_err(), "{n}");
            let (renewed, changes) = now.renew(&at.config, &|_| false);
            assert_eq!(served(&renewed), served(&now), "{n}");
            assert_eq!(changes.kept.len(), 1, "{n}: {:?}", changes.kept);
            let away = at.folder.path().with_extension("away");
            if away.exists() {
                fs::rename(away, at.folder.path()).expect("renamed back");
            }
        }
    }

    #[test]
    fn a_removal_is_confirmed_by_a_second_look() {
        let at = Certificates::of(&["a.example", "b.example"]);
        let now = at.start();
        at.remove(&["a.example.pem", "a.example.key"]);
        let (next, _) = at.reload(&now).expect("valid certificates");
        assert_eq!(served(&next).len(), 2);
        let (next, changes) = at.read(&Former::of(&next, &|_| false)).expect("valid");
        assert_eq!(served(&next), served(&now)[1..]);
        assert_eq!(
            changes.removed,
            [at.at("a.example.pem").display().to_string()]
        );
        assert_eq!(changes.lost, ["a.example"]);
    }

    /// The files of one pair are removed, while another pair has the same name.
    #[test]
    fn a_pair_whose_names_another_one_has_is_removed_at_once() {
        let at = Certificates::of(&["a.example", "b.example"]);
        let now = at.start();
        let (chain, key) = made("a.example");
        at.write("z.pem", &format!("{chain}{key}"));
        // Its key is left behind.
        at.remove(&["a.example.pem"]);
        let (next, changes) = at.reload(&now).expect("valid certificates");
        assert_eq!(served(&next), [served(&now)[1], &chain]);
        assert!(changes.kept.is_empty() && changes.lost.is_empty());
        assert_eq!(changes.removed.len(), 1);
    }

    /// There may be tens of thousands.
    #[test]
    fn a_certificate_that_has_not_changed_is_parsed_once() {
        let mut at = Certificates::of(&["a.example", "b.example"]);
        let route = at.config.routes[0].clone();
        at.config.routes.push(route);
        let now = at.start();
        let (chain, key) = made("b.example");
        at.write("b.example.pem", &chain);
        at.write("b.example.key", &key);
        let (next, _) = at.reload(&now).expect("valid certificates");
        let parsed = |material: &Material, route: usize, place: usize| {
            let pem = &material.certificates[route][place];
            std::ptr::from_ref(pem.identity().expect("a certificate"))
        };
        assert_eq!(parsed(&next, 0, 0), parsed(&now, 0, 0));
        assert_ne!(parsed(&next, 0, 1), parsed(&now, 0, 1));
        for place in 0..2 {
            assert_eq!(parsed(&next, 1, place), parsed(&next, 0, place));
        }
    }

    #[test]
    fn an_expired_certificate_replaces_no_valid_one() {
        let at = Certificates::of(&["a.example", "b.example"]);
        let now = at.start();
        at.write("a.example.pem", EXPIRED[0]);
        at.write("a.example.key", EXPIRED[1]);
        let (next, changes) = at.reload(&now).expect("valid certificates");
        assert_eq!(served(&next), served(&now));
        assert!(changes.kept[0].contains("expired"), "{:?}", changes.kept);
        let (renewed, _) = next.renew(&at.config, &|_| true);
        assert_eq!(served(&renewed), served(&now));
        // At a start there is nothing better.
        let begun = at.start();
        assert_eq!(served(&begun)[0], EXPIRED[0]);
        // One that is as bad replaces it.
        let (chain, key) = made("a.example");
        at.write("a.example.pem", &chain);
        at.write("a.example.key", &key);
        let (next, _) = at.reload(&begun).expect("valid certificates");
        assert_eq!(served(&next)[0], chain);
    }

    #[test]
    fn names_that_are_lost_are_reported() {
        let at = Certificates::of(&["a.example", "b.example"]);
        let now = at.start();
        let (chain, key) = made("other.example");
        at.write("a.example.pem", &chain);
        at.write("a.example.key", &key);
        let (next, changes) = at.reload(&now).expect("valid certificates");
        assert_eq!(served(&next)[0], chain);
        assert_eq!(changes.lost, ["a.example"]);
        assert!(changes.removed.is_empty() && changes.kept.is_empty());
    }

    /// certbot's layout: a pair has a directory of its own.
    #[test]
    fn a_folder_without_its_files_keeps_its_certificate() {
        let at = Certificates::of(&["b.example"]);
        let (chain, key) = made("a.example");
        fs::create_dir(at.at("live")).expect("a folder");
        at.write("live/fullchain.pem", &chain);
        at.write("live/privkey.pem", &key);
        let now = at.start();
        at.remove(&["live/fullchain.pem", "live/privkey.pem"]);
        let look = |now: &Material| at.read(&Former::of(now, &|_| false)).expect("valid");
        let (next, changes) = look(&now);
        assert_eq!(served(&next), served(&now));
        assert_eq!(changes.kept.len(), 1);
        fs::remove_dir(at.at("live")).expect("removed");
        let (next, changes) = look(&next);
        assert_eq!(served(&next).len(), 1);
        assert_eq!(changes.removed.len(), 1);
    }
}
