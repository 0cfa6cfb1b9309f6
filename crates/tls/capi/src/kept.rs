//! Calls that keep expanded keys, for programs that want it.

use dormouse_embed::UnixTime;

use crate::boundary::{dormouse_connection, guard};
use crate::connection::{dormouse_received, dormouse_sealed, receive, seal};
use crate::key_table::{forget, keys, number};

/// Does the same as dormouse_receive(), and keeps the expanded key for the connection's next call. For small records
/// this halves the time of a call, or better.
///
/// The library keeps the keys of the connections that were used last, 64 for each core and 1.4 MB in all at
/// most; a quiet connection loses its place to others. They belong to the connection's address: end a connection with
/// dormouse_connection_wipe() there, which wipes them too, and call dormouse_forget_keys() before you move it or leave
/// it to another process. After fork(), the child must not use connections if the parent had other threads.
///
/// # Safety
/// See dormouse_receive().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_receive_kept(
    connection: *mut dormouse_connection,
    buffer: *mut u8,
    buffer_len: usize,
    output: *mut u8,
    output_room: usize,
) -> dormouse_received {
    let number = number(connection.addr());
    // SAFETY: guaranteed by the caller.
    unsafe {
        receive(
            connection,
            (buffer, buffer_len),
            (output, output_room),
            |state, buffer, output| keys().receive(number, state, UnixTime::now(), buffer, output),
        )
    }
}

/// Does the same as dormouse_seal(), and keeps the expanded key: see dormouse_receive_kept().
///
/// # Safety
/// See dormouse_seal().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dormouse_seal_kept(
    connection: *mut dormouse_connection,
    plaintext: *const u8,
    plaintext_len: usize,
    output: *mut u8,
    output_room: usize,
) -> dormouse_sealed {
    let number = number(connection.addr());
    // SAFETY: guaranteed by the caller.
    unsafe {
        seal(
            connection,
            (plaintext, plaintext_len),
            (output, output_room),
            |state, plaintext, output| keys().seal(number, state, plaintext, output),
        )
    }
}

/// Wipes the kept keys of the connection at this address, but not the connection: see dormouse_receive_kept().
/// `connection` is not read.
#[unsafe(no_mangle)]
pub extern "C" fn dormouse_forget_keys(connection: *const dormouse_connection) {
    let _ = guard(|| forget(connection.addr()));
}
