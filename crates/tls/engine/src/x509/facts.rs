//! What a handshake finds out about the certificates of both ends.

use std::sync::Arc;

use dormouse_record::AlertDescription;
use rustls::SignatureScheme;

use crate::call_scope::{Facts, Subject};
use crate::failure::CertificateProblem;
use crate::x509::identity::Algorithms;
use crate::x509::standing::ClientStanding;

/// What a handshake finds out about the certificates of both ends.
#[derive(Default)]
pub(crate) struct CertificateFacts {
    /// The signature scheme of the server's handshake signature.
    pub(crate) signature: Option<SignatureScheme>,
    /// The problem with the peer's certificate, in more detail than rustls' error.
    pub(crate) problem: Option<CertificateProblem>,
    /// The alert for a peer whose certificate the caller refuses.
    pub(crate) alert: Option<AlertDescription>,
    /// Server side: the algorithms of our certificate that suits the client.
    pub(crate) algorithms: Option<Arc<Algorithms>>,
    /// Server side: the SHA-256 digest of that certificate.
    pub(crate) fingerprint: Option<[u8; 32]>,
    /// Server side: the subject of the client's certificate.
    pub(crate) client: Option<String>,
    /// Server side: the common name in that subject.
    pub(crate) client_name: Option<String>,
    /// Server side: what admitted the client's certificate.
    pub(crate) standing: Option<ClientStanding>,
    /// Server side: whether a client certificate was verified in this handshake, received or from a session.
    pub(crate) client_judged: bool,
    /// Client side: whether the server requested our certificate.
    pub(crate) own_sent: bool,
}

impl Facts for CertificateFacts {
    const SUBJECT: Subject = Subject::Certificates;
}
