//! Handshakes, from the first byte to a connection at rest.

use std::ffi::c_char;
use std::sync::Arc;

use dormouse_embed::{
    ClientHello, End, Event, Exporter, FailureKind, HandshakeInfo, HandshakeLimits, Session,
    TicketWatch, UnixTime,
};
use zerocopy::IntoBytes as _;

use crate::boundary::{bytes, bytes_mut, disjoint, dormouse_connection, guard, state};
use crate::client::{CLIENTS, dormouse_client};
use crate::registry::{Registry, free, make};
use crate::server::{SERVERS, dormouse_server};
use crate::status::*;

/// Boxed: in and out of the registry moves a pointer, and leaves no copy of a secret behind.
pub(crate) static HANDSHAKES: Registry<Box<Handshake>> = Registry::new();

/// A handshake in flight. Only one thread may use it at a time. It takes some kilobytes, and the input that it
/// keeps. Free it with dormouse_handshake_free() when its connection is at rest, or after a failure.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dormouse_handshake {
    /// An opaque handle; 0: none.
    pub id: u64,
}

/// A new handshake, or the reason for failure.
#[repr(C)]
pub struct dormouse_made_handshake {
    /// DORMOUSE_OK, or the error.
    pub result: dormouse_result,
    /// Owned by the caller, which must free it.
    pub handshake: dormouse_handshake,
}

/// Progress of a handshake.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum dormouse_progress {
    /// More bytes must be received.
    DORMOUSE_MORE = 0,
    /// After dormouse_listen(): the client's request has arrived. dormouse_handshake_hello() returns it, and
    /// dormouse_handshake_decide() continues.
    DORMOUSE_CLIENT_HELLO = 1,
    /// Done: send the output, then call dormouse_handshake_finish().
    DORMOUSE_ESTABLISHED = 2,
    /// Failed: dormouse_handshake_failure() returns the reason. Send the output, which may contain an alert,
    /// then free the handshake.
    DORMOUSE_NOT_ESTABLISHED = 3,
}
use dormouse_progress::*;

/// Result of dormouse_handshake_step().
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dormouse_step {
    /// If this is not DORMOUSE_OK, nothing was done.
    pub status: dormouse_status,
    /// Progress of the handshake.
    pub progress: dormouse_progress,
    /// Length of the output to send to the peer.
    pub output_len: usize,
    /// Output bytes that did not fit: call again, without input.
    pub output_left: usize,
}

/// A handshake, and what remains of it when its connection is at rest.
pub(crate) struct Handshake {
    session: Session,
    hello: Option<ClientHello>,
    info: Option<Box<HandshakeInfo>>,
    failure: Option<End>,
    /// Receives a client's tickets once the connection is at rest.
    pub(crate) tickets: Option<TicketWatch>,
    finished: bool,
}

impl Handshake {
    fn new(session: Session) -> Handshake {
        Handshake {
            session,
            hello: None,
            info: None,
            failure: None,
            tickets: None,
            finished: false,
        }
    }

    fn progress(&self) -> dormouse_progress {
        match (&self.failure, &self.info, &self.hello) {
            (Some(_), ..) => DORMOUSE_NOT_ESTABLISHED,
            (None, Some(_), _) => DORMOUSE_ESTABLISHED,
            (None, None, Some(_)) => DORMOUSE_CLIENT_HELLO,
            (None, None, None) => DORMOUSE_MORE,
        }
    }

    /// Handles input until the handshake is done. Bytes after the handshake stay sealed.
    fn feed(&mut self, input: &[u8]) -> Result<(), dormouse_status> {
        if self.finished {
            return Err(DORMOUSE_FINISHED);
        }
        if self.info.is_some() || self.failure.is_some() {
            // A caller that sends input now has ignored the progress.
            return input.is_empty().then_some(()).ok_or(DORMOUSE_FINISHED);
        }
        let (hello, info, failure) = (&mut self.hello, &mut self.info, &mut self.failure);
        let mut input = input.to_vec();
        let fed = self
            .session
            .shake_hands(UnixTime::now(), &mut input, |event| match event {
                Event::ClientHello(asked) => *hello = Some(asked),
                Event::Established(found) => *info = Some(found),
                Event::Data(_) => {}
                Event::Ended(end) => *failure = Some(end),
            });
        fed.map_err(|_| DORMOUSE_PANIC)
    }

