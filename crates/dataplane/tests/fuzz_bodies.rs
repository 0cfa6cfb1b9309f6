//! The bodies of the fuzz targets that need this crate, on a stable toolchain, with seeded input.

#[path = "../../../fuzz/body/proxy_protocol.rs"]
#[allow(unreachable_pub)] // a module of the fuzz target too
mod proxy_protocol_body;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Random bytes, and words that have a meaning between them.
    #[test]
    fn proxy_protocol(choice in any::<u8>(), words in prop::collection::vec(word(), 0..12)) {
        let data = [&[choice][..], &words.concat()].concat();
        proxy_protocol_body::run(&data);
    }
}

fn word() -> impl Strategy<Value = Vec<u8>> {
    const WORDS: [&[u8]; 14] = [
        b"TCP4 ",
        b"TCP6 ",
        b"UNKNOWN",
        b"1.2.3.4 ",
        b"::1 ",
        b"443",
        b" ",
        b"\r\n",
        &[0x21, 0x11, 0, 12],
        &[0x21, 0x21, 0, 36],
        &[0x20, 0, 0, 0],
        &[0x21, 0x11, 0, 20],
        &[1, 2, 3, 4, 5, 6, 7, 8, 0, 80, 1, 187],
        &[3, 0, 4],
    ];
    prop_oneof![
        3 => (0..WORDS.len()).prop_map(|n| WORDS[n].to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ]
}
