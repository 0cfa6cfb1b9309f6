//! Bytes moved by a step.

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

    /// Whether the step moved no bytes.
    pub(crate) fn is_none(&self) -> bool {
        (self.tls_in | self.tls_out | self.plain_in | self.plain_out) == 0
    }
}
