use super::*;
use std::time::Duration;

const REUSE: Reuse = Reuse {
    uses_max: 5,
    age_max_s: 100,
};

fn at(seconds: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}

/// A session whose ticket contains `n`.
fn session(n: u32, received_s: u64) -> Session {
    let mut bytes = vec![1, 0x13, 0x01];
    bytes.extend_from_slice(&received_s.to_be_bytes());
    bytes.extend_from_slice(&3_600_u32.to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.push(32);
    bytes.extend_from_slice(&[7; 32]);
    bytes.extend_from_slice(&[0, 4]);
    bytes.extend_from_slice(&n.to_be_bytes());
    Session::from_bytes(&bytes).expect("a session")
}

fn number(session: &Session) -> u8 {
    *session.bytes().last().expect("bytes")
}

fn sessions() -> ClientSessions {
    ClientSessions::create(3).expect("a mapping")
}

#[test]
fn offers_tickets_once_while_there_are_others() {
    let sessions = sessions();
    let place = sessions.place([1; 16], REUSE).expect("room for a place");
    assert!(place.take(at(10)).is_none(), "no session yet");
    let chain = place.begin(at(10));
    for n in 0..3 {
        place.put(chain, &session(n, 10));
    }
    let taken: Vec<u8> = (0..5)
        .map(|_| number(&place.take(at(11)).expect("a session").1))
        .collect();
    assert_eq!(
        taken,
        [2, 1, 0, 0, 0],
        "the newest first, the last repeatedly"
    );
    assert!(place.take(at(11)).is_none(), "used five times");
    let chain = place.begin(at(12));
    assert!(place.take(at(12)).is_none(), "the old chain has ended");
    place.put(chain, &session(9, 12));
    assert_eq!(number(&place.take(at(13)).expect("a session").1), 9);
    sessions.fd().close();
}

/// With renewed certificates, more keys come than there are places.
#[test]
fn a_new_server_gets_the_place_with_the_oldest_handshake() {
    let sessions = sessions();
    let place = |n: u8| sessions.place([n; 16], REUSE).expect("a place");
    let fill = |n: u8, at_s: u64| {
        let place = place(n);
        let chain = place.begin(at(at_s));
        assert!(place.put(chain, &session(n.into(), at_s)));
        place
    };
    let first = fill(1, 20);
    let oldest = fill(2, 10);
    let third = fill(3, 30);
    let new = place(4);
    // The handle of the former server does nothing in its place.
    assert!(oldest.take(at(31)).is_none());
    assert!(!oldest.put(oldest.chain(), &session(9, 31)));
    assert!(oldest.snapshot().is_none());
    assert!(
        new.take(at(31)).is_none(),
        "no session of the former server"
    );
    // The new one has none yet, and is not the next to be given away.
    let newer = place(5);
    assert!(first.take(at(32)).is_none(), "its place was given away");
    for (place, n) in [(&new, 4), (&newer, 5), (&third, 3)] {
        if n != 3 {
            let chain = place.begin(at(33));
            assert!(place.put(chain, &session(n, 33)));
        }
        let (_, taken) = place.take(at(34)).expect("its own session");
        assert_eq!(u32::from(number(&taken)), n);
    }
    // It gets another place after its next full handshake.
    let chain = oldest.begin(at(40));
    assert!(oldest.put(chain, &session(2, 40)));
    assert_eq!(number(&oldest.take(at(41)).expect("its session").1), 2);
    assert!(third.take(at(41)).is_none(), "its place was the oldest");
    // A process that died while it gave a place away leaves one that is taken first.
    sessions
        .word(oldest.at())
        .store(GIVEN_AWAY, Ordering::Relaxed);
    assert_eq!(place(6).at(), oldest.at());
    sessions.fd().close();
}

/// A worker dies between the two stores.
#[test]
fn an_old_chain_never_seems_new() {
    let sessions = sessions();
    let place = sessions.place([1; 16], REUSE).expect("a place");
    let chain = place.begin(at(10));
    assert!(place.put(chain, &session(1, 10)));
    place.begin_chain();
    assert!(place.take(at(200)).is_none());
    place.since().store(200, Ordering::Release);
    assert!(place.take(at(200)).is_none());
    sessions.fd().close();
}

#[test]
fn chains_expire_and_tickets_of_old_chains_are_ignored() {
    let sessions = sessions();
    let place = sessions.place([1; 16], REUSE).expect("room for a place");
    let old = place.begin(at(10));
    let new = place.begin(at(10));
    assert_ne!(old, new);
    place.put(old, &session(1, 10));
    assert!(place.take(at(11)).is_none());
    place.put(new, &session(2, 10));
    assert!(place.take(at(109)).is_some());
    assert!(place.take(at(110)).is_none(), "a hundred seconds are over");
    sessions.fd().close();
}

#[test]
fn keeps_the_newest_tickets_when_there_is_no_room() {
    let sessions = sessions();
    let reuse = Reuse {
        uses_max: 1_000,
        ..REUSE
    };
    let place = sessions.place([1; 16], reuse).expect("room for a place");
    let chain = place.begin(at(10));
    for n in 0..50 {
        place.put(chain, &session(n, 10));
    }
    let taken: Vec<u8> = (0..SLOTS)
        .map(|_| number(&place.take(at(11)).expect("a session").1))
        .collect();
    assert_eq!(taken, [49, 48, 47, 46, 45, 44, 43, 42]);
    sessions.fd().close();
}

#[test]
fn finds_places_by_key() {
    let sessions = sessions();
    let keys: [SessionKey; 4] = [[1; 16], [2; 16], [0; 16], [4; 16]];
    let chain = sessions
        .place(keys[1], REUSE)
        .expect("room for a place")
        .begin(at(10));
    let place = sessions.place(keys[1], REUSE).expect("the same");
    place.put(chain, &session(1, 10));
    assert!(
        sessions
            .place(keys[0], REUSE)
            .expect("room for a place")
            .take(at(11))
            .is_none()
    );
    let again = ClientSessions::adopt(sessions.fd(), 3, 0).expect("the mapping");
    assert!(
        again
            .place(keys[1], REUSE)
            .expect("the same")
            .take(at(11))
            .is_some()
    );
    assert!(sessions.place(keys[2], REUSE).is_some());
    assert!(
        sessions.place(keys[3], REUSE).is_some(),
        "the place of another server"
    );
    assert!(ClientSessions::adopt(sessions.fd(), 4, 0).is_err());
    sessions.fd().close();
}

#[test]
fn the_successor_of_a_dead_worker_frees_its_claims() {
    let sessions = sessions();
    let worker = |n| ClientSessions::adopt(sessions.fd(), 3, n).expect("the mapping");
    let (one, two) = (worker(0), worker(1));
    let place = one.place([1; 16], REUSE).expect("room for a place");
    let chain = place.begin(at(10));
    place.put(chain, &session(1, 10));
    let claim = place.claim(0, READY).expect("ready");
    assert_eq!(claim.slot, 0, "claimed, then the worker dies");
    assert!(place.take(at(11)).is_none(), "busy");
    two.forget_claims();
    assert!(
        place.claim(0, FREE).is_none(),
        "another worker's claim stays"
    );
    worker(0).forget_claims();
    assert!(place.bytes(0).iter().all(|&byte| byte == 0), "wiped");
    place.put(chain, &session(2, 10));
    assert_eq!(number(&place.take(at(11)).expect("a session").1), 2);
    sessions.fd().close();
}

#[test]
fn a_short_session_leaves_nothing_of_a_long_one() {
    let sessions = sessions();
    let place = sessions.place([1; 16], REUSE).expect("room for a place");
    for bytes in [&[7; DATA_MAX][..], &[8; 8]] {
        (0..SLOTS).for_each(|_| assert!(place.store(1, false, bytes)));
    }
    for slot in 0..SLOTS {
        place
            .slot_word(slot, 24)
            .store(DATA_MAX as u64, Ordering::Relaxed);
        let left = place.bytes(slot);
        assert!(left[..8] == [8; 8] && left[8..].iter().all(|&byte| byte == 0));
    }
    sessions.fd().close();
}

#[test]
fn a_snapshot_can_be_restored() {
    let before = sessions();
    let place = before.place([1; 16], REUSE).expect("room for a place");
    assert_eq!(place.snapshot(), None);
    let chain = place.begin(at(10));
    place.put(chain, &session(1, 10));
    place.put(chain, &session(2, 10));
    place.take(at(11)).expect("a session");
    let snapshot = place.snapshot().expect("a session is left");
    let shown = format!("{snapshot:?}");
    assert_eq!(shown, "1 sessions since 10, used 1 times", "no secrets");
    let after = sessions();
    let place = after.place([1; 16], REUSE).expect("room for a place");
    place.restore(&snapshot);
    assert_eq!(place.snapshot(), Some(snapshot));
    for _ in 0..4 {
        assert_eq!(number(&place.take(at(12)).expect("a session").1), 1);
    }
    assert!(place.take(at(12)).is_none(), "uses are restored, too");
    // A reload reads the file of a server whose sessions are in use.
    let chain = place.begin(at(13));
    place.put(chain, &session(3, 13));
    let (newer, older) = (place.snapshot(), before.place([1; 16], REUSE));
    place.restore(
        &older
            .and_then(|place| place.snapshot())
            .expect("older ones"),
    );
    assert_eq!(place.snapshot(), newer);
    before.fd().close();
    after.fd().close();
}

/// Many threads act like workers at once: no session is torn, and no chain is used too often.
#[test]
fn concurrent_use_is_consistent() {
    let sessions = sessions();
    let reuse = Reuse {
        uses_max: 500,
        age_max_s: 100,
    };
    let place = sessions.place([1; 16], reuse).expect("room for a place");
    let chain = place.begin(at(10));
    let taken: usize = std::thread::scope(|scope| {
        let work = |n: u32| {
            let place = place.clone();
            scope.spawn(move || {
                let mut taken = 0;
                for round in 0..1_000 {
                    place.put(chain, &session(n << 16 | round, 10));
                    if let Some((of, session)) = place.take(at(11)) {
                        assert_eq!((of, session.bytes().len()), (chain, 58));
                        taken += 1;
                    }
                }
                taken
            })
        };
        let threads: Vec<_> = (0..4).map(work).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .sum()
    });
    assert!((1..=500).contains(&taken), "{taken}");
    sessions.fd().close();
}

/// A compromised worker writes a state that does not exist into all slots.
#[test]
fn slots_of_an_unknown_state_are_used_again() {
    let sessions = sessions();
    let place = sessions.place([1; 16], REUSE).expect("room for a place");
    for slot in 0..SLOTS {
        place.slot_word(slot, 0).store(u64::MAX, Ordering::Relaxed);
    }
    let chain = place.begin(at(10));
    assert!(place.put(chain, &session(1, 10)));
    assert_eq!(number(&place.take(at(11)).expect("a session").1), 1);
    sessions.fd().close();
}
