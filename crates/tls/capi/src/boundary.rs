//! The boundary to C: borrowed memory, and panics that must not cross.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;

use dormouse_embed::State;

use crate::key_table;
use crate::status::*;

// A panic must reach the boundary. Tests and the dev profile unwind; release aborts.
#[cfg(not(panic = "unwind"))]
compile_error!("libdormouse must not abort its host: build it with `--profile embed`");

/// A connection at rest: 128 bytes owned by the caller. They contain no pointers. They may lie in shared
/// memory, be stored, or be passed to another process together with the descriptor. Never use two copies of
/// them: both would use the same key with the same sequence numbers.
///
/// All zero means empty. The bytes are secret: call dormouse_connection_wipe() when the connection ends.
#[repr(C)]
#[allow(missing_docs)] // opaque bytes
pub struct dormouse_connection {
    pub opaque: [u64; 16],
}

const _: () = {
    assert!(size_of::<dormouse_connection>() == size_of::<State>());
    assert!(align_of::<dormouse_connection>() == align_of::<State>());
};

/// Runs a call and converts a panic into a status.
pub(crate) fn guard<R>(work: impl FnOnce() -> R) -> Result<R, dormouse_status> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| DORMOUSE_PANIC)
}

/// Runs a call on a valid connection, and wipes its kept keys whose secrets the call has replaced. A panic wipes the
/// connection.
///
/// # Safety
/// `connection` is null or points to 128 bytes that are not used elsewhere until this returns.
pub(crate) unsafe fn with_connection<R>(
    connection: *mut dormouse_connection,
    work: impl FnOnce(&mut State) -> Result<R, dormouse_status>,
) -> Result<R, dormouse_status> {
    // SAFETY: guaranteed by the caller.
    let state = unsafe { state(connection) }?;
    state.validate()?;
    let done = guard(|| work(state)).unwrap_or_else(|panic| {
        state.wipe();
        Err(panic)
    });
    key_table::forget_replaced(connection.addr(), state);
    done
}

/// Looks at a valid connection, which other threads may read meanwhile.
///
/// # Safety
/// `connection` is null or points to 128 bytes that are not written until this returns.
pub(crate) unsafe fn look_at_connection<R>(
    connection: *const dormouse_connection,
    look: impl FnOnce(&State) -> R,
) -> Result<R, dormouse_status> {
    let state = connection.cast::<State>();
    if !state.is_aligned() {
        return Err(DORMOUSE_BAD_ARGUMENT);
    }
    // SAFETY: not null and aligned, as checked; 128 bytes that are only read, as the caller guarantees; any bytes are a
    // valid `State` (it derives `FromBytes`).
    let state = unsafe { state.as_ref() }.ok_or(DORMOUSE_BAD_ARGUMENT)?;
    state.validate()?;
    guard(|| look(state))
}

/// Returns the memory of a connection, whatever it contains.
///
/// # Safety
/// See [`with_connection`].
pub(crate) unsafe fn state<'a>(
    connection: *mut dormouse_connection,
) -> Result<&'a mut State, dormouse_status> {
    let state = connection.cast::<State>();
    if !state.is_aligned() {
        return Err(DORMOUSE_BAD_ARGUMENT);
    }
    // SAFETY: not null and aligned, as checked; 128 bytes that are ours for this call, as the caller
    // guarantees; any bytes are a valid `State` (it derives `FromBytes`).
    unsafe { state.as_mut() }.ok_or(DORMOUSE_BAD_ARGUMENT)
}

/// Borrows bytes from C for reading. Null is valid if the length is 0.
///
/// # Safety
/// `at` is null or points to `len` bytes that are not written until the call is over.
pub(crate) unsafe fn bytes<'a>(at: *const u8, len: usize) -> Result<&'a [u8], dormouse_status> {
    match check(at.is_null(), len)? {
        0 => Ok(&[]),
        // SAFETY: not null and of a possible length, as checked; readable, as the caller guarantees.
        len => Ok(unsafe { slice::from_raw_parts(at, len) }),
    }
}

/// Borrows bytes from C for writing. Null is valid if the length is 0.
///
/// # Safety
/// `at` is null or points to `len` bytes that are not used elsewhere until the call is over.
pub(crate) unsafe fn bytes_mut<'a>(
    at: *mut u8,
    len: usize,
) -> Result<&'a mut [u8], dormouse_status> {
    match check(at.is_null(), len)? {
        0 => Ok(&mut []),
        // SAFETY: not null and of a possible length, as checked; ours, as the caller guarantees.
        len => Ok(unsafe { slice::from_raw_parts_mut(at, len) }),
    }
}

