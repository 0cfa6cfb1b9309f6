//! Reports of the recorded audits are compared with those in `golden/`. Reports change only on purpose:
//! `DORMOUSE_BLESS=1 cargo test -p dormouse-audit --test recorded` rewrites the files.

use std::path::Path;

use dormouse_audit::report::{self, Form};

use super::audits;

fn compare(name: &str, made: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded/golden");
    let file = folder.join(name);
    if std::env::var_os("DORMOUSE_BLESS").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(&file, made).unwrap();
    }
    let golden = std::fs::read_to_string(&file).unwrap();
    for (number, (golden, made)) in golden.lines().zip(made.lines()).enumerate() {
        assert_eq!(golden, made, "{name}, line {}", number + 1);
    }
    assert_eq!(golden.lines().count(), made.lines().count(), "{name}");
}

/// The text of a page without its style, each tag on a line of its own: white space between tags has no meaning.
fn tags(page: &str) -> String {
    let (_, body) = page.split_once("</head>").unwrap();
    // A shape in a picture has no content.
    let shapes = ["line", "path", "circle"];
    let body = shapes.iter().fold(body.replace("/>", ">"), |body, shape| {
        body.replace(&format!("</{shape}>"), "")
    });
    let spaced = body
        .replace("&#39;", "'")
        .replace('<', "\n<")
        .replace('>', ">\n");
    let lines = spaced.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn the_text_is_as_recorded() {
    let text = |mut audit: dormouse_audit::Audit| {
        let recorded = report::text(&audit, Form::default());
        audit.judge_again();
        recorded + &report::text(&audit, Form::default())
    };
    let texts: Vec<_> = audits().into_iter().map(text).collect();
    compare("audits.txt", &texts.join("\n"));
}

#[test]
fn the_page_is_as_recorded() {
    let audits = audits();
    let each = audits
        .iter()
        .map(|audit| report::page(&report::title(audit), std::slice::from_ref(audit)));
    let all = report::page("Audits", &audits);
    let pages: Vec<_> = each.chain([all]).map(|page| tags(&page)).collect();
    compare("pages.html", &pages.join("\n"));
}

#[test]
fn the_differences_are_as_recorded() {
    let audits = audits();
    let differences = audits.iter().flat_map(|before| {
        audits
            .iter()
            .map(move |after| report::difference(before, after).unwrap_or_else(|why| why + "\n"))
    });
    compare(
        "differences.txt",
        &differences.collect::<Vec<_>>().join("\n"),
    );
}

/// The order of fields has no meaning.
#[test]
fn the_json_is_as_recorded() {
    let all: Vec<_> = audits()
        .iter()
        .map(|audit| serde_json::to_value(audit).unwrap())
        .collect();
    let json = serde_json::Value::from(all);
    compare("audits.json", &serde_json::to_string(&json).unwrap());
}
