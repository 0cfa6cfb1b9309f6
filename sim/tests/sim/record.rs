//! Simulations of two record states that exchange records: TLS 1.2 and 1.3, every suite, both roles.

use dormouse_record::{
    Alert, AlertDescription, CONTENT_MAX, KeyIv, OpenKey, Opened, Role, SMALL_RECORD_MAX, SealKey,
    State, Suite, Version, open, record_room, seal_alert, seal_in_place, seal_key_update,
    seal_record,
};
use dormouse_sim::{Random, seeds};
use zerocopy::{FromBytes, IntoBytes};

const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;

/// Everything that is sent in a direction, as its receiver must report it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Messages {
    data: Vec<u8>,
    tickets: Vec<u8>,
    renegotiations: usize,
    closed: bool,
    alert: Option<u8>,
}

impl Messages {
    fn is_prefix_of(&self, whole: &Self) -> bool {
        whole.data.starts_with(&self.data)
            && whole.tickets.starts_with(&self.tickets)
            && self.renegotiations <= whole.renegotiations
    }
}

/// One end of a connection.
struct End {
    state: State,
    open_key: OpenKey,
    seal_key: SealKey,
    /// Received bytes of an incomplete record.
    pending: Vec<u8>,
    received: Messages,
}

impl End {
    fn new(state: State) -> Self {
        Self {
            open_key: OpenKey::new(&state),
            seal_key: SealKey::new(&state),
            state,
            pending: Vec::new(),
            received: Messages::default(),
        }
    }

    /// The same end with its state restored from bytes, as in a new process.
    fn restored(&self) -> Self {
        let mut end = Self::new(State::read_from_bytes(self.state.as_bytes()).unwrap());
        end.pending = self.pending.clone();
        end.received = self.received.clone();
        end
    }

    /// Receives bytes and opens all complete records. Returns the alert of a refused record.
    fn receive(&mut self, bytes: &[u8]) -> Result<(), AlertDescription> {
        self.pending.extend_from_slice(bytes);
        let mut pending = std::mem::take(&mut self.pending);
        let mut at = 0;
        while at < pending.len() {
            let rest = &mut pending[at..];
            let opened =
                open(&mut self.state, &mut self.open_key, rest).map_err(|refusal| refusal.alert)?;
            self.state.validate().unwrap();
            at += match opened {
                Opened::Partial { need } => {
                    assert!(need > rest.len());
                    break;
                }
                Opened::Data {
                    consumed,
                    plaintext,
                } => {
                    self.received.data.extend_from_slice(&rest[plaintext]);
                    consumed
                }
                Opened::Ticket { consumed, fragment } => {
                    self.received.tickets.extend_from_slice(&rest[fragment]);
                    consumed
                }
                Opened::NoRenegotiation { consumed } => {
                    self.received.renegotiations += 1;
                    consumed
                }
                Opened::PeerClosed { consumed } => {
                    self.received.closed = true;
                    consumed
                }
                Opened::PeerAlert {
                    consumed,
                    description,
                } => {
                    self.received.alert = Some(description);
                    consumed
                }
                Opened::Handled { consumed } => consumed,
            };
        }
        self.pending = pending.split_off(at);
        Ok(())
    }

    fn data(&mut self, content: &[u8]) -> Vec<u8> {
        let room = record_room(&self.state);
        let mut record = [&vec![0; room.header], content, &vec![0; room.trailer]].concat();
        let (state, key) = (&mut self.state, &mut self.seal_key);
        let len = seal_in_place(state, key, &mut record, content.len());
        assert_eq!(len, Ok(record.len()));
        record
    }

    fn record(&mut self, content_type: u8, content: &[u8], padding: usize) -> Vec<u8> {
        let room = record_room(&self.state);
        let trailer = vec![0; padding + room.trailer];
        let mut record = [&vec![0; room.header], content, &trailer].concat();
        let (state, key) = (&mut self.state, &mut self.seal_key);
        let len = seal_record(
            state,
            key,
            &mut record,
            content_type,
            content.len(),
            padding,
        );
        assert_eq!(len, Ok(record.len()));
        record
    }

