//! What servers send before TLS, and the first bytes of local clients.

use super::cut;
use dormouse_config::Starttls;
use dormouse_dataplane::starttls::{ANSWER_MAX, Beginning, Request, postgres_beginning};
use std::net::Ipv4Addr;

/// One input; the first byte chooses the protocol.
pub(crate) fn run(data: &[u8]) {
    let Some((&choice, data)) = data.split_first() else {
        return;
    };
    let all = Starttls::WORDS;
    let (_, protocol) = all[usize::from(choice) % all.len()];
    if protocol != Starttls::Off {
        let data = &data[..data.len().min(ANSWER_MAX)];
        let (first, second) = cut(data);
        let whole = [first, second].concat();
        assert_eq!(hear(protocol, &[&whole]), hear(protocol, &[first, second]));
    }
    beginning_is_found_once(data);
}

/// What the server is asked, and whether it has consented; `None` if it gets no connection.
fn hear(protocol: Starttls, pieces: &[&[u8]]) -> Option<(Vec<u8>, bool)> {
    let mut request = Request::new(protocol, "mx.example", Ipv4Addr::LOCALHOST.into());
    for piece in pieces {
        if let Err(reason) = request.handle_input(piece) {
            assert!(!reason.chars().any(char::is_control), "{reason:?}");
            assert!(reason.chars().count() < 4096, "{reason}");
            return None;
        }
    }
    assert!(request.output().len() < 1024, "a request is short");
    Some((request.output().to_vec(), request.is_done()))
}

fn beginning_is_found_once(data: &[u8]) {
    let mut last = Beginning::Partial;
    for end in 0..=data.len().min(16) {
        let now = postgres_beginning(&data[..end]);
        assert!(last == Beginning::Partial || now == last);
        if let Beginning::AsksForEncryption(len) = now {
            assert!(len <= end);
        }
        last = now;
    }
}
