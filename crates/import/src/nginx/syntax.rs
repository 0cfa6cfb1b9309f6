//! `name words… ;` and `name words… { … }`, and the files that are included.

use std::path::{Path, PathBuf};

use crate::error::{ImportError, Position};
use crate::source::{files_matching, read};

/// Maximum number of included files.
const INCLUDES_MAX: usize = 500;
/// Maximum nesting of blocks and of files.
const DEPTH_MAX: usize = 30;

#[derive(Clone, Debug)]
pub(super) struct Directive {
    pub(super) position: Position,
    pub(super) words: Vec<String>,
    pub(super) block: Vec<Directive>,
}

const NO_END: &str = "this does not end with `;`";
const ENDS: &str = "a directive ends with `;`, a block with `}`";

impl Directive {
    fn new(position: Position, words: Vec<String>) -> Directive {
        Directive {
            position,
            words,
            block: Vec::new(),
        }
    }

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

    /// Returns whether one of the words after the name is this one.
    pub(super) fn has_word(&self, word: &str) -> bool {
        self.values().any(|there| there == word)
    }

    pub(super) fn shown(&self) -> String {
        self.words.join(" ")
    }

    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Directive> {
        self.block.iter().filter(move |one| one.name() == name)
    }

    /// Returns the names of all `server_name` lines of a server.
    pub(super) fn names(&self) -> Vec<&str> {
        let lines = self.block.iter().filter(|one| one.name() == "server_name");
        lines.flat_map(Directive::values).collect()
    }

    /// Returns the last directive of this name.
    pub(super) fn find(&self, name: &str) -> Option<&Directive> {
        self.block.iter().rev().find(|one| one.name() == name)
    }
}

/// Parses a whole configuration into one block. Also returns the includes that do not exist.
pub(super) fn parse(
    text: &str,
    position: &Position,
    file: &Path,
) -> Result<(Directive, Vec<(Position, String)>), ImportError> {
    let mut reader = DirectiveReader {
        // nginx's relative paths start from the folder of its main file.
        folder: file.parent().unwrap_or(Path::new("")).to_owned(),
        left: INCLUDES_MAX,
        open: vec![same(file)],
        missing: Vec::new(),
    };
    let block = reader.text(text, position, 0)?;
    let whole = Directive {
        position: position.clone(),
        words: Vec::new(),
        block,
    };
    Ok((whole, reader.missing))
}

/// Returns the same path for the same file.
fn same(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

struct DirectiveReader {
    folder: PathBuf,
    left: usize,
    /// The files that are being read.
    open: Vec<PathBuf>,
    missing: Vec<(Position, String)>,
}

/// The tokens of a file, and the position in them.
struct Tokens<'a> {
    position: &'a Position,
    all: Vec<(usize, Token)>,
    at: usize,
}

impl DirectiveReader {
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
                    let one = Directive::new(position.at(line), std::mem::take(&mut words));
                    match one.name() {
                        "include" => block.extend(self.include(&one, depth)?),
                        _ => block.push(one),
                    }
                }
                Token::Open if depth >= DEPTH_MAX => {
                    let what = "blocks are nested more than 30 deep here";
                    return fault(number, what, "is this the right file?");
                }
                Token::Open => {
                    let mut one = Directive::new(position.at(line), std::mem::take(&mut words));
                    one.block = self.block(tokens, Some(number), depth + 1)?;
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
    fn include(&mut self, one: &Directive, depth: usize) -> Result<Vec<Directive>, ImportError> {
        let path = self.folder.join(one.word(1));
        let files = match one.word(1).contains(['*', '?', '[']) {
            true => files_matching(&self.folder, one.word(1)),
            false if path.is_file() => vec![path],
            false => {
                self.missing.push((one.position.clone(), one.shown()));
                Vec::new()
            }
        };
        let mut all = Vec::new();
        for file in files {
            all.extend(self.file(one, &file, depth)?);
        }
        Ok(all)
    }

    fn file(
        &mut self,
        one: &Directive,
        file: &Path,
        depth: usize,
    ) -> Result<Vec<Directive>, ImportError> {
        let fault = |what: String, help: &str| {
            Err(ImportError::new(
                &one.position,
                one.position.line,
                what,
                help,
            ))
        };
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
        let text = read(file, &position)?;
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
    let mut all = Vec::new();
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
