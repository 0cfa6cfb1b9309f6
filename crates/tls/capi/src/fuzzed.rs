//! Sequences of calls as C programs make them, for `fuzz/` only; not a public interface.
//!
//! Each call is four bytes: the call, the objects that it uses, and two numbers. Handles and connections may be of any
//! kind: finished, freed, never created, or damaged bytes.

use std::cell::OnceCell;
use std::ptr;

use crate::*;

/// Calls per input, so that an input has a limited duration.
const CALLS_MAX: usize = 64;
/// Bytes behind each output that no call may change.
const FENCE: [u8; 16] = [0xa5; 16];

thread_local! {
    static CONTEXTS: OnceCell<(dormouse_server, dormouse_client)> = const { OnceCell::new() };
}

/// Makes the calls that the input describes.
///
/// # Panics
/// When a call writes behind its output, reports a panic, or breaks its contract.
pub fn run(data: &[u8]) {
    let (server, client) = CONTEXTS.with(|contexts| *contexts.get_or_init(contexts_for_all));
    let mut program = Program {
        server,
        client,
        handshakes: [dormouse_handshake { id: 0 }; 4],
        connections: std::array::from_fn(|_| dormouse_connection { opaque: [0; 16] }),
        // What each handshake or connection has sent, until another one takes it.
        sent: std::array::from_fn(|_| Vec::new()),
    };
    let mut rest = data;
    for _ in 0..CALLS_MAX {
        let Some((&[call, which, number, more], behind)) = rest.split_first_chunk() else {
            break;
        };
        rest = program.call(call % 16, usize::from(which), number, more, behind);
    }
    for handshake in program.handshakes {
        dormouse_handshake_free(handshake);
    }
}

fn contexts_for_all() -> (dormouse_server, dormouse_client) {
    let name = b"a.test";
    // SAFETY: the name's own length.
    let made = unsafe { dormouse_identity_self_signed(name.as_ptr(), name.len()) };
    let settings = dormouse_server_settings_new();
    dormouse_server_add_identity(settings, made.identity);
    let server = dormouse_server_new(settings).server;
    let settings = dormouse_client_settings_new();
    dormouse_client_trust_anybody(settings);
    let client = dormouse_client_new(settings).client;
    assert!(server.id != 0 && client.id != 0);
    (server, client)
}

struct Program {
    server: dormouse_server,
    client: dormouse_client,
    handshakes: [dormouse_handshake; 4],
    connections: [dormouse_connection; 4],
    sent: [Vec<u8>; 4],
}

