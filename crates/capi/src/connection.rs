//! A connection at rest.

use dormouse_embed::{AlertDescription, End, Role, TicketWatch, UnixTime, Version, at_rest};
use zerocopy::IntoBytes as _;

use crate::boundary::{
    bytes, bytes_mut, disjoint, dormouse_connection, guard, state, with_connection,
};
use crate::status::*;

/// Room that dormouse_receive() needs for its output.
pub const DORMOUSE_ANSWER_MAX: usize = 128;
/// Room that dormouse_close(), dormouse_abort() and dormouse_update_keys() need.
pub const DORMOUSE_SMALL_MAX: usize = 64;

const _: () = {
    assert!(DORMOUSE_ANSWER_MAX >= at_rest::ANSWER_MAX);
    assert!(DORMOUSE_SMALL_MAX >= at_rest::SMALL_OUTPUT_MAX);
};

/// How the peer's direction has ended.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum dormouse_end {
    /// It has not.
    DORMOUSE_END_NONE = 0,
    /// The peer sent close_notify: all that it sent has arrived. Our direction is still open.
    DORMOUSE_END_CLOSED = 1,
    /// The transport ended without close_notify: bytes may be missing, by accident or by an attack.
    DORMOUSE_END_TRUNCATED = 2,
    /// The peer sent a fatal alert: nothing goes either way.
    DORMOUSE_END_ALERT = 3,
    /// The peer broke the protocol, or somebody changed its bytes. Send the output: it is the alert that
    /// says so.
    DORMOUSE_END_REFUSED = 4,
}
use dormouse_end::*;

/// What dormouse_receive() made of a buffer.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dormouse_received {
    /// Anything but DORMOUSE_OK: nothing was touched, and all else is zero.
    pub status: dormouse_status,
    /// How the peer's direction has ended. Plaintext that came before the end is there too.
    pub end: dormouse_end,
    /// The number of the alert that the peer sent (DORMOUSE_END_ALERT) or that it is sent
    /// (DORMOUSE_END_REFUSED).
    pub alert: u8,
    /// Bytes of the buffer that are used up. What follows is the beginning of a record: keep it, and put
    /// what is received next behind it.
    pub consumed: usize,
    /// Length of the plaintext, which lies at the start of the buffer.
    pub plaintext_len: usize,
    /// Length of the output, which is to be sent to the peer.
    pub output_len: usize,
    /// Bytes of the record that begins behind `consumed`, as far as is known (18,437 at most); 0 if
    /// nothing is left over.
    pub need: usize,
}

impl dormouse_received {
    pub(crate) fn none(status: dormouse_status) -> dormouse_received {
        dormouse_received {
            status,
            end: DORMOUSE_END_NONE,
            alert: 0,
            consumed: 0,
            plaintext_len: 0,
            output_len: 0,
            need: 0,
        }
    }
}

impl From<at_rest::Received> for dormouse_received {
    fn from(received: at_rest::Received) -> Self {
        let (end, alert) = match &received.end {
            None => (DORMOUSE_END_NONE, 0),
            Some(End::Closed) => (DORMOUSE_END_CLOSED, 0),
            Some(End::Truncated) => (DORMOUSE_END_TRUNCATED, 0),
            Some(End::Alert(alert)) => (DORMOUSE_END_ALERT, *alert),
            Some(End::Refused(refusal)) => (DORMOUSE_END_REFUSED, refusal.alert.code()),
            Some(End::Handshake(failure)) => {
                (DORMOUSE_END_REFUSED, failure.alert().unwrap_or_default())
            }
        };
        dormouse_received {
            status: DORMOUSE_OK,
            end,
            alert,
            consumed: received.consumed,
            plaintext_len: received.plaintext_len,
            output_len: received.output_len,
            need: received.need,
        }
    }
}

/// Opens all whole records in `buffer`, in place, and moves their plaintext to its start.
///
/// `output` takes the answer to the peer, if there is one (a KeyUpdate, an alert), and has room for
/// DORMOUSE_ANSWER_MAX bytes. Session tickets are ignored: see dormouse_receive_tickets(). Give it all
/// that was received: each call derives a key, which takes about a microsecond.
///
/// No memory is kept, and none of the buffers may overlap.
///
/// # Safety
/// `connection` points to a connection that no other thread uses, `buffer` to `buffer_len` bytes and
/// `output` to `output_room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_receive(
    connection: *mut dormouse_connection,
    buffer: *mut u8,
    buffer_len: usize,
    output: *mut u8,
    output_room: usize,
) -> dormouse_received {
    // SAFETY: as the caller promises.
    unsafe { receive(connection, buffer, buffer_len, output, output_room, None) }
}

