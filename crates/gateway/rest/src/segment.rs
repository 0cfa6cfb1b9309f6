//! TCP segments: the header of a packet that came, and packets that are sent for a record.
//!
//! Everything that is read here comes from anyone on the network. Lengths are checked once, in [`Segment::parse`].

use std::net::{IpAddr, SocketAddr};

use dormouse_reactor::steering::Captured;
use dormouse_reactor::tcp_state::TcpState;

/// Length of a TCP header without options.
const HEADER_LEN: usize = 20;
/// Offsets in a TCP header.
const FLAGS_AT: usize = 13;
const CHECKSUM_AT: usize = 16;
/// The option that carries time stamps (RFC 7323 §3.2).
const TIMESTAMPS: u8 = 8;
const TIMESTAMPS_LEN: u8 = 10;
const PROTOCOL: u8 = 6;

/// The flags of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flags(pub u8);

impl Flags {
    /// No more data follows.
    pub const FIN: Flags = Flags(1);
    /// The first segment of a connection.
    pub const SYN: Flags = Flags(2);
    /// The end of a connection.
    pub const RST: Flags = Flags(4);
    /// Data that is to be delivered at once.
    pub const PSH: Flags = Flags(8);
    /// The acknowledgement number is valid.
    pub const ACK: Flags = Flags(16);

    /// Whether one of `others` is set.
    pub fn has(self, others: Flags) -> bool {
        self.0 & others.0 != 0
    }
}

/// The parts of a TCP header that a decision needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Its flags.
    pub flags: Flags,
    /// Number of its first byte.
    pub sequence: u32,
    /// Number of the next byte that its sender expects.
    pub acknowledgement: u32,
    /// The window field, not scaled.
    pub window: u16,
    /// Bytes of data.
    pub data_len: u32,
    /// The sender's time stamp.
    pub timestamp: Option<u32>,
}

impl Segment {
    /// Reads a header. `len` is the length of the whole segment, of which `bytes` may be the beginning.
    pub fn parse(bytes: &[u8], len: usize) -> Option<Segment> {
        let (header, _) = bytes.split_first_chunk::<HEADER_LEN>()?;
        let [
            _,
            _,
            _,
            _,
            s0,
            s1,
            s2,
            s3,
            a0,
            a1,
            a2,
            a3,
            offset,
            flags,
            w0,
            w1,
            ..,
        ] = *header;
        let header_len = usize::from(offset >> 4) * 4;
        let options = bytes.get(HEADER_LEN..header_len)?;
        let data_len = u32::try_from(len.checked_sub(header_len)?).ok()?;
        Some(Segment {
            flags: Flags(flags),
            sequence: u32::from_be_bytes([s0, s1, s2, s3]),
            acknowledgement: u32::from_be_bytes([a0, a1, a2, a3]),
            window: u16::from_be_bytes([w0, w1]),
            data_len,
            timestamp: timestamp(options),
        })
    }

    /// The sequence number after this segment.
    pub fn end(&self) -> u32 {
        let flags = u32::from(self.flags.has(Flags::SYN)) + u32::from(self.flags.has(Flags::FIN));
        self.sequence
            .wrapping_add(self.data_len)
            .wrapping_add(flags)
    }
}

/// The sender's time stamp in the options of a header.
fn timestamp(mut options: &[u8]) -> Option<u32> {
    loop {
        options = match options {
            [0, ..] | [] => return None,
            [1, rest @ ..] => rest,
            [TIMESTAMPS, TIMESTAMPS_LEN, a, b, c, d, ..] => {
                return Some(u32::from_be_bytes([*a, *b, *c, *d]));
            }
            [_, len, ..] => options.get(usize::from(*len).max(2)..)?,
            [_] => return None,
        };
    }
}

/// What is known about the bytes of a captured packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checked {
    /// They are as they were sent.
    Whole,
    /// These are, and more were cut off.
    Beginning,
    /// Nothing: the packet was cut, and its checksum covers what is missing.
    Unknown,
    /// They were damaged on the way, which the kernel finds out only later.
    Damaged,
}

/// Checks a packet's checksum, which the kernel has not done for long packets when a filter sees them.
pub fn check(packet: &Captured<'_>) -> Checked {
    let Some(field) = packet.bytes.get(CHECKSUM_AT..CHECKSUM_AT + 2) else {
        return Checked::Damaged;
    };
    let is_cut = packet.bytes.len() < packet.len;
    let pseudo = pseudo_header(packet.source, packet.destination, packet.len);
    // A packet from this machine, or one that was merged from several that the kernel has checked, carries the sum of
    // the pseudo-header only, for a network card to complete.
    let is_for_hardware = field == fold(pseudo).to_be_bytes();
    match (is_cut, is_for_hardware) {
        (true, true) => Checked::Beginning,
        (true, false) => Checked::Unknown,
        (false, true) => Checked::Whole,
        (false, false) if fold(pseudo + sum(packet.bytes)) == u16::MAX => Checked::Whole,
        (false, false) => Checked::Damaged,
    }
}