impl Program {
    fn call<'a>(
        &mut self,
        call: u8,
        which: usize,
        number: u8,
        more: u8,
        rest: &'a [u8],
    ) -> &'a [u8] {
        let (at, peer) = (which % 4, which / 4 % 4);
        let keeps = which / 16 % 2 == 1;
        let (len, room) = (usize::from(number) * 8, usize::from(more) * 16);
        match call {
            0 => self.start(at, number),
            1..=4 => {
                // From the peer, changed if the number says so, or from the input.
                let mut input = std::mem::take(&mut self.sent[peer]);
                if let (Some(byte), 255) = (input.first_mut(), number) {
                    *byte ^= more;
                }
                self.step(at, &input, 4096);
            }
            5 => self.finish(at, room),
            6 => {
                let (input, behind) = rest.split_at(len.min(rest.len()));
                self.step(at, input, room);
                return behind;
            }
            7 => self.receive(at, peer, room.max(DORMOUSE_ANSWER_MAX), keeps),
            8 => self.seal(at, len, room, keeps),
            9 => self.seal_small(at, number, room),
            10 => {
                let (image, behind) = rest.split_at(rest.len().min(128));
                for (word, bytes) in self.connections[at].opaque.iter_mut().zip(image.chunks(8)) {
                    let mut whole = [0; 8];
                    whole[..bytes.len()].copy_from_slice(bytes);
                    *word ^= u64::from_le_bytes(whole);
                }
                return behind;
            }
            11 => self.look(at),
            12 => {
                dormouse_handshake_decide(self.handshakes[at], self.server);
            }
            13 => {
                dormouse_handshake_free(self.handshakes[at]);
            }
            // SAFETY: 128 bytes of this program.
            14 => unsafe { dormouse_connection_wipe(&raw mut self.connections[at]) },
            // The same handle in another place, or one that was never given.
            _ => {
                self.handshakes[at] = match number {
                    0..4 => self.handshakes[usize::from(number)],
                    _ => dormouse_handshake {
                        id: u64::from(more) << (number % 64),
                    },
                }
            }
        }
        rest
    }

    fn start(&mut self, at: usize, number: u8) {
        let name = b"a.test";
        let made = match number % 3 {
            0 => dormouse_accept(self.server),
            1 => dormouse_listen(),
            // SAFETY: the name's own length.
            _ => unsafe { dormouse_connect(self.client, name.as_ptr(), name.len()) },
        };
        assert!(made.handshake.id != 0);
        dormouse_handshake_free(std::mem::replace(&mut self.handshakes[at], made.handshake));
        self.sent[at].clear();
    }

    fn step(&mut self, at: usize, input: &[u8], room: usize) {
        let handshake = self.handshakes[at];
        let mut output = fenced(room);
        // SAFETY: each buffer has the given length.
        let step = unsafe {
            dormouse_handshake_step(
                handshake,
                input.as_ptr(),
                input.len(),
                output.as_mut_ptr(),
                room,
            )
        };
        check(step.status);
        self.take(at, output, step.output_len);
    }

    fn finish(&mut self, at: usize, room: usize) {
        let mut leftover = fenced(room);
        // SAFETY: each buffer has the given length.
        let finished = unsafe {
            dormouse_handshake_finish(
                self.handshakes[at],
                &raw mut self.connections[at],
                leftover.as_mut_ptr(),
                room,
            )
        };
        check(finished.status);
        assert!(leftover.ends_with(&FENCE));
    }

    fn receive(&mut self, at: usize, peer: usize, room: usize, keeps: bool) {
        let receive = match keeps {
            true => dormouse_receive_kept,
            false => dormouse_receive,
        };
        let mut buffer = std::mem::take(&mut self.sent[peer]);
        let len = buffer.len();
        let mut output = fenced(room);
        // SAFETY: each buffer has the given length.
        let received = unsafe {
            receive(
                &raw mut self.connections[at],
                buffer.as_mut_ptr(),
                len,
                output.as_mut_ptr(),
                room,
            )
        };
        check(received.status);
        assert!(received.consumed <= len && received.plaintext_len <= received.consumed);
        self.sent[peer] = buffer.split_off(received.consumed);
        self.take(at, output, received.output_len);
    }

    fn seal(&mut self, at: usize, len: usize, room: usize, keeps: bool) {
        let seal = match keeps {
            true => dormouse_seal_kept,
            false => dormouse_seal,
        };
        let connection = &raw mut self.connections[at];
        let plaintext = vec![7; len];
        let mut output = fenced(room);
        // SAFETY: each buffer has the given length.
        let (need, sealed) = unsafe {
            (
                dormouse_sealed_len(connection, len),
                seal(
                    connection,
                    plaintext.as_ptr(),
                    len,
                    output.as_mut_ptr(),
                    room,
                ),
            )
        };
        check(sealed.status);
        if sealed.status == dormouse_status::DORMOUSE_TOO_SMALL {
            assert!(sealed.output_len == need && need > room);
            return;
        }
        self.take(at, output, sealed.output_len);
    }

    fn seal_small(&mut self, at: usize, number: u8, room: usize) {
        let connection = &raw mut self.connections[at];
        let mut output = fenced(room);
        let start = output.as_mut_ptr();
        // SAFETY: the output has the given length.
        let sealed = unsafe {
            match number % 3 {
                0 => dormouse_close(connection, start, room),
                1 => dormouse_update_keys(connection, start, room),
                _ => dormouse_abort(connection, number, start, room),
            }
        };
        check(sealed.status);
        if sealed.status == dormouse_status::DORMOUSE_OK {
            self.take(at, output, sealed.output_len);
        }
    }

    /// The calls that only report.
    fn look(&mut self, at: usize) {
        let (handshake, connection) = (self.handshakes[at], &raw mut self.connections[at]);
        let mut output = fenced(64);
        // SAFETY: each buffer has the given length, and the context is null.
        unsafe {
            check(dormouse_describe(connection).status);
            dormouse_eof(connection);
            let copied = dormouse_handshake_certificate(handshake, 0, output.as_mut_ptr(), 64);
            check(copied.status);
            let label = b"label";
            check(dormouse_handshake_export(
                handshake,
                label.as_ptr(),
                label.len(),
                ptr::null(),
                0,
                output.as_mut_ptr(),
                64,
            ));
        }
        assert!(output.ends_with(&FENCE));
        check(dormouse_handshake_hello(handshake).status);
        check(dormouse_handshake_facts(handshake).status);
        check(dormouse_handshake_failure(handshake).result.status);
        dormouse_handshake_awaits_tickets(handshake);
    }

    /// Keeps output for a peer, up to a limit.
    fn take(&mut self, at: usize, mut output: Vec<u8>, len: usize) {
        assert!(output.ends_with(&FENCE) && len <= output.len() - FENCE.len());
        output.truncate(len);
        if self.sent[at].len() < 64 << 10 {
            self.sent[at].append(&mut output);
        }
    }
}

/// An output with a fence behind it.
fn fenced(room: usize) -> Vec<u8> {
    let mut output = vec![0; room];
    output.extend(FENCE);
    output
}

/// A panic behind the boundary is a defect, too.
fn check(status: dormouse_status) {
    assert!(status != dormouse_status::DORMOUSE_PANIC, "a panic");
}
