//! The processes that belong to a server.

use std::collections::BTreeSet;
use std::fs;

use crate::error::Error;
use crate::proc_files;

/// Maximum number of processes in a tree: a larger one is a mistake (or a fork bomb).
const PROCESSES_MAX: usize = 100_000;
/// Looks after which a tree without processes has ended. A process that starts another one and exits, while the list of
/// processes is read, leaves neither of them in it; a daemon does so twice.
const LOOKS: u32 = 3;

/// The process tree of a server.
///
/// Members are the root, its descendants, and processes that were re-parented but still belong to
/// it: a process in a group or session that a member leads (such as workers whose master has
/// exited), and, for a server that this program started, every orphan that it inherited as
/// subreaper, except those in its own process group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessTree {
    root: i32,
    /// When the root started; `None` if its id cannot be reused, because this program is its parent.
    root_started: Option<u64>,
    /// Process id of this program, if it is the subreaper of the server.
    reaper: Option<i32>,
    /// Children of the reaper that are not part of the server: load generators, and those that it had before.
    excluded: BTreeSet<i32>,
    /// Sessions and groups that belong to the tree. A leader may exit before its members.
    root_leads: bool,
}

/// One process of a tree, for people.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct ProcessInfo {
    /// Process id.
    pub pid: i32,
    /// Its short name.
    pub command: String,
}

/// Position of one process in the tree of processes, from its `stat` file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessStat {
    pid: i32,
    parent: i32,
    group: i32,
    session: i32,
    zombie: bool,
    /// When it started, in clock ticks since the machine did: a reused process id has another time.
    started: u64,
}

impl ProcessTree {
    /// Returns the tree of a running server.
    ///
    /// # Errors
    /// If there is no such process.
    pub fn of_pid(root: i32) -> Result<Self, Error> {
        let Some(entry) = entry(root)? else {
            return Err(Error::target(format!(
                "there is no process {root}: is the server running?"
            )));
        };
        Ok(Self {
            root,
            root_started: Some(entry.started),
            reaper: None,
            excluded: BTreeSet::new(),
            root_leads: entry.group == root || entry.session == root,
        })
    }

    /// Returns the tree of a server that this program (process `reaper`, a subreaper) started as
    /// leader of a process group. `earlier`: the [`descendants`] of this program before that.
    pub fn of_child(root: i32, reaper: i32, earlier: BTreeSet<i32>) -> Self {
        Self {
            root,
            root_started: None,
            reaper: Some(reaper),
            excluded: earlier,
            root_leads: true,
        }
    }

    /// Excludes a child of this program from the tree.
    pub fn exclude(&mut self, pid: i32) {
        self.excluded.insert(pid);
    }

    /// Returns the root of the tree.
    pub fn root(&self) -> i32 {
        self.root
    }

    /// Returns the pids of the current tree, without zombies, in ascending order.
    ///
    /// # Errors
    /// If `/proc` cannot be read, or no process of the tree is left.
    pub fn pids(&self) -> Result<Vec<i32>, Error> {
        for _ in 0..LOOKS {
            let members = self.members(&entries()?);
            if !members.is_empty() {
                return Ok(members);
            }
        }
        Err(Error::target(format!(
            "the server (process {}) has died",
            self.root
        )))
    }

    /// Returns the processes of the tree with their names.
    ///
    /// # Errors
    /// As [`ProcessTree::pids`].
    pub fn describe(&self) -> Result<Vec<ProcessInfo>, Error> {
        let name = |pid| ProcessInfo {
            pid,
            command: proc_files::command(pid).unwrap_or_else(|| "?".into()),
        };
        Ok(self.pids()?.into_iter().map(name).collect())
    }

    /// Returns the maximum descriptors of all processes of the tree together, by their limits.
    pub fn descriptors_max(&self) -> Option<u64> {
        let limits = self
            .pids()
            .ok()?
            .into_iter()
            .map(proc_files::descriptors_max);
        limits.sum()
    }

    /// Returns children of the reaper that have exited and were not reaped.
    pub(crate) fn zombies(&self) -> Vec<i32> {
        let of_reaper = |entry: &&ProcessStat| {
            Some(entry.parent) == self.reaper && !self.excluded.contains(&entry.pid)
        };
        let entries = entries().unwrap_or_default();
        entries
            .iter()
            .filter(of_reaper)
            .filter(|entry| entry.zombie)
            .map(|entry| entry.pid)
            .collect()
    }

