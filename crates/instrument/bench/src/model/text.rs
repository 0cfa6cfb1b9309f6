//! A run as a table for people.

use std::fmt::Write;

use super::{Figure, Run};

/// Returns the table of one run.
pub fn table(run: &Run) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{} · {} · {}", run.mode, run.label, run.target);
    let memory_gib = run.machine.memory_bytes as f64 / f64::from(1 << 30);
    let _ = writeln!(
        out,
        "{} · {} cores, {memory_gib:.0} GiB, Linux {} · {} · {:.1} s",
        run.started_at, run.machine.cores, run.machine.kernel, run.tool, run.duration_s
    );
    figures(&mut out, run);
    latencies(&mut out, run);
    if let Some(growth) = &run.growth {
        let _ = writeln!(out, "\n  memory from round to round: {growth}");
    }
    if !run.failures.is_empty() {
        out.push_str("\n  failures\n");
        for (reason, count) in &run.failures {
            let _ = writeln!(out, "  {:>10}  {reason}", grouped(*count as f64, 0));
        }
    }
    if !run.notes.is_empty() {
        out.push('\n');
        for note in &run.notes {
            let _ = writeln!(out, "  note: {note}");
        }
    }
    let _ = match (&run.outcome.message, run.outcome.complete) {
        (None, _) => writeln!(out, "\n  complete"),
        (Some(message), true) => writeln!(out, "\n  complete, but {message}"),
        (Some(message), false) => writeln!(out, "\n  NOT COMPLETE: {message}"),
    };
    out
}

/// The four ways to count memory, which are columns of one row.
const COUNTS: [&str; 4] = ["pss", "rss", "anonymous", "shared"];

/// Writes figures grouped by the first part of their names, in order of first appearance.
fn figures(out: &mut String, run: &Run) {
    let of = |figure: &Figure| figure.name.split('.').next().unwrap_or_default().to_owned();
    let mut sections: Vec<String> = Vec::new();
    for section in run.figures.iter().map(of) {
        if !sections.contains(&section) {
            sections.push(section);
        }
    }
    let width = run
        .figures
        .iter()
        .filter(|figure| of(figure) != APART)
        .map(|figure| figure.title.chars().count())
        .max()
        .unwrap_or(0);
    for section in sections {
        if section == APART {
            apart(out, run, width);
            continue;
        }
        let _ = write!(out, "\n  {section:<width$}");
        let moments = moments(run, &section);
        if !moments.is_empty() {
            let [pss, rss, anonymous, shared] = COUNTS;
            let _ = write!(
                out,
                "    {pss:>11} {rss:>11} {anonymous:>11} {shared:>11}  kB"
            );
        }
        out.push('\n');
        for (title, counts) in moments {
            let _ = write!(out, "    {title:<width$}");
            for bytes in counts {
                let _ = write!(out, "  {:>10}", grouped(bytes / 1000.0, 0));
            }
            out.push('\n');
        }
        for figure in run
            .figures
            .iter()
            .filter(|figure| of(figure) == section && !is_moment(figure))
        {
            let (value, unit) = readable(figure);
            let _ = writeln!(out, "    {:<width$}  {value:>10} {unit}", figure.title);
        }
    }
}

/// The section with the shares of kernel, generators and server.
const APART: &str = "apart";
/// Its columns: the ends of the names, the headings, and the divisors.
const APART_COLUMNS: [(&str, &str, f64); 3] = [
    ("per_connection", "bytes/conn", 1.0),
    ("together", "MB together", 1e6),
    ("cpu_per_open", "µs CPU/open", 1.0),
];

/// Writes a row each for kernel, generators and server, and their sum.
fn apart(out: &mut String, run: &Run, width: usize) {
    let _ = write!(out, "\n  {:<width$}  ", "by part");
    for (_, head, _) in APART_COLUMNS {
        let _ = write!(out, "  {head:>11}");
    }
    out.push('\n');
    let mut sum = [Some(0.0); 3];
    for (row, title) in [
        ("kernel", "kernel objects, all ends on this machine"),
        ("generators", "generators"),
        ("server", "server"),
    ] {
        let values = APART_COLUMNS.map(|(end, ..)| run.value(&format!("{APART}.{row}.{end}")));
        // A sum without one of its parts would be taken for the whole.
        for (sum, value) in sum.iter_mut().zip(values) {
            *sum = sum.zip(value).map(|(sum, value)| sum + value);
        }
        apart_row(out, title, values, width);
    }
    apart_row(out, "together", sum, width);
}

