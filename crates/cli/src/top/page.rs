//! The screen of `top`, made from the last two status documents: their difference gives rates.

use std::time::Instant;

use dormouse_config::show_number;
use dormouse_handover::status::{Count, LatencyFigures, LifePhase, ProcessFigures, Status};

use crate::figures::{Footprint, Handshakes};
use crate::paint::{Canvas, Style};
use crate::show::{age, bytes, or_dash};

const LABEL: Style = Style::Faint;
const GOOD: Style = Style::Colour(71);
const BAD: Style = Style::Bright(167);
const WARN: Style = Style::Colour(178);
const BAR: Style = Style::Colour(173);
/// Column where values begin.
const VALUES_AT: usize = 14;
const BAR_WIDTH: usize = 24;

/// The last status document, and rates since the one before.
pub(super) struct Dashboard {
    status: Status,
    at: Instant,
    /// Handshakes and bytes per second.
    handshakes_per_s: Option<f64>,
    bytes_per_s: Option<f64>,
    /// Why the last request failed.
    trouble: Option<String>,
}

impl Dashboard {
    pub(super) fn new(status: Status) -> Dashboard {
        Dashboard {
            status,
            at: Instant::now(),
            handshakes_per_s: None,
            bytes_per_s: None,
            trouble: None,
        }
    }

    /// Takes the next answer, or the error.
    pub(super) fn update(&mut self, answer: Result<Status, String>) {
        let status = match answer {
            Ok(status) => status,
            Err(trouble) => {
                self.trouble = Some(trouble);
                return;
            }
        };
        let passed_s = self.at.elapsed().as_secs_f64().max(0.001);
        // After a restart, counters begin at 0 again.
        let rate = |of: fn(&Status) -> u64| {
            let more = of(&status).saturating_sub(of(&self.status));
            Some(more as f64 / passed_s)
        };
        self.handshakes_per_s = rate(handshakes);
        self.bytes_per_s = rate(plain_bytes);
        self.status = status;
        self.at = Instant::now();
        self.trouble = None;
    }

