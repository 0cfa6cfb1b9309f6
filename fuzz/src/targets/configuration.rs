//! Configurations of Dormouse and of four other programs.

use std::path::Path;
use std::sync::OnceLock;

use dormouse_config::Machine;
use dormouse_import::{Program, fuzzed};

fn machine() -> &'static Machine {
    static MACHINE: OnceLock<Machine> = OnceLock::new();
    MACHINE.get_or_init(Machine::read)
}

/// Reported mistakes contain no control characters except line ends.
pub(crate) fn ours(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mistakes = dormouse_config::judge(&text, Path::new("fuzz.toml"), machine());
    let shown = mistakes.render(false);
    assert!(
        !shown.contains(|c: char| c.is_control() && c != '\n'),
        "{shown:?}"
    );
}

/// An imported configuration is valid TOML; it may still lack options.
fn import(program: Program, data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match fuzzed::import(program, &text) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(written) => {
            let mistakes = dormouse_config::judge(&written, Path::new("fuzz.toml"), machine());
            let shown = mistakes.render(false);
            assert!(!shown.contains("TOML"), "{shown}\n{written}");
            assert!(
                !written.contains(|c: char| c.is_control() && c != '\n'),
                "{written:?}"
            );
        }
    }
}

pub(crate) fn nginx(data: &[u8]) {
    import(Program::Nginx, data);
}

pub(crate) fn haproxy(data: &[u8]) {
    import(Program::Haproxy, data);
}

pub(crate) fn hitch(data: &[u8]) {
    import(Program::Hitch, data);
}

pub(crate) fn stunnel(data: &[u8]) {
    import(Program::Stunnel, data);
}
