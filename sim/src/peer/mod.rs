//! The programs at the far ends: clients and backends, each with a plan.

pub(crate) mod codec;
pub(crate) mod plan;

use crate::Random;
use crate::content::{self, NAME_BYTES};
use crate::kernel::{EndId, Kernel};
use codec::{Codec, End, Heard};
use dormouse_dataplane::proxy_protocol::{self, Endpoints, Progress};
use dormouse_reactor::socket::Attempt;
use plan::{LastAct, Plan, Speech};
use std::io::ErrorKind;

/// What is on the wire's near side before more is said.
const WIRE_MAX: usize = 70_000;

/// Most that is received at once.
pub(crate) const READ_MAX: usize = 65_536;

/// Most that an echo says at once.
const ECHO_MAX: usize = 60_000;

/// Who is at this end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// It has connected to the gateway.
    Client,
    /// The gateway has connected to it.
    Backend,
}

/// How a peer has ended its sending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SaidEnd {
    /// Everything was said, and that it was everything.
    Clean,
    /// Without a word: by a FIN without close_notify, a reset, or an alert.
    Aborted(LastAct),
    /// The gateway took no more.
    NotTaken,
}

/// A program with one connection.
pub(crate) struct Peer {
    /// Its number: what it says begins with it.
    pub(crate) id: u32,
    pub(crate) role: Role,
    pub(crate) plan: Plan,
    pub(crate) socket: EndId,
    codec: Codec,
    /// Sealed, and not sent.
    wire: Vec<u8>,
    wire_sent: usize,
    /// Content that was given to the codec.
    pub(crate) said: u64,
    pub(crate) said_end: Option<SaidEnd>,
    /// The end is on the wire.
    ending: Option<LastAct>,
    /// Content that has come.
    pub(crate) heard: u64,
    name: [u8; NAME_BYTES],
    /// What an echo has still to say.
    to_echo: Vec<u8>,
    pub(crate) heard_end: Option<End>,
    /// The first byte that was not what the other one had said.
    pub(crate) wrong_at: Option<u64>,
    transport_ended: bool,
    /// A call that sends has met the reset, so that receiving doesn't.
    was_reset: bool,
    reads_again_us: Option<u64>,
    /// The gateway is to say first where the client comes from: what has come of that.
    header: Option<Vec<u8>>,
    pub(crate) is_closed: bool,
    /// The gateway may drop it: it died while it worked on this connection.
    pub(crate) is_victim: bool,
}

impl Peer {
    pub(crate) fn new(id: u32, role: Role, plan: Plan, socket: EndId, codec: Codec) -> Peer {
        let mut peer = Peer {
            id,
            role,
            plan,
            socket,
            codec,
            wire: Vec::new(),
            wire_sent: 0,
            said: 0,
            said_end: None,
            ending: None,
            heard: 0,
            name: [0; NAME_BYTES],
            to_echo: Vec::new(),
            heard_end: None,
            wrong_at: None,
            transport_ended: false,
            was_reset: false,
            reads_again_us: None,
            header: None,
            is_closed: false,
            is_victim: false,
        };
        // A client's handshake begins without having heard anything.
        peer.hear(&mut []);
        peer
    }

    /// Says where it comes from, as a proxy does before its client's first byte.
    pub(crate) fn send_header(&mut self, endpoints: Endpoints) {
        self.wire.splice(0..0, proxy_protocol::v1(Some(endpoints)));
    }

    /// Must be told where the client comes from, before its first byte.
    pub(crate) fn expect_header(&mut self) {
        self.header = Some(Vec::new());
    }

    /// Whom it hears, once that one has said its name.
    pub(crate) fn partner(&self) -> Option<u32> {
        (self.heard >= NAME_BYTES as u64).then(|| u32::from_le_bytes(self.name))
    }

    /// Is TLS there?
    pub(crate) fn is_established(&self) -> bool {
        self.codec.is_established()
    }

