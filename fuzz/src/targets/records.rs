//! Protected records. The first byte chooses version, suite, role and whether the rest are
//!
//! * bytes from the network, or
//! * contents of records sealed by a peer that has the keys and breaks the protocol.

use dormouse_record::{
    KeyIv, OpenKey, Opened, Role, SealKey, State, Suite, Version, open, record_room, seal_record,
};
use zerocopy::{FromBytes, IntoBytes};

/// RFC 8446 §5.1.
const APPLICATION_DATA: u8 = 23;

/// One input.
pub(crate) fn run(data: &[u8]) {
    let Some((&choice, data)) = data.split_first() else {
        return;
    };
    let version = if choice & 1 == 0 {
        Version::Tls12
    } else {
        Version::Tls13
    };
    let suite = Suite::ALL[usize::from(choice >> 1 & 3) % 3];
    let role = if choice & 8 == 0 {
        Role::Server
    } else {
        Role::Client
    };
    let (mut state, peer) = ends(version, suite, role);
    let (stream, sent) = if choice & 16 == 0 {
        (data.to_vec(), None)
    } else {
        let (stream, sent) = records(peer, data);
        (stream, Some(sent))
    };
    let cut = usize::from(choice >> 5) * stream.len() / 8;
    let received = receive(&mut state, &stream, cut);
    // What the peer has sealed arrives as it was, to the first record that breaks the protocol.
    assert!(sent.is_none_or(|sent| sent.starts_with(&received)));
}

fn ends(version: Version, suite: Suite, role: Role) -> (State, State) {
    let peer_role = match role {
        Role::Server => Role::Client,
        Role::Client => Role::Server,
    };
    let (one, two) = ([0x11; 48], [0x22; 48]);
    let (mut state, mut peer) = (State::empty(), State::empty());
    let established = match version {
        Version::Tls13 => {
            let [one, two] = [&one, &two].map(|secret| &secret[..suite.secret_len()]);
            state
                .establish_tls13(role, suite, one, 0, two, 0)
                .and(peer.establish_tls13(peer_role, suite, two, 0, one, 0))
        }
        Version::Tls12 => {
            let [one, two] = [&one, &two].map(|bytes| KeyIv {
                key: &bytes[..suite.key_len()],
                iv: &bytes[..12],
            });
            state
                .establish_tls12(role, suite, one, 0, two, 0)
                .and(peer.establish_tls12(peer_role, suite, two, 0, one, 0))
        }
    };
    established.expect("secrets of the right length");
    (state, peer)
}

/// Protected records, and the application data in them. In `data`, each record is type, padding, length and content.
fn records(mut peer: State, mut data: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut key = SealKey::new(&peer);
    let (mut stream, mut sent) = (Vec::new(), Vec::new());
    while let [content_type, padding, len, rest @ ..] = data {
        let len = usize::from(*len).min(rest.len());
        let padding = match peer.version() {
            Version::Tls12 => 0,
            Version::Tls13 => usize::from(*padding),
        };
        // Half of the values give a defined content type.
        let content_type = if content_type & 0x80 == 0 {
            20 + content_type % 4
        } else {
            *content_type
        };
        let room = record_room(&peer);
        let mut record = vec![0; room.header + len + padding + room.trailer];
        record[room.header..room.header + len].copy_from_slice(&rest[..len]);
        seal_record(&mut peer, &mut key, &mut record, content_type, len, padding)
            .expect("a record with room");
        stream.extend(record);
        if content_type == APPLICATION_DATA {
            sent.extend_from_slice(&rest[..len]);
        }
        data = &rest[len..];
    }
    (stream, sent)
}

/// Opens the stream in two pieces, the second with the state restored from bytes, as in another process.
/// Returns the application data.
fn receive(state: &mut State, stream: &[u8], cut: usize) -> Vec<u8> {
    let mut received = Vec::new();
    let mut pending = stream[..cut].to_vec();
    if open_all(state, &mut pending, &mut received) {
        let mut state = State::read_from_bytes(state.as_bytes()).expect("the size of a state");
        pending.extend_from_slice(&stream[cut..]);
        open_all(&mut state, &mut pending, &mut received);
    }
    received
}

/// Opens all complete records and checks invariants. Returns false if the connection has failed.
fn open_all(state: &mut State, pending: &mut Vec<u8>, received: &mut Vec<u8>) -> bool {
    let mut key = OpenKey::new(state);
    while !pending.is_empty() {
        let before = pending.clone();
        let opened = match open(state, &mut key, pending) {
            Ok(opened) => opened,
            Err(refusal) => {
                assert!(state.failed());
                assert!(!refusal.to_string().is_empty());
                assert!(open(state, &mut key, pending).is_err());
                return false;
            }
        };
        assert_eq!(state.validate(), Ok(()));
        let (consumed, range) = match opened {
            Opened::Partial { need } => {
                assert!(need > pending.len() && *pending == before);
                return true;
            }
            Opened::Data {
                consumed,
                plaintext,
            } => {
                received.extend_from_slice(&pending[plaintext.clone()]);
                (consumed, plaintext)
            }
            Opened::Ticket { consumed, fragment } => {
                assert!(state.role() == Role::Client && !fragment.is_empty());
                (consumed, fragment)
            }
            Opened::NoRenegotiation { consumed } => {
                assert_eq!(state.version(), Version::Tls12);
                (consumed, 0..0)
            }
            Opened::PeerClosed { consumed } => {
                assert!(state.peer_closed());
                (consumed, 0..0)
            }
            Opened::PeerAlert { consumed, .. } => {
                assert!(state.failed() && state.closed());
                (consumed, 0..0)
            }
            Opened::Handled { consumed } => (consumed, 0..0),
        };
        assert!(consumed > 0 && consumed <= pending.len());
        assert!(range.start <= range.end && range.end <= consumed);
        // Bytes after the record are unchanged.
        assert_eq!(pending[consumed..], before[consumed..]);
        pending.drain(..consumed);
    }
    true
}
