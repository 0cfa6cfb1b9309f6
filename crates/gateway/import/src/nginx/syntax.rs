//! `name words… ;` and `name words… { … }`, and the files that are included.

use std::path::{Path, PathBuf};

use crate::error::{ImportError, Position};
use crate::origin::{Ledger, Origin};
use crate::section::Fate;
use crate::source::{TooManyFiles, files_matching};

/// Maximum number of included files.
const INCLUDES_MAX: usize = 500;
/// Maximum nesting of blocks and of files.
const DEPTH_MAX: usize = 30;

#[derive(Clone, Debug)]
pub(super) struct Directive {
    pub(super) origin: Origin,
    pub(super) words: Vec<String>,
    /// The origins of the words, if each has a meaning of its own.
    parts: Vec<Origin>,
    pub(super) block: Vec<Directive>,
}

const NO_END: &str = "this does not end with `;`";
const ENDS: &str = "a directive ends with `;`, a block with `}`";

impl Directive {
    pub(super) fn name(&self) -> &str {
        self.word(0)
    }

    pub(super) fn word(&self, n: usize) -> &str {
        self.words.get(n).map_or("", String::as_str)
    }

    /// Returns whether the value is this one. nginx ignores the case of switches, and of words to choose from.
    pub(super) fn is(&self, value: &str) -> bool {
        self.word(1).eq_ignore_ascii_case(value)
    }

    /// Returns the words after the name.
    pub(super) fn values(&self) -> impl Iterator<Item = &str> {
        self.words.iter().skip(1).map(String::as_str)
    }

    /// Returns the words after the name and the first value, each with its origin.
    pub(super) fn parameters(&self) -> impl Iterator<Item = (&str, Origin)> {
        let words = self.words.iter().enumerate().skip(2);
        words.map(|(n, word)| (word.as_str(), self.part(n)))
    }

    /// Returns the origin of a word.
    pub(super) fn part(&self, n: usize) -> Origin {
        self.parts.get(n).copied().unwrap_or(self.origin)
    }

    /// Returns the origin of this word after the name.
    pub(super) fn part_of(&self, word: &str) -> Option<Origin> {
        let at = self.words.iter().skip(1).position(|there| there == word)?;
        Some(self.part(at + 1))
    }

    /// Returns its origins and those of everything in its block.
    pub(super) fn origins(&self) -> Vec<Origin> {
        let mut all = Vec::new();
        self.collect_origins(&mut all);
        all
    }

    /// Returns the origins of everything in its block, or its own if it has none.
    pub(super) fn inner_origins(&self) -> Vec<Origin> {
        match self.block.is_empty() {
            true => self.origins(),
            false => self.block.iter().flat_map(Directive::origins).collect(),
        }
    }

    fn collect_origins(&self, all: &mut Vec<Origin>) {
        all.push(self.origin);
        all.extend(self.parts.iter().filter(|part| **part != self.origin));
        self.block.iter().for_each(|one| one.collect_origins(all));
    }

    /// Returns whether one of the words after the name is this one.
    pub(super) fn has_word(&self, word: &str) -> bool {
        self.values().any(|there| there == word)
    }

    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Directive> {
        self.block.iter().filter(move |one| one.name() == name)
    }

    /// Returns the names of all `server_name` lines of a server, each with its origin.
    pub(super) fn names(&self) -> Vec<(&str, Origin)> {
        let lines = self.block.iter().filter(|one| one.name() == "server_name");
        let words =
            lines.flat_map(|line| line.words.iter().enumerate().map(move |word| (line, word)));
        let names = words.filter(|(_, (n, _))| *n > 0);
        names
            .map(|(line, (n, word))| (word.as_str(), line.part(n)))
            .collect()
    }

    /// Returns the last directive of this name.
    pub(super) fn find(&self, name: &str) -> Option<&Directive> {
        self.block.iter().rev().find(|one| one.name() == name)
    }
}

