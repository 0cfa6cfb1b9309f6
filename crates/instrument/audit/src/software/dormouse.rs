//! Dormouse itself, mostly in front of another server.

use super::program::{Program, advice, on};
use crate::catalogue::FindingId;

pub(super) const PROGRAM: Program = Program {
    causes: &[(
        FindingId::BytesPerConnection,
        "the server behind Dormouse, if it is in the same process tree",
    )],
    advice: advice! {
        IDLE_MEMORY: "Dormouse's own part is a slot ({{compare.dormouse}}). If the server behind it is in the same process tree, the rest belongs to that server: audit it alone";
        FRAGMENTATION: "the pages belong to the server behind Dormouse: audit that server alone";
        GROWTH: "if the server behind Dormouse is in the same process tree, audit that server alone";
        RESUMPTION: "set `tickets` above 0 in the configuration; several machines need the same ticket keys";
        HANDSHAKE_COST: "if the server behind Dormouse is in the same process tree, its CPU time is included: audit each alone";
    },
    ..Program::of("dormouse", |signs| signs.program("dormouse"))
};
