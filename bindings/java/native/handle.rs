//! Objects that Java holds as a `long`.
//!
//! A handle is an address. Only classes of the package `dormouse` see handles: they keep each one in a private
//! field, lock its owner during every call, free it once, and then set the field to 0.
//!
//! Connections lie together in chunks, apart from the short-lived memory of handshakes. Scattered among it, each
//! connection would take three times the room.

#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};

use dormouse_embed::Session;
use jni::sys::jlong;

use crate::exceptions::Error;

/// Gives a shared object to Java.
pub(crate) fn give<T: Sync>(object: T) -> jlong {
    Box::into_raw(Box::new(object)).expose_provenance() as jlong
}

/// Returns a copy of a shared object, which several threads may use; `None` for 0.
pub(crate) fn copy_of<T: Clone + Sync>(handle: jlong) -> Option<T> {
    let object: *const T = std::ptr::with_exposed_provenance(handle as usize);
    // SAFETY: a handle that is not 0 comes from `give` with the same type, and was not freed (module).
    // Shared objects are never changed.
    unsafe { object.as_ref() }.cloned()
}

/// Takes a shared object back and drops it.
pub(crate) fn free<T: Sync>(handle: jlong) {
    if handle != 0 {
        let object: *mut T = std::ptr::with_exposed_provenance_mut(handle as usize);
        // SAFETY: the handle comes from `give` with the same type, and Java frees it once (module).
        drop(unsafe { Box::from_raw(object) });
    }
}

/// Gives a connection to Java.
pub(crate) fn give_connection(connection: Session) -> jlong {
    let mut places = FREE_PLACES.lock().unwrap_or_else(PoisonError::into_inner);
    if places.is_empty() {
        let chunk = Box::leak(Box::<[Session]>::new_uninit_slice(CHUNK));
        places.extend(chunk.iter_mut().rev().map(|place| {
            let place: *mut MaybeUninit<Session> = place;
            place.expose_provenance()
        }));
    }
    // A chunk has at least one place.
    let handle = places.pop().unwrap_or_default();
    let place: *mut Session = std::ptr::with_exposed_provenance_mut(handle);
    // SAFETY: the place is in a chunk, which is never freed, and has no other owner: it was in the list.
    unsafe { place.write(connection) };
    handle as jlong
}

/// Takes a connection back and wipes it.
pub(crate) fn free_connection(handle: jlong) {
    if handle != 0 {
        let place: *mut Session = std::ptr::with_exposed_provenance_mut(handle as usize);
        // SAFETY: the handle comes from `give_connection`, and Java frees it once (module).
        unsafe { place.drop_in_place() };
        let mut places = FREE_PLACES.lock().unwrap_or_else(PoisonError::into_inner);
        places.push(handle as usize);
    }
}

/// Places of a chunk: about 64 KiB.
const CHUNK: usize = 480;

/// Addresses of places without a connection. Chunks stay for later connections.
static FREE_PLACES: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Lets `work` use a connection.
pub(crate) fn with<R>(
    handle: jlong,
    work: impl FnOnce(&mut Session) -> Result<R, Error>,
) -> Result<R, Error> {
    let connection: *mut Session = std::ptr::with_exposed_provenance_mut(handle as usize);
    // SAFETY: a handle that is not 0 comes from `give_connection` and was not freed (module). Its owner is
    // locked, so there is no other reference.
    match unsafe { connection.as_mut() } {
        Some(connection) => work(connection),
        None => Err(Error::Misuse("the connection is released".to_owned())),
    }
}
