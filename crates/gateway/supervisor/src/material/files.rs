//! The files that a configuration means: pairs of certificate and key, and the contents of directories.

use super::directory::{CERTIFICATES_MAX, Entry, entries};
use super::layouts::{self, Found};
use super::pair::PairFiles;
use crate::error::unreadable;
use dormouse_config::CertificateFiles;
use dormouse_reactor::process;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Maximum number of other files in a directory that are named.
const OTHERS_NAMED_MAX: usize = 20;

/// The pairs that `files` stands for, ordered by name, and what else is in their directory.
pub(super) fn pairs(files: &CertificateFiles) -> Result<Found, String> {
    let found = look_for(files)?;
    let cert = &files.cert;
    match found.pairs.len() {
        0 => {
            let needed =
                "it needs NAME.pem with NAME.key, or NAME/fullchain.pem with NAME/privkey.pem";
            let reasons = not_used(cert, &found.others);
            let reasons: String = reasons.iter().map(|why| format!("\n{why}")).collect();
            Err(format!(
                "{}: no certificates in this directory; {needed}{reasons}",
                cert.display()
            ))
        }
        n if n > CERTIFICATES_MAX => Err(format!(
            "{}: {n} certificates in this directory; at most {CERTIFICATES_MAX} are allowed",
            cert.display()
        )),
        _ => Ok(found),
    }
}

/// As [`pairs`], however many there are.
fn look_for(files: &CertificateFiles) -> Result<Found, String> {
    let CertificateFiles {
        cert,
        key,
        ocsp,
        passphrase,
    } = files;
    if !is_directory(files)? {
        let pair = PairFiles {
            cert: cert.clone(),
            key: key.clone(),
            ocsp: ocsp.clone(),
            passphrase: passphrase.clone(),
            found: false,
        };
        return Ok(Found {
            pairs: vec![pair],
            ..Found::default()
        });
    }
    let mut found = layouts::look_into(cert)?;
    (found.pairs)
        .iter_mut()
        .for_each(|pair| pair.passphrase.clone_from(passphrase));
    Ok(found)
}

/// The files of a directory that may be a certificate or a key, of `others` that belong to no pair, with the reason why each
/// is not used.
pub(super) fn not_used(directory: &Path, others: &[PathBuf]) -> Vec<String> {
    let reasons = others.iter().filter_map(|path| layouts::reason(path));
    let mut reasons: Vec<String> = reasons.map(|why| format!("not used: {why}")).collect();
    let more = reasons.len().saturating_sub(OTHERS_NAMED_MAX);
    if more > 0 {
        reasons.truncate(OTHERS_NAMED_MAX);
        reasons.push(format!("not used: {more} more in {}", directory.display()));
    }
    reasons
}

/// Fails if it cannot be found out: a directory that is absent for a moment is no file.
fn is_directory(files: &CertificateFiles) -> Result<bool, String> {
    let path = &files.cert;
    if *path != files.key {
        return Ok(false);
    }
    let found = fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    Ok(found.is_dir())
}

/// A file, or all files of a directory ordered by name. `what` names their contents for the error.
pub(crate) fn files_of(path: &Path, what: &str) -> Result<Vec<PathBuf>, String> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let files = entries(path)?.into_iter().filter(Entry::is_file);
    let files: Vec<PathBuf> = files.map(|entry| entry.path).collect();
    if files.is_empty() {
        return Err(format!("{}: no {what} in this directory", path.display()));
    }
    Ok(files)
}

/// All paths whose change requires another read.
pub(crate) fn watched(files: &CertificateFiles) -> Vec<PathBuf> {
    let mut all = vec![files.cert.clone(), files.key.clone()];
    all.extend(files.passphrase.clone());
    let found = look_for(files).unwrap_or_default();
    // A directory below it changes when a file in it is created.
    all.extend(found.directories);
    for pair in found.pairs {
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
