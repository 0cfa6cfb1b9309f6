//! The record of a connection that rests: the state of one of its TCP connections.
//!
//! Records lie in a memory file of their own, in the order of the slots, two for each: one for each side. Only the
//! repair process writes them; workers map them to read. So a compromised worker cannot have any TCP state made into
//! a socket.

use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;

use dormouse_reactor::memory::{Mapping, Words};
use dormouse_reactor::tcp_state::TcpState;
use dormouse_reactor::{AdoptError, Fd};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// One side of a connection, out of the kernel.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Record {
    /// Everything that TCP needs.
    pub state: TcpState,
    /// When the peer was last heard, in seconds of CLOCK_BOOTTIME.
    heard_s: u32,
    /// The phase; see [`Record::phase`].
    phase: u8,
    /// Probes since then that had no answer.
    pub unanswered: u8,
    /// When an acknowledgement was last sent, in units of [`QUIET_MS`], wrapping.
    acknowledged: u16,
}

const _: () = assert!(size_of::<Record>() == 64, "a cache line");

/// At most one acknowledgement per record is sent in this time.
const QUIET_MS: u64 = 512;

/// Where the connection of a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// There is none here.
    Free,
    /// It rests: the record is all of it.
    Resting,
    /// It is being made into a socket, which a worker may have already.
    Waking,
    /// Its peer has reset it, which its worker does not know yet.
    Gone,
}

impl Record {
    /// In place of a number of probes: the state could not be made into a socket.
    pub const FAILED: u8 = u8::MAX;

    /// Notes that the state could not be made into a socket.
    pub fn fail(&mut self) {
        self.unanswered = Record::FAILED;
    }

    /// A connection that has just left the kernel.
    pub fn resting(state: TcpState, now_ms: u64) -> Record {
        Record {
            state,
            heard_s: (now_ms / 1000) as u32,
            phase: 1,
            ..Record::default()
        }
    }

    /// Records a sign of life.
    pub fn hear(&mut self, now_ms: u64) {
        self.heard_s = (now_ms / 1000) as u32;
        self.unanswered = 0;
    }

    /// How long the peer was not heard.
    pub fn silent_s(&self, now_ms: u64) -> u32 {
        ((now_ms / 1000) as u32).saturating_sub(self.heard_s)
    }

    /// Returns the phase.
    pub fn phase(&self) -> Phase {
        match self.phase {
            1 => Phase::Resting,
            2 => Phase::Waking,
            3 => Phase::Gone,
            _ => Phase::Free,
        }
    }

    /// Sets the phase of a record that is not free.
    pub fn set_phase(&mut self, phase: Phase) {
        self.phase = phase as u8;
    }

    /// Returns `true` if an acknowledgement may be sent now, and counts it.
    pub fn may_acknowledge(&mut self, now_ms: u64) -> bool {
        // Never 0, which is a record that has sent none.
        let now = (now_ms / QUIET_MS) as u16 | 1 << 15;
        let may = self.acknowledged != now;
        self.acknowledged = now;
        may
    }
}

/// All records of a gateway.
#[derive(Debug)]
pub struct Records(Mapping);

impl Records {
    /// Creates a memory file with this many records. It uses memory as they are used.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn create(count: u32) -> io::Result<Records> {
        Mapping::create("tcp-records", len(count)).map(Records)
    }

    /// Maps the memory file that another process created.
    ///
    /// # Errors
    /// It is not sealed, or has another length.
    pub fn adopt(fd: Fd, count: u32) -> Result<Records, AdoptError> {
        Mapping::adopt(fd, len(count)).map(Records)
    }

    /// Returns the descriptor of the memory file.
    pub fn fd(&self) -> Fd {
        self.0.fd()
    }

    /// Returns a descriptor of the memory file that cannot write, for [`RecordsReader::adopt`].
    ///
    /// # Errors
    /// The operating system's error.
    pub fn reader(&self) -> io::Result<Fd> {
        self.0.reader()
    }

    /// Returns the descriptor of the memory file, which this process maps no longer.
    pub fn unmapped(self) -> Fd {
        self.0.fd()
    }

    /// Returns a record.
    pub fn get(&self, number: u32) -> Option<&Record> {
        self.all().get(number as usize)
    }

    /// Returns a record for changes.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut Record> {
        let records = <[Record]>::mut_from_bytes(self.0.bytes_mut()).ok()?;
        records.get_mut(number as usize)
    }

    /// Returns the numbers of all records that may be in use. Looking at others would make them use memory.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn in_use(&self) -> io::Result<Vec<Range<u32>>> {
        let number = |byte: usize| (byte / size_of::<Record>()) as u32;
        let ranges = self.0.data()?.into_iter();
        Ok(ranges
            .map(|bytes| number(bytes.start)..number(bytes.end))
            .collect())
    }

    fn all(&self) -> &[Record] {
        <[Record]>::ref_from_bytes(self.0.bytes()).unwrap_or_default()
    }
}

/// All records of a gateway, for a process that only reads them.
#[derive(Debug)]
pub struct RecordsReader(Words);

impl RecordsReader {
    /// Maps the memory file, of which this process may have a descriptor that cannot write.
    ///
    /// # Errors
    /// It is not sealed, or has another length.
    pub fn adopt(fd: Fd, count: u32) -> Result<RecordsReader, AdoptError> {
        Words::adopt_to_read(fd, len(count)).map(RecordsReader)
    }

    /// Returns a copy of a record, which may be changing. `None`: there is none with this number.
    pub fn get(&self, number: u32) -> Option<Record> {
        let start = number as usize * size_of::<Record>();
        let mut words = [0; size_of::<Record>() / 8];
        for (place, word) in words.iter_mut().enumerate() {
            *word = self.0.word(start + 8 * place)?.load(Ordering::Relaxed);
        }
        Some(zerocopy::transmute!(words))
    }
}

/// The length of the file: whole pages.
fn len(count: u32) -> usize {
    (count as usize * size_of::<Record>()).next_multiple_of(dormouse_reactor::memory::PAGE)
}
