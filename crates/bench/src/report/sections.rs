//! The parts of the page.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::axes::{Axes, LINES_MAX, Series};
use super::chart;
use super::html::escape;
use crate::model::{Run, grouped, readable};

/// Headline, machine, date.
pub(super) fn head(title: &str, runs: &[Run]) -> String {
    let machines: BTreeSet<String> = runs
        .iter()
        .map(|run| {
            let machine = &run.machine;
            let memory = machine.memory_bytes as f64 / f64::from(1 << 30);
            format!(
                "{} ({} cores, {memory:.0} GiB, Linux {})",
                machine.processor, machine.cores, machine.kernel
            )
        })
        .collect();
    let first = runs.iter().map(|run| &run.started_at).min();
    let when = first.map_or_else(String::new, |when| escape(when));
    let machines = machines
        .iter()
        .map(|machine| escape(machine))
        .collect::<Vec<_>>()
        .join("; ");
    let tools: BTreeSet<&str> = runs.iter().map(|run| run.tool.as_str()).collect();
    let tools = escape(&tools.into_iter().collect::<Vec<_>>().join(", "));
    format!(
        "<header><h1>{title}</h1><p>{} run(s) from {when} on {machines} · {tools}</p></header>\n",
        runs.len()
    )
}

/// Memory per connection, the main result.
pub(super) fn per_connection(runs: &[Run]) -> String {
    let figure = rows(runs, runs.iter(), "memory.per_connection.pss");
    if figure.is_empty() {
        return String::new();
    }
    section(
        "Memory of a quiet connection",
        "What one more quiet connection adds to the server's processes (proportional set, kernel sockets not counted). \
         The axis is logarithmic: each line is ten times the one before.",
        &chart::rows(&figure, "bytes"),
    )
}

/// Charts of CPU time.
pub(super) fn cpu(runs: &[Run]) -> String {
    let kinds = [
        ("cpu.server.per_handshake", "per short connection", "µs"),
        (
            "cpu.server.per_handshake",
            "per short connection, sessions resumed",
            "µs",
        ),
        (
            "cpu.server.per_open",
            "per connection opened and held",
            "µs",
        ),
        ("cpu.server.per_gb", "per gigabyte echoed", "s"),
        ("cpu.server.per_request", "per HTTP request", "µs"),
    ];
    let mut body = String::new();
    for (name, what, unit) in kinds {
        let resumed = what.ends_with("resumed");
        let of_kind = runs.iter().filter(|run| is_resumed(run) == resumed);
        let rows = rows(runs, of_kind, name);
        if !rows.is_empty() {
            let chart = chart::rows(&rows, unit);
            let _ = write!(body, "<h3>CPU time {what}</h3>\n{chart}");
        }
    }
    let what = "The load generators are not counted.";
    section("CPU time of the server", what, &body)
}

/// PSS while connections come and go.
pub(super) fn memory_over_time(runs: &[Run]) -> String {
    let mut body = String::new();
    for mode in kinds(runs) {
        let of_mode = runs
            .iter()
            .filter(|run| kind(run) == mode && run.samples.len() > 2);
        let series: Vec<_> = of_mode
            .map(|run| Series {
                name: run.label.clone(),
                points: run
                    .samples
                    .iter()
                    .map(|s| (s.at_s, s.pss_bytes as f64 / 1e6))
                    .collect(),
                colour: colour_of(runs, &run.label),
            })
            .collect();
        if series.is_empty() {
            continue;
        }
        let axes = Axes {
            x_title: "seconds",
            y_title: "MB",
            height: 300.0,
            y_log: spread(&series) > 30.0,
            y_around: false,
            dots: false,
            x_ticks: Vec::new(),
        };
        let title = escape(&mode);
        let _ = write!(body, "<h3>{title}</h3>\n{}", chart::lines(&series, &axes));
    }
    let what = "Proportional set of the server's process tree.";
    section("Memory over time", what, &body)
}

