//! What `top` shows: made of two answers, so that there are rates.

use std::time::Instant;

use dormouse_config::show_number;
use serde_json::Value;

use crate::paint::{Canvas, Style};
use crate::status::{age, bytes, text};
use crate::terminal::printable;

const LABEL: Style = Style::Faint;
const GOOD: Style = Style::Colour(71);
const BAD: Style = Style::Bright(167);
const WARN: Style = Style::Colour(178);
const BAR: Style = Style::Colour(173);
/// Where values begin.
const VALUES_AT: usize = 14;
const BAR_WIDTH: usize = 24;

/// The last answer, and what has happened since the one before.
pub(super) struct Seen {
    answer: Value,
    at: Instant,
    /// Handshakes and bytes per second.
    handshakes_per_s: Option<f64>,
    bytes_per_s: Option<f64>,
    /// Why there was no answer.
    trouble: Option<String>,
}

impl Seen {
    pub(super) fn new(answer: Value) -> Seen {
        Seen {
            answer,
            at: Instant::now(),
            handshakes_per_s: None,
            bytes_per_s: None,
            trouble: None,
        }
    }

    /// Another answer has come, or none.
    pub(super) fn look(&mut self, answer: Result<Value, String>) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(trouble) => {
                self.trouble = Some(trouble);
                return;
            }
        };
        let passed_s = self.at.elapsed().as_secs_f64().max(0.001);
        // After a restart the counts begin anew.
        let rate = |of: fn(&Value) -> u64| {
            let more = of(&answer).saturating_sub(of(&self.answer));
            Some(more as f64 / passed_s)
        };
        self.handshakes_per_s = rate(handshakes);
        self.bytes_per_s = rate(plain_bytes);
        self.answer = answer;
        self.at = Instant::now();
        self.trouble = None;
    }

    /// The screen.
    pub(super) fn page(&self, (columns, rows): (usize, usize), colours: bool) -> String {
        let mut page = Page {
            canvas: Canvas::new(columns, colours),
            rows_left: rows,
        };
        self.head(&mut page);
        self.connections(&mut page);
        self.handshakes(&mut page);
        self.memory(&mut page);
        self.certificates(&mut page);
        self.backends(&mut page);
        self.processes(&mut page);
        page.canvas.finish()
    }

    fn head(&self, page: &mut Page) {
        let answer = &self.answer;
        page.line(|canvas| {
            canvas.put(
                Style::Bold,
                &format!("dormouse {}", text(&answer["version"])),
            );
            let phase = text(&answer["phase"]);
            let style = if phase == "ready" { GOOD } else { WARN };
            canvas.put(Style::Plain, "  ");
            canvas.put(style, &phase);
            let up = format!(" for {}", age(&answer["main"]["age_s"]));
            canvas.put(LABEL, &up);
            canvas.put(LABEL, "   q: leave");
        });
        let reload = &answer["configuration"]["last_reload"];
        let trouble = match &self.trouble {
            Some(trouble) => Some(trouble.clone()),
            None if answer["main"]["alive"] == false => {
                Some("the main process is gone; connections are served on".to_owned())
            }
            None if reload["done"] == false => {
                let words = text(&reload["words"]);
                let first = words.lines().next().unwrap_or_default();
                Some(format!("the last reload was refused: {first}"))
            }
            None => None,
        };
        page.line(|canvas| {
            canvas.put(
                BAD,
                &printable(&trouble.unwrap_or_default()).replace('\n', " "),
            );
        });
    }

    fn connections(&self, page: &mut Page) {
        let all = &self.answer["connections"];
        let there_are = number_of(&all["at_rest"]) + number_of(&all["pending"]);
        page.value("connections", |canvas| {
            canvas.put(Style::Bold, &show_number(there_are));
            canvas.put(LABEL, &format!(" of {}", number(&all["max"])));
        });
        page.value("", |canvas| {
            for state in ["at_rest", "pending", "handshaking"] {
                canvas.put(Style::Plain, &number(&all[state]));
                canvas.put(LABEL, &format!(" {}   ", state.replace('_', " ")));
            }
        });
        let own = self.own_bytes();
        page.value("memory each", |canvas| {
            let each = own.checked_div(there_are);
            let each = each.map_or("-".to_owned(), |each| bytes(&each.into()));
            canvas.put(Style::Plain, &each);
            canvas.put(
                LABEL,
                &format!(" ({} in all, without the program)", bytes(&own.into())),
            );
        });
        if let Some(rate) = self.bytes_per_s {
            page.value("plaintext", |canvas| {
                canvas.put(Style::Plain, &bytes(&(rate as u64).into()));
                canvas.put(LABEL, " per second, both ways");
            });
        }
    }

    fn handshakes(&self, page: &mut Page) {
        let counts = &self.answer["counts"];
        let full = sum(counts, &["handshakes_full", "connect_handshakes_full"]);
        let resumed = sum(
            counts,
            &["handshakes_resumed", "connect_handshakes_resumed"],
        );
        let failed = sum(counts, &["handshakes_failed", "connect_handshakes_failed"]);
        page.value("handshakes", |canvas| {
            if let Some(rate) = self.handshakes_per_s {
                canvas.put(Style::Bold, &format!("{rate:.1}"));
                canvas.put(LABEL, " per second   ");
            }
            if let Some(share) = (resumed * 1000).checked_div(full + resumed) {
                canvas.put(Style::Plain, &format!("{}.{} %", share / 10, share % 10));
                canvas.put(LABEL, " resumed   ");
            }
            canvas.put(Style::Plain, &show_number(failed));
            canvas.put(LABEL, " failed");
        });
        page.value("", |canvas| {
            for (what, name) in [
                ("handshake", "handshake"),
                ("backend", "backend_connect"),
                ("wake", "wake"),
            ] {
                let latency = &self.answer["latency"][name];
                canvas.put(LABEL, &format!("{what} "));
                canvas.put(Style::Plain, &milliseconds(&latency["p50_ms_max"]));
                canvas.put(LABEL, " / ");
                canvas.put(Style::Plain, &milliseconds(&latency["p99_ms_max"]));
                canvas.put(LABEL, "   ");
            }
            canvas.put(LABEL, "(p50 / p99)");
        });
    }

    fn memory(&self, page: &mut Page) {
        let pools = self.answer["memory"].as_object();
        for (n, (name, pool)) in pools.into_iter().flatten().enumerate() {
            let (used, bound) = (
                number_of(&pool["used_bytes"]),
                number_of(&pool["bound_bytes"]),
            );
            page.value(if n == 0 { "memory" } else { "" }, |canvas| {
                canvas.put(Style::Plain, name);
                canvas.go_to_column(VALUES_AT + 12);
                let filled = (used * BAR_WIDTH as u64).checked_div(bound).unwrap_or(0);
                let filled = (filled as usize).clamp(usize::from(used > 0), BAR_WIDTH);
                canvas.put(BAR, &"█".repeat(filled));
                canvas.put(LABEL, &"·".repeat(BAR_WIDTH - filled));
                let amounts = format!(
                    " {} of {}",
                    bytes(&pool["used_bytes"]),
                    bytes(&pool["bound_bytes"])
                );
                canvas.put(Style::Plain, &amounts);
            });
        }
    }

    fn certificates(&self, page: &mut Page) {
        let all = self.answer["certificates"].as_array();
        // Those which end first come first.
        for (n, one) in all.into_iter().flatten().take(3).enumerate() {
            page.value(if n == 0 { "certificates" } else { "" }, |canvas| {
                let left_s = one["expires_in_s"].as_i64().unwrap_or(0);
                let (style, words) = match u64::try_from(left_s) {
                    Ok(left_s @ 1..) if left_s < 14 * 86_400 => (WARN, age(&left_s.into())),
                    Ok(left_s @ 1..) => (GOOD, age(&left_s.into())),
                    _ => (BAD, "ENDED".to_owned()),
                };
                canvas.put(Style::Plain, &printable(&text(&one["name"])));
                canvas.put(LABEL, " ends in ");
                canvas.put(style, &words);
            });
        }
    }

    fn backends(&self, page: &mut Page) {
        let all = self.answer["backends"].as_array();
        for (n, one) in all.into_iter().flatten().take(4).enumerate() {
            page.value(if n == 0 { "backends" } else { "" }, |canvas| {
                canvas.put(Style::Plain, &printable(&text(&one["address"])));
                canvas.put(Style::Plain, "  ");
                if one["check"] == "not well" {
                    canvas.put(BAD, "not well");
                } else if one["up"] == true {
                    canvas.put(GOOD, "up");
                } else {
                    canvas.put(BAD, "passed over");
                }
                canvas.put(
                    LABEL,
                    &format!("  {} connections", number(&one["connections"])),
                );
            });
        }
    }

    /// As many as there are rows for.
    fn processes(&self, page: &mut Page) {
        page.line(|_| {});
        page.line(|canvas| canvas.put(LABEL, "process     pid      age      resident   at rest"));
        let answer = &self.answer;
        page.process("main", &answer["main"], &Value::Null);
        page.process("control", &answer["control"], &Value::Null);
        for (n, worker) in answer["workers"]
            .as_array()
            .into_iter()
            .flatten()
            .enumerate()
        {
            page.process(&format!("worker {n}"), worker, &worker["at_rest"]);
            page.process(&format!("keeper {n}"), &worker["keeper"], &Value::Null);
        }
    }

    /// Memory of all processes that is no file's.
    fn own_bytes(&self) -> u64 {
        let answer = &self.answer;
        let workers = || answer["workers"].as_array().into_iter().flatten();
        let all = [&answer["main"], &answer["control"]].into_iter();
        all.chain(workers())
            .chain(workers().map(|worker| &worker["keeper"]))
            .map(|process| number_of(&process["own_bytes"]))
            .sum()
    }
}

