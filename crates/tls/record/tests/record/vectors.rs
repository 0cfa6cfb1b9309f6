//! Whole records, computed independently of this crate: with Python's `cryptography`, from the RFCs' formulas.

use crate::test_hex::hex;
use dormouse_record::{
    KeyIv, OpenKey, Opened, Role, SealKey, State, Suite, open, record_room, seal_in_place,
    seal_key_update,
};

const CONTENT: &[u8] = b"dormouse";
/// Sequence number of the first record of each vector.
const SEQUENCE: u64 = 0x0102;

struct Vector {
    suite: Suite,
    /// TLS 1.2, key 00 01 02 ..., IV f0 f1 f2 ...
    tls12: &'static str,
    /// The same with explicit nonce 00 01 02 ... 07, since a peer chooses its own nonces (AES-GCM only).
    tls12_other_nonce: &'static str,
    /// TLS 1.3, secret 40 41 42 ...: a KeyUpdate.
    key_update: &'static str,
    /// The data record that follows it.
    data: &'static str,
}

const VECTORS: [Vector; 3] = [
    Vector {
        suite: Suite::Aes128GcmSha256,
        tls12: "1703030020f4f5f6f7f8f9fbf954470f4517cfcbcd1d241fcc26167303d0c5209b0e2d308f",
        tls12_other_nonce: "17030300200001020304050607bd0af88beebc83d59a1d81a50a106daae6750fc26086d681",
        key_update: "17030300165fd75e25f6a1d5eb04b9b53839072724c97ea493fd9e",
        data: "1703030019a64fd26a7536e04873865cac7b139f58156340592171c42c37",
    },
    Vector {
        suite: Suite::Aes256GcmSha384,
        tls12: "1703030020f4f5f6f7f8f9fbf9a306b0f5cb092cb7581f118d34884de025548d4463efa26d",
        tls12_other_nonce: "1703030020000102030405060796c1219cadc3336c996303e9e9e8a32794326c85b3394887",
        key_update: "170303001600cc166b60a1f15dd0bfa9467d08e193a4a4a14aeca9",
        data: "17030300196d53c60cc68d33a811fdd354b1039ff7095eafb84d87298eba",
    },
    Vector {
        suite: Suite::Chacha20Poly1305Sha256,
        tls12: "170303001896dea3f99ff263da40f207e1a9d4430018365e9ffa0ccbba",
        tls12_other_nonce: "170303001896dea3f99ff263da40f207e1a9d4430018365e9ffa0ccbba",
        key_update: "17030300168fee1727b5cae55bd119e834046b4691245bae14fb2d",
        data: "1703030019918e623cbbfba927673408b17415eec2fbf19dd600be1cf127",
    },
];

fn tls12_end(suite: Suite) -> State {
    let key: Vec<u8> = (0..suite.key_len() as u8).collect();
    let iv: Vec<u8> = (0xf0..0xfc).collect();
    let side = KeyIv { key: &key, iv: &iv };
    let mut state = State::empty();
    state
        .establish_tls12(Role::Server, suite, side, SEQUENCE, side, SEQUENCE)
        .unwrap();
    state
}

fn tls13_end(suite: Suite) -> State {
    let secret: Vec<u8> = (0x40..0x40 + suite.secret_len() as u8).collect();
    let mut state = State::empty();
    state
        .establish_tls13(Role::Server, suite, &secret, SEQUENCE, &secret, SEQUENCE)
        .unwrap();
    state
}

fn sealed(state: &mut State, key: &mut SealKey) -> Vec<u8> {
    let room = record_room(state);
    let mut record = [&vec![0; room.header], CONTENT, &vec![0; room.trailer]].concat();
    seal_in_place(state, key, &mut record, CONTENT.len()).unwrap();
    record
}

fn assert_opens(state: &mut State, key: &mut OpenKey, record: &str) {
    let mut record = hex(record);
    match open(state, key, &mut record).unwrap() {
        Opened::Data { plaintext, .. } => assert_eq!(&record[plaintext], CONTENT),
        other => panic!("{other:?}"),
    }
}

#[test]
fn tls12() {
    for vector in VECTORS {
        let mut state = tls12_end(vector.suite);
        let mut key = SealKey::new(&state);
        assert_eq!(sealed(&mut state, &mut key), hex(vector.tls12));
        for record in [vector.tls12, vector.tls12_other_nonce] {
            let mut state = tls12_end(vector.suite);
            let mut key = OpenKey::new(&state);
            assert_opens(&mut state, &mut key, record);
        }
    }
}

#[test]
fn tls13_after_a_key_update() {
    for vector in VECTORS {
        let mut state = tls13_end(vector.suite);
        let mut key = SealKey::new(&state);
        let mut out = [0; 64];
        let len = seal_key_update(&mut state, &mut key, &mut out).unwrap();
        assert_eq!(out[..len], hex(vector.key_update));
        assert_eq!(sealed(&mut state, &mut key), hex(vector.data));

        let mut state = tls13_end(vector.suite);
        let mut key = OpenKey::new(&state);
        let opened = open(&mut state, &mut key, &mut hex(vector.key_update)).unwrap();
        assert!(matches!(opened, Opened::Handled { .. }));
        assert_opens(&mut state, &mut key, vector.data);
    }
}
