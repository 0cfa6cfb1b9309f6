//! The buffers in which a thread opens and seals. They hold nothing between two polls.

use std::cell::Cell;

/// Bytes of a buffer that a thread keeps.
const KEPT_MAX: usize = 128 * 1_024;

thread_local! {
    static INPUT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    static OUTPUT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Calls `work` with the thread's buffer for received ciphertext or plaintext to send, of at least `len` bytes. `work`
/// may poll a transport that is a stream of this crate, too: that one then gets another buffer.
pub(crate) fn input<T>(len: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
    let mut buffer = INPUT.take();
    let result = work(at_least(&mut buffer, len));
    if buffer.len() <= KEPT_MAX {
        INPUT.set(buffer);
    }
    result
}

/// Does the same with the buffer for sealed records.
pub(crate) fn output<T>(len: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
    let mut buffer = OUTPUT.take();
    let result = work(at_least(&mut buffer, len));
    if buffer.len() <= KEPT_MAX {
        OUTPUT.set(buffer);
    }
    result
}

fn at_least(buffer: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
    buffer
}
