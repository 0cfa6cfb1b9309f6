//! Records in which a server sends its answers.

use dormouse_record::CONTENT_MAX;
use serde::{Deserialize, Serialize};

/// Records of a server's answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RecordFigures {
    /// Number of answers.
    pub answers: u64,
    /// Bytes of application data in them.
    pub content_bytes: u64,
    /// Number of records that carried them.
    pub records: u64,
    /// Bytes of these records, as sent.
    pub wire_bytes: u64,
    /// Header and tag of one record, in this version and suite.
    pub least_bytes: u64,
}

impl RecordFigures {
    /// Records beyond those that the answers need.
    pub(crate) fn extra_records(&self) -> u64 {
        let needed = self.answers + self.content_bytes / CONTENT_MAX as u64;
        self.records.saturating_sub(needed)
    }

    /// Bytes that are neither content nor a record's header and tag.
    pub(crate) fn padding_bytes(&self) -> u64 {
        let least = self.content_bytes + self.records * self.least_bytes;
        self.wire_bytes.saturating_sub(least)
    }

    /// Bytes that are not content.
    pub(crate) fn overhead_bytes(&self) -> u64 {
        self.wire_bytes.saturating_sub(self.content_bytes)
    }
}
