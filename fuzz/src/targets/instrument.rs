//! Input that `audit` and `bench` read from processes, servers and clients that may be hostile.

use dormouse_audit::fuzzed;

use super::cut;

/// Files under `/proc`, and the output of tools.
pub(crate) fn proc_files(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    dormouse_measure::fuzzed::proc_text(&text);
    fuzzed::proc_text(&text);
}

/// The memory of a process, read as a glibc heap.
pub(crate) fn heap(data: &[u8]) {
    assert!(fuzzed::heap(data) <= data.len() as u64 * 512);
}

/// A server's answer to a ClientHello built by `audit`.
pub(crate) fn server_replies(data: &[u8]) {
    fuzzed::server_answer(data);
}

/// A client's ClientHello and requests, cut at any place.
pub(crate) fn audited_client(data: &[u8]) {
    let (first, second) = cut(data);
    assert!(fuzzed::client(&[first, second]) <= data.len());
}