/// Lines, no more than the screen has.
struct Page {
    canvas: Canvas,
    rows_left: usize,
}

impl Page {
    fn line(&mut self, draw: impl FnOnce(&mut Canvas)) {
        if self.rows_left > 0 {
            self.rows_left -= 1;
            draw(&mut self.canvas);
            self.canvas.end_line();
        }
    }

    fn value(&mut self, label: &str, draw: impl FnOnce(&mut Canvas)) {
        self.line(|canvas| {
            canvas.put(LABEL, label);
            canvas.go_to_column(VALUES_AT);
            draw(canvas);
        });
    }

    fn process(&mut self, name: &str, process: &Value, at_rest: &Value) {
        if process.is_null() {
            return;
        }
        self.line(|canvas| {
            let row = format!(
                "{name:<11} {:<8} {:<8} {:<10} ",
                text(&process["pid"]),
                age(&process["age_s"]),
                bytes(&process["resident_bytes"])
            );
            canvas.put(Style::Plain, &row);
            if !at_rest.is_null() {
                canvas.put(Style::Plain, &format!("{:<9} ", number(at_rest)));
            }
            if process["alive"] == false {
                canvas.put(BAD, "GONE");
            }
            let restarts = number_of(&process["restarts"]);
            if restarts > 0 {
                canvas.put(WARN, &format!("started again {restarts}×"));
            }
        });
    }
}