    pub(crate) fn drop_satisfied_tickets(&mut self) {
        if self.tickets.as_ref().is_some_and(TicketWatch::is_satisfied) {
            self.tickets = None;
        }
    }
}

fn made(session: impl FnOnce() -> Result<Session, Refusal>) -> dormouse_made_handshake {
    let (result, id) = make(&HANDSHAKES, || Ok(Box::new(Handshake::new(session()?))));
    dormouse_made_handshake {
        result,
        handshake: dormouse_handshake { id },
    }
}

/// Starts a handshake with a client that has just connected.
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_accept(server: dormouse_server) -> dormouse_made_handshake {
    made(|| Ok(Session::accept(&SERVERS.get(server.id)?)))
}

/// Starts a handshake with a client whose server depends on its request.
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_listen() -> dormouse_made_handshake {
    made(|| Ok(Session::listen(HandshakeLimits::default())))
}

/// Starts a handshake with the server `server_name`, a host name or an IP address, to which the caller has
/// connected. The first dormouse_handshake_step(), without input, produces the first output.
///
/// # Safety
/// `server_name` points to `server_name_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_connect(
    client: dormouse_client,
    server_name: *const u8,
    server_name_len: usize,
) -> dormouse_made_handshake {
    made(|| {
        // SAFETY: guaranteed by the caller.
        let name = unsafe { bytes(server_name, server_name_len) }?;
        let name = std::str::from_utf8(name).map_err(|_| DORMOUSE_BAD_ARGUMENT)?;
        Session::connect(&CLIENTS.get(client.id)?, name).map_err(Refusal::settings)
    })
}

/// Handles received bytes, split anywhere, and returns the bytes to send. All input is consumed and none is
/// referenced afterwards. The two buffers must not overlap. Once the handshake is done or has failed, input is
/// refused (DORMOUSE_FINISHED), and calls without input return the remaining output.
///
/// # Safety
/// `input` points to `input_len` bytes, `output` to `output_room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_handshake_step(
    handshake: dormouse_handshake,
    input: *const u8,
    input_len: usize,
    output: *mut u8,
    output_room: usize,
) -> dormouse_step {
    let work = |handshake: &mut Handshake| {
        disjoint(&[(input.addr(), input_len), (output.addr(), output_room)])?;
        // SAFETY: guaranteed by the caller; the two do not overlap.
        let (input, output) =
            unsafe { (bytes(input, input_len)?, bytes_mut(output, output_room)?) };
        handshake.feed(input)?;
        let waiting = handshake.session.output();
        let len = waiting.len().min(output.len());
        for (to, from) in output.iter_mut().zip(waiting) {
            *to = *from;
        }
        handshake.session.output_sent(len);
        Ok(dormouse_step {
            status: DORMOUSE_OK,
            progress: handshake.progress(),
            output_len: len,
            output_left: handshake.session.output().len(),
        })
    };
    with(handshake, work).unwrap_or_else(|status| dormouse_step {
        status,
        progress: DORMOUSE_NOT_ESTABLISHED,
        output_len: 0,
        output_left: 0,
    })
}

pub(crate) fn with<R>(
    handshake: dormouse_handshake,
    work: impl FnOnce(&mut Handshake) -> Result<R, dormouse_status>,
) -> Result<R, dormouse_status> {
    guard(|| HANDSHAKES.with(handshake.id, |handshake| work(handshake))).and_then(|done| done?)
}

/// Text of `len` bytes with a terminating zero.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dormouse_text {
    /// Length in bytes; 0: none.
    pub len: usize,
    /// The bytes.
    pub bytes: [u8; 256],
}

