//! The figures by which audits are compared: a row for each, with its tile on an audit's page, its column in the table of
//! audits side by side, and what counts as a change between two audits.
//!
//! A figure changed if it differs by more than two audits of an unchanged server would. Figures with confidence intervals
//! changed if the intervals do not overlap; the others have a tolerance that the lab's repeated audits stay within.

use crate::model::words::{bytes, cpu_ms, us};
use crate::model::{
    ClientFigures, CpuFigures, Figures as _, Measured, MemoryFigures, Resumption, ServerFigures,
    Trials,
};
use dormouse_bench::model::grouped;
use dormouse_measure::{Growth, Verdict};

/// Tolerance for bytes in use.
const IN_USE: f64 = 0.05;
/// Tolerance for CPU time, which is compared as a multiple of the machine's reference at that moment.
const CPU: f64 = 0.25;
/// Smaller differences in bytes per connection are ignored.
const BYTES: f64 = 64.0;

/// Resident memory that a connection takes from free heap is not growth.
const FREE_HEAP: &str = "it depends on how much free heap the server had before";
/// Memory that connections leave behind for later ones.
const POOL: &str = "closing frees the same; the server keeps the rest for later connections, and the lower figure is without it";
/// Resident memory of a runtime that collects garbage.
const GARBAGE: &str = "garbage that was not collected is part of it";
const NO_INTERVAL: &str = "too few rounds";

/// A figure of a server (`T` is [`ServerFigures`]) or of a client.
pub(super) struct Headline<T: 'static> {
    /// On the page of one audit.
    pub(super) tile: fn(&T) -> Option<Tile>,
    /// Title of its column, and its value. The first column has the bars.
    pub(super) column: Option<Column<T>>,
    /// In the comparison of two audits, of which one may have been of a runtime that collects garbage.
    pub(super) changes: fn([&T; 2], bool) -> Vec<Line>,
}

