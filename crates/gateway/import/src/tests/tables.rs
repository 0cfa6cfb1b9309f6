//! The tables of the guide, made from the converters: each row is a setting, and what stands in the result because of it.
//! `DORMOUSE_BLESS=1 cargo test -p dormouse-import` writes them.

use std::collections::BTreeMap;

use super::*;

mod samples;

use samples::{SAMPLES, Sample};

const BEGIN: &str =
    "<!-- made from the converters: DORMOUSE_BLESS=1 cargo test -p dormouse-import -->\n";
const END: &str = "<!-- end -->\n";

/// Returns whether a list of lines, as the result has it (`line 3`, `lines 2-4, 7`), has one of these.
fn has_line(text: &str, lines: &std::ops::RangeInclusive<usize>) -> bool {
    let text = text
        .trim_start_matches("lines ")
        .trim_start_matches("line ");
    text.split(", ").any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| {
            text.chars()
                .take_while(char::is_ascii_digit)
                .collect::<String>()
                .parse::<usize>()
        };
        match (number(first), number(last)) {
            (Ok(first), Ok(last)) => lines.clone().any(|line| (first..=last).contains(&line)),
            _ => false,
        }
    })
}

/// Returns whether a quote, which may be of a whole block, is about one of these lines.
fn is_about(quote: &str, lines: &std::ops::RangeInclusive<usize>) -> bool {
    let mut blocks = quote.split(" … (").skip(1);
    let in_block =
        blocks.any(|block| has_line(block.split(" settings").next().unwrap_or_default(), lines));
    in_block
        || lines.clone().any(|line| {
            quote.contains(&format!("line {line}: ")) || quote.contains(&format!("line {line}, "))
        })
        || quote.strip_prefix("# line").is_some_and(|rest| {
            rest.contains(" settings")
                && has_line(
                    rest.split(':')
                        .next()
                        .unwrap_or_default()
                        .trim_start_matches('s')
                        .trim(),
                    lines,
                )
        })
}

/// Returns what stands in the result because of a setting.
fn becomes(program: Program, sample: &Sample) -> String {
    let (before, _) = sample
        .frame
        .split_once('@')
        .expect("a place for the setting");
    let first = before.matches('\n').count() + 1;
    let lines = first..=first + sample.setting.matches('\n').count();
    let text = sample.frame.replace('@', sample.setting);
    let there = Path::new("/etc/there/there.conf");
    let page = |text: &str| {
        whole(program, text, there)
            .expect("a valid configuration")
            .text
    };
    let (page, without) = (page(&text), page(&sample.frame.replace('@', "")));
    let before: Vec<String> = without_places(&without)
        .lines()
        .map(str::to_owned)
        .collect();
    let mut parts: Vec<String> = Vec::new();
    let mut add = |part: String| {
        if !parts.contains(&part) {
            parts.push(part);
        }
    };
    for step in steps(&page)
        .lines()
        .map(|step| step.trim().trim_matches([',', '"', ' ']))
    {
        // `TITLE: line 6: setting -- why`
        if let Some((quote, why)) = step.split_once(" -- ")
            && is_about(quote, &lines)
        {
            add(format!("**to do**: {}", why.replace("\\\"", "\"")));
        }
    }
    for line in page.lines() {
        if line.starts_with("# ") {
            let (quote, why) = line.split_once(" -- ").unwrap_or_default();
            if is_about(quote, &lines) {
                add(why.to_owned());
            }
        } else if let Some((option, places)) = line.rsplit_once("  # ")
            && has_line(places, &lines)
            && !before.contains(&option.to_owned())
        {
            add(format!("`{option}`"));
        }
    }
    let options = parts.iter().filter(|part| part.starts_with('`')).cloned();
    let others = parts.iter().filter(|part| !part.starts_with('`')).cloned();
    options
        .chain(others)
        .collect::<Vec<_>>()
        .join("; ")
        .replace('|', "\\|")
}

fn table(program: Program) -> String {
    let file = match program {
        Program::Hitch => "hitch.conf",
        Program::Stunnel => "stunnel.conf",
        Program::Nginx => "nginx.conf",
        Program::Haproxy => "haproxy.cfg",
    };
    let mut page = format!("{BEGIN}\n| {file} | in the result |\n|---|---|\n");
    for sample in SAMPLES.iter().filter(|one| one.program == program) {
        let setting = sample
            .setting
            .trim()
            .replace(";\n", "; ")
            .replace('\n', "; ");
        let what = becomes(program, sample);
        assert!(!what.is_empty(), "{program:?}: {}", sample.setting);
        page.push_str(&format!("| `{}` | {what} |\n", setting.replace('|', "\\|")));
    }
    page.push_str("\nSettings without effect in Dormouse, each a comment of the result:\n\n| setting | why |\n|---|---|\n");
    for (why, names) in without_effect(program) {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        page.push_str(&format!("| {} | {why} |\n", names.join(", ")));
    }
    page.push_str(&format!("\n{END}"));
    page
}

fn without_effect(program: Program) -> BTreeMap<&'static str, Vec<&'static str>> {
    let settings = match program {
        Program::Hitch => crate::hitch::WITHOUT_EFFECT.to_vec(),
        Program::Stunnel => crate::stunnel::WITHOUT_EFFECT.to_vec(),
        Program::Nginx => crate::nginx::without_effect(),
        Program::Haproxy => crate::haproxy::without_effect(),
    };
    let mut all: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, why) in settings {
        all.entry(why).or_default().push(name);
    }
    for names in all.values_mut() {
        names.sort_unstable();
        names.dedup();
    }
    all
}

#[test]
fn the_guide_has_the_tables_of_the_converters() {
    for (program, name) in [
        (Program::Nginx, "nginx"),
        (Program::Haproxy, "haproxy"),
        (Program::Hitch, "hitch"),
        (Program::Stunnel, "stunnel"),
    ] {
        let path = format!(
            "{}/../../../docs/guide/moving-from-{name}.md",
            env!("CARGO_MANIFEST_DIR")
        );
        let page = std::fs::read_to_string(&path).expect("the page");
        let (before, rest) = page.split_once(BEGIN).expect("the beginning of the table");
        let (_, after) = rest.split_once(END).expect("the end of the table");
        let now = [before, &table(program), after].concat();
        if std::env::var_os("DORMOUSE_BLESS").is_some() {
            std::fs::write(&path, &now).expect("written");
        } else {
            assert!(
                page == now,
                "{path} is not what the converters do: DORMOUSE_BLESS=1 cargo test -p dormouse-import"
            );
        }
    }
}
