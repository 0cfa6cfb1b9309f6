//! Chart of memory over time.

use std::fmt::Write;

use super::rows::bytes;
use super::section::picture;
use crate::model::{Audit, MemoryPhase};
use dormouse_bench::model::{Sample, grouped};
use dormouse_bench::report::html::escape;
use dormouse_bench::report::scale::Scale;

const WIDTH: f64 = 680.0;
const HEIGHT: f64 = 316.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = WIDTH - 14.0;
const BOTTOM: f64 = 278.0;
/// Space above the line for the phases' numbers, in rows.
const TOP: f64 = 64.0;
const ROWS: [f64; 3] = [11.0, 29.0, 47.0];
/// Numbers closer to each other than this are put into different rows.
const APART: f64 = 20.0;
/// Minimum number of samples for a line.
const SAMPLES_MIN: usize = 3;

/// Draws the memory of a server, with its phases marked, or of a client.
pub(super) fn over_time(audit: &Audit) -> String {
    let memory = audit
        .server
        .as_ref()
        .and_then(|server| server.memory.value());
    let phases = memory.map_or(&[][..], |memory| &memory.phases);
    let is_shown = memory.is_some() || audit.client.is_some();
    if !is_shown || audit.samples.len() < SAMPLES_MIN {
        return String::new();
    }
    let mut names = String::new();
    for phase in phases {
        let memory = bytes(phase.memory.pss as f64);
        let _ = write!(names, "<li>{}: {memory}</li>", escape(&phase.title));
    }
    let (what, list) = if names.is_empty() {
        (
            "Megabytes (PSS) of the client and all its children.",
            String::new(),
        )
    } else {
        (
            "Megabytes (PSS) of all the server's processes; the phases are numbered.",
            format!("<ol class=\"phases\">{names}</ol>"),
        )
    };
    let svg = draw(&audit.samples, phases);
    let body = format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"memory over time\">{svg}</div>{list}"
    );
    picture("Memory over time", what, &body)
}

fn draw(samples: &[Sample], phases: &[MemoryPhase]) -> String {
    let first = samples.first().map_or(0.0, |sample| sample.at_s);
    let points: Vec<(f64, f64)> = samples
        .iter()
        .map(|sample| (sample.at_s - first, sample.pss_bytes as f64 / 1e6))
        .collect();
    let marks: Vec<f64> = phases.iter().map(|phase| phase.at_s - first).collect();
    let times = points
        .iter()
        .map(|point| point.0)
        .chain(marks.iter().copied());
    let x = Scale::linear(times, LEFT, RIGHT);
    let y = Scale::linear(points.iter().map(|point| point.1), BOTTOM, TOP);
    let most = points.iter().map(|point| point.1).fold(0.0, f64::max);
    let ends = [points.first(), points.last()].map(|point| point.map_or(0.0, |point| point.1));
    let begins = if phases.is_empty() { TOP - 28.0 } else { 0.0 };
    let mut svg = format!(
        "<svg class=\"time\" viewBox=\"0 {begins} {WIDTH} {}\" role=\"img\" aria-label=\"from {} MB over at most {} MB to {} MB\">",
        HEIGHT - begins,
        grouped(ends[0], 1),
        grouped(most, 1),
        grouped(ends[1], 1)
    );
    axes(&mut svg, &x, &y);
    let line: Vec<String> = points
        .iter()
        .map(|point| format!("{:.1} {:.1}", x.at(point.0), y.at(point.1)))
        .collect();
    let line = line.join(" L");
    let (start, end) = (x.at(0.0), points.last().map_or(LEFT, |point| x.at(point.0)));
    let _ = write!(
        svg,
        "<g class=\"c1\"><path class=\"area\" d=\"M{start:.1} {BOTTOM} L{line} L{end:.1} {BOTTOM} Z\"/><path class=\"line\" d=\"M{line}\"/></g>"
    );
    numbers(&mut svg, &marks, &x);
    svg + "</svg>"
}

fn axes(svg: &mut String, x: &Scale, y: &Scale) {
    for tick in y.ticks() {
        let at = y.at(tick);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            at + 5.0,
            grouped(tick, usize::from(tick < 10.0 && tick.fract() > 0.0))
        );
    }
    for tick in x.ticks() {
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{tick}</text>",
            x.at(tick),
            BOTTOM + 20.0
        );
    }
    let _ = write!(
        svg,
        "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{BOTTOM}\" y2=\"{BOTTOM}\"/><text x=\"{RIGHT}\" y=\"{}\" text-anchor=\"end\">seconds</text><text x=\"{}\" y=\"{}\" text-anchor=\"end\">MB</text>",
        HEIGHT - 2.0,
        LEFT - 8.0,
        TOP - 12.0
    );
}

/// Draws the phases' numbers without overlap as long as there is room.
fn numbers(svg: &mut String, marks: &[f64], x: &Scale) {
    let mut last = [f64::NEG_INFINITY; ROWS.len()];
    for (index, mark) in marks.iter().enumerate() {
        let at = x.at(*mark);
        let free = last.iter().position(|last| at - last >= APART);
        let row = free.unwrap_or(index % ROWS.len());
        let (Some(top), Some(last)) = (ROWS.get(row), last.get_mut(row)) else {
            continue;
        };
        *last = at;
        let _ = write!(
            svg,
            "<line class=\"mark\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{top}\" y2=\"{BOTTOM}\"/><circle class=\"dot\" cx=\"{at:.1}\" cy=\"{top}\" r=\"9\"/><text class=\"number\" x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            top + 4.0,
            index + 1
        );
    }
}
