//! The parts of the page.

use std::collections::BTreeSet;

use super::axes::{Axes, LINES_MAX, Series};
use super::chart;
use super::html::{self, Markup, html};
use crate::model::{Run, grouped, readable};

/// Headline, machine, date.
pub(super) fn head(title: &str, runs: &[Run]) -> Markup {
    let machine = |run: &Run| {
        let machine = &run.machine;
        let memory = machine.memory_bytes as f64 / f64::from(1 << 30);
        let (cores, kernel) = (machine.cores, &machine.kernel);
        format!(
            "{} ({cores} cores, {memory:.0} GiB, Linux {kernel})",
            machine.processor
        )
    };
    let machines: BTreeSet<String> = runs.iter().map(machine).collect();
    let machines: Vec<_> = machines.into_iter().collect();
    let tools: BTreeSet<&str> = runs.iter().map(|run| run.tool.as_str()).collect();
    let tools: Vec<_> = tools.into_iter().collect();
    let first = runs.iter().map(|run| run.started_at.as_str()).min();
    html! {
        header {
            h1 { (title) }
            p {
                (runs.len()) " run(s) from " (first.unwrap_or_default()) " on " (machines.join("; "))
                " · " (tools.join(", "))
            }
        }
    }
}

pub(super) fn per_connection(runs: &[Run]) -> Markup {
    let figure = rows(runs, runs.iter(), "memory.per_connection.pss");
    section(
        "Memory of a quiet connection",
        "What one more quiet connection adds to the server's processes (proportional set, kernel sockets not counted). \
         The axis is logarithmic: each line is ten times the one before.",
        &html! { @if !figure.is_empty() { (chart::rows(&figure, "bytes")) } },
    )
}

