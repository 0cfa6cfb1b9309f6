//! Parsers of this crate that read untrusted bytes, exposed for `fuzz/` only; not a public interface.

use crate::{client, server, software};

/// Parses a text as each file under `/proc` and each tool output that an audit reads.
pub fn proc_text(text: &str) {
    dormouse_census::fuzzed::proc_text(text);
    software::read_texts(text);
}

/// Walks the bytes as a heap and returns the number of blocks in use.
pub fn heap(bytes: &[u8]) -> u64 {
    dormouse_census::fuzzed::heap(bytes)
}

/// Reads the bytes as a program and returns the names of the functions at some offsets of it.
pub fn symbols(bytes: &[u8], offsets: &[u64]) -> Vec<String> {
    dormouse_census::fuzzed::symbols(bytes, offsets)
}

/// Parses a server's answer to a handmade ClientHello, and its handshake messages.
pub fn server_answer(bytes: &[u8]) -> bool {
    server::understands(bytes)
}

/// Parses what a client sends in pieces: its ClientHello and its requests. Returns the number of requests.
pub fn client(pieces: &[&[u8]]) -> usize {
    client::understood(pieces)
}
