//! Entries of the connection log: the facts of a line that are not in the slot. There is an entry beside
//! each slot, in shared memory, so that a line is complete even if workers have died meanwhile.
//!
//! Entries are touched only while there is a connection log. The entry of a free slot is all zeroes.
//! Pages without used entries are returned to the system.

use crate::fingerprint::ShortFingerprint;
use dormouse_engine::ClientStanding;
use dormouse_reactor::memory::{Mapping, PAGE};
use dormouse_reactor::{AdoptError, Fd};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version of [`LogEntry`]. A binary does not touch entries of another version, and has no connection log
/// until the next start.
pub const LOG_ENTRY_VERSION: u32 = 2;

/// Maximum length of a stored protocol name.
const ALPN_MAX: usize = 16;
/// Bytes for the protocol's name, then the server name, and from the end on the [`FACTS`]. A server name that does
/// not fit is cut.
const TEXT_BYTES: usize = 80;

/// The entry of a connection. All zeroes: unused.
#[repr(C)]
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct LogEntry {
    /// CLOCK_BOOTTIME when the connection was accepted.
    pub accepted_ms: u64,
    /// Plaintext bytes from the client; for pass-through, the TLS bytes.
    pub received: u64,
    /// Plaintext bytes to the client; for pass-through, the TLS bytes.
    pub sent: u64,
    ip: [u8; 16],
    port: u16,
    flags: u8,
    /// Code of the side that ended its direction first, defined by the data path; 0: neither.
    pub first_end: u8,
    /// Code of the close reason, defined by the data path; 0: not closed.
    pub end: u8,
    sni_len: u8,
    alpn_len: u8,
    /// Code of the cipher suite, defined by the data path; 0: unknown.
    pub suite: u8,
    text: [u8; TEXT_BYTES],
}

const ENTRY_BYTES: usize = size_of::<LogEntry>();
/// Entries per page.
const PER_PAGE: u32 = (PAGE / ENTRY_BYTES) as u32;
/// Unused pages that are kept, so that connection churn does not cost a system call per page.
const SPARE_PAGES: usize = 8;

const _: () = assert!(ENTRY_BYTES == 128);

const USED: u8 = 1;
const HAS_ADDRESS: u8 = 2;
const RESUMED: u8 = 4;
/// The connection is warm: it has no local client yet.
const WAITS: u8 = 8;
const SNI_IS_CUT: u8 = 16;
const HAS_OWN: u8 = 32;
const HAS_PEER: u8 = 64;
const HAS_STANDING: u8 = 128;
/// The facts at the end of the text, from the end on.
const FACTS: [u8; 3] = [HAS_OWN, HAS_PEER, HAS_STANDING];
/// Length of each.
const FACT_BYTES: usize = 8;

const _: () = assert!(ShortFingerprint::BYTES == FACT_BYTES && ClientStanding::LEN == FACT_BYTES);

/// Facts known at the start of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Opened<'a> {
    /// CLOCK_BOOTTIME when the connection was accepted.
    pub accepted_ms: u64,
    /// The client's address. `None`: a unix socket.
    pub client: Option<SocketAddr>,
    /// The requested server name.
    pub sni: Option<&'a str>,
    /// The negotiated application protocol.
    pub alpn: Option<&'a [u8]>,
    /// Whether a session was resumed.
    pub resumed: bool,
    /// Code of the cipher suite, defined by the data path; 0: unknown.
    pub suite: u8,
    /// Our certificate.
    pub certificate: Option<ShortFingerprint>,
    /// The certificate of the TLS peer.
    pub peer_certificate: Option<ShortFingerprint>,
    /// What admitted the client's certificate.
    pub standing: Option<ClientStanding>,
}

impl LogEntry {
    /// Creates the entry of a new connection.
    pub fn new(opened: &Opened<'_>) -> LogEntry {
        let mut entry = LogEntry::read_from_bytes(&[0; ENTRY_BYTES])
            .unwrap_or_else(|_| unreachable!("the length is that of an entry"));
        entry.flags = USED | if opened.resumed { RESUMED } else { 0 };
        entry.suite = opened.suite;
        let facts = [
            opened.certificate.map(|it| it.0),
            opened.peer_certificate.map(|it| it.0),
            opened.standing.map(|it| it.0),
        ];
        let mut room = &mut entry.text[..];
        for (flag, fact) in FACTS.into_iter().zip(facts) {
            let Some(fact) = fact else { continue };
            entry.flags |= flag;
            let (before, last) = room.split_at_mut(room.len() - FACT_BYTES);
            last.copy_from_slice(&fact);
            room = before;
        }
        let (alpn, sni) = room.split_at_mut(opened.alpn.map_or(0, |name| name.len().min(ALPN_MAX)));
        entry.alpn_len = store(opened.alpn.unwrap_or_default(), alpn);
        let name = opened.sni.unwrap_or_default();
        if name.len() > sni.len() {
            entry.flags |= SNI_IS_CUT;
        }
        entry.sni_len = store(name.as_bytes(), sni);
        entry.set_client(opened.client, opened.accepted_ms);
        entry
    }