/// Receives, with what takes tickets.
///
/// # Safety
/// As [`dormouse_receive`].
pub(crate) unsafe fn receive(
    connection: *mut dormouse_connection,
    buffer: *mut u8,
    buffer_len: usize,
    output: *mut u8,
    output_room: usize,
    tickets: Option<&mut TicketWatch>,
) -> dormouse_received {
    let apart = disjoint(&[
        (connection.addr(), size_of::<dormouse_connection>()),
        (buffer.addr(), buffer_len),
        (output.addr(), output_room),
    ]);
    if let Err(status) = apart {
        return dormouse_received::none(status);
    }
    // SAFETY: as the caller promises; the three do not overlap.
    let received = unsafe {
        with_connection(connection, |state| {
            let buffer = bytes_mut(buffer, buffer_len)?;
            let output = bytes_mut(output, output_room)?;
            Ok(at_rest::receive(
                state,
                UnixTime::now(),
                buffer,
                output,
                tickets,
            )?)
        })
    };
    received.map_or_else(dormouse_received::none, dormouse_received::from)
}

/// Returns how a connection has ended whose transport has: DORMOUSE_END_CLOSED if close_notify came before
/// that, DORMOUSE_END_TRUNCATED if it did not or `connection` is no connection.
///
/// # Safety
/// `connection` is null or points to a connection that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_eof(connection: *mut dormouse_connection) -> dormouse_end {
    // SAFETY: as the caller promises.
    match unsafe { with_connection(connection, |state| Ok(state.peer_closed())) } {
        Ok(true) => DORMOUSE_END_CLOSED,
        Ok(false) | Err(_) => DORMOUSE_END_TRUNCATED,
    }
}

/// What was sealed.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dormouse_sealed {
    /// Anything but DORMOUSE_OK: send nothing of the output.
    pub status: dormouse_status,
    /// DORMOUSE_OK: length of the output, which is to be sent to the peer, all of it and in order.
    /// DORMOUSE_TOO_SMALL: the room that is needed.
    pub output_len: usize,
}

impl dormouse_sealed {
    fn from(sealed: Result<usize, dormouse_status>) -> dormouse_sealed {
        let (status, output_len) = match sealed {
            Ok(len) => (DORMOUSE_OK, len),
            Err(status) => (status, 0),
        };
        dormouse_sealed { status, output_len }
    }
}

/// Returns the room that dormouse_seal() needs for so much plaintext at this moment; 0 if `connection` is
/// no connection. plaintext_len + 64 + 29 bytes for each 16,384 of it is always enough.
///
/// # Safety
/// `connection` is null or points to a connection that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_sealed_len(
    connection: *mut dormouse_connection,
    plaintext_len: usize,
) -> usize {
    // SAFETY: as the caller promises.
    let len = unsafe {
        with_connection(connection, |state| {
            Ok(at_rest::sealed_len(state, plaintext_len))
        })
    };
    len.unwrap_or(0)
}

/// Seals all of `plaintext` into `output`, or nothing if there is too little room
/// (dormouse_sealed_len()). A KeyUpdate that is due goes before it. Of no plaintext comes no record.
///
/// None of the buffers may overlap.
///
/// # Safety
/// `connection` points to a connection that no other thread uses, `plaintext` to `plaintext_len` bytes
/// and `output` to `output_room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_seal(
    connection: *mut dormouse_connection,
    plaintext: *const u8,
    plaintext_len: usize,
    output: *mut u8,
    output_room: usize,
) -> dormouse_sealed {
    let apart = disjoint(&[
        (connection.addr(), size_of::<dormouse_connection>()),
        (plaintext.addr(), plaintext_len),
        (output.addr(), output_room),
    ]);
    if let Err(status) = apart {
        return dormouse_sealed::from(Err(status));
    }
    let mut need = 0;
    // SAFETY: as the caller promises; the three do not overlap.
    let sealed = unsafe {
        with_connection(connection, |state| {
            let plaintext = bytes(plaintext, plaintext_len)?;
            let output = bytes_mut(output, output_room)?;
            need = at_rest::sealed_len(state, plaintext.len());
            Ok(at_rest::seal(state, plaintext, output)?)
        })
    };
    match sealed {
        Err(DORMOUSE_TOO_SMALL) => dormouse_sealed {
            status: DORMOUSE_TOO_SMALL,
            output_len: need,
        },
        sealed => dormouse_sealed::from(sealed),
    }
}

/// Ends our direction: seals close_notify, which takes DORMOUSE_SMALL_MAX bytes of room at most. The
/// peer's direction stays open.
///
/// # Safety
/// `connection` points to a connection that no other thread uses, `output` to `output_room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_close(
    connection: *mut dormouse_connection,
    output: *mut u8,
    output_room: usize,
) -> dormouse_sealed {
    // SAFETY: as the caller promises.
    unsafe { seal_small(connection, output, output_room, at_rest::close) }
}

