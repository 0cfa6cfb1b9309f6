//! Connections at rest.

use dormouse_embed::{AlertDescription, End, Role, SealError, State, UnixTime, at_rest};

use crate::boundary::{
    bytes, bytes_mut, disjoint, dormouse_connection, guard, look_at_connection, state,
    with_connection,
};
use crate::key_table;
use crate::status::*;

/// Output room for dormouse_receive().
pub const DORMOUSE_ANSWER_MAX: usize = 128;
/// Output room for dormouse_close(), dormouse_abort() and dormouse_update_keys().
pub const DORMOUSE_SMALL_MAX: usize = 64;

const _: () = {
    assert!(DORMOUSE_ANSWER_MAX >= at_rest::ANSWER_MAX);
    assert!(DORMOUSE_SMALL_MAX >= at_rest::SMALL_OUTPUT_MAX);
};

/// How the peer's direction ended.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum dormouse_end {
    /// It has not ended.
    DORMOUSE_END_NONE = 0,
    /// The peer sent close_notify: everything has arrived. Our direction is still open.
    DORMOUSE_END_CLOSED = 1,
    /// The transport ended without close_notify: bytes may be missing, by accident or through an attack.
    DORMOUSE_END_TRUNCATED = 2,
    /// The peer sent a fatal alert: both directions are closed.
    DORMOUSE_END_ALERT = 3,
    /// The peer violated the protocol, or its bytes were changed in transit. Send the output, which contains
    /// the alert.
    DORMOUSE_END_REFUSED = 4,
}
use dormouse_end::*;

/// Result of dormouse_receive().
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dormouse_received {
    /// If this is not DORMOUSE_OK, nothing has changed and all other fields are zero.
    pub status: dormouse_status,
    /// How the peer's direction ended. Plaintext before the end is included.
    pub end: dormouse_end,
    /// Number of the alert that the peer sent (DORMOUSE_END_ALERT) or gets (DORMOUSE_END_REFUSED).
    pub alert: u8,
    /// Consumed bytes of the buffer. The rest is the start of a record: keep it and append the next received
    /// bytes.
    pub consumed: usize,
    /// Length of the plaintext at the start of the buffer.
    pub plaintext_len: usize,
    /// Length of the output to send to the peer.
    pub output_len: usize,
    /// Total length of the record after `consumed`, as far as it is known (at most 18,437); 0 if nothing is
    /// left.
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

/// Opens all complete records in `buffer`, in place, and moves their plaintext to its start.
///
/// `output` receives a reply to the peer, if there is one (a KeyUpdate, an alert), and must have room for
/// DORMOUSE_ANSWER_MAX bytes. Session tickets are ignored: see dormouse_receive_tickets(). Pass all received
/// bytes at once: each call derives a key, which takes a microsecond or more (see dormouse_receive_kept()).
///
/// No memory is kept. The buffers must not overlap.
///
/// # Safety
/// `connection` points to a connection that no other thread uses, `buffer` to `buffer_len` bytes and `output`
/// to `output_room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_receive(
    connection: *mut dormouse_connection,
    buffer: *mut u8,
    buffer_len: usize,
    output: *mut u8,
    output_room: usize,
) -> dormouse_received {
    // SAFETY: guaranteed by the caller.
    unsafe {
        receive(
            connection,
            (buffer, buffer_len),
            (output, output_room),
            |state, buffer, output| at_rest::receive(state, UnixTime::now(), buffer, output, None),
        )
    }
}

/// Receives by `open`, which gets the connection, the buffer and the output.
///
/// # Safety
/// See [`dormouse_receive`].
pub(crate) unsafe fn receive(
    connection: *mut dormouse_connection,
    (buffer, buffer_len): (*mut u8, usize),
    (output, output_room): (*mut u8, usize),
    open: impl FnOnce(&mut State, &mut [u8], &mut [u8]) -> Result<at_rest::Received, SealError>,
) -> dormouse_received {
    let apart = disjoint(&[
        (connection.addr(), size_of::<dormouse_connection>()),
        (buffer.addr(), buffer_len),
        (output.addr(), output_room),
    ]);
    if let Err(status) = apart {
        return dormouse_received::none(status);
    }
    // SAFETY: guaranteed by the caller; the three do not overlap.
    let received = unsafe {
        with_connection(connection, |state| {
            let buffer = bytes_mut(buffer, buffer_len)?;
            let output = bytes_mut(output, output_room)?;
            Ok(open(state, buffer, output)?)
        })
    };
    received.map_or_else(dormouse_received::none, dormouse_received::from)
}

/// Returns how a connection ended after its transport has ended: DORMOUSE_END_CLOSED if close_notify arrived
/// before that, DORMOUSE_END_TRUNCATED if it did not, or if `connection` holds no connection.
///
/// # Safety
/// `connection` is null or points to a connection that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_eof(connection: *mut dormouse_connection) -> dormouse_end {
    // SAFETY: guaranteed by the caller.
    match unsafe { with_connection(connection, |state| Ok(state.peer_closed())) } {
        Ok(true) => DORMOUSE_END_CLOSED,
        Ok(false) | Err(_) => DORMOUSE_END_TRUNCATED,
    }
}

/// Result of sealing.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dormouse_sealed {
    /// If this is not DORMOUSE_OK, send none of the output.
    pub status: dormouse_status,
    /// With DORMOUSE_OK: length of the output, all of which must be sent to the peer in order. With
    /// DORMOUSE_TOO_SMALL: the required room.
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