    fn members(&self, entries: &[ProcessStat]) -> Vec<i32> {
        // The kernel reuses no id of a group or session that has a member, so nothing of the server is left.
        let is_reused = |entry: &ProcessStat| {
            entry.pid == self.root && self.root_started.is_some_and(|at| at != entry.started)
        };
        if entries.iter().any(is_reused) {
            return Vec::new();
        }
        let own = entries.iter().find(|entry| Some(entry.pid) == self.reaper);
        let own_group = own.map(|own| own.group);
        let mut members = BTreeSet::from([self.root]);
        // A parent may have a greater pid than its child, so repeat until nothing is added.
        loop {
            let before = members.len();
            for entry in entries {
                if self.joins(entry, own_group, &members) {
                    members.insert(entry.pid);
                }
            }
            if members.len() == before || before > PROCESSES_MAX {
                break;
            }
        }
        entries
            .iter()
            .filter(|entry| !entry.zombie && members.contains(&entry.pid))
            .map(|entry| entry.pid)
            .collect()
    }

    fn joins(&self, entry: &ProcessStat, own_group: Option<i32>, members: &BTreeSet<i32>) -> bool {
        if self.excluded.contains(&entry.pid) || Some(entry.pid) == self.reaper {
            return false;
        }
        let leader_is_member =
            |leader: i32| members.contains(&leader) && (leader != self.root || self.root_leads);
        members.contains(&entry.parent)
            // Processes that this program had before may start others later. All of them are in its own group, in which it
            // starts none itself.
            || Some(entry.parent) == self.reaper && Some(entry.group) != own_group
            || leader_is_member(entry.group)
            || leader_is_member(entry.session)
    }
}

/// Returns the descendants of a process. A program that a shell has started by `exec` has the shell's other children.
pub fn descendants(pid: i32) -> BTreeSet<i32> {
    descendants_in(pid, &entries().unwrap_or_default())
}

fn descendants_in(pid: i32, entries: &[ProcessStat]) -> BTreeSet<i32> {
    let mut found = BTreeSet::from([pid]);
    loop {
        let before = found.len();
        let children = entries.iter().filter(|entry| found.contains(&entry.parent));
        let children: Vec<i32> = children.map(|entry| entry.pid).collect();
        found.extend(children);
        if found.len() == before {
            found.remove(&pid);
            return found;
        }
    }
}

/// Returns a note if the process is a child of one with the same name, such as a worker of nginx: the tree then lacks the
/// server's other processes.
pub fn parent_of_same_name(pid: i32) -> Option<String> {
    let parent = entry(pid).ok()??.parent;
    let name = proc_files::command(pid)?;
    (proc_files::command(parent)? == name).then(|| {
        format!(
            "process {pid} is a child of process {parent}, which has the same name, {name}: --pid {parent} measures the whole \
             server"
        )
    })
}

fn entries() -> Result<Vec<ProcessStat>, Error> {
    let listing = fs::read_dir("/proc")
        .map_err(|error| Error::system(format!("cannot list /proc: {error}")))?;
    let pids = listing
        .flatten()
        .filter_map(|item| item.file_name().to_str()?.parse::<i32>().ok());
    let mut entries: Vec<ProcessStat> = pids.filter_map(|pid| entry(pid).ok().flatten()).collect();
    entries.sort_by_key(|entry| entry.pid);
    Ok(entries)
}

fn entry(pid: i32) -> Result<Option<ProcessStat>, Error> {
    let stat = proc_files::read(pid, "stat")?;
    Ok(stat.and_then(|text| self::stat(pid, &text)))
}

