//! The connections as a field of cells, each for one or several connections.

use std::time::{Duration, Instant};

use crate::demo::client::{Client, Phase};
use crate::paint::Style;

/// How long a cell shows an echo brightly, and how long it takes to fade.
const BRIGHT: Duration = Duration::from_millis(200);
const GLOW: Duration = Duration::from_millis(550);
const FADING: Duration = Duration::from_millis(900);

/// What a cell shows. Of several connections, the one whose state is last in this list counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Cell {
    Nothing,
    AtRest,
    Faded,
    Glowing,
    Awake,
    Handshaking,
    Unheard,
    Lost,
}

impl Cell {
    fn of(client: &Client, now: Instant) -> Cell {
        if client.unheard {
            return Cell::Unheard;
        }
        match client.phase {
            Phase::Unopened | Phase::Closed => Cell::Nothing,
            Phase::Connecting | Phase::Handshaking => Cell::Handshaking,
            Phase::Awake(_) => Cell::Awake,
            Phase::Lost => Cell::Lost,
            Phase::AtRest => match client.answered.map(|at| now.saturating_duration_since(at)) {
                Some(since) if since < BRIGHT => Cell::Awake,
                Some(since) if since < GLOW => Cell::Glowing,
                Some(since) if since < FADING => Cell::Faded,
                _ => Cell::AtRest,
            },
        }
    }

    /// Returns a sign and a style. Signs differ, so that the field is readable without colours.
    pub(super) fn look(self) -> (&'static str, Style) {
        match self {
            Cell::Nothing => (" ", Style::Plain),
            Cell::AtRest => ("·", Style::Colour(67)),
            Cell::Faded => ("•", Style::Colour(29)),
            Cell::Glowing => ("•", Style::Colour(41)),
            Cell::Awake => ("●", Style::Bright(120)),
            Cell::Handshaking => ("◌", Style::Bright(221)),
            Cell::Unheard => ("?", Style::Colour(203)),
            Cell::Lost => ("✕", Style::Label(196)),
        }
    }
}

/// The distribution of connections over cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    pub(super) per_cell: usize,
    pub(super) columns: usize,
    pub(super) rows: usize,
}

impl Layout {
    /// Returns the layout with the fewest connections per cell in which all of them fit.
    pub(super) fn new(connections: usize, columns: usize, rows_max: usize) -> Layout {
        let (columns, rows_max) = (columns.max(1), rows_max.max(1));
        let per_cell = connections.div_ceil(columns * rows_max).max(1);
        let cells = connections.div_ceil(per_cell);
        let rows = cells.div_ceil(columns).max(1);
        // All rows have about the same length.
        Layout {
            per_cell,
            columns: cells.div_ceil(rows).max(1),
            rows,
        }
    }

    /// Returns the cells of one row.
    pub(super) fn row(
        self,
        row: usize,
        clients: &[Client],
        now: Instant,
    ) -> impl Iterator<Item = Cell> + '_ {
        let first = row * self.columns * self.per_cell;
        let clients = clients.get(first..).unwrap_or_default();
        clients
            .chunks(self.per_cell)
            .take(self.columns)
            .map(move |chunk| {
                chunk
                    .iter()
                    .map(|client| Cell::of(client, now))
                    .max()
                    .unwrap_or(Cell::Nothing)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_connections_fit_the_rows() {
        for connections in [1, 500, 5_000, 20_000] {
            for (columns, rows_max) in [(76, 9), (100, 30), (10, 1), (0, 0)] {
                let layout = Layout::new(connections, columns, rows_max);
                assert!(layout.per_cell * layout.columns * layout.rows >= connections);
                assert!(layout.rows <= rows_max.max(1));
                let clients: Vec<Client> = (0..connections as u64).map(Client::new).collect();
                let cells: usize = (0..layout.rows)
                    .map(|row| layout.row(row, &clients, Instant::now()).count())
                    .sum();
                assert_eq!(cells, connections.div_ceil(layout.per_cell));
            }
        }
    }
}
