use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::{
    GCM_RECORDS_MAX, GCM_REKEY_AT, GCM_UNITS_MAX, OpenKey, SMALL_RECORD_MAX, SealError, SealKey,
};
use crate::{seal_alert, seal_in_place, seal_key_update};

fn established(suite: Suite) -> State {
    let mut state = State::empty();
    let read: Vec<u8> = (1..=suite.secret_len() as u8).collect();
    let write: Vec<u8> = (101..=100 + suite.secret_len() as u8).collect();
    state
        .establish_tls13(Role::Server, suite, &read, 3, &write, 4)
        .unwrap();
    state
}

fn established_tls12(suite: Suite) -> State {
    let mut state = State::empty();
    let key: Vec<u8> = (1..=suite.key_len() as u8).collect();
    let pair = KeyIv {
        key: &key,
        iv: &[9; 12],
    };
    state
        .establish_tls12(Role::Client, suite, pair, 1, pair, 1)
        .unwrap();
    state
}

#[test]
fn empty_is_all_zero_and_refused() {
    let mut state = State::empty();
    assert_eq!(state.as_bytes(), [0; 128]);
    assert_eq!(state.validate(), Err(Corrupt::Empty));
    assert!(state.is_empty() && !state.owes_key_update());
    let (mut open_key, mut seal_key) = (OpenKey::new(&state), SealKey::new(&state));
    let mut buf = [0; 64];
    let refusal = crate::open(&mut state, &mut open_key, &mut buf).unwrap_err();
    assert_eq!(refusal.reason, crate::Reason::NotEstablished);
    let sealed = seal_in_place(&mut State::empty(), &mut seal_key, &mut buf, 1);
    assert_eq!(sealed, Err(SealError::Misuse(Misuse::NotEstablished)));
}

#[test]
fn wiping_leaves_nothing() {
    let mut state = established(Suite::Aes256GcmSha384);
    assert!(state.as_bytes().iter().filter(|&&byte| byte != 0).count() > 96);
    state.wipe();
    assert_eq!(state.as_bytes(), [0; 128]);
}

#[test]
fn secrets_lie_where_the_layout_says() {
    for suite in Suite::ALL {
        let state = established(suite);
        let bytes = state.as_bytes();
        let code = [1, 2, suite.code(), 1];
        assert_eq!(bytes[..4], code);
        assert_eq!(bytes[16..24], 3_u64.to_ne_bytes());
        assert_eq!(bytes[24..32], 4_u64.to_ne_bytes());
        assert_eq!(bytes[32..34], [1, 2]);
        assert_eq!(bytes[80..82], [101, 102]);
        let state = established_tls12(suite);
        assert_eq!(state.as_bytes()[..4], [1, 1, suite.code(), 2]);
        assert_eq!(state.as_bytes()[64..76], [9; 12]);
        assert_eq!(state.as_bytes()[112..124], [9; 12]);
    }
}

#[test]
fn wrong_lengths_are_misuse_and_leave_nothing() {
    for suite in Suite::ALL {
        let good = vec![1; suite.secret_len()];
        for len in (0..64).filter(|&len| len != suite.secret_len()) {
            let bad = vec![1; len];
            let mut state = established(suite);
            let expected = Err(Misuse::SecretLength {
                expected: suite.secret_len(),
                found: len,
            });
            let established = state.establish_tls13(Role::Server, suite, &good, 0, &bad, 0);
            assert_eq!(established, expected);
            assert_eq!(state.as_bytes(), [0; 128]);
        }
    }
    let mut state = State::empty();
    let zero = [0; 32];
    let suite = Suite::Aes128GcmSha256;
    let established = state.establish_tls13(Role::Server, suite, &zero, 0, &zero, 0);
    assert_eq!(established, Err(Misuse::Unfit(Corrupt::Secret)));
    assert_eq!(state.as_bytes(), [0; 128]);
}

