//! What goes in and out of the lanes.

/// Number of agreements that one call computes.
pub const LANES: usize = 8;

/// A scalar or a point for each lane, as bytes (RFC 7748 §5).
pub type Batch = [[u8; 32]; LANES];
