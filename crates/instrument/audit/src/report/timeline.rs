//! Chart of memory over time.

use super::pictures::picture;
use crate::model::words::bytes;
use crate::model::{Audit, MemoryPhase};
use dormouse_bench::model::{Sample, grouped};
use dormouse_bench::report::html::{Markup, at, html};
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
pub(super) fn over_time(audit: &Audit) -> Markup {
    let memory = audit
        .server
        .as_ref()
        .and_then(|server| server.memory.value());
    let phases = memory.map_or(&[][..], |memory| &memory.phases);
    let is_shown = memory.is_some() || audit.client.is_some();
    if !is_shown || audit.samples.len() < SAMPLES_MIN {
        return html! {};
    }
    let what = match phases {
        [] => "Megabytes (PSS) of the client and all its children.",
        _ => "Megabytes (PSS) of all the server's processes; the phases are numbered.",
    };
    let body = html! {
        div class="scroll" tabindex="0" role="region" aria-label="memory over time" {
            (draw(&audit.samples, phases))
        }
        @if !phases.is_empty() {
            ol class="phases" {
                @for phase in phases { li { (phase.title) ": " (bytes(phase.memory.pss as f64)) } }
            }
        }
    };
    picture("Memory over time", what, &body)
}

fn draw(samples: &[Sample], phases: &[MemoryPhase]) -> Markup {
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
    let [begin, over, end] = [ends[0], most, ends[1]].map(|megabytes| grouped(megabytes, 1));
    let top = if phases.is_empty() { TOP - 28.0 } else { 0.0 };
    let line: Vec<String> = points
        .iter()
        .map(|point| format!("{:.1} {:.1}", x.at(point.0), y.at(point.1)))
        .collect();
    let line = line.join(" L");
    let (from, to) = (x.at(0.0), points.last().map_or(LEFT, |point| x.at(point.0)));
    html! {
        svg class="time" viewBox=(format_args!("0 {top} {WIDTH} {}", HEIGHT - top)) role="img"
            aria-label={ "from " (begin) " MB over at most " (over) " MB to " (end) " MB" } {
            (axes(&x, &y))
            g class="c1" {
                path class="area" d=(format_args!("M{from:.1} {BOTTOM} L{line} L{to:.1} {BOTTOM} Z")) {}
                path class="line" d={ "M" (line) } {}
            }
            (numbers(&marks, &x))
        }
    }
}

fn axes(x: &Scale, y: &Scale) -> Markup {
    html! {
        @for tick in y.ticks() {
            @let y = y.at(tick);
            @let decimals = usize::from(tick < 10.0 && tick.fract() > 0.0);
            line class="grid" x1=(LEFT) x2=(RIGHT) y1=(at(y)) y2=(at(y)) {}
            text x=(LEFT - 8.0) y=(at(y + 5.0)) text-anchor="end" { (grouped(tick, decimals)) }
        }
        @for tick in x.ticks() {
            text x=(at(x.at(tick))) y=(BOTTOM + 20.0) text-anchor="middle" { (tick) }
        }
        line class="axis" x1=(LEFT) x2=(RIGHT) y1=(BOTTOM) y2=(BOTTOM) {}
        text x=(RIGHT) y=(HEIGHT - 2.0) text-anchor="end" { "seconds" }
        text x=(LEFT - 8.0) y=(TOP - 12.0) text-anchor="end" { "MB" }
    }
}

/// Draws the phases' numbers without overlap as long as there is room.
fn numbers(marks: &[f64], x: &Scale) -> Markup {
    let mut last = [f64::NEG_INFINITY; ROWS.len()];
    let mut row_of = |index: usize, at: f64| {
        let free = last.iter().position(|last| at - last >= APART);
        let row = free.unwrap_or(index % ROWS.len());
        last[row] = at;
        ROWS[row]
    };
    html! {
        @for (index, mark) in marks.iter().enumerate() {
            @let mark = x.at(*mark);
            @let top = row_of(index, mark);
            line class="mark" x1=(at(mark)) x2=(at(mark)) y1=(top) y2=(BOTTOM) {}
            circle class="dot" cx=(at(mark)) cy=(top) r="9" {}
            text class="number" x=(at(mark)) y=(top + 4.0) text-anchor="middle" { (index + 1) }
        }
    }
}
