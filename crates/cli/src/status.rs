//! `dormouse status`: the status of a running `serve` as a page. docs/guide/status.md describes the
//! fields of the answer.

mod parts;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use dormouse_config::{STANDARD_INPUT, show_number};
use dormouse_handover::control::DrainOrder;
use dormouse_handover::status::{
    AgeFigures, ConfigurationStatus, ConnectionFigures, DrainStatus, PoolFigures, ProcessFigures,
    Status,
};
use dormouse_printable::{line, lines};
use serde_json::Value;

use crate::admin::{AdminAddress, AdminArgs, Exit, failed};
use crate::figures::Footprint;
use crate::show::{age, bytes, or_dash};
use crate::terminal;

pub(crate) fn run(args: &AdminArgs) -> Exit {
    let address = AdminAddress::find(&args.instance)?;
    let shown = if args.json {
        // Unchanged, so that fields of other versions are shown too.
        address
            .question("/status")
            .map(|answer: Value| dormouse_printable::json(&format!("{answer:#}\n")))
    } else {
        address
            .question("/status")
            .map(|status| lines(&page(&status)).to_string())
    };
    terminal::print(&shown.map_err(failed)?);
    Ok(ExitCode::SUCCESS)
}

/// Returns the document as a page.
fn page(status: &Status) -> String {
    let mut page = String::new();
    // Writing into a String can't fail.
    let version = status.version.as_deref().unwrap_or("-");
    let _ = writeln!(page, "dormouse {version}, {}", status.phase.name());
    if let Some(running) = &status.configuration {
        configuration(&mut page, running);
    }
    page.push('\n');
    connections(&mut page, &status.connections);
    if let Some(progress) = &status.drain {
        drain(&mut page, progress);
    }
    let cost = Footprint::of(status);
    let _ = writeln!(
        page,
        "memory       192 B for one more connection; {} for all connections; fixed part {}",
        bytes(cost.connections),
        bytes(cost.fixed)
    );
    memory(&mut page, &status.memory);
    parts::counters(&mut page, status);
    parts::ticket_keys(&mut page, &status.ticket_keys);
    parts::routes(&mut page, status);
    parts::backends(&mut page, status);
    parts::certificates(&mut page, status);
    parts::orders(&mut page, status);
    parts::spiffe(&mut page, status);
    processes(&mut page, status);
    parts::other_counters(&mut page, status);
    page
}

fn configuration(page: &mut String, running: &ConfigurationStatus) {
    let file = match running.file.as_deref() {
        None => "from the command line",
        Some(STANDARD_INPUT) => "from standard input",
        Some(file) => file,
    };
    let _ = writeln!(
        page,
        "configuration {file}, edition {}, loaded {} ago",
        running.edition,
        age(running.loaded_ago_s)
    );
    for option in &running.waits_for_restart {
        let _ = writeln!(
            page,
            "  {option} was changed; it takes effect after a restart"
        );
    }
    for kept in &running.kept_changes {
        let problem = kept.problem.as_deref();
        let problem = problem.map_or(String::new(), |why| format!(", without effect: {why}"));
        let _ = writeln!(page, "  kept: {}{problem}", line(&kept.change));
    }
    if let Some(reload) = running.last_reload.as_ref().filter(|reload| !reload.done) {
        let ago = age(reload.ago_s);
        let _ = writeln!(page, "  the last reload was refused {ago} ago:");
        for line in reload.words.lines() {
            let _ = writeln!(page, "    {line}");
        }
    }
}

fn connections(page: &mut String, all: &ConnectionFigures) {
    let _ = writeln!(
        page,
        "connections  {} at rest, {} pending, {} handshaking; at most {}",
        show_number(all.at_rest),
        show_number(all.pending),
        show_number(all.handshaking),
        or_dash(all.max, show_number)
    );
    let ages = &all.ages;
    if *ages != AgeFigures::default() {
        let _ = writeln!(
            page,
            "ages         {} under 1 h, {} under 1 d, {} under 7 d, {} older",
            show_number(ages.under_1h),
            show_number(ages.under_1d),
            show_number(ages.under_7d),
            show_number(ages.older)
        );
    }
    if let Some(awake) = all.awake {
        let there_are = all.at_rest + all.pending;
        let _ = writeln!(
            page,
            "deep rest    {} awake, {} without a socket; at most {} awake",
            show_number(awake),
            show_number(there_are.saturating_sub(awake)),
            or_dash(all.awake_max, show_number)
        );
    }
}

