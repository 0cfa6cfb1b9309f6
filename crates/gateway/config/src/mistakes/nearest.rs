//! Suggestions for misspelt words.

use strsim::osa_distance;

/// Returns the known word nearest to `written`, if one is near enough to be a misspelling.
pub(crate) fn nearest<'a>(written: &str, known: &[&'a str]) -> Option<&'a str> {
    // A longer word is not a misspelling, and the limit bounds the work.
    if written.len() > 64 {
        return None;
    }
    let letters = normal(written);
    known
        .iter()
        .map(|word| (osa_distance(&letters, &normal(word)), *word))
        .filter(|(distance, word)| *distance <= 1 + word.len() / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
        .or_else(|| match containing(written, known).as_slice() {
            [only] => Some(only),
            _ => None,
        })
}

/// Returns the known words that contain `written`: `handshake` may mean `handshake_timeout`.
pub(crate) fn containing<'a>(written: &str, known: &[&'a str]) -> Vec<&'a str> {
    const LENGTH_MIN: usize = 4;
    let written = normal(written);
    if written.len() < LENGTH_MIN {
        return Vec::new();
    }
    known
        .iter()
        .copied()
        .filter(|word| word.contains(&written))
        .collect()
}

/// Returns the word in lower case with `_` for `-`: other differences count as mistakes.
fn normal(word: &str) -> String {
    word.to_ascii_lowercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_only_near_words() {
        let known = ["workers", "backlog", "idle_timeout", "handshake_timeout"];
        assert_eq!(nearest("wokers", &known), Some("workers"));
        assert_eq!(nearest("wrokesr", &known), Some("workers"));
        assert_eq!(nearest("BACKLOG", &known), Some("backlog"));
        assert_eq!(nearest("idle-time-out", &known), Some("idle_timeout"));
        assert_eq!(nearest("handshake", &known), Some("handshake_timeout"));
        assert_eq!(
            nearest("timeout", &known),
            None,
            "two options are equally near"
        );
        assert_eq!(nearest("colour", &known), None);
        assert_eq!(nearest(&"x".repeat(100_000), &known), None);
    }
}
