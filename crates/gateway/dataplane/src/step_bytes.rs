//! Bytes moved by a step.

use dormouse_handover::slot::{Flag, Slot};

/// Bytes moved by a step, by direction.
#[derive(Clone, Copy, Default)]
pub(crate) struct StepBytes {
    pub(crate) tls_in: u64,
    pub(crate) tls_out: u64,
    pub(crate) plain_in: u64,
    pub(crate) plain_out: u64,
}

impl StepBytes {
    /// Bytes that the step received, from both sides.
    pub(crate) fn received(&self) -> u64 {
        self.tls_in + self.plain_in
    }

    /// Bytes that the step passed to the TLS side.
    pub(crate) fn passed_to_tls(&self, slot: &Slot) -> u64 {
        match slot.has(Flag::PassThrough) {
            true => self.plain_in,
            false => self.tls_out,
        }
    }

    /// Whether the step moved no bytes.
    pub(crate) fn is_none(&self) -> bool {
        (self.tls_in | self.tls_out | self.plain_in | self.plain_out) == 0
    }
}
