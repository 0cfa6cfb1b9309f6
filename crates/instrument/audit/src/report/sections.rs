//! All figures of an audit, by section, in the words that the text report and the page share.

use crate::model::figures::{Premises, Row, missing, row};
use crate::model::words::{bytes, whole};
use crate::model::{
    Audit, Figures, Measured, ParallelHandshakes, RecordFigures, ServerFigures, SilentClients,
};
use dormouse_census::{CensusReport, SizeClass};

/// A section: its title, and its figures.
type Section = (&'static str, Vec<Row>);

/// Returns all figures of an audit.
pub(super) fn sections(audit: &Audit) -> Vec<Section> {
    let premises = audit.premises();
    let server = audit
        .server
        .as_ref()
        .map(|server| of_server(server, premises));
    let client = audit
        .client
        .as_ref()
        .map(|client| ("the client", client.rows(premises)));
    server.into_iter().flatten().chain(client).collect()
}

fn of_server(server: &ServerFigures, premises: Premises) -> [Section; 9] {
    let parallel = match &server.cpu {
        Measured::Value(cpu) => cpu.parallel.clone(),
        Measured::NotMeasured(why) => Measured::not(why.clone()),
    };
    let mut at_a_time = known(
        &server.silent_clients,
        SilentClients::title("tried"),
        |it| it.rows(premises),
    );
    at_a_time.extend(known(
        &parallel,
        ParallelHandshakes::title("alone_per_s"),
        |it| it.rows(premises),
    ));
    [
        (
            "what is offered",
            known(&server.offer, "what is offered", |it| it.rows(premises)),
        ),
        ("resumption", server.resumption_rows()),
        ("flights", server.flight_rows()),
        (
            "records",
            known(&server.records, RecordFigures::title("answers"), |it| {
                it.rows(premises)
            }),
        ),
        ("handshakes at a time", at_a_time),
        (
            "memory",
            known(&server.memory, "memory", |it| it.rows(premises)),
        ),
        (
            "where it is",
            known(&server.census, "a census of the heap", census),
        ),
        (
            "CPU",
            known(&server.cpu, "CPU time", |it| it.rows(premises)),
        ),
        (
            "first connection",
            known(&server.first, "the first connection", |it| {
                it.rows(premises)
            }),
        ),
    ]
}

/// The rows of figures, or the reason why there are none.
fn known<T>(figures: &Measured<T>, what: &str, rows: impl Fn(&T) -> Vec<Row>) -> Vec<Row> {
    match figures {
        Measured::Value(figures) => rows(figures),
        Measured::NotMeasured(why) => vec![missing(what, why)],
    }
}

/// Maximum number of block sizes and classes, and of sizes that grew over the rounds.
const CLASSES_MAX: usize = 6;
const GROWN_MAX: usize = 3;
/// Number of added blocks from which a size counts as grown.
const GROWN_MIN: u64 = 100;
/// Bytes per connection below which stacks are not worth a row.
const STACKS_MIN: f64 = 16.0;

fn census(census: &CensusReport) -> Vec<Row> {
    let mut rows = vec![row("method", census.method.clone())];
    if census.blocks_per_connection > 0.0 && census.heap_bytes_per_connection > 0.0 {
        let heap = bytes(census.heap_bytes_per_connection);
        let value = format!("{heap} in {:.1} blocks", census.blocks_per_connection);
        rows.push(row("blocks per connection", value));
    }
    rows.extend(census.classes.iter().take(CLASSES_MAX).map(of_blocks));
    let has_grown = |(_, had, has): &&(u64, u64, u64)| has.saturating_sub(*had) >= GROWN_MIN;
    rows.extend(
        census
            .grown
            .iter()
            .take(GROWN_MAX)
            .filter(has_grown)
            .map(|(size, had, has)| {
                row(
                    format!("blocks of {} bytes, over the rounds", whole(*size)),
                    format!("{had} → {has}"),
                )
            }),
    );
    if census.stack_bytes_per_connection.abs() >= STACKS_MIN {
        rows.push(row(
            "stacks per connection",
            bytes(census.stack_bytes_per_connection),
        ));
    }
    let after_close = |of: &std::collections::BTreeMap<String, u64>| {
        of.get("after_close").map(|it| bytes(*it as f64))
    };
    if let (Some(free), Some(pages)) = (
        after_close(&census.free_bytes),
        after_close(&census.returnable_bytes),
    ) {
        let value = format!("{free}, of which {pages} are whole pages that malloc_trim returns");
        rows.push(row("free after all have closed", value));
    }
    rows.extend(census.managed.iter().take(CLASSES_MAX).map(|class| {
        let value = format!(
            "{:.2} per connection, {}; {} objects, {} in all",
            class.per_connection,
            bytes(class.bytes_per_connection),
            class.instances,
            bytes(class.bytes as f64)
        );
        row(format!("class {}", class.class), value)
    }));
    rows.extend(census.pages.iter().map(|pages| {
        let value = format!(
            "of {2} sampled pages {0:.0} % are zero and {1:.0} % are duplicates; {3:.0} % of their bytes are zero",
            100.0 * pages.zero_share,
            100.0 * pages.repeated_share,
            pages.looked_at,
            100.0 * pages.zero_bytes_share
        );
        row("pages", value)
    }));
    rows.extend(census.notes.iter().map(|note| row("note", note.clone())));
    rows
}

fn of_blocks(class: &SizeClass) -> Row {
    // Only a resident part that is clearly below the whole is worth mentioning.
    let part = class
        .resident_per_connection
        .filter(|part| *part < 0.9 * class.bytes_per_connection);
    let part = part.map_or_else(String::new, |part| {
        format!(" ({} of it resident)", bytes(part))
    });
    let value = format!(
        "{:.2} per connection, {}{part}, {:.0} % zeros",
        class.per_connection,
        bytes(class.bytes_per_connection),
        100.0 * class.zero_share
    );
    let whose = match &*class.heap {
        "CPython" => "CPython's ",
        "Go" => "Go's ",
        _ => "",
    };
    row(
        format!("{whose}blocks of {} bytes", whole(class.size_bytes)),
        value,
    )
}