/// A curve per distribution, with a stretched tail.
pub(super) fn latencies(runs: &[Run]) -> String {
    let names: BTreeSet<(String, &str)> = runs
        .iter()
        .flat_map(|run| run.latencies.keys().map(|name| (kind(run), name.as_str())))
        .collect();
    let mut body = String::new();
    for (mode, name) in names {
        let with = runs
            .iter()
            .filter(|run| kind(run) == mode)
            .filter_map(|run| Some((run, run.latencies.get(name)?)));
        // Ten latencies have no tail to draw.
        let series: Vec<_> = with
            .filter(|(_, of)| of.count >= 20)
            .map(|(run, of)| Series {
                name: run.label.clone(),
                points: of
                    .curve
                    .iter()
                    .map(|(percentile, us)| (stretched(*percentile), *us))
                    .collect(),
                colour: colour_of(runs, &run.label),
            })
            .collect();
        if series.is_empty() {
            continue;
        }
        let ticks = [50.0, 90.0, 99.0, 99.9, 99.99];
        let axes = Axes {
            x_title: "percentile",
            y_title: "µs",
            height: 260.0,
            y_log: true,
            y_around: false,
            dots: false,
            x_ticks: ticks
                .iter()
                .map(|p| (stretched(*p), format!("{p}")))
                .collect(),
        };
        let _ = write!(
            body,
            "<div class=\"{}\"><h3>{}: {}</h3>\n{}</div>",
            if series.len() > LINES_MAX {
                "whole"
            } else {
                "half"
            },
            escape(&mode),
            escape(name),
            chart::lines(&series, &axes)
        );
    }
    if body.is_empty() {
        return body;
    }
    let body = format!("<div class=\"halves\">{body}</div>");
    section(
        "Latency",
        "Maximum latency of the fastest x percent. Both axes are stretched to show the tail.",
        &body,
    )
}

/// Nines: 90 → 1, 99 → 2, 99.9 → 3.
fn stretched(percentile: f64) -> f64 {
    -(1.0 - percentile.min(99.999) / 100.0).log10()
}

/// Memory after each round.
pub(super) fn growth(runs: &[Run]) -> String {
    let with: Vec<_> = runs
        .iter()
        .filter_map(|run| Some((run, run.growth.as_ref()?)))
        // Without several rounds there is nothing to draw.
        .filter(|(_, growth)| growth.slope.is_some())
        .collect();
    if with.is_empty() {
        return String::new();
    }
    let series: Vec<_> = with
        .iter()
        .map(|(run, growth)| Series {
            name: run.label.clone(),
            points: growth
                .rounds
                .iter()
                .map(|(round, bytes)| (*round, bytes / 1e6))
                .collect(),
            colour: colour_of(runs, &run.label),
        })
        .collect();
    let last = series
        .iter()
        .flat_map(|s| s.points.iter().map(|p| p.0 as u32))
        .max()
        .unwrap_or(2);
    let step = (last / 12).max(1) as usize;
    let axes = Axes {
        x_title: "round",
        y_title: "MB",
        height: 300.0,
        y_log: spread(&series) > 30.0,
        y_around: true,
        dots: true,
        x_ticks: (2..=last)
            .step_by(step)
            .map(|round| (f64::from(round), round.to_string()))
            .collect(),
    };
    let verdict = |(run, growth): &(&Run, &dormouse_measure::Growth)| {
        format!(
            "<li><b>{}</b> {}</li>",
            escape(&run.label),
            escape(&growth.to_string())
        )
    };
    let verdicts: String = with.iter().map(verdict).collect();
    let body = format!("{}<ul>{verdicts}</ul>", chart::lines(&series, &axes));
    section(
        "Growth from round to round",
        "Memory after each round, when all its connections have closed. The first round warms up and is left out.",
        &body,
    )
}

