//! Every option, from its own definition: that its values are refused as they should be, and that
//! what is told helps. Nothing here names an option; a new one is asked the same.

use super::*;

/// An option and the section in which it stands; `None`: above all of them.
type Place = (Option<Section>, &'static OptionSpec);

fn all() -> Vec<Place> {
    let of_process = Config::PROCESS_OPTIONS
        .iter()
        .flat_map(|group| group.options);
    let of_sections = Section::ALL.into_iter().flat_map(|section| {
        section
            .options()
            .options
            .iter()
            .map(move |spec| (Some(section), spec))
    });
    of_process
        .map(|spec| (None, spec))
        .chain(of_sections)
        .collect()
}

/// A file in which the option has this value, and the number of its line. Nothing else is wrong.
fn file((section, spec): Place, value: &str) -> (String, usize) {
    let mut text = String::new();
    if section.is_none() {
        text.push_str(&format!("{} = {value}\n", spec.name));
    }
    let mut line = 1;
    for each in Section::ALL {
        if section.is_some_and(|section| section != each) {
            continue;
        }
        text.push_str(&format!("[[{}]]\n", each.name()));
        for (name, given) in [
            (
                "listen",
                if each == Section::Route {
                    "':8443'"
                } else {
                    "':8080'"
                },
            ),
            ("to", "'192.0.2.7:80'"),
            ("self_signed", "'localhost'"),
        ] {
            let has = each.options().options.iter().any(|one| one.name == name);
            let is_asked = section.is_some() && spec.name == name;
            if has && !is_asked {
                text.push_str(&format!("{name} = {given}\n"));
            }
        }
        if section.is_some() {
            line = text.lines().count() + 1;
            text.push_str(&format!("{} = {value}\n", spec.name));
        }
    }
    (text, line)
}

/// What is told of a value, in the line of the option.
fn told_of(place: Place, value: &str) -> Vec<Mistake> {
    let (text, line) = file(place, value);
    let answer = match load_text(&text) {
        Ok(loaded) => loaded.warnings,
        Err(mistakes) => mistakes,
    };
    assert_eq!(answer.file.as_deref(), Some(Path::new("etc/dormouse.toml")));
    let is_there = |mistake: &Mistake| match &mistake.source {
        Source::Line { line: there, .. } => *there == line,
        _ => false,
    };
    let errors = answer
        .list
        .into_iter()
        .filter(|one| one.severity == Severity::Error);
    errors.filter(is_there).collect()
}

/// Whether somebody who reads it knows what to write instead.
fn helps(mistake: &Mistake) -> bool {
    let says = |text: &str| text.split_whitespace().count() >= 2;
    !mistake.what.is_empty() && (says(&mistake.label) || mistake.help.as_deref().is_some_and(says))
}

/// A value that is nothing: each kind of value is wrong for some options only, a date for all.
const NOTHING: [&str; 3] = ["1979-05-27", "[[1979-05-27]]", "{ x = 1979-05-27 }"];

#[test]
fn each_refuses_what_it_cannot_be_and_says_what_it_can() {
    for place in all() {
        let (_, spec) = place;
        for value in NOTHING {
            let told = told_of(place, value);
            assert!(!told.is_empty(), "{} = {value} was accepted", spec.name);
            for mistake in told {
                assert!(helps(&mistake), "{} = {value}: {mistake:?}", spec.name);
            }
        }
    }
}

/// Values that some options take: whoever refuses them says what would be right.
#[test]
fn each_that_refuses_a_value_helps() {
    let values = [
        "''",
        "\"\\u0000\"",
        "'?'",
        "0",
        "-1",
        "1.5",
        "true",
        "[]",
        "{}",
        "99999999999999999999",
    ];
    for place in all() {
        for value in values {
            for mistake in told_of(place, value) {
                assert!(helps(&mistake), "{} = {value}: {mistake:?}", place.1.name);
            }
        }
    }
}

/// The next value below the least, and the next above the greatest.
#[test]
fn each_refuses_what_is_out_of_its_range_and_says_the_range() {
    let mut asked = 0;
    for place in all() {
        let (_, spec) = place;
        let Some((least, greatest)) = spec.range else {
            continue;
        };
        for value in below(least).into_iter().chain([above(greatest)]) {
            let told = told_of(place, &value);
            let said = format!("it may be from {least} to {greatest}");
            let says_it = told
                .iter()
                .any(|mistake| mistake.help.as_deref() == Some(said.as_str()));
            assert!(says_it, "{} = {value}: {told:?}", spec.name);
            asked += 1;
        }
    }
    assert!(asked > 50, "only {asked} were asked");
}

fn below(least: &str) -> Option<String> {
    match parts(least) {
        (0, _) => None,
        (number, "") => Some((number - 1).to_string()),
        (number, unit) => Some(format!("\"{}{unit}\"", number - 1)),
    }
}

fn above(greatest: &str) -> String {
    match parts(greatest) {
        (number, "") => (number + 1).to_string(),
        (number, unit) => format!("\"{}{unit}\"", number + 1),
    }
}

/// A number and its unit.
fn parts(text: &str) -> (u64, &str) {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    (
        number.parse().expect("a number in the table of options"),
        unit,
    )
}

#[test]
fn each_choice_that_is_misspelt_is_put_right() {
    for place in all() {
        let (_, spec) = place;
        for choice in spec.kind.choices {
            let misspelt = format!("\"{choice}x\"");
            let told = told_of(place, &misspelt);
            let is_put_right = |mistake: &Mistake| {
                let said = format!("{} {:?}", mistake.label, mistake.help);
                said.contains("did you mean")
                    || spec.kind.choices.iter().all(|one| said.contains(one))
            };
            assert!(
                told.iter().any(is_put_right),
                "{} = {misspelt}: {told:?}",
                spec.name
            );
        }
    }
}

/// What raises memory, or the work of a connection, says what it costs: those of the limits, and
/// nothing without words.
#[test]
fn each_says_what_it_is() {
    for (_, spec) in all() {
        assert!(
            spec.summary().split_whitespace().count() >= 3,
            "{} says nothing",
            spec.name
        );
        assert!(
            spec.doc.trim_end().ends_with('.'),
            "{}: no full stop",
            spec.name
        );
        assert!(
            !spec.kind.example.is_empty(),
            "{} has no example",
            spec.name
        );
        let measured = spec.kind.name.contains("size") || spec.kind.name.contains("duration");
        let ranged = spec.range.is_some();
        assert!(!measured || ranged, "{} has no range", spec.name);
    }
}
