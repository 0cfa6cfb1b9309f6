//! Charts as SVG. Colours are classes (`c0` … `c7`), which the page's style defines.

use std::fmt::Write;

use super::axes::{
    Axes, LEFT, LINES_MAX, RIGHT, Series, WIDTH, colour, draw_curve, open, scales, short, x_ticks,
};
use super::html::escape;
use super::panels;
use super::scale::Scale;

const TOP: f64 = 14.0;
const BOTTOM: f64 = 40.0;

/// Draws lines: in one chart if there are enough colours, otherwise in a small chart each.
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

/// Draws one value per row on a logarithmic axis, as dots: the length of a bar would mislead.
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

fn clip(name: &str) -> String {
    let short: String = name.chars().take(32).collect();
    if short.len() < name.len() {
        short + "…"
    } else {
        short
    }
}
