//! The engine, delivered whole and cut.

use dormouse_engine::Protocols;
use dormouse_testkit::{Cut, Event, Pair, PairSettings};

#[test]
fn both_versions_full_and_resumed() {
    for protocols in [Protocols::TLS13, Protocols::TLS12] {
        let pair = Pair::new(PairSettings {
            protocols,
            ..PairSettings::default()
        });
        for resumed in [false, true] {
            let (mut client, mut server) = pair.connect_and_take_tickets();
            assert_eq!(client.info.resumed, resumed, "{:?}", client.info);
            assert_eq!(server.info.resumed, resumed, "{:?}", server.info);
            let record = client.seal(b"hello");
            assert_eq!(server.open(&record), [Event::Data(b"hello".to_vec())]);
            let record = server.seal(b"welcome");
            assert_eq!(client.open(&record), [Event::Data(b"welcome".to_vec())]);
            println!("{:?}\n{:?}", client.info, server.info);
        }
        pair.connect(Cut::Every(1)).unwrap();
    }
}
