//! Signs by which software is recognised: the names of its programs, their contents, and the files that they mapped.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, Read as _};
use std::time::Duration;

use dormouse_measure::{ProcessInfo, proc_files};

/// Maximum bytes of a program that are searched for the marks of its language and library.
const PROGRAM_MAX: u64 = 96 << 20;
const BLOCK: usize = 1 << 20;
/// Maximum time of reading all processes: a program may be on a file system that does not answer.
const SEARCH_FOR: Duration = Duration::from_secs(10);

/// Parts of the names of TLS libraries.
const TLS_LIBRARIES: [&str; 6] = [
    "libssl.so",
    "netty_tcnative",
    "libgnutls.so",
    "libwolfssl",
    "libmbedtls",
    "libnss3.so",
];

/// What the processes of a server or client show.
#[derive(Default)]
pub(super) struct Signs {
    /// File names of their programs.
    pub(super) programs: BTreeSet<String>,
    /// The program of the first process.
    pub(super) first: Option<String>,
    /// Their command lines.
    pub(super) words: String,
    /// Paths of files that they mapped, and of archives that they opened.
    pub(super) files: BTreeSet<String>,
    /// Whether a program was built by Go.
    pub(super) go: bool,
    /// Whether a program contains rustls.
    pub(super) rustls: bool,
}

impl Signs {
    /// Collects the signs of these processes.
    ///
    /// # Errors
    /// If their files do not answer in time.
    pub(super) fn of(processes: &[ProcessInfo]) -> Result<Self, String> {
        let pids: Vec<i32> = processes.iter().map(|process| process.pid).collect();
        dormouse_census::limited(SEARCH_FOR, move || {
            let mut signs = Self::default();
            pids.iter().for_each(|&pid| collect(pid, &mut signs));
            signs
        })
    }
}

fn collect(pid: i32, signs: &mut Signs) {
    if let Ok(program) = fs::read_link(format!("/proc/{pid}/exe")) {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let name = dormouse_printable::line(name.trim_end_matches(" (deleted)")).to_string();
        let called = proc_files::read_beginning(pid, "comm").unwrap_or_default();
        let called = String::from_utf8_lossy(&called);
        signs
            .first
            .get_or_insert_with(|| called_name(called.trim_end(), &name));
        if signs.programs.insert(name) {
            search(pid, signs);
        }
    }
    let words = proc_files::read_beginning(pid, "cmdline").unwrap_or_default();
    signs.words += &String::from_utf8_lossy(&words).replace('\0', " ");
    signs.words.push('\n');
    let maps = proc_files::maps(pid).unwrap_or_default();
    for line in maps.lines() {
        if let Some(at) = line.find('/') {
            let path = line.get(at..).unwrap_or_default();
            signs
                .files
                .insert(path.trim_end_matches(" (deleted)").to_owned());
        }
    }
    // A JVM opens its archives as files instead of mapping them.
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten()
    {
        if let Ok(path) = fs::read_link(entry.path()) {
            let path = path.to_string_lossy();
            if path.ends_with(".jar") {
                signs.files.insert(path.into_owned());
            }
        }
    }
}

/// Returns the name by which a program was started, or the file's where that begins with it: the kernel shortens the first.
pub(super) fn called_name(called: &str, file: &str) -> String {
    if called.is_empty() || file.starts_with(called) {
        file.to_owned()
    } else {
        dormouse_printable::line(called).to_string()
    }
}

/// Parses a text as information about a process; for fuzzing.
pub(super) fn read(text: &str) -> Signs {
    let _ = holds(text.as_bytes(), b"rustls::");
    Signs {
        programs: text.lines().take(3).map(str::to_owned).collect(),
        words: text.to_owned(),
        files: text.lines().map(str::to_owned).collect(),
        ..Signs::default()
    }
}

/// Searches a program for the marks of Go and rustls.
fn search(pid: i32, signs: &mut Signs) {
    let Ok(file) = proc_files::open_program(pid) else {
        return;
    };
    let mut file = file.take(PROGRAM_MAX);
    let mut block = vec![0; BLOCK];
    // The mark is in two pieces so that this program does not contain it.
    let go = [" Go build", "inf:"].concat();
    while let Ok(count @ 1..) = file.read(&mut block) {
        let text = block.get(..count).unwrap_or_default();
        signs.go |= holds(text, go.as_bytes());
        signs.rustls |= holds(text, b"rustls::") || holds(text, b"/rustls-0.");
        if signs.go || signs.rustls {
            return;
        }
    }
}

/// Whether `mark` occurs in a text of up to about a hundred megabytes. The search jumps from one possible end of the
/// mark to the next.
fn holds(text: &[u8], mark: &[u8]) -> bool {
    let Some(last) = mark.last() else {
        return true;
    };
    let (mut rest, mut at) = (text, 0);
    while let Ok(count @ 1..) = rest.skip_until(*last) {
        at += count;
        if text.get(..at).is_some_and(|seen| seen.ends_with(mark)) {
            return true;
        }
    }
    false
}

/// Whether the program `file` is `name`, maybe with a version (`python3.11`) or a variant (`nginx-debug`). Programs in Go
/// have no such variants, but names like `node_exporter`.
fn is_called(file: &str, name: &str, is_go: bool) -> bool {
    let rest = file.strip_prefix(name);
    rest.is_some_and(|rest| !is_go || rest.is_empty())
}

impl Signs {
    /// Whether a process runs this program.
    pub(super) fn program(&self, name: &str) -> bool {
        let mut programs = self.programs.iter();
        programs.any(|program| is_called(program, name, self.go))
    }

    /// Whether a process runs the program of exactly this name.
    pub(super) fn is_called(&self, name: &str) -> bool {
        self.programs.contains(name)
    }

    /// Whether a file with this in its path is mapped or open.
    pub(super) fn file(&self, part: &str) -> bool {
        self.path(part).is_some()
    }

    /// Whether this occurs in the command lines.
    pub(super) fn word(&self, word: &str) -> bool {
        self.words.to_ascii_lowercase().contains(word)
    }

    fn path(&self, part: &str) -> Option<&String> {
        self.files.iter().find(|file| file.contains(part))
    }

    /// Returns the mapped TLS library.
    pub(super) fn library(&self) -> Option<String> {
        let known = TLS_LIBRARIES.iter().find_map(|part| self.path(part))?;
        let name = known.rsplit('/').next()?;
        // Netty extracts it to a file name with a random number.
        Some(if name.contains("netty_tcnative") {
            "netty-tcnative".to_owned()
        } else {
            dormouse_printable::line(name).to_string()
        })
    }
}
