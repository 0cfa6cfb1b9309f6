//! Which files of a directory belong together, in the layouts of the programs that write them.
//!
//! | chain | its key | as written by |
//! |---|---|---|
//! | `NAME.pem`, `.crt`, `.cer` | `NAME.key`, or in the same file | lego, tls secrets of Kubernetes |
//! | the same | `NAME.crt.key` | HAProxy's extra files |
//! | `NAME.pem`, `NAME-cert.pem` | `NAME-key.pem` | mkcert, Docker |
//! | `cert.pem` | `key.pem` | many manuals |
//! | `NAME.pem.rsa`, `.ecdsa` | in the same file, or `NAME.pem.rsa.key` | HAProxy's bundles |
//! | `fullchain.pem` | `privkey.pem` | certbot, dehydrated |
//! | `fullchain.cer` | `NAME.key`, where `NAME` or `NAME_ecc` is the directory | acme.sh |
//! | `certs/NAME.crt` | `private/NAME.key` | traefik-certs-dumper |
//!
//! A directory of directories has one pair in each: `fullchain.pem`, `fullchain.cer`, `tls.crt`, `cert.pem`, the name of
//! the directory (Caddy), or `certificate.crt` with `privatekey.key`. Case does not matter. `NAME.ocsp` and
//! `NAME.pem.ocsp` are OCSP responses, DER. Names that begin with a dot are hidden.

use super::directory::{Entry, entries};
use super::pair::{PairFiles, read_with};
use dormouse_engine::{IdentityProblem, PemFile};
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

const CHAINS: [&str; 3] = ["pem", "crt", "cer"];
const PARTS: [&str; 4] = ["pem", "crt", "cer", "key"];
/// Kinds of keys in HAProxy's bundles.
const BUNDLES: [&str; 3] = ["rsa", "ecdsa", "dsa"];

/// What a directory has.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Ordered by name.
    pub(super) pairs: Vec<PairFiles>,
    /// Files and directories that belong to no pair.
    pub(super) others: Vec<PathBuf>,
    /// All directories in it.
    pub(super) directories: Vec<PathBuf>,
}

/// Paths in one directory, compared byte by byte: to compare tens of thousands of paths part by part takes long.
#[derive(Default)]
struct Paths(HashSet<OsString>);

impl Paths {
    fn has(&self, path: &Path) -> bool {
        self.0.contains(path.as_os_str())
    }

    /// Adds a path. Returns `false` if it was there.
    fn add(&mut self, path: &Path) -> bool {
        self.0.insert(path.as_os_str().to_owned())
    }
}

/// Finds the pairs in a directory.
pub(super) fn look_into(directory: &Path) -> Result<Found, String> {
    let names = Names::of(directory, entries(directory)?);
    let mut used = Paths::default();
    let mut pairs = Pairs::default();
    // A directory that certbot or acme.sh keeps for one name.
    if let Some((chain, key)) = own_pair(directory, &names) {
        let companions = ["cert.pem", "chain.pem", "ca.cer"].map(|name| names.find(name));
        for companion in companions.into_iter().flatten() {
            used.add(companion);
        }
        used.add(&key.with_extension("cer"));
        pairs.insert(chain, key);
    }
    let files = names.entries.iter().filter(|entry| entry.is_file());
    for chain in files.map(|file| &file.path).filter(|path| is_chain(path)) {
        if !used.has(chain) && !pairs.has(chain) {
            let key = key_of(chain, &names).unwrap_or_else(|| chain.clone());
            pairs.insert(chain.clone(), key);
        }
    }
    pairs.drop_keys();
    let directories = names.entries.iter().filter(|entry| entry.is_directory());
    for directory in directories.map(|entry| &entry.path) {
        let of_name = directory.file_name().unwrap_or_default().to_string_lossy();
        let before = pairs.in_order.len();
        let mut add = |(chain, key)| pairs.insert(chain, key);
        pair_of(directory, &of_name).into_iter().for_each(&mut add);
        if of_name == "certs" {
            with_private(directory)?.into_iter().for_each(add);
        }
        if of_name == "private" || pairs.in_order.len() > before {
            used.add(directory);
        }
    }
    let mut found = Found::default();
    for (cert, key) in pairs.sorted() {
        let ocsp = [cert.with_extension("ocsp"), with_more(&cert, "ocsp")];
        let ocsp = ocsp.into_iter().find(|path| names.is_file(path));
        for path in [&cert, &key].into_iter().chain(&ocsp) {
            used.add(path);
        }
        found.pairs.push(PairFiles {
            cert,
            key,
            ocsp,
            passphrase: None,
            found: true,
        });
    }
    for entry in names.entries {
        if entry.is_directory() {
            found.directories.push(entry.path.clone());
        }
        if !used.has(&entry.path) {
            found.others.push(entry.path);
        }
    }
    Ok(found)
}

