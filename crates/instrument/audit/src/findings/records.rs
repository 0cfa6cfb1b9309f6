//! Findings about the records of a server's answers.

use super::subject::AuditSubject;
use super::units::{counted, percent, whole};
use crate::catalogue::{FindingId, Severity};
use crate::model::Finding;
use crate::model::RecordFigures;

/// Records per answer beyond the necessary ones, from which there is a finding: header, body and end of an answer are
/// usually written one by one.
const EXTRA_RECORDS: f64 = 4.0;
/// Bytes of these records' headers and tags, as a share of the content.
const OVERHEAD: [(f64, Severity); 3] = [
    (1.0, Severity::High),
    (0.2, Severity::Medium),
    (0.1, Severity::Low),
];
/// Padding per record that takes a segment of its own. Less padding hides the length of short answers at little cost
/// (RFC 8446, appendix E.3).
const SEGMENT: f64 = 1_460.0;

pub(super) fn judge(subject: &AuditSubject, records: &RecordFigures, findings: &mut Vec<Finding>) {
    findings.extend(small(subject, records));
    findings.extend(padded(subject, records));
}

fn small(subject: &AuditSubject, figures: &RecordFigures) -> Option<Finding> {
    let extra = figures.extra_records();
    if (extra as f64) < EXTRA_RECORDS * figures.answers as f64 {
        return None;
    }
    let content = figures.content_bytes.max(1) as f64;
    let severity = Severity::above(&OVERHEAD, (extra * figures.least_bytes) as f64 / content)?;
    let least = figures.answers * figures.least_bytes;
    let found = subject.finding(FindingId::RecordsSmall, severity, measured(figures));
    let found = found.with("bytes", whole(content / figures.records.max(1) as f64));
    let found = found
        .with("answers", figures.answers)
        .with("least", counted(least));
    Some(found.with("share", percent(least as f64 / content)))
}

fn padded(subject: &AuditSubject, figures: &RecordFigures) -> Option<Finding> {
    let each = figures.padding_bytes() as f64 / figures.records.max(1) as f64;
    if each <= SEGMENT {
        return None;
    }
    let measured = format!(
        "{}, {} of them padding",
        measured(figures),
        counted(figures.padding_bytes())
    );
    let found = subject.finding(FindingId::RecordsPadded, Severity::Medium, measured);
    Some(
        found
            .with("bytes", whole(each))
            .with("segment", whole(SEGMENT)),
    )
}

fn measured(figures: &RecordFigures) -> String {
    let kilobytes = figures.content_bytes.max(1) as f64 / 1e3;
    let overhead = figures.overhead_bytes() as f64;
    format!(
        "{} answers with {} bytes of data came in {} records, {} per kB; {} bytes of overhead, {} per kB",
        counted(figures.answers),
        counted(figures.content_bytes),
        counted(figures.records),
        whole(figures.records as f64 / kilobytes),
        whole(overhead),
        whole(overhead / kilobytes)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Audit;

    /// Nine answers of TLS 1.3, eight of 6 bytes and one of 3,996, in this many records with this much padding each.
    fn judged(records: u64, padding: u64) -> Vec<(FindingId, Severity)> {
        let content_bytes = 8 * 6 + 3_996;
        let figures = RecordFigures {
            answers: 9,
            content_bytes,
            records,
            wire_bytes: content_bytes + records * (22 + padding),
            least_bytes: 22,
        };
        let subject = AuditSubject::new(&Audit::begin("server", "s", "127.0.0.1:1"));
        let mut findings = Vec::new();
        judge(&subject, &figures, &mut findings);
        findings.iter().map(|it| (it.id, it.severity)).collect()
    }

    #[test]
    fn answers_in_pieces_are_named_by_their_cost() {
        assert_eq!(judged(9, 0), []);
        // A reader with a buffer of 1 kB.
        assert_eq!(judged(12, 0), []);
        // Header, body and end of each.
        assert_eq!(judged(27, 0), []);
        let small = |severity| vec![(FindingId::RecordsSmall, severity)];
        assert_eq!(judged(4_044, 0), small(Severity::High));
        assert_eq!(judged(258, 0), small(Severity::High));
        assert_eq!(judged(73, 0), small(Severity::Medium));
    }

    #[test]
    fn padding_is_named_if_it_takes_packets() {
        assert_eq!(
            judged(9, 3_600),
            [(FindingId::RecordsPadded, Severity::Medium)]
        );
        assert_eq!(judged(9, 64), []);
        assert_eq!(judged(9, 1_024), []);
    }

    /// A long download in records of the size of a segment, as Go and HAProxy send at first.
    #[test]
    fn records_of_a_segment_are_no_finding() {
        let figures = RecordFigures {
            answers: 1,
            content_bytes: 200_000,
            records: 150,
            wire_bytes: 200_000 + 150 * 22,
            least_bytes: 22,
        };
        let subject = AuditSubject::new(&Audit::begin("server", "s", "127.0.0.1:1"));
        let mut findings = Vec::new();
        judge(&subject, &figures, &mut findings);
        assert!(findings.is_empty(), "{findings:?}");
    }
}
