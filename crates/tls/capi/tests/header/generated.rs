//! The header is made from the source with cbindgen. `make header` writes it; with the feature `header` only, because
//! cbindgen takes as long to compile as the library.

mod sources;

use std::path::Path;

#[test]
fn the_header_is_made_from_the_source() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(package.join("cbindgen.toml")).unwrap();
    let mut made = Vec::new();
    cbindgen::Builder::new()
        .with_src(package.join("src/lib.rs"))
        .with_config(config)
        .generate()
        .unwrap()
        .write(&mut made);
    let made = String::from_utf8(made).unwrap();
    let path = package.join("include/dormouse.h");
    if std::env::var_os("DORMOUSE_BLESS").is_some() {
        std::fs::write(&path, &made).unwrap();
        std::fs::write(sources::sum_file(), sources::sum()).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap();
    assert!(
        committed == made,
        "include/dormouse.h differs from its source: `make header` writes it"
    );
}
