//! PEM files in a temporary directory.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::authority::{Authority, Leaf};

/// A directory with `ca.pem`, `site.pem` and `site.key`, removed on drop.
pub struct PemFiles {
    directory: tempfile::TempDir,
}

impl PemFiles {
    /// Writes the authority's certificate and the leaf's certificate and key.
    pub fn write(authority: &Authority, leaf: &Leaf) -> std::io::Result<PemFiles> {
        let files = PemFiles {
            directory: tempfile::tempdir()?,
        };
        std::fs::write(files.authority(), authority.certificate_pem())?;
        std::fs::write(files.certificate(), &leaf.certificate_pem)?;
        std::fs::write(files.key(), &leaf.key_pem)?;
        std::fs::set_permissions(files.key(), Permissions::from_mode(0o600))?;
        Ok(files)
    }

    /// The directory, for more files.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The authority's certificate.
    pub fn authority(&self) -> PathBuf {
        self.directory().join("ca.pem")
    }

    /// The server's certificate.
    pub fn certificate(&self) -> PathBuf {
        self.directory().join("site.pem")
    }

    /// The server's key.
    pub fn key(&self) -> PathBuf {
        self.directory().join("site.key")
    }
}
