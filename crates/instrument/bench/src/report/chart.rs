//! Charts as SVG. Colours are classes (`c0` … `c7`), which the page's style defines.

use super::axes::{
    self, Axes, LEFT, LINES_MAX, RIGHT, Series, WIDTH, colour, label, scales, short, x_ticks,
};
use super::html::{Markup, at, html};
use super::panels;
use super::scale::Scale;

const TOP: f64 = 14.0;
const BOTTOM: f64 = 40.0;

/// Draws lines: in one chart if there are enough colours, otherwise in a small chart each.
pub(super) fn lines(series: &[Series], axes: &Axes) -> Markup {
    if series.len() > LINES_MAX {
        return panels::panels(series, axes);
    }
    let bottom = axes.height - BOTTOM;
    let (x, y) = scales(series, axes, (LEFT, WIDTH - RIGHT), (bottom, TOP));
    let curves = html! {
        (draw_axes(axes, &x, &y))
        @for s in series { (axes::curve(s, axes.dots, &x, &y)) }
    };
    html! {
        (axes::chart(axes.height, axes.y_title, &curves))
        @if series.len() > 1 {
            p class="legend" {
                @for s in series {
                    span class="key" { i class={ "swatch " (colour(s.colour)) } {} (s.name) }
                }
            }
        }
    }
}

fn draw_axes(axes: &Axes, x: &Scale, y: &Scale) -> Markup {
    let (bottom, right) = (axes.height - BOTTOM, WIDTH - RIGHT);
    html! {
        @for tick in y.ticks() {
            line class="grid" x1=(LEFT) x2=(at(right)) y1=(at(y.at(tick))) y2=(at(y.at(tick))) {}
            (label("tick", (LEFT - 8.0, y.at(tick) + 4.0), "end", &short(tick)))
        }
        @for (tick, name) in x_ticks(axes, x) {
            (label("tick", (x.at(tick), bottom + 18.0), "middle", &name))
        }
        line class="axis" x1=(LEFT) x2=(at(right)) y1=(at(bottom)) y2=(at(bottom)) {}
        (label("title", (right, axes.height - 4.0), "end", axes.x_title))
    }
}

/// Draws one value per row on a logarithmic axis, as dots: the length of a bar would mislead.
pub(super) fn rows(rows: &[(String, f64, usize)], unit: &str) -> Markup {
    let (row, left, right) = (26.0, 230.0, 110.0);
    let height = rows.len() as f64 * row + 46.0;
    let bottom = height - 32.0;
    let x = Scale::log(rows.iter().map(|r| r.1), left, WIDTH - right);
    let body = html! {
        @for tick in x.ticks() {
            line class="grid" x1=(at(x.at(tick))) x2=(at(x.at(tick))) y1="8" y2=(at(bottom)) {}
            (label("tick", (x.at(tick), bottom + 18.0), "middle", &short(tick)))
        }
        @for (i, (name, value, which)) in rows.iter().enumerate() {
            @let (y, x) = (8.0 + row * (i as f64 + 0.5), x.at(*value));
            @let text = crate::model::grouped(*value, usize::from(*value < 10.0) * 2);
            (label("name", (left - 14.0, y + 4.0), "end", &clip(name)))
            line class={ "stem " (colour(*which)) } x1=(left) x2=(at(x)) y1=(at(y)) y2=(at(y)) {}
            circle class={ "dot " (colour(*which)) } cx=(at(x)) cy=(at(y)) r="5.5" {}
            text class="value" x=(at(x + 12.0)) y=(at(y + 4.0)) { (text) " " (unit) }
        }
    };
    axes::chart(height, "", &body)
}

fn clip(name: &str) -> String {
    let short: String = name.chars().take(32).collect();
    if short.len() < name.len() {
        short + "…"
    } else {
        short
    }
}