/// What CPU time is compared: figure, words, unit.
const CPU: [(&str, &str, &str); 5] = [
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

pub(super) fn cpu(runs: &[Run]) -> Markup {
    let of_kind = |name: &str, what: &str| {
        let resumed = what.ends_with("resumed");
        rows(
            runs,
            runs.iter().filter(|run| is_resumed(run) == resumed),
            name,
        )
    };
    let body = html! {
        @for (name, what, unit) in CPU {
            @let rows = of_kind(name, what);
            @if !rows.is_empty() { h3 { "CPU time " (what) } (chart::rows(&rows, unit)) }
        }
    };
    section(
        "CPU time of the server",
        "The load generators are not counted.",
        &body,
    )
}

pub(super) fn memory_over_time(runs: &[Run]) -> Markup {
    let of_mode = |mode: &str| {
        let with = runs
            .iter()
            .filter(|run| kind(run) == mode && run.samples.len() > 2);
        let megabytes = |run: &Run| {
            run.samples
                .iter()
                .map(|s| (s.at_s, s.pss_bytes as f64 / 1e6))
                .collect()
        };
        with.map(|run| series(runs, run, megabytes(run)))
            .collect::<Vec<_>>()
    };
    let body = html! {
        @for mode in kinds(runs) {
            @let series = of_mode(&mode);
            @if !series.is_empty() {
                @let axes = Axes {
                    x_title: "seconds",
                    y_title: "MB",
                    height: 300.0,
                    y_log: spread(&series) > 30.0,
                    y_around: false,
                    dots: false,
                    x_ticks: Vec::new(),
                };
                h3 { (mode) } (chart::lines(&series, &axes))
            }
        }
    };
    section(
        "Memory over time",
        "Proportional set of the server's process tree.",
        &body,
    )
}

/// A series of a run, in the colour of its label.
fn series(runs: &[Run], run: &Run, points: Vec<(f64, f64)>) -> Series {
    Series {
        name: run.label.clone(),
        points,
        colour: colour_of(runs, &run.label),
    }
}

pub(super) fn latencies(runs: &[Run]) -> Markup {
    let names: BTreeSet<(String, &str)> = runs
        .iter()
        .flat_map(|run| run.latencies.keys().map(|name| (kind(run), name.as_str())))
        .collect();
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
    let of_name = |(mode, name): &(String, &str)| {
        let of_mode = runs.iter().filter(|run| kind(run) == *mode);
        let with = of_mode.filter_map(|run| Some((run, run.latencies.get(*name)?)));
        // Ten latencies have no tail to draw.
        let with = with.filter(|(_, of)| of.count >= 20);
        let all = with.map(|(run, of)| {
            let points = of
                .curve
                .iter()
                .map(|(percentile, us)| (stretched(*percentile), *us));
            series(runs, run, points.collect())
        });
        all.collect::<Vec<_>>()
    };
    let charts = names.iter().map(|name| (name, of_name(name)));
    let charts: Vec<_> = charts.filter(|(_, series)| !series.is_empty()).collect();
    let body = html! {
        @if !charts.is_empty() {
            div class="halves" {
                @for ((mode, name), series) in &charts {
                    div class=(if series.len() > LINES_MAX { "whole" } else { "half" }) {
                        h3 { (mode) ": " (name) } (chart::lines(series, &axes))
                    }
                }
            }
        }
    };
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
pub(super) fn growth(runs: &[Run]) -> Markup {
    let with = runs
        .iter()
        .filter_map(|run| Some((run, run.growth.as_ref()?)));
    // Without several rounds there is nothing to draw.
    let with: Vec<_> = with.filter(|(_, growth)| growth.slope.is_some()).collect();
    if with.is_empty() {
        return html! {};
    }
    let all = with.iter().map(|(run, growth)| {
        let points = growth
            .rounds
            .iter()
            .map(|(round, bytes)| (*round, bytes / 1e6));
        series(runs, run, points.collect())
    });
    let all: Vec<_> = all.collect();
    let rounds = all.iter().flat_map(|s| s.points.iter().map(|p| p.0 as u32));
    let last = rounds.max().unwrap_or(2);
    let ticks = (2..=last).step_by((last / 12).max(1) as usize);
    let axes = Axes {
        x_title: "round",
        y_title: "MB",
        height: 300.0,
        y_log: spread(&all) > 30.0,
        y_around: true,
        dots: true,
        x_ticks: ticks
            .map(|round| (f64::from(round), round.to_string()))
            .collect(),
    };
    let body = html! {
        (chart::lines(&all, &axes))
        ul { @for (run, growth) in &with { li { b { (run.label) } " " (growth) } } }
    };
    section(
        "Growth from round to round",
        "Memory after each round, when all its connections have closed. The first round warms up and is left out.",
        &body,
    )
}

/// Everything, in sections to open.
pub(super) fn every_run(runs: &[Run]) -> Markup {
    let us = |value: f64| grouped(value, usize::from(value < 100.0));
    let body = html! {
        @for run in runs {
            details {
                summary {
                    b { (run.label) } " " (run.mode) " " small { (run.target) " · " (run.started_at) }
                    @if run.outcome.exit_status != 0 { " " span class="bad" { "not clean" } }
                }
                @if let Some(message) = &run.outcome.message { p class="bad" { (message) } }
                @for note in &run.notes { p class="note" { (note) } }
                table {
                    @for figure in &run.figures {
                        @let (value, unit) = readable(figure);
                        tr { td { (figure.title) } td class="number" { (value) } td { (unit) } }
                    }
                    @for (name, of) in &run.latencies {
                        @let all = [of.p50_us, of.p90_us, of.p99_us, of.p999_us, of.max_us].map(us);
                        tr {
                            td { (name) ": p50 / p90 / p99 / p99.9 / max" }
                            td class="number" { (all.join(" / ")) }
                            td { "µs" }
                        }
                    }
                    @for (reason, count) in &run.failures {
                        tr class="bad" { td { (reason) } td class="number" { (count) } td {} }
                    }
                }
                table class="settings" {
                    @for (name, value) in &run.settings { tr { td { (name) } td { (value) } } }
                }
            }
        }
    };
    section(
        "Every run",
        "All figures, with the settings of the run.",
        &body,
    )
}

/// A section of the page; nothing without a body.
fn section(title: &str, what: &str, body: &Markup) -> Markup {
    html! { @if !body.0.is_empty() { (html::section(None, title, what, body)) } }
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
