//! The system call bpf(2): five of its commands.

use std::io;

use zerocopy::{Immutable, IntoBytes};

use crate::Fd;

/// What the loader puts in the place of a symbol of programs.c.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Symbol {
    Table,
    Ring,
    Sinks,
    Counters,
    Key0,
    Key1,
    Buckets,
}

/// The value of a symbol.
pub(super) enum Value {
    Map(Fd),
    Number(u64),
}

/// A program before it is loaded.
pub(super) struct Code {
    pub(super) instructions: &'static [u64],
    /// Indices of instructions, each of which loads 64 bits in two words.
    pub(super) symbols: &'static [(usize, Symbol)],
}

/// <linux/bpf.h>.
#[derive(Clone, Copy)]
pub(super) enum ProgramKind {
    SocketFilter = 1,
    SkLookup = 30,
}

#[derive(Clone, Copy)]
pub(super) enum MapKind {
    Array = 2,
    SockMap = 15,
    Ring = 27,
}

#[derive(Clone, Copy)]
enum Command {
    MapCreate = 0,
    MapUpdate = 2,
    ProgramLoad = 5,
    LinkCreate = 28,
}

const ATTACH_SK_LOOKUP: u32 = 36;
/// The memory of an array can be mapped.
const MAPPABLE: u32 = 1 << 10;
/// In the first word of an instruction: the register that says that its number is a map's descriptor.
const PSEUDO_MAP_FD: u64 = 1 << 12;
/// No function that the programs call demands a GPL program.
const LICENSE: &[u8] = b"Apache-2.0 OR MIT\0";

/// Creates a map. Arrays can be mapped.
pub(super) fn create_map(kind: MapKind, value_len: u32, entries: u32) -> io::Result<Fd> {
    let (key_len, flags) = match kind {
        MapKind::Array => (4, MAPPABLE),
        MapKind::SockMap => (4, 0),
        MapKind::Ring => (0, 0),
    };
    let attributes: [u32; 5] = [kind as u32, key_len, value_len, entries, flags];
    bpf(Command::MapCreate, &attributes).map(Fd)
}

/// Puts a listener into a map of sockets.
pub(super) fn put_socket(map: Fd, index: u32, socket: Fd) -> io::Result<()> {
    let value = u64::try_from(socket.0).map_err(|_| io::ErrorKind::InvalidInput)?;
    let attributes: [u64; 4] = [map.0 as u64, address(&index), address(&value), 0];
    bpf(Command::MapUpdate, &attributes).map(|_| ())
}

/// Loads a program; `value` gives the value of each symbol.
pub(super) fn load(
    kind: ProgramKind,
    code: &Code,
    value: impl Fn(Symbol) -> Value,
) -> io::Result<Fd> {
    let mut words = code.instructions.to_vec();
    for &(at, symbol) in code.symbols {
        // The halves of the number are in the upper halves of two words.
        let (flag, number) = match value(symbol) {
            Value::Map(fd) => (PSEUDO_MAP_FD, u64::from(fd.0.cast_unsigned())),
            Value::Number(number) => (0, number),
        };
        if let Some([low, high]) = words.get_mut(at..at + 2) {
            *low = *low & 0xffff_ffff | number << 32 | flag;
            *high = *high & 0xffff_ffff | number >> 32 << 32;
        }
    }
    #[derive(IntoBytes, Immutable)]
    #[repr(C)]
    struct Attributes {
        kind: u32,
        count: u32,
        instructions: u64,
        license: u64,
        log: [u32; 2],
        log_address: u64,
        kernel_and_flags: [u32; 2],
        name: [u8; 16],
        interface: u32,
        attach: u32,
    }
    let attributes = Attributes {
        kind: kind as u32,
        count: words.len() as u32,
        instructions: words.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        log: [0; 2],
        log_address: 0,
        kernel_and_flags: [0; 2],
        name: *b"dormouse\0\0\0\0\0\0\0\0",
        interface: 0,
        attach: match kind {
            ProgramKind::SkLookup => ATTACH_SK_LOOKUP,
            ProgramKind::SocketFilter => 0,
        },
    };
    bpf(Command::ProgramLoad, &attributes).map(Fd)
}

/// Attaches a program of [`ProgramKind::SkLookup`] to this process' network, until the result is closed.
pub(super) fn attach_to_network(program: Fd) -> io::Result<Fd> {
    let network = std::fs::File::open("/proc/thread-self/ns/net")?;
    let network = Fd::from_owned(network.into());
    let attributes: [u32; 4] = [
        program.0.cast_unsigned(),
        network.0.cast_unsigned(),
        ATTACH_SK_LOOKUP,
        0,
    ];
    let link = bpf(Command::LinkCreate, &attributes);
    network.close();
    link.map(Fd)
}

fn address<T>(value: &T) -> u64 {
    std::ptr::from_ref(value) as u64
}

fn bpf<T: IntoBytes + Immutable>(command: Command, attributes: &T) -> io::Result<i32> {
    let bytes = attributes.as_bytes();
    // SAFETY: the kernel reads as many bytes as there are, and what their addresses point to: the instructions, the
    // license, a key and a value, all of which live in the caller until the call ends. No command here writes.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command as libc::c_int,
            bytes.as_ptr(),
            bytes.len(),
        )
    };
    match i32::try_from(result) {
        Ok(descriptor) if descriptor >= 0 => Ok(descriptor),
        _ => Err(io::Error::last_os_error()),
    }
}