impl dormouse_text {
    fn new(text: &[u8]) -> dormouse_text {
        let mut bytes = [0; 256];
        let len = text.len().min(255);
        for (to, from) in bytes.iter_mut().zip(text.iter().take(255)) {
            *to = *from;
        }
        dormouse_text { len, bytes }
    }
}

/// The request of a client.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dormouse_hello {
    /// DORMOUSE_OK; DORMOUSE_HANDSHAKING until it has arrived, and after dormouse_handshake_decide().
    pub status: dormouse_status,
    /// The server name (SNI), in lower case; empty: none.
    pub server_name: dormouse_text,
    /// The offered application protocols (ALPN), each preceded by its length in one byte, as far as there is
    /// room; empty: none.
    pub alpn: dormouse_text,
}

/// Returns the client's request, after DORMOUSE_CLIENT_HELLO.
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_handshake_hello(handshake: dormouse_handshake) -> dormouse_hello {
    let outcome = with(handshake, |handshake| {
        let hello = handshake.hello.as_ref().ok_or(DORMOUSE_HANDSHAKING)?;
        let mut alpn = Vec::new();
        for protocol in &hello.alpn {
            if alpn.len() + 1 + protocol.len() > 255 {
                break;
            }
            alpn.push(protocol.len() as u8);
            alpn.extend_from_slice(protocol);
        }
        let name = hello.server_name.as_deref().unwrap_or_default();
        Ok(dormouse_hello {
            status: DORMOUSE_OK,
            server_name: dormouse_text::new(name.as_bytes()),
            alpn: dormouse_text::new(&alpn),
        })
    });
    outcome.unwrap_or_else(|status| dormouse_hello {
        status,
        server_name: dormouse_text::new(&[]),
        alpn: dormouse_text::new(&[]),
    })
}

/// Continues with this server, after DORMOUSE_CLIENT_HELLO, now or later. Then call dormouse_handshake_step(),
/// without input if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_handshake_decide(
    handshake: dormouse_handshake,
    server: dormouse_server,
) -> dormouse_status {
    let decided = with(handshake, |handshake| {
        let server = SERVERS.get(server.id)?;
        let decided = handshake.session.decide(&server);
        handshake.hello = None;
        decided.map_err(|_| DORMOUSE_BAD_ARGUMENT)
    });
    decided.err().unwrap_or(DORMOUSE_OK)
}

/// Why a handshake failed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dormouse_failure {
    /// DORMOUSE_HANDSHAKE_FAILED and the reason in words; another status if it has not failed.
    pub result: dormouse_result,
    /// Number of the alert that was sent or received; 0: none known.
    pub alert: u8,
    /// 1 if the peer sent the alert.
    pub is_received: u8,
}

/// Returns why a handshake failed.
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_handshake_failure(handshake: dormouse_handshake) -> dormouse_failure {
    let outcome = with(handshake, |handshake| {
        let end = handshake.failure.as_ref().ok_or(DORMOUSE_OK)?;
        Ok(dormouse_failure {
            result: dormouse_result::new(DORMOUSE_HANDSHAKE_FAILED, &end.to_string()),
            alert: end.alert().unwrap_or_default(),
            is_received: u8::from(is_received(end)),
        })
    });
    outcome.unwrap_or_else(|status| dormouse_failure {
        result: status.into(),
        alert: 0,
        is_received: 0,
    })
}

fn is_received(end: &End) -> bool {
    matches!(end, End::Handshake(failure) if matches!(failure.kind, FailureKind::PeerAlert(_)))
}

