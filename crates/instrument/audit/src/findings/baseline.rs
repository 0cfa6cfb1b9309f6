//! The lab's figures for the cost of a connection in each runtime: with default settings and with the best known ones.
//!
//! One limit for all would blame a program for its language. A server at its runtime's usual cost gets an
//! informational finding with the setting that helps; a cost far above that is a fault.

use super::quoted;
use super::units::bytes;
use crate::catalogue::Severity;
use crate::model::MemoryFigures;
use crate::software::LabServer;

/// Bytes per idle connection below which there is no finding.
const FRUGAL: f64 = 4_000.0;
/// Limits for software that the lab has not measured.
const UNKNOWN: [(f64, Severity); 3] = [
    (64_000.0, Severity::High),
    (24_000.0, Severity::Medium),
    (FRUGAL, Severity::Low),
];
/// Factor by which a server may exceed its runtime's cost with default settings, because programs differ.
const USUAL: f64 = 1.3;
/// Cost as a multiple of the cost with the best known settings, from which a finding has this severity.
const OVER_BEST: [(f64, Severity); 2] = [(12.0, Severity::High), (4.0, Severity::Medium)];

/// Rows of the lab's table: growth of resident memory, by `dormouse bench hold`, and bytes in use, by an audit.
const RESIDENT: &str = "compare";
const USED: &str = "used";

/// Bytes per idle connection of one runtime.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Baseline {
    peer: LabServer,
    resident: LabFigures,
    /// Bytes in use, if the lab has counted them.
    used: Option<LabFigures>,
}

/// Bytes per connection with default settings, and with the best known ones.
#[derive(Clone, Copy, PartialEq, Debug)]
struct LabFigures {
    usual: f64,
    best: f64,
}

impl LabFigures {
    fn of(figure: &str, peer: LabServer) -> Option<Self> {
        let (usual, best) = quoted::byte_figures(&format!("{figure}.{}", peer.name))?;
        Some(Self { usual, best })
    }
}

/// The cost of a connection, and the lab's figures for the same kind of bytes.
#[derive(Clone, Debug)]
pub(super) struct ComparedCost {
    bytes: f64,
    lab: LabFigures,
    row: String,
    is_echo: bool,
}

impl Baseline {
    /// Returns the figures of a server of the lab.
    pub(super) fn of(peer: LabServer) -> Option<Self> {
        Some(Self {
            peer,
            resident: LabFigures::of(RESIDENT, peer)?,
            used: LabFigures::of(USED, peer),
        })
    }

    /// Compares like with like: the growth of resident memory in a fresh heap, as the lab measured it, otherwise the bytes
    /// in use. In a heap that was larger before, a buffer lies on pages that were touched by earlier connections, so
    /// resident memory says little: it is the last resort.
    pub(super) fn compare(&self, memory: &MemoryFigures) -> ComparedCost {
        let used = memory.used_after_handshake_bytes.value();
        let (bytes, lab, figure) = match (memory.resident_of_fresh_heap(), used.zip(self.used)) {
            (None, Some((used, lab))) => (*used, lab, USED),
            (fresh, _) => {
                let resident = fresh.unwrap_or_else(|| memory.touched_bytes());
                (resident, self.resident, RESIDENT)
            }
        };
        ComparedCost {
            bytes,
            lab,
            row: format!("{figure}.{}", self.peer.name),
            is_echo: self.peer.is_echo,
        }
    }
}

impl ComparedCost {
    /// Returns the severity of this cost; `None`: no finding.
    pub(super) fn judge(&self) -> Option<Severity> {
        if self.bytes <= FRUGAL {
            return None;
        }
        if self.is_usual() {
            return Some(Severity::Info);
        }
        let times = self.bytes / self.lab.best.max(FRUGAL);
        Some(Severity::above(&OVER_BEST, times).unwrap_or(Severity::Low))
    }

    /// Whether this cost is usual for the runtime with default settings.
    pub(super) fn is_usual(&self) -> bool {
        self.bytes <= USUAL * self.lab.usual
    }

    /// Whether the cost is beyond the usual one, and would not be without these bytes.
    pub(super) fn is_unusual_by(&self, bytes: f64) -> bool {
        let without = Self {
            bytes: self.bytes - bytes,
            ..self.clone()
        };
        !self.is_usual() && without.is_usual()
    }

    /// Whether these figures say what buffers a server needs: an echo server needs fewer than one of HTTP.
    pub(super) fn tells_buffers(&self, speaks_http: bool) -> bool {
        !(self.is_echo && speaks_http)
    }

