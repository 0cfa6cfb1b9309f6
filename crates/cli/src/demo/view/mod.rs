//! Views of the demo: an animation, or lines where there is no terminal.

mod cells;
mod frame;
mod lines;
mod picture;
mod sparkline;

use std::io::{self, IsTerminal as _};
use std::time::Instant;

use super::plan::Plan;
use crate::terminal;
pub(super) use frame::{Chapter, Frame, Scene};

use lines::Lines;
use picture::Picture;

/// A view.
pub(super) enum View {
    Picture(Picture),
    Lines(Lines),
}

impl View {
    pub(super) fn open(plain: bool, plan: &Plan, command: &str) -> View {
        if plain || !terminal::can_draw() || !io::stdout().is_terminal() || !Picture::fits() {
            View::Lines(Lines::open(plan, command))
        } else {
            View::Picture(Picture::open(
                terminal::colours_on(&io::stdout()),
                plan,
                command,
            ))
        }
    }

    /// Begins a scene, or changes its text.
    pub(super) fn begin(&mut self, scene: &Scene) {
        if let View::Lines(lines) = self {
            lines.begin(scene);
        }
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= match self {
            View::Picture(picture) => picture.next,
            View::Lines(lines) => lines.next,
        }
    }

    pub(super) fn draw(&mut self, frame: &Frame<'_>) {
        match self {
            View::Picture(picture) => picture.draw(frame),
            View::Lines(lines) => lines.draw(frame),
        }
    }
}
