//! Builds C programs linked with the current library.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The tool that watches a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watch {
    Nothing,
    /// AddressSanitizer with its leak detector, and UndefinedBehaviorSanitizer.
    Sanitizers,
}

pub(crate) fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the directory of libdormouse.a and libdormouse.so.
pub(crate) fn libraries() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let near = program.ancestors().skip(1).take(2);
    near.map(Path::to_path_buf)
        .find(|folder| folder.join("libdormouse.a").exists())
        .expect("cargo builds the static library beside the test")
}

/// Compiles a program of this package, statically linked with libdormouse.
pub(crate) fn c(folder: &Path, source: &str, watch: Watch) -> PathBuf {
    let program = folder.join(format!("{}-{watch:?}", source.replace('/', "-")));
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror"]);
    if watch == Watch::Sanitizers {
        cc.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
    }
    cc.arg("-I").arg(package().join("include"));
    cc.arg("-o").arg(&program).arg(package().join(source));
    cc.arg(libraries().join("libdormouse.a"));
    cc.args(["-lpthread", "-ldl", "-lm", "-lgcc_s", "-lrt"]);
    let output = cc.output().expect("a C compiler");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{source}: {errors}");
    program
}
