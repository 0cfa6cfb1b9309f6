//! Summary of an audit in a few numbers.

use std::fmt::Write;

use super::rows::bytes;
use crate::model::{Audit, ClientFigures, Measured, Resumption, ServerFigures};
use dormouse_bench::model::grouped;
use dormouse_bench::report::html::escape;
use dormouse_measure::Verdict;

/// A number with its label.
struct Tile {
    what: &'static str,
    /// The number, or the reason why there is none.
    value: Measured<String>,
    /// A figure to compare it with.
    beside: String,
}

fn tile(what: &'static str, value: String, beside: String) -> Tile {
    Tile {
        what,
        value: Measured::Value(value),
        beside,
    }
}

fn missing(what: &'static str, why: &str) -> Tile {
    Tile {
        what,
        value: Measured::not(why),
        beside: String::new(),
    }
}

/// Draws the numbers in a row.
pub(super) fn tiles(audit: &Audit) -> String {
    let mut tiles = Vec::new();
    if let Some(server) = &audit.server {
        tiles.extend(of_server(server));
    }
    if let Some(client) = audit
        .client
        .as_ref()
        .filter(|client| client.connections > 0)
    {
        tiles.extend(of_client(client));
    }
    if tiles.is_empty() {
        return String::new();
    }
    let mut body = String::from("<dl class=\"tiles\">");
    for tile in tiles {
        let (value, beside) = match &tile.value {
            Measured::Value(value) => (escape(value), escape(&tile.beside)),
            Measured::NotMeasured(why) => ("–".into(), format!("not measured: {}", escape(why))),
        };
        let _ = write!(
            body,
            "<div><dt>{}</dt><dd>{value}<small>{beside}</small></dd></div>",
            tile.what
        );
    }
    body + "</dl>\n"
}

fn of_server(server: &ServerFigures) -> Vec<Tile> {
    const QUIET: &str = "memory per idle connection";
    const LEFT: &str = "retained after all have closed";
    let mut tiles = Vec::new();
    match &server.memory {
        Measured::NotMeasured(why) => tiles.push(missing("memory", why)),
        Measured::Value(memory) => {
            tiles.push(match memory.per_connection() {
                Measured::NotMeasured(why) => missing(QUIET, &why),
                Measured::Value(quiet) => {
                    let kernel = memory.kernel_bytes.value().map(|both| both / 2.0);
                    let kernel = kernel.map(|one| format!("and {} in the kernel", bytes(one)));
                    tile(QUIET, bytes(quiet), kernel.unwrap_or_default())
                }
            });
            let before = memory.phases.first().map(|phase| phase.memory.pss as f64);
            let before = before.map(|before| format!("above {} before", bytes(before)));
            tiles.push(match memory.retained_bytes() {
                Measured::NotMeasured(why) => missing(LEFT, &why),
                Measured::Value(left) => {
                    tile(LEFT, bytes(left.max(0.0)), before.unwrap_or_default())
                }
            });
            if let Some((growth, slope)) = memory
                .growth
                .value()
                .and_then(|growth| Some((growth, growth.slope?)))
            {
                let value = match growth.verdict {
                    Verdict::NoGrowth => "none".to_owned(),
                    _ => format!("{} a round", bytes(slope.per_unit)),
                };
                let rounds = format!(
                    "{} rounds of {} connections{}",
                    growth.rounds.len(),
                    grouped(growth.connections_per_round as f64, 0),
                    if growth.verdict == Verdict::Unclear {
                        "; unclear"
                    } else {
                        ""
                    }
                );
                tiles.push(tile("growth", value, rounds));
            }
        }
    }
    tiles.push(resumed(server));
    tiles.push(match &server.cpu {
        Measured::NotMeasured(why) => missing("CPU time", why),
        Measured::Value(cpu) => {
            let needed = cpu.reference.needed_us();
            tile(
                "CPU time of a full handshake",
                format!("{} µs", grouped(cpu.full_us, 0)),
                format!("{} µs needed on this machine", grouped(needed, 0)),
            )
        }
    });
    tiles
}

/// The lowest resumed share among the versions.
fn resumed(server: &ServerFigures) -> Tile {
    const WHAT: &str = "sessions resumed";
    let share = |version: &str, share: f64| format!("{version} {:.0} %", 100.0 * share);
    let each = Resumption::best_shares(&server.resumption);
    let worst = each.iter().map(|(_, share)| *share).reduce(f64::min);
    match worst {
        None => missing(WHAT, "no session could be offered"),
        Some(worst) => {
            let words: Vec<_> = each
                .iter()
                .map(|(version, of)| share(version, *of))
                .collect();
            tile(WHAT, format!("{:.0} %", 100.0 * worst), words.join(", "))
        }
    }
}

fn of_client(client: &ClientFigures) -> Vec<Tile> {
    let requests = match client.requests {
        0 => "without requests".to_owned(),
        1 => "for 1 request".to_owned(),
        count => format!("for {} requests", grouped(count as f64, 0)),
    };
    let offered = if client.connections == 1 {
        "the first cannot resume".to_owned()
    } else {
        format!("{} offered a session", grouped(client.offered as f64, 0))
    };
    let share = 100.0 * client.handshake_ms / client.run_ms.max(1.0);
    let mut tiles = vec![
        tile(
            "connections",
            grouped(client.connections as f64, 0),
            requests,
        ),
        tile(
            "of them resumed",
            grouped(client.resumed as f64, 0),
            offered,
        ),
        tile(
            "time in handshakes",
            format!("{} ms", grouped(client.handshake_ms, 0)),
            if share > 100.0 {
                "in parallel".to_owned()
            } else {
                format!("{share:.0} % of the run")
            },
        ),
    ];
    tiles.push(match &client.cpu_ms {
        Measured::NotMeasured(why) => missing("CPU time", why),
        Measured::Value(ms) => {
            let each = ms / client.connections.max(1) as f64;
            tile(
                "CPU time",
                super::rows::cpu_ms(*ms),
                format!("{} per connection", super::rows::cpu_ms(each)),
            )
        }
    });
    tiles.push(match &client.memory_max_bytes {
        Measured::NotMeasured(why) => missing("memory", why),
        Measured::Value(most) => tile("memory", bytes(*most as f64), "peak".into()),
    });
    tiles
}
