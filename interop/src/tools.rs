//! Foreign programs: their paths, and what to do when they are missing.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// This crate's folder.
pub fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The path of a program.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/local/go/bin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(usual)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// The path of a program that [`present`] has found.
///
/// # Panics
/// When it is not installed.
pub fn path(program: &str) -> String {
    find(program)
        .unwrap_or_else(|| panic!("{}", missing(program)))
        .to_string_lossy()
        .into_owned()
}

/// Whether all these programs are installed. A test returns if not.
///
/// # Panics
/// When a program is missing, because a test that cannot run has not passed. With
/// `DORMOUSE_SKIP_MISSING=1` it is only reported.
pub fn present(programs: &[&str]) -> bool {
    programs.iter().all(|program| {
        let found = find(program).is_some();
        found || unavailable(&missing(program))
    })
}

/// Whether HAProxy 3 is installed beside the HAProxy of the system.
///
/// # Panics
/// As [`present`].
pub fn has_haproxy_3() -> bool {
    haproxy_3()
        .iter()
        .all(|file| !file.starts_with('/') || Path::new(file).exists())
        || unavailable(&missing("haproxy-3"))
}

/// The command that starts HAProxy 3 with the libraries of its own system.
pub fn haproxy_3() -> Vec<String> {
    let root = home().join(".cache/haproxy-3");
    let file = |name: &str| root.join(name).display().to_string();
    let libraries = "usr/lib/x86_64-linux-gnu";
    let linker = file(&format!("{libraries}/ld-linux-x86-64.so.2"));
    let words = [
        linker,
        "--library-path".to_owned(),
        file(libraries),
        file("usr/sbin/haproxy"),
    ];
    words.into()
}

fn missing(program: &str) -> String {
    format!("`{program}` is not installed: run interop/install")
}

/// Reports that this machine lacks something that a test needs: past the test's captured output, for the list at the end
/// of `make test`.
///
/// # Panics
/// Always, except with `DORMOUSE_SKIP_MISSING=1`, which returns `false`.
pub fn unavailable(why: &str) -> bool {
    assert!(
        std::env::var_os("DORMOUSE_SKIP_MISSING").is_some_and(|value| value == "1"),
        "{why} (or set DORMOUSE_SKIP_MISSING=1 to skip what cannot run here)"
    );
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a part of a test");
    let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {why}");
    false
}

/// The command that starts nginx with this configuration, with errors on standard error.
pub fn nginx(configuration: &Path) -> Vec<String> {
    let file = configuration.display().to_string();
    let flags = ["-e", "stderr", "-c"].map(str::to_owned);
    [path("nginx")]
        .into_iter()
        .chain(flags)
        .chain([file])
        .collect()
}

/// The command that starts Java for a program that lives for seconds: an optimising compiler, or a collector with many
/// threads, would take more CPU time than it saves.
pub fn java() -> Vec<String> {
    let flags = [
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-Xmx256m",
        "-Xshare:auto",
    ];
    let flags = flags.map(str::to_owned).into_iter();
    std::iter::once(path("java")).chain(flags).collect()
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

/// Returns a build of the program whose slots have another layout, for upgrades between two layouts.
///
/// The binary is built in its own folder. Only the crates that know the layout are built again, so the
/// shipped program needs no feature for tests.
///
/// # Panics
/// When it does not build.
pub fn dormouse_with_another_layout() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let target = target_folder();
        let other = target.join("layout-test");
        let mut cargo = cargo_build();
        cargo
            .arg("--features=dormouse-handover/layout-test")
            .env("CARGO_BUILD_BUILD_DIR", target)
            .env("CARGO_TARGET_DIR", &other);
        run_build(cargo);
        other.join(profile_folder()).join("dormouse")
    })
}

/// Builds the program, because a test of an outdated binary would prove nothing.
fn build_dormouse() -> PathBuf {
    run_build(cargo_build());
    target_folder().join(profile_folder()).join("dormouse")
}

/// The command `cargo build` for the program, with the profile of the running test.
fn cargo_build() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    // It is set to have the duration of each test printed; build scripts of dependencies read it.
    cargo.env_remove("RUSTC_BOOTSTRAP");
    // The feature selection of the whole workspace, so that nothing is compiled twice.
    cargo.args([
        "build",
        "--quiet",
        "--locked",
        "--workspace",
        "--bin=dormouse",
    ]);
    match profile_folder().as_str() {
        "debug" => {}
        profile => {
            cargo.args(["--profile", profile]);
        }
    }
    cargo.current_dir(home());
    cargo
}

fn run_build(mut cargo: Command) {
    let built = cargo.status().expect("cargo starts");
    assert!(built.success(), "`dormouse` does not build: {cargo:?}");
}

/// The folder `target/PROFILE/deps/TEST` of the running test, at `target`.
fn target_folder() -> PathBuf {
    test_ancestor(3)
}

/// The name of the profile's folder: `debug` or `release`.
fn profile_folder() -> String {
    let folder = test_ancestor(2);
    let name = folder.file_name().expect("a folder with a name");
    name.to_string_lossy().into_owned()
}

fn test_ancestor(generation: usize) -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let folder = test.ancestors().nth(generation);
    folder.expect("target/PROFILE/deps/TEST").to_owned()
}
