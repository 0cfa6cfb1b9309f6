//! One exchange on a connection: the message, and the check of its answer.

use std::sync::Arc;
use std::time::Instant;

use super::http::Response;
use super::orders::Expect;

/// Length of the block that bulk data repeats. A prime, so that no buffer size divides it and a
/// lost or doubled buffer cannot go unnoticed.
const BULK_BLOCK_LEN: usize = 65_521;
/// Length of its lines. Servers of lines echo them too, unless their limit is below 1 kB.
const BULK_LINE_LEN: usize = 1_021;
const BULK_LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Highest status of a response that is not a failure.
const STATUS_MAX: u16 = 399;

/// Bytes to send, repeated from `start` as long as needed.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    block: Arc<[u8]>,
    start: u64,
    /// Length of a stream that ends with a newline, whatever its block has there.
    line_len: Option<u64>,
}

impl Pattern {
    /// Returns a message that is sent unchanged.
    pub(super) fn message(message: Arc<[u8]>) -> Self {
        Self {
            block: message,
            start: 0,
            line_len: None,
        }
    }

    /// Returns the block for bulk data: lines of xorshift noise, the same in every run. Noise that is no text would end
    /// the connection of a server that reads text.
    pub(super) fn bulk_block() -> Arc<[u8]> {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let byte = |at: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let letter = BULK_LETTERS.get((state >> 32) as usize % BULK_LETTERS.len());
            match letter {
                Some(letter) if !(at + 1).is_multiple_of(BULK_LINE_LEN) => *letter,
                _ => b'\n',
            }
        };
        (0..BULK_BLOCK_LEN).map(byte).collect()
    }

    /// Returns `len` bytes of bulk data for one connection; each connection begins elsewhere in the block. A server of
    /// lines answers the last one, too.
    pub(super) fn bulk(block: Arc<[u8]>, serial: u64, len: u64) -> Self {
        Self {
            block,
            start: serial.wrapping_mul(7919),
            line_len: Some(len),
        }
    }

    fn len(&self) -> u64 {
        self.block.len() as u64
    }

    /// Returns the longest piece of the stream at `offset` that is contiguous in the block.
    fn piece(&self, offset: u64, len_max: usize) -> &[u8] {
        let at = self
            .start
            .wrapping_add(offset)
            .checked_rem(self.len())
            .unwrap_or(0) as usize;
        let rest = self.block.get(at..).unwrap_or_default();
        rest.get(..len_max).unwrap_or(rest)
    }

    /// Writes the stream from `offset` on into `out`.
    pub(super) fn fill(&self, mut offset: u64, mut out: &mut [u8]) {
        let is_end = self.line_len == Some(offset + out.len() as u64);
        if let Some(last) = out.len().checked_sub(1).filter(|_| is_end) {
            let (rest, newline) = std::mem::take(&mut out).split_at_mut(last);
            newline.fill(b'\n');
            out = rest;
        }
        while !out.is_empty() && !self.block.is_empty() {
            let piece = self.piece(offset, out.len());
            let (head, tail) = out.split_at_mut(piece.len());
            head.copy_from_slice(piece);
            offset += head.len() as u64;
            out = tail;
        }
    }

    /// Returns whether `bytes` are the stream from `offset` on.
    fn matches(&self, mut offset: u64, mut bytes: &[u8]) -> bool {
        if self.line_len == Some(offset + bytes.len() as u64)
            && let Some((last, rest)) = bytes.split_last()
        {
            if *last != b'\n' {
                return false;
            }
            bytes = rest;
        }
        while !bytes.is_empty() {
            let piece = self.piece(offset, bytes.len());
            if piece.is_empty() || !bytes.starts_with(piece) {
                return false;
            }
            offset += piece.len() as u64;
            bytes = bytes.get(piece.len()..).unwrap_or_default();
        }
        true
    }
}

/// One exchange in progress.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) started: Instant,
    pattern: Pattern,
    /// Total bytes to send, and bytes sent so far.
    say: u64,
    sent: u64,
    received: u64,
    answer: ExpectedAnswer,
    /// Whether it is part of opening the connection: a greeting, a first request.
    pub(super) opening: bool,
}

