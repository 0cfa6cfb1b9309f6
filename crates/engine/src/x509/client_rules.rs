//! Rules that decide which valid client certificates are allowed, by a name in them or their fingerprint.

use std::fmt;

use aws_lc_rs::digest;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// A condition on a client certificate. A client must match one of the configured rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientRule {
    /// The subject's common name equals this.
    CommonName(String),
    /// One of the subject's organisational units equals this.
    OrganisationalUnit(String),
    /// A DNS alternative name equals this; a leading `*.` stands for one label.
    Dns(String),
    /// A URI alternative name (a SPIFFE id) equals this; a trailing `*` stands for any rest.
    Uri(String),
    /// The certificate has this SHA-256 digest.
    Fingerprint([u8; 32]),
}

/// Checks a certificate against the rules. The error lists the certificate's names, for the log.
pub(crate) fn allow(rules: &[ClientRule], certificate: &[u8]) -> Result<(), String> {
    if rules.is_empty() {
        return Ok(());
    }
    let claims = Claims::of(certificate);
    if rules.iter().any(|rule| claims.fit(rule)) {
        Ok(())
    } else {
        Err(claims.to_string())
    }
}

/// The names in a certificate.
#[derive(Default)]
struct Claims {
    common_names: Vec<String>,
    units: Vec<String>,
    dns: Vec<String>,
    uris: Vec<String>,
    fingerprint: [u8; 32],
}

impl Claims {
    fn of(certificate: &[u8]) -> Claims {
        let digest = digest::digest(&digest::SHA256, certificate);
        let fingerprint = digest.as_ref().first_chunk().copied();
        let mut claims = Claims {
            fingerprint: fingerprint.unwrap_or_default(),
            ..Claims::default()
        };
        let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
            return claims;
        };
        let text = |value: &x509_parser::x509::AttributeTypeAndValue<'_>| {
            value.as_str().ok().map(str::to_owned)
        };
        let subject = parsed.subject();
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
            ClientRule::CommonName(name) => self.common_names.contains(name),
            ClientRule::OrganisationalUnit(unit) => self.units.contains(unit),
            ClientRule::Dns(rule) => self.dns.iter().any(|name| dns_fits(rule, name)),
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

    /// A certificate for a whole domain is not a certificate of each host in it.
    #[test]
    fn a_wildcard_in_the_certificate_matches_only_an_equal_rule() {
        assert!(!dns_fits("a.example", "*.example"));
        assert!(!dns_fits("*.example", "*.example.org"));
        assert!(dns_fits("*.example", "*.example"), "equal wildcards match");
    }
}
