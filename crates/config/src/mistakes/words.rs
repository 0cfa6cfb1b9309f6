//! Words of messages: texts made fit for a line, lists, and what somebody meant to write.

use crate::mistakes::nearest::nearest;
use crate::mistakes::problem::Problem;

/// A text made fit for a line of a message.
pub(crate) fn shortened(text: &str) -> String {
    const LENGTH_MAX: usize = 80;
    dormouse_printable::line_up_to(text, LENGTH_MAX).to_string()
}

/// Says that a word is not one of those known, with the nearest of them.
pub(crate) fn unknown_word(what: &str, word: &str, known: &[&str]) -> Problem {
    let problem = Problem::new(format!("unknown {what} `{}`", shortened(word)));
    match nearest(word, known) {
        Some(near) => problem.label(format!("did you mean `{near}`?")),
        None => problem.help(format!("known are {}", list_of(known))),
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