    /// Renders the screen.
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
        self.routes(&mut page);
        self.backends(&mut page);
        self.processes(&mut page);
        page.canvas.finish()
    }

    fn head(&self, page: &mut Page) {
        let status = &self.status;
        page.line(|canvas| {
            let version = status.version.as_deref().unwrap_or("-");
            canvas.put(Style::Bold, &format!("dormouse {version}"));
            let style = if status.phase == LifePhase::Ready {
                GOOD
            } else {
                WARN
            };
            canvas.put(Style::Plain, "  ");
            canvas.put(style, status.phase.name());
            let main = status.main.as_ref();
            let age = or_dash(main.map(|main| main.process.age_s), age);
            canvas.put(LABEL, &format!(" for {age}"));
            canvas.put(LABEL, "   q: quit");
        });
        let configuration = status.configuration.as_ref();
        let reload = configuration.and_then(|configuration| configuration.last_reload.as_ref());
        let trouble = match (&self.trouble, &status.main, reload) {
            (Some(trouble), ..) => Some(trouble.clone()),
            (None, Some(main), _) if !main.alive => {
                Some("the main process is gone; workers still serve connections".to_owned())
            }
            (None, _, Some(reload)) if !reload.done => {
                let first = reload.words.lines().next().unwrap_or_default();
                Some(format!("the last reload was refused: {first}"))
            }
            _ => None,
        };
        page.line(|canvas| {
            canvas.put(BAD, &trouble.unwrap_or_default().replace('\n', " "));
        });
    }

    fn connections(&self, page: &mut Page) {
        let all = &self.status.connections;
        let there_are = all.at_rest + all.pending;
        page.value("connections", |canvas| {
            canvas.put(Style::Bold, &show_number(there_are));
            canvas.put(LABEL, &format!(" of {}", or_dash(all.max, show_number)));
        });
        page.value("", |canvas| {
            for (state, count) in [
                ("at rest", all.at_rest),
                ("pending", all.pending),
                ("handshaking", all.handshaking),
            ] {
                canvas.put(Style::Plain, &show_number(count));
                canvas.put(LABEL, &format!(" {state}   "));
            }
        });
        let Footprint { connections, fixed } = Footprint::of(&self.status);
        page.value("memory", |canvas| {
            canvas.put(Style::Plain, "192 B");
            canvas.put(LABEL, " for one more;  ");
            canvas.put(Style::Plain, &bytes(connections));
            canvas.put(LABEL, " for all;  fixed part ");
            canvas.put(Style::Plain, &bytes(fixed));
        });
        if let Some(rate) = self.bytes_per_s {
            page.value("plaintext", |canvas| {
                canvas.put(Style::Plain, &bytes(rate as u64));
                canvas.put(LABEL, " per second, both ways");
            });
        }
    }

    fn handshakes(&self, page: &mut Page) {
        let status = &self.status;
        let Handshakes {
            full,
            resumed,
            failed,
        } = Handshakes::of(status);
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
            let latency = &status.latency;
            for (
                what,
                LatencyFigures {
                    p50_ms_max,
                    p99_ms_max,
                    ..
                },
            ) in [
                ("handshake", &latency.handshake),
                ("backend", &latency.backend_connect),
                ("wake", &latency.wake),
            ] {
                let milliseconds = |bound: &Option<f64>| or_dash(*bound, |ms| format!("{ms} ms"));
                canvas.put(LABEL, &format!("{what} "));
                canvas.put(Style::Plain, &milliseconds(p50_ms_max));
                canvas.put(LABEL, " / ");
                canvas.put(Style::Plain, &milliseconds(p99_ms_max));
                canvas.put(LABEL, "   ");
            }
            canvas.put(LABEL, "(p50 / p99)");
        });
    }

    fn memory(&self, page: &mut Page) {
        for (n, (name, pool)) in self.status.memory.iter().enumerate() {
            let (used, bound) = (pool.used_bytes, pool.bound_bytes.unwrap_or(0));
            page.value(if n == 0 { "pools" } else { "" }, |canvas| {
                canvas.put(Style::Plain, name);
                canvas.go_to_column(VALUES_AT + 12);
                let filled = (used * BAR_WIDTH as u64).checked_div(bound).unwrap_or(0);
                let filled = (filled as usize).clamp(usize::from(used > 0), BAR_WIDTH);
                canvas.put(BAR, &"█".repeat(filled));
                canvas.put(LABEL, &"·".repeat(BAR_WIDTH - filled));
                let amounts = format!(" {} of {}", bytes(used), or_dash(pool.bound_bytes, bytes));
                canvas.put(Style::Plain, &amounts);
            });
        }
    }

    fn certificates(&self, page: &mut Page) {
        let all = self.status.certificates.iter().flatten();
        // Certificates that expire soonest come first.
        for (n, one) in all.take(3).enumerate() {
            page.value(if n == 0 { "certificates" } else { "" }, |canvas| {
                canvas.put(Style::Plain, &one.name);
                match u64::try_from(one.expires_in_s) {
                    Ok(left_s @ 1..) => {
                        let is_soon = left_s < 14 * 86_400;
                        canvas.put(LABEL, " expires in ");
                        canvas.put(if is_soon { WARN } else { GOOD }, &age(left_s));
                    }
                    _ => canvas.put(BAD, " EXPIRED"),
                }
            });
        }
    }

    fn routes(&self, page: &mut Page) {
        for (n, one) in self.status.routes.iter().take(3).enumerate() {
            page.value(if n == 0 { "routes" } else { "" }, |canvas| {
                canvas.put(Style::Plain, &one.name);
                let words = format!(
                    "  {} connections, {} opened, {} failed",
                    show_number(one.connections),
                    show_number(one.opened),
                    show_number(one.handshakes.failed)
                );
                canvas.put(LABEL, &words);
            });
        }
    }

    fn backends(&self, page: &mut Page) {
        for (n, one) in self.status.backends.iter().take(4).enumerate() {
            page.value(if n == 0 { "backends" } else { "" }, |canvas| {
                canvas.put(Style::Plain, &one.address);
                canvas.put(Style::Plain, "  ");
                let style = match one.state() {
                    "up" => GOOD,
                    "out" => Style::Plain,
                    _ => BAD,
                };
                canvas.put(style, one.state());
                canvas.put(
                    LABEL,
                    &format!("  {} connections", show_number(one.connections)),
                );
            });
        }
    }

    /// Draws one row per process, as far as the screen has rows.
    fn processes(&self, page: &mut Page) {
        page.line(|_| {});
        page.line(|canvas| canvas.put(LABEL, "process     pid      age      resident   at rest"));
        let status = &self.status;
        if let Some(main) = &status.main {
            page.process("main", &main.process, main.alive, 0, None);
        }
        let control = &status.control;
        page.process("control", &control.process, true, control.restarts, None);
        for (n, worker) in status.workers.iter().enumerate() {
            let (alive, restarts) = (worker.alive, worker.restarts);
            let at_rest = Some(worker.at_rest);
            let name = format!("worker {n}");
            page.process(&name, &worker.process, alive, restarts, at_rest);
            if let Some(keeper) = &worker.keeper {
                page.process(
                    &format!("keeper {n}"),
                    &keeper.process,
                    keeper.alive,
                    0,
                    None,
                );
            }
        }
    }
}