/// The pairs of a directory: chain and key. They are nearly in order, because the files of a directory are.
#[derive(Default)]
struct Pairs {
    in_order: Vec<(PathBuf, PathBuf)>,
    chains: Paths,
}

impl Pairs {
    fn has(&self, chain: &Path) -> bool {
        self.chains.has(chain)
    }

    /// Adds a pair. If the chain has one already, it gets this key.
    fn insert(&mut self, chain: PathBuf, key: PathBuf) {
        if self.chains.add(&chain) {
            self.in_order.push((chain, key));
            return;
        }
        let mut all = self.in_order.iter_mut();
        if let Some((_, former)) = all.find(|(known, _)| *known == chain) {
            *former = key;
        }
    }

    /// Drops the pairs whose chain is the key of another chain.
    fn drop_keys(&mut self) {
        let mut keys = Paths::default();
        for (chain, key) in &self.in_order {
            if chain.as_os_str() != key.as_os_str() {
                keys.add(key);
            }
        }
        self.in_order.retain(|(chain, _)| !keys.has(chain));
        self.chains.0.retain(|chain| !keys.0.contains(chain));
    }

    fn sorted(mut self) -> Vec<(PathBuf, PathBuf)> {
        self.in_order.sort_by(|(one, _), (other, _)| one.cmp(other));
        self.in_order
    }
}

/// Why this file or directory is not used. `None`: it has nothing to do with certificates.
pub(super) fn reason(path: &Path) -> Option<String> {
    let shown = path.display();
    if path.is_dir() {
        return Some(format!(
            "{shown}: no chain with its key in this directory{}",
            parts_in(path)
        ));
    }
    let file = match read_with(PemFile::read, path) {
        Ok(file) => file,
        // A link to nothing, or a pipe: its name says that it should have been a certificate or a key.
        Err(why) => return has_extension(path, &PARTS).then_some(why),
    };
    let refused = match file.chain() {
        Ok(_) => {
            let why = "its name is not that of a chain, which ends with .pem, .crt or .cer";
            return Some(format!("{shown}: {why}"));
        }
        Err(refused) => refused,
    };
    match refused.problem {
        IdentityProblem::KeyInsteadOfCertificate => Some(format!(
            "{shown}: no chain belongs to this key; {} is missing",
            path.with_extension("pem").display()
        )),
        IdentityProblem::NotPem(_) | IdentityProblem::BadPem { .. } => Some(refused.to_string()),
        _ => None,
    }
}

/// The files in a directory whose names are those of chains or keys, in words.
fn parts_in(directory: &Path) -> String {
    const NAMED_MAX: usize = 3;
    let parts = entries(directory).unwrap_or_default().into_iter();
    let mut parts: Vec<PathBuf> = parts.map(|entry| entry.path).collect();
    parts.retain(|path| has_extension(path, &PARTS));
    let more = parts.len().saturating_sub(NAMED_MAX);
    let names = parts.iter().take(NAMED_MAX);
    let names: Vec<_> = names
        .filter_map(|path| Some(path.file_name()?.to_string_lossy()))
        .collect();
    match (names.is_empty(), more) {
        (true, _) => String::new(),
        (false, 0) => format!(", which has {}", names.join(", ")),
        (false, more) => format!(", which has {} and {more} more", names.join(", ")),
    }
}

/// The names in a directory, for lookups without regard to case.
struct Names {
    directory: PathBuf,
    entries: Vec<Entry>,
    by_name: HashMap<String, usize>,
}

impl Names {
    fn of(directory: &Path, entries: Vec<Entry>) -> Names {
        let all = entries.iter().enumerate();
        let by_name = all.map(|(at, entry)| (folded(&entry.path), at)).collect();
        Names {
            directory: directory.to_owned(),
            entries,
            by_name,
        }
    }

    fn find(&self, name: &str) -> Option<&Path> {
        let at = *self.by_name.get(&name.to_lowercase())?;
        let entry = self.entries.get(at)?;
        entry.is_file().then_some(&entry.path)
    }

    /// Whether there is a file with exactly this path, in the directory or below it.
    fn is_file(&self, path: &Path) -> bool {
        let known = self.by_name.get(&folded(path));
        match known.and_then(|&at| self.entries.get(at)) {
            Some(entry) if entry.path == path => entry.is_file(),
            None if path.parent() == Some(&self.directory) => false,
            _ => path.is_file(),
        }
    }
}

/// The name of a file, for lookups without regard to case.
fn folded(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.to_lowercase()
}

fn is_chain(path: &Path) -> bool {
    has_extension(path, &CHAINS)
        || has_extension(path, &BUNDLES) && has_extension(&path.with_extension(""), &CHAINS)
}

