//! Audits for people: text for a terminal, and one self-contained page.

mod beside;
mod html;
mod parts;
mod text;

pub use html::page;
pub use text::text;

use super::model::{Audit, SCHEMA};

/// Reads audits: one object, a list of objects, or one object per line.
///
/// # Errors
/// In words, when the text is something else.
pub fn read(text: &str) -> Result<Vec<Audit>, String> {
    let wrong = |error: serde_json::Error| {
        format!("not an audit of dormouse ({error}); they are written by --json")
    };
    let audits: Vec<Audit> = if text.trim_start().starts_with('[') {
        serde_json::from_str(text).map_err(wrong)?
    } else {
        serde_json::Deserializer::from_str(text)
            .into_iter()
            .collect::<Result<_, _>>()
            .map_err(wrong)?
    };
    match audits.iter().find(|audit| audit.schema > SCHEMA) {
        Some(audit) => Err(format!(
            "schema {} is newer than this program's ({SCHEMA}): use a newer dormouse",
            audit.schema
        )),
        None if audits.is_empty() => Err("there is no audit in it".into()),
        None => Ok(audits),
    }
}
