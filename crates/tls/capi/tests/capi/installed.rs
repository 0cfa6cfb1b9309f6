//! The library as `install` puts it into a system.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::build::{libraries, package};
use crate::process::succeed;

/// Installs the current library under this folder.
fn install(prefix: &Path) {
    let mut install = Command::new(package().join("install"));
    succeed(install.arg(prefix).env("BUILT", libraries()), "");
}

/// Returns pkg-config's words for this installation.
fn pkg_config(prefix: &Path, arguments: &[&str]) -> Vec<String> {
    let mut pkg_config = Command::new("pkg-config");
    pkg_config.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    let words = succeed(pkg_config.args(arguments), "");
    words.split_whitespace().map(str::to_owned).collect()
}

/// Compiles the program of every misuse as a program outside of this repository would.
fn compile(prefix: &Path, name: &str, libraries: &[&str], options: &[&str]) -> PathBuf {
    let program = prefix.join(name);
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-o"]).arg(&program);
    cc.arg(package().join("tests/c/misuse.c")).args(options);
    cc.args(pkg_config(prefix, libraries));
    succeed(&mut cc, "");
    program
}

#[test]
fn programs_link_with_it_in_each_way() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path();
    install(prefix);
    for (name, package, options, is_static) in [
        (
            "shared",
            &["--cflags", "--libs", "dormouse"][..],
            &[][..],
            false,
        ),
        (
            "static",
            &["--cflags", "--libs", "dormouse-static"],
            &[],
            true,
        ),
        (
            "without-any",
            &["--static", "--cflags", "--libs", "dormouse"],
            &["-static"],
            true,
        ),
    ] {
        let program = compile(prefix, name, package, options);
        let needed = succeed(Command::new("readelf").arg("-d").arg(&program), "");
        assert_eq!(
            !needed.contains("libdormouse"),
            is_static,
            "{name}: {needed}"
        );
        let mut run = Command::new(&program);
        run.env("LD_LIBRARY_PATH", prefix.join("lib"));
        assert_eq!(succeed(&mut run, ""), "done\n", "{name}");
    }
}

/// A program may contain other Rust libraries, and other copies of the cryptographic library.
#[test]
fn every_symbol_has_the_prefix() {
    let folder = tempfile::tempdir().unwrap();
    install(folder.path());
    for library in ["lib/libdormouse.a", "lib/libdormouse.so"] {
        let mut readelf = Command::new("readelf");
        let table = if library.ends_with(".a") {
            "--symbols"
        } else {
            "--dyn-syms"
        };
        readelf
            .args(["--wide", table])
            .arg(folder.path().join(library));
        let symbols = succeed(&mut readelf, "");
        let exported: Vec<&str> = symbols.lines().filter_map(exported).collect();
        assert!(exported.contains(&"dormouse_accept"), "{library}");
        let foreign = exported.iter().find(|name| !name.starts_with("dormouse_"));
        assert_eq!(foreign, None, "{library}");
    }
}

/// Returns the name in a line of readelf's table if other objects see this definition.
fn exported(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().skip(4);
    let (binding, _visibility) = (words.next()?, words.next()?);
    let (section, name) = (words.next()?, words.next()?);
    (matches!(binding, "GLOBAL" | "WEAK" | "UNIQUE") && section != "UND").then_some(name)
}

/// Otherwise the destructors of a thread's memory are gone when the thread ends.
#[test]
fn it_stays_loaded_while_a_thread_that_used_it_lives() {
    let folder = tempfile::tempdir().unwrap();
    install(folder.path());
    let program = folder.path().join("unload");
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program);
    cc.arg(package().join("tests/c/unload.c"));
    cc.args(pkg_config(folder.path(), &["--cflags", "dormouse"]));
    succeed(cc.args(["-lpthread", "-ldl"]), "");
    let mut run = Command::new(program);
    run.arg(folder.path().join("lib/libdormouse.so"));
    assert_eq!(succeed(&mut run, ""), "done\n");
}
