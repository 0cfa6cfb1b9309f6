//! Elements of charts: series, axes, curves and short numbers.

use super::html::{Markup, at, html};
use super::scale::Scale;

pub(super) const WIDTH: f64 = 760.0;

pub(super) const LEFT: f64 = 76.0;

pub(super) const RIGHT: f64 = 18.0;

/// Number of colours; further lines are dashed.
pub(super) const COLOURS: usize = 8;

/// Maximum number of lines in one chart.
pub(super) const LINES_MAX: usize = COLOURS;

/// A named series of points.
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
    /// Index of its colour: the same server has the same colour in every chart.
    pub(super) colour: usize,
}

/// Axes of a line chart.
pub(super) struct Axes {
    pub(super) x_title: &'static str,
    pub(super) y_title: &'static str,
    pub(super) height: f64,
    pub(super) y_log: bool,
    /// The y axis need not begin at 0.
    pub(super) y_around: bool,
    /// Marks on the points.
    pub(super) dots: bool,
    /// Values and labels of the x axis; empty: round values.
    pub(super) x_ticks: Vec<(f64, String)>,
}

/// The scales of both axes, from values to positions.
pub(super) fn scales(
    series: &[Series],
    axes: &Axes,
    (left, right): (f64, f64),
    (bottom, top): (f64, f64),
) -> (Scale, Scale) {
    let xs = || series.iter().flat_map(|s| s.points.iter().map(|p| p.0));
    let ys = || series.iter().flat_map(|s| s.points.iter().map(|p| p.1));
    let ticks_x = axes.x_ticks.iter().map(|tick| tick.0);
    let x = if axes.x_ticks.is_empty() {
        Scale::linear(xs(), left, right)
    } else {
        Scale::around(xs().chain(ticks_x), left, right)
    };
    let y = match (axes.y_log, axes.y_around) {
        (true, _) => Scale::log(ys(), bottom, top),
        (false, true) => Scale::around(ys(), bottom, top),
        (false, false) => Scale::linear(ys(), bottom, top),
    };
    (x, y)
}

/// Values and labels of the x axis: the given ones, or round values.
pub(super) fn x_ticks(axes: &Axes, x: &Scale) -> Vec<(f64, String)> {
    if axes.x_ticks.is_empty() {
        let round = x.ticks().into_iter();
        round.map(|tick| (tick, short(tick))).collect()
    } else {
        axes.x_ticks.clone()
    }
}

/// Draws the line of a series, and its dots.
pub(super) fn curve(s: &Series, dots: bool, x: &Scale, y: &Scale) -> Markup {
    let points: Vec<_> = s
        .points
        .iter()
        .map(|point| (x.at(point.0), y.at(point.1)))
        .collect();
    let path: Vec<_> = points
        .iter()
        .map(|(x, y)| format!("{x:.1} {y:.1}"))
        .collect();
    let path = path.join(" L");
    let path = if path.is_empty() {
        path
    } else {
        format!("M{path}")
    };
    html! {
        path class={ "line " (colour(s.colour)) } d=(path) { title { (s.name) } }
        @for ((cx, cy), point) in points.iter().zip(&s.points).filter(|_| dots) {
            circle class={ "dot " (colour(s.colour)) } cx=(at(*cx)) cy=(at(*cy)) r="3.2" {
                title { (s.name) ": " (short(point.1)) }
            }
        }
    }
}

/// Returns a chart of this height.
pub(super) fn chart(height: f64, y_title: &str, body: &Markup) -> Markup {
    html! {
        svg viewBox=(format_args!("0 0 {WIDTH} {height}")) role="img" {
            @if !y_title.is_empty() { text class="title" x="4" y="11" { (y_title) } }
            (body)
        }
    }
}

/// Returns a label at this place.
pub(super) fn label(class: &str, (x, y): (f64, f64), anchor: &str, text: &str) -> Markup {
    html! { text class=(class) x=(at(x)) y=(at(y)) text-anchor=(anchor) { (text) } }
}

pub(super) fn colour(index: usize) -> String {
    let dashed = if index >= COLOURS { " dashed" } else { "" };
    format!("c{}{dashed}", index % COLOURS)
}

/// Returns a value in few characters: `1.5M`, `20k`, `0.25`.
pub(super) fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        v if v >= 1e9 => (value / 1e9, "G"),
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{scaled:.2}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    format!("{text}{unit}")
}
