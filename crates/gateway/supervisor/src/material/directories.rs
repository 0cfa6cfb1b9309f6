//! The directories of files that dormouse writes: whether they exist and are writable.

use crate::material::can_write_into;
use crate::material::findings::Findings;
use dormouse_config::Place;
use dormouse_reactor::file::behind_links;
use std::io;
use std::path::Path;

/// Reports a directory in which a file cannot be written.
pub(crate) fn directory_of(path: &Path, what: &str, place: Place, findings: &mut Findings) {
    let file = match behind_links(path) {
        Ok(file) => file,
        Err(error) => {
            let what = format!("{}: cannot write {what}: {error}", path.display());
            return findings.error(place, what);
        }
    };
    let directory = file.parent().unwrap_or(Path::new("."));
    let directory = match directory.as_os_str().is_empty() {
        true => Path::new("."),
        false => directory,
    };
    let writable = match directory.is_dir() {
        true => can_write_into(directory),
        false => Err(io::Error::other("no such directory")),
    };
    if let Err(error) = writable {
        let what = format!(
            "{}: cannot write {what}: {error}\ncreate the directory {} with write access for the user who starts dormouse",
            path.display(),
            directory.display()
        );
        findings.error(place, what);
    }
}
