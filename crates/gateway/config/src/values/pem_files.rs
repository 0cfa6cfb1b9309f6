//! Files of certificates, keys and authorities.

use crate::mistakes::problem::{Problem, ReadResult};
use crate::option::context::ReadContext;
use crate::option::option_type::{Kind, Listed, OptionType, unknown_key, wrong_type};
use crate::option::value::{RawData, RawValue};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// A certificate chain and its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateFiles {
    /// The PEM file with the chain, leaf first; or a directory of many.
    pub cert: PathBuf,
    /// The PEM file with the private key; the same as `cert` if that has both, or is a directory.
    pub key: PathBuf,
    /// The file with an OCSP response, DER.
    #[serde(default)]
    pub ocsp: Option<PathBuf>,
    /// The file with the passphrase of the key.
    #[serde(default)]
    pub passphrase: Option<PathBuf>,
}

impl CertificateFiles {
    /// Returns a file that has both, or a directory.
    fn whole(path: PathBuf) -> Self {
        Self {
            cert: path.clone(),
            key: path,
            ocsp: None,
            passphrase: None,
        }
    }
}

/// The keys of the table.
const KEYS: &[(&str, &Kind)] = &[
    ("cert", &PathBuf::KIND),
    ("key", &PathBuf::KIND),
    ("ocsp", &PathBuf::KIND),
    ("passphrase", &PathBuf::KIND),
];

impl OptionType for CertificateFiles {
    const KIND: Kind = Kind {
        keys: KEYS,
        ..Kind::new(
            "a certificate with its key",
            "{ cert = \"site.pem\", key = \"site.key\" }",
            "FILE",
        )
    };

    fn read(raw: &RawValue, context: &ReadContext<'_>) -> ReadResult<Self> {
        if raw.as_text().is_some() {
            return PathBuf::read(raw, context).map(Self::whole);
        }
        let RawData::Table(entries) = &raw.data else {
            return Err(wrong_type::<Self>(raw));
        };
        let mut problems = Vec::new();
        let mut has_unknown = false;
        let (mut cert, mut key, mut ocsp, mut passphrase) = (None, None, None, None);
        for (name, value) in entries {
            let slot = match name.name.as_str() {
                "cert" => &mut cert,
                "key" => &mut key,
                "ocsp" => &mut ocsp,
                "passphrase" => &mut passphrase,
                _ => {
                    // Probably a misspelt `cert` or `key`.
                    has_unknown = true;
                    problems.push(unknown_key(name, &Self::KIND));
                    continue;
                }
            };
            match PathBuf::read(value, context) {
                Ok(path) => *slot = Some(path),
                Err(found) => {
                    // The key is there, but wrong: do not report it as missing too.
                    *slot = Some(PathBuf::new());
                    problems.extend(found.into_iter().map(|problem| problem.at(&value.location)));
                }
            }
        }
        for (name, slot) in [("cert", &cert), ("key", &key)] {
            if slot.is_none() && !has_unknown {
                problems.push(
                    Problem::new(format!("a certificate needs `{name}` too"))
                        .label(format!("`{name}` is missing"))
                        .help(format!("write it like this: {}", Self::KIND.example))
                        .at(&raw.location),
                );
            }
        }
        match (cert, key) {
            (Some(cert), Some(key)) if problems.is_empty() => Ok(Self {
                cert,
                key,
                ocsp,
                passphrase,
            }),
            _ => Err(problems),
        }
    }
}

impl Listed for CertificateFiles {
    const KIND_OF_LIST: Kind = Kind {
        keys: KEYS,
        ..Kind::new(
            "a list of certificates",
            "[{ cert = \"site.pem\", key = \"site.key\" }]",
            "FILE",
        )
    };
}

/// The authorities that a client trusts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ca {
    /// The authorities that the operating system trusts.
    System,
    /// The authorities in this PEM file.
    File(PathBuf),
}

impl OptionType for Ca {
    const KIND: Kind = Kind::new(
        "a path or \"system\"",
        "\"authority.pem\" or \"system\"",
        "FILE|system",
    );

    fn read(raw: &RawValue, context: &ReadContext<'_>) -> ReadResult<Self> {
        match raw.as_text() {
            Some("system") => Ok(Self::System),
            _ => PathBuf::read(raw, context).map(Self::File),
        }
    }
}

impl fmt::Display for Ca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System => f.pad("system"),
            Self::File(path) => f.pad(&path.display().to_string()),
        }
    }
}
