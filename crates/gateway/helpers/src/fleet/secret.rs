//! The secret that encrypts ticket keys.

use crate::private_file::read_private;
use dormouse_engine::TicketKeys;
use std::path::Path;
use zeroize::Zeroizing;

/// Maximum size of a key file or secret.
pub const FILE_BYTES_MAX: u64 = 64 << 10;

/// The secret that encrypts ticket keys.
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Reads the secret. Surrounding white space is ignored, so a final line feed does no harm.
    pub fn read(path: &Path) -> Result<Secret, String> {
        let bytes = read_private(path, FILE_BYTES_MAX)?
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