fn check(is_null: bool, len: usize) -> Result<usize, dormouse_status> {
    let possible = len <= isize::MAX as usize && (!is_null || len == 0);
    possible.then_some(len).ok_or(DORMOUSE_BAD_ARGUMENT)
}

/// Refuses overlapping ranges (start, length) and impossible lengths.
pub(crate) fn disjoint(ranges: &[(usize, usize)]) -> Result<(), dormouse_status> {
    if ranges.iter().any(|(_, len)| *len > isize::MAX as usize) {
        return Err(DORMOUSE_BAD_ARGUMENT);
    }
    for (index, (at, len)) in ranges.iter().enumerate() {
        for (other_at, other_len) in ranges.iter().skip(index + 1) {
            let ends_before =
                |at: usize, len, other| at.checked_add(len).is_some_and(|end| end <= other);
            let apart = ends_before(*at, *len, *other_at)
                || ends_before(*other_at, *other_len, *at)
                || *len == 0
                || *other_len == 0;
            if !apart {
                return Err(DORMOUSE_OVERLAP);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_embed::{Protocols, Session};
    use zerocopy::IntoBytes as _;

    #[test]
    fn a_panic_wipes_the_connection_and_is_contained() {
        let mut bytes = established();
        let at = (&raw mut bytes).cast::<dormouse_connection>();
        // SAFETY: `bytes` is ours.
        let outcome = unsafe { with_connection::<()>(at, |_| panic!("as a test")) };
        assert_eq!(outcome, Err(DORMOUSE_PANIC));
        assert_eq!(bytes, [0; 16]);
        // SAFETY: `bytes` is ours.
        let outcome = unsafe { with_connection(at, |_| Ok(())) };
        assert_eq!(outcome, Err(DORMOUSE_NO_CONNECTION));
        assert_eq!(guard(|| panic!("as a test")), Err::<(), _>(DORMOUSE_PANIC));
    }

    /// The state of a real connection.
    fn established() -> [u64; 16] {
        let pair = dormouse_testkit::Pair::new(dormouse_testkit::PairSettings {
            protocols: Protocols::TLS13,
            ..Default::default()
        });
        let mut client = Session::connect(&pair.client, "dormouse.test").unwrap();
        let mut server = Session::accept(&pair.server);
        let now = dormouse_testkit::now();
        client.feed(now, &mut [], |_| {}).unwrap();
        for _ in 0..2 {
            server.feed(now, &mut client.take_output(), |_| {}).unwrap();
            client.feed(now, &mut server.take_output(), |_| {}).unwrap();
        }
        let mut words = [0; 16];
        let exported = server.export().unwrap();
        words.as_mut_bytes().copy_from_slice(&exported);
        words
    }

    #[test]
    fn invalid_buffers_are_refused() {
        // SAFETY: none of these is read.
        unsafe {
            assert_eq!(bytes(std::ptr::null(), 0), Ok(&[][..]));
            assert_eq!(bytes(std::ptr::null(), 1), Err(DORMOUSE_BAD_ARGUMENT));
            assert_eq!(bytes([0].as_ptr(), usize::MAX), Err(DORMOUSE_BAD_ARGUMENT));
            let mut room = [0_u64; 20];
            let odd = room.as_mut_ptr().wrapping_byte_add(1).cast();
            assert!(matches!(state(odd), Err(DORMOUSE_BAD_ARGUMENT)));
            assert!(matches!(
                state(std::ptr::null_mut()),
                Err(DORMOUSE_BAD_ARGUMENT)
            ));
        }
    }

    #[test]
    fn overlap_is_found_from_both_sides() {
        assert_eq!(disjoint(&[(10, 5), (15, 5), (0, 10)]), Ok(()));
        assert_eq!(disjoint(&[(10, 5), (12, 0)]), Ok(()));
        assert_eq!(disjoint(&[(10, 6), (15, 5)]), Err(DORMOUSE_OVERLAP));
        assert_eq!(disjoint(&[(15, 5), (0, 1), (10, 6)]), Err(DORMOUSE_OVERLAP));
        assert_eq!(
            disjoint(&[(usize::MAX, 9), (usize::MAX, 1)]),
            Err(DORMOUSE_OVERLAP)
        );
    }
}
