//! The machine of a run.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::proc_files::kb_field;

/// Properties of a machine that a reader needs to interpret absolute figures.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// CPUs this process may use.
    pub cores: u64,
    /// The processor's name.
    pub processor: String,
    /// Memory of the machine, in bytes.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
    /// Maximum descriptors of a process.
    pub descriptors_per_process: u64,
}

impl Machine {
    /// Reads the properties of this machine.
    pub fn this() -> Self {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        Self {
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
            processor: processor(&cpuinfo).unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            memory_bytes: kb_field(&meminfo, "MemTotal").unwrap_or(0),
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            descriptors_per_process: limit.maximum.unwrap_or(u64::MAX),
        }
    }

    /// Returns the available memory, in bytes.
    pub fn available_bytes() -> u64 {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        kb_field(&meminfo, "MemAvailable").unwrap_or(u64::MAX)
    }
}

/// Returns the length of a page of memory, in bytes.
pub fn page_bytes() -> u64 {
    u64::try_from(rustix::param::page_size()).unwrap_or(4096)
}

pub(crate) fn processor(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo
        .lines()
        .find(|line| line.starts_with("model name"))?;
    Some(
        line.split_once(':')?
            .1
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" "),
    )
}
