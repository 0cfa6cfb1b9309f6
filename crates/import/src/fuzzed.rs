//! Parsers of this crate that take strangers' bytes, for `fuzz/` alone: no interface.

use std::path::Path;

use crate::error::Position;
use crate::{ImportError, Program};

/// Reads a text as the configuration of a program, and writes ours. The files that it includes are not there.
///
/// # Errors
/// It can't be understood.
pub fn import(program: Program, text: &str) -> Result<String, ImportError> {
    let file = Path::new("/nonexistent/fuzz.conf");
    let draft = crate::parse(program, text, &Position::new("fuzz.conf"), file)?;
    Ok(draft.finish("fuzz.conf").text)
}
