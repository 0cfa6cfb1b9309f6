//! Signatures by the caller.

use std::ffi::c_void;

use dormouse_embed::{Sign, SigningScheme};

use crate::callback::Callback;

/// Signs `message` (not hashed yet) with a private key and this signature scheme (RFC 8446 section 4.2.3), into
/// `signature`, which has room for `signature_room` bytes (1,024). Returns the length, or 0 if it cannot sign,
/// which fails the handshake. ECDSA signatures are DER.
///
/// Callbacks run on the thread of the handshake, several at once if several threads run handshakes. They must
/// return, on the same stack: no longjmp, no exception, no switch to another fiber or coroutine. Calls on the
/// handshake that waits for the callback return DORMOUSE_BUSY.
pub type dormouse_sign_callback = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        scheme: u16,
        message: *const u8,
        message_len: usize,
        signature: *mut u8,
        signature_room: usize,
    ) -> usize,
>;

/// Room for a signature: RSA-8192.
const SIGNATURE_MAX: usize = 1_024;

type Function = unsafe extern "C" fn(*mut c_void, u16, *const u8, usize, *mut u8, usize) -> usize;

/// A private key in the caller's store.
#[derive(Debug)]
pub(crate) struct CallerKey(pub(crate) Callback<Function>);

impl Sign for CallerKey {
    fn sign(&self, scheme: SigningScheme, message: &[u8]) -> Result<Vec<u8>, String> {
        let mut room = [0; SIGNATURE_MAX];
        // SAFETY: the callback's contract; both buffers are valid until it returns.
        let len = unsafe {
            (self.0.function)(
                self.0.context,
                scheme.code(),
                message.as_ptr(),
                message.len(),
                room.as_mut_ptr(),
                room.len(),
            )
        };
        match room.get(..len) {
            Some(signature) if len > 0 => Ok(signature.to_vec()),
            Some(_) => Err("the signing callback returned no signature".to_owned()),
            None => Err(format!(
                "the signing callback returned a length of {len} bytes, more than its buffer"
            )),
        }
    }
}
