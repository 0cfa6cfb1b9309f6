//! The header is generated with cbindgen: `DORMOUSE_BLESS=1 cargo test -p dormouse-capi` writes it.

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
    }
    let committed = std::fs::read_to_string(&path).unwrap();
    assert!(
        committed == made,
        "include/dormouse.h differs from its source; DORMOUSE_BLESS=1 writes it"
    );
}

/// Every public item is documented, and every function describes its use of memory.
#[test]
fn every_function_is_documented() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = std::fs::read_to_string(package.join("include/dormouse.h")).unwrap();
    let lines: Vec<&str> = header.lines().collect();
    let mut functions = 0;
    for (number, line) in lines.iter().enumerate() {
        let is_function = line.contains(" dormouse_") || line.contains("*dormouse_");
        if !is_function || !line.contains('(') || line.starts_with([' ', '/', '*', 't']) {
            continue;
        }
        functions += 1;
        let before = lines[..number].iter().rfind(|line| !line.trim().is_empty());
        let documented = before.is_some_and(|line| line.starts_with("//"));
        assert!(documented, "line {}: {line}", number + 1);
    }
    assert!(functions > 50, "{functions} functions were found");
}
