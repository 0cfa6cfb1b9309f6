//! Many lines: a small chart for each, all with the same axes. More than a handful in one chart
//! can't be distinguished.

use std::fmt::Write;

use super::axes::{self, Axes, LEFT, RIGHT, Series, WIDTH};
use super::html::escape;
use super::scale::Scale;

const COLUMNS: usize = 4;
const HEIGHT: f64 = 78.0;
/// Above a panel, for its name.
const HEAD: f64 = 24.0;
const GAP: f64 = 16.0;
const BOTTOM: f64 = 34.0;
const NAME_MAX: usize = 28;

/// A panel for each series.
pub(super) fn panels(series: &[Series], axes: &Axes) -> String {
    let width = (WIDTH - LEFT - RIGHT - GAP * (COLUMNS - 1) as f64) / COLUMNS as f64;
    let (x, y) = axes::scales(series, axes, (0.0, width), (HEIGHT, 0.0));
    let rows = series.len().div_ceil(COLUMNS);
    let mut svg = axes::open(rows as f64 * (HEAD + HEIGHT) + BOTTOM, axes.y_title);
    for (i, s) in series.iter().enumerate() {
        let left = LEFT + (i % COLUMNS) as f64 * (width + GAP);
        let top = (i / COLUMNS) as f64 * (HEAD + HEIGHT) + HEAD;
        let _ = write!(
            svg,
            "<g class=\"panel\" transform=\"translate({left:.1} {top:.1})\">"
        );
        rules(&mut svg, &y, width, i % COLUMNS == 0);
        if i + COLUMNS >= series.len() {
            times(&mut svg, axes, &x);
        }
        let name: String = s.name.chars().take(NAME_MAX).collect();
        let _ = write!(
            svg,
            "<text class=\"head\" x=\"0\" y=\"-6\">{}</text>",
            escape(&name)
        );
        axes::draw_curve(&mut svg, s, axes.dots, &x, &y);
        svg.push_str("</g>");
    }
    svg.push_str("</svg>\n");
    svg
}

/// Horizontal lines, named in the first column.
fn rules(svg: &mut String, y: &Scale, width: f64, named: bool) {
    for tick in y.ticks() {
        let at = y.at(tick);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"0\" x2=\"{width:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>"
        );
        if named {
            let _ = write!(
                svg,
                "<text class=\"tick\" x=\"-8\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                at + 4.0,
                axes::short(tick)
            );
        }
    }
}

/// Draws the labels of the x axis below a column's last panel; of many values, only some.
fn times(svg: &mut String, axes: &Axes, x: &Scale) {
    let ticks = axes::x_ticks(axes, x);
    let step = ticks.len().div_ceil(3).max(1);
    for (tick, label) in ticks.iter().step_by(step) {
        let _ = write!(
            svg,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x.at(*tick),
            HEIGHT + 16.0,
            escape(label)
        );
    }
    let _ = write!(
        svg,
        "<text class=\"title\" x=\"0\" y=\"{:.1}\">{}</text>",
        HEIGHT + 30.0,
        axes.x_title
    );
}
