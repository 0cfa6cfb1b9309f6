//! Progress of a run: a bar on a terminal, plain lines elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use dormouse_bench::{Console, MeasuredSide, Progress};
use indicatif::{ProgressBar, ProgressStyle};

use crate::terminal;

/// How often a line is printed where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Name of the pause between parts, which is not shown.
const SETTLING: &str = "settling";

/// Progress on the standard error.
pub(crate) struct Terminal {
    quiet: bool,
    fancy: bool,
    /// Whether each part is named when it begins, if there is no terminal.
    names: bool,
    stage: String,
    bar: Option<ProgressBar>,
    next_line: Instant,
}

impl Terminal {
    pub(crate) fn new(quiet: bool) -> Self {
        let fancy = std::io::stderr().is_terminal();
        Self {
            quiet,
            fancy,
            names: false,
            stage: String::new(),
            bar: None,
            next_line: Instant::now(),
        }
    }

    /// Returns a console for many parts, which names each of them if there is no terminal.
    pub(crate) fn naming(quiet: bool) -> Self {
        Self {
            names: true,
            ..Self::new(quiet)
        }
    }
}

impl Console for Terminal {
    fn note(&mut self, text: &str) {
        if !self.quiet {
            terminal::note(format_args!("note: {text}"));
        }
    }

    fn stage(&mut self, name: &str, total: Option<u64>) {
        self.stage = name.to_owned();
        self.next_line = Instant::now() + LINE_EVERY;
        if self.names && !self.quiet && !self.fancy && name != SETTLING {
            terminal::note(name);
        }
        if self.quiet || !self.fancy {
            return;
        }
        let bar = match total {
            Some(total) => ProgressBar::new(total).with_style(style(
                "{prefix:22} {bar:30.cyan} {human_pos}/{human_len}  {msg}",
            )),
            None => ProgressBar::new_spinner().with_style(style("{prefix:22} {spinner}  {msg}")),
        };
        bar.set_prefix(self.stage.clone());
        self.bar = Some(bar);
    }

    fn progress(&mut self, at: &Progress) {
        if let Some(bar) = &self.bar {
            // A part without a number to reach, such as a pause, has a spinner.
            if bar.length().is_some() {
                bar.set_position(at.done);
            } else {
                bar.tick();
            }
            bar.set_message(words(at));
        } else if !self.quiet && Instant::now() >= self.next_line {
            self.next_line = Instant::now() + LINE_EVERY;
            let of = at
                .total
                .map_or_else(String::new, |total| format!(" of {total}"));
            let words = words(at);
            let comma = if words.is_empty() { "" } else { ", " };
            terminal::note(format!("{}: {}{of}{comma}{words}", self.stage, at.done));
        }
    }

    fn stage_over(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn words(at: &Progress) -> String {
    let (count, side) = match at.whose {
        MeasuredSide::Server => (Some(format!("{} alive", at.alive)), "server"),
        MeasuredSide::Client => (Some(format!("{} connections", at.done)), "client"),
        MeasuredSide::Neither => (None, ""),
    };
    let failed = (at.failed > 0).then(|| format!("{} failed", at.failed));
    let memory = at
        .pss_bytes
        .map(|bytes| format!("{side} {:.1} MB", bytes as f64 / 1e6));
    let left = at.left.filter(|left| left.as_secs() > 0);
    let left = left.map(|left| format!("{} s left", left.as_secs()));
    let words: Vec<_> = [count, failed, memory, left]
        .into_iter()
        .flatten()
        .collect();
    words.join(", ")
}
