//! The crate from outside: what happens with each record, known answers, and what one side seals the
//! other opens.

mod answers;
mod answers_tls12;
mod answers_tls13;
mod common;
mod rfc8448;
mod roundtrip;
#[path = "../../src/test_hex.rs"]
mod test_hex;
mod vectors;
