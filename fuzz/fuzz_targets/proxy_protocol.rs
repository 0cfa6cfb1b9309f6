//! The PROXY protocol: anything may come from whoever stands where a proxy should.
#![no_main]

#[path = "../body/proxy_protocol.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