/// A whole configuration.
pub(super) struct Whole {
    pub(super) block: Vec<Directive>,
    /// What became of each `include`.
    pub(super) includes: Vec<(Origin, Fate, &'static str)>,
}

pub(super) fn parse(
    text: &str,
    position: &Position,
    file: &Path,
    ledger: &mut Ledger,
) -> Result<Whole, ImportError> {
    let mut reader = DirectiveReader {
        // nginx's relative paths start from the folder of its main file.
        folder: file.parent().unwrap_or(Path::new("")).to_owned(),
        left: INCLUDES_MAX,
        open: vec![same(file)],
        includes: Vec::new(),
        ledger,
    };
    let block = reader.text(text, position, 0)?;
    Ok(Whole {
        block,
        includes: reader.includes,
    })
}

/// Returns the same path for the same file.
fn same(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

struct DirectiveReader<'a> {
    folder: PathBuf,
    left: usize,
    /// The files that are being read.
    open: Vec<PathBuf>,
    includes: Vec<(Origin, Fate, &'static str)>,
    ledger: &'a mut Ledger,
}

/// The tokens of a file, and the position in them.
struct Tokens<'a> {
    position: &'a Position,
    all: Vec<(usize, Token)>,
    at: usize,
}

/// Returns whether each word of this directive has a meaning of its own.
fn has_parts(words: &[String]) -> bool {
    matches!(
        words.first().map(String::as_str),
        Some("listen" | "server" | "server_name" | "health_check")
    )
}

impl DirectiveReader<'_> {
    fn text(
        &mut self,
        text: &str,
        position: &Position,
        depth: usize,
    ) -> Result<Vec<Directive>, ImportError> {
        let mut tokens = Tokens {
            position,
            all: tokens(text, position)?,
            at: 0,
        };
        self.block(&mut tokens, None, depth)
    }

    /// Enters a directive and, where each has a meaning of its own, its words.
    fn enter(&mut self, position: &Position, words: Vec<String>) -> Result<Directive, ImportError> {
        let mut parts = Vec::new();
        let origin = if has_parts(&words) && words.len() > 2 {
            let (first, more) = words.split_at(2);
            let origin = self.ledger.enter(position, first.join(" "))?;
            parts.extend([origin, origin]);
            for word in more {
                parts.push(self.ledger.enter_word(position, word)?);
            }
            origin
        } else {
            let shown = words
                .iter()
                .map(|word| if word.is_empty() { "\"\"" } else { word });
            self.ledger
                .enter(position, shown.collect::<Vec<_>>().join(" "))?
        };
        Ok(Directive {
            origin,
            words,
            parts,
            block: Vec::new(),
        })
    }

    /// Parses the contents of a block, or of a file.
    fn block(
        &mut self,
        tokens: &mut Tokens<'_>,
        opened: Option<usize>,
        depth: usize,
    ) -> Result<Vec<Directive>, ImportError> {
        let position = tokens.position;
        let fault =
            |line, what: &str, help: &str| Err(ImportError::new(position, line, what, help));
        let mut block = Vec::new();
        let mut words: Vec<String> = Vec::new();
        let mut line = 0;
        while let Some((number, token)) = tokens.all.get(tokens.at).cloned() {
            tokens.at += 1;
            match token {
                Token::Word(word) => {
                    if words.is_empty() {
                        line = number;
                    }
                    words.push(word);
                }
                Token::Semicolon if words.is_empty() => {
                    return fault(number, "this `;` ends nothing", "remove it");
                }
                Token::Semicolon => {
                    let at = position.at(line);
                    let one = self.enter(&at, std::mem::take(&mut words))?;
                    match one.name() {
                        "include" => block.extend(self.include(&one, &at, depth)?),
                        _ => block.push(one),
                    }
                }
                Token::Open if depth >= DEPTH_MAX => {
                    let what = "blocks are nested more than 30 deep here";
                    return fault(number, what, "is this the right file?");
                }
                Token::Open => {
                    let at = position.at(line.max(1));
                    let mut one = self.enter(&at, std::mem::take(&mut words))?;
                    one.block = self.block(tokens, Some(number), depth + 1)?;
                    if !one.block.is_empty() {
                        self.ledger.is_head(one.origin);
                    }
                    block.push(one);
                }
                Token::Close if !words.is_empty() => return fault(line, NO_END, ENDS),
                Token::Close if opened.is_none() => {
                    let help = "remove it, or add the missing `{`";
                    return fault(number, "this `}` has no `{`", help);
                }
                Token::Close => return Ok(block),
            }
        }
        match opened {
            _ if !words.is_empty() => fault(line, NO_END, ENDS),
            Some(line) => {
                let what = "the `{` in this line is not closed";
                fault(line, what, "add the missing `}`")
            }
            None => Ok(block),
        }
    }