    /// Creates the entry of a new warm connection.
    pub fn waiting(opened: &Opened<'_>) -> LogEntry {
        let mut entry = LogEntry::new(opened);
        entry.flags |= WAITS;
        entry
    }

    /// Sets the client of the connection.
    pub fn set_client(&mut self, client: Option<SocketAddr>, now_ms: u64) {
        self.accepted_ms = now_ms;
        self.flags &= !WAITS;
        if let Some(address) = client {
            self.flags |= HAS_ADDRESS;
            self.port = address.port();
            self.ip = match address.ip() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                IpAddr::V6(ip) => ip.octets(),
            };
        }
    }

    /// Whether the entry is used and its connection has a client.
    pub fn has_client(&self) -> bool {
        self.flags & (USED | WAITS) == USED
    }

    /// Whether the entry is used.
    pub fn is_used(&self) -> bool {
        self.flags & USED != 0
    }

    /// The client's address. `None`: a unix socket.
    pub fn client(&self) -> Option<SocketAddr> {
        let ip = Ipv6Addr::from(self.ip).to_canonical();
        (self.flags & HAS_ADDRESS != 0).then(|| SocketAddr::new(ip, self.port))
    }

    /// Whether a session was resumed.
    pub fn resumed(&self) -> bool {
        self.flags & RESUMED != 0
    }

    /// The server name, and whether it is cut.
    pub fn sni(&self) -> Option<(&str, bool)> {
        let start = usize::from(self.alpn_len);
        let bytes = self.text.get(start..start + usize::from(self.sni_len))?;
        let name = std::str::from_utf8(bytes)
            .ok()
            .filter(|name| !name.is_empty())?;
        Some((name, self.flags & SNI_IS_CUT != 0))
    }

    /// The application protocol.
    pub fn alpn(&self) -> Option<&[u8]> {
        let name = self.text.get(..usize::from(self.alpn_len))?;
        (!name.is_empty()).then_some(name)
    }

    /// Our certificate. `None`: there is none, or it is not known.
    pub fn certificate(&self) -> Option<ShortFingerprint> {
        self.fact(HAS_OWN).map(ShortFingerprint)
    }

    /// The certificate of the TLS peer. `None`: it sent none, or it is not known.
    pub fn peer_certificate(&self) -> Option<ShortFingerprint> {
        self.fact(HAS_PEER).map(ShortFingerprint)
    }

    /// What admitted the client's certificate. `None`: it sent none, or it is not known.
    pub fn standing(&self) -> Option<ClientStanding> {
        self.fact(HAS_STANDING).map(ClientStanding)
    }

    fn fact(&self, flag: u8) -> Option<[u8; FACT_BYTES]> {
        let present = FACTS.into_iter().filter(|one| self.flags & one != 0);
        let place = present.into_iter().position(|one| one == flag)?;
        let end = TEXT_BYTES - place * FACT_BYTES;
        self.text[..end].last_chunk().copied()
    }
}

/// Stores as much of `from` as fits. Returns the stored length.
fn store(from: &[u8], to: &mut [u8]) -> u8 {
    let len = from.len().min(to.len());
    to[..len].copy_from_slice(&from[..len]);
    len as u8
}

/// An entry for each slot of a worker.
#[derive(Debug)]
pub struct LogEntries {
    memory: Mapping,
    /// Pages without used entries that were not returned to the system.
    spare: Vec<u32>,
}

impl LogEntries {
    /// Creates entries for this number of slots. Unused entries take no memory.
    pub fn create(slots: u32) -> io::Result<LogEntries> {
        let memory = Mapping::create("dormouse-log-entries", len(slots))?;
        Ok(LogEntries {
            memory,
            spare: Vec::new(),
        })
    }

    /// Maps the entries that another process has created.
    pub fn adopt(fd: Fd, slots: u32) -> Result<LogEntries, AdoptError> {
        let memory = Mapping::adopt(fd, len(slots))?;
        Ok(LogEntries {
            memory,
            spare: Vec::new(),
        })
    }

    /// The descriptor of the memory file.
    pub fn fd(&self) -> Fd {
        self.memory.fd()
    }

    /// The entry of a slot, if it is used.
    pub fn get_mut(&mut self, index: u32) -> Option<&mut LogEntry> {
        let bytes = self.memory.bytes_mut().get_mut(range(index))?;
        let entry = LogEntry::mut_from_bytes(bytes).ok()?;
        entry.is_used().then_some(entry)
    }

