//! Parts of messages: shortened texts, lists of words, and suggestions for unknown words.

use crate::mistakes::nearest::nearest;
use crate::mistakes::problem::Problem;

/// Returns a text shortened and escaped for one line of a message.
pub(crate) fn shortened(text: &str) -> String {
    const LENGTH_MAX: usize = 80;
    dormouse_printable::line_up_to(text, LENGTH_MAX).to_string()
}

/// Returns the problem of an unknown word, with the nearest known word or all of them.
pub(crate) fn unknown_word(what: &str, word: &str, known: &[&str]) -> Problem {
    let problem = Problem::new(format!("unknown {what} `{}`", shortened(word)));
    match nearest(word, known) {
        Some(near) => problem.label(format!("did you mean `{near}`?")),
        None => problem.help(format!("choose from {}", list_of(known))),
    }
}

/// "`a`, `b` and `c`".
pub(crate) fn list_of(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => format!("`{one}`"),
        [most @ .., last] => {
            let most: Vec<String> = most.iter().map(|word| format!("`{word}`")).collect();
            format!("{} and `{last}`", most.join(", "))
        }
    }
}
