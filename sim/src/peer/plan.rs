//! What a peer is going to do.

use crate::Random;

/// How a peer ends its sending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LastAct {
    /// Properly: close_notify, or a FIN where there is no TLS.
    End,
    /// By a FIN without close_notify.
    Cut,
    /// By a reset.
    Reset,
    /// By a fatal alert.
    Alert,
    /// It doesn't: it is the other side that ends.
    Wait,
}

/// What a peer says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Speech {
    /// So many bytes of its own.
    Own(u64),
    /// What it hears.
    Echo,
}

/// The life of a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// What it says.
    pub(crate) speech: Speech,
    /// How it ends.
    pub(crate) last: LastAct,
    /// Largest piece that it seals or sends at once.
    pub(crate) piece_max: usize,
    /// Most bytes that it puts on the wire at once.
    pub(crate) trickle_max: usize,
    /// It updates its keys once in so many pieces; 0: never.
    pub(crate) key_update: usize,
    /// It stops reading once in so many reads; 0: never.
    pub(crate) pause: usize,
    /// For how long at most.
    pub(crate) pause_ms: usize,
    /// It reads nothing for so long, once a connection is there; 0: it reads.
    pub(crate) deaf_us: u64,
    /// It ends only when it has heard the other's end.
    pub(crate) ends_last: bool,
}

impl Plan {
    /// Any plan. `abort` is how often one ends as nobody should: once in so many; `most` is what it says
    /// at most.
    pub(crate) fn any(random: &mut Random, is_tls: bool, abort: usize, most: u64) -> Plan {
        let total = match random.below(12) {
            0 => 0,
            1..7 => 4 + random.below(600) as u64,
            7..11 => 4 + random.below(20_000) as u64,
            _ => 4 + random.below(200_000) as u64,
        };
        let last = match abort > 0 && random.once_in(abort) {
            false => LastAct::End,
            true if is_tls => match random.below(3) {
                0 => LastAct::Cut,
                1 => LastAct::Reset,
                _ => LastAct::Alert,
            },
            true => LastAct::Reset,
        };
        Plan {
            speech: Speech::Own(total.min(most)),
            last,
            piece_max: [200, 1_400, 16_384, 60_000][random.below(4)],
            trickle_max: [usize::MAX, usize::MAX, 3_000, 40][random.below(4)],
            key_update: [0, 0, 3, 10][random.below(4)],
            pause: [0, 0, 0, 4][random.below(4)],
            pause_ms: [3, 300, 3_000][random.below(3)],
            deaf_us: 0,
            ends_last: random.once_in(3),
        }
    }
}
