//! Limits of frontends and binds.

use super::syntax::HaproxySection;
use crate::origin::Origins;
use crate::section::Section;

const CLOSED_NOT_QUEUED: &str = "converted, but each route of a frontend has this limit for itself, and further \
    connections are closed here instead of queued";

/// Converts the limits of a frontend.
pub(super) fn limits(part: &HaproxySection, section: &mut Section) {
    let found = [
        (part.find(&["maxconn"]), 1, "route_max_connections"),
        (
            part.find(&["rate-limit", "sessions"]),
            2,
            "route_handshakes_per_second",
        ),
    ];
    for (line, at, option) in found {
        if let Some(line) = line.filter(|_| part.kind != "backend") {
            limit(option, line.word(at), line.origin, section);
        }
    }
}

/// Sets a limit of a route.
pub(super) fn limit(
    option: &'static str,
    value: &str,
    from: impl Into<Origins>,
    section: &mut Section,
) {
    let from = from.into();
    section.lowest(option, value, &from);
    if section.has(option) {
        section.left_out(from, CLOSED_NOT_QUEUED);
    }
}
