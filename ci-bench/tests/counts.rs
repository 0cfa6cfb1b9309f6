//! No wake and no handshake costs more instructions than `counts.toml` says, nor fewer without saying so there.
//!
//! `DORMOUSE_BLESS=1 cargo test --workspace --test counts` writes the figures anew.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use dormouse_ci_bench::cases::{ALL, Case};
use dormouse_ci_bench::figures::Figures;
use dormouse_ci_bench::{build, callgrind};

/// Where each case's profile is left, for callgrind_annotate.
const PROFILES: &str = env!("CARGO_TARGET_TMPDIR");

#[test]
fn instructions_are_as_many_as_they_were() {
    if let Err(why) = callgrind::version() {
        return missing(&why);
    }
    if !counts_here() {
        return;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = here.join("counts.toml");
    let text = std::fs::read_to_string(&file).expect("counts.toml");
    let figures = Figures::parse(&text).expect("figures");
    let made_with = callgrind::made_with().expect("versions");

    let workspace = here.parent().expect("the workspace");
    let counted = build::counted(workspace).expect("the binary `counted`");
    let counts = count_all(&counted);

    if std::env::var_os("DORMOUSE_BLESS").is_some() {
        std::fs::write(&file, figures.with_counts(&made_with, &counts)).expect("counts.toml");
        return;
    }
    let findings = figures.compare(&made_with, &counts);
    assert!(
        findings.is_empty(),
        "{}\n\nWhere they are spent:\n    callgrind_annotate {PROFILES}/CASE.callgrind | head -60\n\
         and the same of an earlier commit beside it. If it is meant to be so:\n    \
         DORMOUSE_BLESS=1 cargo test --workspace --test counts\n\n\
         figures made with {}\ncounted now with   {made_with}",
        findings.join("\n"),
        figures.made_with,
    );
}

/// Two at a time, so that two cores have something to do; what else they do does not change a count.
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

/// A missing program is a failure, as in `interop`, unless it was said that it may be missing.
fn missing(why: &str) {
    let message = format!("{why}; interop/install installs it");
    if std::env::var_os("DORMOUSE_SKIP_MISSING").is_some_and(|value| value == "1") {
        eprintln!("NO INSTRUCTIONS WERE COUNTED: {message}");
    } else {
        panic!("{message}");
    }
}

/// Under valgrind a processor has at most AVX2, so all that have it count alike; others run other code.
#[cfg(target_arch = "x86_64")]
fn counts_here() -> bool {
    let alike = ["aes", "pclmulqdq", "avx2", "bmi2"];
    let flags = std::fs::read_to_string("/proc/cpuinfo").expect("/proc/cpuinfo");
    let has = |wanted: &&str| flags.split_whitespace().any(|flag| flag == *wanted);
    let found = alike.iter().all(has);
    if !found {
        eprintln!(
            "NO INSTRUCTIONS WERE COUNTED: this processor lacks one of {alike:?}, with which the figures were made"
        );
    }
    found
}

#[cfg(not(target_arch = "x86_64"))]
fn counts_here() -> bool {
    eprintln!("NO INSTRUCTIONS WERE COUNTED: the figures are those of x86-64");
    false
}
