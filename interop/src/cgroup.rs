//! A memory cgroup for one process tree, of version 2 or 1, inside the one that the test runs in.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::{tools, wait};

/// The group. Dropping it removes the group, so its processes must have exited before.
pub struct MemoryGroup {
    path: PathBuf,
    unified: bool,
}

impl MemoryGroup {
    /// Creates a group that may use `limit` bytes; the kernel kills processes beyond that. `None`: not
    /// possible here, and reported.
    ///
    /// # Panics
    /// As [`tools::unavailable`].
    pub fn create(limit: u64) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("dormouse-interop-{}-{number}", std::process::id());
        let group = place().map(|(parent, unified)| Self {
            path: parent.join(name),
            unified,
        });
        let Some(group) = group.filter(|group| fs::create_dir(&group.path).is_ok()) else {
            tools::unavailable("no memory cgroup can be made here");
            return None;
        };
        let limited = if group.unified {
            group.write("memory.max", limit)
        } else {
            // Version 1 counts socket memory separately, and only with a limit.
            group.write("memory.kmem.tcp.limit_in_bytes", 1 << 40)
                && group.write("memory.limit_in_bytes", limit)
        };
        if !limited {
            tools::unavailable("no limit can be set for a memory cgroup here");
            return None;
        }
        Some(group)
    }

    /// A command that starts its arguments inside the group.
    pub fn wrapper(&self) -> Vec<String> {
        let procs = self.path.join("cgroup.procs");
        let enter = format!("echo $$ > {} && exec \"$@\"", procs.display());
        ["sh", "-c", &enter, "sh"].map(str::to_owned).to_vec()
    }

    /// Peak memory: of processes, of the kernel for them, and of sockets.
    pub fn peak(&self) -> u64 {
        if self.unified {
            return self.read("memory.peak");
        }
        // The sum is an upper bound, because the peaks may have been at different times.
        self.read("memory.max_usage_in_bytes") + self.read("memory.kmem.tcp.max_usage_in_bytes")
    }

    /// The parts of the peak, for a report.
    pub fn parts(&self) -> String {
        let names: &[&str] = if self.unified {
            &["memory.peak"]
        } else {
            &[
                "memory.max_usage_in_bytes",
                "memory.kmem.max_usage_in_bytes",
                "memory.kmem.tcp.max_usage_in_bytes",
            ]
        };
        let part = |name: &&str| format!("{name} {} MiB", self.read(name) >> 20);
        names.iter().map(part).collect::<Vec<_>>().join(", ")
    }

    fn write(&self, file: &str, value: u64) -> bool {
        fs::write(self.path.join(file), value.to_string()).is_ok()
    }

    fn read(&self, file: &str) -> u64 {
        let text = fs::read_to_string(self.path.join(file)).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        wait::until(
            "the processes of a cgroup to end",
            Duration::from_secs(10),
            // It may never have been made.
            || (!self.path.exists() || fs::remove_dir(&self.path).is_ok()).then_some(()),
        );
    }
}

/// The folder in which to create a group: below the test's own group.
fn place() -> Option<(PathBuf, bool)> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/mounts").ok()?;
    let mount = |wanted: &dyn Fn(&str, &str) -> bool| {
        mounts.lines().find_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (path, kind, options) = (words.next()?, words.next()?, words.next()?);
            wanted(kind, options).then(|| PathBuf::from(path))
        })
    };
    let below = |root: PathBuf, path: &str| root.join(path.trim_start_matches('/'));
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        if controllers.split(',').any(|one| one == "memory") {
            let root = mount(&|kind, options| {
                kind == "cgroup" && options.split(',').any(|option| option == "memory")
            })?;
            return Some((below(root, path), false));
        }
    }
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let parent = below(mount(&|kind, _| kind == "cgroup2")?, path);
    let handed_down = |group: &Path| {
        fs::read_to_string(group.join("cgroup.controllers"))
            .is_ok_and(|text| text.split_whitespace().any(|one| one == "memory"))
    };
    handed_down(&parent).then_some((parent, true))
}
