//! Figures that the text report and the HTML report show in the same words.

use super::rows::{Row, bytes, grows, missing, of, row};
use super::{client_rows, exchange_rows, resumption};
use crate::model::{Audit, FlightRow, Measured, Offer, ServerFigures};
use dormouse_bench::model::grouped;
use dormouse_census::{HotSpot, SizeClass};

fn us(value: f64) -> String {
    format!("{} µs", grouped(value, 0))
}

/// Returns all figures of an audit, by section.
pub(super) fn sections(audit: &Audit) -> Vec<(&'static str, Vec<Row>)> {
    let mut sections = Vec::new();
    if let Some(server) = &audit.server {
        sections.push((
            "what is offered",
            offered(&server.offer, audit.started_at_s),
        ));
        sections.push(("resumption", resumption::rows(server)));
        sections.push(("flights", flights(server)));
        sections.push(("records", exchange_rows::records(server)));
        sections.push(("handshakes at a time", exchange_rows::at_a_time(server)));
        sections.push(("memory", memory(server, audit.collects())));
        sections.push(("where it is", census(server)));
        sections.push(("CPU", cpu(server)));
        sections.push(("first connection", first(server)));
    }
    if let Some(client) = &audit.client {
        sections.push(("the client", client_rows::rows(client)));
    }
    sections
}

fn offered(offer: &Measured<Offer>, at_s: u64) -> Vec<Row> {
    let offer = match offer {
        Measured::Value(offer) => offer,
        Measured::NotMeasured(why) => return vec![missing("what is offered", why)],
    };
    let list = |names: &[String]| names.join(", ");
    let accepted: Vec<_> = offer
        .versions
        .iter()
        .filter(|(_, yes)| **yes)
        .map(|(name, _)| name.clone())
        .collect();
    let mut rows = vec![row("versions", list(&accepted))];
    for (title, names) in [
        ("suites of TLS 1.3", &offer.suites_13),
        ("suites of TLS 1.2", &offer.suites_12),
        ("groups", &offer.groups),
    ] {
        if !names.is_empty() {
            rows.push(row(title, list(names)));
        }
    }
    rows.extend(yes_or_no(offer));
    rows.extend(numbers(offer));
    for certificate in &offer.chain {
        let text = format!(
            "{}, {}, {} bytes, {}",
            certificate.subject,
            certificate.key,
            certificate.bytes,
            certificate.left_words(at_s)
        );
        rows.push(row("certificate", text));
    }
    rows.extend(
        offer
            .not_measured
            .iter()
            .map(|(what, why)| missing(what.replace('_', " "), why)),
    );
    rows
}

fn yes_or_no(offer: &Offer) -> Vec<Row> {
    let answers = [
        ("compression (DEFLATE, TLS 1.2)", offer.compression),
        ("secure renegotiation (TLS 1.2)", offer.secure_renegotiation),
        ("tickets (TLS 1.2)", offer.tickets_12),
        (
            "session ids (TLS 1.2, without tickets)",
            offer.session_ids_12,
        ),
        (
            "asks for a client certificate (TLS 1.2)",
            offer.client_certificate_asked,
        ),
    ];
    let row_of = |(title, answer): (&str, Option<bool>)| {
        Some(row(title, if answer? { "yes" } else { "no" }))
    };
    let mut rows: Vec<Row> = answers.into_iter().filter_map(row_of).collect();
    if let Some(accepted) = offer.client_renegotiation {
        let did = if accepted { "accepted" } else { "refused" };
        let answer = offer.client_renegotiation_answer.as_deref();
        rows.push(row(
            "renegotiation begun by the client (TLS 1.2)",
            format!("{did} ({})", answer.unwrap_or("no details")),
        ));
    }
    rows
}

fn numbers(offer: &Offer) -> Vec<Row> {
    let numbers = [
        ("tickets after a handshake (TLS 1.3)", offer.tickets_13, ""),
        (
            "tickets after a resumed one (TLS 1.3)",
            offer.tickets_13_resumed,
            "",
        ),
        ("lifetime of tickets", offer.ticket_lifetime_s, " s"),
        ("0-RTT data", offer.early_data_max_bytes, " bytes"),
    ];
    let rows = numbers
        .into_iter()
        .filter_map(|(title, number, unit)| Some(row(title, format!("{}{unit}", number?))));
    rows.collect()
}

