//! Peers of the gateway: clients and backends, each with a plan.

pub(crate) mod codec;
pub(crate) mod plan;

use crate::Random;
use crate::content::{self, ID_BYTES};
use crate::kernel::{EndId, Kernel};
use codec::{Codec, End, Handled};
use dormouse_dataplane::proxy_protocol::{self, Endpoints, HeaderProgress};
use dormouse_reactor::socket::Attempt;
use plan::{Ending, Plan, Source};
use std::io::ErrorKind;

/// Unsent bytes above which a peer produces no more content.
const WIRE_MAX: usize = 70_000;

/// Most bytes received at once.
pub(crate) const READ_MAX: usize = 65_536;

/// Longest lull.
const LULL_US: usize = 3_000_000;

/// Most bytes that an echo sends at once.
const ECHO_MAX: usize = 60_000;

/// The role of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Connects to the gateway.
    Client,
    /// Accepts connections from the gateway.
    Backend,
}

/// How a peer's sending direction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SentEnd {
    /// Cleanly, after all content.
    Clean,
    /// By a FIN without close_notify, a reset, or an alert.
    Aborted(Ending),
    /// By an error of a send.
    Failed,
}

/// A peer's part of SMTP before TLS. Each keeps what it has received of a line.
enum Dialogue {
    /// A client waits for the greeting, then for the answer to STARTTLS. Its hello follows.
    Asks {
        received: Vec<u8>,
        has_asked: bool,
        hello: Vec<u8>,
    },
    /// A server has greeted, and is asked for TLS.
    IsAsked(Vec<u8>),
    /// A client that knows no TLS waits for the greeting.
    IsGreeted(Vec<u8>),
}

/// What a server says first.
const GREETING: &[u8] = b"220-sim.example\r\n220 ready\r\n";

