//! What the client of the current handshake requests, as rustls has read it.

use crate::call_scope::{Facts, Subject};
use crate::failure::NoCertificate;

/// Server side: what the client requests, and whether we have it.
#[derive(Default)]
pub(crate) struct Requested {
    /// The requested server name.
    pub(crate) server_name: Option<String>,
    /// The application protocol that will be negotiated.
    pub(crate) alpn: Option<Vec<u8>>,
    /// Why the client gets no certificate, if it gets none.
    pub(crate) no_certificate: Option<NoCertificate>,
}

impl Facts for Requested {
    const SUBJECT: Subject = Subject::Request;
}
