//! The committed figures (`counts.toml`) and their comparison with new counts.

use std::collections::BTreeMap;
use std::fmt::Write;

use toml::de::{DeTable, DeValue};

/// Default tolerance: how far a count may rise or fall.
const TOLERANCE_PERCENT: f64 = 2.0;

/// Tolerance with another compiler, valgrind or C library than the figures were made with. A different optimiser stays
/// below it; a library object per record or a parsed certificate per handshake exceeds it.
const OTHER_TOOLS_TOLERANCE_PERCENT: f64 = 25.0;

/// The content of `counts.toml`.
#[derive(Debug, PartialEq)]
pub struct Figures {
    /// Compiler, valgrind and C library.
    pub made_with: String,
    /// The figure of each case.
    pub counts: BTreeMap<String, Figure>,
}

/// The figure of a case.
#[derive(Debug, PartialEq)]
pub struct Figure {
    /// Instructions of one round.
    pub instructions: u64,
    /// By how many percent a count may rise or fall.
    pub tolerance_percent: f64,
}

impl Figures {
    /// Reads a file's text.
    pub fn parse(text: &str) -> Result<Figures, String> {
        let file = DeTable::parse(text).map_err(|error| format!("counts.toml: {error}"))?;
        let made_with = file
            .get_ref()
            .get("made_with")
            .and_then(|value| value.get_ref().as_str());
        let counts = file
            .get_ref()
            .get("counts")
            .and_then(|value| value.get_ref().as_table());
        let (Some(made_with), Some(counts)) = (made_with, counts) else {
            return Err("counts.toml: `made_with` or `[counts]` is missing".to_owned());
        };
        let counts = counts.iter().map(|(name, value)| {
            let name = name.get_ref();
            let figure = figure(value.get_ref()).ok_or_else(|| {
                format!("counts.toml: {name}: not {{ instructions = …, tolerance_percent = … }}")
            })?;
            Ok((name.to_string(), figure))
        });
        Ok(Figures {
            made_with: made_with.to_owned(),
            counts: counts.collect::<Result<_, String>>()?,
        })
    }

    /// The file's text with new counts and the same tolerances.
    pub fn with_counts(&self, made_with: &str, counts: &[(&str, u64)]) -> String {
        let mut text = String::from(HEAD);
        let _ = writeln!(text, "made_with = {made_with:?}\n\n[counts]");
        for (name, instructions) in counts {
            let known = self.counts.get(*name);
            let tolerance = known.map_or(TOLERANCE_PERCENT, |figure| figure.tolerance_percent);
            let _ = writeln!(
                text,
                "{:<34} = {{ instructions = {:>9}, tolerance_percent = {tolerance:.1} }}",
                format!("{name:?}"),
                grouped(*instructions),
            );
        }
        text
    }

    /// Differences that exceed the tolerance, one message each; empty if there are none.
    pub fn compare(&self, made_with: &str, counts: &[(&str, u64)]) -> Vec<String> {
        let other_tools = made_with != self.made_with;
        let mut findings = Vec::new();
        for &(name, now) in counts {
            let Some(figure) = self.counts.get(name) else {
                findings.push(format!(
                    "{name}: {} instructions, but counts.toml has no figure for this case",
                    grouped(now)
                ));
                continue;
            };
            let before = figure.instructions;
            let change_percent = (now as f64 - before as f64) / before as f64 * 100.0;
            let tolerance = if other_tools {
                figure.tolerance_percent.max(OTHER_TOOLS_TOLERANCE_PERCENT)
            } else {
                figure.tolerance_percent
            };
            if change_percent.abs() > tolerance {
                let how = if now > before { "rose" } else { "fell" };
                findings.push(format!(
                    "{name}: {how} by {:.1} %, from {} to {} instructions (tolerance {tolerance} %)",
                    change_percent.abs(),
                    grouped(before),
                    grouped(now),
                ));
            }
        }
        for name in self.counts.keys() {
            if !counts.iter().any(|(counted, _)| counted == name) {
                findings.push(format!("{name}: in counts.toml, but not a case"));
            }
        }
        findings
    }
}

fn figure(value: &DeValue<'_>) -> Option<Figure> {
    let number = |key| {
        let value = value.get(key)?.get_ref();
        let whole = value.as_integer().map(|whole| whole.as_str());
        whole.or_else(|| value.as_float().map(|float| float.as_str()))
    };
    Some(Figure {
        instructions: number("instructions")?.parse().ok()?,
        tolerance_percent: number("tolerance_percent")?.parse().ok()?,
    })
}

const HEAD: &str = "\
# Instructions of one round of each case (src/cases/mod.rs), counted by callgrind and compared by `make counts`. After an
# intended change, write new counts with
#
#     DORMOUSE_BLESS=1 make counts
#
# Edit tolerances here by hand; new counts keep them.

";

/// The number with its digits grouped: 1_234_567.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('_');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> Figures {
        Figures::parse(
            "made_with = \"a\"\n[counts]\n\"x.y\" = { instructions = 1_000, tolerance_percent = 2.0 }\n",
        )
        .expect("figures")
    }

    #[test]
    fn a_count_may_rise_or_fall_within_the_tolerance() {
        for now in [980, 1_000, 1_020] {
            assert_eq!(figures().compare("a", &[("x.y", now)]), [""; 0]);
        }
        let risen = figures().compare("a", &[("x.y", 1_021)]);
        assert!(
            risen[0].contains("x.y: rose by 2.1 %, from 1_000 to 1_021"),
            "{risen:?}"
        );
        let fallen = figures().compare("a", &[("x.y", 979)]);
        assert!(fallen[0].contains("fell by 2.1 %"), "{fallen:?}");
    }

    #[test]
    fn other_tools_have_a_larger_tolerance() {
        assert_eq!(figures().compare("b", &[("x.y", 1_240)]), [""; 0]);
        assert_eq!(figures().compare("b", &[("x.y", 1_260)]).len(), 1);
    }

    #[test]
    fn a_case_without_a_figure_and_a_figure_without_a_case_are_reported() {
        let findings = figures().compare("a", &[("new", 1_234_567)]);
        assert!(
            findings[0].contains("new: 1_234_567 instructions"),
            "{findings:?}"
        );
        assert!(findings[1].contains("x.y"), "{findings:?}");
    }

    #[test]
    fn written_figures_can_be_parsed_and_keep_tolerances() {
        let mut figures = figures();
        let known = figures.counts.get_mut("x.y").expect("a figure");
        known.tolerance_percent = 5.0;
        let text = figures.with_counts("b", &[("x.y", 1_234_567), ("z", 5)]);
        let read = Figures::parse(&text).expect("figures");
        assert_eq!(read.made_with, "b");
        assert_eq!(
            read.counts["x.y"],
            Figure {
                instructions: 1_234_567,
                tolerance_percent: 5.0
            }
        );
        assert_eq!(
            read.counts["z"],
            Figure {
                instructions: 5,
                tolerance_percent: TOLERANCE_PERCENT
            }
        );
    }
}
