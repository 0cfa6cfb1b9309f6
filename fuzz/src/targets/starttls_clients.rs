//! What clients send before TLS, and greetings of backends.

use dormouse_config::Starttls;
use dormouse_dataplane::starttls::{Greeting, MESSAGE_MAX, Prelude, greeting};

/// One input; the first byte chooses the protocol.
pub(crate) fn run(data: &[u8]) {
    let Some((&choice, data)) = data.split_first() else {
        return;
    };
    let all = Starttls::WORDS;
    let (_, protocol) = all[usize::from(choice) % all.len()];
    whole_and_by_bytes(protocol, data);
    greeting_ends_once(protocol, data);
}

/// Says the same in the same order however the bytes are divided, except that bytes behind the request for TLS are
/// refused only if they arrive with it.
fn whole_and_by_bytes(protocol: Starttls, data: &[u8]) {
    let data = &data[..data.len().min(MESSAGE_MAX)];
    let mut at_once = Prelude::new(protocol);
    at_once.greet("mx.example");
    let whole = at_once.handle_input(data, "mx.example");
    let mut in_pieces = Prelude::new(protocol);
    in_pieces.greet("mx.example");
    for byte in data {
        let before = in_pieces.output().len();
        if in_pieces.handle_input(&[*byte], "mx.example").is_err() {
            assert!(whole.is_err());
            break;
        }
        assert!(
            in_pieces.output().len() - before < 1024,
            "an answer is short"
        );
        let mut said = in_pieces.output();
        if protocol != Starttls::Xmpp {
            said = &said[..said.len().min(at_once.output().len())];
            assert!(at_once.output().starts_with(said));
        }
    }
    assert!(at_once.output().len() < 16 * 1024);
    at_once.output_sent(usize::MAX);
    if at_once.is_done() {
        assert!(whole.is_ok());
        let begins_with_tls = matches!(protocol, Starttls::Postgres | Starttls::Off);
        assert!(begins_with_tls || at_once.into_received().is_empty());
    }
}

fn greeting_ends_once(protocol: Starttls, data: &[u8]) {
    let mut last = Some(Greeting::Partial);
    for end in 0..=data.len() {
        let now = greeting(protocol, &data[..end]);
        assert_eq!(now.is_some(), protocol.has_greeting());
        if let Some(Greeting::Complete(len)) = last {
            assert_eq!(
                now,
                Some(Greeting::Complete(len)),
                "more bytes change nothing"
            );
        }
        if let Some(Greeting::Complete(len)) = now {
            assert!(len <= end);
        }
        last = now;
    }
}
