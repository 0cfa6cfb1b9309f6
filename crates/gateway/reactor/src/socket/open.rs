//! Creating sockets: listening, accepting, connecting.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::address::unix_address;
use super::{Addr, Peer, options};
use crate::outcome::{Attempt, attempt};
use crate::{Fd, OnExec};

/// Maximum retries of accept. It reports errors of connections that have already ended (accept(2)); then the
/// next one is tried, but not indefinitely.
const ACCEPT_RETRIES: usize = 16;

/// Options for listening.
#[derive(Clone, Copy, Debug)]
pub struct ListenOptions {
    /// Maximum number of connections waiting to be accepted.
    pub backlog: i32,
    /// IPv6: whether IPv4 clients are excluded.
    pub v6only: bool,
    /// Whether the descriptor survives an exec.
    pub on_exec: OnExec,
}

impl Default for ListenOptions {
    fn default() -> ListenOptions {
        ListenOptions {
            backlog: 4096,
            v6only: true,
            on_exec: OnExec::Keep,
        }
    }
}

/// Opens a listener. Replaces the file of a unix socket without a listener; leaves any other file alone.
///
/// # Errors
/// The operating system's error, for example: the address is in use, or the port is privileged.
pub fn listen(address: &Addr, options: &ListenOptions) -> io::Result<Fd> {
    let socket = new_socket(address, options.on_exec)?;
    match address {
        Addr::Tcp(ip) => {
            sockopt::set_socket_reuseaddr(&socket, true)?;
            if ip.is_ipv6() {
                sockopt::set_ipv6_v6only(&socket, options.v6only)?;
            }
            rustix::net::bind(&socket, ip)?;
        }
        Addr::Unix(path) => {
            let name = unix_address(path)?;
            match rustix::net::bind(&socket, &name) {
                Err(Errno::ADDRINUSE) if is_stale(path) => {
                    fs::remove_file(path)?;
                    rustix::net::bind(&socket, &name)?;
                }
                other => other?,
            }
        }
    }
    rustix::net::listen(&socket, options.backlog)?;
    Ok(socket.into())
}

/// Checks whether [`listen`] would open a listener, without listening and without creating or removing a file.
/// `v6only` is as in [`ListenOptions`].
///
/// # Errors
/// See [`listen`].
pub fn try_listen(address: &Addr, v6only: bool) -> io::Result<()> {
    match address {
        Addr::Tcp(ip) => {
            let socket = new_socket(address, OnExec::Close)?;
            sockopt::set_socket_reuseaddr(&socket, true)?;
            if ip.is_ipv6() {
                sockopt::set_ipv6_v6only(&socket, v6only)?;
            }
            Ok(rustix::net::bind(&socket, ip)?)
        }
        Addr::Unix(path) => {
            unix_address(path)?;
            match fs::symlink_metadata(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(error) => Err(error),
                Ok(meta) if !meta.file_type().is_socket() => Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "a file that is not a socket has this path",
                )),
                Ok(_) if is_stale(path) => Ok(()),
                Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
            }
        }
    }
}

/// Makes a listener stop listening, in all processes that have it. It keeps its address, unless the kernel
/// chose the port. New connections are refused, and queued ones are reset.
///
/// # Errors
/// The operating system's error: ENOTCONN if it was not listening.
pub fn pause_listening(listener: Fd) -> io::Result<()> {
    Ok(rustix::net::shutdown(
        listener.borrow()?,
        rustix::net::Shutdown::Both,
    )?)
}

/// Undoes [`pause_listening`]. The socket still owns its address, so this needs no privileges. Resets options that
/// accepted sockets would inherit, and that a listener never has.
///
/// # Errors
/// The operating system's error: EADDRINUSE if another socket has taken the address since.
pub fn resume_listening(listener: Fd, backlog: i32) -> io::Result<()> {
    let socket = listener.borrow()?;
    sockopt::set_socket_linger(socket, None)?;
    options::reset_receive_lowat(listener)?;
    Ok(rustix::net::listen(socket, backlog)?)
}

