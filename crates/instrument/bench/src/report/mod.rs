//! Runs as one self-contained HTML page: charts are SVG in the page, and nothing is fetched.

mod axes;
mod chart;
pub mod html;
mod panels;
pub mod scale;
mod sections;

use serde::de::DeserializeOwned;

use crate::model::{Run, SCHEMA};
use html::{STYLE, document, html};

/// Reads runs: one object, a list of objects, or one object per line.
///
/// # Errors
/// If the text is something else.
pub fn read(text: &str) -> Result<Vec<Run>, String> {
    read_as(text, "run of dormouse bench", SCHEMA, |run: &Run| {
        run.schema
    })
}

/// Reads anything that `--json` writes, called `what`, with a schema up to `newest`.
pub fn read_as<T: DeserializeOwned>(
    text: &str,
    what: &str,
    newest: u32,
    schema: impl Fn(&T) -> u32,
) -> Result<Vec<T>, String> {
    let wrong = |error: serde_json::Error| {
        format!("cannot read this {what}: {error}; use a file that --json wrote")
    };
    let all: Vec<T> = if text.trim_start().starts_with('[') {
        serde_json::from_str(text).map_err(wrong)?
    } else {
        serde_json::Deserializer::from_str(text)
            .into_iter()
            .collect::<Result<_, _>>()
            .map_err(wrong)?
    };
    match all.iter().map(schema).find(|schema| *schema > newest) {
        Some(schema) => Err(format!(
            "schema {schema} is newer than this program's ({newest}): use a newer dormouse"
        )),
        None if all.is_empty() => Err(format!("the file has no {what} in it")),
        None => Ok(all),
    }
}

/// Returns the page.
pub fn page(title: &str, runs: &[Run]) -> String {
    let body = html! {
        (sections::head(title, runs))
        (sections::per_connection(runs))
        (sections::memory_over_time(runs))
        (sections::cpu(runs))
        (sections::latencies(runs))
        (sections::growth(runs))
        (sections::every_run(runs))
    };
    document(title, STYLE, &body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Sample;

    fn run(label: &str, bytes: f64) -> Run {
        let mut run = Run::begin("hold", label, "127.0.0.1:1");
        run.figure(
            "memory.per_connection.pss",
            "bytes per connection (PSS)",
            bytes,
            "bytes",
        );
        run.samples = (0..10)
            .map(|i| Sample {
                at_s: f64::from(i),
                alive: i as u64,
                pss_bytes: 1000,
                ..Sample::default()
            })
            .collect();
        run
    }

    #[test]
    fn labels_are_escaped() {
        let mut run = run("<script>alert(1)</script>", 200.0);
        run.mode = "<script>hold".into();
        let page = page("<em>", &[run]);
        assert!(
            !page.contains("<script") && !page.contains("<em>"),
            "{page}"
        );
        assert!(page.contains("&lt;script&gt;"));
    }

    /// Colours of the page by name, in one of its schemes.
    fn colours(scheme: &str) -> Vec<(&str, [f64; 3])> {
        let pairs = scheme.split("--").skip(1);
        let colours = pairs.filter_map(|pair| pair.split_once(": #"));
        colours
            .map(|(name, rest)| {
                let part = |at: usize| {
                    let part = u8::from_str_radix(&rest[at..at + 2], 16).unwrap();
                    f64::from(part) / 255.0
                };
                (name, [part(0), part(2), part(4)])
            })
            .collect()
    }

    /// The contrast of two colours (WCAG 2.2).
    fn contrast(a: [f64; 3], b: [f64; 3]) -> f64 {
        let light = |colour: [f64; 3]| {
            let linear = colour.map(|part| match part {
                ..=0.04045 => part / 12.92,
                _ => ((part + 0.055) / 1.055).powf(2.4),
            });
            0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05
        };
        let (a, b) = (light(a), light(b));
        a.max(b) / a.min(b)
    }

    #[test]
    fn text_has_enough_contrast() {
        let schemes: Vec<_> = STYLE.split(":root {").skip(1).take(2).collect();
        assert_eq!(schemes.len(), 2);
        for scheme in schemes {
            let colours = colours(scheme.split('}').next().unwrap());
            let of = |name: &str| colours.iter().find(|(own, _)| *own == name).unwrap().1;
            let inks = [
                "ink", "soft", "bad", "c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7",
            ];
            for (ink, paper) in inks.iter().flat_map(|ink| [(ink, "paper"), (ink, "card")]) {
                let contrast = contrast(of(ink), of(paper));
                assert!(contrast >= 4.5, "{ink} on {paper}: {contrast:.2}");
            }
        }
    }

    #[test]
    fn nothing_is_fetched() {
        let page = page("t", &[run("a", 200.0), run("b", 200_000.0)]);
        for word in ["http://", "https://", "src=", "url(", "@import", "<link"] {
            assert!(!page.contains(word), "{word}");
        }
        assert!(
            !page.contains("NaN") && !page.contains("inf"),
            "coordinates must be numbers"
        );
    }

    #[test]
    fn many_servers_have_a_chart_each() {
        let runs = |count: usize| {
            let labels = (0..count).map(|i| run(&format!("server {i}"), 100.0 + i as f64));
            labels.collect::<Vec<_>>()
        };
        let (few, many) = (page("t", &runs(8)), page("t", &runs(9)));
        assert_eq!(few.matches("class=\"panel\"").count(), 0);
        assert_eq!(many.matches("class=\"panel\"").count(), 9);
        assert!(!many.contains("NaN") && !many.contains("inf"));
    }

    #[test]
    fn resumed_handshakes_are_not_shown_among_full_ones() {
        let mut runs = [run("full", 1.0), run("again", 1.0)];
        for run in &mut runs {
            run.mode = "churn".into();
            run.figure("cpu.server.per_handshake", "per connection", 300.0, "us");
        }
        runs[1].settings.insert("resume".into(), true.into());
        let page = page("t", &runs);
        let full = page.find("<h3>CPU time per short connection</h3>");
        let again = page.find("<h3>CPU time per short connection, sessions resumed</h3>");
        let (full, again) = (full.unwrap(), again.unwrap());
        assert!(!page[full..again].contains(">again<") && page[again..].contains(">again<"));
        assert!(page.contains("<h3>churn, resumed</h3>"));
    }

    #[test]
    fn runs_are_read_in_all_three_forms() {
        let one = serde_json::to_string(&run("a", 1.0)).unwrap();
        for text in [
            one.clone(),
            format!("[{one},{one}]"),
            format!("{one}\n{one}\n"),
        ] {
            let runs = read(&text).unwrap();
            assert_eq!(runs[0], read(&one).unwrap()[0]);
        }
        assert!(read("{}").is_err() && read("").is_err() && read("[]").is_err());
        assert!(
            read(&one.replace("\"schema\":1", "\"schema\":99"))
                .unwrap_err()
                .contains("newer")
        );
    }
}
