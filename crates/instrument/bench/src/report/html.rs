//! The frame of an HTML page. The library that writes the page escapes all text.

pub use maud::{Markup, PreEscaped, html};

/// Style of all reports: colours for light and dark, tables, charts.
pub const STYLE: &str = include_str!("style.css");

/// Returns a page. Foreign text in it may have characters that are not printable, which are escaped here.
pub fn document(title: &str, style: &str, body: &Markup) -> String {
    let page = html! {
        (maud::DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(style)) }
            }
            body { main { (body) } }
        }
    };
    dormouse_printable::lines(&page.into_string()).to_string()
}

/// Returns a coordinate with one decimal.
pub fn at(coordinate: f64) -> String {
    format!("{coordinate:.1}")
}

/// Returns a section; a `class` of `picture` stays on one page when printed.
pub fn section(class: Option<&str>, title: &str, what: &str, body: &Markup) -> Markup {
    html! {
        section class=[class] { h2 { (title) } p class="what" { (what) } (body) }
    }
}
