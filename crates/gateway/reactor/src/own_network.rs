//! A network for one test, in which it may do what needs privileges. Only in debug builds.

use std::fs;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;

use rustix::net::{AddressFamily, SocketType};

use crate::outcome::os_result;

/// Runs a test in a network of its own, which has only the loopback interface. Skips it without the privileges.
///
/// # Panics
/// When the test does.
pub fn alone(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(|| {
        if let Err(error) = enter_new_network() {
            return skip(&format!(
                "no CAP_SYS_ADMIN and CAP_NET_ADMIN for a network of its own: {error}"
            ));
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
    os_result(unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCSIFFLAGS as libc::Ioctl,
            &raw const request,
        )
    })
}

/// Says what this machine lacks for a test.
pub fn skip(why: &str) {
    say(&format!("SKIPPED: {why}"));
}

/// Writes a line that the test's output does not hold back.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// A counter of this network's TCP.
///
/// # Panics
/// When there is none of this name.
pub fn counted(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/thread-self/net/snmp").expect("counters of TCP");
    let mut rows = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (rows.next().unwrap(), rows.next().unwrap());
    let position = names.split(' ').position(|word| word == name).unwrap();
    values.split(' ').nth(position).unwrap().parse().unwrap()
}