    fn alert(&mut self, alert: Alert) -> Vec<u8> {
        let mut out = [0; SMALL_RECORD_MAX];
        let len = seal_alert(&mut self.state, &mut self.seal_key, alert, &mut out).unwrap();
        out[..len].to_vec()
    }

    fn key_update(&mut self) -> Vec<u8> {
        let mut out = [0; SMALL_RECORD_MAX];
        let len = seal_key_update(&mut self.state, &mut self.seal_key, &mut out).unwrap();
        out[..len].to_vec()
    }

    /// A message in two records.
    fn in_two(&mut self, message: &[u8], random: &mut Random) -> Vec<u8> {
        let padding = match self.state.version() {
            Version::Tls12 => 0,
            Version::Tls13 => random.below(20),
        };
        let (one, two) = message.split_at(random.below(message.len() - 1) + 1);
        let mut records = self.record(HANDSHAKE, one, padding);
        records.extend(self.record(HANDSHAKE, two, 0));
        records
    }

    /// A KeyUpdate that Dormouse never sends: in two records, and at random with a request for an answer.
    fn odd_key_update(&mut self, random: &mut Random) -> Vec<u8> {
        let message = [24, 0, 0, 1, random.below(2) as u8];
        let records = self.in_two(&message, random);
        // Advances the sender's own key; the record itself is not sent.
        let _ = self.key_update();
        records
    }

    fn ticket(&mut self, random: &mut Random, messages: &mut Messages) -> Vec<u8> {
        let message = [&[4, 0, 0, 40][..], &random.bytes(40)].concat();
        messages.tickets.extend_from_slice(&message);
        self.in_two(&message, random)
    }

    fn renegotiation(&mut self, random: &mut Random, messages: &mut Messages) -> Vec<u8> {
        messages.renegotiations += 1;
        match self.state.role() {
            Role::Server => self.record(HANDSHAKE, &[0, 0, 0, 0], 0),
            Role::Client => {
                let hello = [&[1, 0, 0, 50][..], &random.bytes(50)].concat();
                self.in_two(&hello, random)
            }
        }
    }

    /// Random records, which are added to `messages`. A record has at most `len_max` bytes of content.
    fn act(&mut self, random: &mut Random, len_max: usize, messages: &mut Messages) -> Vec<u8> {
        let mut wire = Vec::new();
        if self.state.owes_key_update() {
            wire.extend(self.key_update());
        }
        let is_server = self.state.role() == Role::Server;
        wire.extend(match (self.state.version(), random.below(8)) {
            (_, 0) => self.data(b""),
            (Version::Tls13, 1) => self.key_update(),
            (Version::Tls13, 2) => self.odd_key_update(random),
            (Version::Tls13, 3) if is_server => self.ticket(random, messages),
            (Version::Tls13, 4) => self.alert(Alert::warning(AlertDescription::UserCanceled)),
            (Version::Tls13, 5) => {
                let content_len = random_len(random, len_max);
                let content = random.bytes(content_len);
                let padding = random.below(CONTENT_MAX - content_len + 1).min(len_max);
                messages.data.extend_from_slice(&content);
                self.record(DATA, &content, padding)
            }
            (Version::Tls12, 1 | 2) => self.renegotiation(random, messages),
            (Version::Tls12, 3) => self.alert(Alert::NO_RENEGOTIATION),
            _ => Vec::new(),
        });
        // Data resets the limits of consecutive records without data.
        let content_len = random_len(random, len_max).max(1);
        let content = random.bytes(content_len);
        messages.data.extend_from_slice(&content);
        wire.extend(self.data(&content));
        wire
    }