/// Gives the connection up in both directions: seals a fatal alert with this number (RFC 8446 section 6),
/// which takes DORMOUSE_SMALL_MAX bytes of room at most.
///
/// # Safety
/// As dormouse_close().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_abort(
    connection: *mut dormouse_connection,
    alert: u8,
    output: *mut u8,
    output_room: usize,
) -> dormouse_sealed {
    let Some(why) = AlertDescription::from_code(alert) else {
        return dormouse_sealed::from(Err(DORMOUSE_BAD_ARGUMENT));
    };
    let abort = |state: &mut _, output: &mut _| at_rest::abort(state, why, output);
    // SAFETY: as the caller promises.
    unsafe { seal_small(connection, output, output_room, abort) }
}

/// Replaces the key of our direction and seals the KeyUpdate that says so, which takes
/// DORMOUSE_SMALL_MAX bytes of room at most (TLS 1.3). Keys near their limit are replaced without this.
///
/// # Safety
/// As dormouse_close().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_update_keys(
    connection: *mut dormouse_connection,
    output: *mut u8,
    output_room: usize,
) -> dormouse_sealed {
    // SAFETY: as the caller promises.
    unsafe { seal_small(connection, output, output_room, at_rest::update_keys) }
}

/// # Safety
/// As [`dormouse_close`].
unsafe fn seal_small(
    connection: *mut dormouse_connection,
    output: *mut u8,
    output_room: usize,
    seal: impl FnOnce(&mut dormouse_embed::State, &mut [u8]) -> Result<usize, dormouse_embed::SealError>,
) -> dormouse_sealed {
    if output_room < DORMOUSE_SMALL_MAX {
        return dormouse_sealed {
            status: DORMOUSE_TOO_SMALL,
            output_len: DORMOUSE_SMALL_MAX,
        };
    }
    let apart = disjoint(&[
        (connection.addr(), size_of::<dormouse_connection>()),
        (output.addr(), output_room),
    ]);
    // SAFETY: as the caller promises; the two do not overlap.
    dormouse_sealed::from(apart.and_then(|()| unsafe {
        with_connection(connection, |state| {
            Ok(seal(state, bytes_mut(output, output_room)?)?)
        })
    }))
}

/// What a connection says of itself.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dormouse_description {
    /// DORMOUSE_OK, or why it is no connection that can go on.
    pub status: dormouse_status,
    /// 0x0303 for TLS 1.2, 0x0304 for TLS 1.3.
    pub version: u16,
    /// 1 if we are the client.
    pub is_client: u8,
    /// 1 if nothing more can be sent.
    pub is_closed: u8,
    /// 1 if the peer has sent close_notify.
    pub is_peer_closed: u8,
}

/// Checks the 128 bytes of a connection (as every function does), and describes it.
///
/// # Safety
/// `connection` is null or points to 128 bytes that no other thread writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_describe(
    connection: *mut dormouse_connection,
) -> dormouse_description {
    // SAFETY: as the caller promises.
    let described = unsafe {
        with_connection(connection, |state| {
            Ok(dormouse_description {
                status: DORMOUSE_OK,
                version: match state.protocol() {
                    dormouse_embed::Protocol::Tls12 => 0x0303,
                    dormouse_embed::Protocol::Tls13 => 0x0304,
                },
                is_client: u8::from(state.role() == Role::Client),
                is_closed: u8::from(state.closed()),
                is_peer_closed: u8::from(state.peer_closed()),
            })
        })
    };
    described.unwrap_or_else(|status| dormouse_description {
        status,
        version: 0,
        is_client: 0,
        is_closed: 0,
        is_peer_closed: 0,
    })
}

/// Wipes a connection: its secrets are gone, and every function refuses it. Whatever is in the memory,
/// this is right.
///
/// # Safety
/// `connection` is null or points to 128 bytes that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_connection_wipe(connection: *mut dormouse_connection) {
    // SAFETY: as the caller promises.
    if let Ok(state) = unsafe { state(connection) } {
        let _ = guard(|| state.wipe());
    }
}

/// Puts a connection that just became one into the caller's memory.
///
/// # Safety
/// As [`dormouse_connection_wipe`].
pub(crate) unsafe fn place(
    connection: *mut dormouse_connection,
    bytes: &[u8],
) -> Result<(), dormouse_status> {
    // SAFETY: as the caller promises.
    let state = unsafe { state(connection) }?;
    let room = state.as_mut_bytes();
    (room.len() == bytes.len())
        .then(|| room.copy_from_slice(bytes))
        .ok_or(DORMOUSE_BAD_ARGUMENT)
}

/// The number of a version on the wire.
pub(crate) fn version_number(version: Version) -> u16 {
    match version {
        Version::Tls12 => 0x0303,
        Version::Tls13 => 0x0304,
    }
}