/// Every byte of a valid state either may vary or is checked.
#[test]
fn validation_refuses_impossible_states() {
    let with = |at: usize, value: u8| {
        let mut bytes = [0; 128];
        bytes.copy_from_slice(established(Suite::Aes128GcmSha256).as_bytes());
        bytes[at] = value;
        State::read_from_bytes(&bytes).unwrap().validate()
    };
    assert_eq!(with(40, 77), Ok(()));
    assert_eq!(with(0, 2), Err(Corrupt::Layout(2)));
    assert_eq!(with(1, 0), Err(Corrupt::Version(0)));
    assert_eq!(with(1, 3), Err(Corrupt::Version(3)));
    assert_eq!(with(2, 4), Err(Corrupt::Suite(4)));
    assert_eq!(with(3, 3), Err(Corrupt::Role(3)));
    assert_eq!(with(4, REPLACING), Err(Corrupt::Replacing));
    assert_eq!(with(4, HALF_WARNING), Err(Corrupt::Flags(HALF_WARNING)));
    assert_eq!(with(5, 5), Err(Corrupt::Message));
    assert_eq!(with(5, 4), Err(Corrupt::Message));
    assert_eq!(with(6, 24), Err(Corrupt::Message));
    assert_eq!(with(10, 1), Err(Corrupt::Message));
    assert_eq!(with(12, EMPTY_RECORDS_MAX + 1), Err(Corrupt::Counters));
    assert_eq!(with(13, KEY_UPDATES_MAX + 1), Err(Corrupt::Counters));
    assert_eq!(with(14, WARNINGS_MAX + 1), Err(Corrupt::Counters));
    assert_eq!(with(15, 1), Err(Corrupt::Counters));
    assert_eq!(with(31, 1), Err(Corrupt::Sequence));
    assert_eq!(with(64, 1), Err(Corrupt::Secret));
    assert_eq!(with(127, 1), Err(Corrupt::Secret));
    // A state whose page was punched out after its first bytes.
    let mut bytes = [0; 128];
    bytes[..32].copy_from_slice(&established(Suite::Aes128GcmSha256).as_bytes()[..32]);
    let punched = State::read_from_bytes(&bytes).unwrap();
    assert_eq!(punched.validate(), Err(Corrupt::Secret));
    // More records than its key has units in use: the next seal would make it unfit.
    let mut tls12 = established_tls12(Suite::Aes128GcmSha256);
    tls12.set_units_used(9);
    tls12.write_sequence = 10;
    assert_eq!(tls12.validate(), Err(Corrupt::Sequence));
    tls12.write_sequence = 9;
    assert_eq!(tls12.validate(), Ok(()));
    let mut tls12 = established_tls12(Suite::Aes128GcmSha256);
    tls12.set(KEY_UPDATE_REQUESTED);
    assert!(matches!(tls12.validate(), Err(Corrupt::Flags(_))));
}

/// A kill can come after any step of a replacement, and in the middle of storing the secret. The old secret
/// must never coexist with a sequence number it has used, and a state that is neither old nor new must be
/// refused by validation, opening and sealing.
#[test]
fn a_kill_during_secret_replacement_is_harmless() {
    for suite in Suite::ALL {
        for direction in [Direction::Read, Direction::Write] {
            let secret_len = suite.secret_len();
            let mut next = [0; SECRET_MAX];
            let old = *established(suite).secret(direction);
            assert!(next_traffic_secret(suite, &old[..secret_len], &mut next));
            // (steps finished, bytes of the secret stored by the step which was interrupted)
            let kills = (0..=4)
                .map(|steps| (steps, 0))
                .chain((1..secret_len).map(|bytes| (1, bytes)));
            for (steps, bytes) in kills {
                let mut state = established(suite);
                for &step in &Replacement::STEPS[..steps] {
                    state.replace_step(step, direction, &next[..secret_len]);
                }
                state.replace_step_of_secret(direction, &next[..bytes]);
                assert_kill_is_harmless(state, direction, &old, steps);
            }
        }
    }
}

impl State {
    fn replace_step_of_secret(&mut self, direction: Direction, next: &[u8]) {
        self.replace_step(Replacement::Secret, direction, next);
    }
}

fn assert_kill_is_harmless(
    mut state: State,
    direction: Direction,
    old: &[u8; SECRET_MAX],
    steps: usize,
) {
    let sequence = match direction {
        Direction::Read => state.read_sequence(),
        Direction::Write => state.write_sequence(),
    };
    if state.secret(direction) == old {
        assert!(sequence >= 3, "an old secret and a used sequence number");
    }
    let torn = (1..4).contains(&steps);
    assert_eq!(state.validate().is_err(), torn);
    if torn {
        let mut key = SealKey::new(&state);
        let mut buf = [0; 64];
        let sealed = seal_in_place(&mut state, &mut key, &mut buf, 1);
        assert_eq!(sealed, Err(SealError::Misuse(Misuse::NotEstablished)));
        let mut key = OpenKey::new(&state);
        assert!(crate::open(&mut state, &mut key, &mut buf).is_err());
    }
}

