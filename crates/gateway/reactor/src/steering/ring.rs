//! The ring of packets that came for resting connections: written by the programs, read by one process.
//!
//! It is a BPF ring buffer: a page with the reader's position, which the reader writes; a page with the writers'
//! position; and the data, mapped twice in a row, so that no record is cut. What is not yet read survives the
//! reader.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;

use zerocopy::{FromBytes, KnownLayout};

use super::table::Digest;
use crate::Fd;
use crate::memory::{PAGE, Words};

/// Bits of a record's first word, the rest of which is its length.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
const RECORD_HEADER: usize = 8;

/// `struct packet` of programs.c up to the bytes.
#[derive(FromBytes, KnownLayout)]
#[repr(C)]
struct PacketHeader {
    digest: u64,
    /// 0: the packet could not be read.
    len: u32,
    family: u16,
    ports: [[u8; 2]; 2],
    addresses: [u8; 32],
    _unused: [u16; 3],
}

/// Bytes of a packet that fit.
const BYTES_MAX: usize = 65_512;

/// The reader of the ring.
#[derive(Debug)]
pub struct Ring {
    map: Fd,
    reader: Words,
    /// The writers' page and the data.
    written: Words,
    page: usize,
    len: usize,
    buffer: Vec<u8>,
}

/// A packet that found a sink or a mute socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Captured<'a> {
    /// The digest of its addresses.
    pub digest: Digest,
    /// Its sender.
    pub source: SocketAddr,
    /// The address that it was sent to.
    pub destination: SocketAddr,
    /// Its length from the TCP header on. If it is longer than `bytes`, the end was cut off.
    pub len: usize,
    /// Its first bytes, from the TCP header on.
    pub bytes: &'a [u8],
}

impl Ring {
    /// Maps the ring `map` of `len` bytes.
    pub(super) fn open(map: Fd, len: usize) -> io::Result<Ring> {
        let page = PAGE;
        Ok(Ring {
            map,
            reader: Words::window(map, 0, page)?,
            written: Words::window_to_read(map, page, page + 2 * len)?,
            page,
            len,
            buffer: Vec::with_capacity(size_of::<PacketHeader>() + BYTES_MAX),
        })
    }

    /// Returns the descriptor that is readable when there is a packet.
    pub fn fd(&self) -> Fd {
        self.map
    }

    /// Whether so much is unread that packets are dropped, or soon may be.
    pub fn is_crowded(&self) -> bool {
        let read = self.reader.word_at(0).load(Ordering::Relaxed);
        let written = self.written.word_at(0).load(Ordering::Acquire);
        // A packet of the greatest length needs a sixtieth.
        written.saturating_sub(read) as usize > self.len / 4 * 3
    }

    /// Takes the next packet, if there is one.
    pub fn take(&mut self) -> Option<Captured<'_>> {
        loop {
            let position = self.reader.word_at(0);
            let at = position.load(Ordering::Relaxed);
            if at >= self.written.word_at(0).load(Ordering::Acquire) {
                return None;
            }
            let start = self.page + (at as usize & (self.len - 1));
            let header = self.written.word32_at(start).load(Ordering::Acquire);
            if header & BUSY != 0 {
                return None;
            }
            let len = (header & !DISCARDED) as usize;
            self.buffer.clear();
            for word in (0..len.min(self.buffer.capacity())).step_by(8) {
                let word = self.written.word_at(start + RECORD_HEADER + word);
                let bytes = word.load(Ordering::Relaxed).to_ne_bytes();
                self.buffer.extend_from_slice(&bytes);
            }
            let next = at + (RECORD_HEADER + len).next_multiple_of(8) as u64;
            position.store(next, Ordering::Release);
            if header & DISCARDED == 0 && parse(&self.buffer).is_some() {
                return parse(&self.buffer);
            }
        }
    }
}

fn parse(record: &[u8]) -> Option<Captured<'_>> {
    let (header, bytes) = PacketHeader::read_from_prefix(record).ok()?;
    let [source, destination] = match header.family {
        4 => {
            let (v4, _) = header.addresses.as_chunks::<4>();
            [0, 1].map(|i| v4.get(i).map(|octets| IpAddr::from(*octets)))
        }
        _ => {
            let (v6, _) = header.addresses.as_chunks::<16>();
            [0, 1].map(|i| v6.get(i).map(|octets| IpAddr::from(*octets)))
        }
    };
    let [source_port, destination_port] = header.ports.map(u16::from_be_bytes);
    let len = header.len as usize;
    (len > 0).then_some(Captured {
        digest: Digest(header.digest),
        source: SocketAddr::new(source?, source_port),
        destination: SocketAddr::new(destination?, destination_port),
        len,
        bytes: bytes.get(..len).unwrap_or(bytes),
    })
}
