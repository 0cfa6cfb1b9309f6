//! Messages of other protocols (HTTP, DNS, RESP), and text for terminals.

use dormouse_helpers::fuzzed::{self, Stream};

use super::choice;

/// A request to the admin address: a refusal has a response, and a complete request stays complete.
pub(crate) fn http_request(data: &[u8]) {
    match fuzzed::http_request(data) {
        None => {}
        Some(Err(response)) => assert!(response.starts_with(b"HTTP/1.1 4"), "{response:?}"),
        Some(Ok(request)) => {
            let more = [data, b"x"].concat();
            assert_eq!(fuzzed::http_request(&more), Some(Ok(request)));
        }
    }
}

/// The response of an authority: if it is complete by its headers, the end of the stream changes nothing.
pub(crate) fn http_response(data: &[u8]) {
    let (how, bytes) = choice(data);
    let is_head = how & 1 == 1;
    match fuzzed::http_response(bytes, is_head, Stream::Open) {
        Ok(Some((status, body))) => {
            assert!(body.len() <= bytes.len());
            let ended =
                fuzzed::http_response(bytes, is_head, Stream::Ended).expect("complete before");
            assert_eq!(ended, Some((status, body)));
        }
        Ok(None) => drop(fuzzed::http_response(bytes, is_head, Stream::Ended)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let pieces: Vec<&[u8]> = bytes.chunks(usize::from(how).max(1)).collect();
    let whole = dormouse_bench::fuzzed::http_response(&[bytes]);
    let cut = dormouse_bench::fuzzed::http_response(&pieces);
    // Bytes after a response are an error only if they arrive together with its end.
    if let (Ok(whole), Ok(cut)) = (whole, cut) {
        assert_eq!(whole, cut);
    }
}

/// An answer of a name server.
pub(crate) fn dns(data: &[u8]) {
    fuzzed::dns_answer(data);
    // With a header and a question section that fit the query.
    let (answers, rest) = choice(data);
    let head = [0, 0, 0x81, 0x80, 0, 1, 0, answers, 0, 1, 0, 0];
    let question = b"\x07example\x03com\0\0\x01\0\x01";
    fuzzed::dns_answer(&[&head[..], question, rest].concat());
}

/// The stream of a SPIFFE agent: where it is cut does not matter.
pub(crate) fn spiffe(data: &[u8]) {
    let (cut, bytes) = choice(data);
    let whole = fuzzed::spiffe_stream(bytes, 0);
    assert_eq!(whole, fuzzed::spiffe_stream(bytes, usize::from(cut)));
}

/// The response of a DNS server that accepts updates, and the file of the key that they share.
pub(crate) fn dns_updates(data: &[u8]) {
    fuzzed::dns_zone(data);
    let (answers, rest) = choice(data);
    let head = [0, 0, 0x80, 0, 0, 0, 0, answers, 0, 1, 0, 1];
    fuzzed::dns_zone(&[&head[..], rest].concat());
    if let Some(why) = fuzzed::tsig(data) {
        assert!(!why.contains(char::is_control) && why.len() < 400, "{why}");
    }
}

/// The reply of Redis or Valkey: the text of an error reply is bounded.
pub(crate) fn resp(data: &[u8]) {
    if let Err(error) = fuzzed::store_reply(data) {
        assert!(error.len() <= 64 << 10);
    }
}

/// Printed text contains no character that acts on a terminal, and cleaned JSON has the same value.
pub(crate) fn printable(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let acts = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let shown = dormouse_printable::line(&text).to_string();
    assert!(!shown.contains(acts) && shown.chars().count() <= 12 * dormouse_printable::LENGTH_MAX);
    let shown = dormouse_printable::lines(&text).to_string();
    assert!(!shown.contains(|c| c != '\n' && acts(c)));
    assert_eq!(shown.matches('\n').count(), text.matches('\n').count());
    let document = serde_json::to_string(&text).expect("a string");
    let clean = dormouse_printable::json(&document);
    assert!(!clean.contains(acts));
    assert_eq!(
        serde_json::from_str::<String>(&clean).expect("a string"),
        text
    );
}
