//! The world as it is: inputs from public reports of the field, with what other programs and ours do with them.
//!
//! The rows are in `interop/world/*.toml`, and `docs/internals/world.md` shows them. `DORMOUSE_WORLD=TEXT` runs only
//! the rows whose situation or file name contains this text.

mod page;
mod program;
mod stage;
mod table;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use dormouse_interop::terminator::Can;

use stage::{Stage, World};
use table::Subject;

/// Rows at a time for each core: a row waits more than it computes.
const ROWS_PER_CORE: usize = 2;

#[test]
fn every_input_has_the_result_in_the_table() {
    requires!(
        Can::BeDormouse,
        "openssl",
        "python3",
        "nginx",
        "haproxy",
        "hitch",
        "stunnel"
    );
    let world = World::new();
    let subjects = Subject::all();
    let wanted = std::env::var("DORMOUSE_WORLD").unwrap_or_default();
    let stages: Vec<Stage<'_>> = subjects
        .iter()
        .flat_map(|subject| Stage::of(subject, &wanted))
        .collect();
    assert!(!stages.is_empty(), "no row contains `{wanted}`");
    let faults = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores * ROWS_PER_CORE {
            scope.spawn(|| {
                while let Some(stage) = stages.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = stage.run(&world);
                    faults.lock().expect("no panic").extend(found);
                }
            });
        }
    });
    let faults = faults.into_inner().expect("no panic");
    assert!(
        faults.is_empty(),
        "{} results differ from interop/world:\n\n{}",
        faults.len(),
        faults.join("\n\n")
    );
}