/// Writes the progress of a drain, in a line or two.
pub(crate) fn drain(page: &mut String, drain: &DrainStatus) {
    let order = match drain.order {
        DrainOrder::Longest => "longest",
        DrainOrder::Shortest => "shortest",
    };
    let _ = writeln!(
        page,
        "drain        {} of {} told to close, {} still open; {} of {} s have passed ({order} idle first)",
        show_number(drain.closed),
        show_number(drain.connections),
        show_number(drain.left),
        drain.passed_s.round(),
        drain.over_s.round()
    );
}

fn memory(page: &mut String, pools: &BTreeMap<String, PoolFigures>) {
    for (at, (name, pool)) in pools.iter().enumerate() {
        let _ = writeln!(
            page,
            "{:<12} {name:<10}  {:>10} of {:>10}",
            if at == 0 { "pools" } else { "" },
            bytes(pool.used_bytes),
            or_dash(pool.bound_bytes, bytes)
        );
    }
}

fn processes(page: &mut String, status: &Status) {
    page.push_str("\nprocess        pid      age        resident   state\n");
    if let Some(main) = &status.main {
        process(page, "main", &main.process, main.alive, "");
    }
    let control = &status.control;
    let state = restarts(control.restarts);
    process(page, "control", &control.process, true, &state);
    for (n, worker) in status.workers.iter().enumerate() {
        if let Some(keeper) = &worker.keeper {
            let ended = keeper.ended.as_deref().unwrap_or_default();
            let name = format!("keeper {n}");
            process(page, &name, &keeper.process, keeper.alive, ended);
        }
        let mut state = format!(
            "{} at rest, {} pending, {} handshaking",
            show_number(worker.at_rest),
            show_number(worker.pending),
            show_number(worker.handshaking)
        );
        if let Some(death) = &worker.last_death {
            let _ = write!(
                state,
                "; {}, {} ago: {}",
                restarts(worker.restarts),
                age(death.ago_s),
                death.reason
            );
        }
        let name = format!("  worker {n}");
        process(page, &name, &worker.process, worker.alive, &state);
    }
}

fn process(page: &mut String, name: &str, figures: &ProcessFigures, alive: bool, state: &str) {
    let gone = match (alive, state.is_empty()) {
        (true, _) => "",
        (false, true) => "GONE",
        (false, false) => "GONE; ",
    };
    let row = format!(
        "{name:<14} {:<8} {:<10} {:<10} {gone}{state}",
        figures.pid,
        age(figures.age_s),
        or_dash(figures.resident_bytes, bytes)
    );
    page.push_str(row.trim_end());
    page.push('\n');
}

