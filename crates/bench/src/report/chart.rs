//! Charts as SVG. Colours are classes (`c0` … `c7`), so that the page's style has the last word.

use std::fmt::Write;

use super::escape;
use super::panels;
use super::scale::Scale;

pub(super) const WIDTH: f64 = 760.0;
pub(super) const LEFT: f64 = 76.0;
pub(super) const RIGHT: f64 = 18.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 40.0;
/// Colours there are; beyond, lines are dashed.
const COLOURS: usize = 8;
/// Most lines in one chart.
pub(super) const LINES_MAX: usize = COLOURS;

/// A named series of points.
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
    /// Index of its colour: the same server has the same colour in every chart.
    pub(super) colour: usize,
}

/// What a line chart is to look like.
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

/// Lines: in one chart as far as their colours go, else in a small one each.
pub(super) fn lines(series: &[Series], axes: &Axes) -> String {
    if series.len() > LINES_MAX {
        return panels::panels(series, axes);
    }
    let bottom = axes.height - BOTTOM;
    let (x, y) = scales(series, axes, (LEFT, WIDTH - RIGHT), (bottom, TOP));
    let mut svg = open(axes.height, axes.y_title);
    draw_axes(&mut svg, axes, &x, &y);
    for s in series {
        draw_curve(&mut svg, s, axes.dots, &x, &y);
    }
    svg.push_str("</svg>\n");
    svg + &legend(series)
}

/// The scales of both axes, from the values to places between these.
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

fn draw_axes(svg: &mut String, axes: &Axes, x: &Scale, y: &Scale) {
    let bottom = axes.height - BOTTOM;
    for tick in y.ticks() {
        let at = y.at(tick);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>",
            WIDTH - RIGHT
        );
        let _ = write!(
            svg,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            at + 4.0,
            short(tick)
        );
    }
    for (tick, label) in x_ticks(axes, x) {
        let _ = write!(
            svg,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x.at(tick),
            bottom + 18.0,
            escape(&label)
        );
    }
    let _ = write!(
        svg,
        "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{bottom:.1}\" y2=\"{bottom:.1}\"/>",
        WIDTH - RIGHT
    );
    let _ = write!(
        svg,
        "<text class=\"title\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
        WIDTH - RIGHT,
        axes.height - 4.0,
        axes.x_title
    );
}

/// Values and labels of the x axis: those wished, or round ones.
pub(super) fn x_ticks(axes: &Axes, x: &Scale) -> Vec<(f64, String)> {
    if axes.x_ticks.is_empty() {
        let round = x.ticks().into_iter();
        round.map(|tick| (tick, short(tick))).collect()
    } else {
        axes.x_ticks.clone()
    }
}

pub(super) fn draw_curve(svg: &mut String, s: &Series, dots: bool, x: &Scale, y: &Scale) {
    let mut path = String::new();
    for (i, point) in s.points.iter().enumerate() {
        let _ = write!(
            path,
            "{}{:.1} {:.1}",
            if i == 0 { "M" } else { " L" },
            x.at(point.0),
            y.at(point.1)
        );
    }
    let _ = write!(
        svg,
        "<path class=\"line {}\" d=\"{path}\"><title>{}</title></path>",
        colour(s.colour),
        escape(&s.name)
    );
    if dots {
        for point in &s.points {
            let (cx, cy) = (x.at(point.0), y.at(point.1));
            let _ = write!(
                svg,
                "<circle class=\"dot {}\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"3.2\"><title>{}: {}</title></circle>",
                colour(s.colour),
                escape(&s.name),
                short(point.1)
            );
        }
    }
}

/// One value per row, on a logarithmic axis: bars would lie, dots do not.
pub(super) fn rows(rows: &[(String, f64, usize)], unit: &str) -> String {
    let (row, left, right) = (26.0, 230.0, 110.0);
    let height = rows.len() as f64 * row + 46.0;
    let bottom = height - 32.0;
    let x = Scale::log(rows.iter().map(|r| r.1), left, WIDTH - right);
    let mut svg = open(height, "");
    for tick in x.ticks() {
        let at = x.at(tick);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"8\" y2=\"{bottom:.1}\"/>"
        );
        let _ = write!(
            svg,
            "<text class=\"tick\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 18.0,
            short(tick)
        );
    }
    for (i, (name, value, which)) in rows.iter().enumerate() {
        let (y, at) = (8.0 + row * (i as f64 + 0.5), x.at(*value));
        let class = colour(*which);
        let _ = write!(
            svg,
            "<text class=\"name\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left - 14.0,
            y + 4.0,
            escape(&clip(name))
        );
        let _ = write!(
            svg,
            "<line class=\"stem {class}\" x1=\"{left}\" x2=\"{at:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
        );
        let _ = write!(
            svg,
            "<circle class=\"dot {class}\" cx=\"{at:.1}\" cy=\"{y:.1}\" r=\"5.5\"/>"
        );
        let text = crate::model::grouped(*value, usize::from(*value < 10.0) * 2);
        let _ = write!(
            svg,
            "<text class=\"value\" x=\"{:.1}\" y=\"{:.1}\">{text} {}</text>",
            at + 12.0,
            y + 4.0,
            escape(unit)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

pub(super) fn open(height: f64, y_title: &str) -> String {
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">");
    if !y_title.is_empty() {
        let _ = write!(
            svg,
            "<text class=\"title\" x=\"4\" y=\"11\">{}</text>",
            escape(y_title)
        );
    }
    svg
}

fn legend(series: &[Series]) -> String {
    if series.len() < 2 {
        return String::new();
    }
    let items = series.iter().map(|s| {
        format!(
            "<span class=\"key\"><i class=\"swatch {}\"></i>{}</span>",
            colour(s.colour),
            escape(&s.name)
        )
    });
    format!("<p class=\"legend\">{}</p>\n", items.collect::<String>())
}

fn colour(index: usize) -> String {
    let dashed = if index >= COLOURS { " dashed" } else { "" };
    format!("c{}{dashed}", index % COLOURS)
}

fn clip(name: &str) -> String {
    let short: String = name.chars().take(32).collect();
    if short.len() < name.len() {
        short + "…"
    } else {
        short
    }
}

/// A value in few characters: `1.5M`, `20k`, `0.25`.
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
