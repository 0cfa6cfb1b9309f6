//! Suggestions for misspelt words.

/// Returns the known word nearest to `written`, if one is near enough to be a misspelling.
pub(crate) fn nearest<'a>(written: &str, known: &[&'a str]) -> Option<&'a str> {
    // A longer word is not a misspelling, and the limit bounds the work.
    if written.len() > 64 {
        return None;
    }
    let letters = normal(written);
    known
        .iter()
        .map(|word| (distance(&letters, &normal(word)), *word))
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
    let written: String = normal(written).into_iter().collect();
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
fn normal(word: &str) -> Vec<char> {
    word.chars()
        .map(|c| {
            if c == '-' {
                '_'
            } else {
                c.to_ascii_lowercase()
            }
        })
        .collect()
}

/// Returns the number of letters to insert, remove, replace or swap with their neighbour (optimal
/// string alignment).
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.iter().enumerate() {
        let mut row = vec![i + 1; b.len() + 1];
        for (j, other) in b.iter().enumerate() {
            let replaced = last[j] + usize::from(letter != other);
            let mut best = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *letter == b[j - 1] && a[i - 1] == *other {
                best = best.min(before[j - 1] + 1);
            }
            row[j + 1] = best;
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edits_between(a: &str, b: &str) -> usize {
        distance(&normal(a), &normal(b))
    }

    #[test]
    fn counts_differing_letters() {
        assert_eq!(edits_between("workers", "workers"), 0);
        assert_eq!(edits_between("worker", "workers"), 1);
        assert_eq!(
            edits_between("wrokers", "workers"),
            1,
            "swapped neighbours are one mistake"
        );
        assert_eq!(edits_between("log-level", "LOG_LEVEL"), 0);
        assert_eq!(edits_between("", "abc"), 3);
        assert_eq!(edits_between("kitten", "sitting"), 3);
    }

    #[test]
    fn suggests_only_near_words() {
        let known = ["workers", "backlog", "idle_timeout", "handshake_timeout"];
        assert_eq!(nearest("wokers", &known), Some("workers"));
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