fn apart_row(out: &mut String, title: &str, values: [Option<f64>; 3], width: usize) {
    if values.iter().all(Option::is_none) {
        return;
    }
    let _ = write!(out, "    {title:<width$}");
    for (value, (_, _, unit)) in values.into_iter().zip(APART_COLUMNS) {
        let value = value.map(|value| value / unit);
        let text = value.map_or_else(
            || "?".into(),
            |value| grouped(value, usize::from(value < 100.0)),
        );
        let _ = write!(out, "  {text:>11}");
    }
    out.push('\n');
}

/// `memory.before.pss`, and not `memory.per_connection.pss`.
fn is_moment(figure: &Figure) -> bool {
    let mut parts = figure.name.split('.');
    parts.next() == Some("memory")
        && parts
            .next()
            .is_some_and(|moment| moment != "per_connection")
        && parts.next().is_some_and(|count| COUNTS.contains(&count))
}

/// Memory at each moment: a title, and the four counts.
fn moments(run: &Run, section: &str) -> Vec<(String, [f64; 4])> {
    let pss = run
        .figures
        .iter()
        .filter(|f| section == "memory" && is_moment(f) && f.name.ends_with(".pss"));
    pss.map(|figure| {
        let stem = figure.name.trim_end_matches("pss");
        let counts = COUNTS.map(|count| run.value(&format!("{stem}{count}")).unwrap_or(0.0));
        (figure.title.trim_end_matches(", PSS").to_owned(), counts)
    })
    .collect()
}

fn latencies(out: &mut String, run: &Run) {
    if run.latencies.is_empty() {
        return;
    }
    let width = run
        .latencies
        .keys()
        .map(|name| name.chars().count())
        .max()
        .unwrap_or(0)
        .max(12);
    let _ = writeln!(
        out,
        "\n  {:<width$}  {:>11} {:>10} {:>10} {:>10} {:>10} {:>10}  µs",
        "latency", "count", "p50", "p90", "p99", "p99.9", "max"
    );
    for (name, of) in &run.latencies {
        let _ = write!(
            out,
            "    {:<1$}{2:>11}",
            name,
            width,
            grouped(of.count as f64, 0)
        );
        for value in [of.p50_us, of.p90_us, of.p99_us, of.p999_us, of.max_us] {
            let _ = write!(out, " {:>10}", grouped(value, usize::from(value < 100.0)));
        }
        out.push('\n');
    }
}

/// Returns a value in a readable unit. Small amounts of memory stay in bytes, because they matter
/// most.
pub(crate) fn readable(figure: &Figure) -> (String, String) {
    let value = figure.value;
    let (value, unit) = match figure.unit.as_str() {
        "bytes" if value.abs() >= 10e6 => (value / 1e6, "MB"),
        "1" => (value, ""),
        "us" => (value, "µs"),
        "1/s" => (value, "per second"),
        other => (value, other),
    };
    let decimals = match unit {
        "bytes" | "" | "per second" => 0,
        _ if value.abs() >= 1000.0 => 0,
        _ if value.abs() >= 10.0 => 1,
        _ => 3,
    };
    (grouped(value, decimals), unit.to_owned())
}

/// `1234567.8` as `1,234,567.8`.
pub fn grouped(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut out = String::new();
    if value < 0.0 && text.bytes().any(|b| (b'1'..=b'9').contains(&b)) {
        out.push('−');
    }
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        for (value, decimals, text) in [
            (0.0, 0, "0"),
            (999.0, 0, "999"),
            (1000.0, 0, "1,000"),
            (-1_234_567.89, 1, "−1,234,567.9"),
            (-0.001, 1, "0.0"),
        ] {
            assert_eq!(grouped(value, decimals), text);
        }
    }

    #[test]
    fn an_interrupted_run_shows_its_figures_so_far() {
        let mut run = Run::begin("hold", "test", "127.0.0.1:1");
        run.figure(
            "memory.per_connection.pss",
            "per connection (PSS)",
            199.4,
            "bytes",
        );
        run.figure("memory.nothing", "never shown", f64::NAN, "bytes");
        run.outcome.message = Some("interrupted".into());
        let text = table(&run);
        assert!(
            text.contains("199 bytes") && text.contains("NOT COMPLETE: interrupted"),
            "{text}"
        );
        assert!(!text.contains("never shown"));
    }
}
