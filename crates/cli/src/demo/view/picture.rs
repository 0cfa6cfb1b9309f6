//! The picture: chapters, texts, the field of connections, and what they cost.

use std::time::{Duration, Instant};

use dormouse_reactor::process::Pid;

use super::cells::{Cell, Layout};
use super::frame::{Chapter, Frame};
use super::sparkline::sparkline;
use crate::demo::format::{duration, megabytes, number};
use crate::demo::plan::Plan;
use crate::demo::watch::Reading;
use crate::paint::{Canvas, Screen, Style};
use crate::terminal;

const EVERY: Duration = Duration::from_millis(80);
/// Rows around the field.
const ROWS_AROUND: usize = 16;
/// Smaller terminals get lines instead of a picture.
const FIELD_ROWS_MIN: usize = 3;
const COLUMNS_MIN: usize = 60;
/// Wider lines are hard to read.
const WIDTH_MAX: usize = 112;
const MARGIN: usize = 2;
/// Column where values begin.
const VALUES: usize = 19;

/// Distance of curves from the beginning of values.
const CURVES: usize = 10;

const ACCENT: u8 = 120;
const ALARM: u8 = 203;

pub(in crate::demo) struct Picture {
    pub(super) next: Instant,
    screen: Screen,
    colours: bool,
    command: String,
    note: Option<String>,
}

impl Picture {
    pub(super) fn open(colours: bool, plan: &Plan, command: &str) -> Picture {
        Picture {
            next: Instant::now(),
            screen: Screen::enter(),
            colours,
            command: command.to_owned(),
            note: plan.note.clone(),
        }
    }

    /// Returns whether the terminal is large enough for the picture.
    pub(super) fn fits() -> bool {
        let (columns, rows) = terminal::size();
        columns >= COLUMNS_MIN && rows >= ROWS_AROUND + FIELD_ROWS_MIN
    }

    pub(super) fn draw(&mut self, frame: &Frame<'_>) {
        self.next = frame.now + EVERY;
        // Read each time: the terminal may be resized.
        let (columns, rows) = terminal::size();
        self.screen.show(&self.paint(frame, columns, rows));
    }

    fn paint(&self, frame: &Frame<'_>, columns: usize, rows: usize) -> String {
        let width = columns.saturating_sub(2 * MARGIN).clamp(1, WIDTH_MAX);
        let mut canvas = Canvas::new((MARGIN + width).min(columns), self.colours);
        self.heading(&mut canvas, frame, width);
        words(&mut canvas, frame, width);
        let rows_max = rows.saturating_sub(ROWS_AROUND + usize::from(self.note.is_some()));
        field(&mut canvas, frame, width, rows_max);
        figures(&mut canvas, frame, width);
        if let Some(note) = &self.note {
            line(&mut canvas, width, Style::Faint, note);
        }
        canvas.finish()
    }

    fn heading(&self, canvas: &mut Canvas, frame: &Frame<'_>, width: usize) {
        canvas.end_line();
        canvas.go_to_column(MARGIN);
        for chapter in Chapter::ALL {
            let style = match chapter.cmp(&frame.scene.chapter) {
                std::cmp::Ordering::Less => Style::Colour(ACCENT),
                std::cmp::Ordering::Equal => Style::Label(if chapter == Chapter::Kill {
                    ALARM
                } else {
                    ACCENT
                }),
                std::cmp::Ordering::Greater => Style::Faint,
            };
            // Without colours, brackets mark the current chapter.
            let (left, right) = if chapter == frame.scene.chapter && !self.colours {
                ("[", "]")
            } else {
                (" ", " ")
            };
            canvas.put(style, &format!("{left}{}{right}", chapter.name()));
            canvas.put(Style::Plain, " ");
        }
        let seconds = frame.elapsed.as_secs();
        let clock = format!("{}:{:02}", seconds / 60, seconds % 60);
        canvas.go_to_column((MARGIN + width).saturating_sub(clock.len()));
        canvas.put(Style::Faint, &clock);
        canvas.end_line();
        line(canvas, width, Style::Faint, &format!("$ {}", self.command));
        processes(canvas, frame);
        canvas.end_line();
    }
}

/// Draws the processes and the connections between them.
fn processes(canvas: &mut Canvas, frame: &Frame<'_>) {
    canvas.go_to_column(MARGIN);
    canvas.put(Style::Plain, "clients ══ TLS ══> ");
    canvas.put(Style::Bold, "serve");
    canvas.put(Style::Plain, ": ");
    match frame.workers {
        [] => canvas.put(Style::Bright(ALARM), "workers killed"),
        workers => {
            let pids = workers.iter().map(Pid::to_string).collect::<Vec<_>>();
            canvas.put(
                Style::Colour(ACCENT),
                &format!("workers {}", pids.join(", ")),
            );
        }
    }
    canvas.put(Style::Plain, " ── plain ──> echo server");
    canvas.end_line();
}

fn words(canvas: &mut Canvas, frame: &Frame<'_>, width: usize) {
    let style = match frame.scene.chapter {
        Chapter::Kill => Style::Bright(ALARM),
        _ => Style::Bold,
    };
    line(canvas, width, style, &frame.scene.title);
    line(canvas, width, Style::Plain, &frame.scene.explanation);
    canvas.end_line();
}

