//! Tests whether a server lets its clients renegotiate (RFC 5746): sends a second ClientHello on an established TLS
//! 1.2 connection, encrypted like any other record, and reads the answer.
//!
//! A server that accepts sends a ServerHello and keeps the connection open. The audit does not finish the second
//! handshake: an attacker only needs the server to start one.
//!
//! The hello must prove that it comes from the same client (RFC 5746 §3.5), with the `verify_data` of the first
//! handshake's Finished message. A TLS library does not expose that value, so it is decrypted from the recorded bytes:
//! Finished is the first record sent under the connection's keys, which the audit has.

use std::time::{Duration, Instant};

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce};
use aws_lc_rs::aead::{Algorithm, UnboundKey};
use dormouse_engine::messages::Reader;
use dormouse_engine::messages::content_type::{ALERT, CHANGE_CIPHER_SPEC, HANDSHAKE};
use dormouse_engine::messages::handshake_type::{FINISHED, HELLO_REQUEST, SERVER_HELLO};
use dormouse_engine::{Protocols, alert_name};
use dormouse_record::{AlertLevel, State, Suite};
use zerocopy::IntoBytes;

use super::dialer::Dialer;
use super::probe_connection::ProbeConnection;
use super::probe_hello::{ProbeHello, TLS12};
use crate::connection::{RECEIVE, is_timeout};

/// Maximum wait for an answer. A server that reads the ClientHello answers at once.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// Maximum wait for the end of the flight after the server has accepted.
const END_WAIT: Duration = Duration::from_millis(500);
const BEGUN_AND_ENDED: &str = "a ServerHello, then it closed the connection";
/// Length of verify_data in TLS 1.2 (RFC 5246 §7.4.9).
const VERIFY_DATA: usize = 12;

/// Answer of a server to a client that renegotiates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RenegotiationAnswer {
    pub(super) accepted: bool,
    pub(super) words: String,
}

/// Renegotiates on a connection made for this test. `announced`: whether the server supports RFC 5746.
pub(super) fn attempt(
    dialer: &Dialer<'_>,
    name: Option<&str>,
    announced: bool,
) -> Result<RenegotiationAnswer, String> {
    let context = dialer.context(Protocols::TLS12, None)?;
    let mut visit = ProbeConnection::make(dialer, &context)?;
    let verify_data = verify_data(visit.connection.tls(), &visit.sent);
    let verify_data = verify_data.ok_or("the audit did not find its own Finished message")?;
    let mut ask = ProbeHello::all(TLS12, name);
    ask.renegotiating = Some(if announced { verify_data } else { Vec::new() });
    visit.connection.send(HANDSHAKE, &ask.message())?;
    let answer = listen(&mut visit, dialer.patience(ANSWER_WAIT))?;
    visit.close();
    Ok(answer)
}

