//! The text of hitch.conf.

use crate::error::{ImportError, Position};
use crate::origin::{Ledger, Origin};

/// A value: a text, or a block of more.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Text(String),
    Block(Vec<HitchSetting>),
}

#[derive(Clone, Debug)]
pub(super) struct HitchSetting {
    pub(super) origin: Origin,
    pub(super) key: String,
    pub(super) value: Value,
}

impl HitchSetting {
    pub(super) fn text(&self) -> &str {
        match &self.value {
            Value::Text(text) => text,
            Value::Block(_) => "",
        }
    }

    pub(super) fn block(&self) -> &[HitchSetting] {
        match &self.value {
            Value::Text(_) => &[],
            Value::Block(entries) => entries,
        }
    }

    /// Returns its own origin and those of these settings in its block.
    pub(super) fn origins(&self, keys: &'static [&str]) -> impl Iterator<Item = Origin> {
        let inner = self.block().iter().filter(|one| keys.contains(&&*one.key));
        [self.origin].into_iter().chain(inner.map(|one| one.origin))
    }
}

pub(super) fn parse(
    text: &str,
    position: &Position,
    ledger: &mut Ledger,
) -> Result<Vec<HitchSetting>, ImportError> {
    let mut stack: Vec<(usize, Origin, String, Vec<HitchSetting>)> = Vec::new();
    let mut entries = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let number = n + 1;
        let fault = |what: &str, help: &str| ImportError::new(position, number, what, help);
        let mut rest = without_comment(line).trim();
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('}') {
                let Some((_, origin, key, outer)) = stack.pop() else {
                    return Err(fault(
                        "this `}` has no `{`",
                        "remove it, or add the missing `{`",
                    ));
                };
                let inner = std::mem::replace(&mut entries, outer);
                if !inner.is_empty() {
                    ledger.is_head(origin);
                }
                entries.push(HitchSetting {
                    origin,
                    key,
                    value: Value::Block(inner),
                });
                rest = after.trim_start();
                continue;
            }
            let at = position.at(number);
            let Some((key, value)) = rest.split_once('=') else {
                // No converter takes this, so it is a step to do.
                ledger.enter(&at, rest)?;
                break;
            };
            let (key, value) = (key.trim().to_owned(), value.trim_start());
            if let Some(after) = value.strip_prefix('{') {
                if stack.len() >= 10 {
                    return Err(fault(
                        "blocks are nested more than 10 deep here",
                        "hitch nests them one deep at most",
                    ));
                }
                let origin = ledger.enter(&at, format!("{key} = {{ … }}"))?;
                stack.push((number, origin, key, std::mem::take(&mut entries)));
                rest = after.trim_start();
                continue;
            }
            let Some((text, after)) = word(value) else {
                return Err(fault(
                    "the \" in this line is not closed",
                    "add the missing quote",
                ));
            };
            entries.push(HitchSetting {
                origin: ledger.enter(&at, format!("{key} = {text}"))?,
                key,
                value: Value::Text(text.to_owned()),
            });
            rest = after.trim_start();
        }
    }
    match stack.first() {
        Some((line, ..)) => Err(ImportError::new(
            position,
            *line,
            "the `{` in this line is not closed",
            "add the missing `}`",
        )),
        None => Ok(entries),
    }
}

/// Splits off a value, in quotes or up to the end of the line or block, or to the next key in it.
fn word(text: &str) -> Option<(&str, &str)> {
    if let Some(inner) = text.strip_prefix('"') {
        return inner.split_once('"');
    }
    let (line, behind) = text.split_at(text.find('}').unwrap_or(text.len()));
    let key = line.split_once('=').map(|(before, _)| before.trim_end());
    let key = key.and_then(|before| before.rfind(char::is_whitespace));
    Some(match key {
        Some(at) => (line[..at].trim(), &text[at..]),
        None => (line.trim(), behind),
    })
}

fn without_comment(line: &str) -> &str {
    let mut quotes = false;
    for (at, c) in line.char_indices() {
        match c {
            '"' => quotes = !quotes,
            '#' if !quotes => return &line[..at],
            _ => {}
        }
    }
    line
}
