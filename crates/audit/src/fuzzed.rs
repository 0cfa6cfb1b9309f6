//! Parsers of this crate that take strangers' bytes, for `fuzz/` alone: no interface.

use crate::{client, server, software};

/// Reads a text as each of the files under `/proc`, and as what each tool says, that a census looks at.
pub fn proc_text(text: &str) {
    dormouse_census::fuzzed::proc_text(text);
    software::read_texts(text);
}

/// Walks these bytes as a heap: blocks in use, in all.
pub fn heap(bytes: &[u8]) -> u64 {
    dormouse_census::fuzzed::heap(bytes)
}

/// Reads a server's answer to a handmade ClientHello, and its handshake messages.
pub fn server_answer(bytes: &[u8]) -> bool {
    server::understands(bytes)
}

/// Reads what a client sends in pieces: its ClientHello and its requests. Returns the number of these.
pub fn client(pieces: &[&[u8]]) -> usize {
    client::understood(pieces)
}
