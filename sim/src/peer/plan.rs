//! The plan of a peer.

use crate::Random;

/// How a peer ends its sending direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// By a close_notify, or a FIN without TLS.
    Close,
    /// By a FIN without close_notify.
    Truncate,
    /// By a reset.
    Reset,
    /// By a fatal alert.
    Alert,
    /// Like `Close`, but after the other peer has ended.
    Wait,
}

/// The content that a peer sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// This many bytes of its own content.
    Own(u64),
    /// The content it receives.
    Echo,
}

/// The plan of a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// The content.
    pub(crate) source: Source,
    /// How the peer ends.
    pub(crate) ending: Ending,
    /// Largest piece of content encoded at once.
    pub(crate) piece_max: usize,
    /// Most bytes sent at once.
    pub(crate) trickle_max: usize,
    /// A key update once in this many pieces; 0: never.
    pub(crate) key_update: usize,
    /// A pause once in this many reads; 0: never.
    pub(crate) pause: usize,
    /// Longest duration of a pause.
    pub(crate) pause_ms: usize,
    /// How long the peer reads nothing once the connection is established; 0: it reads.
    pub(crate) stall_us: u64,
    /// Number of lulls between pieces, in which the connection is quiet.
    pub(crate) lulls: u32,
    /// Whether the peer ends only after the other peer has ended.
    pub(crate) ends_last: bool,
}

impl Plan {
    /// A random plan. One in `abort` plans ends by an abort (0: none); own content has at most `most`
    /// bytes.
    pub(crate) fn any(random: &mut Random, is_tls: bool, abort: usize, most: u64) -> Plan {
        let total = match random.below(12) {
            0 => 0,
            1..7 => 4 + random.below(600) as u64,
            7..11 => 4 + random.below(20_000) as u64,
            _ => 4 + random.below(200_000) as u64,
        };
        let ending = match abort > 0 && random.once_in(abort) {
            false => Ending::Close,
            true if is_tls => match random.below(3) {
                0 => Ending::Truncate,
                1 => Ending::Reset,
                _ => Ending::Alert,
            },
            true => Ending::Reset,
        };
        Plan {
            source: Source::Own(total.min(most)),
            ending,
            piece_max: [200, 1_400, 16_384, 60_000][random.below(4)],
            trickle_max: [usize::MAX, usize::MAX, 3_000, 40][random.below(4)],
            key_update: [0, 0, 3, 10][random.below(4)],
            pause: [0, 0, 0, 4][random.below(4)],
            pause_ms: [3, 300, 3_000][random.below(3)],
            stall_us: 0,
            lulls: 0,
            ends_last: random.once_in(3),
        }
    }
}
