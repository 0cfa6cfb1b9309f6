//! The socket options of TCP_REPAIR, which no library wraps.

use std::io;

use libc::{IPPROTO_TCP, SOL_SOCKET, c_int, socklen_t};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::Fd;
use crate::outcome::os_result;

// <linux/tcp.h>
const TCP_REPAIR_ON: c_int = 1;
/// Off without a probe of the peer's window, which 0 would send.
const TCP_REPAIR_OFF_NO_WP: c_int = -1;

/// Bits of [`Info::options`].
pub(super) const TIMESTAMPS: u8 = 1;
pub(super) const SACK: u8 = 2;
const WINDOW_SCALE: u8 = 4;
pub(super) const MICROSECONDS: u8 = 64;

/// Kinds of TCP options (RFC 9293 §3.1, RFC 7323, RFC 2018), by which TCP_REPAIR_OPTIONS names them.
const KIND_MSS: u32 = 2;
const KIND_WINDOW_SCALE: u32 = 3;
const KIND_SACK: u32 = 4;
const KIND_TIMESTAMPS: u32 = 8;

/// What drops the packets of a mute socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filter {
    /// Drops each packet; the peer repeats it.
    DropAll,
    /// This BPF program, a socket filter, which may copy packets before it drops them.
    Program(Fd),
}

impl Filter {
    /// Makes this drop the socket's packets.
    pub(crate) fn attach(self, fd: Fd) -> io::Result<()> {
        match self {
            Filter::Program(program) => set(fd, SOL_SOCKET, libc::SO_ATTACH_BPF, &program.0),
            Filter::DropAll => {
                let mut program = [libc::sock_filter {
                    code: libc::BPF_RET as u16,
                    jt: 0,
                    jf: 0,
                    k: 0,
                }];
                let program = libc::sock_fprog {
                    len: 1,
                    filter: program.as_mut_ptr(),
                };
                // SAFETY: the kernel reads one structure, and through it one instruction; both live until the call ends.
                let result = unsafe {
                    libc::setsockopt(
                        fd.0,
                        SOL_SOCKET,
                        libc::SO_ATTACH_FILTER,
                        (&raw const program).cast(),
                        size_of_val(&program) as socklen_t,
                    )
                };
                os_result(result)
            }
        }
    }
}

/// The beginning of the kernel's `struct tcp_info`.
#[derive(FromBytes, IntoBytes, Immutable, Default)]
#[repr(C)]
pub(super) struct Info {
    state: u8,
    congestion: [u8; 4],
    pub(super) options: u8,
    scales: u8,
    flags: u8,
    timeouts: [u32; 2],
    /// Maximum segments that this end sends, and receives.
    pub(super) segments: [u32; 2],
    /// Segments in flight.
    pub(super) unacknowledged: u32,
}

impl Info {
    pub(super) fn of(fd: Fd) -> io::Result<Info> {
        get(fd, IPPROTO_TCP, libc::TCP_INFO)
    }

    pub(super) fn is_established(&self) -> bool {
        self.state == 1
    }

    /// Shift counts of the peer's window and of ours.
    pub(super) fn scales(&self) -> (u8, u8) {
        match self.options & WINDOW_SCALE {
            0 => (0, 0),
            _ => (self.scales & 15, self.scales >> 4),
        }
    }
}

/// The kernel's `struct tcp_repair_window`.
#[derive(FromBytes, IntoBytes, Immutable, Default, Debug)]
#[repr(C)]
pub(super) struct Window {
    pub(super) send_update: u32,
    pub(super) send_window: u32,
    pub(super) send_window_max: u32,
    pub(super) receive_window: u32,
    pub(super) receive_update: u32,
}

impl Window {
    pub(super) fn of(fd: Fd) -> io::Result<Window> {
        get(fd, IPPROTO_TCP, libc::TCP_REPAIR_WINDOW)
    }

    pub(super) fn set(&self, fd: Fd) -> io::Result<()> {
        set(fd, IPPROTO_TCP, libc::TCP_REPAIR_WINDOW, self)
    }

    /// The first sequence number that the peer must not send.
    pub(super) fn right_edge(&self) -> u32 {
        self.receive_update.wrapping_add(self.receive_window)
    }
}