    /// Describes the lab's figures in words.
    pub(super) fn words(&self) -> String {
        let row = quoted::filled(&format!("{{{{{}}}}}", self.row));
        let row = if self.is_echo {
            format!("an echo server on {row}")
        } else {
            row
        };
        let saved = self.lab.usual - self.lab.best;
        if saved <= 0.0 {
            return format!("in the lab {row}");
        }
        let saved = bytes(saved);
        format!("in the lab {row}, with default → best known settings, which save {saved}")
    }
}

/// Returns the severity of a cost in software that the lab has not measured; `None`: no finding.
pub(super) fn judge_unknown(per_connection: f64) -> Option<Severity> {
    Severity::above(&UNKNOWN, per_connection)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Measured;
    use crate::software::{Facts, SoftwareKind};

    fn baseline(kind: SoftwareKind) -> Option<Baseline> {
        let facts = Facts {
            asyncio: true,
            ..Facts::default()
        };
        Baseline::of((kind.program().lab)(&facts)?)
    }

    #[test]
    fn the_usual_cost_of_a_runtime_is_no_fault() {
        let go = baseline(SoftwareKind::Go).unwrap();
        let judged = |bytes| {
            let memory = MemoryFigures {
                after_handshake_bytes: Measured::Value(bytes),
                ..MemoryFigures::default()
            };
            go.compare(&memory).judge()
        };
        assert_eq!(judged(go.resident.usual), Some(Severity::Info));
        assert_eq!(judged(6.0 * go.resident.best), Some(Severity::Medium));
        assert_eq!(judged(20.0 * go.resident.best), Some(Severity::High));
        assert_eq!(judged(1_000.0), None);
        // Recorded: uvicorn, at the cost of asyncio as it comes, which is eight times the best.
        let asyncio = baseline(SoftwareKind::Python).unwrap();
        let uvicorn = MemoryFigures {
            after_handshake_bytes: Measured::Value(asyncio.resident.usual),
            ..MemoryFigures::default()
        };
        assert!(asyncio.resident.usual > 4.0 * asyncio.resident.best);
        assert_eq!(asyncio.compare(&uvicorn).judge(), Some(Severity::Info));
    }

    /// Recorded: Node.js allocates 64 kB for each connection and fills a few kB of it. In a heap that was larger before,
    /// these lie on pages that earlier connections touched.
    #[test]
    fn a_used_heap_is_compared_by_the_bytes_in_use() {
        let node = Baseline {
            peer: LabServer {
                name: "node",
                is_echo: true,
            },
            resident: LabFigures {
                usual: 30_226.0,
                best: 30_264.0,
            },
            used: Some(LabFigures {
                usual: 87_000.0,
                best: 87_000.0,
            }),
        };
        let memory = MemoryFigures {
            used_bytes: Measured::Value(103_405.0),
            used_after_handshake_bytes: Measured::Value(87_128.0),
            touched_after_handshake_bytes: Measured::Value(51_055.0),
            ..MemoryFigures::default()
        };
        let compared = node.compare(&memory);
        assert!(compared.is_usual() && !compared.is_unusual_by(16_400.0));
        // With a list of 140 authorities for each connection, which its buffers do not explain.
        let authorities = ComparedCost {
            bytes: 206_657.0,
            ..compared.clone()
        };
        assert!(!authorities.is_usual() && !authorities.is_unusual_by(16_400.0));
        assert!(authorities.is_unusual_by(120_000.0));
        assert_eq!(compared.judge(), Some(Severity::Info));
        let unknown = Baseline { used: None, ..node };
        assert!(!unknown.compare(&memory).is_usual());
    }

    #[test]
    fn every_runtime_of_the_lab_has_figures() {
        for kind in [
            SoftwareKind::Python,
            SoftwareKind::Node,
            SoftwareKind::Nginx,
            SoftwareKind::Hitch,
            SoftwareKind::Stunnel,
        ] {
            let known = baseline(kind).unwrap();
            for lab in std::iter::once(known.resident).chain(known.used) {
                assert!(
                    lab.usual > 1_000.0 && lab.best <= lab.usual * 1.1,
                    "{known:?}"
                );
            }
        }
        assert_eq!(baseline(SoftwareKind::Unknown), None);
        assert_eq!(judge_unknown(30_000.0), Some(Severity::Medium));
    }
}