fn has_extension(path: &Path, known: &[&str]) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|own| known.iter().any(|other| own.eq_ignore_ascii_case(other)))
}

/// The file beside a chain that has its key.
fn key_of(chain: &Path, names: &Names) -> Option<PathBuf> {
    let name = chain.file_name()?.to_str()?;
    let stem = chain.file_stem()?.to_str()?;
    let base = stem.strip_suffix("-cert").unwrap_or(stem);
    let mut candidates = vec![format!("{stem}.key"), format!("{name}.key")];
    if has_extension(chain, &["pem"]) {
        candidates.push(format!("{base}-key.pem"));
        if stem.eq_ignore_ascii_case("cert") {
            candidates.push("key.pem".to_owned());
        }
    }
    let found = candidates.iter().find_map(|name| names.find(name));
    found.map(Path::to_owned)
}

/// The pair of a directory that is of one name, with files beside it that are parts of the chain.
fn own_pair(directory: &Path, names: &Names) -> Option<(PathBuf, PathBuf)> {
    let of_name = directory.file_name().unwrap_or_default().to_string_lossy();
    let key = format!("{}.key", without_ecc(&of_name));
    let known = [("fullchain.pem", "privkey.pem"), ("fullchain.cer", &key)];
    let mut found = known.into_iter().filter_map(|(chain, key)| {
        let pair = names.find(chain).zip(names.find(key));
        pair.map(|(chain, key)| (chain.to_owned(), key.to_owned()))
    });
    found.next()
}

/// The pair in a directory with this name below the configured one.
fn pair_of(directory: &Path, of_name: &str) -> Option<(PathBuf, PathBuf)> {
    let base = without_ecc(of_name);
    let key = format!("{base}.key");
    let chain = format!("{base}.crt");
    let known = [
        ("fullchain.pem", "privkey.pem"),
        ("fullchain.cer", &key),
        ("tls.crt", "tls.key"),
        (&chain, &key),
        ("certificate.crt", "privatekey.key"),
        ("cert.pem", "key.pem"),
    ];
    let mut pairs = known
        .into_iter()
        .map(|(chain, key)| (directory.join(chain), directory.join(key)));
    pairs.find(|(chain, key)| chain.is_file() && key.is_file())
}

fn without_ecc(name: &str) -> &str {
    name.strip_suffix("_ecc").unwrap_or(name)
}

/// The chains in `certs` whose keys are in `private` beside it. Others are those of authorities, in `/etc/ssl/certs`.
fn with_private(certs: &Path) -> Result<Vec<(PathBuf, PathBuf)>, String> {
    let private = certs.with_file_name("private");
    let chains = entries(certs)?.into_iter().map(|entry| entry.path);
    let chains = chains.filter(|path| is_chain(path));
    let pairs = chains.filter_map(|chain| {
        let key = private.join(chain.with_extension("key").file_name()?);
        (chain.is_file() && key.is_file()).then_some((chain, key))
    });
    Ok(pairs.collect())
}

