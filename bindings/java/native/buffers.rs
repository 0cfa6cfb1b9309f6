//! Bytes of Java's arrays and direct buffers, copied in and out.
//!
//! `unwrap` and `wrap` copy everything, because a connection opens records in place, and an engine must not change
//! its source. A caller that owns its buffers avoids the copies ([`Room::in_place`]).

#![allow(unsafe_code)]

use std::cell::Cell;

use jni::Env;
use jni::objects::{JByteArray, JByteBuffer};
use jni::sys::{jbyte, jint};
use zeroize::Zeroize as _;

use crate::exceptions::Error;

/// Part of an array, or of a direct buffer.
pub(crate) struct Room<'local> {
    place: Place<'local>,
    at: usize,
    len: usize,
}

enum Place<'local> {
    Nowhere,
    Array(JByteArray<'local>),
    Direct(JByteBuffer<'local>),
}

impl<'local> Room<'local> {
    pub(crate) fn new(
        array: JByteArray<'local>,
        buffer: JByteBuffer<'local>,
        at: jint,
        len: jint,
    ) -> Result<Room<'local>, Error> {
        let negative = |_| Error::Misuse(format!("a buffer at {at} with {len} bytes"));
        let place = match (array.is_null(), buffer.is_null()) {
            (false, _) => Place::Array(array),
            (true, false) => Place::Direct(buffer),
            (true, true) => Place::Nowhere,
        };
        Ok(Room {
            place,
            at: usize::try_from(at).map_err(negative)?,
            len: usize::try_from(len).map_err(negative)?,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Copies its bytes to `target`, which must be as long.
    pub(crate) fn read(&self, env: &Env<'_>, target: &mut [u8]) -> Result<(), Error> {
        if target.len() != self.len {
            return Err(Error::Misuse(format!(
                "{} bytes do not go into {}",
                self.len,
                target.len()
            )));
        }
        match &self.place {
            Place::Nowhere if self.len == 0 => {}
            Place::Nowhere => return Err(no_place()),
            Place::Array(array) => array.get_region(env, self.at as jint, as_java_mut(target))?,
            Place::Direct(buffer) => {
                let source = direct(env, buffer, self.at, self.len)?;
                // SAFETY: `direct` checked that `len` bytes lie there, and the buffer's reference keeps
                // them allocated during this call. `target` is Rust's own memory, as long as `len`.
                unsafe { std::ptr::copy_nonoverlapping(source, target.as_mut_ptr(), self.len) };
            }
        }
        Ok(())
    }

    /// Calls `work` with the bytes of a direct buffer themselves.
    pub(crate) fn in_place<R>(
        &self,
        env: &Env<'_>,
        work: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, Error> {
        let Place::Direct(buffer) = &self.place else {
            return Err(no_place());
        };
        let start = direct(env, buffer, self.at, self.len)?;
        // SAFETY: `direct` checked that `len` bytes lie there, and the buffer's reference keeps them allocated
        // during this call. Nothing else uses them meanwhile: `BatchEngine` demands this of its callers.
        Ok(work(unsafe {
            std::slice::from_raw_parts_mut(start, self.len)
        }))
    }

    /// Writes `bytes` at `offset` from its beginning.
    pub(crate) fn write(&self, env: &Env<'_>, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        if offset + bytes.len() > self.len {
            return Err(Error::Ssl(format!(
                "{} bytes of plaintext do not fit into {}",
                offset + bytes.len(),
                self.len
            )));
        }
        let at = self.at + offset;
        match &self.place {
            Place::Nowhere if bytes.is_empty() => {}
            Place::Nowhere => return Err(no_place()),
            Place::Array(array) => array.set_region(env, at as jint, as_java(bytes))?,
            Place::Direct(buffer) => {
                let target = direct(env, buffer, at, bytes.len())?;
                // SAFETY: as in `read`, in the other direction. Java checked that the buffer may be
                // written to.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
            }
        }
        Ok(())
    }
}

fn no_place() -> Error {
    Error::Misuse("neither an array nor a direct buffer".to_owned())
}

/// Returns the address of `len` bytes at `at` of a direct buffer.
fn direct(
    env: &Env<'_>,
    buffer: &JByteBuffer<'_>,
    at: usize,
    len: usize,
) -> Result<*mut u8, Error> {
    let capacity = env.get_direct_buffer_capacity(buffer)?;
    if at.checked_add(len).is_none_or(|end| end > capacity) {
        return Err(Error::Misuse(format!(
            "{len} bytes at {at} of a buffer with {capacity} bytes"
        )));
    }
    let address = env.get_direct_buffer_address(buffer)?;
    Ok(address.wrapping_add(at))
}

fn as_java(bytes: &[u8]) -> &[jbyte] {
    // SAFETY: `u8` and `i8` have the same layout, and every value is valid for both.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) }
}

fn as_java_mut(bytes: &mut [u8]) -> &mut [jbyte] {
    // SAFETY: as in `as_java`; the borrow is exclusive.
    unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len()) }
}

/// Scratch memory that a thread keeps.
const SCRATCH_MAX: usize = 64 * 1024;

thread_local! {
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// `len` bytes of any value for one call, from memory that all connections of the thread share. A call within a call
/// (a trust manager that connects somewhere) gets memory of its own.
pub(crate) fn with_scratch<R>(len: usize, work: impl FnOnce(&mut [u8]) -> R) -> R {
    let mut scratch = SCRATCH.take();
    if scratch.len() < len {
        scratch.resize(len, 0);
    }
    let result = work(scratch.get_mut(..len).unwrap_or_default());
    if scratch.capacity() <= SCRATCH_MAX {
        SCRATCH.set(scratch);
    } else {
        scratch.zeroize();
    }
    result
}
