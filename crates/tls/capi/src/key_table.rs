//! The table of the connections' expanded keys, by the address of each connection.

use std::sync::OnceLock;

use dormouse_embed::{SharedKeys, State};

/// Exists once a program has asked for kept keys.
static KEYS: OnceLock<SharedKeys> = OnceLock::new();

pub(crate) fn keys() -> &'static SharedKeys {
    KEYS.get_or_init(SharedKeys::default)
}

/// Returns the number of the connection at this address. The product with an odd number is another one for each address,
/// and its upper bits, which become the lower ones, differ for neighbours.
pub(crate) fn number(address: usize) -> u64 {
    (address as u64)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(32)
}

/// Wipes the kept keys of the connection at this address.
pub(crate) fn forget(address: usize) {
    if let Some(keys) = KEYS.get() {
        keys.forget(number(address));
    }
}

/// Wipes the kept keys of the connection at this address whose secrets were replaced.
pub(crate) fn forget_replaced(address: usize, state: &State) {
    if let Some(keys) = KEYS.get() {
        keys.forget_replaced(number(address), state);
    }
}
