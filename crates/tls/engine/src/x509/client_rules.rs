//! Rules that decide which valid client certificates are allowed, by a name in them or their fingerprint.

use std::fmt;

use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::x509::outline::{self, Outline, read_name};

/// A condition on a client certificate. A client must match one of the configured rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientRule {
    /// The subject's common name equals this, and is the only one.
    CommonName(String),
    /// One of the subject's organisational units equals this.
    OrganisationalUnit(String),
    /// A DNS alternative name equals this; a leading `*.` stands for one label.
    Dns(String),
    /// A URI alternative name equals this; a trailing `*` stands for any rest. A SPIFFE id must be the only URI.
    Uri(String),
    /// The certificate has this SHA-256 digest.
    Fingerprint([u8; 32]),
}

/// The beginning of every SPIFFE id.
pub(crate) const SPIFFE: &str = "spiffe://";

/// Maximum length of a common name that counts. RFC 5280 allows 64 characters.
const COMMON_NAME_LEN_MAX: usize = 200;

/// Returns the common name of a certificate, which the rules compare and the backend learns. Of several, none counts:
/// another program could take another one. Nor does one that is long, has control characters or another encoding than
/// UTF-8 or ASCII, because the backend must learn the whole of it.
pub(crate) fn common_name(certificate: &[u8]) -> Option<String> {
    let outline = Outline::read(certificate)?;
    let name = read_name(outline.subject, |subject| {
        let mut names = subject.iter_common_name();
        let only = names.next().filter(|_| names.next().is_none())?;
        only.as_str().ok().map(str::to_owned)
    });
    name?.filter(|name| name.len() <= COMMON_NAME_LEN_MAX && !name.contains(char::is_control))
}

/// Checks a certificate against the rules. Returns the rule that allows it; `None` if there are no rules. The error lists
/// the certificate's names, for the log.
pub(crate) fn allow<'a>(
    rules: &'a [ClientRule],
    certificate: &[u8],
) -> Result<Option<&'a ClientRule>, String> {
    if rules.is_empty() {
        return Ok(None);
    }
    let claims = Claims::of(certificate);
    match rules.iter().find(|rule| claims.fit(rule)) {
        Some(rule) => Ok(Some(rule)),
        None => Err(claims.to_string()),
    }
}

/// The names in a certificate.
#[derive(Default)]
struct Claims {
    /// The one that counts.
    common_name: Option<String>,
    common_names: Vec<String>,
    units: Vec<String>,
    dns: Vec<String>,
    uris: Vec<String>,
    fingerprint: [u8; 32],
}

impl Claims {
    fn of(certificate: &[u8]) -> Claims {
        let mut claims = Claims {
            fingerprint: outline::fingerprint(certificate),
            ..Claims::default()
        };
        let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
            return claims;
        };
        let text = |value: &x509_parser::x509::AttributeTypeAndValue<'_>| {
            value.as_str().ok().map(str::to_owned)
        };
        let subject = parsed.subject();
        claims.common_name = common_name(certificate);
        claims.common_names = subject.iter_common_name().filter_map(text).collect();
        claims.units = subject
            .iter_organizational_unit()
            .filter_map(text)
            .collect();
        if let Ok(Some(alternative)) = parsed.subject_alternative_name() {
            for name in &alternative.value.general_names {
                match name {
                    GeneralName::DNSName(name) => claims.dns.push(name.to_ascii_lowercase()),
                    GeneralName::URI(uri) => claims.uris.push((*uri).to_owned()),
                    _ => {}
                }
            }
        }
        claims
    }

    fn fit(&self, rule: &ClientRule) -> bool {
        match rule {
            ClientRule::CommonName(name) => self.common_name.as_ref() == Some(name),
            ClientRule::OrganisationalUnit(unit) => self.units.contains(unit),
            ClientRule::Dns(rule) => self.dns.iter().any(|name| dns_fits(rule, name)),
            // Of several URIs beside a SPIFFE id, none counts (X509-SVID §5.2).
            ClientRule::Uri(rule) if rule.starts_with(SPIFFE) => {
                matches!(&self.uris[..], [only] if uri_fits(rule, only))
            }
            ClientRule::Uri(rule) => self.uris.iter().any(|uri| uri_fits(rule, uri)),
            ClientRule::Fingerprint(rule) => self.fingerprint == *rule,
        }
    }
}

/// A wildcard name in a certificate stands for no particular host, so it matches a rule only if both are equal.
fn dns_fits(rule: &str, name: &str) -> bool {
    if rule.eq_ignore_ascii_case(name) {
        return true;
    }
    let (Some(parent), Some((label, rest))) = (rule.strip_prefix("*."), name.split_once('.'))
    else {
        return false;
    };
    label != "*" && !label.is_empty() && rest.eq_ignore_ascii_case(parent)
}

fn uri_fits(rule: &str, uri: &str) -> bool {
    match rule.strip_suffix('*') {
        Some(front) => uri.starts_with(front),
        None => rule == uri,
    }
}

