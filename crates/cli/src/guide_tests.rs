//! Tests that the command line accepts every command in the README and the guide. `interop` runs
//! them, and has `dormouse check` read the configurations.

use std::path::{Path, PathBuf};

use clap::CommandFactory as _;

use crate::arguments::Arguments;

/// Returns the pages and the README.
fn pages() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guide = std::fs::read_dir(root.join("docs/guide")).expect("the guide");
    let guide = guide.map(|entry| entry.expect("a page").path());
    let is_page = |path: &PathBuf| path.extension().is_some_and(|end| end == "md");
    let all = guide.filter(is_page).chain([root.join("README.md")]);
    all.map(|path| {
        let text = std::fs::read_to_string(&path).expect("a page");
        (path, text)
    })
    .collect()
}

/// Returns the contents of blocks in a language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let opening = format!("```{language}\n");
    let all = page.split(&opening).skip(1);
    all.filter_map(|rest| rest.split("```").next()).collect()
}

/// Splits a line into words as a shell does, as far as the guide needs: quotes, `$(…)`, no
/// variables.
fn words(line: &str) -> Vec<String> {
    let mut all = Vec::new();
    let (mut word, mut quote, mut depth) = (String::new(), None, 0);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(end), c) if c == end => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, '$') if chars.peek() == Some(&'(') => depth += 1,
            (None, ')') if depth > 0 => {
                depth -= 1;
                word.push('1');
            }
            (None, _) if depth > 0 => {}
            (None, ' ') => all.extend((!word.is_empty()).then(|| std::mem::take(&mut word))),
            (None, '#') if word.is_empty() => break,
            (_, c) => word.push(c),
        }
    }
    all.extend((!word.is_empty()).then_some(word));
    all
}

/// Returns every `dormouse` command in a block, as words.
fn commands(block: &str) -> Vec<Vec<String>> {
    let joined = block.replace("\\\n", " ");
    let mut all = Vec::new();
    for line in joined.lines() {
        let words = words(line);
        for command in words.split(|word| matches!(word.as_str(), "&&" | "|" | ";" | "||" | "&")) {
            let redirected = command
                .iter()
                .position(|word| word.starts_with('>') || word.starts_with("2>"));
            let command = &command[..redirected.unwrap_or(command.len())];
            let ours = command
                .iter()
                .position(|word| word == "dormouse" || word.ends_with("/dormouse"));
            // Not as an argument of another program.
            if let Some(at) = ours
                .filter(|at| *at == 0 || matches!(command[0].as_str(), "sudo" | "exec" | "time"))
            {
                all.push(command[at..].to_vec());
            }
        }
    }
    all
}

#[test]
fn every_command_of_the_guide_is_valid() {
    let mut seen = 0;
    for (path, page) in pages() {
        for command in blocks(&page, "sh").into_iter().flat_map(commands) {
            let answer = Arguments::command().try_get_matches_from(&command);
            if let Err(error) = answer {
                assert!(
                    !error.use_stderr(),
                    "{}: {command:?}\n{error}",
                    path.display()
                );
            }
            seen += 1;
        }
    }
    assert!(seen > 40, "only {seen} were found");
}
