//! Requests for signatures with keys in tokens, on their way to main.

use dormouse_engine::SignatureRequest;
use dormouse_handover::orders::WorkerReport;
use dormouse_handover::signing::SignRequest;
use std::collections::VecDeque;

/// Pause before the next attempt to send to a full channel.
const RETRY_MS: u64 = 20;

/// The requests that are not sent yet. A handshake has one at most.
#[derive(Default)]
pub(crate) struct Signatures {
    unsent: VecDeque<WorkerReport>,
}

impl Signatures {
    /// Asks for the signature that a handshake waits for. The answer names it by `token`.
    pub(crate) fn ask(&mut self, token: u64, request: &SignatureRequest) {
        let request = SignRequest {
            key: request.key.to_string(),
            scheme: request.scheme.code(),
            digest: request.digest.clone(),
        };
        (self.unsent).push_back(WorkerReport::Sign(token, Box::new(request)));
    }

    /// Sends requests, in order, until `send` returns `false`.
    pub(crate) fn send(&mut self, mut send: impl FnMut(&WorkerReport) -> bool) {
        while self.unsent.front().is_some_and(&mut send) {
            self.unsent.pop_front();
        }
    }

    /// Time of the next attempt to send, if requests are left.
    pub(crate) fn next_deadline_ms(&self, now_ms: u64) -> Option<u64> {
        (!self.unsent.is_empty()).then_some(now_ms + RETRY_MS)
    }
}