/// A cached key whose secret was replaced must never seal: the sequence numbers restart at zero.
#[test]
fn a_stale_key_is_refused() {
    let mut state = established(Suite::Aes128GcmSha256);
    let mut overtaken = SealKey::new(&state);
    let mut key = SealKey::new(&state);
    let mut out = [0; SMALL_RECORD_MAX];
    seal_key_update(&mut state, &mut key, &mut out).unwrap();
    let mut buf = [7; 64];
    let sealed = seal_in_place(&mut state, &mut overtaken, &mut buf, 1);
    assert_eq!(sealed, Err(SealError::Misuse(Misuse::WrongKey)));
    assert_eq!((buf, state.write_sequence()), ([7; 64], 0));
    seal_in_place(&mut state, &mut key, &mut buf, 1).unwrap();
    // The same slot with another connection.
    let mut other = established_tls12(Suite::Aes128GcmSha256);
    let sealed = seal_in_place(&mut other, &mut key, &mut buf, 1);
    assert_eq!(sealed, Err(SealError::Misuse(Misuse::WrongKey)));
}

#[test]
fn a_key_update_is_owed_before_the_limit() {
    for suite in [Suite::Aes128GcmSha256, Suite::Aes256GcmSha384] {
        let mut state = established(suite);
        let mut key = SealKey::new(&state);
        state.write_sequence = GCM_REKEY_AT - 1;
        assert!(!state.owes_key_update());
        let mut buf = [0; 64];
        seal_in_place(&mut state, &mut key, &mut buf, 1).unwrap();
        assert!(state.owes_key_update());
        // A caller that ignores it is stopped by the limit, and can still update.
        state.write_sequence = GCM_RECORDS_MAX - 3;
        seal_in_place(&mut state, &mut key, &mut buf, 1).unwrap();
        let sealed = seal_in_place(&mut state, &mut key, &mut buf, 1);
        assert_eq!(sealed, Err(SealError::KeyExhausted));
        seal_key_update(&mut state, &mut key, &mut buf).unwrap();
        assert_eq!(state.write_sequence(), 0);
        assert!(!state.owes_key_update());
        seal_in_place(&mut state, &mut key, &mut buf, 1).unwrap();
    }
}

#[test]
fn an_exhausted_tls12_key_seals_only_a_close() {
    let mut state = established_tls12(Suite::Aes256GcmSha384);
    let mut key = SealKey::new(&state);
    state.set_units_used(GCM_UNITS_MAX - 2);
    let sequence = state.write_sequence();
    let mut buf = [0; 64];
    assert!(!state.owes_key_update());
    assert_eq!(state.records_left(), 0);
    let sealed = seal_in_place(&mut state, &mut key, &mut buf, 1);
    assert_eq!(sealed, Err(SealError::KeyExhausted));
    let alert = crate::Alert::NO_RENEGOTIATION;
    let sealed = seal_alert(&mut state, &mut key, alert, &mut buf);
    assert_eq!(sealed, Err(SealError::KeyExhausted));
    let updated = seal_key_update(&mut state, &mut key, &mut buf);
    assert_eq!(updated, Err(SealError::Misuse(Misuse::NotTls13)));
    let alert = crate::Alert::CLOSE_NOTIFY;
    seal_alert(&mut state, &mut key, alert, &mut buf).unwrap();
    assert_eq!(state.write_sequence(), sequence + 1);
    assert_eq!(state.validate(), Ok(()));
}

/// A key of TLS 1.2 wears out by the blocks that it encrypts, so small records use it less than full ones.
#[test]
fn the_use_of_a_tls12_key_depends_on_the_size_of_records() {
    for (content_len, cost) in [(0, 1), (48, 1), (49, 2), (64, 2), (1000, 16), (16_384, 257)] {
        let mut state = established_tls12(Suite::Aes128GcmSha256);
        let mut key = SealKey::new(&state);
        let before = state.units_used();
        let mut buf = vec![0; 17_000];
        for sealed in 1..=3 {
            seal_in_place(&mut state, &mut key, &mut buf, content_len).unwrap();
            assert_eq!(
                state.units_used(),
                before + sealed * cost,
                "{content_len} bytes"
            );
        }
        assert_eq!(state.validate(), Ok(()));
    }
    let mut state = established_tls12(Suite::Aes128GcmSha256);
    let mut key = SealKey::new(&state);
    // As many records as TLS 1.3 allows under one key, all small.
    state.write_sequence = GCM_RECORDS_MAX + 5;
    state.set_units_used(state.write_sequence as u32);
    seal_in_place(&mut state, &mut key, &mut [0; 64], 1).unwrap();
    assert_eq!(state.validate(), Ok(()));
    // One full record left, then none.
    state.set_units_used(GCM_UNITS_MAX - 2 - 257);
    assert_eq!(state.records_left(), 1);
    let mut buf = vec![0; 17_000];
    seal_in_place(&mut state, &mut key, &mut buf, 16_384).unwrap();
    assert_eq!(state.records_left(), 0);
    let sealed = seal_in_place(&mut state, &mut key, &mut buf, 0);
    assert_eq!(sealed, Err(SealError::KeyExhausted));
}

