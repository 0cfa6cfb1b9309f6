//! The lab's figures for the cost of a connection in each runtime: with default settings and with the best known ones.
//!
//! One limit for all would blame a program for its language. A server at its runtime's usual cost gets an
//! informational finding with the setting that helps; a cost far above that is a fault.

use super::finding::Severity;
use super::quoted;
use super::units::bytes;
use crate::software::SoftwareKind;

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

/// Bytes per idle connection of one runtime.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Baseline {
    row: &'static str,
    usual: f64,
    best: f64,
}

impl Baseline {
    /// Returns the lab's figures for this software.
    pub(super) fn of(kind: SoftwareKind, asyncio: bool) -> Option<Self> {
        let row = match kind {
            SoftwareKind::Python if asyncio => "compare.asyncio",
            SoftwareKind::Twisted => "compare.twisted",
            SoftwareKind::NettyJdk => "compare.netty-jdk",
            SoftwareKind::NettyTcnative => "compare.netty-tcnative",
            SoftwareKind::Node => "compare.node",
            SoftwareKind::Go => "compare.go",
            SoftwareKind::Rustls => "compare.tokio-rustls",
            SoftwareKind::Nginx => "compare.nginx-http",
            SoftwareKind::Haproxy => "compare.haproxy",
            SoftwareKind::Apache => "compare.apache",
            SoftwareKind::Hitch => "compare.hitch",
            SoftwareKind::Stunnel => "compare.stunnel",
            _ => return None,
        };
        let (usual, best) = quoted::byte_figures(row)?;
        Some(Self { row, usual, best })
    }

    /// Returns the severity of a cost per connection; `None`: no finding.
    pub(super) fn judge(of: Option<Self>, per_connection: f64) -> Option<Severity> {
        let Some(known) = of else {
            let level = UNKNOWN.iter().find(|(limit, _)| per_connection > *limit);
            return level.map(|level| level.1);
        };
        if per_connection <= FRUGAL {
            return None;
        }
        let times = per_connection / known.best.max(FRUGAL);
        let over = OVER_BEST.iter().find(|(limit, _)| times > *limit);
        match over {
            Some((_, severity)) => Some(*severity),
            None if known.is_usual(per_connection) => Some(Severity::Info),
            None => Some(Severity::Low),
        }
    }

    /// Whether this cost is usual for the runtime with default settings.
    pub(super) fn is_usual(&self, per_connection: f64) -> bool {
        per_connection <= USUAL * self.usual
    }

    /// Describes both figures in words.
    pub(super) fn words(&self) -> String {
        let row = quoted::filled(&format!("{{{{{}}}}}", self.row));
        if self.usual == self.best {
            return format!("in the lab {row}");
        }
        let saved = bytes(self.usual - self.best);
        format!("in the lab {row}, with default → best known settings, which save {saved}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_cost_of_a_runtime_is_no_fault() {
        let go = Baseline::of(SoftwareKind::Go, false).unwrap();
        assert_eq!(Baseline::judge(Some(go), go.usual), Some(Severity::Info));
        assert_eq!(
            Baseline::judge(Some(go), 6.0 * go.best),
            Some(Severity::Medium)
        );
        assert_eq!(
            Baseline::judge(Some(go), 20.0 * go.best),
            Some(Severity::High)
        );
        assert_eq!(Baseline::judge(Some(go), 1_000.0), None);
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
            let known = Baseline::of(kind, true).unwrap();
            assert!(
                known.usual > 1_000.0 && known.best <= known.usual * 1.1,
                "{known:?}"
            );
        }
        assert_eq!(Baseline::of(SoftwareKind::Unknown, false), None);
        assert_eq!(Baseline::judge(None, 30_000.0), Some(Severity::Medium));
    }
}
