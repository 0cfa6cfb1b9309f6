//! Instruction counts of wakes and handshakes must equal those in `counts.toml`, within its tolerances.
//!
//! `DORMOUSE_BLESS=1 make counts` writes new figures.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use dormouse_ci_bench::cases::{ALL, Case};
use dormouse_ci_bench::figures::Figures;
use dormouse_ci_bench::{build, callgrind};

/// The directory for the profiles of the cases, to be read with callgrind_annotate.
const PROFILES: &str = env!("CARGO_TARGET_TMPDIR");

#[test]
#[ignore = "compiles the counted crates as a release has them, and takes minutes: make counts"]
fn instruction_counts_are_unchanged() {
    if let Err(error) = callgrind::version() {
        return missing(&error);
    }
    if !counts_here() {
        return;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = here.join("counts.toml");
    let text = std::fs::read_to_string(&file).expect("counts.toml");
    let figures = Figures::parse(&text).expect("figures");
    let made_with = callgrind::made_with().expect("versions");

    let counts = count_all(&counted());

    if std::env::var_os("DORMOUSE_BLESS").is_some() {
        std::fs::write(&file, figures.with_counts(&made_with, &counts)).expect("counts.toml");
        return;
    }
    let findings = figures.compare(&made_with, &counts);
    assert!(
        findings.is_empty(),
        "{}\n\nTo find the function, compare the profile with that of an earlier commit:\n    \
         callgrind_annotate {PROFILES}/CASE.callgrind | head -60\n\
         If the change is intended:\n    DORMOUSE_BLESS=1 make counts\n\n\
         figures made with {}\ncounted now with   {made_with}",
        findings.join("\n"),
        figures.made_with,
    );
}

fn counted() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    build::counted(here.parent().expect("the workspace")).expect("the binary `counted`")
}

/// Counts all cases, two at a time: load on the machine does not change a count.
fn count_all(counted: &Path) -> Vec<(&'static str, u64)> {
    let waiting = Mutex::new(ALL.iter());
    let done = Mutex::new(Vec::new());
    let work = || {
        loop {
            let next = waiting.lock().expect("no panic").next();
            let Some(case) = next else { break };
            let count = callgrind::count(counted, case, &profile(case)).expect("a count");
            done.lock().expect("no panic").push((case.name, count));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    let mut counts = done.into_inner().expect("no panic");
    let place = |name: &str| ALL.iter().position(|case| case.name == name);
    counts.sort_by_key(|(name, _)| place(name));
    assert_eq!(counts.len(), ALL.len());
    counts
}

fn profile(case: &Case) -> PathBuf {
    Path::new(PROFILES).join(format!("{}.callgrind", case.name))
}

/// Fails because of a missing program, unless `DORMOUSE_SKIP_MISSING=1` allows it (as in `interop`).
fn missing(error: &str) {
    let message = format!("{error}; interop/install installs it");
    if std::env::var_os("DORMOUSE_SKIP_MISSING").is_some_and(|value| value == "1") {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: counted instructions: {message}"
        );
    } else {
        panic!("{message}");
    }
}

/// Whether counts on this processor can be compared with the figures. Valgrind offers programs at most AVX2, so all
/// processors with AVX2 run the same code; others run different code.
#[cfg(target_arch = "x86_64")]
fn counts_here() -> bool {
    let required = ["aes", "pclmulqdq", "avx2", "bmi2"];
    let flags = std::fs::read_to_string("/proc/cpuinfo").expect("/proc/cpuinfo");
    let has = |name: &&str| flags.split_whitespace().any(|flag| flag == *name);
    let has_all = required.iter().all(has);
    if !has_all {
        eprintln!(
            "NO INSTRUCTIONS WERE COUNTED: the figures need a processor with {}",
            required.join(", ")
        );
    }
    has_all
}

#[cfg(not(target_arch = "x86_64"))]
fn counts_here() -> bool {
    eprintln!("NO INSTRUCTIONS WERE COUNTED: the figures are for x86-64");
    false
}
