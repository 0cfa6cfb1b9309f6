//! The certificates, keys and CAs that were read for a configuration.

use dormouse_handover::{ClientTrust, OriginPem, Pem};

/// The certificates of each route, in the order of the configuration.
pub(crate) type Certificates = Vec<Vec<Pem>>;

/// Everything that a configuration reads from PEM files. Lists are in configuration order.
#[derive(Clone)]
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

impl Material {
    /// The length of everything.
    pub(crate) fn bytes(&self) -> usize {
        let pem = |pem: &Pem| pem.chain.len() + pem.key.len() + pem.ocsp.len();
        let certificates = self.certificates.iter().flatten().map(pem);
        let trust = self.client_trust.iter().flatten();
        let lists = trust.clone().flat_map(|trust| &trust.crls);
        let origins = self.origins.iter().chain(self.backend_tls.iter().flatten());
        let roots = origins.flat_map(|origin| &origin.roots).map(String::len);
        let roots = roots.chain(trust.map(|trust| trust.roots.len()));
        let lists = lists.map(|(_, list)| list.len());
        certificates.chain(roots).chain(lists).sum()
    }
}