fn flights(server: &ServerFigures) -> Vec<Row> {
    let words = |bytes: &[u32]| {
        let side = |index: usize| {
            if index.is_multiple_of(2) {
                "client"
            } else {
                "server"
            }
        };
        let each = bytes
            .iter()
            .enumerate()
            .map(|(index, bytes)| format!("{} {bytes}", side(index)));
        each.collect::<Vec<_>>().join(", ")
    };
    let mut rows: Vec<Row> = server
        .flights
        .iter()
        .map(|flight| {
            row(
                format!("{}, bytes", flight_title(flight)),
                words(&flight.bytes),
            )
        })
        .collect();
    if let Some(most) = server
        .flights
        .iter()
        .flat_map(|flight| flight.bytes.iter().step_by(2))
        .max()
    {
        rows.push(row("buffer that a server needs", format!("{most} bytes")));
    }
    let asked = server
        .offer
        .value()
        .and_then(|offer| offer.client_certificate_asked);
    if server
        .flights
        .iter()
        .any(|flight| flight.client_certificate)
    {
        return rows;
    }
    if asked == Some(false) {
        rows.push(missing(
            "with a client certificate",
            "the server does not ask for one",
        ));
    } else {
        rows.push(missing(
            "with a client certificate",
            "none was given; --cert and --key set one, if the server asks for it",
        ));
    }
    rows
}

/// Returns the name of a kind of handshake.
pub(super) fn flight_title(flight: &FlightRow) -> String {
    let kind = if flight.resumed { "resumed" } else { "full" };
    let shown = if flight.client_certificate {
        ", client certificate"
    } else {
        ""
    };
    format!("{}, {kind}{shown}", flight.version)
}

/// Why resident growth says less than bytes in use do.
const LOWER_LIMIT: &str = "a lower limit: connections use memory again that earlier ones left free, without growth; the most is seen after a restart";
const GARBAGE: &str = "little: it includes garbage that was not collected, and not the memory that earlier connections left free";

fn memory(server: &ServerFigures, collects: bool) -> Vec<Row> {
    let memory = match &server.memory {
        Measured::Value(memory) => memory,
        Measured::NotMeasured(why) => return vec![missing("memory", why)],
    };
    let words = |value: &f64| bytes(*value);
    let mut rows = vec![
        of("in use per idle connection", &memory.used_bytes, words),
        of("… still in use after it closed", &memory.kept_bytes, words),
    ];
    let process = memory.process_bytes();
    rows.extend(process.map(|process| row("the process of each connection", bytes(process))));
    let free = memory.free_before_bytes.map(|free| free as f64);
    rows.extend(free.map(|free| row("free heap before these connections", bytes(free))));
    if memory.is_growth_only() {
        let title = "what resident growth says";
        rows.push(row(title, if collects { GARBAGE } else { LOWER_LIMIT }));
    }
    rows.extend(
        [
            (
                "resident growth, after the handshake",
                &memory.after_handshake_bytes,
            ),
            ("… after an exchange", &memory.after_exchange_bytes),
            ("… after 16 kB each way", &memory.after_large_records_bytes),
            ("… after being idle", &memory.after_quiet_bytes),
            ("in the kernel, both ends", &memory.kernel_bytes),
            ("retained after all have closed", &memory.retained_bytes()),
        ]
        .map(|(title, value)| of(title, value, words)),
    );
    rows.extend(
        [
            ("in use over rounds of churn", &memory.growth_in_use),
            ("… of resumed connections", &memory.growth_in_use_resumed),
            (
                "… of resumed connections of TLS 1.2",
                &memory.growth_in_use_tls12,
            ),
            (
                "… of connections without a handshake",
                &memory.growth_in_use_broken,
            ),
            ("resident over rounds of churn", &memory.growth),
            ("… of resumed connections", &memory.growth_resumed),
        ]
        .map(|(title, value)| of(title, value, grows)),
    );
    rows
}

