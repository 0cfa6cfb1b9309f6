//! Directories of certificates. Dormouse reads the files of a directory whose names it knows
//! (docs/guide/certificates.md); other programs read all files, or those that match a pattern.

use std::path::Path;

use crate::source::files_matching;
use crate::toml::Certificate;

/// Maximum number of files that are listed one by one.
const FILES_MAX: usize = 200;

/// How to write a directory.
pub(super) enum Directory {
    /// Dormouse reads the same files of it.
    Same,
    /// These files.
    Files(Vec<Certificate>),
    /// It cannot be compared here, for this reason.
    Unknown(&'static str),
}

pub(super) const LISTED_ONE_BY_ONE: &str = "Dormouse would read other files of this directory, so \
    they are listed one by one: add new files to `certificates`";

/// Compares what a program reads of a directory (the files that match, except those that `is_beside` names) with what
/// Dormouse reads of it. `whole` makes an entry of a file.
pub(super) fn directory(
    path: &str,
    pattern: &str,
    is_beside: impl Fn(&str) -> bool,
    whole: impl Fn(&str) -> Certificate,
) -> Directory {
    let folder = Path::new(path);
    if !folder.is_dir() {
        return Directory::Unknown("this directory is not on this machine");
    }
    let names = |pattern: &str| -> Option<Vec<String>> {
        let files = files_matching(folder, pattern).ok()?;
        let names = files.iter().filter_map(|file| file.file_name());
        Some(
            names
                .map(|name| name.to_string_lossy().into_owned())
                .collect(),
        )
    };
    let (Some(mut theirs), Some(all)) = (names(pattern), names("*")) else {
        return Directory::Unknown("this directory has too many files to compare");
    };
    theirs.retain(|name| !is_beside(name));
    if theirs.len() > FILES_MAX {
        return Directory::Unknown("this directory has too many files to list");
    }
    if theirs.is_empty() {
        return Directory::Unknown("no file in this directory matches");
    }
    let is_ours = |name: &str| {
        let end = name.rsplit_once('.');
        end.is_some_and(|(stem, end)| {
            matches!(end, "pem" | "crt" | "cer") && !all.contains(&format!("{stem}.key"))
        })
    };
    let has_key = |name: &String| all.contains(&format!("{name}.key"));
    let is_same = theirs.iter().all(|name| is_ours(name) && !has_key(name))
        && all
            .iter()
            .all(|name| theirs.contains(name) || !is_ours(name));
    if is_same {
        return Directory::Same;
    }
    let files = theirs
        .iter()
        .map(|name| folder.join(name).display().to_string());
    Directory::Files(files.map(|file| whole(&file)).collect())
}
