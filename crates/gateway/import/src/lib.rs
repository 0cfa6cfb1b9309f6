//! Converts the TLS part of another program's configuration.
//!
//! Each program has a module that reads its file into a [`Draft`]; writing a draft is the same for
//! all. What cannot be converted becomes a comment with its line and the reason, or a step to take
//! (`todo`), with which the result does not run. The checks of `dormouse check` find what the result
//! still lacks, which is a step, too.
//!
//! No line of the source is lost: a reader enters every setting into a ledger (`origin.rs`), every
//! option, comment and step names the settings that it stands for, and the end of an import makes
//! a step of every setting that nothing in the result stands for.

#![forbid(unsafe_code)]

mod advice;
mod cases;
mod certificates;
mod draft;
mod error;
#[doc(hidden)]
pub mod fuzzed;
mod haproxy;
mod hitch;
mod networks;
mod nginx;
mod openssl;
mod origin;
mod page;
mod section;
mod source;
mod stages;
mod stunnel;
mod toml;
mod value;

use std::path::Path;

pub use draft::Draft;
pub use error::{ImportError, Position};
pub use page::ImportedConfig;

/// The program whose configuration is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// hitch.conf
    Hitch,
    /// stunnel.conf; client services become `[[originate]]`
    Stunnel,
    /// nginx.conf, with the files that it includes: servers with `ssl` or `ssl_preread`
    Nginx,
    /// haproxy.cfg: binds with `ssl`, and binds that choose a backend by the name in the
    /// ClientHello
    Haproxy,
}

impl Program {
    /// Returns the program's name as its authors write it.
    pub fn name(self) -> &'static str {
        match self {
            Program::Hitch => "hitch",
            Program::Stunnel => "stunnel",
            Program::Nginx => "nginx",
            Program::Haproxy => "HAProxy",
        }
    }
}

/// Reads `file` as a configuration of `program`.
pub fn read(program: Program, file: &Path) -> Result<Draft, ImportError> {
    let position = Position::new(&file.display().to_string());
    let text = source::read(file, &position)?;
    parse(program, &text, &position, file)
}

/// Parses the text of `file` as the program would.
fn parse(
    program: Program,
    text: &str,
    position: &Position,
    file: &Path,
) -> Result<Draft, ImportError> {
    let folder = file.parent().unwrap_or(Path::new(""));
    match program {
        Program::Hitch => hitch::read(text, position),
        Program::Stunnel => stunnel::read(text, position, folder),
        Program::Nginx => nginx::read(text, position, file),
        Program::Haproxy => haproxy::read(text, position, folder),
    }
}

#[cfg(test)]
mod tests;
