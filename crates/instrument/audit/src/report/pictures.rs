//! Charts of a server's audit: bars and lines.

use crate::model::words::{bytes, grows, times, us};
use crate::model::{Measured, ServerFigures};
use dormouse_bench::model::grouped;
use dormouse_bench::report::html::{Markup, html, section};
use dormouse_census::SizeClass;

/// Maximum number of block sizes drawn separately.
const PIECES: usize = 5;
const IN_KERNEL: &str = "in the kernel: its end of the socket";

/// A section with a picture, which stays on one page when printed.
pub(super) fn picture(title: &str, what: &str, body: &Markup) -> Markup {
    section(Some("picture"), title, what, body)
}

/// Draws bars below each other: name, length, class and value; `most` is the least length of a whole bar.
pub(super) fn steps(bars: &[(String, f64, &str, String)], most: f64) -> Markup {
    let most = bars.iter().map(|bar| bar.1).fold(most, f64::max);
    html! {
        div class="steps" {
            @for (name, length, class, value) in bars {
                @let width = 100.0 * (length / most).clamp(0.0, 1.0);
                span { (name) }
                span aria-hidden="true" { i class=(class) style=(format_args!("width:{width:.1}%")) {} }
                span class="n" { (value) }
            }
        }
    }
}

/// Draws a bar of the memory of an idle connection.
pub(super) fn where_bytes_go(server: &ServerFigures) -> Markup {
    let Some(memory) = server.memory.value() else {
        return html! {};
    };
    let quiet = memory.per_connection_bytes().max(0.0);
    let mut pieces = blocks_of(server, quiet);
    let named: f64 = pieces.iter().map(|piece| piece.1).sum();
    if quiet - named > 0.01 * quiet {
        pieces.push((
            "not in counted blocks: free bytes, stacks, mappings, a managed heap".into(),
            quiet - named,
        ));
    }
    let process = named.max(quiet);
    if let Measured::Value(kernel) = memory.kernel_bytes {
        // The figure covers both ends on this machine; the server owns one of them.
        pieces.push((IN_KERNEL.into(), kernel / 2.0));
    }
    let all: f64 = pieces.iter().map(|piece| piece.1).sum();
    if all <= 0.0 {
        return html! {};
    }
    let class = |index: usize, name: &str| if name == IN_KERNEL { 7 } else { index % 7 };
    // The list describes the bar in words.
    let body = html! {
        div class="bar" aria-hidden="true" {
            @for (index, (name, value)) in pieces.iter().enumerate() {
                i class={ "c" (class(index, name)) } style=(format_args!("width:{:.2}%", 100.0 * value / all)) title=(name) {}
            }
        }
        div class="share" {
            @for (index, (name, value)) in pieces.iter().enumerate() {
                b class={ "c" (class(index, name)) } {} span { (name) } span class="n" { (bytes(*value)) }
            }
        }
    };
    let mut what = format!(
        "An idle connection takes {} in the process, and memory in the kernel.",
        bytes(quiet)
    );
    if process > 1.02 * quiet {
        let more = bytes(process - quiet);
        what += &format!(" {more} of its blocks lie in memory that the process held before.");
    }
    picture("Where a connection's bytes go", &what, &body)
}

/// The resident blocks that come with a connection.
fn blocks_of(server: &ServerFigures, quiet: f64) -> Vec<(String, f64)> {
    let Some(census) = server.census.value() else {
        return Vec::new();
    };
    let resident = |class: &SizeClass| {
        let known = class.resident_per_connection;
        known.unwrap_or(class.bytes_per_connection).max(0.0)
    };
    let mut classes: Vec<&SizeClass> = census.classes.iter().collect();
    classes.sort_by(|a, b| resident(b).total_cmp(&resident(a)));
    let (named, others) = classes.split_at(classes.len().min(PIECES));
    let mut pieces: Vec<(String, f64)> = named
        .iter()
        .filter(|class| resident(class) > 0.02 * quiet)
        .map(|class| {
            let whose = if class.heap == "malloc" {
                String::new()
            } else {
                format!("{}, ", class.heap)
            };
            let part = if resident(class) < 0.9 * class.bytes_per_connection {
                "; their resident part"
            } else {
                ""
            };
            let name = format!(
                "{whose}{} × {} bytes, {:.0} % zeros{part}",
                times(class.per_connection),
                grouped(class.size_bytes as f64, 0),
                100.0 * class.zero_share
            );
            (name, resident(class))
        })
        .collect();
    // Sizes that are too small for the report belong to no class.
    let reported: f64 = census
        .classes
        .iter()
        .map(|class| class.bytes_per_connection)
        .sum();
    let small = (census.heap_bytes_per_connection - reported).max(0.0);
    let other = small + others.iter().map(|class| resident(class)).sum::<f64>();
    if other > 0.01 * quiet {
        pieces.push(("other blocks of the heap".into(), other));
    }
    pieces
}

/// Draws memory after each round of churn.
pub(super) fn rounds(server: &ServerFigures) -> Markup {
    let memory = server.memory.value();
    let Some((memory, growth)) = memory.and_then(|memory| Some((memory, memory.growth.value()?)))
    else {
        return html! {};
    };
    let after = memory
        .phases
        .iter()
        .filter(|phase| phase.name.starts_with("round_"));
    let bars = after.map(|phase| {
        let value = phase.memory.pss as f64;
        (phase.title.clone(), value, "c3", bytes(value))
    });
    let mut what = format!(
        "Memory after each round of {} connections: {}.",
        grouped(growth.connections_per_round as f64, 0),
        grows(growth)
    );
    if let Some(resumed) = memory.growth_resumed.value() {
        what += &format!(" With resumed handshakes: {}.", grows(resumed));
    }
    picture(
        "Rounds of churn",
        &what,
        &steps(&bars.collect::<Vec<_>>(), 0.0),
    )
}

/// Draws CPU time beside the machine's reference.
pub(super) fn processor(server: &ServerFigures) -> Markup {
    let Some(cpu) = server.cpu.value() else {
        return html! {};
    };
    let r = &cpu.reference;
    let resumed = cpu.resumed_us.iter();
    let resumed = resumed
        .filter_map(|(version, us)| Some((format!("resumed, {version}"), *us.value()?, "c1")));
    let bars = [("full handshake".to_owned(), cpu.full_us, "c0")]
        .into_iter()
        .chain(resumed)
        .chain([
            ("dormouse, in memory".into(), r.handshake_us, "c2"),
            (format!("{} signature", r.key), r.signature_us, "c7"),
            ("key exchange".into(), r.exchange_us, "c7"),
            ("TCP connection".into(), r.tcp_us, "c7"),
        ]);
    let bars: Vec<_> = bars
        .map(|(name, time, class)| (name, time, class, us(time)))
        .collect();
    picture(
        "CPU time",
        "Microseconds of the server's CPU time per connection, beside what this machine needs for each step.",
        &steps(&bars, 1.0),
    )
}