/// Lines of a screen, cut to its height.
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

    fn process(
        &mut self,
        name: &str,
        figures: &ProcessFigures,
        alive: bool,
        restarts: u64,
        at_rest: Option<u64>,
    ) {
        self.line(|canvas| {
            let row = format!(
                "{name:<11} {:<8} {:<8} {:<10} ",
                figures.pid,
                age(figures.age_s),
                or_dash(figures.resident_bytes, bytes)
            );
            canvas.put(Style::Plain, &row);
            if let Some(at_rest) = at_rest {
                canvas.put(Style::Plain, &format!("{:<9} ", show_number(at_rest)));
            }
            if !alive {
                canvas.put(BAD, "GONE");
            }
            if restarts > 0 {
                canvas.put(WARN, &format!("restarted {restarts}×"));
            }
        });
    }
}

fn handshakes(status: &Status) -> u64 {
    let Handshakes { full, resumed, .. } = Handshakes::of(status);
    full.wrapping_add(resumed)
}

fn plain_bytes(status: &Status) -> u64 {
    let (received, sent) = (Count::PlainBytesIn, Count::PlainBytesOut);
    status.count(received).wrapping_add(status.count(sent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(handshakes: u64) -> Status {
        let document = json!({
            "version": "0.1.0", "phase": "ready",
            "connections": { "at_rest": 11_990, "pending": 10, "handshaking": 1, "max": 20_000 },
            "counts": { "handshakes_full": handshakes, "handshakes_resumed": 3 * handshakes,
                "handshakes_failed": 7 },
            "latency": { "handshake": { "count": 4, "p50_ms_max": 2.5, "p99_ms_max": null } },
            "memory": { "slots": { "used_bytes": 2_304_000, "bound_bytes": 3_840_000 } },
            "certificates": [{ "name": "example.org", "file": "y.pem", "expires_in_s": -5 },
                { "name": "example.com", "file": "x.pem", "expires_in_s": 86_400 }],
            "routes": [{ "name": "shop", "connections": 12_000, "opened": 13_000 }],
            "backends": [{ "address": "127.0.0.1:80", "up": false, "connections": 12_000, "failures": 3 }],
            "main": { "pid": 10, "own_bytes": 3_000_000, "alive": true, "age_s": 300_000, "resident_bytes": 3_000_000 },
            "control": { "pid": 11, "own_bytes": 3_000_000, "age_s": 4, "restarts": 2, "resident_bytes": 3_000_000 },
            "workers": [{ "pid": 13, "own_bytes": 4_000_000, "alive": true, "age_s": 7_300, "restarts": 0,
                "resident_bytes": 4_000_000, "at_rest": 11_990,
                "keeper": { "pid": 12, "own_bytes": 2_000_000, "alive": true, "age_s": 9, "resident_bytes": 2_000_000 } }],
        });
        serde_json::from_value(document).expect("a document")
    }

    #[test]
    fn fits_a_small_screen() {
        let mut dashboard = Dashboard::new(answer(100));
        dashboard.update(Ok(answer(200)));
        let page = dashboard.page((80, 24), false).replace("\x1b[K", "");
        let lines: Vec<&str> = page.split("\r\n").collect();
        assert!(lines.len() <= 24, "{page}");
        for line in &lines {
            assert!(line.chars().count() <= 80, "{line}");
        }
        for expected in [
            "dormouse 0.1.0  ready for 3 days   q: quit",
            "connections   12,000 of 20,000",
            "memory        192 B for one more;  2250 KiB for all;  fixed part 9468 KiB",
            "75.0 % resumed   7 failed",
            "handshake 2.5 ms / -   backend - / -   wake - / -   (p50 / p99)",
            "slots       ██████████████··········",
            "certificates  example.org EXPIRED",
            "              example.com expires in 24 h",
            "routes        shop  12,000 connections, 13,000 opened, 0 failed",
            "backends      127.0.0.1:80  down  12,000 connections",
            "control     11       4 s      2929 KiB   restarted 2×",
            "worker 0    13       2 h      3906 KiB   11,990",
        ] {
            assert!(
                page.contains(expected),
                "{expected:?} is missing in:\n{page}"
            );
        }
    }

    #[test]
    fn survives_a_tiny_screen_and_a_failed_request() {
        let mut dashboard = Dashboard::new(answer(1));
        dashboard.update(Err("no answer here\nat all".to_owned()));
        let page = dashboard.page((20, 3), false).replace("\x1b[K", "");
        let lines: Vec<&str> = page.split("\r\n").collect();
        assert_eq!(lines.len(), 3, "{page}");
        assert_eq!(lines[1], "no answer here at al");
        dashboard.update(Ok(Status::default()));
        let _ = dashboard.page((80, 24), true);
        let _ = dashboard.page((0, 0), true);
    }
}