/// A program with one connection.
pub(crate) struct Peer {
    /// The peer's number, with which its content begins.
    pub(crate) id: u32,
    pub(crate) role: Role,
    pub(crate) plan: Plan,
    pub(crate) socket: EndId,
    codec: Codec,
    /// Encoded bytes; the first `wire_sent` of them are sent.
    wire: Vec<u8>,
    wire_sent: usize,
    /// Bytes of content passed to the codec.
    pub(crate) content_sent: u64,
    pub(crate) sent_end: Option<SentEnd>,
    /// The end of the sending direction, once it is encoded.
    ending: Option<Ending>,
    /// Bytes of content received.
    pub(crate) content_received: u64,
    /// The number at the beginning of the received content.
    sender_id: [u8; ID_BYTES],
    /// Content that an echo has received and not sent.
    to_echo: Vec<u8>,
    pub(crate) received_end: Option<End>,
    /// Offset of the first wrong byte received.
    pub(crate) wrong_at: Option<u64>,
    transport_ended: bool,
    /// Whether a send has returned the error of a reset: the next receive then reports an end only.
    was_reset: bool,
    resumes_reading_us: Option<u64>,
    resumes_sending_us: Option<u64>,
    /// The dialogue before TLS, or before the content of a client without TLS.
    dialogue: Option<Dialogue>,
    /// Length of a backend's greeting that is not sent yet. The gateway must not speak before.
    greeting_left: usize,
    /// The beginning of the PROXY header from the gateway, until the header is complete.
    header: Option<Vec<u8>>,
    pub(crate) is_closed: bool,
    /// Whether the gateway may reset the connection: the worker died while it was busy with it, or
    /// before it was established.
    pub(crate) may_be_reset: bool,
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
            content_sent: 0,
            sent_end: None,
            ending: None,
            content_received: 0,
            sender_id: [0; ID_BYTES],
            to_echo: Vec::new(),
            received_end: None,
            wrong_at: None,
            transport_ended: false,
            was_reset: false,
            resumes_reading_us: None,
            resumes_sending_us: None,
            dialogue: None,
            greeting_left: 0,
            header: None,
            is_closed: false,
            may_be_reset: false,
        };
        // Starts a client's handshake, which needs no input.
        peer.handle(&mut []);
        peer
    }

    /// Sends a PROXY header before all other bytes, like a proxy in front of the gateway.
    pub(crate) fn send_header(&mut self, endpoints: Endpoints) {
        self.wire.splice(0..0, proxy_protocol::v1(Some(endpoints)));
    }

    /// Begins without TLS, and asks for it.
    pub(crate) fn ask_for_tls(&mut self) {
        self.dialogue = Some(Dialogue::Asks {
            received: Vec::new(),
            has_asked: false,
            hello: std::mem::take(&mut self.wire),
        });
    }

    /// Begins without TLS, and is asked for it.
    pub(crate) fn offer_tls(&mut self) {
        self.wire.extend_from_slice(GREETING);
        self.dialogue = Some(Dialogue::IsAsked(Vec::new()));
    }

    /// Expects one greeting before all content.
    pub(crate) fn expect_greeting(&mut self) {
        self.dialogue = Some(Dialogue::IsGreeted(Vec::new()));
    }

    /// Greets the gateway before all other bytes.
    pub(crate) fn greet(&mut self) {
        self.greeting_left = GREETING.len();
        self.wire.splice(0..0, GREETING.iter().copied());
    }

    /// Expects a PROXY header before all other bytes.
    pub(crate) fn expect_header(&mut self) {
        self.header = Some(Vec::new());
    }

    /// The number of the peer whose content was received, once it is complete.
    pub(crate) fn partner(&self) -> Option<u32> {
        (self.content_received >= ID_BYTES as u64).then(|| u32::from_le_bytes(self.sender_id))
    }

    /// Whether content can be sent.
    pub(crate) fn is_established(&self) -> bool {
        self.codec.is_established()
    }

    /// The time at which the peer reads or sends again, if it has paused.
    pub(crate) fn resumes_us(&self) -> Option<u64> {
        let pauses = [self.resumes_reading_us, self.resumes_sending_us];
        let next = pauses.into_iter().flatten().min();
        next.filter(|_| !self.is_closed)
    }

    /// Receives, sends, ends and closes as far as possible now.
    pub(crate) fn act(&mut self, kernel: &mut Kernel, random: &mut Random, scratch: &mut [u8]) {
        if self.is_closed {
            return;
        }
        self.read(kernel, random, scratch);
        self.produce(kernel.clock_us(), random);
        self.send(kernel, random);
        self.end(kernel);
        self.close_if_done(kernel);
    }

    // ---- receiving ----

    fn read(&mut self, kernel: &mut Kernel, random: &mut Random, scratch: &mut [u8]) {
        if let Some(until_us) = self.resumes_reading_us {
            if until_us > kernel.clock_us() {
                return;
            }
            self.resumes_reading_us = None;
        }
        if self.transport_ended {
            return;
        }
        if self.plan.stall_us > 0 && self.is_established() {
            let stall_us = std::mem::take(&mut self.plan.stall_us);
            self.resumes_reading_us = Some(kernel.clock_us() + stall_us);
            return;
        }
        if self.plan.pause > 0 && !kernel.calm && random.once_in(self.plan.pause) {
            let pause_us = 1_000 * random.below(self.plan.pause_ms) as u64;
            self.resumes_reading_us = Some(kernel.clock_us() + pause_us);
            return;
        }
        let buf = &mut scratch[..[READ_MAX, READ_MAX, 3_000, 10][random.below(4)]];
        match kernel.recv_at(self.socket, buf) {
            Ok(Attempt::WouldBlock) => {}
            Ok(Attempt::Done(0)) => {
                self.transport_ended = true;
                let end = match self.was_reset {
                    true => End::Reset,
                    false => self.codec.handle_eof(),
                };
                self.received_end.get_or_insert(end);
            }
            Ok(Attempt::Done(n)) => self.handle(&mut buf[..n]),
            Err(_) => {
                self.transport_ended = true;
                self.received_end.get_or_insert(End::Reset);
            }
        }
    }

    fn handle(&mut self, received: &mut [u8]) {
        if self.has_failed() || self.ending == Some(Ending::Alert) {
            // The connection has failed: further bytes are ignored.
            return;
        }
        if let Some(dialogue) = self.dialogue.take() {
            return self.speak(dialogue, received);
        }
        let Some(mut header) = self.header.take() else {
            return self.handle_after_header(received);
        };
        header.extend_from_slice(received);
        match proxy_protocol::read(&header) {
            Ok(HeaderProgress::Partial) => self.header = Some(header),
            Ok(HeaderProgress::Complete { len, endpoints }) if endpoints.is_some() => {
                self.handle_after_header(&mut header[len..]);
            }
            result => {
                let reason = format!("invalid PROXY header: {result:?}");
                self.received_end.get_or_insert(End::Refused(reason));
            }
        }
    }

    /// Takes bytes of the gateway before TLS.
    fn speak(&mut self, mut dialogue: Dialogue, bytes: &[u8]) {
        let (Dialogue::Asks { received, .. }
        | Dialogue::IsAsked(received)
        | Dialogue::IsGreeted(received)) = &mut dialogue;
        received.extend_from_slice(bytes);
        let Some(end) = received.iter().position(|byte| *byte == b'\n') else {
            self.dialogue = Some(dialogue);
            return;
        };
        let mut more = received.split_off(end + 1);
        let line = std::mem::take(received);
        match dialogue {
            Dialogue::IsGreeted(_) if line.starts_with(b"220 ") => {
                return self.handle_after_header(&mut more);
            }
            // All other lines are answered before the next one comes.
            _ if !more.is_empty() => {}
            Dialogue::Asks {
                has_asked, hello, ..
            } if line.starts_with(b"220 ") => {
                return self.ask_or_begin(has_asked, hello);
            }
            Dialogue::IsAsked(_) if line.starts_with(b"EHLO ") => {
                self.wire
                    .extend_from_slice(b"250-sim.example\r\n250 STARTTLS\r\n");
                self.dialogue = Some(dialogue);
                return;
            }
            Dialogue::IsAsked(_) if line == b"STARTTLS\r\n" => {
                self.wire.extend_from_slice(b"220 ready\r\n");
                return;
            }
            Dialogue::Asks { .. } | Dialogue::IsAsked(_) | Dialogue::IsGreeted(_) => {}
        }
        let mut said = [line, more].concat();
        said.truncate(100);
        let reason = format!("invalid bytes before TLS: {}", said.escape_ascii());
        self.received_end.get_or_insert(End::Refused(reason));
    }

    /// A client's turn: it asks for TLS, or begins with it after the answer.
    fn ask_or_begin(&mut self, has_asked: bool, mut hello: Vec<u8>) {
        if has_asked {
            return self.wire.append(&mut hello);
        }
        self.wire.extend_from_slice(b"STARTTLS\r\n");
        self.dialogue = Some(Dialogue::Asks {
            received: Vec::new(),
            has_asked: true,
            hello,
        });
    }

    fn handle_after_header(&mut self, received: &mut [u8]) {
        if self.greeting_left > 0 && !received.is_empty() {
            let reason = "the gateway spoke before the greeting".to_owned();
            self.received_end.get_or_insert(End::Refused(reason));
        }
        let mut codec = std::mem::replace(&mut self.codec, Codec::Plain);
        let handled = codec.handle(received, |content| self.handle_content(content));
        codec.flush(&mut self.wire);
        self.codec = codec;
        if let Handled::End(end) = handled {
            self.received_end.get_or_insert(end);
        }
    }

    fn handle_content(&mut self, content: &[u8]) {
        for (at, &byte) in (self.content_received as usize..ID_BYTES).zip(content) {
            self.sender_id[at] = byte;
        }
        let offset = self.content_received;
        self.content_received += content.len() as u64;
        let is_right = match self.partner() {
            Some(partner) => content::is_content(partner, offset, content),
            None => true,
        };
        if !is_right || self.received_end.is_some() {
            self.wrong_at.get_or_insert(offset);
        }
        if self.plan.source == Source::Echo {
            self.to_echo.extend_from_slice(content);
        }
    }

    // ---- sending ----

    /// Whether the receiving direction ended, and not cleanly.
    fn has_failed(&self) -> bool {
        !matches!(self.received_end, None | Some(End::Clean))
    }

    fn can_produce(&self) -> bool {
        !self.has_failed()
            && self.ending.is_none()
            && self.sent_end.is_none()
            && self.codec.is_established()
    }

    /// Encodes the next piece of content, and the end after the last piece.
    fn produce(&mut self, now_us: u64, random: &mut Random) {
        if self.resumes_sending_us.is_some_and(|at| at > now_us) {
            return;
        }
        self.resumes_sending_us = None;
        if !self.can_produce() || self.wire.len() - self.wire_sent > WIRE_MAX {
            return;
        }
        if self.plan.lulls > 0 && random.once_in(3) {
            self.plan.lulls -= 1;
            self.resumes_sending_us = Some(now_us + random.below(LULL_US) as u64);
            return;
        }
        let mut piece = match self.plan.source {
            Source::Echo => {
                let n = self.to_echo.len().min(ECHO_MAX);
                self.to_echo.drain(..n).collect::<Vec<u8>>()
            }
            Source::Own(total) => {
                let left = usize::try_from(total - self.content_sent).unwrap_or(usize::MAX);
                let n = left.min(1 + random.below(self.plan.piece_max));
                vec![0; n]
            }
        };
        if !piece.is_empty() {
            if self.plan.source != Source::Echo {
                content::write(self.id, self.content_sent, &mut piece);
            }
            self.content_sent += piece.len() as u64;
            if self.plan.key_update > 0 && random.once_in(self.plan.key_update) {
                self.codec.update_key(&mut self.wire);
            }
            self.codec.send(&piece, &mut self.wire);
        }
        if self.has_produced_all() && self.may_end() {
            self.ending = Some(self.plan.ending);
            match self.plan.ending {
                Ending::Close | Ending::Wait => self.codec.end(false, &mut self.wire),
                Ending::Alert => self.codec.end(true, &mut self.wire),
                Ending::Truncate | Ending::Reset => {}
            }
        }
    }

    fn has_produced_all(&self) -> bool {
        match self.plan.source {
            Source::Own(total) => self.content_sent == total,
            Source::Echo => self.received_end.is_some() && self.to_echo.is_empty(),
        }
    }

    fn may_end(&self) -> bool {
        match self.plan.ending {
            Ending::Wait => self.received_end.is_some(),
            Ending::Close if self.plan.ends_last => self.received_end.is_some(),
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
                self.greeting_left = self.greeting_left.saturating_sub(n);
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
                self.sent_end.get_or_insert(SentEnd::Failed);
            }
        }
    }

    fn end(&mut self, kernel: &mut Kernel) {
        let Some(ending) = self.ending else { return };
        if !self.wire.is_empty() || self.sent_end.is_some() {
            return;
        }
        self.sent_end = Some(match ending {
            Ending::Close | Ending::Wait => SentEnd::Clean,
            Ending::Truncate | Ending::Reset | Ending::Alert => SentEnd::Aborted(ending),
        });
        match ending {
            Ending::Reset => {
                kernel.reset_at(self.socket);
                self.is_closed = true;
            }
            Ending::Close | Ending::Wait | Ending::Truncate | Ending::Alert => {
                kernel.shutdown_at(self.socket);
            }
        }
    }

    /// Closes the socket when both directions have ended, or the connection has failed.
    fn close_if_done(&mut self, kernel: &mut Kernel) {
        let is_done = self.sent_end.is_some() && self.received_end.is_some();
        // After an alert of its own, a peer ignores what it receives.
        let is_aborted =
            self.sent_end == Some(SentEnd::Aborted(Ending::Alert)) && self.transport_ended;
        if !self.is_closed && self.wire.is_empty() && (is_done || self.has_failed() || is_aborted) {
            kernel.close_at(self.socket);
            self.is_closed = true;
        }
    }
}