    /// A close_notify or a fatal alert.
    fn finish(&mut self, random: &mut Random, messages: &mut Messages) -> Vec<u8> {
        if random.once_in(3) {
            messages.alert = Some(AlertDescription::InternalError.code());
            self.alert(Alert::fatal(AlertDescription::InternalError))
        } else {
            messages.closed = true;
            self.alert(Alert::CLOSE_NOTIFY)
        }
    }
}

fn random_len(random: &mut Random, len_max: usize) -> usize {
    match random.below(8) {
        0 => len_max,
        1 => 1,
        2 => random.below(len_max + 1),
        _ => random.below(len_max.min(200) + 1),
    }
}

/// The two ends of a connection: server, client.
fn pair(version: Version, suite: Suite, random: &mut Random) -> [End; 2] {
    let (up, down) = (random.bytes(48), random.bytes(48));
    let (up_seq, down_seq) = (random.below(5) as u64, random.below(5) as u64);
    let (mut server, mut client) = (State::empty(), State::empty());
    let established = match version {
        Version::Tls13 => {
            let [up, down] = [&up, &down].map(|secret| &secret[..suite.secret_len()]);
            server
                .establish_tls13(Role::Server, suite, up, up_seq, down, down_seq)
                .and(client.establish_tls13(Role::Client, suite, down, down_seq, up, up_seq))
        }
        Version::Tls12 => {
            let [up, down] = [&up, &down].map(|bytes| KeyIv {
                key: &bytes[..suite.key_len()],
                iv: &bytes[32..44],
            });
            server
                .establish_tls12(Role::Server, suite, up, up_seq, down, down_seq)
                .and(client.establish_tls12(Role::Client, suite, down, down_seq, up, up_seq))
        }
    };
    established.unwrap();
    [End::new(server), End::new(client)]
}

/// Runs a simulation for every version, suite and sender. Prints the seed, which cargo shows on failure.
fn for_every_kind(count: u64, simulate: impl Fn(&mut Random, [End; 2])) {
    for seed in seeds(count) {
        for version in [Version::Tls12, Version::Tls13] {
            for suite in Suite::ALL {
                for sender in [Role::Server, Role::Client] {
                    println!("SEED={seed} {version:?} {suite:?} sent by the {sender:?}");
                    let mut random = Random::new(seed);
                    let [server, client] = pair(version, suite, &mut random);
                    let ends = match sender {
                        Role::Server => [server, client],
                        Role::Client => [client, server],
                    };
                    simulate(&mut random, ends);
                }
            }
        }
    }
}

/// The records of several actions of an end, and the messages that the other end must report.
fn stream(
    random: &mut Random,
    from: &mut End,
    actions: usize,
    len_max: usize,
) -> (Vec<u8>, Messages) {
    let (mut wire, mut messages) = (Vec::new(), Messages::default());
    for _ in 0..actions {
        wire.extend(from.act(random, len_max, &mut messages));
    }
    wire.extend(from.finish(random, &mut messages));
    (wire, messages)
}

/// Both ends send random records, bytes arrive in pieces of random size, and at random times an end is restored from the
/// bytes of its state. At the end both must have received exactly the messages that the other sent.
#[test]
fn both_ways_at_once() {
    for_every_kind(20, |random, mut ends| {
        let mut messages = [Messages::default(), Messages::default()];
        let mut wires = [Vec::new(), Vec::new()];
        for _ in 0..60 {
            let side = random.below(2);
            if random.once_in(3) {
                wires[side].extend(ends[side].act(random, CONTENT_MAX, &mut messages[side]));
            } else {
                let len = random.below(wires[side].len() + 1);
                let bytes: Vec<u8> = wires[side].drain(..len).collect();
                ends[1 - side].receive(&bytes).unwrap();
            }
            if random.once_in(5) {
                ends[side] = ends[side].restored();
            }
        }
        for side in [0, 1] {
            let bytes = std::mem::take(&mut wires[side]);
            ends[1 - side].receive(&bytes).unwrap();
            // Half-close: the first end to close still receives from the other.
            let last = ends[side].alert(Alert::CLOSE_NOTIFY);
            messages[side].closed = true;
            ends[1 - side].receive(&last).unwrap();
        }
        for side in [0, 1] {
            assert_eq!(ends[1 - side].received, messages[side]);
            assert!(ends[1 - side].pending.is_empty());
        }
    });
}

