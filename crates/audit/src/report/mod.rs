//! Reports of audits: text for a terminal and a self-contained HTML page.

mod brief;
mod client;
mod client_rows;
mod comparison;
mod difference;
mod exchange_rows;
mod flights;
mod html;
mod parts;
mod pictures;
mod resumption;
mod rows;
mod section;
mod text;
mod timeline;

pub use difference::difference;
pub use html::{page, title};
pub use text::{Form, text};

use super::model::{Audit, SCHEMA};
use dormouse_bench::report::read_as;

/// Reads audits: one object, a list of objects, or one object per line.
///
/// # Errors
/// If the text is anything else, with an explanation.
pub fn read(text: &str) -> Result<Vec<Audit>, String> {
    let what = "audit of dormouse";
    read_as(text, what, SCHEMA, |audit: &Audit| audit.schema)
}