/// Results of a handshake.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct dormouse_facts {
    /// DORMOUSE_OK, or DORMOUSE_HANDSHAKING until it is done.
    pub status: dormouse_status,
    /// 0x0303 for TLS 1.2, 0x0304 for TLS 1.3.
    pub version: u16,
    /// 1 if an earlier session was resumed.
    pub is_resumed: u8,
    /// 1 if the peer's certificate was verified; servers request client certificates only if the settings say
    /// so.
    pub is_verified: u8,
    /// Number of certificates in the peer's chain: see dormouse_handshake_certificate().
    pub certificates: usize,
    /// The cipher suite's IANA name.
    pub suite: dormouse_text,
    /// The key exchange group's IANA name; empty in a resumed TLS 1.2 handshake.
    pub group: dormouse_text,
    /// The application protocol (ALPN); empty: none.
    pub alpn: dormouse_text,
    /// The server name: sent by the client, or requested by us.
    pub server_name: dormouse_text,
}

/// Returns the results of a handshake, until it is freed.
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_handshake_facts(handshake: dormouse_handshake) -> dormouse_facts {
    let nothing = || dormouse_text::new(&[]);
    let outcome = with(handshake, |handshake| {
        let info = handshake.info.as_ref().ok_or(DORMOUSE_HANDSHAKING)?;
        let text = |text: Option<&[u8]>| dormouse_text::new(text.unwrap_or_default());
        Ok(dormouse_facts {
            status: DORMOUSE_OK,
            version: info.protocol.number(),
            is_resumed: u8::from(info.resumed),
            is_verified: u8::from(info.verified),
            certificates: info.peer_certificates.len(),
            suite: text(Some(info.suite.as_bytes())),
            group: text(info.group.map(str::as_bytes)),
            alpn: text(info.alpn.as_deref()),
            server_name: text(info.sni.as_deref().map(str::as_bytes)),
        })
    });
    outcome.unwrap_or_else(|status| dormouse_facts {
        status,
        version: 0,
        is_resumed: 0,
        is_verified: 0,
        certificates: 0,
        suite: nothing(),
        group: nothing(),
        alpn: nothing(),
        server_name: nothing(),
    })
}

/// Result of copying to the caller.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dormouse_copied {
    /// DORMOUSE_OK, or why nothing was copied.
    pub status: dormouse_status,
    /// With DORMOUSE_OK: number of bytes written. With DORMOUSE_TOO_SMALL: the required room.
    pub len: usize,
}

fn copied(bytes: &[u8], output: &mut [u8]) -> dormouse_copied {
    match output.get_mut(..bytes.len()) {
        Some(room) => {
            room.copy_from_slice(bytes);
            dormouse_copied {
                status: DORMOUSE_OK,
                len: bytes.len(),
            }
        }
        None => dormouse_copied {
            status: DORMOUSE_TOO_SMALL,
            len: bytes.len(),
        },
    }
}

/// Copies a certificate of the peer's chain, DER; number 0 is its own. DORMOUSE_NONE: no such certificate.
///
/// # Safety
/// `output` points to `output_room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_handshake_certificate(
    handshake: dormouse_handshake,
    number: usize,
    output: *mut u8,
    output_room: usize,
) -> dormouse_copied {
    let done = with(handshake, |handshake| {
        let info = handshake.info.as_ref().ok_or(DORMOUSE_HANDSHAKING)?;
        let certificate = info.peer_certificates.get(number).ok_or(DORMOUSE_NONE)?;
        // SAFETY: guaranteed by the caller.
        Ok(copied(certificate, unsafe {
            bytes_mut(output, output_room)
        }?))
    });
    done.unwrap_or_else(|status| dormouse_copied { status, len: 0 })
}

