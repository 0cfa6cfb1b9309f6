//! What admitted a client's certificate, in few bytes, so that a later change can reach connections that keep nothing else
//! of it: its number among those of its issuer, and the rule that it matched.

use std::collections::HashSet;
use std::sync::Arc;

use aws_lc_rs::digest;

use crate::x509::client_rules::ClientRule;
use crate::x509::outline::Outline;
use crate::x509::revocation_list::{FoundList, entries};

/// Bytes for the issuer and the serial number.
const NUMBER_LEN: usize = 5;
/// Bytes for the rule.
const RULE_LEN: usize = 3;
/// Stands for a rule where none was configured.
const NO_RULE: [u8; RULE_LEN] = [0; RULE_LEN];

pub(crate) type Number = [u8; NUMBER_LEN];

/// What admitted a client's certificate: parts of two digests. With 10,000 revoked certificates, one client in a hundred
/// million has the number of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientStanding(pub [u8; ClientStanding::LEN]);

impl ClientStanding {
    /// Its length.
    pub const LEN: usize = NUMBER_LEN + RULE_LEN;

    /// Returns that of a client certificate, DER, and of the rule that it matched. `None`: it is no certificate.
    pub(crate) fn of(certificate: &[u8], rule: Option<&ClientRule>) -> Option<ClientStanding> {
        let outline = Outline::read(certificate)?;
        let mut standing = [0; ClientStanding::LEN];
        let (number, of_rule) = standing.split_at_mut(NUMBER_LEN);
        number.copy_from_slice(&number_of(outline.issuer, outline.serial));
        of_rule.copy_from_slice(&rule.map_or(NO_RULE, rule_digest));
        Some(ClientStanding(standing))
    }
}

/// Which standings are still good.
#[derive(Debug, Clone)]
pub struct ClientStandings {
    revoked: Arc<[Number]>,
    /// Empty: every certificate is allowed.
    rules: HashSet<[u8; RULE_LEN]>,
}

impl ClientStandings {
    pub(crate) fn new(revoked: Arc<[Number]>, rules: &[ClientRule]) -> ClientStandings {
        ClientStandings {
            revoked,
            rules: rules.iter().map(rule_digest).collect(),
        }
    }

    /// Whether there is anything that would refuse a certificate.
    pub fn may_refuse(&self) -> bool {
        !self.revoked.is_empty() || !self.rules.is_empty()
    }

    /// Whether the certificate is not revoked, and the rule that it matched is still one of the rules. If that rule is gone,
    /// another one may allow the certificate, which a new handshake shows.
    pub fn admit(&self, ClientStanding(standing): ClientStanding) -> bool {
        let (number, rule) = standing.split_at(NUMBER_LEN);
        let is_revoked = self
            .revoked
            .binary_search_by(|one| one.as_slice().cmp(number));
        is_revoked.is_err() && (self.rules.is_empty() || self.rules.contains(rule))
    }
}

/// Returns the numbers of all certificates on these lists, sorted.
pub(crate) fn revoked(lists: &[FoundList]) -> Arc<[Number]> {
    let mut all: Vec<Number> = Vec::new();
    for (_, list) in lists {
        let (issuer, serials) = entries(list);
        all.extend(serials.map(|serial| number_of(issuer, serial)));
    }
    all.sort_unstable();
    all.dedup();
    all.into()
}

fn number_of(issuer: &[u8], serial: &[u8]) -> Number {
    let zeros = serial.iter().take_while(|byte| **byte == 0).count();
    let serial = serial.get(zeros..).unwrap_or_default();
    first_of(&[issuer, serial])
}

fn rule_digest(rule: &ClientRule) -> [u8; RULE_LEN] {
    let (kind, value) = match rule {
        ClientRule::CommonName(name) => ("cn", name.as_bytes()),
        ClientRule::OrganisationalUnit(unit) => ("ou", unit.as_bytes()),
        ClientRule::Dns(name) => ("dns", name.as_bytes()),
        ClientRule::Uri(uri) => ("uri", uri.as_bytes()),
        ClientRule::Fingerprint(digest) => ("sha256", &digest[..]),
    };
    let digest = first_of(&[kind.as_bytes(), value]);
    match digest == NO_RULE {
        true => [1; RULE_LEN],
        false => digest,
    }
}

/// Returns the first bytes of a digest of these parts.
fn first_of<const LEN: usize>(parts: &[&[u8]]) -> [u8; LEN] {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    let digest = context.finish();
    *digest.as_ref().first_chunk().expect("SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests {
    use rcgen::{
        CertificateParams, CertificateRevocationListParams, CertifiedIssuer, IsCa, KeyIdMethod,
        KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
    };

    use super::*;
    use crate::x509::revocation;

    fn issuer() -> CertifiedIssuer<'static, KeyPair> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.key_usages = vec![rcgen::KeyUsagePurpose::CrlSign];
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    fn client(issuer: &CertifiedIssuer<'static, KeyPair>, serial: &[u8]) -> Vec<u8> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.serial_number = Some(SerialNumber::from_slice(serial));
        let key = KeyPair::generate().unwrap();
        params.signed_by(&key, issuer).unwrap().der().to_vec()
    }

    fn list(issuer: &CertifiedIssuer<'static, KeyPair>, serials: &[&[u8]]) -> (String, Vec<u8>) {
        let one = |serial: &&[u8]| RevokedCertParams {
            serial_number: SerialNumber::from_slice(serial),
            revocation_time: date_time_ymd(2025, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2025, 1, 1),
            next_update: date_time_ymd(2045, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(one).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let text = params.signed_by(issuer).unwrap().pem().unwrap();
        ("list.pem".to_owned(), text.into_bytes())
    }

    #[test]
    fn a_revoked_certificate_and_a_removed_rule_are_recognised() {
        let issuer = issuer();
        // The first byte of the last one needs a zero in front of it.
        let serials: [&[u8]; 4] = [&[5], &[0x7f, 1, 2], &[9; 20], &[0xfe, 7]];
        let clients = serials.map(|serial| client(&issuer, serial));
        let rule = ClientRule::CommonName("alice".to_owned());
        let other = ClientRule::Dns("alice".to_owned());
        let found = |named| revoked(&revocation::read(&[named]).unwrap());
        let none = found(list(&issuer, &[]));
        for (at, serial) in serials.into_iter().enumerate() {
            let only_this = found(list(&issuer, &[serial]));
            for (n, certificate) in clients.iter().enumerate() {
                let standing = |rule| ClientStanding::of(certificate, rule).unwrap();
                let now = |revoked: &Arc<_>, rules: &[ClientRule]| {
                    ClientStandings::new(Arc::clone(revoked), rules)
                };
                assert_eq!(now(&only_this, &[]).admit(standing(None)), n != at);
                assert!(now(&none, &[]).admit(standing(Some(&rule))));
                let rules = [rule.clone(), other.clone()];
                assert!(now(&none, &rules).admit(standing(Some(&rule))));
                assert!(!now(&none, &rules[1..]).admit(standing(Some(&rule))));
                // Rules are new: no rule has allowed it.
                assert!(!now(&none, &rules).admit(standing(None)));
            }
        }
        assert!(ClientStanding::of(b"none", None).is_none());
    }
}