fn restarts(count: u64) -> String {
    match count {
        0 => String::new(),
        1 => "restarted once".to_owned(),
        often => format!("restarted {often} times"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn renders_a_page() {
        let answer = json!({
            "version": "0.1.0", "phase": "draining",
            "configuration": { "file": "d.toml", "edition": 3, "loaded_ago_s": 200,
                "last_reload": { "done": false, "words": "error: x\nerror: y", "ago_s": 5 },
                "waits_for_restart": ["workers"],
                "kept_changes": [{ "change": "log-level debug" },
                    { "change": "out 10.9.9.9:1", "problem": "no backend 10.9.9.9:1" }] },
            "connections": { "at_rest": 12_000, "pending": 3, "handshaking": 1, "max": 20_000,
                "ages": { "under_1h": 3, "under_1d": 11_000, "under_7d": 1_000, "older": 0 },
                "awake": 400, "awake_max": 2_000 },
            "drain": { "closed": 5, "connections": 17, "left": 12, "passed_s": 3.4, "over_s": 10.0,
                "order": "longest" },
            "memory": { "slots": { "used_bytes": 2_304_000, "bound_bytes": null } },
            "main": { "pid": 10, "alive": false, "age_s": 300_000, "resident_bytes": null },
            "control": { "pid": 11, "age_s": 4, "restarts": 2, "resident_bytes": 3_000_000 },
            "counts": { "handshakes_full": 7, "handshakes_resumed": 3, "handshakes_failed": 2,
                "closed_clean": 4, "closed_tls_failed": 1, "denied_rate": 1_200, "paused_full": 0 },
            "ticket_keys": { "age_s": 300, "rotates_in_s": 43_000, "store": "unreachable",
                "store_seen_s_ago": 90 },
            "acme": { "names": [
                { "name": "b.example.com", "failures": 2, "next_in_s": 52, "last_error": "no" },
                { "name": "c.example.com", "next_in_s": 0 },
                { "name": "example.com", "expires_in_s": 86_400, "next_in_s": 9 }] },
            "routes": [{ "name": "shop", "listen": [":443"], "connections": 5, "opened": 10,
                "ages": { "under_1h": 1, "under_1d": 2, "under_7d": 1, "older": 1 },
                "handshakes": { "full": 7, "resumed": 3, "failed": 2 } }],
            "backends": [{ "address": "10.0.0.7:80", "routes": ["shop"], "up": true,
                "ages": { "under_1h": 1, "under_1d": 3 }, "connections": 4, "connects_failed": 1 },
                { "address": "10.0.0.8:80", "routes": ["shop"], "up": true, "out": true }],
            "certificates": [{ "name": "example.com", "file": "x.pem", "expires_in_s": 86_400 }],
            "workers": [{ "pid": 13, "alive": true, "age_s": 7_300, "restarts": 1,
                "resident_bytes": 40_000_000, "at_rest": 12_000, "pending": 3, "handshaking": 1,
                "last_death": { "reason": "killed by SIGKILL (9)", "ago_s": 60 },
                "keeper": { "pid": 12, "alive": true, "age_s": 9, "ended": null } }],
        });
        let page = page(&serde_json::from_value(answer).expect("a document"));
        for expected in [
            "dormouse 0.1.0, draining\n",
            "configuration d.toml, edition 3, loaded 3 min ago\n",
            "  workers was changed; it takes effect after a restart\n",
            "  kept: log-level debug\n  kept: out 10.9.9.9:1, without effect: no backend 10.9.9.9:1\n",
            "  the last reload was refused 5 s ago:\n    error: x\n    error: y\n",
            "connections  12,000 at rest, 3 pending, 1 handshaking; at most 20,000\n",
            "ages         3 under 1 h, 11,000 under 1 d, 1,000 under 7 d, 0 older\n",
            "deep rest    400 awake, 11,603 without a socket; at most 2,000 awake\n",
            "drain        5 of 17 told to close, 12 still open; 3 of 10 s have passed (longest idle first)\n",
            "pools        slots         2250 KiB of          -\n",
            "memory       192 B for one more connection; 2250 KiB for all connections; fixed part ",
            "handshakes   7 full, 3 resumed, 2 failed\n",
            "closed       4 clean, 1 tls_failed\n",
            "ticket keys  5 min old, next in 11 h; store unreachable, last seen 90 s ago\n",
            "  shop       :443                           5          4          2          1          10       2\n",
            "  10.0.0.7:80  up         4 connections, over 1 h 3, 1 d 0, 7 d 0, 1 connect failed  (shop)\n",
            "  10.0.0.8:80  out        0 connections  (shop)\n",
            "  example.com  24 h  x.pem\n",
            "\nACME orders\n  b.example.com  no certificate yet, next attempt in 52 s, failed 2 times: no\n  \
             c.example.com  no certificate yet, next attempt in 0 s\n\n",
            "main           10       3 days     -          GONE\n",
            "control        11       4 s        2929 KiB   restarted 2 times\n",
            "keeper 0       12       9 s        -\n",
            "  worker 0     13       2 h        38 MiB     12,000 at rest, 3 pending, 1 handshaking; \
             restarted once, 60 s ago: killed by SIGKILL (9)\n\n\
             counters\n  denied_rate  1,200\n",
        ] {
            assert!(
                page.contains(expected),
                "{expected:?} is missing in:\n{page}"
            );
        }
    }
}
