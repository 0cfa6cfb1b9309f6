//! The keyboard of a terminal, key by key.

use std::io;
use std::mem::MaybeUninit;

use crate::Fd;
use crate::os_result::os_result;
use crate::socket::Attempt;

const STANDARD_INPUT: Fd = Fd(0);

/// Keys come one by one, and are not shown, until this is dropped.
#[derive(Debug)]
pub struct Keyboard {
    before: libc::termios,
}

impl Keyboard {
    /// Takes the keyboard of standard input.
    ///
    /// # Errors
    /// It is no terminal, or what the operating system says.
    pub fn take() -> io::Result<Keyboard> {
        let mut before = MaybeUninit::uninit();
        // SAFETY: the kernel fills the structure, which has room for it.
        os_result(unsafe { libc::tcgetattr(STANDARD_INPUT.0, before.as_mut_ptr()) })?;
        // SAFETY: it was filled.
        let before = unsafe { before.assume_init() };
        let mut keys = before;
        // Signals from the keyboard stay what they are: control-C ends the program.
        keys.c_lflag &= !(libc::ICANON | libc::ECHO);
        keys.c_cc[libc::VMIN] = 0;
        keys.c_cc[libc::VTIME] = 0;
        // SAFETY: the structure is initialised and only read.
        os_result(unsafe { libc::tcsetattr(STANDARD_INPUT.0, libc::TCSANOW, &raw const keys) })?;
        Ok(Keyboard { before })
    }

    /// For a [`crate::poller::Poller`].
    pub fn fd(&self) -> Fd {
        STANDARD_INPUT
    }

    /// The next byte that was typed, if there is one.
    ///
    /// # Errors
    /// What the operating system says.
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
        // A terminal that is gone needs nothing.
        // SAFETY: the structure was filled by the kernel, and is only read.
        let _ = unsafe { libc::tcsetattr(STANDARD_INPUT.0, libc::TCSANOW, &raw const self.before) };
    }
}
