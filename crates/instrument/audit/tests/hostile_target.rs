//! An audited process that tries to misuse the audit, which root may run. The assertions are about effects outside
//! the audit.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dormouse_census::{self as census, Detail, ManagedHeap};

const COLLECTION_WAIT: Duration = Duration::from_secs(120);

/// A process that ends with the test.
struct Target(Child);

impl Target {
    fn start(command: &mut Command) -> Self {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null());
        Self(quiet.spawn().expect("it can be started"))
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).expect("a process id")
    }

    /// Waits until one of the process's files contains a word.
    fn wait_for(&self, file: &str, word: &str) {
        let until = Instant::now() + Duration::from_secs(20);
        let path = format!("/proc/{}/{file}", self.pid());
        while !fs::read_to_string(&path).is_ok_and(|text| text.contains(word)) {
            assert!(Instant::now() < until, "{word} is not in {path}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn program(path: &Path, text: &str) {
    fs::write(path, text).expect("a file");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("its mode");
}

/// A library of this process, to be mapped under another name. Not the C library, which is there already.
fn mapped_library() -> PathBuf {
    let maps = fs::read_to_string("/proc/self/maps").expect("mappings");
    let library = maps.lines().find_map(|line| {
        let path = line.get(line.find('/')?..)?;
        path.contains("/libgcc_s.so").then(|| path.into())
    });
    library.expect("a library")
}

/// Copies in another process: a descriptor of this one could be in a child of another test, and a file that is open
/// for writing cannot be executed.
fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg(from).arg(to).status();
    assert!(status.expect("cp").success());
}

/// A process that looks like a JVM: it has mapped a `libjvm.so`, and there is a `jcmd` beside its program.
fn pretended_jvm(folder: &Path, jcmd: &str) -> Target {
    let bin = folder.join("bin");
    fs::create_dir_all(&bin).expect("a folder");
    copy(Path::new("/bin/sleep"), &bin.join("java"));
    let library = folder.join("libjvm.so");
    copy(&mapped_library(), &library);
    program(&bin.join("jcmd"), jcmd);
    let target = Target::start(
        Command::new(bin.join("java"))
            .arg("1000")
            .env("LD_PRELOAD", &library),
    );
    target.wait_for("maps", "libjvm.so");
    target
}

/// The `jcmd` of a pretended JVM must not run, and the report must say that nothing was counted. A program that is no JVM
/// does not survive the request to attach.
#[test]
fn what_lies_beside_its_program_is_not_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("executed");
    let jcmd = format!("#!/bin/sh\necho executed >> {}\n", trace.display());
    let target = pretended_jvm(folder.path(), &jcmd);
    let heap = ManagedHeap::after_collection(&[target.pid()], Detail::Classes, COLLECTION_WAIT);
    assert!(!trace.exists(), "the audit has run the planted jcmd");
    assert_eq!(heap.bytes(), None);
    assert!(format!("{heap:?}").contains("were not counted"), "{heap:?}");
}

/// A process that looks like CPython maps terabytes and never touches them.
#[test]
fn a_huge_sparse_mapping_costs_nothing() {
    let python = "/usr/bin/python3";
    if !Path::new(python).exists() {
        return;
    }
    let script = "import mmap, time\n\
        kept = [mmap.mmap(-1, 30 << 40, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000) for _ in range(3)]\n\
        kept[0][12345] = 7\n\
        open('/proc/self/comm', 'w').write('mapped')\n\
        time.sleep(1000)\n";
    let target = Target::start(Command::new(python).args(["-c", script]));
    target.wait_for("comm", "mapped");
    let before = resident_peak_kib();
    let snapshot = census::take(&[target.pid()], 0).expect("a census");
    let small = snapshot.small.values().any(|count| count.blocks > 100);
    assert!(small, "{snapshot:?}");
    let said = snapshot.refused.join("; ");
    assert!(
        said.contains("GiB of its address space were not examined"),
        "{said}"
    );
    let sample = census::sample_pages(&[target.pid()], 0).expect("a sample");
    assert!(
        sample.unread_bytes > 1 << 40 && sample.looked_at > 100,
        "{sample:?}"
    );
    let grown = resident_peak_kib().saturating_sub(before);
    assert!(grown < 512 << 10, "the audit grew by {grown} KiB");
}

/// Peak resident memory of this process.
fn resident_peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let words = line.expect("a peak").split_whitespace().next();
    words.and_then(|word| word.parse().ok()).expect("a number")
}