/// Exports keying material (RFC 8446 section 7.5, RFC 5705): fills all of `output`, 1 to 8,160 bytes.
/// DORMOUSE_NONE: the settings do not enable it. A null `context` means no context, which TLS 1.2 distinguishes
/// from an empty one.
///
/// # Safety
/// Each pointer points to the number of bytes given by its length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_handshake_export(
    handshake: dormouse_handshake,
    label: *const u8,
    label_len: usize,
    context: *const u8,
    context_len: usize,
    output: *mut u8,
    output_len: usize,
) -> dormouse_status {
    let done = with(handshake, |handshake| {
        disjoint(&[(label.addr(), label_len), (output.addr(), output_len)])?;
        disjoint(&[(context.addr(), context_len), (output.addr(), output_len)])?;
        let info = handshake.info.as_ref().ok_or(DORMOUSE_HANDSHAKING)?;
        let exporter: &Arc<Exporter> = info.exporter.as_ref().ok_or(DORMOUSE_NONE)?;
        // SAFETY: guaranteed by the caller; nothing overlaps the output.
        let (label, bytes, output) = unsafe {
            (
                bytes(label, label_len)?,
                bytes(context, context_len)?,
                bytes_mut(output, output_len)?,
            )
        };
        let context = (!context.is_null()).then_some(bytes);
        let exported = exporter.export(label, context, output);
        exported.map_err(|_| DORMOUSE_BAD_ARGUMENT)
    });
    done.err().unwrap_or(DORMOUSE_OK)
}

/// Result of dormouse_handshake_finish().
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dormouse_finished {
    /// If this is not DORMOUSE_OK, nothing was done, and the handshake is unchanged.
    pub status: dormouse_status,
    /// With DORMOUSE_OK: number of bytes in `leftover`. With DORMOUSE_TOO_SMALL: the required room.
    pub leftover_len: usize,
}

/// Ends a completed handshake and writes its connection into `connection`, where it is at rest. Bytes received
/// after the handshake, still sealed, are copied to `leftover`: pass them to dormouse_receive() first. The
/// size of the last input is enough room for them.
///
/// All output must have been taken (DORMOUSE_OUTPUT_WAITING). Afterwards the handshake still returns its
/// results and receives tickets; free it when you need neither.
///
/// # Safety
/// `connection` points to 128 bytes, aligned to 8, and `leftover` to `leftover_room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_handshake_finish(
    handshake: dormouse_handshake,
    connection: *mut dormouse_connection,
    leftover: *mut u8,
    leftover_room: usize,
) -> dormouse_finished {
    let done = with(handshake, |handshake| {
        if handshake.finished {
            return Err(DORMOUSE_FINISHED);
        }
        match handshake.progress() {
            DORMOUSE_ESTABLISHED => {}
            DORMOUSE_NOT_ESTABLISHED => return Err(DORMOUSE_HANDSHAKE_FAILED),
            DORMOUSE_MORE | DORMOUSE_CLIENT_HELLO => return Err(DORMOUSE_HANDSHAKING),
        }
        if !handshake.session.output().is_empty() {
            return Err(DORMOUSE_OUTPUT_WAITING);
        }
        disjoint(&[
            (connection.addr(), size_of::<dormouse_connection>()),
            (leftover.addr(), leftover_room),
        ])?;
        // SAFETY: guaranteed by the caller; the two do not overlap.
        let (room, leftover) = unsafe { (state(connection)?, bytes_mut(leftover, leftover_room)?) };
        let behind = handshake.session.unopened();
        let copied = copied(behind, leftover);
        if copied.status != DORMOUSE_OK {
            return Ok(dormouse_finished {
                status: copied.status,
                leftover_len: copied.len,
            });
        }
        let tickets = handshake.session.take_tickets();
        handshake.session.take_unopened();
        let exported = handshake.session.export();
        let exported = exported.map_err(|_| DORMOUSE_PANIC)?;
        room.as_mut_bytes().copy_from_slice(&exported);
        (handshake.tickets, handshake.finished) = (tickets, true);
        Ok(dormouse_finished {
            status: DORMOUSE_OK,
            leftover_len: copied.len,
        })
    });
    done.unwrap_or_else(|status| dormouse_finished {
        status,
        leftover_len: 0,
    })
}

/// Frees a handshake. A second call returns DORMOUSE_NO_SUCH_HANDLE and has no effect; a call from one of its
/// own callbacks returns DORMOUSE_BUSY. The connection that it produced continues.
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_handshake_free(handshake: dormouse_handshake) -> dormouse_status {
    free(&HANDSHAKES, handshake.id)
}

/// Returns the library's version, such as "0.1.0": a constant string.
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