#[derive(Debug)]
enum ExpectedAnswer {
    Echo,
    Any,
    Nothing,
    Http(Response, u16),
}

/// State of an exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ExchangeState {
    /// More bytes must be sent or received.
    Open,
    /// Done; whether the connection can be used again.
    Done { reusable: bool },
}

impl Exchange {
    /// Returns an exchange of a message of `say` bytes.
    pub(super) fn say(pattern: Pattern, say: u64, expect: Expect, now: Instant) -> Self {
        let answer = match expect {
            Expect::Echo => ExpectedAnswer::Echo,
            Expect::Any => ExpectedAnswer::Any,
            Expect::Nothing => ExpectedAnswer::Nothing,
        };
        Self {
            started: now,
            pattern,
            say,
            sent: 0,
            received: 0,
            answer,
            opening: false,
        }
    }

    /// Returns an exchange without a message; the server sends first.
    pub(super) fn greeting(now: Instant) -> Self {
        Self::say(Pattern::message(Arc::default()), 0, Expect::Any, now).of_opening()
    }

    /// Returns an exchange of a request; with `any_status`, an error status is an answer too.
    pub(super) fn http(request: Arc<[u8]>, any_status: bool, now: Instant) -> Self {
        let say = request.len() as u64;
        let status_max = if any_status { u16::MAX } else { STATUS_MAX };
        let answer = ExpectedAnswer::Http(Response::new(), status_max);
        Self {
            started: now,
            pattern: Pattern::message(request),
            say,
            sent: 0,
            received: 0,
            answer,
            opening: false,
        }
    }

    /// Marks the exchange as a part of opening the connection.
    pub(super) fn of_opening(self) -> Self {
        Self {
            opening: true,
            ..self
        }
    }

    /// Returns whether the server sends first.
    pub(super) fn is_greeting(&self) -> bool {
        self.say == 0
    }

    /// Returns the number of bytes still to send.
    pub(super) fn bytes_to_send(&self) -> u64 {
        self.say - self.sent
    }

    /// Writes the next bytes to send; at least as many must be left.
    pub(super) fn write_next(&mut self, out: &mut [u8]) {
        self.pattern.fill(self.sent, out);
        self.sent += out.len() as u64;
    }

    /// Returns the state after all bytes handed out were sent.
    pub(super) fn state_when_sent(&self) -> ExchangeState {
        match self.answer {
            ExpectedAnswer::Nothing if self.bytes_to_send() == 0 => {
                ExchangeState::Done { reusable: true }
            }
            _ => ExchangeState::Open,
        }
    }

    /// Takes received plaintext.
    pub(super) fn take_plaintext(&mut self, bytes: &[u8]) -> Result<ExchangeState, String> {
        let from = self.received;
        self.received += bytes.len() as u64;
        let bytes_to_send = self.bytes_to_send();
        match &mut self.answer {
            ExpectedAnswer::Echo => {
                if self.received > self.sent {
                    return Err("the echo is longer than the message".into());
                }
                if !self.pattern.matches(from, bytes) {
                    return Err("the echo differs from the message (integrity)".into());
                }
                Ok(if self.received == self.say {
                    ExchangeState::Done { reusable: true }
                } else {
                    ExchangeState::Open
                })
            }
            ExpectedAnswer::Any if bytes_to_send == 0 && !bytes.is_empty() => {
                Ok(ExchangeState::Done { reusable: true })
            }
            ExpectedAnswer::Any | ExpectedAnswer::Nothing => Ok(ExchangeState::Open),
            ExpectedAnswer::Http(response, status_max) => {
                state_of(response.take(bytes)?, *status_max)
            }
        }
    }

    /// Handles the end of the connection by the server, which may end an answer.
    pub(super) fn take_end(&mut self) -> Result<ExchangeState, String> {
        match &mut self.answer {
            ExpectedAnswer::Http(response, status_max) if self.received > 0 => {
                state_of(Some(response.end()?), *status_max)
            }
            _ => Err("the server closed the connection before it answered".into()),
        }
    }
}

