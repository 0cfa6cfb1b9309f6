//! The files that a configuration means: pairs of certificate and key, and the contents of directories.
//!
//! In a directory, file names define what belongs together:
//!
//! | file | is |
//! |---|---|
//! | `NAME.pem`, `.crt`, `.cer` | a chain; its key is in `NAME.key`, or in the same file |
//! | `NAME.key` | the key of that chain |
//! | `NAME.ocsp` | an OCSP response for that chain, DER |
//! | a directory with `fullchain.pem` and `privkey.pem` | a pair, in the layout of certbot |
//!
//! Other files are ignored, and so are names that begin with a dot.

use crate::error::unreadable;
use dormouse_config::CertificateFiles;
use dormouse_reactor::process;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Maximum number of certificates in one directory.
const CERTIFICATES_MAX: usize = 4096;
/// Maximum number of certificate, CA or CRL files in one directory.
const FILES_MAX: usize = 4 * CERTIFICATES_MAX;

const CHAINS: [&str; 3] = ["pem", "crt", "cer"];

/// Paths of a certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PairFiles {
    /// The chain.
    pub(super) cert: PathBuf,
    /// The key; may be the same file.
    pub(super) key: PathBuf,
    /// An OCSP response.
    pub(super) ocsp: Option<PathBuf>,
    /// Found in a directory, not named by the configuration: if it is invalid, the others are used
    /// without it.
    pub(super) found: bool,
}

/// The pairs that `files` stands for, ordered by name.
pub(super) fn pairs(files: &CertificateFiles) -> Result<Vec<PairFiles>, String> {
    let CertificateFiles { cert, key, ocsp } = files;
    // A directory that is absent for a moment is no file.
    let is_directory = || fs::metadata(cert).map(|found| found.is_dir());
    if cert != key || !is_directory().map_err(|error| unreadable(cert, &error))? {
        return Ok(vec![PairFiles {
            cert: cert.clone(),
            key: key.clone(),
            ocsp: ocsp.clone(),
            found: false,
        }]);
    }
    let mut pairs = Vec::new();
    for path in entries(cert)? {
        let (chain, key) = if path.is_dir() {
            (path.join("fullchain.pem"), path.join("privkey.pem"))
        } else if has_extension(&path, &CHAINS) {
            let key = path.with_extension("key");
            let key = if key.is_file() { key } else { path.clone() };
            (path, key)
        } else {
            continue;
        };
        if chain.is_file() && key.is_file() {
            let ocsp = chain.with_extension("ocsp");
            pairs.push(PairFiles {
                cert: chain,
                key,
                ocsp: ocsp.is_file().then_some(ocsp),
                found: true,
            });
        }
    }
    match pairs.len() {
        0 => Err(format!(
            "{}: no certificates in this directory; it needs NAME.pem with NAME.key, or NAME/fullchain.pem with NAME/privkey.pem",
            cert.display()
        )),
        n if n > CERTIFICATES_MAX => Err(format!(
            "{}: {n} certificates in this directory; at most {CERTIFICATES_MAX} are allowed",
            cert.display()
        )),
        _ => Ok(pairs),
    }
}

/// A file, or all files of a directory ordered by name. `what` names their contents for the error.
pub(crate) fn files_of(path: &Path, what: &str) -> Result<Vec<PathBuf>, String> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let files: Vec<PathBuf> = entries(path)?.into_iter().filter(|e| e.is_file()).collect();
    if files.is_empty() {
        return Err(format!("{}: no {what} in this directory", path.display()));
    }
    Ok(files)
}

/// All paths whose change requires another read.
pub(crate) fn watched(files: &CertificateFiles) -> BTreeSet<PathBuf> {
    let mut all = BTreeSet::from([files.cert.clone(), files.key.clone()]);
    for pair in pairs(files).unwrap_or_default() {
        all.extend([pair.cert, pair.key]);
        all.extend(pair.ocsp);
    }
    all
}

/// Whether files can be created in this directory, or in the nearest existing one above it. Creates
/// nothing.
pub(crate) fn can_write_into(directory: &Path) -> io::Result<()> {
    // The parent of a relative path is the empty path.
    let named = |path: &Path| match path.as_os_str().is_empty() {
        true => PathBuf::from("."),
        false => path.to_owned(),
    };
    let mut exists = directory
        .ancestors()
        .map(named)
        .filter(|path| path.exists());
    let nearest = exists.next().unwrap_or_else(|| PathBuf::from("/"));
    if !nearest.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    process::may_write(&nearest)
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let cannot = |error: io::Error| unreadable(directory, &error);
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        if name.starts_with(b".") {
            continue;
        }
        if paths.len() == FILES_MAX {
            return Err(format!(
                "{}: more than {FILES_MAX} files in this directory",
                directory.display()
            ));
        }
        paths.push(path);
    }
    paths.sort();
    Ok(paths)
}

fn has_extension(path: &Path, known: &[&str]) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| known.contains(&extension))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_define_pairs() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        for name in [
            "b.crt",
            "b.key",
            "a.pem",
            "README",
            ".hidden.pem",
            "alone.key",
            "c.txt",
        ] {
            fs::write(at(name), "x").expect("written");
        }
        for name in ["live", "other"] {
            fs::create_dir(at(name)).expect("a folder");
        }
        fs::write(at("live/fullchain.pem"), "x").expect("written");
        fs::write(at("live/privkey.pem"), "x").expect("written");
        let files = CertificateFiles {
            cert: folder.path().to_owned(),
            key: folder.path().to_owned(),
            ocsp: None,
        };
        let found: Vec<(PathBuf, PathBuf)> = (pairs(&files).expect("pairs of files").into_iter())
            .map(|pair| (pair.cert, pair.key))
            .collect();
        let wanted = [
            (at("a.pem"), at("a.pem")),
            (at("b.crt"), at("b.key")),
            (at("live/fullchain.pem"), at("live/privkey.pem")),
        ];
        assert_eq!(found, wanted);
        let empty = CertificateFiles {
            cert: at("other"),
            key: at("other"),
            ocsp: None,
        };
        let why = pairs(&empty).expect_err("the directory is empty");
        assert!(
            why.contains("other: no certificates in this directory"),
            "{why}"
        );
    }
}
