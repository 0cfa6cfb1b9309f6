//! The certificates, keys and CAs that were read for a configuration.

use super::workload::Workload;
use dormouse_handover::lists::Texts;
use dormouse_handover::{ClientTrust, OriginPem, Pem};
use std::collections::HashSet;

/// The certificates of each route, in the order of the configuration.
pub(crate) type Certificates = Vec<Vec<Pem>>;

/// Everything that a configuration reads from PEM files. Lists are in configuration order.
#[derive(Clone, Default)]
pub(crate) struct Material {
    /// Certificates for clients, by route.
    pub(crate) certificates: Certificates,
    /// CAs and revocation lists for client certificates, by route.
    pub(crate) client_trust: Vec<Option<ClientTrust>>,
    /// Trusted CAs and client certificate, by origination.
    pub(crate) origins: Vec<OriginPem>,
    /// Trusted CAs and client certificate for TLS with backends, by route.
    pub(crate) backend_tls: Vec<Option<OriginPem>>,
    /// Certificates for servers that helpers talk to. Workers do not get them.
    pub(crate) of_helpers: OfHelpers,
    /// What the SPIFFE agent has given. It is in the places above, too.
    pub(crate) workload: Workload,
}

/// The certificates that helpers show to servers which request one.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct OfHelpers {
    /// For the store of ticket keys.
    pub(crate) store: Option<Pem>,
    /// For the ACME server.
    pub(crate) acme: Option<Pem>,
}

impl OfHelpers {
    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Pem> {
        self.store.iter().chain(&self.acme)
    }
}

/// A byte of a revocation list takes as much memory as this many of certificates: to search it, a worker has a table of
/// its numbers. Measured with 150,000 certificates in 6.5 MiB: a worker has 4.2 to 6.4 bytes for each of the file, and 13.6
/// while the list is replaced; main 11.2.
const LIST_WEIGHT: usize = 2;

impl Material {
    /// The length of everything, for the memory budget. A certificate and a revocation list count once, whatever routes name
    /// them: that often they are in memory.
    pub(crate) fn bytes(&self) -> usize {
        let mut known = HashSet::new();
        let certificates = self.certificates.iter().flatten();
        let certificates = certificates.filter(|pem| known.insert(pem.digest()));
        let certificates = certificates.map(|pem| pem.chain.len() + pem.key.len() + pem.ocsp.len());
        let trust = self.client_trust.iter().flatten();
        let lists = trust.clone().flat_map(|trust| &trust.crls);
        let origins = self.origins.iter().chain(self.backend_tls.iter().flatten());
        let of_servers = origins.clone().flat_map(|origin| &origin.revocation.crls);
        let lists = lists.chain(of_servers);
        let roots = origins.flat_map(|origin| &origin.roots).map(String::len);
        let roots = roots.chain(trust.map(|trust| trust.roots.len()));
        let lists = LIST_WEIGHT * Texts::of(lists).bytes();
        certificates.chain(roots).sum::<usize>() + lists
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_handover::PemContents;
    use dormouse_handover::lists::RevocationList;

    #[test]
    fn a_revocation_list_is_part_of_the_budget_for_clients_and_for_servers() {
        let list = || vec![RevocationList::new("crl.pem".to_owned(), "x".repeat(1_000))];
        let mut material = Material::default();
        assert_eq!(material.bytes(), 0);
        material.client_trust.push(Some(ClientTrust {
            required: true,
            roots: "r".to_owned(),
            crls: list(),
            allow: Vec::new(),
        }));
        assert_eq!(material.bytes(), 1 + 2_000);
        let mut origin = OriginPem::default();
        origin.revocation.crls = list();
        material.origins.push(origin.clone());
        material.backend_tls.push(Some(origin));
        assert_eq!(material.bytes(), 1 + 2 * 2_000, "two routes share one");
    }

    #[test]
    fn a_certificate_of_many_routes_is_part_of_the_budget_once() {
        let pem = |text: &str| {
            Pem::from(PemContents {
                name: "x.pem".to_owned(),
                key_name: "x.key".to_owned(),
                chain: text.to_owned(),
                ocsp: Vec::new(),
                ocsp_from_file: false,
                is_pushed: false,
                key: String::new(),
            })
        };
        let [one, other] = ["one", "other"].map(pem);
        let certificates = vec![vec![one.clone(), other], vec![one.clone()], vec![one]];
        let material = Material {
            certificates,
            ..Material::default()
        };
        assert_eq!(material.bytes(), 3 + 5);
    }
}
