//! A network for one test, in which it may do what needs privileges.

use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;

use rustix::net::{AddressFamily, SocketType};

use crate::outcome::os_result;

/// Runs a test in a network of its own, which has only the loopback interface. Skips it without the privileges.
pub(crate) fn alone(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(|| {
        if let Err(error) = enter_new_network() {
            let skips = std::env::var_os("DORMOUSE_SKIP_MISSING").is_some_and(|value| value == "1");
            assert!(
                skips,
                "tests of TCP_REPAIR need CAP_SYS_ADMIN and CAP_NET_ADMIN: {error} \
                 (or set DORMOUSE_SKIP_MISSING=1 to skip what cannot run here)"
            );
            let text = "SKIPPED: no CAP_SYS_ADMIN and CAP_NET_ADMIN for TCP_REPAIR";
            let _ = writeln!(io::stderr(), "{text}: {error}");
            return;
        }
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn enter_new_network() -> io::Result<()> {
    // SAFETY: affects only this thread's network.
    os_result(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    // SAFETY: zeros are a valid structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the kernel reads the structure.
    os_result(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) })
}