/// Parses a process from the text of its `stat` file.
pub(crate) fn stat(pid: i32, text: &str) -> Option<ProcessStat> {
    let fields = proc_files::stat_fields(text);
    let number = |index: usize| {
        fields
            .get(index)
            .and_then(|field| field.parse::<i32>().ok())
    };
    Some(ProcessStat {
        pid,
        parent: number(1)?,
        group: number(2)?,
        session: number(3)?,
        zombie: fields.first().is_some_and(|state| *state == "Z"),
        started: fields.get(19)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    fn process(pid: i32, parent: i32, group: i32, session: i32) -> ProcessStat {
        ProcessStat {
            pid,
            parent,
            group,
            session,
            zombie: false,
            started: 100,
        }
    }

    /// A tree whose root leads no process group.
    fn tree(root: i32) -> ProcessTree {
        ProcessTree {
            root,
            root_started: Some(100),
            reaper: None,
            excluded: BTreeSet::new(),
            root_leads: false,
        }
    }

    #[test]
    fn descendants_belong_even_when_listed_before_their_parents() {
        let all = [
            process(10, 20, 1, 1),
            process(20, 50, 1, 1),
            process(50, 1, 1, 1),
            process(60, 1, 1, 1),
        ];
        assert_eq!(tree(50).members(&all), [10, 20, 50]);
    }

    #[test]
    fn a_shell_in_the_servers_group_does_not_belong() {
        let all = [process(40, 1, 40, 40), process(50, 40, 40, 40)];
        assert_eq!(tree(50).members(&all), [50]);
    }

    #[test]
    fn another_process_with_the_id_of_a_dead_server_is_not_the_server() {
        let other = ProcessStat {
            started: 4_711,
            ..process(50, 1, 50, 50)
        };
        let all = [other, process(51, 50, 50, 50)];
        assert_eq!(tree(50).members(&all), [0; 0]);
        let text = "50 (a) S 1 50 50 0 -1 4 5 6 7 8 9 10 11 12 13 20 1 0 4711 100";
        assert_eq!(stat(50, text).unwrap().started, 4_711);
    }

    #[test]
    fn orphans_belong_to_the_server_but_generators_do_not() {
        let mut tree = ProcessTree::of_child(50, 7, BTreeSet::new());
        tree.exclude(80);
        // 60 detached into a session of its own and came to the reaper; its worker follows.
        let all = [
            process(7, 1, 7, 7),
            process(50, 7, 50, 7),
            process(60, 7, 60, 60),
            process(61, 60, 60, 60),
            process(80, 7, 80, 7),
        ];
        assert_eq!(tree.members(&all), [50, 60, 61]);
    }

    #[test]
    fn what_this_program_had_before_does_not_belong() {
        let mut all = vec![
            process(7, 1, 7, 7),
            process(41, 42, 7, 7),
            process(42, 7, 7, 7),
            process(30, 1, 7, 7),
        ];
        let earlier = descendants_in(7, &all);
        assert_eq!(earlier, BTreeSet::from([41, 42]));
        all.extend([process(50, 7, 50, 7), process(60, 7, 60, 60)]);
        let tree = ProcessTree::of_child(50, 7, earlier);
        assert_eq!(tree.members(&all), [50, 60]);
        // The earlier child has ended, and its own child came to this program.
        all[1].parent = 7;
        all.remove(2);
        assert_eq!(tree.members(&all), [50, 60]);
        // So does one that the earlier child had started after the server.
        all.push(process(43, 7, 7, 7));
        assert_eq!(tree.members(&all), [50, 60]);
    }

    #[test]
    fn this_process_is_a_tree() {
        let own = i32::try_from(std::process::id()).unwrap();
        let tree = ProcessTree::of_pid(own).unwrap();
        assert!(tree.pids().unwrap().contains(&own));
        assert!(
            tree.describe()
                .unwrap()
                .iter()
                .all(|process| !process.command.is_empty())
        );
    }

    #[test]
    fn a_worker_is_not_taken_for_the_whole_server() {
        let mut parent = Command::new("/bin/sh")
            .args(["-c", "/bin/sh -c 'echo $$; read line'; :"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(parent.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let child: i32 = line.trim().parse().unwrap();
        let first = i32::try_from(parent.id()).unwrap();
        let note = parent_of_same_name(child).unwrap();
        assert!(note.contains(&format!("--pid {first} ")), "{note}");
        // This test has another name.
        assert_eq!(parent_of_same_name(first), None);
        // Both end when their input does.
        parent.wait().unwrap();
    }

    #[test]
    fn a_missing_process_has_a_clear_error() {
        let error = ProcessTree::of_pid(i32::MAX).unwrap_err();
        assert_eq!(error.exit_status(), 3);
        assert!(error.message.contains("no process"), "{error}");
    }
}
