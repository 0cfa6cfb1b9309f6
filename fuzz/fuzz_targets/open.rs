//! Opening records: anything may come from the network.
#![no_main]

#[path = "../body/open.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
