//! The names of authorities in a request for a client's certificate.

use std::collections::HashSet;

use rustls::{DistinguishedName, RootCertStore};

/// Maximum length of all names in a request. With them it still fits into one record (2^14 bytes): clients with small
/// memory take no longer message, and Java none of 32 KiB. At 64 KiB the message would be malformed. Without names, a
/// client chooses its certificate itself (RFC 8446 §4.2.4, RFC 5246 §7.4.4).
const NAMES_LEN_MAX: usize = 16_000;

/// The names of the trusted authorities, each once.
#[derive(Debug)]
pub(crate) struct AuthorityNames {
    all: Vec<DistinguishedName>,
    /// Their length in a message.
    len: usize,
}

impl AuthorityNames {
    pub(crate) fn of(roots: &RootCertStore) -> AuthorityNames {
        let mut seen = HashSet::new();
        let mut all = roots.subjects();
        all.retain(|name| seen.insert(name.as_ref().to_vec()));
        let len = all.iter().map(|name| 2 + name.as_ref().len()).sum();
        AuthorityNames { all, len }
    }

    /// Returns the names that are sent: all or none.
    pub(crate) fn sent(&self) -> &[DistinguishedName] {
        match self.len {
            0..=NAMES_LEN_MAX => &self.all,
            _ => &[],
        }
    }

    /// Returns a warning if they are not sent.
    pub(crate) fn warning(&self) -> Option<String> {
        (self.len > NAMES_LEN_MAX).then(|| {
            format!(
                "the names of these {} authorities have {} bytes together; above {NAMES_LEN_MAX} none are sent, and a \
                 client with several certificates has to know which one to use",
                self.all.len(),
                self.len
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use rustls_pki_types::{Der, TrustAnchor};

    use super::*;

    fn roots(count: usize, len: usize) -> RootCertStore {
        let anchors = (0..2 * count).map(|at| {
            let mut name = vec![b'x'; len];
            // Two keys of each authority.
            name[..8].copy_from_slice(&(at / 2).to_be_bytes());
            TrustAnchor {
                subject: name.into(),
                subject_public_key_info: Der::from_slice(&[]),
                name_constraints: None,
            }
        });
        anchors.collect()
    }

    #[test]
    fn all_names_are_sent_once_or_none() {
        // A name of 60 bytes is an element of 62, and has a length of two more.
        let names = AuthorityNames::of(&roots(250, 60));
        assert_eq!(names.sent().len(), 250);
        assert_eq!(names.len, 250 * 64);
        assert_eq!(names.warning(), None);
        let names = AuthorityNames::of(&roots(251, 60));
        assert!(names.sent().is_empty());
        let warning = names.warning().unwrap();
        assert!(
            warning.contains("251 authorities have 16064 bytes"),
            "{warning}"
        );
    }
}