/// An accepted connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accepted {
    /// Its descriptor.
    pub fd: Fd,
    /// The peer.
    pub peer: Peer,
}

/// Accepts a connection, if there is one.
///
/// # Errors
/// The operating system's error; see [`super::Shortage`] for those after which accepting should pause.
pub fn accept(listener: Fd, on_exec: OnExec) -> io::Result<Attempt<Accepted>> {
    let listener = listener.borrow()?;
    let accepted =
        first_usable(|| attempt(|| rustix::net::acceptfrom_with(listener, flags(on_exec))))?;
    Ok(match accepted {
        Attempt::Done((socket, address)) => Attempt::Done(Accepted {
            fd: socket.into(),
            peer: Peer::from_any(address),
        }),
        Attempt::WouldBlock => Attempt::WouldBlock,
    })
}

/// Repeats accepting after errors of single connections. An error that does not end is the listener's: with a security
/// module that forbids accepting (EPERM), the queued connection stays, and the listener is ready all the time.
fn first_usable<T>(mut accept: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut accepted = accept();
    for _ in 1..ACCEPT_RETRIES {
        match &accepted {
            Err(error) if is_of_one_connection(error) => accepted = accept(),
            _ => break,
        }
    }
    accepted
}

/// Options for connecting.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectOptions {
    /// The local address. With port 0 the port is chosen late, per target, so that one address has some 28,000
    /// ports for *each* target (IP_BIND_ADDRESS_NO_PORT).
    pub source: Option<SocketAddr>,
    /// Whether the descriptor survives an exec.
    pub on_exec: OnExec,
    /// Receive buffer, set before connecting so that the TCP window is scaled for it.
    pub receive_buffer_bytes: Option<usize>,
    /// Send buffer.
    pub send_buffer_bytes: Option<usize>,
    /// TCP: whether bytes are sent as soon as the connection is established. They then carry the acknowledgement
    /// that completes the handshake, which saves a segment. If nothing is sent, it follows after 200 ms, and the
    /// peer accepts the connection only then.
    pub speaks_first: bool,
}

/// A connection attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Connecting {
    /// Established already (unix sockets, and most local connections).
    Established(Fd),
    /// Will be established, or have failed, when the descriptor is writable: see [`super::take_error`].
    InProgress(Fd),
}

impl Connecting {
    /// Returns the descriptor in either case.
    pub fn fd(self) -> Fd {
        match self {
            Connecting::Established(fd) | Connecting::InProgress(fd) => fd,
        }
    }
}

/// Starts connecting.
///
/// # Errors
/// The operating system's error; see [`super::Shortage`] for errors that no peer caused.
pub fn connect(address: &Addr, options: &ConnectOptions) -> io::Result<Connecting> {
    let socket = new_socket(address, options.on_exec)?;
    if let Some(bytes) = options.receive_buffer_bytes {
        sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
    }
    if let Some(bytes) = options.send_buffer_bytes {
        sockopt::set_socket_send_buffer_size(&socket, bytes)?;
    }
    let result = match address {
        Addr::Tcp(ip) => {
            if let Some(source) = options.source {
                if source.port() == 0 {
                    options::set_bind_address_no_port(&socket)?;
                } else {
                    sockopt::set_socket_reuseaddr(&socket, true)?;
                }
                rustix::net::bind(&socket, &source)?;
            }
            if options.speaks_first {
                sockopt::set_tcp_quickack(&socket, false)?;
            }
            rustix::net::connect(&socket, ip)
        }
        Addr::Unix(path) => rustix::net::connect(&socket, &unix_address(path)?),
    };
    match result {
        Ok(()) => Ok(Connecting::Established(socket.into())),
        // A local connection may be established by now, or soon (after INTR it continues by itself).
        Err(Errno::INPROGRESS | Errno::INTR) if rustix::net::getpeername(&socket).is_ok() => {
            Ok(Connecting::Established(socket.into()))
        }
        Err(Errno::INPROGRESS | Errno::INTR) => Ok(Connecting::InProgress(socket.into())),
        Err(errno) => Err(errno.into()),
    }
}

