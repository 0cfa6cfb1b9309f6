//! `dormouse status`: how a running `serve` is doing, for people. The fields of the answer are
//! described in docs/guide/status.md.

use std::fmt::Write as _;
use std::process::ExitCode;

use dormouse_config::show_number;
use serde_json::Value;

use crate::admin::{AdminAddress, AdminArgs};
use crate::outcome::Outcome;
use crate::terminal;

pub(crate) fn run(args: &AdminArgs) -> ExitCode {
    let address = match AdminAddress::find(args) {
        Ok(address) => address,
        Err(code) => return code,
    };
    match address.question("/status") {
        Ok(answer) if args.json => {
            terminal::print(&format!("{answer:#}\n"));
            ExitCode::SUCCESS
        }
        Ok(answer) => {
            terminal::print(&terminal::printable(&page(&answer)));
            ExitCode::SUCCESS
        }
        Err(what) => {
            terminal::error(what);
            Outcome::Failed.into()
        }
    }
}

/// The answer as a page.
fn page(answer: &Value) -> String {
    let mut page = String::new();
    // Writing into a String can't fail.
    let _ = writeln!(
        page,
        "dormouse {}, {}",
        text(&answer["version"]),
        text(&answer["phase"])
    );
    let configuration = &answer["configuration"];
    if !configuration.is_null() {
        let file = match configuration["file"].as_str() {
            Some(file) => file.to_owned(),
            None => "from the command line".to_owned(),
        };
        let _ = writeln!(
            page,
            "configuration {file}, edition {}, loaded {} ago",
            text(&configuration["edition"]),
            age(&configuration["loaded_ago_s"])
        );
        for option in configuration["waits_for_restart"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let _ = writeln!(
                page,
                "  {} was changed, and waits for a restart",
                text(option)
            );
        }
        let reload = &configuration["last_reload"];
        if reload["done"] == false {
            let _ = writeln!(
                page,
                "  the last reload was refused {} ago:",
                age(&reload["ago_s"])
            );
            for line in text(&reload["words"]).lines() {
                let _ = writeln!(page, "    {line}");
            }
        }
    }
    page.push('\n');
    connections(&mut page, &answer["connections"]);
    drain(&mut page, &answer["drain"]);
    memory(&mut page, &answer["memory"]);
    processes(&mut page, answer);
    page
}

fn connections(page: &mut String, all: &Value) {
    let _ = writeln!(
        page,
        "connections  {} at rest, {} pending, {} handshaking; at most {}",
        number(&all["at_rest"]),
        number(&all["pending"]),
        number(&all["handshaking"]),
        number(&all["max"])
    );
}

/// How far a drain is, in a line or two.
pub(crate) fn drain(page: &mut String, drain: &Value) {
    if drain.is_null() {
        return;
    }
    let _ = writeln!(
        page,
        "drain        {} of {} closed, {} left; {} of {} s have passed ({} quiet first)",
        number(&drain["closed"]),
        number(&drain["connections"]),
        number(&drain["left"]),
        drain["passed_s"].as_f64().unwrap_or(0.0).round(),
        drain["over_s"].as_f64().unwrap_or(0.0).round(),
        text(&drain["order"])
    );
}

fn memory(page: &mut String, pools: &Value) {
    let pools = pools.as_object().into_iter().flatten();
    for (at, (name, pool)) in pools.enumerate() {
        let _ = writeln!(
            page,
            "{:<12} {name:<10}  {:>10} of {:>10}",
            if at == 0 { "memory" } else { "" },
            bytes(&pool["used_bytes"]),
            bytes(&pool["bound_bytes"])
        );
    }
}