    /// Reads a file, or all files that match a pattern (glob(7)), in the order of their names.
    fn include(
        &mut self,
        one: &Directive,
        position: &Position,
        depth: usize,
    ) -> Result<Vec<Directive>, ImportError> {
        let is_pattern = one.word(1).contains(['*', '?', '[']);
        let files = match is_pattern {
            true => files_matching(&self.folder, one.word(1)),
            false => Ok(vec![self.folder.join(one.word(1))]),
        };
        let (fate, why) = match &files {
            Err(TooManyFiles) => (
                Fate::ToDo,
                "this stands for too large a part of the machine",
            ),
            Ok(files) if is_pattern && files.is_empty() => (Fate::LeftOut, "no file matches"),
            Ok(files) if files.iter().all(|file| file.is_file()) => {
                (Fate::WithoutEffect, "included: see the lines of that file")
            }
            Ok(files) if files.iter().any(|file| file.exists()) => (
                Fate::ToDo,
                "this is a pipe, a device or a directory: what it says is missing here",
            ),
            Ok(_) => (
                Fate::ToDo,
                "this file does not exist: what it says is missing here",
            ),
        };
        self.includes.push((one.origin, fate, why));
        let mut all = Vec::new();
        for file in files
            .unwrap_or_default()
            .iter()
            .filter(|file| file.is_file())
        {
            all.extend(self.file(position, file, depth)?);
        }
        Ok(all)
    }

