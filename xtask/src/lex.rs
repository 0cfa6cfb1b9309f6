//! Just enough of Rust's lexical grammar to distinguish code from comments and literals.

/// Returns the text with comments and the contents of literals replaced by spaces. Lines and
/// offsets stay the same.
pub(crate) fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = match literal_or_comment(bytes, at) {
            Some(end) => {
                code.extend(
                    bytes[at..end]
                        .iter()
                        .map(|byte| if *byte == b'\n' { b'\n' } else { b' ' }),
                );
                end
            }
            None => {
                code.push(if bytes[at].is_ascii() {
                    bytes[at]
                } else {
                    b' '
                });
                at + 1
            }
        };
        at = end;
    }
    String::from_utf8(code).unwrap_or_default()
}

/// Returns the end of the comment or literal that starts at `at`, if there is one.
fn literal_or_comment(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        return Some(
            at + rest
                .iter()
                .position(|byte| *byte == b'\n')
                .unwrap_or(rest.len()),
        );
    }
    if rest.starts_with(b"/*") {
        return Some(at + block_comment(rest));
    }
    if rest[0] == b'"' {
        return Some(at + quoted(rest));
    }
    if rest[0] == b'\'' {
        return character(rest).map(|length| at + length);
    }
    let in_a_word = at > 0 && is_word(bytes[at - 1]);
    if !in_a_word {
        return raw_string(rest).map(|length| at + length);
    }
    None
}

/// Block comments nest.
fn block_comment(rest: &[u8]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn quoted(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// A character literal; `None` for a lifetime.
fn character(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        let end = rest.iter().skip(3).position(|byte| *byte == b'\'')?;
        return Some(end + 4);
    }
    let width = match rest.get(1)? {
        0..=0x7f => 1,
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        _ => 4,
    };
    (rest.get(1 + width) == Some(&b'\'')).then_some(width + 2)
}

/// `r"…"`, `r#"…"#`, and the same after `b` or `c`.
fn raw_string(rest: &[u8]) -> Option<usize> {
    let prefix = usize::from(matches!(rest[0], b'b' | b'c'));
    if rest.get(prefix) != Some(&b'r') {
        return None;
    }
    let hashes = rest[prefix + 1..]
        .iter()
        .take_while(|byte| **byte == b'#')
        .count();
    let open = prefix + 1 + hashes;
    if rest.get(open) != Some(&b'"') {
        return None;
    }
    let close: Vec<u8> = std::iter::once(b'"')
        .chain(std::iter::repeat_n(b'#', hashes))
        .collect();
    let body = &rest[open + 1..];
    let length = body.windows(close.len()).position(|window| window == close);
    Some(length.map_or(rest.len(), |length| open + 1 + length + close.len()))
}

/// Blanks the bodies of items marked `#[cfg(test)]`: rules about shipped code do not apply there.
pub(crate) fn without_tests(code: &str) -> String {
    let mut shipped = code.to_string();
    let mut from = 0;
    while let Some(found) = shipped[from..].find("#[cfg(test)]") {
        let start = from + found;
        let end = item_end(&shipped, start);
        let blank: String = shipped[start..end]
            .chars()
            .map(|c| if c == '\n' { '\n' } else { ' ' })
            .collect();
        shipped.replace_range(start..end, &blank);
        from = end;
    }
    shipped
}

/// Returns the end of the item that begins at `start`: its closing brace, or its semicolon.
pub(crate) fn item_end(code: &str, start: usize) -> usize {
    match body_start(code, start) {
        Some(open) if code.as_bytes()[open] == b'{' => matching_brace(code, open),
        Some(semicolon) => semicolon + 1,
        None => code.len(),
    }
}

/// Returns the first `{` or `;` outside parentheses and brackets.
pub(crate) fn body_start(code: &str, start: usize) -> Option<usize> {
    let mut depth = 0_i32;
    for (offset, byte) in code[start..].bytes().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' | b';' if depth == 0 => return Some(start + offset),
            _ => {}
        }
    }
    None
}

/// Returns one past the brace that closes the one at `open`.
pub(crate) fn matching_brace(code: &str, open: usize) -> usize {
    let mut depth = 0_u32;
    for (offset, byte) in code[open..].bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return open + offset + 1,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

/// Returns the offsets of `word` as a whole word.
pub(crate) fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |at| {
            let bytes = code.as_bytes();
            let end = at + word.len();
            let clear_before = *at == 0 || !is_word(bytes[at - 1]);
            let clear_after = bytes.get(end).is_none_or(|byte| !is_word(*byte));
            clear_before && clear_after
        })
}

pub(crate) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns the line of an offset, counted from one.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    1 + text.as_bytes()[..offset]
        .iter()
        .filter(|byte| **byte == b'\n')
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_offsets_stay() {
        let text =
            "a // x\nb /* y /* z */ */ c \"q\\\"{\" d r#\"{\"\"# e '{' f '\\'' g<'h> b\"{\" é i";
        let code = code_only(text);
        assert_eq!(code.len(), text.len());
        let seen: Vec<&str> = code.split_whitespace().collect();
        assert_eq!(seen, ["a", "b", "c", "d", "e", "f", "g<'h>", "b", "i"]);
        assert_eq!(code.find('\n'), text.find('\n'));
    }

    #[test]
    fn items_marked_as_tests_are_blanked() {
        let code = "fn a() {}\n#[cfg(test)]\nmod tests { fn b() { c } }\nfn d() {}\n#[cfg(test)]\nmod e;\nfn f() {}";
        let shipped = without_tests(code);
        assert!(shipped.contains("fn a") && shipped.contains("fn d") && shipped.contains("fn f"));
        assert!(!shipped.contains("fn b") && !shipped.contains("mod e"));
        assert_eq!(shipped.lines().count(), code.lines().count());
    }

    #[test]
    fn whole_words_only() {
        let found: Vec<usize> = words("unsafe unsafe_code not_unsafe (unsafe)", "unsafe").collect();
        assert_eq!(found, [0, 31]);
    }
}
