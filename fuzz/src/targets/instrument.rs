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

/// A program that a process has mapped. A name has 120 characters and a mark that it was cut, and an escaped character
/// up to ten.
pub(crate) fn symbols(data: &[u8]) {
    const OFFSETS: [u64; 6] = [0, 0x10, 0x1000, 0x1018, 0x2000, u64::MAX];
    const LONGEST: usize = 120 * 10 + 1;
    let names = fuzzed::symbols(data, &OFFSETS);
    assert!(names.len() <= OFFSETS.len());
    for name in names {
        assert!(name.chars().count() <= LONGEST, "{name}");
        assert!(!name.chars().any(char::is_control), "{name:?}");
    }
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

/// What a server sends before TLS; the first byte chooses the protocol. The outcome does not depend on where the bytes
/// were cut.
pub(crate) fn starttls(data: &[u8]) {
    const LONGEST: usize = 32 * 1024;
    let Some((protocol, answer)) = data.split_first() else {
        return;
    };
    let answer = answer.get(..LONGEST).unwrap_or(answer);
    let (first, second) = cut(answer);
    let whole = [first, second].concat();
    let divided = dormouse_bench::fuzzed::starttls(*protocol, &[first, second]);
    assert_eq!(
        divided,
        dormouse_bench::fuzzed::starttls(*protocol, &[&whole])
    );
}
