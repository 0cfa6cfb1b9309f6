//! Files of certificates, keys and authorities.

use crate::mistakes::problem::{Problem, ReadResult};
use crate::option::context::ReadContext;
use crate::option::option_type::{Absent, Kind, Listed, OptionType, unknown_key, wrong_type};
use crate::option::value::{RawData, RawValue};
use crate::values::spiffe::{SpiffeCertificate, TrustDomain};
use crate::values::token_key::TokenKey;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

/// A certificate chain and its key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CertificateFiles {
    /// The PEM file with the chain, leaf first; or a directory of many. Or one of the SPIFFE agent ([`SpiffeCertificate`]).
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

    /// Returns the certificate, if the SPIFFE agent has it, with its key.
    pub fn spiffe(&self) -> Option<SpiffeCertificate> {
        SpiffeCertificate::of_path(&self.cert)
    }
}

/// Reads what stands for a certificate with its key.
fn read_whole(raw: &RawValue, context: &ReadContext<'_>) -> ReadResult<PathBuf> {
    let text = raw.as_text().unwrap_or_default();
    if !SpiffeCertificate::is_meant(text) {
        return PathBuf::read(raw, context);
    }
    match SpiffeCertificate::parse(text) {
        Some(_) => Ok(text.into()),
        None => Err(Problem::new(format!("`{text}` is not a SPIFFE id"))
            .help("write \"spiffe:\" for the first certificate of the agent, or an id: \"spiffe://example.org/web\"")
            .into()),
    }
}

/// Reads the path of a chain whose key is elsewhere.
fn read_chain(raw: &RawValue, context: &ReadContext<'_>) -> ReadResult<PathBuf> {
    match raw.as_text() {
        Some(text) if SpiffeCertificate::is_meant(text) => Err(Problem::new(
            "the SPIFFE agent has this certificate's key, too",
        )
        .help(format!("write only certificates = [\"{text}\"]"))
        .into()),
        _ => PathBuf::read(raw, context),
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
            return read_whole(raw, context).map(Self::whole);
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
                "cert" => read_chain(value, context),
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
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Ca {
    /// The authorities that the operating system trusts.
    System,
    /// The authorities in this PEM file.
    File(PathBuf),
    /// Those of a trust domain, which the SPIFFE agent knows.
    Spiffe(TrustDomain),
}

impl Ca {
    /// Returns the trust domain, if the authorities are those of one.
    pub fn trust_domain(&self) -> Option<&TrustDomain> {
        match self {
            Self::Spiffe(domain) => Some(domain),
            Self::System | Self::File(_) => None,
        }
    }
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
            Some(text) if TrustDomain::is_meant(text) => TrustDomain::read(text).map(Self::Spiffe),
            _ => PathBuf::read(raw, context).map(Self::File),
        }
    }
}

impl fmt::Display for Ca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System => f.pad("system"),
            Self::File(path) => f.pad(&path.display().to_string()),
            Self::Spiffe(domain) => f.pad(&domain.to_string()),
        }
    }
}

/// The authorities that may sign clients' certificates.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ClientCa {
    /// A PEM file, or a directory of them.
    Files(PathBuf),
    /// Those of a trust domain, which the SPIFFE agent knows.
    Spiffe(TrustDomain),
}

impl ClientCa {
    /// Returns the file or directory.
    pub fn files(&self) -> Option<&Path> {
        match self {
            Self::Files(path) => Some(path),
            Self::Spiffe(_) => None,
        }
    }

    /// Returns the trust domain, if the authorities are those of one.
    pub fn trust_domain(&self) -> Option<&TrustDomain> {
        match self {
            Self::Spiffe(domain) => Some(domain),
            Self::Files(_) => None,
        }
    }
}

impl OptionType for ClientCa {
    const KIND: Kind = Kind::new("a path", "\"clients-ca.pem\"", "PATH");

    fn read(raw: &RawValue, context: &ReadContext<'_>) -> ReadResult<Self> {
        match raw.as_text() {
            Some(text) if TrustDomain::is_meant(text) => TrustDomain::read(text).map(Self::Spiffe),
            _ => PathBuf::read(raw, context).map(Self::Files),
        }
    }
}

impl Absent for ClientCa {
    const WORD: &'static str = PathBuf::WORD;
    const KIND_OR_ABSENT: Kind = PathBuf::KIND_OR_ABSENT;
}

impl fmt::Display for ClientCa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files(path) => f.pad(&path.display().to_string()),
            Self::Spiffe(domain) => f.pad(&domain.to_string()),
        }
    }
}
