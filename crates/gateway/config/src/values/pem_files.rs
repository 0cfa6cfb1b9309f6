//! Files of certificates, keys and authorities.

use crate::mistakes::problem::{Problem, ReadResult};
use crate::option::context::ReadContext;
use crate::option::option_type::{Kind, Listed, OptionType, unknown_key, wrong_type};
use crate::option::value::{RawData, RawValue};
use crate::values::token_key::TokenKey;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

/// A certificate chain and its key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CertificateFiles {
    /// The PEM file with the chain, leaf first; or a directory of many.
    pub cert: PathBuf,
    /// The PEM file with the private key; the same as `cert` if that has both, or is a directory. Or the URI of a key in a
    /// token ([`TokenKey`]).
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

    /// Returns the key, if it is in a token.
    pub fn token_key(&self) -> Option<TokenKey> {
        let uri = self.key.to_str().filter(|_| TokenKey::is_uri(&self.key));
        TokenKey::parse(uri?).ok()
    }
}

/// Reads the path of a key, or the URI of one in a token.
fn read_key(raw: &RawValue, context: &ReadContext<'_>) -> ReadResult<PathBuf> {
    match raw.as_text() {
        Some(uri) if TokenKey::is_uri(Path::new(uri)) => match TokenKey::parse(uri) {
            Ok(key) => Ok(key.uri.into()),
            Err((what, help)) => Err(Problem::new(what).help(help).into()),
        },
        _ => PathBuf::read(raw, context),
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
            let read = match name.name.as_str() {
                "key" => read_key(value, context),
                _ => PathBuf::read(value, context),
            };
            match read {
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
        if passphrase.is_some() && key.as_deref().is_some_and(TokenKey::is_uri) {
            let problem = Problem::new("a key in a token has a PIN, and no passphrase");
            problems.push(problem.help("name the file with the PIN in the URI: pin-source=FILE"));
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
