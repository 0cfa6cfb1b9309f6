//! SPIFFE: ids of workloads, trust domains, and the socket of the agent that has their certificates.

use crate::mistakes::problem::{Problem, ReadResult};
use crate::mistakes::words::shortened;
use crate::option::context::ReadContext;
use crate::option::option_type::{Absent, Kind, Listed, OptionType, wrong_type};
use crate::option::value::RawValue;
use dormouse_engine::ClientRule;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

/// The beginning of every id.
const SCHEME: &str = "spiffe://";

/// Stands for the id that the agent names first.
const FIRST: &str = "spiffe:";

/// Maximum lengths of an id and of a trust domain (SPIFFE-ID §2.3).
const ID_LEN_MAX: usize = 2048;
const DOMAIN_LEN_MAX: usize = 255;

/// Which of the agent's certificates is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpiffeCertificate {
    /// The first one.
    First,
    /// The one with this id.
    Id(String),
}

impl SpiffeCertificate {
    /// Whether this path of a certificate means one of the agent.
    pub(crate) fn is_meant(text: &str) -> bool {
        text.starts_with(FIRST)
    }

    /// Reads how `certificates` names it.
    pub(crate) fn parse(text: &str) -> Option<SpiffeCertificate> {
        if text == FIRST {
            return Some(SpiffeCertificate::First);
        }
        let (_, path) = parts(text)?;
        (!path.is_empty()).then(|| SpiffeCertificate::Id(text.to_owned()))
    }

    /// As [`SpiffeCertificate::parse`], of a path in a configuration that was read.
    pub(crate) fn of_path(path: &Path) -> Option<SpiffeCertificate> {
        SpiffeCertificate::parse(path.to_str().filter(|text| Self::is_meant(text))?)
    }
}

/// Returns the trust domain of an id and the path, which is empty for the trust domain itself. `None`: it is no id
/// (SPIFFE-ID §2).
fn parts(text: &str) -> Option<(&str, &str)> {
    let rest = text.strip_prefix(SCHEME)?;
    let (domain, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let is_domain = (1..=DOMAIN_LEN_MAX).contains(&domain.len())
        && domain
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b));
    let is_segment = |segment: &str| {
        !matches!(segment, "" | "." | "..")
            && segment
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    let mut segments = path.split('/').skip(1);
    let is_id = text.len() <= ID_LEN_MAX && is_domain && segments.all(is_segment);
    is_id.then_some((domain, path))
}

/// A trust domain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TrustDomain(String);

impl TrustDomain {
    /// Whether a text in place of a file of authorities means a trust domain.
    pub(crate) fn is_meant(text: &str) -> bool {
        text.starts_with(FIRST)
    }

    /// Reads `spiffe://DOMAIN`.
    pub fn parse(text: &str) -> Option<TrustDomain> {
        let (domain, path) = parts(text)?;
        path.is_empty().then(|| TrustDomain(domain.to_owned()))
    }

    /// Returns the trust domain of an id. `None`: it is no id.
    pub fn of_id(id: &str) -> Option<TrustDomain> {
        let (domain, path) = parts(id)?;
        (!path.is_empty()).then(|| TrustDomain(domain.to_owned()))
    }

    pub(crate) fn read(text: &str) -> ReadResult<TrustDomain> {
        Self::parse(text).ok_or_else(|| {
            Problem::new(format!("`{}` is not a trust domain", shortened(text)))
                .help("write it like this: \"spiffe://example.org\"; `client_allow`, `server_ids` and `backend_ids` choose among its ids")
                .into()
        })
    }

    /// Returns the rule that all ids of this trust domain match.
    pub fn rule(&self) -> String {
        format!("{self}/*")
    }

    /// Whether everything that matches this rule for URIs is an id of this trust domain.
    pub fn has_all_of(&self, rule: &str) -> bool {
        let rest = rule.strip_prefix(SCHEME);
        let rest = rest.and_then(|rest| rest.strip_prefix(self.0.as_str()));
        rest.is_some_and(|rest| rest.starts_with('/'))
    }
}

impl fmt::Display for TrustDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.0)
    }
}

/// The ids that a server may have: one, or all with a beginning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SpiffeRule(String);

impl SpiffeRule {
    /// As it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the rule in the engine's type.
    pub fn rule(&self) -> ClientRule {
        ClientRule::Uri(self.0.clone())
    }
}

impl fmt::Display for SpiffeRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl OptionType for SpiffeRule {
    const KIND: Kind = Kind::new(
        "a SPIFFE id",
        "\"spiffe://example.org/db\" or \"spiffe://example.org/ns/shop/*\"",
        "ID",
    );