fn processes(page: &mut String, answer: &Value) {
    page.push_str("\nprocess        pid      age        resident   state\n");
    let line = |page: &mut String, name: &str, process: &Value, state: &str| {
        let state = match process["alive"].as_bool() {
            Some(false) => format!("GONE{}{state}", if state.is_empty() { "" } else { "; " }),
            _ => state.to_owned(),
        };
        let row = format!(
            "{name:<14} {:<8} {:<10} {:<10} {state}",
            text(&process["pid"]),
            age(&process["age_s"]),
            bytes(&process["resident_bytes"])
        );
        page.push_str(row.trim_end());
        page.push('\n');
    };
    line(page, "main", &answer["main"], "");
    let restarts = |process: &Value| match process["restarts"].as_u64() {
        None | Some(0) => String::new(),
        Some(1) => "restarted once".to_owned(),
        Some(often) => format!("restarted {often} times"),
    };
    line(
        page,
        "control",
        &answer["control"],
        &restarts(&answer["control"]),
    );
    for (n, worker) in answer["workers"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        let keeper = &worker["keeper"];
        if !keeper.is_null() {
            let ended = keeper["ended"].as_str().unwrap_or_default();
            line(page, &format!("keeper {n}"), keeper, ended);
        }
        let mut state = format!(
            "{} at rest, {} pending, {} handshaking",
            number(&worker["at_rest"]),
            number(&worker["pending"]),
            number(&worker["handshaking"])
        );
        let death = &worker["last_death"];
        if !death.is_null() {
            let _ = write!(
                state,
                "; {}, {} ago: {}",
                restarts(worker),
                age(&death["ago_s"]),
                text(&death["reason"])
            );
        }
        line(page, &format!("  worker {n}"), worker, &state);
    }
}

pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

fn number(value: &Value) -> String {
    value.as_u64().map_or("-".to_owned(), show_number)
}

/// Seconds as a person says them.
pub(crate) fn age(value: &Value) -> String {
    match value.as_u64() {
        None => "-".to_owned(),
        Some(s @ 0..=119) => format!("{s} s"),
        Some(s @ 120..=7_199) => format!("{} min", s / 60),
        Some(s @ 7_200..=172_799) => format!("{} h", s / 3_600),
        Some(s) => format!("{} days", s / 86_400),
    }
}

pub(crate) fn bytes(value: &Value) -> String {
    match value.as_u64() {
        None => "-".to_owned(),
        Some(bytes @ 0..=9_999) => format!("{bytes} B"),
        Some(bytes @ 10_000..=10_485_759) => format!("{} KiB", bytes >> 10),
        Some(bytes) => format!("{} MiB", bytes >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_becomes_a_page() {
        let answer = json!({
            "version": "0.1.0", "phase": "draining",
            "configuration": { "file": "d.toml", "edition": 3, "loaded_ago_s": 200,
                "last_reload": { "done": false, "words": "error: x\nerror: y", "ago_s": 5 },
                "waits_for_restart": ["workers"] },
            "connections": { "at_rest": 12_000, "pending": 3, "handshaking": 1, "max": 20_000 },
            "drain": { "closed": 5, "connections": 17, "left": 12, "passed_s": 3.4, "over_s": 10.0,
                "order": "longest" },
            "memory": { "slots": { "used_bytes": 2_304_000, "bound_bytes": null } },
            "main": { "pid": 10, "alive": false, "age_s": 300_000, "resident_bytes": null },
            "control": { "pid": 11, "age_s": 4, "restarts": 2, "resident_bytes": 3_000_000 },
            "workers": [{ "pid": 13, "alive": true, "age_s": 7_300, "restarts": 1,
                "resident_bytes": 40_000_000, "at_rest": 12_000, "pending": 3, "handshaking": 1,
                "last_death": { "reason": "killed by SIGKILL (9)", "ago_s": 60 },
                "keeper": { "pid": 12, "alive": true, "age_s": 9, "ended": null } }],
        });
        let page = page(&answer);
        for expected in [
            "dormouse 0.1.0, draining\n",
            "configuration d.toml, edition 3, loaded 3 min ago\n",
            "  workers was changed, and waits for a restart\n",
            "  the last reload was refused 5 s ago:\n    error: x\n    error: y\n",
            "connections  12,000 at rest, 3 pending, 1 handshaking; at most 20,000\n",
            "drain        5 of 17 closed, 12 left; 3 of 10 s have passed (longest quiet first)\n",
            "memory       slots         2250 KiB of          -\n",
            "main           10       3 days     -          GONE\n",
            "control        11       4 s        2929 KiB   restarted 2 times\n",
            "keeper 0       12       9 s        -\n",
            "  worker 0     13       2 h        38 MiB     12,000 at rest, 3 pending, 1 handshaking; \
             restarted once, 60 s ago: killed by SIGKILL (9)\n",
        ] {
            assert!(
                page.contains(expected),
                "{expected:?} is missing in:\n{page}"
            );
        }
    }
}
