//! Sequences of calls that a host makes on two sessions, a server and its client.
//!
//! Each call is two bytes: the call with the side that makes it, and a number. Some calls take bytes from the rest
//! of the input.

use std::cell::OnceCell;

use dormouse_embed::{
    AlertDescription, ClientContext, ClientSettings, Event, Identity, Roots, STATE_LEN,
    ServerContext, ServerSettings, Session, SessionError, State, UnixTime, at_rest,
};
use zerocopy::{FromBytes as _, IntoBytes as _};

/// Calls per input, so that an input has a limited duration.
const CALLS_MAX: usize = 64;
/// Unsent output at which a side sends no more.
const OUTPUT_MAX: usize = 1 << 20;

thread_local! {
    static CONTEXTS: OnceCell<(ServerContext, ClientContext)> = const { OnceCell::new() };
}

/// One input.
pub(crate) fn run(data: &[u8]) {
    let mut sides = CONTEXTS.with(|contexts| {
        let (server, client) = contexts.get_or_init(|| {
            let identity = Identity::self_signed("a.test").expect("a certificate");
            let server = ServerContext::new(ServerSettings::new(vec![identity]));
            let client = ClientContext::new(ClientSettings::new(Roots::Insecure));
            (server.expect("a server"), client.expect("a client"))
        });
        let client = Session::connect(client, "a.test").expect("a name");
        [Side::of(Session::accept(server)), Side::of(client)]
    });
    let mut rest = data;
    if let [1, shaken @ ..] = data {
        complete_handshake(&mut sides);
        rest = shaken;
    }
    let mut is_sound = true;
    for _ in 0..CALLS_MAX {
        let [call, number, more @ ..] = rest else {
            break;
        };
        let [first, second] = &mut sides;
        let (side, peer) = match call & 1 {
            0 => (first, second),
            _ => (second, first),
        };
        rest = side.call(
            call >> 1 & 15,
            usize::from(*number),
            more,
            peer,
            &mut is_sound,
        );
        if is_sound {
            assert!(peer.sent.starts_with(&side.received));
            assert!(side.sent.starts_with(&peer.received));
        }
    }
}

fn complete_handshake(sides: &mut [Side; 2]) {
    let [server, client] = sides;
    client.feed(&mut []);
    for _ in 0..4 {
        server.feed(&mut client.session.take_output());
        client.feed(&mut server.session.take_output());
    }
    assert!(!server.session.is_handshaking() && !client.session.is_handshaking());
}

/// A session, and the plaintext that it has sent and received.
struct Side {
    session: Session,
    sent: Vec<u8>,
    received: Vec<u8>,
}

impl Side {
    fn of(session: Session) -> Side {
        Side {
            session,
            sent: Vec::new(),
            received: Vec::new(),
        }
    }

    /// Makes a call, and returns the rest of the input. `is_sound` becomes false when the host has
    /// replaced the session; hostile bytes of the network are no reason.
    fn call<'a>(
        &mut self,
        call: u8,
        number: usize,
        rest: &'a [u8],
        peer: &mut Side,
        is_sound: &mut bool,
    ) -> &'a [u8] {
        match call {
            0 | 1 => {
                let len = peer.session.output().len() * number / 255;
                let mut bytes = peer.session.output()[..len].to_vec();
                peer.session.output_sent(len);
                self.feed(&mut bytes);
            }
            2 => self.send(&vec![number as u8; number * number]),
            3 => self.ends(|session| session.close()),
            4 => self.ends(Session::update_keys),
            5 => self.move_on(),
            6 => {
                let (hostile, rest) = rest.split_at(number.min(rest.len()));
                self.feed(&mut hostile.to_vec());
                return rest;
            }
            7 => check(&self.session.eof()),
            8 => self.ends(|session| session.abort(AlertDescription::InternalError)),
            9 => {
                let (bytes, rest) = rest.split_at(rest.len().min(STATE_LEN + number));
                if let Ok(session) = Session::import(bytes) {
                    *is_sound = false;
                    self.session = session;
                }
                return rest;
            }
            10 => self.seal_at_rest(number, peer),
            11 => self.open_at_rest(peer),
            12 => self.session.ignore_tickets(),
            13 => drop(self.session.take_tickets()),
            _ => {
                let mut output = vec![0; number * 16];
                let sealed = self.session.seal_into(&[7; 100], &mut output);
                check(&sealed);
                if let Ok(len) = sealed {
                    self.sent.extend([7; 100]);
                    peer.feed(&mut output[..len]);
                }
            }
        }
        rest
    }

    /// Feeds bytes, in two pieces.
    fn feed(&mut self, bytes: &mut [u8]) {
        let (first, second) = bytes.split_at_mut(bytes.len() / 3);
        for piece in [first, second] {
            let received = &mut self.received;
            let fed = self.session.feed(now(), piece, |event| {
                if let Event::Data(plaintext) = event {
                    received.extend_from_slice(plaintext);
                }
            });
            check(&fed);
        }
    }

    fn send(&mut self, plaintext: &[u8]) {
        if self.session.output().len() > OUTPUT_MAX {
            return;
        }
        let sent = self.session.send(plaintext);
        check(&sent);
        if sent.is_ok() {
            self.sent.extend_from_slice(plaintext);
        }
    }

    fn ends(&mut self, call: impl FnOnce(&mut Session) -> Result<(), SessionError>) {
        check(&call(&mut self.session));
    }

    /// Exports the session, and continues with the bytes in its place.
    fn move_on(&mut self) {
        let exported = self.session.export();
        check(&exported);
        let Ok(bytes) = exported else {
            return;
        };
        assert!(matches!(self.session.export(), Err(SessionError::Exported)));
        self.session = Session::import(&bytes).expect("an exported session");
    }

    /// The state of a session at rest, which the host continues by itself.
    fn take_state(&mut self) -> Option<State> {
        if !self.session.is_at_rest() {
            return None;
        }
        let exported = self.session.export();
        check(&exported);
        let bytes = exported.ok()?;
        assert_eq!(bytes.len(), STATE_LEN);
        Some(State::read_from_bytes(&bytes).expect("the size of a state"))
    }

    fn put_state(&mut self, state: &State) {
        if let Ok(session) = Session::import(state.as_bytes()) {
            self.session = session;
        }
    }

    fn seal_at_rest(&mut self, number: usize, peer: &mut Side) {
        let Some(mut state) = self.take_state() else {
            return;
        };
        let plaintext = vec![1; number];
        let mut output = vec![0; at_rest::sealed_len(&state, number)];
        if let Ok(len) = at_rest::seal(&mut state, &plaintext, &mut output) {
            self.sent.extend(plaintext);
            peer.feed(&mut output[..len]);
        }
        self.put_state(&state);
    }

    fn open_at_rest(&mut self, peer: &mut Side) {
        let Some(mut state) = self.take_state() else {
            return;
        };
        let mut buffer = peer.session.take_output();
        let mut output = [0; at_rest::ANSWER_MAX];
        let received = at_rest::receive(&mut state, now(), &mut buffer, &mut output, None);
        let received = received.expect("room for an answer");
        self.received.extend(&buffer[..received.plaintext_len]);
        self.put_state(&state);
        peer.feed(&mut output[..received.output_len]);
        self.feed(&mut buffer[received.consumed..]);
    }
}

fn now() -> UnixTime {
    UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_800_000_000))
}

/// A panic behind the boundary is a defect, too.
fn check<T>(result: &Result<T, SessionError>) {
    if let Err(error) = result {
        assert!(!matches!(error, SessionError::Poisoned), "a panic");
        assert!(!error.to_string().is_empty());
    }
}