    fn read(raw: &RawValue, _: &ReadContext<'_>) -> ReadResult<Self> {
        let text = raw.as_text().ok_or_else(|| wrong_type::<Self>(raw))?;
        // What precedes the `*` may be the beginning of a segment.
        let whole = match text.strip_suffix('*') {
            Some(front) => format!("{front}x"),
            None => text.to_owned(),
        };
        match TrustDomain::of_id(&whole) {
            Some(_) => Ok(SpiffeRule(text.to_owned())),
            None => Err(Problem::new(format!("`{}` is not a SPIFFE id", shortened(text)))
                .help("write it like this: \"spiffe://example.org/ns/shop/sa/db\"; a `*` is allowed at the end of the path only")
                .into()),
        }
    }
}

impl Listed for SpiffeRule {
    const KIND_OF_LIST: Kind = Kind::new(
        "a list of SPIFFE ids",
        "[\"spiffe://example.org/db\"]",
        "ID",
    );
}

/// The socket of the agent that implements the SPIFFE Workload API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpiffeAgent {
    /// Path of the socket.
    pub path: PathBuf,
}

impl OptionType for SpiffeAgent {
    const KIND: Kind = Kind::new(
        "a unix socket",
        "\"unix:/run/spire/sockets/agent.sock\"",
        "unix:PATH",
    );

    fn read(raw: &RawValue, _: &ReadContext<'_>) -> ReadResult<Self> {
        let text = raw.as_text().ok_or_else(|| wrong_type::<Self>(raw))?;
        // SPIFFE_ENDPOINT_SOCKET has two slashes more.
        let path = text.strip_prefix("unix:").unwrap_or_default();
        let path = path.strip_prefix("//").unwrap_or(path);
        // An address has room for 107 bytes, and a zero.
        let is_path = path.starts_with('/') && path.len() < 108 && !path.contains('\0');
        match is_path {
            true => Ok(SpiffeAgent { path: path.into() }),
            false => Err(Problem::new(format!("`{}` is not the socket of an agent", shortened(text)))
                .help("write an absolute path of at most 107 bytes: \"unix:/run/spire/sockets/agent.sock\"")
                .into()),
        }
    }
}

impl Absent for SpiffeAgent {
    const WORD: &'static str = "off";
    const KIND_OR_ABSENT: Kind = Kind::new(
        "a unix socket or \"off\"",
        "\"unix:/run/spire/sockets/agent.sock\"",
        "unix:PATH|off",
    );
}

impl fmt::Display for SpiffeAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unix:{}", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_trust_domains_follow_the_standard() {
        for id in [
            "spiffe://example.org/web",
            "spiffe://a/b/c.d-e_F",
            "spiffe://ex_ample-1.org/ns/shop/sa/db",
        ] {
            assert!(TrustDomain::of_id(id).is_some(), "{id}");
            assert!(TrustDomain::parse(id).is_none(), "{id}");
            let read = SpiffeCertificate::parse(id);
            assert_eq!(read, Some(SpiffeCertificate::Id(id.to_owned())));
        }
        for wrong in [
            "spiffe://",
            "spiffe:///web",
            "spiffe://Example.org/web",
            "spiffe://example.org:443/web",
            "spiffe://user@example.org/web",
            "spiffe://example.org/",
            "spiffe://example.org/web/",
            "spiffe://example.org//web",
            "spiffe://example.org/./web",
            "spiffe://example.org/a/..",
            "spiffe://example.org/a%20b",
            "spiffe://example.org/a?b",
            "https://example.org/web",
            "SPIFFE://example.org/web",
            &format!("spiffe://{}/web", "d".repeat(256)),
            &format!("spiffe://example.org/{}", "p".repeat(2048)),
        ] {
            assert!(TrustDomain::of_id(wrong).is_none(), "{wrong}");
            assert!(SpiffeCertificate::parse(wrong).is_none(), "{wrong}");
        }
        let domain = TrustDomain::parse("spiffe://example.org").expect("a trust domain");
        assert_eq!(domain.rule(), "spiffe://example.org/*");
        assert_eq!(
            SpiffeCertificate::parse("spiffe:"),
            Some(SpiffeCertificate::First)
        );
    }

    /// A beginning without the slash would also be that of another trust domain.
    #[test]
    fn a_rule_is_within_one_trust_domain() {
        let domain = TrustDomain::parse("spiffe://example.org").expect("a trust domain");
        for (rule, is_within) in [
            ("spiffe://example.org/*", true),
            ("spiffe://example.org/web", true),
            ("spiffe://example.org*", false),
            ("spiffe://example.organic/*", false),
            ("spiffe://example.or", false),
            ("*", false),
        ] {
            assert_eq!(domain.has_all_of(rule), is_within, "{rule}");
        }
        let read = |text: &str| SpiffeRule::read(&RawValue::builtin(text), &ReadContext::NONE);
        for good in ["spiffe://a.b/*", "spiffe://a.b/c*", "spiffe://a.b/c"] {
            assert!(read(good).is_ok(), "{good}");
        }
        for wrong in [
            "spiffe://a.b",
            "spiffe://a.b*",
            "*",
            "spiffe://a.b/*/c",
            "spiffe://a.b/**",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