/// Everything, in sections to open.
pub(super) fn every_run(runs: &[Run]) -> String {
    let mut body = String::new();
    for run in runs {
        let state = if run.outcome.exit_status == 0 {
            ""
        } else {
            " <span class=\"bad\">not clean</span>"
        };
        let _ = write!(
            body,
            "<details><summary><b>{}</b> {} <small>{} · {}</small>{state}</summary>",
            escape(&run.label),
            escape(&run.mode),
            escape(&run.target),
            escape(&run.started_at)
        );
        if let Some(message) = &run.outcome.message {
            let _ = write!(body, "<p class=\"bad\">{}</p>", escape(message));
        }
        for note in &run.notes {
            let _ = write!(body, "<p class=\"note\">{}</p>", escape(note));
        }
        body.push_str("<table>");
        for figure in &run.figures {
            let (value, unit) = readable(figure);
            let _ = write!(
                body,
                "<tr><td>{}</td><td class=\"number\">{value}</td><td>{}</td></tr>",
                escape(&figure.title),
                escape(&unit)
            );
        }
        for (name, of) in &run.latencies {
            let us = |value: f64| grouped(value, usize::from(value < 100.0));
            let _ = write!(
                body,
                "<tr><td>{}: p50 / p90 / p99 / p99.9 / max</td><td class=\"number\">{} / {} / {} / {} / {}</td><td>µs</td></tr>",
                escape(name),
                us(of.p50_us),
                us(of.p90_us),
                us(of.p99_us),
                us(of.p999_us),
                us(of.max_us)
            );
        }
        for (reason, count) in &run.failures {
            let _ = write!(
                body,
                "<tr class=\"bad\"><td>{}</td><td class=\"number\">{count}</td><td></td></tr>",
                escape(reason)
            );
        }
        body.push_str("</table><table class=\"settings\">");
        for (name, value) in &run.settings {
            let _ = write!(
                body,
                "<tr><td>{}</td><td>{}</td></tr>",
                escape(name),
                escape(&value.to_string())
            );
        }
        body.push_str("</table></details>\n");
    }
    let what = "All figures, with the settings of the run.";
    section("Every run", what, &body)
}

/// A section of the page; nothing without a body.
fn section(title: &str, what: &str, body: &str) -> String {
    if body.is_empty() {
        return String::new();
    }
    format!("<section><h2>{title}</h2><p class=\"what\">{what}</p>\n{body}</section>\n")
}

/// The values of a figure in `some` of the runs.
fn rows<'a>(
    runs: &'a [Run],
    some: impl Iterator<Item = &'a Run>,
    name: &str,
) -> Vec<(String, f64, usize)> {
    let with = some.filter_map(|run| Some((run, run.value(name)?)));
    let mut rows: Vec<_> = with
        .filter(|(_, value)| *value > 0.0)
        .map(|(run, value)| (run.label.clone(), value, colour_of(runs, &run.label)))
        .collect();
    rows.sort_by(|a, b| a.1.total_cmp(&b.1));
    rows
}

/// Returns the index of a label among all labels, which is its colour.
fn colour_of(runs: &[Run], label: &str) -> usize {
    let mut labels: Vec<&str> = Vec::new();
    for run in runs {
        if !labels.contains(&run.label.as_str()) {
            labels.push(&run.label);
        }
    }
    labels.iter().position(|known| *known == label).unwrap_or(0)
}

/// Returns the mode, and whether sessions were resumed: runs that differ in these are not
/// comparable.
fn kind(run: &Run) -> String {
    if is_resumed(run) {
        format!("{}, resumed", run.mode)
    } else {
        run.mode.clone()
    }
}

fn is_resumed(run: &Run) -> bool {
    run.settings.get("resume").and_then(|value| value.as_bool()) == Some(true)
}

fn kinds(runs: &[Run]) -> BTreeSet<String> {
    runs.iter().map(kind).collect()
}

/// Returns the ratio of the greatest to the smallest maximum of the series.
fn spread(series: &[Series]) -> f64 {
    let tops = series
        .iter()
        .map(|s| s.points.iter().map(|p| p.1).fold(0.0, f64::max))
        .filter(|top| *top > 0.0);
    let (low, high) = tops.fold((f64::INFINITY, 0.0_f64), |(low, high), top| {
        (low.min(top), high.max(top))
    });
    if high > 0.0 { high / low } else { 1.0 }
}
