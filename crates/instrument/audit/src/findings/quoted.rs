//! Figures that advice quotes, from a table that `lab/audits/quotes` makes of the lab's results. `cargo xtask tidy` checks
//! that the table and the results agree.

use std::fmt::Write;

const TABLE: &str = include_str!("quoted.md");
const OPEN: &str = "{{";
const CLOSE: &str = "}}";

/// Replaces every `{{name}}` in the text with its row of the table.
pub(super) fn filled(text: &str) -> String {
    let mut filled = String::with_capacity(2 * text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(OPEN) {
        let Some((name, after)) = behind.split_once(CLOSE) else {
            break;
        };
        filled.push_str(before);
        // A test checks that every name is in the table.
        match rows().find(|row| row.0 == name) {
            Some((_, words)) => filled.push_str(words),
            None => drop(write!(filled, "({name} was not measured)")),
        }
        rest = after;
    }
    filled + rest
}

/// The figures of a row about bytes: the first and the last, which are equal if the row has only one.
pub(super) fn byte_figures(name: &str) -> Option<(f64, f64)> {
    let (_, words) = rows().find(|row| row.0 == name)?;
    // `Go 1.26.8: 39,669 → 16,805 bytes per connection`: the version is not a figure.
    let figures = words
        .rsplit_once(": ")
        .map_or(words, |(_, figures)| figures);
    let (figures, _) = figures.split_once(" bytes")?;
    let number = |word: &str| word.trim().replace(',', "").parse::<f64>().ok();
    match figures.split_once(" → ") {
        Some((before, after)) => Some((number(before)?, number(after)?)),
        None => number(figures).map(|one| (one, one)),
    }
}

/// Name and text of each row.
fn rows() -> impl Iterator<Item = (&'static str, &'static str)> {
    TABLE.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("| ")?.split_once(" | ")?;
        Some((name, rest.rsplit_once(" | ")?.0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::FindingId;
    use crate::software::SoftwareKind;
    use crate::software::openssl::WORK_OF_LIBRARY;

    #[test]
    fn a_name_becomes_what_was_measured() {
        let (name, words) = rows().find(|row| row.0.starts_with("compare.")).unwrap();
        assert!(words.contains("bytes"), "{words}");
        let text = format!("Tried with {{{{{name}}}}}; ssl_opts => {{ a }}");
        assert_eq!(
            filled(&text),
            format!("Tried with {words}; ssl_opts => {{ a }}")
        );
        assert_eq!(
            filled("{{nobody}}, {{open"),
            "(nobody was not measured), {{open"
        );
    }

    /// Every quoted name is in the table, and every row of the table is quoted.
    #[test]
    fn advice_and_table_fit() {
        let rows_of = |id: &FindingId| {
            let row = id.row();
            [row.title, row.good, row.cause, row.change]
        };
        let of_findings = FindingId::ALL.iter().flat_map(rows_of);
        let of_software = SoftwareKind::ALL
            .iter()
            .flat_map(|kind| kind.program().texts());
        let texts: String = of_findings
            .chain(of_software)
            .chain([WORK_OF_LIBRARY])
            .collect();
        let named: Vec<&str> = texts
            .split(OPEN)
            .skip(1)
            .filter_map(|rest| rest.split_once(CLOSE))
            .map(|(name, _)| name)
            .collect();
        assert!(named.len() >= 40, "{}", named.len());
        for name in &named {
            assert!(
                rows().any(|row| row.0 == *name),
                "{name} was not measured: lab/audits/quotes"
            );
        }
        for (name, _) in rows().filter(|row| row.0.contains('.')) {
            // Baselines have both figures of a peer.
            let compared = name.replace("used.", "compare.");
            assert!(named.contains(&&*compared), "nobody quotes {name}");
        }
    }
}
