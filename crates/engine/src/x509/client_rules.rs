//! Rules which of the good client certificates may come in: by a name in them, or by themselves.

use std::fmt;

use aws_lc_rs::digest;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// One way to be allowed in. A client needs one of those that are given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientRule {
    /// The subject's common name is this one.
    CommonName(String),
    /// One of the subject's organisational units is this one.
    OrganisationalUnit(String),
    /// A DNS name among the alternative names is this one; `*.` at its front stands for one label.
    Dns(String),
    /// A URI among the alternative names (a SPIFFE id) is this one; `*` at its end stands for
    /// whatever follows.
    Uri(String),
    /// The certificate has this SHA-256 digest.
    Fingerprint([u8; 32]),
}

/// May a client with this certificate come in by one of these rules? If not: what its certificate
/// says of it, for the log.
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

/// What a certificate says of its owner.
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
        let mut claims = Claims::default();
        let digest = digest::digest(&digest::SHA256, certificate);
        for (to, from) in claims.fingerprint.iter_mut().zip(digest.as_ref()) {
            *to = *from;
        }
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
            ClientRule::Dns(wanted) => self.dns.iter().any(|name| dns_fits(wanted, name)),
            ClientRule::Uri(wanted) => self.uris.iter().any(|uri| uri_fits(wanted, uri)),
            ClientRule::Fingerprint(wanted) => self.fingerprint == *wanted,
        }
    }
}

/// Names in certificates may have wildcards of their own: those stand for nobody in particular,
/// and fit a rule only if they are the same.
fn dns_fits(wanted: &str, name: &str) -> bool {
    if wanted.eq_ignore_ascii_case(name) {
        return true;
    }
    let (Some(parent), Some((label, rest))) = (wanted.strip_prefix("*."), name.split_once('.'))
    else {
        return false;
    };
    label != "*" && !label.is_empty() && rest.eq_ignore_ascii_case(parent)
}

fn uri_fits(wanted: &str, uri: &str) -> bool {
    match wanted.strip_suffix('*') {
        Some(front) => uri.starts_with(front),
        None => wanted == uri,
    }
}

/// Longer lists are cut in the log.
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
                // The one who wrote the certificate chose these.
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
    fn each_rule_lets_in_whom_it_is_for_and_nobody_else() {
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
        assert!(allow(&[], &certificate).is_ok(), "no rules: everybody");
    }

    /// A certificate for a whole domain is not the certificate of each host in it.
    #[test]
    fn a_wildcard_in_the_certificate_is_no_wildcard_in_the_rule() {
        assert!(!dns_fits("a.example", "*.example"));
        assert!(!dns_fits("*.example", "*.example.org"));
        assert!(dns_fits("*.example", "*.example"), "said so in both");
    }
}