/// Title, and value of a figure.
type Column<T> = (&'static str, fn(&T) -> Option<String>);

/// A number with its title.
pub(super) struct Tile {
    pub(super) title: &'static str,
    /// The number, or the reason why there is none.
    pub(super) value: Measured<String>,
    /// A figure to compare it with.
    pub(super) beside: String,
}

/// A figure in two audits.
pub(super) struct Line {
    pub(super) title: String,
    pub(super) values: [String; 2],
    pub(super) change: Change,
}

/// Whether a figure changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Yes,
    No,
    /// The figures cannot be compared, for this reason.
    Unknown(&'static str),
}

impl From<bool> for Change {
    fn from(changed: bool) -> Self {
        if changed { Self::Yes } else { Self::No }
    }
}

pub(super) const OF_SERVER: [Headline<ServerFigures>; 5] = [
    Headline {
        tile: memory_tile,
        column: Some(("bytes per idle connection", |server| {
            Some(bytes(*server.memory.value()?.per_connection().value()?))
        })),
        changes: |both, _| both_memories(both).map_or_else(Vec::new, memory_changes),
    },
    Headline {
        tile: |server| {
            let memory = server.memory.value()?;
            let before = memory
                .phases
                .first()
                .map(|phase| bytes(phase.memory.pss as f64));
            let before = before.map(|before| format!("above {before} before"));
            let left = memory.retained_bytes();
            Some(tile(
                "retained after all have closed",
                left,
                |left| bytes(left.max(0.0)),
                before,
            ))
        },
        column: Some(("retained after close", |server| {
            let left = server.memory.value()?.retained_bytes();
            Some(bytes(left.value()?.max(0.0)))
        })),
        changes: |_, _| Vec::new(),
    },
    Headline {
        tile: growth_tile,
        column: Some(("growth per round", |server| {
            let growth = server.memory.value()?.growth.value()?;
            let per_round = || Some(bytes(growth.slope?.per_unit));
            match growth.verdict {
                Verdict::NoGrowth => Some("none".to_owned()),
                Verdict::Grows => per_round(),
                Verdict::Unclear => Some(format!("{}, unclear", per_round()?)),
            }
        })),
        changes: |both, collects| {
            let growth = both_memories(both).map(|both| growth_change(both, collects));
            growth.flatten().into_iter().collect()
        },
    },
    Headline {
        tile: |server| {
            let each = Resumption::best_shares(&server.resumption);
            let worst = each.iter().map(|(_, share)| *share).reduce(f64::min);
            let worst = Measured::or_why(worst, "no session could be offered");
            let words: Vec<_> = each
                .iter()
                .map(|(version, share)| format!("{version} {}", percent(*share)))
                .collect();
            Some(tile(
                "sessions resumed",
                worst,
                percent,
                Some(words.join(", ")),
            ))
        },
        column: None,
        changes: |[before, after], _| {
            let same = |entry: &Resumption| {
                let mut before = before.resumption.iter();
                before.find(|other| other.version == entry.version && other.by == entry.by)
            };
            let change = |entry: &Resumption| {
                let title = format!("{} resumed by {}", entry.version, entry.by);
                share_change(title, [same(entry)?.trials.value()?, entry.trials.value()?])
            };
            after.resumption.iter().filter_map(change).collect()
        },
    },
    Headline {
        tile: |server| {
            Some(match &server.cpu {
                Measured::NotMeasured(why) => missing("CPU time", why),
                Measured::Value(cpu) => {
                    let needed =
                        format!("{} needed on this machine", us(cpu.reference.needed_us()));
                    tile(
                        "CPU time of a full handshake",
                        Measured::Value(cpu.full_us),
                        us,
                        Some(needed),
                    )
                }
            })
        },
        column: Some(("CPU, full", |server| Some(us(server.cpu.value()?.full_us)))),
        changes: |[before, after], _| {
            let both = before.cpu.value().zip(after.cpu.value());
            both.map(|(before, after)| cpu_change([before, after]))
                .into_iter()
                .collect()
        },
    },
];

/// The shares of both versions in one column, which is the last one.
pub(super) const RESUMED: (&str, fn(&ServerFigures) -> String) = ("resumed 1.3 / 1.2", |server| {
    let best = Resumption::best_shares(&server.resumption);
    let share = |version: &str| {
        let of_version = best.iter().find(|(known, _)| *known == version);
        of_version.map_or_else(|| "–".to_owned(), |(_, share)| percent(*share))
    };
    format!("{} / {}", share("TLS 1.3"), share("TLS 1.2"))
});

pub(super) const OF_CLIENT: [Headline<ClientFigures>; 6] = [
    Headline {
        tile: |client| {
            let requests = match client.requests {
                0 => "without requests".to_owned(),
                1 => "for 1 request".to_owned(),
                count => format!("for {} requests", grouped(count as f64, 0)),
            };
            Some(tile(
                "connections",
                Measured::Value(client.connections),
                count,
                Some(requests),
            ))
        },
        column: Some(("connections", |client| Some(client.connections.to_string()))),
        changes: |_, _| Vec::new(),
    },
    Headline {
        tile: |_| None,
        column: Some(("requests", |client| Some(client.requests.to_string()))),
        changes: |_, _| Vec::new(),
    },
    Headline {
        tile: |client| {
            let offered = match client.connections {
                1 => "the first cannot resume".to_owned(),
                _ => format!("{} offered a session", count(client.offered)),
            };
            Some(tile(
                "of them resumed",
                Measured::Value(client.resumed),
                count,
                Some(offered),
            ))
        },
        // The first connection has nothing to resume.
        column: Some(("resumed", |client| match client.connections {
            0 | 1 => None,
            all => Some(format!("{} of {all}", client.resumed)),
        })),
        changes: |both, _| {
            let trials = both.map(|client| Trials {
                offered: client.connections.saturating_sub(1),
                resumed: client.resumed,
                ..Trials::default()
            });
            let [before, after] = &trials;
            let mut changes =
                Vec::from_iter(share_change("connections resumed".into(), [before, after]));
            let each = both.map(|client| client.requests as f64 / client.connections.max(1) as f64);
            changes.push(Line {
                title: "requests per connection".into(),
                values: each.map(|each| format!("{each:.1}")),
                change: differs(each, IN_USE, 0.0).into(),
            });
            changes
        },
    },
    Headline {
        tile: |client| {
            let share = 100.0 * client.handshake_ms / client.run_ms.max(1.0);
            let beside = match share {
                ..=100.0 => format!("{share:.0} % of the run"),
                _ => "in parallel".to_owned(),
            };
            let ms = |ms| format!("{} ms", grouped(ms, 0));
            Some(tile(
                ClientFigures::title("handshake_ms"),
                Measured::Value(client.handshake_ms),
                ms,
                Some(beside),
            ))
        },
        column: None,
        changes: |_, _| Vec::new(),
    },
    Headline {
        tile: |client| {
            let each = client
                .cpu_ms
                .value()
                .map(|ms| cpu_ms(ms / client.connections.max(1) as f64));
            let each = each.map(|each| format!("{each} per connection"));
            Some(tile("CPU time", client.cpu_ms.clone(), cpu_ms, each))
        },
        column: None,
        changes: |_, _| Vec::new(),
    },
    Headline {
        tile: |client| {
            let most = client.memory_max_bytes.clone();
            Some(tile(
                "memory",
                most,
                |most| bytes(most as f64),
                Some("peak".into()),
            ))
        },
        column: None,
        changes: |_, _| Vec::new(),
    },
];

fn tile<T>(
    title: &'static str,
    value: Measured<T>,
    words: impl Fn(T) -> String,
    beside: Option<String>,
) -> Tile {
    match value {
        Measured::NotMeasured(why) => missing(title, &why),
        Measured::Value(value) => Tile {
            title,
            value: Measured::Value(words(value)),
            beside: beside.unwrap_or_default(),
        },
    }
}

fn missing(title: &'static str, why: &str) -> Tile {
    Tile {
        title,
        value: Measured::not(why),
        beside: String::new(),
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

fn count(count: u64) -> String {
    grouped(count as f64, 0)
}

fn memory_tile(server: &ServerFigures) -> Option<Tile> {
    let memory = match &server.memory {
        Measured::NotMeasured(why) => return Some(missing("memory", why)),
        Measured::Value(memory) => memory,
    };
    let kernel = memory.kernel_bytes.value().map(|both| bytes(both / 2.0));
    let kernel = kernel.map(|one| format!("and {one} in the kernel"));
    Some(tile(
        "memory per idle connection",
        memory.per_connection(),
        bytes,
        kernel,
    ))
}

fn growth_tile(server: &ServerFigures) -> Option<Tile> {
    let growth = server.memory.value()?.growth.value()?;
    let per_round = growth.slope?.per_unit;
    let value = match growth.verdict {
        Verdict::NoGrowth => "none".to_owned(),
        _ => format!("{} a round", bytes(per_round)),
    };
    let mut rounds = format!(
        "{} rounds of {} connections",
        growth.rounds.len(),
        count(growth.connections_per_round)
    );
    if growth.verdict == Verdict::Unclear {
        rounds += "; unclear";
    }
    Some(tile(
        "growth",
        Measured::Value(value),
        |value| value,
        Some(rounds),
    ))
}

fn both_memories([before, after]: [&ServerFigures; 2]) -> Option<[&MemoryFigures; 2]> {
    Some([before.memory.value()?, after.memory.value()?])
}

fn memory_changes(both: [&MemoryFigures; 2]) -> Vec<Line> {
    let used = both.map(|memory| memory.used_bytes.value().copied());
    let pooled = differs_by_pool(both).then_some(Change::Unknown(POOL));
    let resident = both.map(|memory| memory.resident_per_connection().value().copied());
    let lines = [
        bytes_change(MemoryFigures::title("used_bytes"), used, pooled),
        bytes_change(
            "resident growth per idle connection",
            resident,
            Some(Change::Unknown(FREE_HEAP)),
        ),
    ];
    lines.into_iter().flatten().collect()
}

/// Compares bytes, unless a `change` is known.
fn bytes_change(title: &str, values: [Option<f64>; 2], change: Option<Change>) -> Option<Line> {
    let change = match values {
        [None, None] => return None,
        [None, Some(_)] => Change::Unknown("the first did not measure it"),
        [Some(_), None] => Change::Unknown("the second did not measure it"),
        [Some(before), Some(after)] => {
            change.unwrap_or_else(|| differs([before, after], IN_USE, BYTES).into())
        }
    };
    Some(Line {
        title: title.into(),
        values: values.map(|value| value.map_or("–".into(), bytes)),
        change,
    })
}

/// Whether one audit counts what connections leave in a pool, and the other found it there: closing frees the same bytes,
/// and in one of the audits nothing else.
fn differs_by_pool(both: [&MemoryFigures; 2]) -> bool {
    let figures = |memory: &MemoryFigures| {
        let used = *memory.used_bytes.value()?;
        Some((used, used - memory.kept_bytes.value()?))
    };
    let [Some((used, freed)), Some((other_used, other_freed))] = both.map(figures) else {
        return false;
    };
    let same = |one, other| !differs([one, other], IN_USE, BYTES);
    !same(used, other_used) && same(freed, other_freed) && same(freed, used.min(other_used))
}

/// Compares the growth in bytes per closed connection, with its uncertainty.
fn growth_change(both: [&MemoryFigures; 2], collects: bool) -> Option<Line> {
    let each = |growth: &Growth| {
        let (slope, connections) = (growth.slope?, growth.connections_per_round.max(1) as f64);
        Some((
            slope.per_unit / connections,
            slope.plus_minus? / connections,
        ))
    };
    let [Some(before), Some(after)] = both.map(|memory| memory.judged_growth().0) else {
        return None;
    };
    let slopes = [before, after].map(each);
    let is_counted = both
        .iter()
        .all(|memory| memory.growth_in_use.value().is_some());
    Some(Line {
        title: "growth per closed connection".into(),
        values: slopes.map(|slope| {
            slope.map_or("–".into(), |(each, plus_minus)| {
                format!("{} ± {} bytes", grouped(each, 0), grouped(plus_minus, 0))
            })
        }),
        change: match slopes {
            _ if collects && !is_counted => Change::Unknown(GARBAGE),
            [Some((before, one)), Some((after, other))] => {
                ((before - after).abs() > one + other + BYTES).into()
            }
            _ => Change::Unknown(NO_INTERVAL),
        },
    })
}

/// A busy machine slows the reference too, so the ratio is compared.
fn cpu_change(both: [&CpuFigures; 2]) -> Line {
    let times = |cpu: &CpuFigures| {
        cpu.full_us / (cpu.reference.handshake_us + cpu.reference.tcp_us).max(1.0)
    };
    Line {
        title: "CPU time of a full handshake".into(),
        values: both
            .map(|cpu| format!("{}, {:.1} times the reference", us(cpu.full_us), times(cpu))),
        change: differs(both.map(times), CPU, 0.0).into(),
    }
}

/// Compares resumed shares; they changed if their intervals do not overlap.
fn share_change(title: String, both: [&Trials; 2]) -> Option<Line> {
    let [(least, most), (other_least, other_most)] = both.map(Trials::interval);
    Some(Line {
        title,
        values: both.map(|trials| format!("{} of {}", trials.resumed, trials.offered)),
        change: (most < other_least || other_most < least).into(),
    })
}

fn differs([before, after]: [f64; 2], share: f64, least: f64) -> bool {
    let difference = (before - after).abs();
    difference > least && difference > share * before.abs().max(after.abs())
}