/// Maximum number of names shown in the log.
const SHOWN_MAX: usize = 4;
const SHOWN_LEN_MAX: usize = 120;

impl fmt::Display for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = [
            ("cn", &self.common_names),
            ("ou", &self.units),
            ("dns", &self.dns),
            ("uri", &self.uris),
        ];
        for (kind, values) in named {
            for value in values.iter().take(SHOWN_MAX) {
                // The author of the certificate chose these names.
                let shown = dormouse_printable::line_up_to(value, SHOWN_LEN_MAX);
                write!(f, "{kind}={shown}, ")?;
            }
        }
        if self.common_names.len() > 1 {
            f.write_str("of several cn none counts, ")?;
        }
        if self.uris.len() > 1 && self.uris.iter().any(|uri| uri.starts_with(SPIFFE)) {
            f.write_str("of several uri none is a SPIFFE id, ")?;
        }
        f.write_str("sha256=")?;
        self.fingerprint
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate() -> Vec<u8> {
        let mut params = rcgen::CertificateParams::new(vec!["Agent.Example".to_owned()]).unwrap();
        let uri = "spiffe://example.org/ns/a/sa/web".try_into().unwrap();
        params.subject_alt_names.push(rcgen::SanType::URI(uri));
        params.distinguished_name = rcgen::DistinguishedName::new();
        let name = &mut params.distinguished_name;
        name.push(rcgen::DnType::CommonName, "alice");
        name.push(rcgen::DnType::OrganizationalUnitName, "staff");
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn each_rule_allows_only_matching_certificates() {
        let certificate = certificate();
        let fingerprint = Claims::of(&certificate).fingerprint;
        let good = [
            ClientRule::CommonName("alice".to_owned()),
            ClientRule::OrganisationalUnit("staff".to_owned()),
            ClientRule::Dns("agent.example".to_owned()),
            ClientRule::Dns("*.example".to_owned()),
            ClientRule::Uri("spiffe://example.org/ns/a/sa/web".to_owned()),
            ClientRule::Uri("spiffe://example.org/ns/a/*".to_owned()),
            ClientRule::Fingerprint(fingerprint),
        ];
        let bad = [
            ClientRule::CommonName("staff".to_owned()),
            ClientRule::CommonName("Alice".to_owned()),
            ClientRule::OrganisationalUnit("alice".to_owned()),
            ClientRule::Dns("example".to_owned()),
            ClientRule::Dns("*.agent.example".to_owned()),
            ClientRule::Uri("spiffe://example.org/ns/a/sa/we".to_owned()),
            ClientRule::Uri("spiffe://example.org/ns/b/*".to_owned()),
            ClientRule::Fingerprint([7; 32]),
        ];
        for rule in good {
            let rules = [bad[0].clone(), rule.clone()];
            assert!(allow(&rules, &certificate).is_ok(), "{rule:?}");
        }
        for rule in bad {
            let why = allow(std::slice::from_ref(&rule), &certificate).unwrap_err();
            assert!(why.starts_with("cn=alice, ou=staff, dns=agent.example, uri=spiffe://"));
        }
        assert!(
            allow(&[], &certificate).is_ok(),
            "without rules all are allowed"
        );
    }

    /// Otherwise a rule would admit one person, and the backend serve another one.
    #[test]
    fn of_several_common_names_none_counts() {
        let named = |names: &[&str]| {
            let mut params = rcgen::CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            for (at, name) in names.iter().enumerate() {
                // rcgen has each kind of attribute once; these differ until they are encoded.
                let kind = match at {
                    0 => rcgen::DnType::CommonName,
                    _ => rcgen::DnType::CustomDnType(vec![2, 5, 4, 3]),
                };
                params.distinguished_name.push(kind, *name);
            }
            let key = rcgen::KeyPair::generate().unwrap();
            params.self_signed(&key).unwrap().der().to_vec()
        };
        let rule = |name: &str| [ClientRule::CommonName(name.to_owned())];
        for names in [["alice", "bob"], ["alice", "alice"]] {
            let certificate = named(&names);
            for name in names {
                let why = allow(&rule(name), &certificate).unwrap_err();
                assert!(why.contains("cn=alice, cn="), "{why}");
                assert!(why.contains("of several cn none counts"), "{why}");
            }
            assert_eq!(common_name(&certificate), None);
        }
        for name in ["a\u{1b}[2J", &"long".repeat(51)] {
            let certificate = named(&[name]);
            assert!(allow(&rule(name), &certificate).is_err());
            assert_eq!(common_name(&certificate), None);
        }
        assert_eq!(common_name(&named(&["alice"])).as_deref(), Some("alice"));
    }

    /// A certificate for a whole domain is not a certificate of each host in it.
    #[test]
    fn a_wildcard_in_the_certificate_matches_only_an_equal_rule() {
        assert!(!dns_fits("a.example", "*.example"));
        assert!(!dns_fits("*.example", "*.example.org"));
        assert!(dns_fits("*.example", "*.example"), "equal wildcards match");
    }
}
