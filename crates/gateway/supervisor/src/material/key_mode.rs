//! Private keys that other users can read or replace.

use dormouse_reactor::process;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

const ROOT: u32 = 0;

/// A warning if users other than the owner can read or replace this private key.
pub(super) fn warning_of(key: &Path) -> Option<String> {
    // Nearly always, and there may be tens of thousands: to follow the links of each takes longer.
    if fs::metadata(key).ok()?.mode() & 0o077 == 0 {
        return None;
    }
    let path = key.canonicalize().ok()?;
    let found = path.metadata().ok()?;
    let mode = found.mode() & 0o777;
    let by_group = mode & of_group(&found, process::user_id()) != 0 && is_reached(&path, 0o011);
    let by_others = mode & 0o007 != 0 && is_reached(&path, 0o001);
    (by_group || by_others).then(|| {
        format!(
            "{}: mode {mode:o} lets other users read or change this private key; chmod 600 it, and replace it if they may have read it",
            key.display()
        )
    })
}

/// The group's permissions that a key should not have. A group that root has chosen (`ssl-cert`), or
/// through which this program reads the key itself, may read it.
fn of_group(key: &Metadata, reader: u32) -> u32 {
    let reads_by_group = reader != ROOT && reader != key.uid();
    match key.uid() == ROOT || reads_by_group {
        true => 0o020,
        false => 0o070,
    }
}

/// Whether the directories above a file let someone with one of these permissions through: certbot's
/// files are protected by their directory.
fn is_reached(path: &Path, permissions: u32) -> bool {
    let is_open = |directory: &Path| {
        fs::metadata(directory).is_ok_and(|found| found.mode() & permissions != 0)
    };
    path.ancestors().skip(1).all(is_open)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("a file of the test");
    }

    #[test]
    fn a_key_that_others_can_read_is_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        let key = folder.path().join("site.key");
        fs::write(&key, "x").expect("written");
        set(folder.path(), 0o755);
        for mode in [0o600, 0o400] {
            set(&key, mode);
            assert_eq!(warning_of(&key), None, "{mode:o}");
        }
        for mode in [0o644, 0o604, 0o602, 0o660] {
            set(&key, mode);
            let warning = warning_of(&key).unwrap_or_default();
            assert!(
                warning.contains(&format!("mode {mode:o} lets")),
                "{warning}"
            );
            assert!(warning.contains("chmod 600"), "{warning}");
        }
        set(folder.path(), 0o700);
        assert_eq!(
            warning_of(&key),
            None,
            "nobody else can enter the directory"
        );
        assert_eq!(warning_of(&folder.path().join("missing")), None);
    }

    #[test]
    fn a_group_may_read_what_it_is_meant_to() {
        let folder = tempfile::tempdir().expect("a folder");
        let found = folder.path().metadata().expect("there");
        let owner = found.uid();
        let expected = match owner {
            ROOT => 0o020,
            _ => 0o070,
        };
        assert_eq!(of_group(&found, owner), expected);
        assert_eq!(of_group(&found, owner + 1), 0o020, "it reads by the group");
    }
}
