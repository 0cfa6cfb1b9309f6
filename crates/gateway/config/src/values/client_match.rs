//! Rules that accept clients with valid certificates: `cn=…`, `ou=…`, `dns=…`, `uri=…`, `sha256=…`.

use crate::mistakes::problem::{Problem, ReadResult};
use crate::mistakes::words::{shortened, unknown_word};
use crate::option::context::ReadContext;
use crate::option::option_type::{Kind, Listed, OptionType, wrong_type};
use crate::option::value::RawValue;
use crate::values::host_name::is_in_certificates;
use dormouse_engine::ClientRule;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

/// The kinds of rules.
const KINDS: [&str; 5] = ["cn", "ou", "dns", "uri", "sha256"];
const VALUE_LEN_MAX: usize = 2048;

/// A rule that accepts a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientMatch {
    /// `cn=`: the subject's common name.
    CommonName(String),
    /// `ou=`: one of the subject's organisational units.
    OrganisationalUnit(String),
    /// `dns=`: a DNS name among the alternative names, or `*.` and what must follow one label.
    Dns(String),
    /// `uri=`: a URI among the alternative names, or its beginning and `*`.
    Uri(String),
    /// `sha256=`: the certificate's digest.
    Fingerprint([u8; 32]),
}

impl ClientMatch {
    /// Returns the rule in the engine's type.
    pub fn rule(&self) -> ClientRule {
        match self {
            Self::CommonName(name) => ClientRule::CommonName(name.clone()),
            Self::OrganisationalUnit(unit) => ClientRule::OrganisationalUnit(unit.clone()),
            Self::Dns(name) => ClientRule::Dns(name.clone()),
            Self::Uri(uri) => ClientRule::Uri(uri.clone()),
            Self::Fingerprint(digest) => ClientRule::Fingerprint(*digest),
        }
    }
}

impl fmt::Display for ClientMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CommonName(name) => write!(f, "cn={name}"),
            Self::OrganisationalUnit(unit) => write!(f, "ou={unit}"),
            Self::Dns(name) => write!(f, "dns={name}"),
            Self::Uri(uri) => write!(f, "uri={uri}"),
            Self::Fingerprint(digest) => {
                f.write_str("sha256=")?;
                digest.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

impl OptionType for ClientMatch {
    const KIND: Kind = Kind::new(
        "a rule",
        "\"dns=agent.example.com\", \"uri=spiffe://example.org/ns/web/*\"",
        "KIND=VALUE",
    );

    fn read(raw: &RawValue, _: &ReadContext<'_>) -> ReadResult<Self> {
        let text = raw.as_text().ok_or_else(|| wrong_type::<Self>(raw))?;
        let Some((kind, value)) = text.split_once('=') else {
            return Err(Problem::new(format!("`{}` is not a rule", shortened(text)))
                .help("write a field of the certificate and its value: \"cn=alice\", \"ou=staff\", \"dns=agent.example.com\", \"uri=spiffe://example.org/ns/web/*\" or \"sha256=…\"")
                .into());
        };
        let value = value.trim();
        if value.is_empty() || value.len() > VALUE_LEN_MAX || value.contains(char::is_control) {
            let problem = Problem::new(format!("`{}=` needs a value", shortened(kind)));
            return Err(problem
                .label(format!(
                    "1 to {VALUE_LEN_MAX} bytes, without control characters"
                ))
                .into());
        }
        match kind.trim().to_ascii_lowercase().as_str() {
            "cn" => Ok(Self::CommonName(value.to_owned())),
            "ou" => Ok(Self::OrganisationalUnit(value.to_owned())),
            "dns" if is_in_certificates(value) && value.parse::<IpAddr>().is_err() => Ok(Self::Dns(value.to_owned())),
            "dns" => Err(Problem::new(format!("`{}` is not a host name", shortened(value)))
                .help("write it like this: \"dns=agent.example.com\" or \"dns=*.example.com\"")
                .into()),
            "uri" if value.contains(':') && !value.strip_suffix('*').unwrap_or(value).contains('*') => {
                Ok(Self::Uri(value.to_owned()))
            }
            "uri" => Err(Problem::new(format!("`{}` is not a URI", shortened(value)))
                .help("write it like this: \"uri=spiffe://example.org/ns/web/sa/api\"; a `*` is allowed at the end only")
                .into()),
            "sha256" => match digest(value) {
                Some(digest) => Ok(Self::Fingerprint(digest)),
                None => Err(Problem::new(format!("`{}` is not a SHA-256 digest", shortened(value)))
                    .label("64 hexadecimal digits, with or without colons")
                    .help("openssl x509 -in client.pem -noout -fingerprint -sha256")
                    .into()),
            },
            other => Err(unknown_word("kind of rule", other, &KINDS).into()),
        }
    }
}

impl Listed for ClientMatch {
    const KIND_OF_LIST: Kind = Kind::new(
        "a list of rules",
        "[\"ou=staff\", \"dns=*.agents.example.com\"]",
        "KIND=VALUE",
    );
}

fn digest(text: &str) -> Option<[u8; 32]> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b':').collect();
    let mut digest = [0; 32];
    if digits.len() != 2 * digest.len() {
        return None;
    }
    for (byte, pair) in digest.iter_mut().zip(digits.chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).ok()?;
        // `from_str_radix` would accept a sign.
        pair.bytes().all(|b| b.is_ascii_hexdigit()).then_some(())?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(digest)
}
