//! How a worker ends so that another binary can go on with its connections.

/// How far a worker is with passing its connections on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Upgrade {
    /// It is not asked to.
    #[default]
    No,
    /// Nothing more is accepted; handshakes may end until then, on the clock of the loop.
    Quieting { until_ms: u64 },
    /// Main was told that no handshake is in flight any more, or that their time is up.
    Quiet,
    /// The turn ends, and then the worker.
    HandedOver,
}

impl Upgrade {
    /// Is the worker about to pass its connections on? Then nothing new is begun.
    pub(crate) fn is_under_way(self) -> bool {
        self != Upgrade::No
    }

    /// When handshakes have had their time.
    pub(crate) fn next_deadline_ms(self) -> Option<u64> {
        match self {
            Upgrade::Quieting { until_ms } => Some(until_ms),
            Upgrade::No | Upgrade::Quiet | Upgrade::HandedOver => None,
        }
    }

    /// Is main to be told that the worker is quiet? `handshakes` are in flight, with clients and
    /// servers; `is_behind`: sockets are still to be verified, or certificates to be parsed.
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
