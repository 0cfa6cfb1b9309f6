//! A sum of what the header is made from.

use std::path::{Path, PathBuf};

/// The file with the sum of the source from which the header was made, and of the header.
pub(crate) fn sum_file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/header/sum")
}

/// The sum of the source, of cbindgen's settings and of the header: FNV-1a, which finds every change that is not made for
/// it.
pub(crate) fn sum() -> String {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let entries = package.join("src").read_dir().unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.extend(["cbindgen.toml", "include/dormouse.h"].map(|file| package.join(file)));
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    for file in files {
        let name = file.strip_prefix(package).unwrap().to_string_lossy();
        let content = std::fs::read(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
        for byte in name.bytes().chain([0]).chain(content) {
            sum = (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    format!("{sum:016x}\n")
}