/// A queue, whose sequence number an option reads and writes.
#[derive(Clone, Copy)]
pub(super) enum Queue {
    Receive = 1,
    Send = 2,
}

pub(super) fn start_repair(fd: Fd) -> io::Result<()> {
    set(fd, IPPROTO_TCP, libc::TCP_REPAIR, &TCP_REPAIR_ON)
}

pub(super) fn end_repair(fd: Fd) -> io::Result<()> {
    set(fd, IPPROTO_TCP, libc::TCP_REPAIR, &TCP_REPAIR_OFF_NO_WP)
}

pub(super) fn is_in_repair(fd: Fd) -> io::Result<bool> {
    Ok(get::<c_int>(fd, IPPROTO_TCP, libc::TCP_REPAIR)? != 0)
}

pub(super) fn sequence_number(fd: Fd, queue: Queue) -> io::Result<u32> {
    set(fd, IPPROTO_TCP, libc::TCP_REPAIR_QUEUE, &(queue as c_int))?;
    get(fd, IPPROTO_TCP, libc::TCP_QUEUE_SEQ)
}

pub(super) fn set_sequence_number(fd: Fd, queue: Queue, number: u32) -> io::Result<()> {
    set(fd, IPPROTO_TCP, libc::TCP_REPAIR_QUEUE, &(queue as c_int))?;
    set(fd, IPPROTO_TCP, libc::TCP_QUEUE_SEQ, &number)
}

/// In repair mode, what the peer accepts; otherwise what is sent.
pub(super) fn maximum_segment(fd: Fd) -> io::Result<u32> {
    get(fd, IPPROTO_TCP, libc::TCP_MAXSEG)
}

pub(super) fn set_maximum_segment(fd: Fd, bytes: u16) -> io::Result<()> {
    set(fd, IPPROTO_TCP, libc::TCP_MAXSEG, &u32::from(bytes))
}

pub(super) fn timestamp(fd: Fd) -> io::Result<u32> {
    get(fd, IPPROTO_TCP, libc::TCP_TIMESTAMP)
}

pub(super) fn set_timestamp(fd: Fd, timestamp: u32) -> io::Result<()> {
    set(fd, IPPROTO_TCP, libc::TCP_TIMESTAMP, &timestamp)
}

/// Sets what the handshake negotiated: the scales of both windows, which of [`TIMESTAMPS`] and [`SACK`], and the
/// maximum segment.
pub(super) fn set_options(fd: Fd, scales: (u8, u8), options: u8, mss: u16) -> io::Result<()> {
    let scale = u32::from(scales.0) | u32::from(scales.1) << 16;
    // An array of `struct tcp_repair_opt`. A pair that repeats another one changes nothing.
    let mss = [KIND_MSS, mss.into()];
    let chosen = |bit, kind| if options & bit == 0 { mss } else { [kind, 0] };
    let all: [[u32; 2]; 4] = [
        [KIND_WINDOW_SCALE, scale],
        chosen(SACK, KIND_SACK),
        chosen(TIMESTAMPS, KIND_TIMESTAMPS),
        mss,
    ];
    set(fd, IPPROTO_TCP, libc::TCP_REPAIR_OPTIONS, &all)
}

/// Removes the filter, if there is one.
pub(super) fn detach(fd: Fd) -> io::Result<()> {
    match set::<c_int>(fd, SOL_SOCKET, libc::SO_DETACH_FILTER, &0) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        other => other,
    }
}

fn set<T: IntoBytes + Immutable>(fd: Fd, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    let bytes = value.as_bytes();
    crate::step::step();
    // SAFETY: the kernel reads as many bytes as the slice has.
    let result = unsafe {
        libc::setsockopt(
            fd.0,
            level,
            option,
            bytes.as_ptr().cast(),
            bytes.len() as socklen_t,
        )
    };
    os_result(result)
}

fn get<T: FromBytes + IntoBytes + Immutable + Default>(
    fd: Fd,
    level: c_int,
    option: c_int,
) -> io::Result<T> {
    let mut value = T::default();
    let bytes = value.as_mut_bytes();
    let mut len = bytes.len() as socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into the slice, and any bytes are a valid value.
    let result =
        unsafe { libc::getsockopt(fd.0, level, option, bytes.as_mut_ptr().cast(), &raw mut len) };
    os_result(result)?;
    Ok(value)
}