fn number_of(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn number(value: &Value) -> String {
    value.as_u64().map_or("-".to_owned(), show_number)
}

fn milliseconds(value: &Value) -> String {
    value
        .as_f64()
        .map_or("-".to_owned(), |ms| format!("{ms} ms"))
}

fn sum(counts: &Value, names: &[&str]) -> u64 {
    names.iter().map(|name| number_of(&counts[*name])).sum()
}

fn handshakes(answer: &Value) -> u64 {
    let names = [
        "handshakes_full",
        "handshakes_resumed",
        "connect_handshakes_full",
        "connect_handshakes_resumed",
    ];
    sum(&answer["counts"], &names)
}

fn plain_bytes(answer: &Value) -> u64 {
    sum(&answer["counts"], &["plain_bytes_in", "plain_bytes_out"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(handshakes: u64) -> Value {
        json!({
            "version": "0.1.0", "phase": "ready",
            "connections": { "at_rest": 11_990, "pending": 10, "handshaking": 1, "max": 20_000 },
            "counts": { "handshakes_full": handshakes, "handshakes_resumed": 3 * handshakes,
                "handshakes_failed": 7 },
            "latency": { "handshake": { "count": 4, "p50_ms_max": 2.5, "p99_ms_max": null } },
            "memory": { "slots": { "used_bytes": 2_304_000, "bound_bytes": 3_840_000 } },
            "certificates": [{ "name": "example.com", "file": "x.pem", "expires_in_s": 86_400 }],
            "backends": [{ "address": "127.0.0.1:80", "up": false, "connections": 12_000, "failures": 3 }],
            "main": { "pid": 10, "own_bytes": 3_000_000, "alive": true, "age_s": 300_000, "resident_bytes": 3_000_000 },
            "control": { "pid": 11, "own_bytes": 3_000_000, "age_s": 4, "restarts": 2, "resident_bytes": 3_000_000 },
            "workers": [{ "pid": 13, "own_bytes": 4_000_000, "alive": true, "age_s": 7_300, "restarts": 0,
                "resident_bytes": 4_000_000, "at_rest": 11_990,
                "keeper": { "pid": 12, "own_bytes": 2_000_000, "alive": true, "age_s": 9, "resident_bytes": 2_000_000 } }],
        })
    }

    #[test]
    fn everything_fits_a_small_screen() {
        let mut seen = Seen::new(answer(100));
        seen.look(Ok(answer(200)));
        let page = seen.page((80, 24), false).replace("\x1b[K", "");
        let lines: Vec<&str> = page.split("\r\n").collect();
        assert!(lines.len() <= 24, "{page}");
        for line in &lines {
            assert!(line.chars().count() <= 80, "{line}");
        }
        for expected in [
            "dormouse 0.1.0  ready for 3 days   q: leave",
            "connections   12,000 of 20,000",
            "memory each   1000 B (11 MiB in all, without the program)",
            "75.0 % resumed   7 failed",
            "handshake 2.5 ms / -   backend - / -   wake - / -   (p50 / p99)",
            "slots       ██████████████··········",
            "certificates  example.com ends in 24 h",
            "backends      127.0.0.1:80  passed over  12,000 connections",
            "control     11       4 s      2929 KiB   started again 2×",
            "worker 0    13       2 h      3906 KiB   11,990",
        ] {
            assert!(
                page.contains(expected),
                "{expected:?} is missing in:\n{page}"
            );
        }
    }

    #[test]
    fn a_tiny_screen_and_no_answer_are_no_harm() {
        let mut seen = Seen::new(answer(1));
        seen.look(Err("nobody answers\nat all".to_owned()));
        let page = seen.page((20, 3), false).replace("\x1b[K", "");
        let lines: Vec<&str> = page.split("\r\n").collect();
        assert_eq!(lines.len(), 3, "{page}");
        assert_eq!(lines[1], "nobody answers at al");
        seen.look(Ok(json!({})));
        let _ = seen.page((80, 24), true);
        let _ = seen.page((0, 0), true);
    }
}
