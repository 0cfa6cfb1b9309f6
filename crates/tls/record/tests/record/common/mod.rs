//! Two ends of a connection; each can also violate every rule of the protocol.
#![allow(dead_code)] // not every test file uses every function

use dormouse_record::{
    KeyIv, OpenKey, Opened, Reason, Refusal, Role, SMALL_RECORD_MAX, SealKey, State, Suite,
    Version, open, record_room, seal_in_place, seal_key_update, seal_record,
};

pub(crate) const CHANGE_CIPHER_SPEC: u8 = 20;
pub(crate) const ALERT: u8 = 21;
pub(crate) const HANDSHAKE: u8 = 22;
pub(crate) const DATA: u8 = 23;

pub(crate) const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];
pub(crate) const KEY_UPDATE_REQUESTED: [u8; 5] = [24, 0, 0, 1, 1];

/// Returns the two ends of a connection (server, client), with secrets made from `seed`.
pub(crate) fn pair(version: Version, suite: Suite, seed: u8) -> (State, State) {
    pair_at(version, suite, seed, 0, 0)
}

/// Like [`pair`], with given sequence numbers for client and server.
pub(crate) fn pair_at(
    version: Version,
    suite: Suite,
    seed: u8,
    client_sent: u64,
    server_sent: u64,
) -> (State, State) {
    let up: Vec<u8> = (0..48).map(|at| seed ^ at ^ 0x5a).collect();
    let down: Vec<u8> = (0..48).map(|at| seed ^ at ^ 0xa5).collect();
    let (mut server, mut client) = (State::empty(), State::empty());
    match version {
        Version::Tls13 => {
            let len = suite.secret_len();
            let (up, down) = (&up[..len], &down[..len]);
            server
                .establish_tls13(Role::Server, suite, up, client_sent, down, server_sent)
                .unwrap();
            client
                .establish_tls13(Role::Client, suite, down, server_sent, up, client_sent)
                .unwrap();
        }
        Version::Tls12 => {
            let len = suite.key_len();
            let up = KeyIv {
                key: &up[..len],
                iv: &up[32..44],
            };
            let down = KeyIv {
                key: &down[..len],
                iv: &down[32..44],
            };
            server
                .establish_tls12(Role::Server, suite, up, client_sent, down, server_sent)
                .unwrap();
            client
                .establish_tls12(Role::Client, suite, down, server_sent, up, client_sent)
                .unwrap();
        }
    }
    (server, client)
}

/// One end of a connection with its keys.
pub(crate) struct End {
    pub(crate) state: State,
    pub(crate) open_key: OpenKey,
    pub(crate) seal_key: SealKey,
}

impl End {
    pub(crate) fn new(state: State) -> Self {
        let (open_key, seal_key) = (OpenKey::new(&state), SealKey::new(&state));
        Self {
            state,
            open_key,
            seal_key,
        }
    }

    /// Seals a record with any type and content.
    pub(crate) fn record(&mut self, content_type: u8, content: &[u8]) -> Vec<u8> {
        self.padded_record(content_type, content, 0)
    }

    pub(crate) fn padded_record(
        &mut self,
        content_type: u8,
        content: &[u8],
        padding: usize,
    ) -> Vec<u8> {
        let room = record_room(&self.state);
        let mut record = vec![0xee; room.header + content.len() + padding + room.trailer];
        record[room.header..room.header + content.len()].copy_from_slice(content);
        let len = seal_record(
            &mut self.state,
            &mut self.seal_key,
            &mut record,
            content_type,
            content.len(),
            padding,
        )
        .unwrap();
        assert_eq!(len, record.len());
        record
    }

    /// Seals application data as a conforming sender does.
    pub(crate) fn data(&mut self, content: &[u8]) -> Vec<u8> {
        let room = record_room(&self.state);
        let mut record = vec![0xee; room.header + content.len() + room.trailer];
        record[room.header..room.header + content.len()].copy_from_slice(content);
        let len = seal_in_place(
            &mut self.state,
            &mut self.seal_key,
            &mut record,
            content.len(),
        )
        .unwrap();
        assert_eq!(len, record.len());
        record
    }

    pub(crate) fn key_update(&mut self) -> Vec<u8> {
        let mut out = [0; SMALL_RECORD_MAX];
        let len = seal_key_update(&mut self.state, &mut self.seal_key, &mut out).unwrap();
        out[..len].to_vec()
    }

    pub(crate) fn open(&mut self, mut record: Vec<u8>) -> Result<(Opened, Vec<u8>), Refusal> {
        let opened = open(&mut self.state, &mut self.open_key, &mut record)?;
        Ok((opened, record))
    }

    /// Opens one whole record, which must use up the buffer.
    pub(crate) fn opened(&mut self, record: Vec<u8>) -> Opened {
        let len = record.len();
        let (opened, _) = self.open(record).unwrap();
        let (Opened::Data { consumed, .. }
        | Opened::Handled { consumed }
        | Opened::Ticket { consumed, .. }
        | Opened::NoRenegotiation { consumed }
        | Opened::PeerClosed { consumed }
        | Opened::PeerAlert { consumed, .. }) = opened
        else {
            panic!("not opened: {opened:?}");
        };
        assert_eq!(consumed, len);
        opened
    }

    /// Opens one record of data and returns it.
    pub(crate) fn opened_data(&mut self, record: Vec<u8>) -> Vec<u8> {
        match self.open(record).unwrap() {
            (Opened::Data { plaintext, .. }, record) => record[plaintext].to_vec(),
            (other, _) => panic!("not data: {other:?}"),
        }
    }

    pub(crate) fn refused(&mut self, record: Vec<u8>) -> Refusal {
        let refusal = self.open(record).unwrap_err();
        assert!(self.state.failed());
        refusal
    }

    pub(crate) fn reason(&mut self, record: Vec<u8>) -> Reason {
        self.refused(record).reason
    }
}

/// Returns receiver and sender for every version, suite and role.
pub(crate) fn every_kind() -> impl Iterator<Item = (End, End)> {
    [Version::Tls12, Version::Tls13]
        .into_iter()
        .flat_map(every_kind_of)
}

/// Returns receiver and sender for every suite and role.
pub(crate) fn every_kind_of(version: Version) -> impl Iterator<Item = (End, End)> {
    [Role::Server, Role::Client]
        .into_iter()
        .flat_map(move |receiver| every_suite(version, receiver))
}

/// Returns receiver and sender for every suite.
pub(crate) fn every_suite(version: Version, receiver: Role) -> impl Iterator<Item = (End, End)> {
    Suite::ALL.into_iter().map(move |suite| {
        let (server, client) = pair(version, suite, 7);
        let (server, client) = (End::new(server), End::new(client));
        match receiver {
            Role::Server => (server, client),
            Role::Client => (client, server),
        }
    })
}
