//! A view of text lines, one per second, for logs and simple terminals.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::frame::{Frame, Scene};
use crate::demo::format::{duration, megabytes, number};
use crate::demo::plan::Plan;
use crate::terminal;

const EVERY: Duration = Duration::from_secs(1);

pub(in crate::demo) struct Lines {
    pub(super) next: Instant,
    title: String,
}

impl Lines {
    pub(super) fn open(plan: &Plan, command: &str) -> Lines {
        let note = plan
            .note
            .as_ref()
            .map_or_else(String::new, |note| format!("note: {note}\n"));
        terminal::print(&format!("{note}$ {command}\n"));
        Lines {
            next: Instant::now() + EVERY,
            title: String::new(),
        }
    }

    pub(super) fn begin(&mut self, scene: &Scene) {
        if self.title != scene.title {
            self.title.clone_from(&scene.title);
            terminal::print(&format!("\n{}\n", scene.title));
        }
    }

    pub(super) fn draw(&mut self, frame: &Frame<'_>) {
        self.next = frame.now + EVERY;
        let (census, tally) = (frame.census, frame.fleet.tally);
        let mut line = format!("{:>4} s", frame.elapsed.as_secs());
        let counts = [
            (census.at_rest, "at rest"),
            (census.handshaking, "handshaking"),
            (census.awake, "awake"),
            (census.unheard, "unheard"),
            (tally.lost, "lost"),
            (tally.wrong, "wrong"),
            (tally.failed, "failed"),
        ];
        let mut between = "  ";
        for (value, what) in counts
            .into_iter()
            .filter(|&(value, what)| value > 0 || what == "at rest")
        {
            // Writing into a String can't fail.
            let _ = write!(line, "{between}{} {what}", number(value));
            between = ", ";
        }
        if tally.echoes > 0 {
            let _ = write!(
                line,
                "; {} echoes correct, slowest {}",
                number(tally.echoes),
                duration(tally.slowest)
            );
        }
        if let Some(bytes) = frame.memory_bytes() {
            let _ = write!(line, "; memory {}", megabytes(bytes));
        }
        if let Some(bytes) = frame.per_connection() {
            let _ = write!(line, ", {} bytes per connection", number(bytes));
        }
        line.push('\n');
        terminal::print(&line);
    }
}
