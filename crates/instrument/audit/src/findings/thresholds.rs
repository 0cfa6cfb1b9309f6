//! Limits for continuous integration, and which of them an audit breaches.

use crate::catalogue::Severity;
use crate::model::{Audit, Measured, Resumption, ServerFigures};

/// Limits for continuous integration.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Thresholds {
    /// Findings of this severity or above fail the audit; `None`: no finding does.
    pub fail_on: Option<Severity>,
    /// Maximum bytes per idle connection.
    pub max_bytes_per_connection: Option<f64>,
    /// Minimum share of connections that resume, from 0 to 1.
    pub min_resumed: Option<f64>,
}

impl Thresholds {
    /// Returns the breached limits in words, and the limits that could not be judged.
    pub fn breaches(&self, audit: &Audit) -> (Vec<String>, Vec<String>) {
        let (mut breached, mut unknown) = (Vec::new(), Vec::new());
        if let Some(severity) = self.fail_on {
            let count = audit
                .findings
                .iter()
                .filter(|finding| finding.severity >= severity)
                .count();
            if count > 0 {
                let are = if count == 1 {
                    "1 finding is".to_owned()
                } else {
                    format!("{count} findings are")
                };
                breached.push(format!("{are} {} or above", severity.name()));
            }
        }
        if let Some(most) = self.max_bytes_per_connection {
            match bytes_per_connection(audit) {
                Measured::Value(bytes) if bytes > most => {
                    breached.push(format!(
                        "{bytes:.0} bytes per idle connection; the limit is {most:.0} (--max-bytes-per-connection)"
                    ));
                }
                Measured::Value(_) => {}
                Measured::NotMeasured(why) => unknown.push(format!("bytes per connection: {why}")),
            }
        }
        if let Some(least) = self.min_resumed {
            match resumed_share(audit) {
                Measured::Value(share) if share < least => breached.push(format!(
                    "{:.0} % of the connections resumed; the minimum is {:.0} % (--min-resumed)",
                    100.0 * share,
                    100.0 * least
                )),
                Measured::Value(_) => {}
                Measured::NotMeasured(why) => unknown.push(format!("share resumed: {why}")),
            }
        }
        (breached, unknown)
    }
}

/// Bytes per idle connection, after an exchange and an idle period if that was measured.
pub(crate) fn bytes_per_connection(audit: &Audit) -> Measured<f64> {
    let Some(figures) = &audit.server else {
        return Measured::not("no server was audited");
    };
    match &figures.memory {
        Measured::NotMeasured(why) => Measured::not(why.clone()),
        Measured::Value(memory) => memory.per_connection(),
    }
}

/// The resumed share. For a server, the minimum over versions and addresses; for a client, the share of
/// all connections but the first.
fn resumed_share(audit: &Audit) -> Measured<f64> {
    if let Some(client) = &audit.client {
        return match client.connections.checked_sub(1) {
            None | Some(0) => Measured::not("the client made fewer than two connections"),
            Some(later) => Measured::Value(client.resumed as f64 / later as f64),
        };
    }
    let Some(figures) = &audit.server else {
        return Measured::not("nothing was audited");
    };
    let best = Resumption::best_shares(&figures.resumption);
    let shares = best.into_iter().map(|(_, share)| share);
    let least = shares.chain(shared(figures)).reduce(f64::min);
    Measured::or_why(least, "no connection could offer a session")
}

/// The share of sessions that another address of the name resumed.
fn shared(figures: &ServerFigures) -> Option<f64> {
    let others = figures.addresses.value()?.iter();
    let others = others.filter(|entry| entry.from != entry.to);
    let trials: Vec<_> = others.filter_map(|entry| entry.trials.value()).collect();
    let offered: u64 = trials.iter().map(|trials| trials.offered).sum();
    let resumed: u64 = trials.iter().map(|trials| trials.resumed).sum();
    (offered > 0).then(|| resumed as f64 / offered as f64)
}
