//! A response of the Workload API: `X509SVIDResponse`, in the encoding of protocol buffers. It is read here because its keys
//! must leave no copies in memory; it has nine fields.
//!
//! ```text
//!   message X509SVIDResponse {                        message X509SVID {
//!     repeated X509SVID svids = 1;                      string spiffe_id = 1;
//!     repeated bytes crl = 2;                           bytes x509_svid = 2;       // DER, one behind the other
//!     map<string, bytes> federated_bundles = 3;         bytes x509_svid_key = 3;   // PKCS #8, DER
//!   }                                                   bytes bundle = 4;          // DER, one behind the other
//!                                                       string hint = 5;
//! ```

use super::messages::SpiffeReport;
use dormouse_config::TrustDomain;
use dormouse_engine::{pem_of_certificates, pem_of_key};
use dormouse_handover::SecretText;
use dormouse_printable::line_up_to;
use std::collections::BTreeSet;

/// Maximum number of certificates.
pub const CERTIFICATES_MAX: usize = 64;
/// Maximum number of trust domains.
pub const AUTHORITIES_MAX: usize = 64;
/// Maximum number of certificates in a chain, and of authorities in a trust domain.
const CHAIN_MAX: usize = 16;
const BUNDLE_MAX: usize = 64;
/// Maximum length of a chain or of a trust domain's authorities, DER: their PEM fits into a message to main.
const DER_LEN_MAX: usize = 64 << 10;
/// Maximum length of a key.
const KEY_LEN_MAX: usize = 16 << 10;
/// Maximum length of a name that is shown.
const SHOWN_MAX: usize = 200;

/// Returns what a response tells main. Fails if anything in it cannot be used: main then keeps what it has.
pub(crate) fn reports(response: &[u8]) -> Result<Vec<SpiffeReport>, String> {
    let mut all = vec![SpiffeReport::Begin];
    let mut ids = BTreeSet::new();
    let mut bundles = Vec::new();
    let mut federated = Vec::new();
    let mut revocation_lists = 0;
    let mut fields = Fields(response);
    while let Some((number, value)) = fields.next().ok_or(NOT_A_RESPONSE)? {
        match (number, value) {
            (1, Value::Bytes(svid)) => {
                let svid = Svid::read(svid)?;
                let id = svid.id.to_owned();
                let domain = TrustDomain::of_id(&id);
                let domain = domain.ok_or_else(|| format!("`{}` is no id", shown(&id)))?;
                all.push(svid.report()?);
                if !ids.insert(id) || ids.len() > CERTIFICATES_MAX {
                    return Err(format!(
                        "one id twice, or more than {CERTIFICATES_MAX} certificates"
                    ));
                }
                bundles.push((domain, svid.bundle));
            }
            (3, Value::Bytes(entry)) => {
                let [domain, certificates] = strings(entry)?;
                let domain = std::str::from_utf8(domain).ok();
                let domain = domain.and_then(TrustDomain::parse);
                federated.push((
                    domain.ok_or("a bundle is of no trust domain")?,
                    certificates,
                ));
            }
            (2, Value::Bytes(_)) => revocation_lists += 1,
            // What later versions may add.
            _ => {}
        }
        if federated.len() > AUTHORITIES_MAX {
            return Err(format!("more than {AUTHORITIES_MAX} bundles"));
        }
    }
    if ids.is_empty() {
        return Err("it has no certificate".to_owned());
    }
    // The own trust domains come first: another one cannot take their place.
    let mut domains = BTreeSet::new();
    for (domain, certificates) in bundles.into_iter().chain(federated) {
        let domain = domain.to_string();
        if domains.insert(domain.clone()) {
            all.push(authorities(domain, certificates)?);
        }
    }
    if domains.len() > AUTHORITIES_MAX {
        return Err(format!("more than {AUTHORITIES_MAX} trust domains"));
    }
    all.push(SpiffeReport::Complete { revocation_lists });
    Ok(all)
}

const NOT_A_RESPONSE: &str = "it is not encoded as the Workload API says";

fn authorities(domain: String, certificates: &[u8]) -> Result<SpiffeReport, String> {
    let pem = pem_of_certificates(certificates, BUNDLE_MAX);
    let pem = pem.filter(|_| certificates.len() <= DER_LEN_MAX);
    match pem {
        Some(certificates) => Ok(SpiffeReport::Authorities {
            domain,
            certificates,
        }),
        None => Err(format!(
            "the bundle of {} is no list of certificates, or has more than {BUNDLE_MAX} or {} KiB",
            shown(&domain),
            DER_LEN_MAX >> 10
        )),
    }
}

