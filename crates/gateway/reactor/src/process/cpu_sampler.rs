//! Samples what processors execute: which instruction of which process, about 500 times a second.
//!
//! A timer of the kernel interrupts each processor and writes a record into a ring that this process maps: the process
//! and the address of the instruction, and nothing else. The sampled processes are not stopped and notice nothing.
//! This requires permission to observe all processes: root, `CAP_PERFMON`, or `kernel.perf_event_paranoid` at most 0.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::mm::{MapFlags, ProtFlags};

use crate::memory::PAGE;

/// What a processor executed at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuSample {
    /// The running process.
    pub pid: i32,
    /// Address of its current instruction.
    pub address: u64,
    /// Whether the process was in the kernel.
    pub in_kernel: bool,
}

/// Samples all processors until it is dropped.
#[derive(Debug)]
pub struct CpuSampler {
    rings: Vec<Ring>,
}

/// Samples per second and processor.
const FREQUENCY: u64 = 499;
/// Pages of a ring's data: a power of two. 128 pages hold 21,000 records, some 40 s.
const DATA_PAGES: usize = 128;
/// Maximum number of sampled processors.
const PROCESSORS_MAX: usize = 1024;

// linux/perf_event.h
const TYPE_SOFTWARE: u32 = 1;
const SW_CPU_CLOCK: u64 = 0;
const SAMPLE_IP: u64 = 1;
const SAMPLE_TID: u64 = 2;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const EXCLUDE_IDLE: u64 = 1 << 7;
const BY_FREQUENCY: u64 = 1 << 10;
const CLOSE_ON_EXEC: u64 = 1 << 3;
const RECORD_SAMPLE: u32 = 9;
const MODE_MASK: u16 = 7;
const MODE_KERNEL: u16 = 1;
/// Offsets in the first page of a ring: where the kernel writes next, and up to where this process has read.
const HEAD_AT: usize = 1024;
const TAIL_AT: usize = 1032;
/// Type, mode and length of a record; then address, process and thread.
const HEADER: usize = 8;
const RECORD: usize = 24;

/// `struct perf_event_attr`, its first version.
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    frequency: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    breakpoint_address: u64,
}

const _: () = assert!(size_of::<Attributes>() == 64);

impl CpuSampler {
    /// CPU time for which one sample stands.
    pub const PERIOD: Duration = Duration::from_nanos(1_000_000_000 / FREQUENCY);

    /// Starts sampling.
    ///
    /// # Errors
    /// The operating system's error, usually a missing permission.
    pub fn start() -> io::Result<Self> {
        let processors = std::thread::available_parallelism()?.get();
        let mut rings = Vec::new();
        // Processor numbers may have gaps: missing ones are skipped.
        for processor in 0..PROCESSORS_MAX {
            match Ring::open(processor as i32) {
                Ok(ring) => rings.push(ring),
                Err(error) if rings.is_empty() && processor == 0 => return Err(error),
                Err(_) if processor >= processors => break,
                Err(_) => {}
            }
        }
        Ok(Self { rings })
    }

    /// The samples since the last call.
    pub fn take(&mut self) -> Vec<CpuSample> {
        let mut samples = Vec::new();
        for ring in &mut self.rings {
            ring.take(&mut samples);
        }
        samples
    }
}

/// The records of one processor.
#[derive(Debug)]
struct Ring {
    _event: OwnedFd,
    base: NonNull<u8>,
}

impl Ring {
    const LEN: usize = (1 + DATA_PAGES) * PAGE;

    fn open(processor: i32) -> io::Result<Self> {
        let attributes = Attributes {
            kind: TYPE_SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config: SW_CPU_CLOCK,
            frequency: FREQUENCY,
            sample_type: SAMPLE_IP | SAMPLE_TID,
            read_format: 0,
            flags: EXCLUDE_HYPERVISOR | EXCLUDE_IDLE | BY_FREQUENCY,
            wakeup: 0,
            breakpoint: 0,
            breakpoint_address: 0,
        };
        // SAFETY: the kernel reads `size` bytes of a structure of that size, and returns a descriptor.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                -1_i32,
                processor,
                -1_i32,
                CLOSE_ON_EXEC,
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = i32::try_from(fd).map_err(io::Error::other)?;
        // SAFETY: the descriptor is new, and has no other owner.
        let event = unsafe { OwnedFd::from_raw_fd(fd) };
        debug_assert!(event.as_raw_fd() >= 0);
        // SAFETY: this requests a new range of addresses (null hint, no MAP_FIXED).
        let base = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                Self::LEN,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                event.as_fd(),
                0,
            )?
        };
        let base = NonNull::new(base.cast()).ok_or(rustix::io::Errno::NOMEM)?;
        Ok(Self {
            _event: event,
            base,
        })
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: both offsets lie in the first page, which is mapped as long as self lives, and are aligned; the
        // kernel accesses these words atomically too.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// A byte of the data, which wraps around.
    fn byte(&self, position: u64) -> u8 {
        let offset = PAGE + (position % (DATA_PAGES * PAGE) as u64) as usize;
        // SAFETY: the offset lies within the mapping. The kernel does not write between tail and head.
        unsafe { ptr::read_volatile(self.base.as_ptr().add(offset)) }
    }

    fn bytes<const N: usize>(&self, position: u64) -> [u8; N] {
        std::array::from_fn(|index| self.byte(position + index as u64))
    }

    fn take(&mut self, into: &mut Vec<CpuSample>) {
        let head = self.word(HEAD_AT).load(Ordering::Acquire);
        let mut at = self.word(TAIL_AT).load(Ordering::Relaxed);
        while at < head {
            let kind = u32::from_ne_bytes(self.bytes(at));
            let mode = u16::from_ne_bytes(self.bytes(at + 4));
            let length = u16::from_ne_bytes(self.bytes(at + 6));
            if usize::from(length) < HEADER {
                break;
            }
            if kind == RECORD_SAMPLE && usize::from(length) >= RECORD {
                into.push(CpuSample {
                    address: u64::from_ne_bytes(self.bytes(at + 8)),
                    pid: i32::from_ne_bytes(self.bytes(at + 16)),
                    in_kernel: mode & MODE_MASK == MODE_KERNEL,
                });
            }
            at += u64::from(length);
        }
        self.word(TAIL_AT).store(head, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `open` with this length, and nothing refers to it any more.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), Self::LEN) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_busy_process_is_seen() {
        // Containers and ordinary users lack the permission, machines without it the call or its counters; then there is
        // nothing to assert.
        const LACKING: [i32; 5] = [
            libc::EPERM,
            libc::EACCES,
            libc::ENOENT,
            libc::ENOSYS,
            libc::EOPNOTSUPP,
        ];
        let mut sampler = match CpuSampler::start() {
            Ok(sampler) => sampler,
            Err(error) => {
                let errno = error.raw_os_error();
                assert!(
                    errno.is_some_and(|errno| LACKING.contains(&errno)),
                    "{error}"
                );
                eprintln!("NOT HERE: {error}");
                return;
            }
        };
        let own = i32::try_from(std::process::id()).unwrap();
        let (begun, mut samples) = (Instant::now(), Vec::new());
        while samples.len() < 10 && begun.elapsed() < Duration::from_secs(60) {
            let spin = Instant::now();
            while spin.elapsed() < Duration::from_millis(50) {
                std::hint::black_box(own);
            }
            samples.extend(
                sampler
                    .take()
                    .into_iter()
                    .filter(|sample| sample.pid == own),
            );
        }
        assert!(
            samples
                .iter()
                .any(|sample| !sample.in_kernel && sample.address > 0)
        );
    }
}