/// Returns the output room that dormouse_seal() currently needs for `plaintext_len` bytes; 0 if `connection`
/// holds no connection. plaintext_len + 64, plus 29 bytes for each started 16,384 bytes, is always enough.
///
/// # Safety
/// `connection` is null or points to a connection that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_sealed_len(
    connection: *mut dormouse_connection,
    plaintext_len: usize,
) -> usize {
    // SAFETY: guaranteed by the caller.
    let len = unsafe {
        with_connection(connection, |state| {
            Ok(at_rest::sealed_len(state, plaintext_len))
        })
    };
    len.unwrap_or(0)
}

/// Seals all of `plaintext` into `output`, or nothing if there is too little room (dormouse_sealed_len()). A
/// due KeyUpdate is sealed before it. Empty plaintext makes no record.
///
/// The buffers must not overlap.
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
    // SAFETY: guaranteed by the caller.
    unsafe {
        seal(
            connection,
            (plaintext, plaintext_len),
            (output, output_room),
            at_rest::seal,
        )
    }
}

/// Seals by `seal`, which gets the connection, the plaintext and the output.
///
/// # Safety
/// See [`dormouse_seal`].
pub(crate) unsafe fn seal(
    connection: *mut dormouse_connection,
    (plaintext, plaintext_len): (*const u8, usize),
    (output, output_room): (*mut u8, usize),
    seal: impl FnOnce(&mut State, &[u8], &mut [u8]) -> Result<usize, SealError>,
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
    // SAFETY: guaranteed by the caller; the three do not overlap.
    let sealed = unsafe {
        with_connection(connection, |state| {
            let plaintext = bytes(plaintext, plaintext_len)?;
            let output = bytes_mut(output, output_room)?;
            need = at_rest::sealed_len(state, plaintext.len());
            Ok(seal(state, plaintext, output)?)
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

/// Ends our direction: seals close_notify, which needs at most DORMOUSE_SMALL_MAX bytes of room. The peer's
/// direction stays open.
///
/// # Safety
/// `connection` points to a connection that no other thread uses, `output` to `output_room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_close(
    connection: *mut dormouse_connection,
    output: *mut u8,
    output_room: usize,
) -> dormouse_sealed {
    // SAFETY: guaranteed by the caller.
    unsafe { seal_small(connection, output, output_room, at_rest::close) }
}

/// Aborts the connection in both directions: seals a fatal alert with this number (RFC 8446 section 6.2), which
/// needs at most DORMOUSE_SMALL_MAX bytes of room. The numbers 0 (close_notify), 90 (user_canceled)
/// and 100 (no_renegotiation) are no errors: DORMOUSE_BAD_ARGUMENT.
///
/// # Safety
/// See dormouse_close().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_abort(
    connection: *mut dormouse_connection,
    alert: u8,
    output: *mut u8,
    output_room: usize,
) -> dormouse_sealed {
    // After others, the peer would see a proper end, or none.
    let Some(why) = AlertDescription::error_from_code(alert) else {
        return dormouse_sealed::from(Err(DORMOUSE_BAD_ARGUMENT));
    };
    let abort = |state: &mut _, output: &mut _| at_rest::abort(state, why, output);
    // SAFETY: guaranteed by the caller.
    unsafe { seal_small(connection, output, output_room, abort) }
}

/// Replaces the key of our direction and seals the KeyUpdate for it, which needs at most DORMOUSE_SMALL_MAX
/// bytes of room (TLS 1.3). Keys near their limit are replaced automatically.
///
/// # Safety
/// See dormouse_close().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_update_keys(
    connection: *mut dormouse_connection,
    output: *mut u8,
    output_room: usize,
) -> dormouse_sealed {
    // SAFETY: guaranteed by the caller.
    unsafe { seal_small(connection, output, output_room, at_rest::update_keys) }
}

/// # Safety
/// See [`dormouse_close`].
unsafe fn seal_small(
    connection: *mut dormouse_connection,
    output: *mut u8,
    output_room: usize,
    seal: impl FnOnce(&mut State, &mut [u8]) -> Result<usize, SealError>,
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
    // SAFETY: guaranteed by the caller; the two do not overlap.
    dormouse_sealed::from(apart.and_then(|()| unsafe {
        with_connection(connection, |state| {
            Ok(seal(state, bytes_mut(output, output_room)?)?)
        })
    }))
}

/// Properties of a connection.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dormouse_description {
    /// DORMOUSE_OK, or why this is not a usable connection.
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

/// Validates the 128 bytes of a connection (as every function does) and describes it.
///
/// # Safety
/// `connection` is null or points to 128 bytes that no other thread writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_describe(
    connection: *const dormouse_connection,
) -> dormouse_description {
    // SAFETY: guaranteed by the caller.
    let described = unsafe {
        look_at_connection(connection, |state| dormouse_description {
            status: DORMOUSE_OK,
            version: state.version().number(),
            is_client: u8::from(state.role() == Role::Client),
            is_closed: u8::from(state.closed()),
            is_peer_closed: u8::from(state.peer_closed()),
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

/// Wipes a connection: its secrets are erased, and every function refuses it. The memory may contain anything.
///
/// # Safety
/// `connection` is null or points to 128 bytes that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_connection_wipe(connection: *mut dormouse_connection) {
    // SAFETY: guaranteed by the caller.
    if let Ok(state) = unsafe { state(connection) } {
        let _ = guard(|| state.wipe());
        key_table::forget(connection.addr());
    }
}