fn state_of(
    outcome: Option<super::http::ResponseEnd>,
    status_max: u16,
) -> Result<ExchangeState, String> {
    match outcome {
        None => Ok(ExchangeState::Open),
        Some(outcome) if outcome.status <= status_max => Ok(ExchangeState::Done {
            reusable: outcome.keep_alive,
        }),
        Some(outcome) => Err(format!("HTTP status {}", outcome.status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_echo_cut_anywhere_is_right_and_a_flipped_bit_is_not(
            total in 1_u64..200_000, serial in any::<u64>(), cut in 1_usize..70_000, flip in any::<prop::sample::Index>(),
        ) {
            let pattern = Pattern::bulk(Pattern::bulk_block(), serial, total);
            let now = Instant::now();
            let mut exchange = Exchange::say(pattern.clone(), total, Expect::Echo, now);
            let mut stream = vec![0; total as usize];
            exchange.write_next(&mut stream);
            prop_assert_eq!(exchange.bytes_to_send(), 0);
            let mut last = ExchangeState::Open;
            for piece in stream.chunks(cut) {
                prop_assert_eq!(last, ExchangeState::Open);
                last = exchange.take_plaintext(piece).unwrap();
            }
            prop_assert_eq!(last, ExchangeState::Done { reusable: true });

            let mut wrong = Exchange::say(pattern, total, Expect::Echo, now);
            wrong.write_next(&mut vec![0; total as usize]);
            let at = flip.index(stream.len());
            stream[at] ^= 0x10;
            prop_assert!(wrong.take_plaintext(&stream).is_err());
        }
    }

    #[test]
    fn an_error_status_is_an_answer_where_any_is() {
        let answered = |any_status| {
            let request: Arc<[u8]> = b"GET / HTTP/1.1\r\n\r\n".to_vec().into();
            let mut exchange = Exchange::http(request, any_status, Instant::now());
            exchange.write_next(&mut [0; 18]);
            exchange.take_plaintext(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        };
        assert_eq!(answered(true), Ok(ExchangeState::Done { reusable: true }));
        assert_eq!(answered(false), Err("HTTP status 404".to_owned()));
    }

    /// Recorded: a server of lines did not return the end of 16 kB, and lost the connection.
    #[test]
    fn bulk_data_is_lines_of_text() {
        for serial in [0, 1, 77] {
            let mut sent = vec![0; 16_000];
            let pattern = Pattern::bulk(Pattern::bulk_block(), serial, 16_000);
            let (head, tail) = sent.split_at_mut(9_000);
            pattern.fill(0, head);
            pattern.fill(9_000, tail);
            assert_eq!(sent.last(), Some(&b'\n'));
            assert!(std::str::from_utf8(&sent).is_ok());
            let longest = sent.split(|byte| *byte == b'\n').map(<[u8]>::len).max();
            assert!(longest < Some(1_024), "{longest:?}");
            assert!(pattern.matches(0, &sent) && pattern.matches(15_999, b"\n"));
            assert!(!pattern.matches(15_999, b"x"));
        }
    }

    #[test]
    fn refuses_an_echo_before_its_message() {
        let pattern = Pattern::message(b"hello\n".to_vec().into());
        let mut exchange = Exchange::say(pattern, 6, Expect::Echo, Instant::now());
        exchange.write_next(&mut [0; 2]);
        assert!(exchange.take_plaintext(b"hel").is_err());
    }

    #[test]
    fn a_greeting_ends_with_its_first_byte_and_no_answer_is_needed_for_none() {
        let mut greeting = Exchange::greeting(Instant::now());
        assert_eq!(greeting.take_plaintext(b""), Ok(ExchangeState::Open));
        assert_eq!(
            greeting.take_plaintext(b"w"),
            Ok(ExchangeState::Done { reusable: true })
        );
        let pattern = Pattern::message(b"ping".to_vec().into());
        let mut silent = Exchange::say(pattern, 4, Expect::Nothing, Instant::now());
        assert_eq!(silent.state_when_sent(), ExchangeState::Open);
        silent.write_next(&mut [0; 4]);
        assert_eq!(
            silent.state_when_sent(),
            ExchangeState::Done { reusable: true }
        );
    }
}
