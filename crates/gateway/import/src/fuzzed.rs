//! Parsers of this crate that read untrusted bytes, for `fuzz/` only: not an interface.

use std::path::Path;

use crate::error::Position;
use crate::{ImportError, Program};

/// Converts a text as the configuration of a program. Included files do not exist.
///
/// # Errors
/// The text can't be parsed.
pub fn import(program: Program, text: &str) -> Result<String, ImportError> {
    let file = Path::new("/nonexistent/fuzz.conf");
    let draft = crate::parse(program, text, &Position::new("fuzz.conf"), file)?;
    Ok(draft.finish("fuzz.conf").text)
}
