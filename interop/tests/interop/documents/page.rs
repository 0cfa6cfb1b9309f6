//! The fenced blocks of a page, and whether tests run them.

use std::path::{Path, PathBuf};

use dormouse_interop::tools;

/// Marker in the line before a block that no test runs.
const NOT_RUN: &str = "<!-- not run: ";

/// A fenced block.
pub(super) struct Block {
    /// Line number of the opening fence.
    pub(super) line: usize,
    /// Language of the block: `sh`, `toml`, or none.
    pub(super) language: String,
    /// Contents of the block.
    pub(super) text: String,
    /// Why no test runs the block.
    pub(super) not_run: Option<String>,
}

impl Block {
    /// Whether a reader would run it: not a drawing, an output or a program fragment.
    pub(super) fn is_example(&self) -> bool {
        matches!(self.language.as_str(), "sh" | "toml" | "yaml")
    }

    /// Its commands: lines without comments, with continuation lines joined.
    pub(super) fn commands(&self) -> Vec<String> {
        let joined = self.text.replace("\\\n", " ");
        let lines = joined.lines().map(|line| match line.split_once(" # ") {
            Some((command, _)) => command.trim().to_owned(),
            None => line.trim().to_owned(),
        });
        lines.filter(|line| !line.is_empty()).collect()
    }
}

pub(super) fn repository() -> PathBuf {
    tools::home().join("..")
}

/// The blocks of a page, given by its path in the repository.
pub(super) fn blocks(page: &str) -> Vec<Block> {
    let text = std::fs::read_to_string(repository().join(page)).expect("a page");
    read(&text)
}

fn read(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    let mut not_run = None;
    for (number, line) in text.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language)) => {
                open = Some(Block {
                    line: number + 2,
                    language: language.to_owned(),
                    text: String::new(),
                    not_run: not_run.take(),
                });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => block.text.push_str(&format!("{line}\n")),
            (None, None) if line.is_empty() => {}
            (None, None) => {
                let reason = line.strip_prefix(NOT_RUN);
                let reason = reason.and_then(|rest| rest.strip_suffix(" -->"));
                not_run = reason.map(str::to_owned);
            }
        }
    }
    assert!(open.is_none(), "a block without an end");
    blocks
}

/// Paths of the guide's pages in the repository.
pub(super) fn guide() -> Vec<String> {
    let folder = repository().join("docs/guide");
    let entries = std::fs::read_dir(folder).expect("the guide").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let pages = names.filter(|name| Path::new(name).extension().is_some_and(|end| end == "md"));
    pages.map(|name| format!("docs/guide/{name}")).collect()
}

#[test]
fn blocks_are_read_with_their_reasons() {
    let text = "<!-- not run: a reason -->\n\n```sh\nmake all   # everything\ndormouse check \\\n    -c a.toml\n```\n\
                <!-- not run: of nothing -->\nwords\n```\n#drawing\n```\n";
    let blocks = read(text);
    assert_eq!(blocks.len(), 2);
    assert_eq!(blocks[0].not_run.as_deref(), Some("a reason"));
    assert_eq!(blocks[0].line, 4);
    assert_eq!(
        blocks[0].commands(),
        ["make all", "dormouse check      -c a.toml"]
    );
    assert_eq!(blocks[1].not_run, None);
    assert!(blocks[0].is_example() && !blocks[1].is_example());
}