/// Connects a blocking unix socket, whose timeout of writes is `patience` from then on. `UnixStream::connect` waits
/// without end for a place in the listener's queue.
///
/// # Errors
/// The operating system's error: TIMEDOUT if the queue was full for `patience`.
pub fn connect_unix(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // The kernel applies it to the wait for a place, too.
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(patience))?;
    let address = unix_address(path)?;
    match rustix::io::retry_on_intr(|| rustix::net::connect(&socket, &address)) {
        Err(Errno::AGAIN) => Err(Errno::TIMEDOUT.into()),
        connected => Ok(connected.map(|()| socket.into())?),
    }
}

/// Creates two connected unix sockets.
///
/// # Errors
/// The operating system's error.
pub fn pair(on_exec: OnExec) -> io::Result<(Fd, Fd)> {
    let (unix, stream) = (AddressFamily::UNIX, SocketType::STREAM);
    let (a, b) = rustix::net::socketpair(unix, stream, flags(on_exec), None)?;
    Ok((a.into(), b.into()))
}

fn new_socket(address: &Addr, on_exec: OnExec) -> io::Result<OwnedFd> {
    let family = match address {
        Addr::Tcp(SocketAddr::V4(_)) => AddressFamily::INET,
        Addr::Tcp(SocketAddr::V6(_)) => AddressFamily::INET6,
        Addr::Unix(_) => AddressFamily::UNIX,
    };
    let (stream, flags) = (SocketType::STREAM, flags(on_exec));
    Ok(rustix::net::socket_with(family, stream, flags, None)?)
}

fn flags(on_exec: OnExec) -> SocketFlags {
    match on_exec {
        OnExec::Close => SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
        OnExec::Keep => SocketFlags::NONBLOCK,
    }
}

/// Whether the path is a socket without a listener.
fn is_stale(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    let refused = || match connect(&Addr::Unix(path.to_owned()), &ConnectOptions::default()) {
        Ok(connecting) => {
            connecting.fd().close();
            false
        }
        Err(error) => Errno::from_io_error(&error) == Some(Errno::CONNREFUSED),
    };
    is_socket && refused()
}

fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(
            Errno::CONNABORTED
                | Errno::PROTO
                | Errno::NETDOWN
                | Errno::NOPROTOOPT
                | Errno::HOSTDOWN
                | Errno::NONET
                | Errno::HOSTUNREACH
                | Errno::OPNOTSUPP
                | Errno::NETUNREACH
                | Errno::PERM
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_is_not_waited_for_without_end() {
        let name = format!("@dormouse-full-queue-{}", std::process::id());
        let options = ListenOptions {
            backlog: 0,
            ..ListenOptions::default()
        };
        let listener = listen(&Addr::Unix(name.clone().into()), &options).expect("a free name");
        let connect = || connect_unix(Path::new(&name), Duration::from_millis(50));
        let first = connect().expect("the queue has one place");
        let refused = connect().expect_err("the queue is full");
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        listener.close();
        drop(first);
    }

    #[test]
    fn an_error_of_every_connection_is_reported() {
        let mut calls = 0;
        let refused = first_usable(|| -> io::Result<()> {
            calls += 1;
            Err(Errno::PERM.into())
        });
        let refused = refused.expect_err("no connection is accepted");
        assert_eq!(Errno::from_io_error(&refused), Some(Errno::PERM));
        assert_eq!(calls, ACCEPT_RETRIES);

        let mut ended = [Errno::CONNABORTED, Errno::NETDOWN].into_iter();
        let next = || ended.next().map_or(Ok(7), |errno| Err(errno.into()));
        assert_eq!(first_usable(next).expect("the third connection"), 7);
    }
}