/// A certificate of a response.
struct Svid<'a> {
    id: &'a str,
    chain: &'a [u8],
    key: &'a [u8],
    bundle: &'a [u8],
}

impl<'a> Svid<'a> {
    fn read(message: &'a [u8]) -> Result<Svid<'a>, String> {
        let [id, chain, key, bundle] = strings(message)?;
        let id = std::str::from_utf8(id).map_err(|_| NOT_A_RESPONSE)?;
        Ok(Svid {
            id,
            chain,
            key,
            bundle,
        })
    }

    fn report(&self) -> Result<SpiffeReport, String> {
        let id = shown(self.id);
        let chain = pem_of_certificates(self.chain, CHAIN_MAX);
        let chain = chain.filter(|_| self.chain.len() <= DER_LEN_MAX);
        let chain = chain.ok_or_else(|| {
            format!("the chain of {id} is no list of certificates, or has more than {CHAIN_MAX} or {} KiB", DER_LEN_MAX >> 10)
        })?;
        if self.key.is_empty() || self.key.len() > KEY_LEN_MAX {
            return Err(format!("{id} has no key, or a very long one"));
        }
        Ok(SpiffeReport::Certificate {
            id: self.id.to_owned(),
            chain,
            // Moved: a copy would not be wiped.
            key: SecretText(std::mem::take(&mut *pem_of_key(self.key))),
        })
    }
}

fn shown(text: &str) -> String {
    line_up_to(text, SHOWN_MAX).to_string()
}

/// Returns the fields 1 to `N` of a message, each a string of bytes; of a field that is there twice, the last.
fn strings<const N: usize>(message: &[u8]) -> Result<[&[u8]; N], String> {
    let mut found: [&[u8]; N] = [&[]; N];
    let mut fields = Fields(message);
    while let Some((number, value)) = fields.next().ok_or(NOT_A_RESPONSE)? {
        let place = number
            .checked_sub(1)
            .and_then(|at| usize::try_from(at).ok());
        if let (Some(place), Value::Bytes(bytes)) = (place.and_then(|at| found.get_mut(at)), value)
        {
            *place = bytes;
        }
    }
    Ok(found)
}

/// The fields of a message.
struct Fields<'a>(&'a [u8]);

enum Value<'a> {
    Bytes(&'a [u8]),
    /// A number, which no field here is.
    Number,
}

