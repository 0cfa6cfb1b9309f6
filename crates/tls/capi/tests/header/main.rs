//! What can be said of the header without making it again.

mod sources;

use std::path::Path;

/// The header was made from this source: `tests/header/generated.rs` has compared them, and written the sum.
#[test]
fn the_source_is_that_of_the_header() {
    let written = std::fs::read_to_string(sources::sum_file()).unwrap();
    assert_eq!(
        written,
        sources::sum(),
        "the source has changed since include/dormouse.h was made: `make header` makes it again"
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
