//! State of a worker during an upgrade, at whose end another binary continues its connections.

/// Stage of an upgrade.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Upgrade {
    /// No upgrade.
    #[default]
    No,
    /// The worker does not accept; handshakes have until this time.
    Quieting { until_ms: u64 },
    /// The worker has reported to main that no handshake is in flight, or that their time is up.
    Quiet,
    /// The worker ends after this turn.
    HandedOver,
}

impl Upgrade {
    /// Whether an upgrade is in progress. The worker begins nothing new then.
    pub(crate) fn is_under_way(self) -> bool {
        self != Upgrade::No
    }

    /// Deadline of the handshakes.
    pub(crate) fn next_deadline_ms(self) -> Option<u64> {
        match self {
            Upgrade::Quieting { until_ms } => Some(until_ms),
            Upgrade::No | Upgrade::Quiet | Upgrade::HandedOver => None,
        }
    }

    /// Returns `true` once, when the worker has become quiet and must report it. `handshakes`: number of
    /// handshakes in flight; `is_behind`: deferred work is left.
    pub(crate) fn becomes_quiet(
        &mut self,
        handshakes: usize,
        is_behind: bool,
        now_ms: u64,
    ) -> bool {
        let Upgrade::Quieting { until_ms } = *self else {
            return false;
        };
        let is_quiet = (handshakes == 0 || until_ms <= now_ms) && !is_behind;
        if is_quiet {
            *self = Upgrade::Quiet;
        }
        is_quiet
    }
}
