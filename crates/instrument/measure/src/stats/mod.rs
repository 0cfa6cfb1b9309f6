//! Statistics: distributions of latencies, and slopes with their uncertainty.

mod latency;
mod slope;

pub use latency::{Latencies, SparseHistogram, Summary};
pub use slope::{Growth, Slope, Verdict};
