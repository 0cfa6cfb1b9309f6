//! Tidiness as a test: `cargo xtask tidy` enforces rules that the compiler does not.
//!
//! Every rule is a module under `tidy` that examines a `Tree` and returns findings. A rule's tests
//! show that it can fail. If a rule must be broken, `xtask/exceptions.txt` says why; an exception
//! that excuses nothing is a finding too.

#![forbid(unsafe_code)]

mod imports;
mod lex;
mod tidy;
mod tree;
mod workspace;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND [DIRECTORY]
  tidy        check what the compiler does not: boundaries, lengths, dead files, links, generated text
  generate    rewrite the generated parts of the documents
usage: cargo xtask cycles [CRATE]
  cycles      list import cycles between files and between folders, and a few imports whose removal breaks them";

fn main() -> ExitCode {
    let command = std::env::args().nth(1).unwrap_or_default();
    if command == "cycles" {
        return finish(&command, cycles(std::env::args().nth(2).as_deref()));
    }
    let elsewhere = std::env::args_os().nth(2).map(PathBuf::from);
    let root = elsewhere.unwrap_or_else(|| repository().to_path_buf());
    // Cargo reports absolute paths.
    let root = root.canonicalize().unwrap_or(root);
    let outcome = match command.as_str() {
        "tidy" => tidy(&root),
        "generate" => generate(&root),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    finish(&command, outcome)
}

fn finish(command: &str, outcome: Result<ExitCode, String>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        eprintln!("xtask {command}: {error}");
        ExitCode::from(3)
    })
}

/// Returns the repository, whatever the current directory.
fn repository() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

fn tidy(root: &Path) -> Result<ExitCode, String> {
    let findings = tidy::check(root)?;
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        println!("tidy: {} rules, no findings", tidy::RULES.len());
        return Ok(ExitCode::SUCCESS);
    }
    println!("tidy: {} findings", findings.len());
    Ok(ExitCode::from(1))
}

fn cycles(package: Option<&str>) -> Result<ExitCode, String> {
    let root = repository();
    let tree = tree::Tree::read(root)?;
    print!(
        "{}",
        tidy::cycles::report(&tree, &workspace::read(root)?, package)?
    );
    Ok(ExitCode::SUCCESS)
}

fn generate(root: &Path) -> Result<ExitCode, String> {
    let tree = tree::Tree::read(root)?;
    for (path, text) in tidy::generated::regenerate(&tree)? {
        std::fs::write(root.join(&path), text).map_err(|error| format!("{path}: {error}"))?;
        println!("wrote {path}");
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_repository_is_tidy() {
        let findings = super::tidy::check(super::repository()).expect("the directory read");
        let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(lines.is_empty(), "{}", lines.join("\n"));
    }
}