/// Writes a captured packet as its sender sent it, with IP header and checksum. One that was cut is shorter, and
/// does not end the stream.
pub fn copy(packet: &Captured<'_>, out: &mut Vec<u8>) {
    begin(packet.source, packet.destination, packet.bytes.len(), out);
    let start = out.len();
    out.extend_from_slice(packet.bytes);
    if packet.bytes.len() < packet.len
        && let Some(flags) = out.get_mut(start + FLAGS_AT)
    {
        *flags &= !(Flags::FIN.0 | Flags::PSH.0);
    }
    finish(packet.source, packet.destination, start, out);
}

/// Writes an acknowledgement that a record's connection sends. With `is_probe` it repeats the number before the
/// next one, which a live peer answers. `echo` is the peer's time stamp, if it is known.
pub fn acknowledge(state: &TcpState, is_probe: bool, echo: u32, out: &mut Vec<u8>) {
    let timestamp = state.timestamp();
    let len = HEADER_LEN + if timestamp.is_some() { 12 } else { 0 };
    let (source, destination) = (state.local(), state.peer());
    begin(source, destination, len, out);
    let start = out.len();
    let sequence = state.send_next().wrapping_sub(is_probe.into());
    out.extend_from_slice(&source.port().to_be_bytes());
    out.extend_from_slice(&destination.port().to_be_bytes());
    out.extend_from_slice(&sequence.to_be_bytes());
    out.extend_from_slice(&state.receive_next().to_be_bytes());
    out.extend_from_slice(&[(len as u8 / 4) << 4, Flags::ACK.0]);
    out.extend_from_slice(&state.window_field().to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    if let Some(timestamp) = timestamp {
        out.extend_from_slice(&[1, 1, TIMESTAMPS, TIMESTAMPS_LEN]);
        out.extend_from_slice(&timestamp.to_be_bytes());
        out.extend_from_slice(&echo.to_be_bytes());
    }
    finish(source, destination, start, out);
}

/// Writes an IP header for a segment of `len` bytes.
fn begin(source: SocketAddr, destination: SocketAddr, len: usize, out: &mut Vec<u8>) {
    out.clear();
    match (source.ip(), destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let [high, low] = ((20 + len) as u16).to_be_bytes();
            // No fragments; the kernel writes the checksum.
            out.extend_from_slice(&[0x45, 0, high, low, 0, 0, 0x40, 0, 64, PROTOCOL, 0, 0]);
            out.extend_from_slice(&source.octets());
            out.extend_from_slice(&destination.octets());
        }
        (source, destination) => {
            let [high, low] = (len as u16).to_be_bytes();
            out.extend_from_slice(&[0x60, 0, 0, 0, high, low, PROTOCOL, 64]);
            out.extend_from_slice(&octets(source));
            out.extend_from_slice(&octets(destination));
        }
    }
}

/// Writes the checksum of the segment that begins at `start`.
fn finish(source: SocketAddr, destination: SocketAddr, start: usize, out: &mut [u8]) {
    let Some(segment) = out.get_mut(start..) else {
        return;
    };
    let pseudo = pseudo_header(source, destination, segment.len());
    if let Some(field) = segment.get_mut(CHECKSUM_AT..CHECKSUM_AT + 2) {
        field.fill(0);
    }
    let checksum = !fold(pseudo + sum(segment));
    if let Some(field) = segment.get_mut(CHECKSUM_AT..CHECKSUM_AT + 2) {
        field.copy_from_slice(&checksum.to_be_bytes());
    }
}

fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The sum over addresses, protocol and length (RFC 9293 §3.1).
fn pseudo_header(source: SocketAddr, destination: SocketAddr, len: usize) -> u64 {
    let address = |ip| match ip {
        IpAddr::V4(v4) => sum(&v4.octets()),
        IpAddr::V6(v6) => sum(&v6.octets()),
    };
    address(source.ip()) + address(destination.ip()) + u64::from(PROTOCOL) + len as u64
}

fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<2>();
    let words = words
        .iter()
        .map(|word| u64::from(u16::from_be_bytes(*word)));
    let rest = rest.first().map(|byte| u64::from(*byte) << 8);
    words.chain(rest).sum()
}

fn fold(mut sum: u64) -> u16 {
    while sum > u64::from(u16::MAX) {
        sum = (sum & u64::from(u16::MAX)) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests;
