//! Quoting for command lines of a shell.

/// Quotes a word for a shell if necessary.
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Joins words into a command line.
pub fn command_line(words: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let words: Vec<_> = words.into_iter().map(|word| quote(word.as_ref())).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_quoted_words_unchanged() {
        let words = [
            "perl",
            "-e",
            "print 'it''s' . \"$ENV{X}\"; # \\n",
            "",
            "https://localhost:1/?a&b",
        ];
        let output = std::process::Command::new("/bin/sh")
            .args(["-c", &format!("printf '%s\\0' {}", command_line(words))])
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8(output.stdout).unwrap(),
            words.join("\0") + "\0"
        );
        assert_eq!(command_line(["-n", "2000"]), "-n 2000");
    }
}
