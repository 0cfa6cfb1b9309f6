//! The directories of files that are written: whether they are there, and writable.

use crate::findings::Findings;
use crate::material::can_write_into;
use dormouse_config::Place;
use std::io;
use std::path::Path;

/// Reports that a file can't be written because of its directory.
pub(crate) fn directory_of(path: &Path, what: &str, place: Place, findings: &mut Findings) {
    let directory = path.parent().unwrap_or(Path::new("."));
    let directory = match directory.as_os_str().is_empty() {
        true => Path::new("."),
        false => directory,
    };
    let writable = match directory.is_dir() {
        true => can_write_into(directory),
        false => Err(io::Error::other("there is no such directory")),
    };
    if let Err(error) = writable {
        let what = format!(
            "{}: {what} can't be written there: {error}\nmake the directory {} for the user who starts dormouse",
            path.display(),
            directory.display()
        );
        findings.error(place, what);
    }
}
