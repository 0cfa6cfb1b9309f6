//! Probes that try what a confined process must not be able to do, to prove that it is confined.
//!
//! Each probe uses arguments with which the call does no harm and does not itself fail with EPERM or EACCES, so
//! that these errors mean "refused".

use std::fs::OpenOptions;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt as _;
use std::{fmt, io, ptr};

use crate::process;

/// Result of a probe.
#[derive(Debug)]
pub struct SandboxProbe {
    /// The attempted operation.
    pub what: &'static str,
    /// Its result.
    pub result: io::Result<()>,
}

impl SandboxProbe {
    /// Whether it was refused, and did not fail for another reason.
    pub fn is_refused(&self) -> bool {
        let refused = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        self.result.as_ref().is_err_and(refused)
    }
}

impl fmt::Display for SandboxProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = if self.is_refused() {
            "refused"
        } else {
            "POSSIBLE"
        };
        write!(f, "{}={outcome}", self.what)
    }
}

/// Runs all probes in this process.
pub fn probes() -> Vec<SandboxProbe> {
    let attempt = |what, result| SandboxProbe { what, result };
    let open = |path: &str, options: &OpenOptions| options.open(path).map(drop);
    // An unnamed file, so that nothing is left behind where it can be created.
    let mut unnamed = OpenOptions::new();
    unnamed.write(true).custom_flags(libc::O_TMPFILE);
    let main = process::parent().0;
    vec![
        attempt("ptrace", call(libc::SYS_ptrace, [2, -1, 0, 0, 0])),
        attempt(
            "process_vm_readv",
            call(libc::SYS_process_vm_readv, [-1, 0, 0, 0, 0]),
        ),
        attempt("mount", call(libc::SYS_mount, [0; 5])),
        attempt("bpf", call(libc::SYS_bpf, [-1, 0, 0, 0, 0])),
        attempt("unshare", call(libc::SYS_unshare, [0; 5])),
        attempt("open", open("/etc/passwd", OpenOptions::new().read(true))),
        attempt("create", open("/tmp", &unnamed)),
        attempt("execve", call(libc::SYS_execve, [0; 5])),
        attempt(
            "fork",
            call(libc::SYS_clone, [libc::CLONE_SIGHAND.into(), 0, 0, 0, 0]),
        ),
        attempt("kill", call(libc::SYS_kill, [main.into(), 0, 0, 0, 0])),
        attempt("executable_memory", executable_memory()),
        attempt(
            "packet_socket",
            call(
                libc::SYS_socket,
                [libc::AF_PACKET.into(), libc::SOCK_STREAM.into(), 0, 0, 0],
            ),
        ),
        attempt(
            "listen",
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map(drop),
        ),
        attempt("setuid", call(libc::SYS_setresuid, [-1, -1, -1, 0, 0])),
        attempt("raise_limit", raise_limit()),
        // And a call that must work: if allowed, it fails because there is no listener.
        attempt(
            "connect",
            TcpStream::connect((Ipv4Addr::LOCALHOST, 1)).map(drop),
        ),
    ]
}

fn call(number: libc::c_long, arguments: [i64; 5]) -> io::Result<()> {
    let [a, b, c, d, e] = arguments;
    // SAFETY: the callers above pass numbers, refused flags, or null with lengths of 0: the kernel writes to no
    // memory, and no call takes effect.
    let result = unsafe { libc::syscall(number, a, b, c, d, e) };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn executable_memory() -> io::Result<()> {
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_EXEC,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a new address range, with no references to it.
    let page = unsafe { libc::mmap(ptr::null_mut(), 4096, protection, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was mapped above, with no references to it.
    unsafe { libc::munmap(page, 4096) };
    Ok(())
}

/// Sets a limit to its current value.
fn raise_limit() -> io::Result<()> {
    let limits = rustix::process::getrlimit(rustix::process::Resource::Nproc);
    Ok(rustix::process::setrlimit(
        rustix::process::Resource::Nproc,
        limits,
    )?)
}
