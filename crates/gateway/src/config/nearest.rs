//! Finding what somebody meant to write.

/// The known word nearest to what was written, if one is near enough to be meant.
pub(crate) fn nearest<'a>(written: &str, known: &[&'a str]) -> Option<&'a str> {
    // Longer ones are not misspelt but something else; and this bounds the work.
    if written.len() > 64 {
        return None;
    }
    let written = normal(written);
    known
        .iter()
        .map(|word| (distance(&written, &normal(word)), *word))
        .filter(|(distance, word)| *distance <= 1 + word.len() / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
        .or_else(|| containing(&written, known))
}

/// `handshake` may mean `handshake_timeout`, if nothing else has that word.
fn containing<'a>(written: &[char], known: &[&'a str]) -> Option<&'a str> {
    let written: String = written.iter().collect();
    if written.len() < 4 {
        return None;
    }
    let mut found = known.iter().filter(|word| word.contains(&written));
    match (found.next(), found.next()) {
        (Some(only), None) => Some(only),
        _ => None,
    }
}

/// Case and the kind of dash are not what makes words differ.
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

/// The number of letters to insert, remove, replace or swap with their neighbour
/// (optimal string alignment).
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

    fn apart(a: &str, b: &str) -> usize {
        distance(&normal(a), &normal(b))
    }

    #[test]
    fn counts_the_letters_that_differ() {
        assert_eq!(apart("workers", "workers"), 0);
        assert_eq!(apart("worker", "workers"), 1);
        assert_eq!(
            apart("wrokers", "workers"),
            1,
            "swapped neighbours are one mistake"
        );
        assert_eq!(apart("log-level", "LOG_LEVEL"), 0);
        assert_eq!(apart("", "abc"), 3);
        assert_eq!(apart("kitten", "sitting"), 3);
    }

    #[test]
    fn finds_what_was_meant_and_nothing_far_fetched() {
        let known = ["workers", "backlog", "idle_timeout", "handshake_timeout"];
        assert_eq!(nearest("wokers", &known), Some("workers"));
        assert_eq!(nearest("idle-time-out", &known), Some("idle_timeout"));
        assert_eq!(nearest("handshake", &known), Some("handshake_timeout"));
        assert_eq!(nearest("timeout", &known), None, "it could be either");
        assert_eq!(nearest("colour", &known), None);
        assert_eq!(nearest(&"x".repeat(100_000), &known), None);
    }
}
