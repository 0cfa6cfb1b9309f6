//! The insertion test: a setting that no converter knows, anywhere in a file, is a step, unless a program that stays
//! behind Dormouse still has it or all of its part is one step.

use super::*;

const UNKNOWN: &str = "zork";

/// Returns the file with an unknown setting, or an unknown word of a setting, at each place where one can be.
fn variants(file: &CorpusFile) -> Vec<String> {
    let text = &file.text;
    let at = |at: usize, new: &str| [&text[..at], new, &text[at..]].concat();
    match file.program {
        Program::Nginx => {
            let ends = text.match_indices([';', '{']);
            let is_code = text.contains("_by_lua");
            let all = ends.filter(|(at, _)| {
                let line = &text[text[..*at].rfind('\n').map_or(0, |at| at + 1)..*at];
                !line.contains(['#', '\'', '"', '$', '~']) && !is_code
            });
            let directives = all
                .clone()
                .map(|(end, _)| at(end + 1, &format!(" {UNKNOWN} on; ")));
            let has_words = |start: &str| {
                let words = start.trim_start().split(' ').next().unwrap_or_default();
                matches!(words, "listen" | "server")
            };
            let words = all.filter(|(end, _)| {
                let start = text[..*end]
                    .rfind([';', '{', '}', '\n'])
                    .map_or(0, |at| at + 1);
                has_words(&text[start..*end]) && text[*end..].starts_with(';')
            });
            let words = words.map(|(end, _)| at(end, &format!(" {UNKNOWN}")));
            directives.chain(words).collect()
        }
        _ => {
            let mut all = Vec::new();
            let mut end = 0;
            for line in text.split_inclusive('\n') {
                end += line.len();
                let first = line.split_whitespace().next().unwrap_or_default();
                let is_haproxy = file.program == Program::Haproxy;
                let has_words = ["bind", "server", "server-template", "default-server"];
                if is_haproxy && has_words.contains(&first) && !line.contains('#') {
                    all.push(at(end - 1, &format!(" {UNKNOWN}")));
                }
                let setting = if is_haproxy { "on" } else { "= on" };
                all.push(at(end, &format!(" {UNKNOWN} {setting}\n")));
            }
            all
        }
    }
}

/// Returns the page without numbers of lines and of settings: those of one part, in one statement.
fn without_numbers(page: &str) -> String {
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '-' | ',' | ' ');
    page.replace(is_number, "")
        .replace("settings", "setting")
        .replace("lines", "line")
}

#[test]
fn an_unknown_setting_is_a_step_wherever_it_is() {
    let (mut count, mut lost) = (0, Vec::new());
    for file in corpus() {
        let whole = file.unchecked(&file.text).expect("a valid configuration");
        for text in variants(&file) {
            let Some(page) = file.unchecked(&text) else {
                continue;
            };
            count += 1;
            let steps = steps(&page);
            // A part of which each setting is named by its number.
            let is_counted = || {
                let is_same = without_numbers(&page) == without_numbers(&whole);
                page != whole && is_same && !page.contains(UNKNOWN)
            };
            let stays = || !page.contains(UNKNOWN) && steps.contains(" stays behind Dormouse");
            // In a map it is a name, or a protocol.
            let is_key =
                || page.contains("server_names = [\"zork\"]") || page.contains("alpn = [\"zork\"]");
            if !steps.contains(UNKNOWN) && !is_counted() && !stays() && !is_key() {
                let line = text.lines().position(|line| line.contains(UNKNOWN));
                let line = line.expect("its line") + 1;
                let said = page.lines().find(|line| line.contains(UNKNOWN));
                lost.push(format!("{}:{line}: {said:?}", file.name));
            }
        }
    }
    assert!(count > 1500, "{count}");
    assert!(lost.is_empty(), "{} of {count}: {lost:#?}", lost.len());
}
