//! What remarks say.

use super::*;
use std::collections::BTreeSet;

/// Words of other programs that remarks quote.
const OF_OTHERS: [&str; 9] = [
    "client_max_body_size",
    "dst_port",
    "limit_conn",
    "limit_req",
    "proxy_cache",
    "real_ip_header",
    "ssl_certificate",
    "ssl_fc",
    "ssl_ocsp",
];

/// A remark that names an option which does not exist leads nowhere.
#[test]
fn options_that_remarks_name_exist() {
    let of_program = config::Config::PROCESS_OPTIONS.iter();
    let of_program = of_program.flat_map(|group| group.options);
    let of_sections = [config::Section::Route, config::Section::Originate];
    let of_sections = of_sections.iter().flat_map(|one| one.options().options);
    let mut known: BTreeSet<&str> = of_program.chain(of_sections).map(|one| one.name).collect();
    known.extend(OF_OTHERS);
    let mut named = BTreeSet::new();
    sources(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("src").as_path(),
        &mut |file, text| {
            let code = text
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"));
            let code = code.collect::<Vec<_>>().join("\n");
            // Otherwise what follows the odd one is read inside out.
            let marks = code.matches('`').count();
            assert_eq!(
                marks % 2,
                0,
                "{}: an odd number of backticks",
                file.display()
            );
            named.extend(code.split('`').skip(1).step_by(2).map(str::to_owned));
        },
    );
    let is_option = |word: &&String| {
        let is_letter = |c: char| c.is_ascii_lowercase() || c == '_';
        word.contains('_') && word.chars().all(is_letter)
    };
    let unknown = named.iter().filter(is_option);
    let unknown: Vec<&String> = unknown
        .filter(|word| !known.contains(word.as_str()))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    assert!(named.contains("backend_ca"), "{named:?}");
}

/// Passes the text of each source file, except those of tests.
fn sources(folder: &Path, text_of: &mut dyn FnMut(&Path, &str)) {
    for entry in folder.read_dir().expect("a folder").flatten() {
        let path = entry.path();
        let is_of_tests = path.file_stem().is_some_and(|stem| stem == "tests");
        match path.is_dir() {
            _ if is_of_tests => {}
            true => sources(&path, text_of),
            false => text_of(&path, &std::fs::read_to_string(&path).expect("a text")),
        }
    }
}
