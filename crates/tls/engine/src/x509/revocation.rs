//! Verification with revocation lists, the same for clients' and for servers' certificates.

use std::sync::Arc;

use rustls::server::VerifierBuilderError;
use rustls::{CertRevocationListError, CertificateError, Error};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};

use crate::settings_error::SettingsError;
use crate::x509::outline::Outline;
use crate::x509::pem::contents;
use crate::x509::revocation_list::{self, DividedIssuers, FoundList};

/// Revocation lists in PEM, each with a name for messages.
pub(crate) type NamedLists = [(String, Vec<u8>)];

/// The library's verifiers, all with the same revocation lists. Cloning it is cheap.
#[derive(Debug)]
pub(crate) struct WithLists<V: ?Sized> {
    /// One for each order of the lists ([`revocation_list::by_key`]).
    verifiers: Arc<[Arc<V>]>,
    divided: Arc<DividedIssuers>,
    has_lists: bool,
}

impl<V: ?Sized> WithLists<V> {
    /// `build` makes the library's verifier with some of the lists, which [`read`] has read.
    pub(crate) fn new(
        lists: &[FoundList],
        build: impl Fn(
            Vec<CertificateRevocationListDer<'static>>,
        ) -> Result<Arc<V>, VerifierBuilderError>,
    ) -> Result<WithLists<V>, SettingsError> {
        let build = |lists: &[&FoundList]| {
            let lists = lists.iter().map(|(_, list)| list.clone());
            build(lists.collect())
        };
        let orders = revocation_list::by_key(lists);
        let verifiers = orders
            .iter()
            .map(|lists| build(lists))
            .collect::<Result<Vec<_>, _>>();
        let verifiers = verifiers.map_err(|error| {
            // The error does not say which list it is about.
            let refused = lists.iter().find(|list| build(&[list]).is_err());
            match refused {
                Some((place, _)) => {
                    SettingsError::Crl(format!("{place}: {}", list_refused(&error)))
                }
                None => SettingsError::Library(error.to_string()),
            }
        })?;
        Ok(WithLists {
            verifiers: verifiers.into(),
            divided: Arc::new(DividedIssuers::of(lists)),
            has_lists: !lists.is_empty(),
        })
    }

    /// Whether there are any lists.
    pub(crate) fn has_lists(&self) -> bool {
        self.has_lists
    }

    /// Verifies a chain, of which `others` are all but the peer's own certificate.
    pub(crate) fn verify(
        &self,
        end_entity: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        verify: impl Fn(&V) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut outlines = std::iter::once(end_entity)
            .chain(others)
            .filter_map(|certificate| Outline::read(certificate));
        if outlines.any(|outline| self.divided.has_no_list_for(&outline)) {
            return Err(CertificateError::UnknownRevocationStatus.into());
        }
        let is_of_another_key = |outcome: &Result<_, _>| {
            let signature = CertRevocationListError::BadSignature;
            *outcome == Err(Error::InvalidCertRevocationList(signature))
        };
        let mut outcome = Err(Error::General("there is no verifier".to_owned()));
        for verifier in &*self.verifiers {
            outcome = verify(verifier);
            if !is_of_another_key(&outcome) {
                break;
            }
        }
        outcome
    }
}

impl<V: ?Sized> Clone for WithLists<V> {
    fn clone(&self) -> Self {
        WithLists {
            verifiers: Arc::clone(&self.verifiers),
            divided: Arc::clone(&self.divided),
            has_lists: self.has_lists,
        }
    }
}

/// Returns a warning for each revocation list that has expired at `now`, unless there is a newer one, and for each that
/// begins later. `peers` are those with certificates of an expired list's issuer, which are refused.
pub(crate) fn warnings(named: &NamedLists, peers: &str, now: UnixTime) -> Vec<String> {
    let lists = named.iter().flat_map(|(name, text)| {
        let lists = contents::revocation_lists(text, name).unwrap_or_default();
        lists.into_iter().map(|(_, list)| (name.as_str(), list))
    });
    revocation_list::untimely(lists, peers, now)
}

/// Returns the lists, each with its file and line.
pub(crate) fn read(named: &NamedLists) -> Result<Vec<FoundList>, SettingsError> {
    let mut lists = Vec::new();
    for (name, text) in named {
        let found = contents::revocation_lists(text, name)
            .map_err(|refused| SettingsError::Crl(refused.to_string()))?;
        lists.extend(
            found
                .into_iter()
                .map(|(line, list)| (format!("{name}:{line}"), list)),
        );
    }
    revocation_list::in_order(lists).map_err(SettingsError::Crl)
}

/// The library's reason for refusing a list, in words if the list is only not supported.
fn list_refused(error: &VerifierBuilderError) -> String {
    let VerifierBuilderError::InvalidCrl(of_list) = error else {
        return error.to_string();
    };
    match of_list {
        CertRevocationListError::UnsupportedDeltaCrl => {
            "a delta list is not supported here; use the full one".to_owned()
        }
        CertRevocationListError::Other(other)
            if other.to_string().contains("UnsupportedCrlIssuingDistributionPoint") =>
        {
            "an issuing distribution point without a URI is not supported here; use a list without it".to_owned()
        }
        _ => error.to_string(),
    }
}