fn listen(visit: &mut ProbeConnection, wait: Duration) -> Result<RenegotiationAnswer, String> {
    let answer = |accepted, words: &str| {
        Ok(RenegotiationAnswer {
            accepted,
            words: words.into(),
        })
    };
    let mut until = Instant::now() + wait;
    let mut begun = false;
    let mut sequence = visit.connection.tls().read_sequence();
    let mut bytes = visit.connection.take_unopened();
    let mut room = vec![0; RECEIVE];
    loop {
        let mut records = Reader::new(&bytes);
        let mut opened = 0;
        while let Some(record) = whole_record(&mut records) {
            let content = opened_record(visit.connection.tls(), Direction::Read, sequence, record);
            let content = content.ok_or("a record could not be decrypted")?;
            sequence += 1;
            opened += record.len();
            match (record.first(), content.as_slice()) {
                (Some(&HANDSHAKE), [SERVER_HELLO, ..]) if !begun => {
                    // Some servers count renegotiations and close the connection when there are too many.
                    begun = true;
                    until = Instant::now() + END_WAIT;
                }
                // The server asked for renegotiation at the same moment; its answer to our ClientHello follows.
                (Some(&HANDSHAKE), [HELLO_REQUEST, ..]) => {}
                (Some(&ALERT), _) if begun => return answer(false, BEGUN_AND_ENDED),
                (Some(&ALERT), [level, alert, ..]) => {
                    let kind = if *level == AlertLevel::Fatal as u8 {
                        "a fatal alert"
                    } else {
                        "a warning alert"
                    };
                    return answer(false, &format!("{kind}, {}", alert_name(*alert)));
                }
                // Application data that the server sends unasked.
                _ => {}
            }
        }
        bytes.drain(..opened);
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() && begun {
            return answer(true, "a ServerHello");
        }
        if left.is_zero() {
            let s = wait.as_secs_f64();
            return Err(format!("the server did not answer within {s:.1} s"));
        }
        visit.connection.stream.patience(left);
        match visit.connection.receive(&mut room) {
            Ok(1..) => bytes.append(&mut visit.connection.take_unopened()),
            Err(error) if is_timeout(&error) => {}
            Ok(_) | Err(_) if begun => return answer(false, BEGUN_AND_ENDED),
            Ok(_) => return answer(false, "it closed the connection"),
            Err(_) => return answer(false, "it reset the connection"),
        }
    }
}

/// Returns the next complete record, header included.
fn whole_record<'a>(records: &mut Reader<'a>) -> Option<&'a [u8]> {
    let rest = records.rest();
    let length = u16::from_be_bytes([*rest.get(3)?, *rest.get(4)?]);
    records.take(5 + usize::from(length))
}

/// Returns the `verify_data` of our Finished message, the first handshake record after ChangeCipherSpec.
fn verify_data(tls: &State, sent: &[u8]) -> Option<Vec<u8>> {
    let mut records = Reader::new(sent);
    let mut changed = false;
    while let Some(record) = whole_record(&mut records) {
        match record.first() {
            Some(&CHANGE_CIPHER_SPEC) => changed = true,
            Some(&HANDSHAKE) if changed => {
                let finished = opened_record(tls, Direction::Write, 0, record)?;
                let mut reading = Reader::new(&finished);
                return match (reading.u8(), reading.vector24()) {
                    (Some(FINISHED), Some(data)) if data.len() == VERIFY_DATA => {
                        Some(data.to_vec())
                    }
                    _ => None,
                };
            }
            _ => {}
        }
    }
    None
}

/// Direction whose keys open a record: received or sent by the audit.
#[derive(Clone, Copy)]
enum Direction {
    Read,
    Write,
}

/// Decrypts a TLS 1.2 record without changing the connection's state.
fn opened_record(tls: &State, side: Direction, sequence: u64, record: &[u8]) -> Option<Vec<u8>> {
    let (algorithm, explicit): (&Algorithm, usize) = match tls.suite() {
        Suite::Aes128GcmSha256 => (&AES_128_GCM, 8),
        Suite::Aes256GcmSha384 => (&AES_256_GCM, 8),
        Suite::Chacha20Poly1305Sha256 => (&CHACHA20_POLY1305, 0),
    };
    // The state's layout is part of its contract: the key lies at 32 or 80, the IV 32 bytes after it.
    let secret = match side {
        Direction::Read => tls.as_bytes().get(32..80)?,
        Direction::Write => tls.as_bytes().get(80..128)?,
    };
    let key = UnboundKey::new(algorithm, secret.get(..algorithm.key_len())?).ok()?;
    let iv: [u8; 12] = secret.get(32..44)?.try_into().ok()?;
    let (header, protected) = record.split_at_checked(5)?;
    let (nonce, text) = protected.split_at_checked(explicit)?;
    let nonce = nonce_of(iv, nonce, sequence)?;
    let length = u16::try_from(text.len().checked_sub(algorithm.tag_len())?).ok()?;
    let mut aad = sequence.to_be_bytes().to_vec();
    aad.extend_from_slice(header.get(..3)?);
    aad.extend_from_slice(&length.to_be_bytes());
    let mut content = text.to_vec();
    let plain = LessSafeKey::new(key)
        .open_in_place(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(aad),
            &mut content,
        )
        .ok()?;
    Some(plain.to_vec())
}