/// Draws the connections, and what their signs mean.
fn field(canvas: &mut Canvas, frame: &Frame<'_>, width: usize, rows_max: usize) {
    let layout = Layout::new(frame.fleet.clients.len(), width, rows_max);
    for row in 0..layout.rows {
        canvas.go_to_column(MARGIN);
        for cell in layout.row(row, &frame.fleet.clients, frame.now) {
            let (sign, style) = cell.look();
            canvas.put(style, sign);
        }
        canvas.end_line();
    }
    canvas.end_line();
    let census = frame.census;
    let lost = match frame.fleet.tally.wrong {
        0 => "lost",
        _ => "lost or wrong",
    };
    let legend = [
        (Cell::AtRest, census.at_rest, "at rest"),
        (Cell::Handshaking, census.handshaking, "handshaking"),
        (Cell::Awake, census.awake, "awake"),
        (Cell::Unheard, census.unheard, "unheard"),
        (Cell::Lost, census.lost, lost),
    ];
    canvas.go_to_column(MARGIN);
    for (cell, value, what) in legend {
        // Constant entries keep their place; the others appear only when they happen.
        if value == 0 && matches!(cell, Cell::Unheard | Cell::Handshaking) {
            continue;
        }
        let (sign, style) = cell.look();
        canvas.put(style, sign);
        canvas.put(Style::Plain, &format!(" {} {what}  ", number(value)));
    }
    if layout.per_cell > 1 {
        canvas.put(
            Style::Faint,
            &format!("(each character: {} connections)", layout.per_cell),
        );
    }
    canvas.end_line();
    canvas.end_line();
}

/// Draws the figures: costs, and whether all echoes are correct.
fn figures(canvas: &mut Canvas, frame: &Frame<'_>, width: usize) {
    let all = |value: fn(&Reading) -> u64| frame.readings.iter().map(value).collect::<Vec<_>>();
    let open = number(frame.census.at_rest + frame.census.awake);
    curve(
        canvas,
        width,
        "connections",
        &open,
        &all(|reading| reading.connections),
    );
    let memory = frame
        .memory_bytes()
        .map_or_else(|| "…".to_owned(), megabytes);
    curve(
        canvas,
        width,
        "memory of serve",
        &memory,
        &all(|reading| reading.bytes),
    );

    name(canvas, "per connection");
    match frame.per_connection() {
        Some(bytes) => {
            canvas.put(Style::Bright(ACCENT), &format!("{} bytes", number(bytes)));
            let why = match frame.census.handshaking {
                0 => "   at rest: no buffer, no task, no object",
                _ => "   with the handshakes in flight",
            };
            canvas.put(Style::Faint, why);
        }
        None if frame.fleet.kill.is_some() => {
            canvas.put(Style::Faint, "not comparable: these are new processes");
        }
        None => canvas.put(Style::Faint, "…"),
    }
    canvas.end_line();

    let tally = frame.fleet.tally;
    name(canvas, "echoes compared");
    canvas.put(Style::Bold, &number(tally.echoes));
    if tally.echoes > 0 {
        canvas.put(
            Style::Plain,
            &format!(" ({}), ", megabytes(tally.echo_bytes)),
        );
        match tally.wrong {
            0 => canvas.put(Style::Colour(ACCENT), "all correct"),
            wrong => canvas.put(Style::Bright(ALARM), &format!("{wrong} WRONG")),
        }
        canvas.put(
            Style::Plain,
            &format!(", slowest {}", duration(tally.slowest)),
        );
    }
    canvas.end_line();
    since_the_kill(canvas, frame);
}

/// Draws a value and its curve since the beginning.
fn curve(canvas: &mut Canvas, width: usize, what: &str, value: &str, values: &[u64]) {
    name(canvas, what);
    canvas.put(Style::Bold, value);
    canvas.go_to_column(MARGIN + VALUES + CURVES);
    canvas.put(
        Style::Colour(67),
        &sparkline(values, width.saturating_sub(VALUES + CURVES)),
    );
    canvas.end_line();
}

fn since_the_kill(canvas: &mut Canvas, frame: &Frame<'_>) {
    let Some(kill) = frame.fleet.kill else { return };
    name(canvas, "since the kill");
    match kill.first_echo {
        Some(first) => canvas.put(
            Style::Bold,
            &format!("first echo after {}", duration(first)),
        ),
        None => canvas.put(Style::Bright(ALARM), "no echo yet"),
    }
    let lost = frame.fleet.tally.lost.saturating_sub(kill.lost_before);
    canvas.put(Style::Plain, &format!(", {} lost", number(lost)));
    canvas.end_line();
}

fn name(canvas: &mut Canvas, text: &str) {
    canvas.go_to_column(MARGIN);
    canvas.put(Style::Faint, text);
    canvas.go_to_column(MARGIN + VALUES);
}

/// Draws a line; one that is too long ends with an ellipsis.
fn line(canvas: &mut Canvas, width: usize, style: Style, text: &str) {
    canvas.go_to_column(MARGIN);
    if text.chars().count() <= width {
        canvas.put(style, text);
    } else {
        let shown: String = text.chars().take(width.saturating_sub(1)).collect();
        canvas.put(style, &format!("{shown}…"));
    }
    canvas.end_line();
}