#[test]
fn a_tls12_connection_has_the_mark_of_its_session() {
    for suite in Suite::ALL {
        let mut state = established_tls12(suite);
        assert_eq!(state.session_mark(), 0);
        let key = OpenKey::new(&state);
        state.set_session_mark(0xfeed_beef);
        assert_eq!(state.session_mark(), 0xfeed_beef);
        assert_eq!(state.validate(), Ok(()));
        assert!(key.0.belongs_to(&state, Direction::Read).is_some());
        let mut state = established(suite);
        let before = state.read_secret;
        state.set_session_mark(7);
        assert_eq!((state.session_mark(), state.read_secret), (0, before));
    }
}

/// A state that was established late in its key's life, or written before its use was counted in units.
#[test]
fn records_that_were_not_counted_count_as_full() {
    let mut state = established_tls12(Suite::Aes128GcmSha256);
    state.write_sequence = 1000;
    assert_eq!(state.units_used(), 257_000);
    state.write_sequence = GCM_RECORDS_MAX;
    assert_eq!(state.records_left(), 0);
    let mut key = SealKey::new(&state);
    let sealed = seal_in_place(&mut state, &mut key, &mut [0; 64], 1);
    assert_eq!(sealed, Err(SealError::KeyExhausted));
    // ChaCha20-Poly1305 and TLS 1.3 have no such counter.
    for mut state in [
        established_tls12(Suite::Chacha20Poly1305Sha256),
        established(Suite::Aes128GcmSha256),
    ] {
        let mut key = SealKey::new(&state);
        let before = state.write_secret;
        seal_in_place(&mut state, &mut key, &mut [0; 64], 1).unwrap();
        assert_eq!(state.write_secret, before);
    }
}

/// When the peer's key nears its limit, our next KeyUpdate requests another, once.
#[test]
fn the_peer_is_asked_for_an_update_once() {
    let suite = Suite::Aes128GcmSha256;
    let mut state = established(suite);
    let mut peer = State::empty();
    let (read, write) = (state.write_secret, state.read_secret);
    peer.establish_tls13(
        Role::Client,
        suite,
        &read[..32],
        4,
        &write[..32],
        GCM_REKEY_AT,
    )
    .unwrap();
    state.read_sequence = GCM_REKEY_AT;
    assert!(state.owes_key_update());
    let (mut open_key, mut key) = (OpenKey::new(&state), SealKey::new(&state));
    let mut out = [0; SMALL_RECORD_MAX];
    let len = seal_key_update(&mut state, &mut key, &mut out).unwrap();
    assert!(!state.owes_key_update(), "the request was sent once");
    let mut peer_open_key = OpenKey::new(&peer);
    crate::open(&mut peer, &mut peer_open_key, &mut out[..len]).unwrap();
    assert!(peer.owes_key_update());
    let mut peer_key = SealKey::new(&peer);
    let len = seal_key_update(&mut peer, &mut peer_key, &mut out).unwrap();
    crate::open(&mut state, &mut open_key, &mut out[..len]).unwrap();
    assert_eq!(state.read_sequence(), 0);
    assert!(!state.owes_key_update() && !peer.owes_key_update());
    assert!(!state.has(KEY_UPDATE_ASKED));
}

#[test]
fn a_small_buffer_changes_nothing() {
    for mut state in [
        established(Suite::Aes128GcmSha256),
        established_tls12(Suite::Aes128GcmSha256),
    ] {
        let before = state.write_sequence();
        let mut key = SealKey::new(&state);
        let room = crate::record_room(&state);
        let need = room.header + 10 + room.trailer;
        let mut buf = vec![7; need - 1];
        let sealed = seal_in_place(&mut state, &mut key, &mut buf, 10);
        assert_eq!(sealed, Err(SealError::BufferTooSmall { need }));
        let alert = crate::Alert::CLOSE_NOTIFY;
        let sealed = seal_alert(&mut state, &mut key, alert, &mut buf[..room.header + 1]);
        assert!(matches!(sealed, Err(SealError::BufferTooSmall { .. })));
        assert!(buf.iter().all(|&byte| byte == 7));
        assert_eq!(state.write_sequence(), before);
        assert!(!state.closed());
        buf.push(0);
        assert_eq!(seal_in_place(&mut state, &mut key, &mut buf, 10), Ok(need));
    }
}

#[test]
fn debug_output_contains_no_secret() {
    let state = established(Suite::Aes128GcmSha256);
    let printed = format!(
        "{state:?} {:?} {:?}",
        OpenKey::new(&state),
        SealKey::new(&state)
    );
    assert!(printed.contains("Aes128GcmSha256"));
    assert!(
        !printed.contains("1, 2, 3") && !printed.contains("101"),
        "{printed}"
    );
}