/// RFC 5288 §3: four bytes of the IV and eight explicit ones. RFC 7905 §2: IV xor sequence number.
fn nonce_of(mut iv: [u8; 12], sent: &[u8], sequence: u64) -> Option<[u8; 12]> {
    let place = iv.get_mut(4..)?;
    if sent.is_empty() {
        for (byte, with) in place.iter_mut().zip(sequence.to_be_bytes()) {
            *byte ^= with;
        }
    } else {
        place.copy_from_slice(sent.get(..8)?);
    }
    Some(iv)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::probe_connection::tests::connected;
    use dormouse_engine::Version;
    use dormouse_record::{self as record, KeyIv, Role, SealKey};

    /// A server that begins its answer again and again has no more time than one that begins it once.
    #[test]
    fn a_server_that_never_ends_its_flight_is_not_awaited() {
        let suite = Suite::Aes128GcmSha256;
        let key = vec![7; suite.key_len()];
        let tls = |role, read: &[u8; 12], write: &[u8; 12]| {
            let [read, write] = [read, write].map(|iv| KeyIv { key: &key, iv });
            let mut tls = State::empty();
            tls.establish_tls12(role, suite, read, 0, write, 0).unwrap();
            tls
        };
        let client = tls(Role::Client, &[1; 12], &[2; 12]);
        let server = tls(Role::Server, &[2; 12], &[1; 12]);
        let (mut visit, mut server) = connected(Version::Tls12, client, server);
        let serving = std::thread::spawn(move || {
            for _ in 0..40 {
                if server.send(HANDSHAKE, &[SERVER_HELLO, 0, 0, 0]).is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let answer = listen(&mut visit, Duration::from_secs(5)).unwrap();
        assert!(answer.accepted, "{answer:?}");
        drop(visit);
        serving.join().unwrap();
    }

    #[test]
    fn a_record_is_opened_beside_the_connection() {
        for suite in [
            Suite::Aes128GcmSha256,
            Suite::Aes256GcmSha384,
            Suite::Chacha20Poly1305Sha256,
        ] {
            let key: Vec<u8> = (0..suite.key_len() as u8).collect();
            let (read, write) = ([1; 12], [2; 12]);
            let half = |iv| KeyIv { key: &key, iv };
            let mut tls = State::empty();
            tls.establish_tls12(Role::Client, suite, half(&read), 0, half(&write), 0)
                .unwrap();
            // The recorded Finished message (RFC 5246 §7.4.9), after a ChangeCipherSpec.
            let mut message = vec![FINISHED, 0, 0, 12];
            message.extend_from_slice(b"verify_data!");
            let room = record::record_room(&tls);
            let mut out = vec![0; room.header + message.len() + room.trailer];
            out[room.header..room.header + message.len()].copy_from_slice(&message);
            let mut sealing = SealKey::new(&tls);
            let length = message.len();
            record::seal_record(&mut tls, &mut sealing, &mut out, HANDSHAKE, length, 0).unwrap();
            let sent = [&[20, 3, 3, 0, 1, 1], &out[..]].concat();
            assert_eq!(verify_data(&tls, &sent).unwrap(), b"verify_data!");
            // There is none if the record is unencrypted, truncated or modified.
            assert_eq!(verify_data(&tls, &out), None);
            assert_eq!(verify_data(&tls, &sent[..sent.len() - 1]), None);
            let mut changed = sent.clone();
            *changed.last_mut().unwrap() ^= 1;
            assert_eq!(verify_data(&tls, &changed), None);
        }
    }
}