impl<'a> Fields<'a> {
    /// Returns the next field and its number; `Some(None)` at the end, and `None` if the bytes are no field.
    fn next(&mut self) -> Option<Option<(u64, Value<'a>)>> {
        if self.0.is_empty() {
            return Some(None);
        }
        let key = self.varint()?;
        let (number, kind) = (key >> 3, key & 7);
        let value = match kind {
            0 => {
                self.varint()?;
                Value::Number
            }
            1 => {
                self.bytes(8)?;
                Value::Number
            }
            2 => {
                let len = self.varint()?;
                Value::Bytes(self.bytes(usize::try_from(len).ok()?)?)
            }
            5 => {
                self.bytes(4)?;
                Value::Number
            }
            // Groups, which nobody uses.
            _ => return None,
        };
        (number > 0).then_some(Some((number, value)))
    }

    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_engine::{Identity, pem_chain};

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut field = vec![number << 3 | 2];
        let mut len = bytes.len();
        while len >= 0x80 {
            field.push((len & 0x7f) as u8 | 0x80);
            len >>= 7;
        }
        field.push(len as u8);
        [&field[..], bytes].concat()
    }

    fn certificate() -> Vec<u8> {
        let (chain, _) = Identity::self_signed_pem("a.example").expect("a certificate");
        pem_chain(chain.as_bytes(), "it").expect("PEM").remove(0)
    }

    fn svid(id: &str, bundle: &[u8]) -> Vec<u8> {
        let message = [
            field(1, id.as_bytes()),
            field(2, &certificate()),
            field(3, b"key"),
            field(4, bundle),
            field(5, b"a hint"),
        ];
        field(1, &message.concat())
    }

    fn federated(domain: &str, bundle: &[u8]) -> Vec<u8> {
        field(3, &[field(1, domain.as_bytes()), field(2, bundle)].concat())
    }

    fn names(reports: &[SpiffeReport]) -> Vec<&str> {
        let name = |report: &'_ SpiffeReport| -> &'static str {
            match report {
                SpiffeReport::Begin => "begin",
                SpiffeReport::Complete { .. } => "complete",
                SpiffeReport::Away(_) | SpiffeReport::Refused(_) => "failed",
                SpiffeReport::Certificate { .. } => "certificate",
                SpiffeReport::Authorities { .. } => "authorities",
            }
        };
        reports.iter().map(name).collect()
    }

    #[test]
    fn a_response_is_told_in_parts() {
        let bundle = certificate();
        let response = [
            svid("spiffe://a.b/web", &bundle),
            svid("spiffe://a.b/db", &bundle),
            // A list, and a number of a later version.
            field(2, b"list"),
            vec![9 << 3, 1],
            federated("spiffe://c.d", &[&bundle[..], &bundle].concat()),
        ];
        let found = reports(&response.concat()).expect("a response");
        let expected = [
            "begin",
            "certificate",
            "certificate",
            "authorities",
            "authorities",
            "complete",
        ];
        assert_eq!(names(&found), expected);
        let revocation_lists = 1;
        assert_eq!(
            found.last(),
            Some(&SpiffeReport::Complete { revocation_lists })
        );
        assert!(!format!("{found:?}").contains("PRIVATE"), "{found:?}");
    }

    /// A federated bundle with the name of the own trust domain would let others sign its ids.
    #[test]
    fn no_other_trust_domain_takes_the_place_of_the_own() {
        let (own, other) = (certificate(), certificate());
        let response = [
            federated("spiffe://a.b", &other),
            svid("spiffe://a.b/web", &own),
        ];
        let found = reports(&response.concat()).expect("a response");
        let own = pem_of_certificates(&own, 1).expect("PEM");
        let is_own = |report: &SpiffeReport| matches!(report, SpiffeReport::Authorities { certificates, .. } if *certificates == own);
        assert_eq!(found.iter().filter(|one| is_own(one)).count(), 1);
        assert_eq!(found.len(), 4);
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_a_reason() {
        let bundle = certificate();
        let many = |count, one: &dyn Fn(usize) -> Vec<u8>| -> Vec<u8> {
            (0..count).flat_map(one).collect()
        };
        let own = svid("spiffe://a.b/web", &bundle);
        for (response, why) in [
            (vec![], "it has no certificate"),
            (vec![0x0a], "it is not encoded"),
            (vec![0x0a, 5, 1], "it is not encoded"),
            (vec![0xff; 11], "it is not encoded"),
            (vec![0, 0], "it is not encoded"),
            (vec![0x0b, 0], "it is not encoded"),
            (
                svid("https://a.b/web", &bundle),
                "`https://a.b/web` is no id",
            ),
            (
                svid("spiffe://a.b/web", b"none"),
                "the bundle of spiffe://a.b",
            ),
            (svid("spiffe://a.b/web", b""), "the bundle of spiffe://a.b"),
            ([own.clone(), own.clone()].concat(), "one id twice"),
            (
                many(CERTIFICATES_MAX + 1, &|n| {
                    svid(&format!("spiffe://a.b/{n}"), &bundle)
                }),
                "one id twice, or more than 64",
            ),
            (
                [own.clone(), federated("a.b", &bundle)].concat(),
                "a bundle is of no trust domain",
            ),
            (
                [
                    own.clone(),
                    many(AUTHORITIES_MAX + 1, &|n| {
                        federated(&format!("spiffe://{n}"), &bundle)
                    }),
                ]
                .concat(),
                "more than 64",
            ),
            (
                svid("spiffe://a.b/web", &bundle.repeat(BUNDLE_MAX + 1)),
                "the bundle of spiffe://a.b",
            ),
        ] {
            let found = reports(&response).expect_err("an error");
            assert!(found.starts_with(why), "{found}");
        }
    }

    #[test]
    fn the_longest_report_fits_into_a_message() {
        let len = DER_LEN_MAX.div_ceil(48) * 65 + KEY_LEN_MAX.div_ceil(48) * 65 + 2_048;
        // JSON writes each line break as two bytes.
        let in_json = len + len / 64 + BUNDLE_MAX * 64;
        assert!(in_json < dormouse_reactor::socket::MESSAGE_MAX, "{in_json}");
    }
}
