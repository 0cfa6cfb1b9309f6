//! X.509-SVIDs: certificates whose only URI names a workload (SPIFFE X509-SVID). A client verifies the id in place of the
//! server's name.

use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};
use zeroize::Zeroizing;

use crate::x509::client_rules::{self, ClientRule, SPIFFE};
use crate::x509::der::Der;
use crate::x509::judge_certificate::{
    CertificateRefusal, Finding, JudgeCertificate, ShownCertificates,
};
use crate::x509::pem::contents;

/// Returns the id in a certificate, DER: its only URI. `None`: it has none, or several (X509-SVID §2).
pub fn spiffe_id(certificate: &[u8]) -> Option<String> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let names = parsed.subject_alternative_name().ok()??;
    let mut uris = names
        .value
        .general_names
        .iter()
        .filter_map(|name| match name {
            GeneralName::URI(uri) => Some(*uri),
            _ => None,
        });
    let only = uris.next().filter(|_| uris.next().is_none())?;
    only.starts_with(SPIFFE).then(|| only.to_owned())
}

/// Returns certificates that follow each other without anything between them, as PEM. `None`: they are no certificates,
/// none, or more than `most`.
pub fn pem_of_certificates(bytes: &[u8], most: usize) -> Option<String> {
    let mut all = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (first, behind) = Der::first(rest).filter(|_| all.len() < most)?;
        X509Certificate::from_der(first).ok()?;
        all.push(first);
        rest = behind;
    }
    (!all.is_empty()).then(|| contents::encode_certificates(all.into_iter()))
}

/// Returns a key, PKCS #8, as PEM.
pub fn pem_of_key(pkcs8: &[u8]) -> Zeroizing<String> {
    contents::encode("PRIVATE KEY", pkcs8)
}

/// Accepts servers that have one of these ids. Their names are not compared.
#[derive(Debug, Clone)]
pub struct ServerIds(pub Vec<ClientRule>);

impl JudgeCertificate for ServerIds {
    fn judge(&self, shown: &ShownCertificates<'_>) -> Result<(), CertificateRefusal> {
        match shown.finding {
            Finding::Trusted => {}
            // What the roots found is the reason that is reported.
            Finding::Refused(_) => return Err("the certificate is not valid".into()),
            Finding::NoRoots => return Err("no authorities verify SPIFFE ids".into()),
        }
        let own = shown.chain.first().map(|&der| CertificateDer::from(der));
        let own = own.as_deref().unwrap_or_default();
        if self.0.is_empty() {
            return Err("no SPIFFE id is accepted".into());
        }
        let allowed = client_rules::allow(&self.0, own);
        allowed.map(|_| ()).map_err(|claims| {
            format!("the certificate has none of the accepted SPIFFE ids: {claims}").into()
        })
    }

    fn names_peers(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::CertificateProblem;
    use rustls_pki_types::UnixTime;

    fn certificate(uris: &[&str]) -> Vec<u8> {
        let mut params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        for uri in uris {
            let uri = (*uri).try_into().unwrap();
            params.subject_alt_names.push(rcgen::SanType::URI(uri));
        }
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    /// Otherwise one process would verify the first one, and another the second.
    #[test]
    fn of_several_uris_none_is_an_id() {
        let id = "spiffe://example.org/web";
        assert_eq!(spiffe_id(&certificate(&[id])).as_deref(), Some(id));
        let rules = ["spiffe://example.org/web", "spiffe://example.org/*"];
        for uris in [
            &[][..],
            &["https://example.org/web"],
            &[id, "spiffe://example.org/db"],
            &[id, id],
            &[id, "https://example.org"],
        ] {
            let certificate = certificate(uris);
            assert_eq!(spiffe_id(&certificate), None, "{uris:?}");
            for rule in rules {
                let rule = ClientRule::Uri(rule.to_owned());
                assert!(
                    client_rules::allow(&[rule], &certificate).is_err(),
                    "{uris:?}"
                );
            }
        }
    }

    #[test]
    fn certificates_one_behind_the_other_are_read_whole_or_not_at_all() {
        let (one, two) = (
            certificate(&["spiffe://a/b"]),
            certificate(&["spiffe://a/c"]),
        );
        let both = [&one[..], &two].concat();
        let text = pem_of_certificates(&both, 2).expect("two certificates");
        let read = contents::certificates(text.as_bytes(), "text").expect("PEM");
        assert_eq!(read, [one.clone(), two]);
        assert!(pem_of_certificates(&both, 1).is_none());
        for len in (0..both.len()).filter(|&len| len != one.len()) {
            assert!(pem_of_certificates(&both[..len], 2).is_none(), "{len}");
        }
        assert!(pem_of_certificates(&[both, vec![0]].concat(), 9).is_none());
        assert!(pem_of_certificates(&[0x30, 0], 9).is_none());
    }

    #[test]
    fn only_a_valid_certificate_with_an_accepted_id_is_a_servers() {
        let ids = ServerIds(vec![ClientRule::Uri("spiffe://example.org/db".to_owned())]);
        let judge = |ids: &ServerIds, uri: &str, finding: Finding<'_>| {
            let own = certificate(&[uri]);
            ids.judge(&ShownCertificates {
                chain: &[&own],
                server_name: Some("10.0.0.1"),
                ocsp_response: &[],
                now: UnixTime::since_unix_epoch(std::time::Duration::ZERO),
                finding,
            })
        };
        let expired = CertificateProblem::BadSignature;
        let good = "spiffe://example.org/db";
        assert!(judge(&ids, good, Finding::Trusted).is_ok());
        assert!(judge(&ids, good, Finding::Refused(&expired)).is_err());
        assert!(judge(&ids, good, Finding::NoRoots).is_err());
        assert!(judge(&ids, "spiffe://example.org/web", Finding::Trusted).is_err());
        assert!(judge(&ServerIds(Vec::new()), good, Finding::Trusted).is_err());
    }
}