    fn file(
        &mut self,
        position: &Position,
        file: &Path,
        depth: usize,
    ) -> Result<Vec<Directive>, ImportError> {
        let fault =
            |what: String, help: &str| Err(ImportError::new(position, position.line, what, help));
        let shown = file.display();
        if self.open.contains(&same(file)) {
            return fault(
                format!("{shown} includes itself"),
                "remove the include; nginx would not end either",
            );
        }
        if self.left == 0 || depth >= DEPTH_MAX {
            return fault(
                format!("{shown} is one file too many: the limits are 500 files, 30 deep"),
                "is this the right file?",
            );
        }
        self.left -= 1;
        self.open.push(same(file));
        let position = Position::included(&shown.to_string());
        let text = self.ledger.read(file, &position)?;
        let block = self.text(&text, &position, depth + 1)?;
        self.open.pop();
        Ok(block)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Semicolon,
    Open,
    Close,
}

fn tokens(text: &str, position: &Position) -> Result<Vec<(usize, Token)>, ImportError> {
    let mut all: Vec<(usize, Token)> = Vec::new();
    let mut word: Option<String> = None;
    let mut line = 1;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let special = match c {
            ';' => Some(Token::Semicolon),
            '{' => Some(Token::Open),
            '}' => Some(Token::Close),
            _ => None,
        };
        if special.is_some() || c.is_whitespace() || (c == '#' && word.is_none()) {
            all.extend(word.take().map(|word| (line, Token::Word(word))));
            if c == '{' && is_code(&all) {
                let opened = line;
                line += lua(&mut chars).ok_or_else(|| {
                    let what = "the `{` of this Lua code is not closed";
                    ImportError::new(position, opened, what, "add the missing `}`")
                })?;
                all.push((opened, Token::Word("{ … }".to_owned())));
                all.push((line, Token::Semicolon));
                continue;
            }
            all.extend(special.map(|token| (line, token)));
            if c == '#' {
                while chars.next_if(|&c| c != '\n').is_some() {}
            }
            line += usize::from(c == '\n');
            continue;
        }
        let is_first = word.is_none();
        let word = word.get_or_insert_default();
        match c {
            '"' | '\'' if is_first => {
                let opened = line;
                loop {
                    match chars.next() {
                        Some(end) if end == c => break,
                        Some('\\') => word.extend(chars.next()),
                        Some(inner) => {
                            line += usize::from(inner == '\n');
                            word.push(inner);
                        }
                        None => {
                            let what = format!("the {c} in this line is not closed");
                            return Err(ImportError::new(
                                position,
                                opened,
                                what,
                                "add the missing quote",
                            ));
                        }
                    }
                }
            }
            '\\' => {
                // As in patterns, `\.` is kept.
                word.push('\\');
                word.extend(chars.next());
            }
            // A variable, whose braces do not open a block.
            '$' if chars.peek() == Some(&'{') => {
                word.push('$');
                while let Some(inner) = chars.next_if(|&inner| inner != '}' && inner != '\n') {
                    word.push(inner);
                }
                word.extend(chars.next_if_eq(&'}'));
            }
            c => word.push(c),
        }
    }
    all.extend(word.map(|word| (line, Token::Word(word))));
    Ok(all)
}

/// Returns whether a block of Lua code follows: its directive, with at most a variable after it, has been read.
fn is_code(tokens: &[(usize, Token)]) -> bool {
    let words = tokens.iter().rev().map_while(|(_, token)| match token {
        Token::Word(word) => Some(word),
        _ => None,
    });
    words.take(2).any(|word| word.ends_with("_by_lua_block"))
}

/// Skips Lua code up to its closing brace, and returns the number of lines. Braces in strings and comments do not
/// count. `None`: it has no end.
fn lua(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<usize> {
    let (mut depth, mut lines) = (1, 0);
    while depth > 0 {
        let c = chars.next()?;
        match c {
            '\n' => lines += 1,
            '{' => depth += 1,
            '}' => depth -= 1,
            '"' | '\'' => loop {
                match chars.next()? {
                    '\\' => lines += usize::from(chars.next()? == '\n'),
                    '\n' => {
                        lines += 1;
                        break;
                    }
                    end if end == c => break,
                    _ => {}
                }
            },
            '-' if chars.next_if_eq(&'-').is_some() => {
                if chars.next_if_eq(&'[').is_some() {
                    lines += long_bracket(chars)?;
                } else {
                    while chars.next_if(|c| *c != '\n').is_some() {}
                }
            }
            '[' => lines += long_bracket(chars)?,
            _ => {}
        }
    }
    Some(lines)
}

/// Skips the rest of `[[ … ]]` or `[=[ … ]=]`, whose first bracket has been read, and returns the number of lines.
/// Anything else is left alone.
fn long_bracket(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<usize> {
    let mut level = 0;
    while chars.next_if_eq(&'=').is_some() {
        level += 1;
    }
    if chars.next_if_eq(&'[').is_none() {
        return Some(0);
    }
    let (mut lines, mut equals) = (0, None);
    loop {
        match (chars.next()?, equals) {
            (']', Some(n)) if n == level => return Some(lines),
            (']', _) => equals = Some(0),
            ('=', Some(n)) => equals = Some(n + 1),
            (c, _) => {
                lines += usize::from(c == '\n');
                equals = None;
            }
        }
    }
}
