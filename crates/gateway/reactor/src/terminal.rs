//! Reads a terminal's keyboard, key by key.

use std::io;
use std::mem::MaybeUninit;

use crate::Fd;
use crate::outcome::os_result;
use crate::socket::Attempt;

const STANDARD_INPUT: Fd = Fd(0);

/// A keyboard that reports keys one by one without echo, until it is dropped.
#[derive(Debug)]
pub struct Keyboard {
    before: libc::termios,
}

impl Keyboard {
    /// Opens the keyboard of standard input.
    ///
    /// # Errors
    /// It is not a terminal, or the operating system's error.
    pub fn take() -> io::Result<Keyboard> {
        let mut before = MaybeUninit::uninit();
        // SAFETY: the kernel fills the structure, which has room for it.
        os_result(unsafe { libc::tcgetattr(STANDARD_INPUT.0, before.as_mut_ptr()) })?;
        // SAFETY: it was filled.
        let before = unsafe { before.assume_init() };
        let mut keys = before;
        // Signals from the keyboard keep working: control-C ends the program.
        keys.c_lflag &= !(libc::ICANON | libc::ECHO);
        keys.c_cc[libc::VMIN] = 0;
        keys.c_cc[libc::VTIME] = 0;
        // SAFETY: the structure is initialised and only read.
        os_result(unsafe { libc::tcsetattr(STANDARD_INPUT.0, libc::TCSANOW, &raw const keys) })?;
        Ok(Keyboard { before })
    }

    /// Returns the descriptor for a [`crate::poller::Poller`].
    pub fn fd(&self) -> Fd {
        STANDARD_INPUT
    }

    /// Returns the next typed byte, if there is one.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn read(&self) -> io::Result<Attempt<u8>> {
        let mut byte = [0];
        match rustix::io::read(STANDARD_INPUT.borrow()?, &mut byte) {
            Ok(1) => Ok(Attempt::Done(byte[0])),
            Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {
                Ok(Attempt::WouldBlock)
            }
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        // Errors of a lost terminal are ignored.
        // SAFETY: the structure was filled by the kernel, and is only read.
        let _ = unsafe { libc::tcsetattr(STANDARD_INPUT.0, libc::TCSANOW, &raw const self.before) };
    }
}
