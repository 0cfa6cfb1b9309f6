//! Local ports that a worker chooses itself: those outside of the range from which the kernel chooses.

use std::fs;

/// The kernel's own range.
const KERNEL_RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// The first port below the kernel's range that is used. Services listen on lower ones.
const LOWEST: u16 = 10_000;

/// One worker's part of the ports outside of the kernel's range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OwnPorts {
    /// The kernel's lowest and highest port.
    kernel: (u16, u16),
    worker: u32,
    workers: u32,
}

impl OwnPorts {
    /// No ports.
    pub const NONE: OwnPorts = OwnPorts {
        kernel: (0, u16::MAX),
        worker: 0,
        workers: 1,
    };

    /// The part of this worker on this machine. There is none if the kernel uses all ports.
    pub fn of_worker(worker: u32, workers: u32) -> OwnPorts {
        let range = fs::read_to_string(KERNEL_RANGE).unwrap_or_default();
        OwnPorts::outside(&range, worker, workers)
    }

    /// The part of this worker outside of the kernel's range, which is written as /proc shows it.
    pub fn outside(range: &str, worker: u32, workers: u32) -> OwnPorts {
        let mut bounds = range.split_whitespace().map(str::parse::<u16>);
        match (bounds.next(), bounds.next()) {
            (Some(Ok(low)), Some(Ok(high))) if workers > 0 => OwnPorts {
                kernel: (low, high),
                worker,
                workers,
            },
            _ => OwnPorts::NONE,
        }
    }

    /// All of them, those above the kernel's range first.
    pub fn all(self) -> impl Iterator<Item = u16> {
        let (low, high) = self.kernel;
        let above = (high..=u16::MAX).skip(1);
        above
            .chain(LOWEST..low)
            .filter(move |port| self.is_of_worker(*port))
    }

    /// Whether this is one of them.
    pub fn contains(self, port: u16) -> bool {
        let (low, high) = self.kernel;
        let is_outside = port > high || (LOWEST..low).contains(&port);
        is_outside && self.is_of_worker(port)
    }

    fn is_of_worker(self, port: u16) -> bool {
        u32::from(port) % self.workers == self.worker
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_share_the_ports_outside_of_the_kernels_range() {
        let parts = [0, 1].map(|worker| OwnPorts::outside("10003\t65533\n", worker, 2));
        let all = parts.map(|part| part.all().collect::<Vec<u16>>());
        assert_eq!(all, [vec![65534, 10000, 10002], vec![65535, 10001]]);
        for port in 0..=u16::MAX {
            for (part, all) in parts.iter().zip(&all) {
                assert_eq!(part.contains(port), all.contains(&port));
            }
        }
        for range in ["1024 65535", "", "a b"] {
            assert_eq!(OwnPorts::outside(range, 0, 1).all().count(), 0, "{range}");
        }
    }
}
