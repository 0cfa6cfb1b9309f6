//! The secret that encrypts ticket keys, and files that only their owner may read.

use dormouse_engine::TicketKeys;
use dormouse_reactor::file::open_regular;
use dormouse_reactor::process;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use zeroize::Zeroizing;

/// Maximum size of a key file or secret.
const FILE_MAX: u64 = 64 << 10;

/// The secret that encrypts ticket keys.
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Reads the secret. Surrounding white space is ignored, so a final line feed does no harm.
    pub fn read(path: &Path) -> Result<Secret, String> {
        let bytes = read_private(path)?
            .ok_or_else(|| format!("{}: no such file\n  {}", path.display(), make(path)))?;
        let secret = bytes.trim_ascii();
        if secret.len() < TicketKeys::SECRET_MIN {
            return Err(format!(
                "{}: the secret has {} bytes, but at least {} bytes are needed\n  {}",
                path.display(),
                secret.len(),
                TicketKeys::SECRET_MIN,
                make(path)
            ));
        }
        Ok(Secret::new(secret))
    }

    /// The secret's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Makes a secret of these bytes.
    pub fn new(bytes: &[u8]) -> Secret {
        Secret(Zeroizing::new(bytes.to_vec()))
    }
}

fn make(path: &Path) -> String {
    format!(
        "create one: (umask 077; openssl rand -hex 32 > {})",
        path.display()
    )
}

/// Reads a file that only its owner may read, or a file of root's that a group of this user may read, as
/// Kubernetes mounts secrets. `None`: the file does not exist.
pub fn read_private(path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, String> {
    let shown = path.display();
    let file = match open_regular(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(format!("cannot read {shown}: {e}")),
    };
    let cannot = |e: io::Error| format!("cannot read {shown}: {e}");
    // Checks the open file, because the path may lead to another file by now.
    let found = file.metadata().map_err(cannot)?;
    if !is_private(found.mode(), found.uid(), process::user_id()) {
        return Err(format!(
            "{shown}: mode {:o} lets users other than the owner use this file, and its secret decrypts every connection that was resumed\n  remedy: chmod 600 {shown}, and replace the secret",
            found.mode() & 0o777
        ));
    }
    let mut bytes = Zeroizing::new(Vec::new());
    file.take(FILE_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(cannot)?;
    if bytes.len() as u64 > FILE_MAX {
        return Err(format!("{shown}: larger than 64 KiB, so not a key file"));
    }
    Ok(Some(bytes))
}

/// Whether no stranger may read or change a file of this mode and owner. A program that is not root can read
/// a file of root's only if root has chosen a group for it.
fn is_private(mode: u32, owner: u32, reader: u32) -> bool {
    const ROOT: u32 = 0;
    let by_group = owner == ROOT && reader != ROOT;
    let forbidden = if by_group { 0o037 } else { 0o077 };
    mode & forbidden == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_may_read_only_what_root_lets_it() {
        for (mode, owner, reader, expected) in [
            (0o600, 0, 0, true),
            (0o600, 1000, 1000, true),
            (0o440, 0, 65532, true),
            (0o640, 0, 65532, true),
            (0o440, 0, 0, false),
            (0o440, 1000, 1000, false),
            (0o440, 1000, 65532, false),
            (0o460, 0, 65532, false),
            (0o444, 0, 65532, false),
        ] {
            assert_eq!(
                is_private(mode, owner, reader),
                expected,
                "{mode:o} {owner} {reader}"
            );
        }
    }
}
