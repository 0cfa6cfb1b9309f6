//! Objects that Java holds as a `long`.
//!
//! A handle is the address of a box. Only classes of the package `dormouse` see handles: they keep each one in
//! a private field, lock its owner during every call, pass it on to [`free`] once, and then set the field to 0.

#![allow(unsafe_code)]

use dormouse_embed::Session;
use jni::sys::jlong;

use crate::exceptions::Error;

/// Gives an object to Java.
pub(crate) fn give<T>(object: T) -> jlong {
    Box::into_raw(Box::new(object)).expose_provenance() as jlong
}

/// Lets `work` use a connection.
pub(crate) fn with<R>(
    handle: jlong,
    work: impl FnOnce(&mut Session) -> Result<R, Error>,
) -> Result<R, Error> {
    let object: *mut Session = std::ptr::with_exposed_provenance_mut(handle as usize);
    // SAFETY: a handle that is not 0 comes from `give` with the same type, and was not freed (module).
    // Its owner is locked, so there is no other reference.
    match unsafe { object.as_mut() } {
        Some(object) => work(object),
        None => Err(Error::Misuse("the connection is released".to_owned())),
    }
}

/// Returns a copy of a shared object, which several threads may use; `None` for 0.
pub(crate) fn copy_of<T: Clone + Sync>(handle: jlong) -> Option<T> {
    let object: *const T = std::ptr::with_exposed_provenance(handle as usize);
    // SAFETY: as in `with`; shared objects are never changed.
    unsafe { object.as_ref() }.cloned()
}

/// Takes an object back and drops it.
pub(crate) fn free<T>(handle: jlong) {
    if handle != 0 {
        let object: *mut T = std::ptr::with_exposed_provenance_mut(handle as usize);
        // SAFETY: the handle comes from `give` with the same type, and Java frees it once (module).
        drop(unsafe { Box::from_raw(object) });
    }
}
