//! A handshake that waits for a signature with a key in a token. Its socket is not read.

use dormouse_engine::{Handshake, HandshakeFailure, Progress, SignatureRequest};
use dormouse_handover::signing::Signed;

/// Waits for a signature.
pub(crate) struct Signing {
    handshake: Box<Handshake>,
    /// The signature, or why there is none, once it has arrived.
    signature: Option<Result<Vec<u8>, String>>,
}

impl Signing {
    /// `handshake` waits for a signature.
    pub(crate) fn new(handshake: Box<Handshake>) -> Signing {
        Signing {
            handshake,
            signature: None,
        }
    }

    /// What is to be signed.
    pub(crate) fn request(&self) -> &SignatureRequest {
        let request = self.handshake.signature_request();
        request.expect("a handshake in this stage waits for a signature")
    }

    /// Takes the signature. `false`: it is not awaited.
    pub(crate) fn take(&mut self, signed: Signed) -> bool {
        let is_it = self.request().digest == signed.digest;
        is_it && self.signature.replace(signed.signature).is_none()
    }

    /// Continues with the signature.
    pub(crate) fn sign(mut self) -> (Result<Progress, HandshakeFailure>, Box<Handshake>) {
        let signature = self.signature.take();
        let signature = signature.expect("only the signature continues this handshake");
        let progress = self.handshake.handle_signature(signature);
        (progress, self.handshake)
    }
}
