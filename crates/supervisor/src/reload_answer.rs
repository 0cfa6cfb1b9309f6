//! The answer to a reload: besides the edition, everything that its caller may not expect. Certificates that files no longer
//! have stay in use, and changes by `dormouse ctl` end.

use crate::edition::Edition;
use crate::material::Changes;
use dormouse_config::{Config, Upstream};

/// Maximum number of items of one kind.
const ITEMS_MAX: usize = 10;

/// What a reload ends of the changes that `dormouse ctl` has made.
pub(crate) struct Undone(Vec<String>);

impl Undone {
    /// Compares the running configuration with the one that follows it.
    pub(crate) fn of(edition: &Edition, next: &Config) -> Undone {
        let now = &edition.config;
        let pushed = edition.material.certificates.iter().flatten();
        let pushed = pushed.filter(|pem| pem.is_pushed);
        let mut undone: Vec<String> = pushed
            .map(|pem| format!("{} is no longer used", pem.name.replacen(':', " certificate", 1)))
            .collect();
        undone.sort();
        undone.dedup();
        let routes = next.route_names().into_iter().zip(&next.routes);
        for (name, route) in routes {
            let mut former = now.route_names().into_iter().zip(&now.routes);
            let Some((_, former)) = former.find(|(other, _)| *other == name) else {
                continue;
            };
            for upstream in &route.to {
                // A name may have other addresses now.
                let written = upstream.to_string();
                let is_same = |other: &&Upstream| other.to_string() == written;
                if let Some(former) = former.to.iter().find(is_same) {
                    undone.extend(of_backend(&name, former, upstream));
                }
            }
        }
        let (was, is) = (now.log.log_level, next.log.log_level);
        if was != is {
            undone.push(format!("the log level is {is} again, no longer {was}"));
        }
        Undone(undone)
    }
}

fn of_backend(route: &str, former: &Upstream, next: &Upstream) -> Vec<String> {
    let backend = format!("backend {} of route {route}", next.backend);
    let mut undone = Vec::new();
    if former.out && !next.out {
        undone.push(format!("{backend} is in again"));
    }
    if former.weight != next.weight {
        let (is, was) = (next.weight, former.weight);
        undone.push(format!("{backend} has the weight {is} again, no longer {was}"));
    }
    undone
}

/// Returns the answer to a successful reload, one fact per line.
pub(crate) fn words(
    edition: u64,
    waits_for_restart: &[String],
    changes: &Changes,
    Undone(undone): &Undone,
) -> String {
    let mut words = format!("configuration reloaded, edition {edition}");
    if !waits_for_restart.is_empty() {
        words.push_str("; changed options that need a restart: ");
        words.push_str(&waits_for_restart.join(", "));
    }
    let Changes {
        kept,
        removed,
        lost,
        ..
    } = changes;
    for (subject, items) in [
        ("kept the certificate in use", kept),
        ("certificate removed", removed),
        ("no certificate any more for", lost),
        ("undone", undone),
    ] {
        for item in items.iter().take(ITEMS_MAX) {
            let first = item.lines().next().unwrap_or_default();
            words.push_str(&format!("\n{subject}: {first}"));
        }
        if let Some(more @ 1..) = items.len().checked_sub(ITEMS_MAX) {
            words.push_str(&format!("\n{subject}: {more} more"));
        }
    }
    words
}
