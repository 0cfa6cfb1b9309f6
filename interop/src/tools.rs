//! Foreign programs: where they are, and what to do when they are not.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// This crate's folder.
pub fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where a program is.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/local/go/bin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(usual)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// Where a program is which [`present`] has found before.
///
/// # Panics
/// When it is not installed.
pub fn path(program: &str) -> String {
    find(program)
        .unwrap_or_else(|| panic!("{}", missing(program)))
        .to_string_lossy()
        .into_owned()
}

/// Whether all these programs are there. A test returns if not.
///
/// # Panics
/// When one is missing: a test that cannot run has not passed. With
/// `DORMOUSE_SKIP_MISSING=1` that is only reported.
pub fn present(programs: &[&str]) -> bool {
    programs.iter().all(|program| {
        let found = find(program).is_some();
        found || unavailable(&missing(program))
    })
}

fn missing(program: &str) -> String {
    format!("`{program}` is not installed: run interop/install")
}

/// Something that a test needs is not to be had here.
///
/// # Panics
/// Always, but with `DORMOUSE_SKIP_MISSING=1`, where it reports and gives `false`.
pub fn unavailable(why: &str) -> bool {
    assert!(
        std::env::var_os("DORMOUSE_SKIP_MISSING").is_some_and(|value| value == "1"),
        "{why} (or set DORMOUSE_SKIP_MISSING=1 to skip what cannot run here)"
    );
    eprintln!("SKIPPED: {why}");
    false
}

/// What starts nginx with this configuration, its complaints where they can be read.
pub fn nginx(configuration: &Path) -> Vec<String> {
    let file = configuration.display().to_string();
    let flags = ["-e", "stderr", "-c"].map(str::to_owned);
    [path("nginx")]
        .into_iter()
        .chain(flags)
        .chain([file])
        .collect()
}

/// The program under test: `DORMOUSE_BIN`, or what this workspace builds.
///
/// # Panics
/// When it does not build.
pub fn dormouse() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os("DORMOUSE_BIN") {
        Some(given) => given.into(),
        None => build_dormouse(),
    })
}

/// A build of the program whose slots have another layout.
///
/// # Panics
/// When it does not build.
pub fn dormouse_with_another_layout() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        build(&[
            "--bin=dormouse-layout-test",
            "--features=dormouse/layout-test",
        ])
        .join("dormouse-layout-test")
    })
}

/// A binary that is older than the sources would prove nothing, so cargo has a look.
fn build_dormouse() -> PathBuf {
    build(&["--bin=dormouse"]).join("dormouse")
}

/// Builds a binary, and returns the folder it lies in.
fn build(what: &[&str]) -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let profile = test
        .ancestors()
        .nth(2)
        .expect("target/PROFILE/deps/the-test");
    let mut cargo = Command::new(env!("CARGO"));
    // Of the whole workspace: with its selection of features nothing is built twice.
    cargo.args(["build", "--quiet", "--workspace"]).args(what);
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    let built = cargo
        .current_dir(home())
        .status()
        .expect("cargo can be started");
    assert!(built.success(), "`dormouse` does not build: {what:?}");
    profile.to_owned()
}
