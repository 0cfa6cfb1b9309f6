//! Signatures with keys in tokens, for handshakes with servers.

use super::Outbound;
use super::attempt::{self, Stage};
use crate::context::WorkerContext;
use crate::io::Io;
use crate::token::Id;
use dormouse_handover::signing::Signed;

impl Outbound {
    /// Continues an attempt whose signature has arrived, or ends it because there is none.
    pub(crate) fn on_signed<I: Io>(&mut self, id: Id, signed: Signed, cx: &mut WorkerContext<I>) {
        // It may have ended meanwhile, or be with another server.
        if let Some(attempt) = self.attempts.get(id)
            && let Stage::Shaking(handshake) = &mut attempt.stage
            && (handshake.signature_request())
                .is_some_and(|request| request.digest == signed.digest)
        {
            let (fd, work) = (attempt.fd, &mut cx.work);
            let step = attempt::take_signature(fd, handshake, signed.signature, work);
            self.act_on(step, id, cx);
        }
    }
}
