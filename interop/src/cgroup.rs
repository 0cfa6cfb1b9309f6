//! A cgroup for one process tree, of version 2 or 1, inside the one that the test runs in.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{tools, wait};

/// The group. Dropping it removes the group, so its processes must have exited before.
pub struct Cgroup {
    path: PathBuf,
    unified: bool,
}

impl Cgroup {
    /// Creates a group with this controller: `memory`, `pids`. `None`: not possible here, and reported.
    ///
    /// # Panics
    /// As [`tools::unavailable`].
    pub fn create(controller: &str) -> Option<Self> {
        let group = Self::try_create(controller);
        if group.is_none() {
            tools::unavailable(&format!(
                "no cgroup with the controller {controller} can be made here"
            ));
        }
        group
    }

    /// Creates a group that may use `limit` bytes; the kernel kills processes beyond that. `None`: as
    /// [`Cgroup::create`].
    ///
    /// # Panics
    /// As [`tools::unavailable`].
    pub fn with_memory(limit: u64) -> Option<Self> {
        let group = Self::create("memory")?;
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

    fn try_create(controller: &str) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (parent, unified) = place(controller)?;
        let name = format!("dormouse-interop-{}-{number}", std::process::id());
        let path = parent.join(name);
        fs::create_dir(&path).ok()?;
        let group = Self { path, unified };
        // In version 2, the group above may not hand the controller down.
        let has_it = !unified || group.path.join(format!("{controller}.max")).exists();
        has_it.then_some(group)
    }

    /// A command that starts its arguments inside the group.
    pub fn wrapper(&self) -> Vec<String> {
        let procs = self.path.join("cgroup.procs");
        let enter = format!("echo $$ > {} && exec \"$@\"", procs.display());
        ["sh", "-c", &enter, "sh"].map(str::to_owned).to_vec()
    }

    /// Peak memory: of processes, of the kernel for them, and of sockets.
    pub fn memory_peak(&self) -> u64 {
        if self.unified {
            return self.read("memory.peak");
        }
        // The sum is an upper bound, because the peaks may have been at different times.
        self.read("memory.max_usage_in_bytes") + self.read("memory.kmem.tcp.max_usage_in_bytes")
    }

    /// The parts of that peak, for a report.
    pub fn memory_parts(&self) -> String {
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

    /// How many of its processes the kernel has killed for the limit of memory.
    ///
    /// # Panics
    /// When the kernel does not count them.
    pub fn oom_kills(&self) -> u64 {
        let file = match self.unified {
            true => "memory.events",
            false => "memory.oom_control",
        };
        let text = self.text(file);
        let mut lines = text.lines();
        let kills = lines.find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok());
        kills.unwrap_or_else(|| panic!("expected `oom_kill` in {file}: {text}"))
    }

    /// Writes a number to one of the group's files. Returns whether the kernel accepts it.
    pub fn write(&self, file: &str, value: u64) -> bool {
        fs::write(self.path.join(file), value.to_string()).is_ok()
    }

    /// Reads a number from one of the group's files.
    ///
    /// # Panics
    /// When the kernel has no such file: a measurement that is not there must not pass for 0.
    pub fn read(&self, file: &str) -> u64 {
        let text = self.text(file);
        let number = text.trim().parse();
        number.unwrap_or_else(|_| panic!("expected a number in {file}: {text}"))
    }

    fn text(&self, file: &str) -> String {
        let path = self.path.join(file);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        wait::until_true("the processes of a cgroup to end", || {
            fs::remove_dir(&self.path).is_ok()
        });
    }
}

/// The folder in which to create a group with this controller: that of the test's own group. And whether it is of
/// version 2.
fn place(controller: &str) -> Option<(PathBuf, bool)> {
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
    let names_it = |list: &str| list.split(',').any(|one| one == controller);
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        if names_it(controllers) {
            let root = mount(&|kind, options| kind == "cgroup" && names_it(options))?;
            return Some((below(root, path), false));
        }
    }
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some((below(mount(&|kind, _| kind == "cgroup2")?, path), true))
}
