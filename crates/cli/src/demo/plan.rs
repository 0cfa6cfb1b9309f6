//! Sizes, rates and durations of a demo.

use std::time::Duration;

use dormouse_reactor::descriptors;

/// Fewer connections show nothing: a hundred of them only warm up.
pub(super) const CONNECTIONS_MIN: u32 = 200;
/// One address has some 28,000 ports to one target.
pub(super) const CONNECTIONS_MAX: u32 = 20_000;
/// Processes that hold connections.
pub(super) const WORKERS: u32 = 2;

/// Descriptors a process needs besides those of its connections.
const DESCRIPTORS_RESERVED: u64 = 200;

/// Sizes, rates and times of one demo.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// TLS connections.
    pub(super) connections: u32,
    /// Connections that are open when memory is read for the first time, so that what a server
    /// needs once does not count as the cost of a connection.
    pub(super) warm_up: u32,
    /// Connections opened per second, at most.
    pub(super) open_per_s: f64,
    /// Handshakes in flight at most.
    pub(super) handshakes_max: u32,
    /// How long nothing happens before memory is read.
    pub(super) settle: Duration,
    /// How long connections are left at rest.
    pub(super) rest: Duration,
    /// How long random connections are woken.
    pub(super) wake: Duration,
    /// Connections woken per second.
    pub(super) wake_per_s: f64,
    /// How long connections are woken at a higher rate before the kill.
    pub(super) before_kill: Duration,
    /// Connections woken per second around the kill.
    pub(super) storm_per_s: f64,
    /// Time over which every connection is woken after the kill.
    pub(super) ask: Duration,
    /// How long the last picture of a scene is shown.
    pub(super) linger: Duration,
    /// A note for the viewer before the demo begins.
    pub(super) note: Option<String>,
}

impl Plan {
    /// Returns a plan for the requested number of connections, or for as many as the descriptor
    /// limit allows.
    pub(super) fn new(requested: Option<u32>, quick: bool) -> Result<Plan, String> {
        let requested = requested.unwrap_or(if quick { 500 } else { 5_000 });
        let limits = descriptors::raise_limit()
            .map_err(|error| format!("cannot raise the limit on descriptors: {error}"))?;
        let (connections, note) = within(requested, limits.hard)?;
        let plan = Plan {
            connections,
            warm_up: 100,
            open_per_s: 1_200.0,
            handshakes_max: 48,
            settle: Duration::from_millis(750),
            rest: Duration::from_millis(2_500),
            wake: Duration::from_secs(4),
            wake_per_s: f64::from(connections) * 0.2,
            before_kill: Duration::from_millis(1_500),
            storm_per_s: f64::from(connections) * 0.4,
            ask: Duration::from_secs(2),
            linger: Duration::from_millis(1_500),
            note,
        };
        Ok(if quick { plan.quick() } else { plan })
    }

    fn quick(self) -> Plan {
        Plan {
            settle: Duration::from_millis(600),
            rest: Duration::from_millis(800),
            wake: Duration::from_millis(1_500),
            wake_per_s: f64::from(self.connections),
            before_kill: Duration::from_millis(500),
            storm_per_s: f64::from(self.connections) * 2.0,
            ask: Duration::from_millis(1_000),
            linger: Duration::from_millis(300),
            ..self
        }
    }
}

/// Returns the number of connections that fits the limit, and why it is smaller than requested.
///
/// A worker has two descriptors per connection, and may happen to accept nearly all of them.
fn within(requested: u32, limit: u64) -> Result<(u32, Option<String>), String> {
    let room = limit.saturating_sub(DESCRIPTORS_RESERVED) / 2;
    if room >= u64::from(requested) {
        return Ok((requested, None));
    }
    let needed = u64::from(requested) * 2 + DESCRIPTORS_RESERVED;
    match u32::try_from(room) {
        Ok(room) if room >= CONNECTIONS_MIN => {
            let note = format!(
                "{room} connections instead of {requested}: a process may have {limit} descriptors, but {needed} are \
                 needed (two per connection). Raise the limit with: ulimit -Hn {needed}"
            );
            Ok((room, Some(note)))
        }
        _ => Err(format!(
            "a process may have only {limit} descriptors, and the smallest demo needs {}. Raise the limit with: ulimit -Hn {needed}",
            u64::from(CONNECTIONS_MIN) * 2 + DESCRIPTORS_RESERVED
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn respects_and_explains_the_descriptor_limit() {
        assert_eq!(within(5_000, 20_000), Ok((5_000, None)));
        let (connections, note) = within(5_000, 4_096).expect("a smaller demo");
        assert_eq!(connections, 1_948);
        let note = note.expect("a note about the smaller number");
        assert!(note.contains("ulimit") && note.contains("10200"), "{note}");
        let refused = within(5_000, 512).expect_err("a limit too low for the demo");
        assert!(refused.contains("512"), "{refused}");
    }
}
