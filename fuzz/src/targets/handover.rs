//! Data that passes between processes and binaries, possibly of another version.

use dormouse_handover::notes::Notes;
use dormouse_handover::{Handover, KeeperPart, fuzzed};
use dormouse_handover::{layout::Formats, status::Status};

use super::choice;

/// The handover's document, its parts and its certificates.
pub(crate) fn document(data: &[u8]) {
    let (how, rest) = choice(data);
    if how & 1 == 1
        && let Ok(parts) = fuzzed::parts_of(rest)
    {
        assert!(parts.concat().len() <= rest.len().next_multiple_of(4096));
    }
    drop(serde_json::from_slice::<KeeperPart>(rest));
    drop(serde_json::from_slice::<Notes>(rest));
    drop(serde_json::from_slice::<Status>(rest));
    if let Ok(formats) = serde_json::from_slice::<Formats>(rest) {
        drop(formats.check());
    }
    let (document, secrets) = super::cut(rest);
    if let Ok(mut handover) = serde_json::from_slice::<Handover>(document) {
        drop(handover.set_secrets(secrets));
    }
}

/// Slots of this layout version and of others.
pub(crate) fn slots(data: &[u8]) {
    let (version, rest) = choice(data);
    for bytes in rest.chunks(192) {
        fuzzed::is_sound_slot(version.into(), bytes);
    }
}

/// Orders of main and reports of workers: encoding a decoded message and decoding it again gives the same
/// message.
pub(crate) fn orders(data: &[u8]) {
    let (kind, body) = choice(data);
    if let Ok(encoded) = fuzzed::order(kind, body) {
        let (kind, body) = choice(&encoded);
        assert_eq!(
            fuzzed::order(kind, body).expect("an encoded order"),
            encoded
        );
    }
    if let Ok(encoded) = fuzzed::worker_report(kind, body) {
        let (kind, body) = choice(&encoded);
        assert_eq!(
            fuzzed::worker_report(kind, body).expect("an encoded report"),
            encoded
        );
    }
}