/// The same path with one more extension.
fn with_more(path: &Path, extension: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Makes these files in a directory, and returns the pairs and what is left over, by their names.
    fn look(directory: &str, files: &[&str]) -> (Vec<String>, Vec<String>) {
        let folder = tempfile::tempdir().expect("a folder");
        let top = folder.path().join(directory);
        for name in files {
            let path = top.join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            fs::write(path, "x").expect("written");
        }
        let name = |path: &Path| {
            path.strip_prefix(&top)
                .expect("below")
                .display()
                .to_string()
        };
        let found = look_into(&top).expect("a directory");
        let pairs = found.pairs.iter().map(|pair| {
            let ocsp = pair.ocsp.as_deref().map(|ocsp| format!(" {}", name(ocsp)));
            let key = if pair.key == pair.cert {
                "-".to_owned()
            } else {
                name(&pair.key)
            };
            format!("{} {key}{}", name(&pair.cert), ocsp.unwrap_or_default())
        });
        (
            pairs.collect(),
            found.others.iter().map(|path| name(path)).collect(),
        )
    }

    #[test]
    fn file_names_define_pairs() {
        let hidden = [".hidden.pem", "..data/tls.crt", "..2026_11_29/tls.crt"];
        for (directory, files, pairs, others) in [
            (
                "flat",
                &["b.crt", "b.key", "a.pem", "README", "alone.key"][..],
                &["a.pem -", "b.crt b.key"][..],
                &["README", "alone.key"][..],
            ),
            (
                "case",
                &["g.PEM", "h.Crt", "h.KEY"],
                &["g.PEM -", "h.Crt h.KEY"],
                &[],
            ),
            ("secret", &["tls.crt", "tls.key"], &["tls.crt tls.key"], &[]),
            (
                "haproxy",
                &[
                    "a.pem",
                    "a.pem.ocsp",
                    "a.pem.issuer",
                    "b.crt",
                    "b.crt.key",
                    "c.pem",
                    "c.ocsp",
                ],
                &["a.pem - a.pem.ocsp", "b.crt b.crt.key", "c.pem - c.ocsp"],
                &["a.pem.issuer"],
            ),
            (
                "bundles",
                &[
                    "a.pem.rsa",
                    "a.pem.ecdsa",
                    "b.pem.rsa",
                    "b.pem.rsa.key",
                    "a.rsa",
                ],
                &["a.pem.ecdsa -", "a.pem.rsa -", "b.pem.rsa b.pem.rsa.key"],
                &["a.rsa"],
            ),
            (
                "mkcert",
                &[
                    "localhost+2.pem",
                    "localhost+2-key.pem",
                    "server-cert.pem",
                    "server-key.pem",
                    "cert.pem",
                    "key.pem",
                ],
                &[
                    "cert.pem key.pem",
                    "localhost+2.pem localhost+2-key.pem",
                    "server-cert.pem server-key.pem",
                ],
                &[],
            ),
            (
                "lego",
                &[
                    "a.example.crt",
                    "a.example.key",
                    "a.example.issuer.crt",
                    "a.example.json",
                ],
                &["a.example.crt a.example.key", "a.example.issuer.crt -"],
                &["a.example.json"],
            ),
            (
                "live",
                &[
                    "README",
                    "a.example/fullchain.pem",
                    "a.example/privkey.pem",
                    "a.example/cert.pem",
                    "a.example/chain.pem",
                ],
                &["a.example/fullchain.pem a.example/privkey.pem"],
                &["README"],
            ),
            (
                "a.example",
                &["fullchain.pem", "privkey.pem", "cert.pem", "chain.pem"],
                &["fullchain.pem privkey.pem"],
                &[],
            ),
            (
                "acme.sh",
                &[
                    "a.example_ecc/fullchain.cer",
                    "a.example_ecc/a.example.cer",
                    "a.example_ecc/a.example.key",
                    "a.example_ecc/ca.cer",
                    "ca/x",
                ],
                &["a.example_ecc/fullchain.cer a.example_ecc/a.example.key"],
                &["ca"],
            ),
            (
                "b.example_ecc",
                &[
                    "fullchain.cer",
                    "b.example.cer",
                    "b.example.key",
                    "ca.cer",
                    "b.example.conf",
                ],
                &["fullchain.cer b.example.key"],
                &["b.example.conf"],
            ),
            (
                "caddy",
                &[
                    "a.example/a.example.crt",
                    "a.example/a.example.key",
                    "a.example/a.example.json",
                ],
                &["a.example/a.example.crt a.example/a.example.key"],
                &[],
            ),
            (
                "secrets",
                &["a/tls.crt", "a/tls.key", "b/nothing"],
                &["a/tls.crt a/tls.key"],
                &["b"],
            ),
            (
                "traefik",
                &["certs/a.crt", "certs/b.crt", "private/a.key"],
                &["certs/a.crt private/a.key"],
                &[],
            ),
            (
                "traefik",
                &["a/certificate.crt", "a/privatekey.key"],
                &["a/certificate.crt a/privatekey.key"],
                &[],
            ),
            ("hidden", &hidden, &[], &[]),
        ] {
            let found = look(directory, files);
            let expected = [pairs, others]
                .map(|all| all.iter().map(|&one| one.to_owned()).collect::<Vec<_>>());
            assert_eq!([found.0, found.1], expected, "{directory}");
        }
    }

    #[test]
    fn what_may_be_a_certificate_is_named_with_its_reason() {
        let leaf = dormouse_testkit::Authority::shared().ecdsa(&["a.example"]);
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text, reason) in [
            (
                "a.pem.bak",
                leaf.certificate_pem.as_bytes(),
                "its name is not that of a chain",
            ),
            ("a.key", leaf.key_pem.as_bytes(), "a.pem is missing"),
            ("a.p12", b"\x30\x80\x02\x01\x03", "openssl pkcs12 -in FILE"),
            (
                "a.txt",
                b"-----BEGIN CERTIFICATE-----\n",
                "a.txt:1: the section",
            ),
            ("README", b"about these", ""),
            (
                "a.csr",
                b"-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----\n",
                "",
            ),
        ] {
            let path = folder.path().join(name);
            fs::write(&path, text).expect("written");
            let found = super::reason(&path).unwrap_or_default();
            assert!(
                found.contains(reason) && found.is_empty() == reason.is_empty(),
                "{name}: {found}"
            );
        }
    }
}
