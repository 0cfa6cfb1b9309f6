//! Tests through the public API: the reaction to each record, known answers, and round trips between two ends.

mod answers;
mod answers_tls12;
mod answers_tls13;
mod common;
mod rfc8448;
mod roundtrip;
#[path = "../../src/test_hex.rs"]
mod test_hex;
mod vectors;
