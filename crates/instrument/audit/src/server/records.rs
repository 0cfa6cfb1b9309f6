//! Records in which the server sends its answers: small pieces and padding show as bytes that are not content.

use std::time::Duration;

use dormouse_bench::load::{Expect, Traffic};
use dormouse_engine::Protocols;
use dormouse_record::record_room;

use super::dialer::Dialer;
use super::probe_connection::ProbeConnection;
use crate::model::{Measured, RecordFigures};

/// Exchanges of the server's usual message.
const MESSAGES: u64 = 8;
/// Bytes of a longer message, if the server echoes: less than a record.
const LONG_BYTES: usize = 4_000;
/// Bytes of a response after which no more of it is read.
const RESPONSE_MAX: usize = 256 * 1024;
/// Maximum wait for an answer, and for the rest of an answer of unknown length.
const ANSWER_WAIT: Duration = Duration::from_secs(2);
const REST_WAIT: Duration = Duration::from_millis(60);

/// Makes one connection, and counts the records of the server's answers.
pub(super) fn count(dialer: &Dialer<'_>, talk: &Traffic) -> Measured<RecordFigures> {
    Measured::from(answers(dialer, talk))
}

fn answers(dialer: &Dialer<'_>, talk: &Traffic) -> Result<RecordFigures, String> {
    let context = dialer.context(Protocols::ALL, None)?;
    let mut visit = ProbeConnection::make(dialer, &context)?;
    let answers = match talk {
        Traffic::Http { path, host, .. } => {
            let request =
                format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            u64::from(ask(&mut visit, request.as_bytes(), RESPONSE_MAX)? > 0)
        }
        Traffic::Message {
            expect: Expect::Nothing,
            ..
        } => {
            return Err(
                "the server does not answer what the audit sends: give --http, --send or --expect"
                    .into(),
            );
        }
        Traffic::Message {
            message,
            expect,
            greeting,
        } => {
            let greeting = *greeting
                && !visit
                    .hear(ANSWER_WAIT, |heard, _| !heard.is_empty())?
                    .is_empty();
            let echoes = *expect == Expect::Echo;
            u64::from(greeting) + exchanges(&mut visit, message, echoes)?
        }
    };
    let (data, room) = (
        visit.connection.data_records(),
        record_room(visit.connection.tls()),
    );
    visit.close();
    if data.content_bytes == 0 {
        return Err("the server sent no application data".into());
    }
    Ok(RecordFigures {
        answers: answers.max(1),
        content_bytes: data.content_bytes,
        records: data.records,
        wire_bytes: data.wire_bytes,
        least_bytes: (room.header + room.trailer) as u64,
    })
}

/// Exchanges messages, and a longer one with a server that echoes. Returns the number of answers.
fn exchanges(visit: &mut ProbeConnection, message: &[u8], echoes: bool) -> Result<u64, String> {
    let mut answers = 0;
    let long = lengthened(message);
    let short = std::iter::repeat_n(message, MESSAGES as usize);
    for message in short.chain(echoes.then_some(&*long)) {
        let most = if echoes { message.len() } else { RESPONSE_MAX };
        if ask(visit, message, most)? == 0 {
            break;
        }
        answers += 1;
    }
    Ok(answers)
}

/// Returns the message repeated as one line: a server of lines answers each line by itself.
fn lengthened(message: &[u8]) -> Vec<u8> {
    let end = message
        .iter()
        .rev()
        .take_while(|byte| b"\r\n".contains(byte));
    let (words, end) = message.split_at(message.len() - end.count());
    let mut long = words.repeat(LONG_BYTES.saturating_sub(end.len()) / words.len().max(1));
    long.extend_from_slice(end);
    long
}

/// Sends a message and reads up to `most` bytes of the answer. Returns their number.
fn ask(visit: &mut ProbeConnection, message: &[u8], most: usize) -> Result<usize, String> {
    // A server that ended the connection has given all its answers.
    if visit.say(message).is_err() {
        return Ok(0);
    }
    let mut count = visit.hear(ANSWER_WAIT, |heard, _| !heard.is_empty())?.len();
    while count > 0 && count < most {
        let more = visit.hear(REST_WAIT, |heard, _| !heard.is_empty())?.len();
        if more == 0 {
            break;
        }
        count += more;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded: a server of lines answered 666 lines of 6 bytes with as many records, one for each.
    #[test]
    fn a_longer_message_is_one_line() {
        let long = lengthened(b"hello\n");
        assert_eq!(long.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert!(
            long.ends_with(b"hello\n") && long.len() <= LONG_BYTES && long.len() > LONG_BYTES - 6
        );
        assert_eq!(
            lengthened(b"ping\r\n").split(|byte| *byte == b'\r').count(),
            2
        );
        assert_eq!(lengthened(b"x").len(), LONG_BYTES);
    }
}
