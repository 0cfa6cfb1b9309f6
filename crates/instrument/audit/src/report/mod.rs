//! Reports of audits: text for a terminal and a self-contained HTML page.

mod client;
mod comparison;
mod difference;
mod flights;
mod headlines;
mod page;
mod pictures;
mod sections;
mod text;
mod timeline;

pub use difference::difference;
pub use page::{page, title};
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