    /// When it reads again, if it has stopped.
    pub(crate) fn reads_again_us(&self) -> Option<u64> {
        self.reads_again_us.filter(|_| !self.is_closed)
    }

    /// Does what it can do now.
    pub(crate) fn act(&mut self, kernel: &mut Kernel, random: &mut Random, scratch: &mut [u8]) {
        if self.is_closed {
            return;
        }
        self.read(kernel, random, scratch);
        self.speak(random);
        self.send(kernel, random);
        self.end(kernel);
        self.close_if_done(kernel);
    }

    // ---- hearing ----

    fn read(&mut self, kernel: &mut Kernel, random: &mut Random, scratch: &mut [u8]) {
        if let Some(until_us) = self.reads_again_us {
            if until_us > kernel.clock_us() {
                return;
            }
            self.reads_again_us = None;
        }
        if self.transport_ended {
            return;
        }
        if self.plan.deaf_us > 0 && self.is_established() {
            let deaf_us = std::mem::take(&mut self.plan.deaf_us);
            self.reads_again_us = Some(kernel.clock_us() + deaf_us);
            return;
        }
        if self.plan.pause > 0 && !kernel.calm && random.once_in(self.plan.pause) {
            let pause_us = 1_000 * random.below(self.plan.pause_ms) as u64;
            self.reads_again_us = Some(kernel.clock_us() + pause_us);
            return;
        }
        let buf = &mut scratch[..[READ_MAX, READ_MAX, 3_000, 10][random.below(4)]];
        match kernel.recv_at(self.socket, buf) {
            Ok(Attempt::WouldBlock) => {}
            Ok(Attempt::Done(0)) => {
                self.transport_ended = true;
                let end = match self.was_reset {
                    true => End::Reset,
                    false => self.codec.take_end(),
                };
                self.heard_end.get_or_insert(end);
            }
            Ok(Attempt::Done(n)) => self.hear(&mut buf[..n]),
            Err(_) => {
                self.transport_ended = true;
                self.heard_end.get_or_insert(End::Reset);
            }
        }
    }

    fn hear(&mut self, received: &mut [u8]) {
        if self.is_lost() || self.ending == Some(LastAct::Alert) {
            // Nothing is listened to any more.
            return;
        }
        let Some(mut header) = self.header.take() else {
            return self.hear_beyond_header(received);
        };
        header.extend_from_slice(received);
        match proxy_protocol::read(&header) {
            Ok(Progress::Partial) => self.header = Some(header),
            Ok(Progress::Complete { len, endpoints }) if endpoints.is_some() => {
                self.hear_beyond_header(&mut header[len..]);
            }
            found => {
                let why = format!("a PROXY header that can't be right: {found:?}");
                self.heard_end.get_or_insert(End::Refused(why));
            }
        }
    }

    fn hear_beyond_header(&mut self, received: &mut [u8]) {
        let mut codec = std::mem::replace(&mut self.codec, Codec::Plain);
        let heard = codec.take(received, |content| self.hear_content(content));
        codec.flush(&mut self.wire);
        self.codec = codec;
        if let Heard::End(end) = heard {
            self.heard_end.get_or_insert(end);
        }
    }

    fn hear_content(&mut self, content: &[u8]) {
        for (at, &byte) in (self.heard as usize..NAME_BYTES).zip(content) {
            self.name[at] = byte;
        }
        let offset = self.heard;
        self.heard += content.len() as u64;
        let is_right = match self.partner() {
            Some(partner) => content::is_content(partner, offset, content),
            None => true,
        };
        if !is_right || self.heard_end.is_some() {
            self.wrong_at.get_or_insert(offset);
        }
        if self.plan.speech == Speech::Echo {
            self.to_echo.extend_from_slice(content);
        }
    }

    // ---- saying ----

    /// Has what it hears ended as it should not?
    fn is_lost(&self) -> bool {
        !matches!(self.heard_end, None | Some(End::Clean))
    }

    fn may_speak(&self) -> bool {
        !self.is_lost()
            && self.ending.is_none()
            && self.said_end.is_none()
            && self.codec.is_established()
    }