/// A stream cut at every position: the receiver of the second part has only the state's bytes and the bytes of an
/// incomplete record. Nothing is lost, repeated or out of order.
#[test]
fn cut_at_every_position() {
    for_every_kind(3, |random, [mut from, mut to]| {
        let (wire, messages) = stream(random, &mut from, 12, 700);
        for (at, byte) in wire.iter().enumerate() {
            let mut rest = to.restored();
            rest.receive(&wire[at..]).unwrap();
            assert_eq!(rest.received, messages, "cut at {at}");
            assert!(rest.pending.is_empty());
            assert!(to.received.is_prefix_of(&messages));
            to.receive(&[*byte]).unwrap();
        }
        assert_eq!(to.received, messages);
    });
}

/// Records of the greatest length, cut at every position.
#[test]
fn longest_records_cut_at_every_position() {
    for_every_kind(1, |random, [mut from, to]| {
        let content = random.bytes(CONTENT_MAX);
        let wire = from.data(&content);
        let mut restored = to.restored();
        for at in 0..wire.len() {
            let mut buf = wire[..at].to_vec();
            let opened = open(&mut restored.state, &mut restored.open_key, &mut buf).unwrap();
            let need = if at < 5 { 5 } else { wire.len() };
            assert_eq!(opened, Opened::Partial { need });
            assert_eq!(buf, wire[..at]);
        }
        restored.receive(&wire).unwrap();
        assert_eq!(restored.received.data, content);
    });
}

/// Every bit of a stream flipped, one at a time: its record is refused with the right alert, all records before it are
/// delivered, and nothing of its record or after it.
#[test]
fn every_bit_flipped() {
    for_every_kind(3, |random, [mut from, to]| {
        let (wire, messages) = stream(random, &mut from, 6, 60);
        let starts = record_starts(&wire);
        for (nth, &start) in starts.iter().enumerate() {
            let end = starts.get(nth + 1).copied().unwrap_or(wire.len());
            let mut before = to.restored();
            before.receive(&wire[..start]).unwrap();
            for bit in 0..(end - start) * 8 {
                let mut changed = wire[start..].to_vec();
                changed[bit / 8] ^= 1 << (bit % 8);
                let mut to = before.restored();
                let refused = to.receive(&changed).err();
                assert_eq!(
                    refused,
                    expected_alert(&to.state, &changed, bit / 8),
                    "record {nth}, bit {bit}"
                );
                assert_eq!(to.received, before.received);
                assert!(to.received.is_prefix_of(&messages));
            }
        }
    });
}

fn record_starts(wire: &[u8]) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut at = 0;
    while at < wire.len() {
        starts.push(at);
        at += 5 + usize::from(u16::from_be_bytes([wire[at + 3], wire[at + 4]]));
    }
    assert_eq!(at, wire.len());
    starts
}

/// The alert that the RFCs demand for a record whose byte `at` was changed. None: its length was increased, and the
/// receiver waits for the rest.
fn expected_alert(state: &State, record: &[u8], at: usize) -> Option<AlertDescription> {
    let tls13 = state.version() == Version::Tls13;
    let len = usize::from(u16::from_be_bytes([record[3], record[4]]));
    let len_max = CONTENT_MAX + if tls13 { 256 } else { 2048 };
    match at {
        0 if tls13 || !(21..=23).contains(&record[0]) => Some(AlertDescription::UnexpectedMessage),
        3 | 4 if len > len_max => Some(AlertDescription::RecordOverflow),
        3 | 4 if 5 + len > record.len() => None,
        _ => Some(AlertDescription::BadRecordMac),
    }
}
