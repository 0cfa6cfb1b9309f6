//! The answer to a reload: besides the edition, everything that its caller may not expect. Certificates that files no longer
//! have stay in use, and changes by `dormouse ctl` end.

use crate::material::Changes;

/// Maximum number of items of one kind.
const ITEMS_MAX: usize = 10;
/// Maximum length of an item: paths may be long, and the answer fits into a message.
const CHARACTERS_MAX: usize = 500;

/// Logs what the caller of a reload is told, because a signal has no answer. What was kept is a finding of the reload, and has
/// a line of its own.
pub(crate) fn log(changes: &Changes, undone: &[String]) {
    if !undone.is_empty() {
        let undone = undone.join("; ");
        tracing::warn!(undone, "reload ended changes made by dormouse ctl");
    }
    changes.log_lost();
}

/// Returns the answer to a successful reload, one fact per line.
pub(crate) fn words(
    edition: u64,
    waits_for_restart: &[String],
    changes: &Changes,
    undone: &[String],
) -> String {
    let mut words = format!("configuration reloaded, edition {edition}");
    if !waits_for_restart.is_empty() {
        words.push_str("; changed options that need a restart: ");
        words.push_str(&waits_for_restart.join(", "));
    }
    for (subject, items) in [
        ("kept the certificate in use", &changes.kept[..]),
        ("certificate removed", &changes.removed),
        ("no certificate any more for", &changes.lost),
        ("ended by this reload", undone),
    ] {
        for item in items.iter().take(ITEMS_MAX) {
            let first = item.lines().next().unwrap_or_default();
            let first: String = first.chars().take(CHARACTERS_MAX).collect();
            words.push_str(&format!("\n{subject}: {first}"));
        }
        if let Some(more @ 1..) = items.len().checked_sub(ITEMS_MAX) {
            words.push_str(&format!("\n{subject}: {more} more"));
        }
    }
    words
}