    fn speak(&mut self, random: &mut Random) {
        if !self.may_speak() || self.wire.len() - self.wire_sent > WIRE_MAX {
            return;
        }
        let mut piece = match self.plan.speech {
            Speech::Echo => {
                let n = self.to_echo.len().min(ECHO_MAX);
                self.to_echo.drain(..n).collect::<Vec<u8>>()
            }
            Speech::Own(total) => {
                let left = usize::try_from(total - self.said).unwrap_or(usize::MAX);
                let n = left.min(1 + random.below(self.plan.piece_max));
                vec![0; n]
            }
        };
        if !piece.is_empty() {
            if self.plan.speech != Speech::Echo {
                content::write(self.id, self.said, &mut piece);
            }
            self.said += piece.len() as u64;
            if self.plan.key_update > 0 && random.once_in(self.plan.key_update) {
                self.codec.update_key(&mut self.wire);
            }
            self.codec.say(&piece, &mut self.wire);
        }
        if self.has_said_all() && self.is_time_to_end() {
            self.ending = Some(self.plan.last);
            match self.plan.last {
                LastAct::End | LastAct::Wait => self.codec.end(false, &mut self.wire),
                LastAct::Alert => self.codec.end(true, &mut self.wire),
                LastAct::Cut | LastAct::Reset => {}
            }
        }
    }

    fn has_said_all(&self) -> bool {
        match self.plan.speech {
            Speech::Own(total) => self.said == total,
            Speech::Echo => self.heard_end.is_some() && self.to_echo.is_empty(),
        }
    }

    fn is_time_to_end(&self) -> bool {
        match self.plan.last {
            LastAct::Wait => self.heard_end.is_some(),
            LastAct::End if self.plan.ends_last => self.heard_end.is_some(),
            _ => true,
        }
    }

    fn send(&mut self, kernel: &mut Kernel, random: &mut Random) {
        self.codec.flush(&mut self.wire);
        let unsent = &self.wire[self.wire_sent..];
        if unsent.is_empty() {
            return;
        }
        let most = match self.plan.trickle_max {
            usize::MAX => unsent.len(),
            max => unsent.len().min(1 + random.below(max)),
        };
        match kernel.send_from(self.socket, &unsent[..most]) {
            Ok(Attempt::WouldBlock) => {}
            Ok(Attempt::Done(n)) => {
                self.wire_sent += n;
                if self.wire_sent == self.wire.len() {
                    self.wire.clear();
                    self.wire_sent = 0;
                }
            }
            Err(error) => {
                self.was_reset = error.kind() == ErrorKind::ConnectionReset;
                self.wire.clear();
                self.wire_sent = 0;
                self.said_end.get_or_insert(SaidEnd::NotTaken);
            }
        }
    }

    fn end(&mut self, kernel: &mut Kernel) {
        let Some(last) = self.ending else { return };
        if !self.wire.is_empty() || self.said_end.is_some() {
            return;
        }
        self.said_end = Some(match last {
            LastAct::End | LastAct::Wait => SaidEnd::Clean,
            LastAct::Cut | LastAct::Reset | LastAct::Alert => SaidEnd::Aborted(last),
        });
        match last {
            LastAct::Reset => {
                kernel.reset_at(self.socket);
                self.is_closed = true;
            }
            LastAct::End | LastAct::Wait | LastAct::Cut | LastAct::Alert => {
                kernel.shutdown_at(self.socket);
            }
        }
    }

    /// Is there nothing left to say or to hear?
    fn close_if_done(&mut self, kernel: &mut Kernel) {
        let is_done = self.said_end.is_some() && self.heard_end.is_some();
        // Who has sent an alert needn't hear the end of anything.
        let has_left =
            self.said_end == Some(SaidEnd::Aborted(LastAct::Alert)) && self.transport_ended;
        if !self.is_closed && self.wire.is_empty() && (is_done || self.is_lost() || has_left) {
            kernel.close_at(self.socket);
            self.is_closed = true;
        }
    }
}