fn census(server: &ServerFigures) -> Vec<Row> {
    let census = match &server.census {
        Measured::Value(census) => census,
        Measured::NotMeasured(why) => return vec![missing("a census of the heap", why)],
    };
    let mut rows = vec![row("method", census.method.clone())];
    if census.blocks_per_connection > 0.0 && census.heap_bytes_per_connection > 0.0 {
        let value = format!(
            "{} in {:.1} blocks",
            bytes(census.heap_bytes_per_connection),
            census.blocks_per_connection
        );
        rows.push(row("blocks per connection", value));
    }
    for class in census.classes.iter().take(6) {
        let value = format!(
            "{:.2} per connection, {}{}, {:.0} % zeros",
            class.per_connection,
            bytes(class.bytes_per_connection),
            resident(class),
            100.0 * class.zero_share
        );
        let whose = match &*class.heap {
            "CPython" => "CPython's ",
            "Go" => "Go's ",
            _ => "",
        };
        let size = grouped(class.size_bytes as f64, 0);
        rows.push(row(format!("{whose}blocks of {size} bytes"), value));
    }
    for (size, had, has) in census
        .grown
        .iter()
        .take(3)
        .filter(|(_, had, has)| has.saturating_sub(*had) >= 100)
    {
        let title = format!(
            "blocks of {} bytes, over the rounds",
            grouped(*size as f64, 0)
        );
        rows.push(row(title, format!("{had} → {has}")));
    }
    if census.stack_bytes_per_connection.abs() >= 16.0 {
        rows.push(row(
            "stacks per connection",
            bytes(census.stack_bytes_per_connection),
        ));
    }
    let free = census.free_bytes.get("after_close");
    if let (Some(free), Some(whole)) = (free, census.returnable_bytes.get("after_close")) {
        let value = format!(
            "{}, of which {} are whole pages that malloc_trim returns",
            bytes(*free as f64),
            bytes(*whole as f64)
        );
        rows.push(row("free after all have closed", value));
    }
    for class in census.managed.iter().take(6) {
        let value = format!(
            "{:.2} per connection, {}; {} objects, {} in all",
            class.per_connection,
            bytes(class.bytes_per_connection),
            class.instances,
            bytes(class.bytes as f64)
        );
        rows.push(row(format!("class {}", class.class), value));
    }
    if let Some(pages) = &census.pages {
        let value = format!(
            "of {2} sampled pages {0:.0} % are zero and {1:.0} % are duplicates; {3:.0} % of their bytes are zero",
            100.0 * pages.zero_share,
            100.0 * pages.repeated_share,
            pages.looked_at,
            100.0 * pages.zero_bytes_share
        );
        rows.push(row("pages", value));
    }
    rows.extend(census.notes.iter().map(|note| row("note", note.clone())));
    rows
}

/// Describes the resident part of a class, if it is clearly below the whole.
fn resident(class: &SizeClass) -> String {
    match class.resident_per_connection {
        Some(resident) if resident < 0.9 * class.bytes_per_connection => {
            format!(" ({} of it resident)", bytes(resident))
        }
        _ => String::new(),
    }
}

fn cpu(server: &ServerFigures) -> Vec<Row> {
    let cpu = match &server.cpu {
        Measured::Value(cpu) => cpu,
        Measured::NotMeasured(why) => return vec![missing("CPU time", why)],
    };
    let r = &cpu.reference;
    let mut rows = vec![row(
        "per connection with a full handshake",
        format!(
            "{}, {} of it system",
            us(cpu.full_us),
            us(cpu.full_system_us)
        ),
    )];
    rows.extend(cpu.resumed_us.iter().map(|(version, value)| {
        of(&format!("the same resumed, {version}"), value, |value| {
            us(*value)
        })
    }));
    rows.push(row(
        "this machine needs",
        format!("{} for a signature ({}), {} for a key exchange; Dormouse's handshake takes {}, a TCP connection {}", us(r.signature_us), r.key, us(r.exchange_us), us(r.handshake_us), us(r.tcp_us)),
    ));
    rows.push(of("most of it in", &cpu.profile, |profile| {
        hot_spots(profile)
    }));
    rows.push(of("per GB echoed", &cpu.per_gigabyte_s, |seconds| {
        format!("{seconds:.2} s")
    }));
    rows.push(of(
        "per idle connection and second",
        &cpu.idle_us_per_connection_s,
        |value| format!("{value:.1} µs"),
    ));
    rows
}

fn hot_spots(profile: &[HotSpot]) -> String {
    let spot = |spot: &HotSpot| {
        let function = spot.function.as_deref();
        let function = function.map_or_else(String::new, |name| format!(" ({name})"));
        format!("{:.0} % {}{function}", 100.0 * spot.share, spot.object)
    };
    profile
        .iter()
        .take(6)
        .map(spot)
        .collect::<Vec<_>>()
        .join(", ")
}

fn first(server: &ServerFigures) -> Vec<Row> {
    let first = match &server.first {
        Measured::Value(first) => first,
        Measured::NotMeasured(why) => return vec![missing("the first connection", why)],
    };
    let words = |first: &crate::model::FirstConnection| {
        format!(
            "{:.1} ms, {:.1} ms of CPU time; later ones {:.1} ms and {:.2} ms; the process held {}",
            first.first_ms,
            first.first_cpu_ms,
            first.later_ms,
            first.later_cpu_ms,
            bytes(first.held_bytes as f64)
        )
    };
    let mut rows = vec![row("the first handshake", words(first))];
    rows.extend(
        first
            .larger
            .iter()
            .map(|larger| row("with --cmd-larger", words(larger))),
    );
    rows
}

/// Returns what was not measured, with each reason once.
pub(super) fn not_measured(audit: &Audit) -> Vec<(String, String)> {
    let rows = sections(audit).into_iter().flat_map(|(_, rows)| rows);
    rows.filter(|row| row.missing)
        .map(|row| (row.title, row.value))
        .collect()
}
