//! The page that shows the rows: the part of `interop/world/README.md` between two marks.

use std::fmt::Write;
use std::fs;

use dormouse_interop::tools;

use super::program::Program;
use super::table::{Case, Expectation, Subject};

const BEGIN: &str = "<!-- begin: the rows of interop/world -->\n";
const END: &str = "<!-- end: the rows of interop/world -->\n";

#[test]
fn the_page_shows_the_rows() {
    let file = tools::home().join("world/README.md");
    let text = fs::read_to_string(&file).expect("the page");
    let (head, rest) = text.split_once(BEGIN).expect("the first mark");
    let (_, foot) = rest.split_once(END).expect("the second mark");
    let fresh = format!("{head}{BEGIN}{}{END}{foot}", body(&Subject::all()));
    if std::env::var_os("DORMOUSE_BLESS").is_some() {
        fs::write(&file, &fresh).expect("written");
        return;
    }
    assert!(
        fresh == text,
        "interop/world/README.md differs from interop/world. To write it again:\n    \
         DORMOUSE_BLESS=1 cargo test -p dormouse-interop --test interop world::page"
    );
}

fn body(subjects: &[Subject]) -> String {
    let rows: usize = subjects.iter().map(|subject| subject.cases.len()).sum();
    let mut text = format!("\n{rows} rows.\n");
    for subject in subjects {
        let _ = write!(text, "\n## {}\n\n{}", subject.title, table(subject));
    }
    text.push('\n');
    text
}

fn table(subject: &Subject) -> String {
    let mut programs: Vec<Program> = subject
        .cases
        .iter()
        .flat_map(|case| case.expectations())
        .map(|(program, _)| program)
        .collect();
    programs.sort_unstable();
    programs.dedup();
    let heads: String = programs
        .iter()
        .map(|program| format!(" {program} |"))
        .collect();
    let mut text = format!(
        "| situation | report |{heads}\n|---|---|{}\n",
        "---|".repeat(programs.len())
    );
    for case in &subject.cases {
        let _ = writeln!(text, "{}", row(case, &programs));
    }
    text
}

fn row(case: &Case, programs: &[Program]) -> String {
    let note = case.note.as_ref().map(|note| format!(". {note}"));
    let mut text = format!(
        "| {}{} | {} |",
        escaped(&case.situation),
        escaped(&note.unwrap_or_default()),
        case.report.as_deref().unwrap_or("–")
    );
    let expectations = case.expectations();
    for program in programs {
        let found = expectations.iter().find(|(of, _)| of == program);
        let mut cell = found.map_or("–".to_owned(), |(_, expectation)| result(expectation));
        if let (Program::Dormouse, Some(reason)) = (program, &case.waits) {
            cell = format!("not yet ({}): {cell}", escaped(reason));
        }
        let _ = write!(text, " {cell} |");
    }
    text
}

fn result(expectation: &Expectation) -> String {
    if let Some(words) = &expectation.does {
        return escaped(words);
    }
    let mut parts = Vec::new();
    let mut add = |what: &str, fragments: &[String]| {
        let texts: Vec<String> = fragments
            .iter()
            .map(|text| format!("`{}`", escaped(text.trim())))
            .collect();
        parts.push(match texts.is_empty() {
            true => what.to_owned(),
            false => format!("{what} {}", texts.join(", ")),
        });
    };
    if let Some(fragments) = &expectation.refuses {
        add("refuses:", fragments);
    }
    if let Some(fragments) = &expectation.warns {
        add("warns:", fragments);
    }
    if let Some(fragments) = expectation.gives.as_ref().filter(|gives| !gives.is_empty()) {
        add("", fragments);
    }
    if !expectation.never.is_empty() {
        add("not", &expectation.never);
    }
    if !expectation.logs.is_empty() {
        add("log:", &expectation.logs);
    }
    parts.join("; ").trim().to_owned()
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