    /// Writes the entry of a slot.
    pub fn set(&mut self, index: u32, entry: &LogEntry) {
        if let Some(room) = self.memory.bytes_mut().get_mut(range(index)) {
            room.copy_from_slice(entry.as_bytes());
            self.spare.retain(|&page| page != index / PER_PAGE);
        }
    }

    /// Clears the entry of a slot. `is_last`: all other slots with entries in the same page are free.
    pub fn clear(&mut self, index: u32, is_last: bool) {
        self.memory.wipe(range(index));
        if is_last {
            self.spare.push(index / PER_PAGE);
            if self.spare.len() > SPARE_PAGES {
                let at = (0..self.spare.len()).max_by_key(|&at| self.spare[at]);
                let page = self.spare.swap_remove(at.unwrap_or(0)) as usize;
                // A failure only costs memory.
                let _ = self.memory.punch(page * PAGE..(page + 1) * PAGE);
            }
        }
    }

    /// Clears all entries, and returns their memory to the system.
    pub fn clear_all(&mut self) -> io::Result<()> {
        self.spare.clear();
        self.memory.punch(0..self.memory.len())
    }

    /// The slots whose entries are in the same page as this slot's.
    pub fn neighbours(index: u32) -> Range<u32> {
        let first = index / PER_PAGE * PER_PAGE;
        first..first + PER_PAGE
    }
}

fn range(index: u32) -> Range<usize> {
    let start = index as usize * ENTRY_BYTES;
    start..start + ENTRY_BYTES
}

fn len(slots: u32) -> usize {
    (slots as usize * ENTRY_BYTES).next_multiple_of(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_stores_all_facts() {
        let name = "a".repeat(TEXT_BYTES);
        let [own, peer] = [1, 2].map(|byte| ShortFingerprint([byte; 8]));
        let of_both = TEXT_BYTES - 3 * FACT_BYTES - "h2".len();
        for (client, sni, kept, certificate, peer_certificate) in [
            ("192.0.2.7:443", "a.example", "a.example", None, None),
            ("192.0.2.7:443", &name[..78], &name[..78], None, None),
            ("[2001:db8::7]:1", &name, &name[..70], Some(own), None),
            ("[2001:db8::7]:1", &name, &name[..70], None, Some(peer)),
            (
                "[2001:db8::7]:1",
                &name,
                &name[..of_both],
                Some(own),
                Some(peer),
            ),
        ] {
            let cut = sni != kept;
            let client = client.parse().expect("an address");
            let mut entry = LogEntry::new(&Opened {
                accepted_ms: 5,
                client: Some(client),
                sni: Some(sni),
                alpn: Some(b"h2"),
                resumed: true,
                suite: 3,
                certificate,
                peer_certificate,
                standing: certificate
                    .and(peer_certificate)
                    .map(|_| ClientStanding([3; 8])),
            });
            let standing = entry.standing().map(|it| it.0);
            assert_eq!(standing, certificate.and(peer_certificate).map(|_| [3; 8]));
            assert_eq!(entry.certificate(), certificate);
            assert_eq!(entry.peer_certificate(), peer_certificate);
            assert_eq!(entry.client(), Some(client));
            assert_eq!(entry.sni(), Some((kept, cut)));
            assert_eq!(entry.alpn(), Some(&b"h2"[..]));
            assert!(entry.resumed() && entry.has_client());
            entry = LogEntry::waiting(&Opened::default());
            assert!(entry.is_used() && !entry.has_client());
            entry.set_client(None, 9);
            assert!(entry.has_client() && entry.client().is_none());
            assert_eq!(
                (entry.sni(), entry.alpn(), entry.accepted_ms),
                (None, None, 9)
            );
        }
    }

    #[test]
    fn unused_pages_are_returned() {
        let slots = 4096;
        let mut entries = LogEntries::create(slots).expect("memory");
        assert_eq!(
            entries.memory.resident_bytes().expect("the resident bytes"),
            0
        );
        for index in 0..slots {
            entries.set(index, &LogEntry::new(&Opened::default()));
        }
        assert!(entries.get_mut(slots - 1).is_some());
        assert!(entries.get_mut(slots).is_none(), "there is no such slot");
        for index in 0..slots {
            let is_last = index + 1 == LogEntries::neighbours(index).end;
            entries.clear(index, is_last);
            // Reading a returned page would allocate it again.
            assert!(is_last || entries.get_mut(index).is_none());
        }
        let left = entries.memory.resident_bytes().expect("the resident bytes");
        assert_eq!(left, SPARE_PAGES * PAGE);
        let mut again = LogEntries::adopt(entries.fd(), slots).expect("the same");
        assert_eq!(again.fd(), entries.fd());
        again.set(7, &LogEntry::new(&Opened::default()));
        again.clear_all().expect("returned");
        let left = again.memory.resident_bytes().expect("the resident bytes");
        assert_eq!(left, 0);
        assert!(entries.get_mut(7).is_none());
        entries.fd().close();
    }
}
