//! Many lines: a small chart for each, all with the same axes. More than a handful in one chart
//! can't be distinguished.

use super::axes::{self, Axes, LEFT, RIGHT, Series, WIDTH, label};
use super::html::{Markup, at, html};
use super::scale::Scale;

const COLUMNS: usize = 4;
const HEIGHT: f64 = 78.0;
/// Above a panel, for its name.
const HEAD: f64 = 24.0;
const GAP: f64 = 16.0;
const BOTTOM: f64 = 34.0;
const NAME_MAX: usize = 28;

/// A panel for each series.
pub(super) fn panels(series: &[Series], axes: &Axes) -> Markup {
    let width = (WIDTH - LEFT - RIGHT - GAP * (COLUMNS - 1) as f64) / COLUMNS as f64;
    let (x, y) = axes::scales(series, axes, (0.0, width), (HEIGHT, 0.0));
    let rows = series.len().div_ceil(COLUMNS);
    let body = html! {
        @for (i, s) in series.iter().enumerate() {
            @let left = LEFT + (i % COLUMNS) as f64 * (width + GAP);
            @let top = (i / COLUMNS) as f64 * (HEAD + HEIGHT) + HEAD;
            g class="panel" transform=(format_args!("translate({left:.1} {top:.1})")) {
                (rules(&y, width, i % COLUMNS == 0))
                @if i + COLUMNS >= series.len() { (times(axes, &x)) }
                text class="head" x="0" y="-6" { (s.name.chars().take(NAME_MAX).collect::<String>()) }
                (axes::curve(s, axes.dots, &x, &y))
            }
        }
    };
    axes::chart(rows as f64 * (HEAD + HEIGHT) + BOTTOM, axes.y_title, &body)
}

/// Horizontal lines, named in the first column.
fn rules(y: &Scale, width: f64, named: bool) -> Markup {
    html! {
        @for tick in y.ticks() {
            line class="grid" x1="0" x2=(at(width)) y1=(at(y.at(tick))) y2=(at(y.at(tick))) {}
            @if named {
                text class="tick" x="-8" y=(at(y.at(tick) + 4.0)) text-anchor="end" { (axes::short(tick)) }
            }
        }
    }
}

/// Draws the labels of the x axis below a column's last panel; of many values, only some.
fn times(axes: &Axes, x: &Scale) -> Markup {
    let ticks = axes::x_ticks(axes, x);
    let step = ticks.len().div_ceil(3).max(1);
    html! {
        @for (tick, name) in ticks.iter().step_by(step) {
            (label("tick", (x.at(*tick), HEIGHT + 16.0), "middle", name))
        }
        text class="title" x="0" y=(at(HEIGHT + 30.0)) { (axes.x_title) }
    }
}
