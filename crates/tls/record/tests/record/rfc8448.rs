//! RFC 8448 §3, "Simple 1-RTT Handshake": all records after the handshake, byte for byte, in both directions
//! and from both ends.

use dormouse_record::{
    Alert, OpenKey, Opened, Role, SealKey, State, Suite, open, seal_alert, seal_in_place,
    seal_record,
};

const CLIENT_SECRET: &str = "9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5";
const SERVER_SECRET: &str = "a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643";

const TICKET: &str = "
    040000c90000001efad6aac502000000b22c035d829359ee5ff7af4ec900000000262a6494dc486d2c8a34cb33fa90bf1b00
    70ad3c498883c9367c09a2be785abc55cd226097a3a982117283f82a03a143efd3ff5dd36d64e861be7fd61d2827db279cce
    145077d454a3664d4e6da4d29ee03725a6a4dafcd0fc67d2aea70529513e3da2677fa5906c5b3f7d8f92f228bda40dda7214
    70f9fbf297b5aea617646fac5c03272e970727c621a79141ef5f7de6505e5bfbc388e93343694093934ae4d3570008002a00
    0400000400";
const TICKET_RECORD: &str = "
    17030300de3a6b8f90414a97d6959c3487680de5134a2b240e6cffac116e95d41d6af8f6b580dcf3d11d63c758db289a0159
    40252f55713e061dc13e078891a38efbcf5753ad8ef170ad3c7353d16d9da773b9ca7f2b9fa1b6c0d4a3d03f75e09c30ba1e
    62972ac46f75f7b981be63439b2999ce13064615139891d5e4c5b406f16e3fc181a77ca475840025db2f0a77f81b5ab05b94
    c01346755f69232c86519d86cbeeac87aac347d143f9605d64f650db4d023e70e952ca49fe5137121c74bc2697687e248746
    d6df353005f3bce18696129c8153556b3b6c6779b37bf15985684f";
const CLIENT_DATA_RECORD: &str = "
    1703030043a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b9819a8a5b46b395bd54a9a20441e2b6297
    4e1f5a6292a2977014bd1e3deae63aeebb21694915e4";
const SERVER_DATA_RECORD: &str = "
    17030300432e937e11ef4ac740e538ad36005fc4a46932fc3225d05f82aa1b36e30efaf97d90e6dffc602dcb501a59a8fcc4
    9c4bf2e5f0a21c0047c2abf332540dd032e167c2955d";
const CLIENT_ALERT_RECORD: &str = "1703030013c9872760655666b74d7ff1153efd6db6d0b0e3";
const SERVER_ALERT_RECORD: &str = "1703030013b58fd67166ebf599d24720cfbe7efa7a8864a9";

use crate::test_hex::hex;

/// "00 01 02 ... 31"
fn payload() -> Vec<u8> {
    (0..50).collect()
}

fn end(role: Role) -> State {
    let (client, server) = (hex(CLIENT_SECRET), hex(SERVER_SECRET));
    let (read, write) = match role {
        Role::Server => (&client, &server),
        Role::Client => (&server, &client),
    };
    let mut state = State::empty();
    state
        .establish_tls13(role, Suite::Aes128GcmSha256, read, 0, write, 0)
        .unwrap();
    state
}

#[test]
fn sent() {
    let (mut server, mut client) = (end(Role::Server), end(Role::Client));
    let (mut server_key, mut client_key) = (SealKey::new(&server), SealKey::new(&client));

    let ticket = hex(TICKET);
    let mut buf = [&[0; 5][..], &ticket, &[0; 17]].concat();
    let len = seal_record(&mut server, &mut server_key, &mut buf, 22, ticket.len(), 0);
    assert_eq!(buf[..len.unwrap()], hex(TICKET_RECORD));

    for (state, key, record, alert_record) in [
        (
            &mut client,
            &mut client_key,
            CLIENT_DATA_RECORD,
            CLIENT_ALERT_RECORD,
        ),
        (
            &mut server,
            &mut server_key,
            SERVER_DATA_RECORD,
            SERVER_ALERT_RECORD,
        ),
    ] {
        let mut buf = [&[0; 5][..], &payload(), &[0; 17]].concat();
        let len = seal_in_place(state, key, &mut buf, 50).unwrap();
        assert_eq!(buf[..len], hex(record));
        let len = seal_alert(state, key, Alert::CLOSE_NOTIFY, &mut buf).unwrap();
        assert_eq!(buf[..len], hex(alert_record));
    }
}

#[test]
fn received() {
    let (mut server, mut client) = (end(Role::Server), end(Role::Client));

    // All records that the client receives, in one buffer.
    let mut stream = [TICKET_RECORD, SERVER_DATA_RECORD, SERVER_ALERT_RECORD]
        .map(hex)
        .concat();
    let mut key = OpenKey::new(&client);
    let mut at = 0;
    match open(&mut client, &mut key, &mut stream).unwrap() {
        Opened::Ticket { consumed, fragment } => {
            assert_eq!(stream[fragment], hex(TICKET));
            at += consumed;
        }
        other => panic!("{other:?}"),
    }
    match open(&mut client, &mut key, &mut stream[at..]).unwrap() {
        Opened::Data {
            consumed,
            plaintext,
        } => {
            assert_eq!(stream[at..][plaintext], payload());
            at += consumed;
        }
        other => panic!("{other:?}"),
    }
    let closed = open(&mut client, &mut key, &mut stream[at..]).unwrap();
    assert_eq!(closed, Opened::PeerClosed { consumed: 24 });
    assert_eq!(at + 24, stream.len());

    let mut record = hex(CLIENT_DATA_RECORD);
    let mut key = OpenKey::new(&server);
    match open(&mut server, &mut key, &mut record).unwrap() {
        Opened::Data { plaintext, .. } => assert_eq!(record[plaintext], payload()),
        other => panic!("{other:?}"),
    }
    let mut record = hex(CLIENT_ALERT_RECORD);
    let closed = open(&mut server, &mut key, &mut record).unwrap();
    assert_eq!(closed, Opened::PeerClosed { consumed: 24 });
    assert!(server.peer_closed() && client.peer_closed());
}
