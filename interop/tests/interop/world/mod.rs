//! The world as it is: inputs from public reports of the field, with what other programs and ours do with them.
//!
//! The rows are in `interop/world/*.toml`, and `interop/world/README.md` shows them. `DORMOUSE_WORLD=TEXT` runs only
//! the rows whose situation or file name contains this text.

mod page;
mod program;
mod stage;
mod table;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use dormouse_interop::terminator::Can;

use program::Program;
use stage::{Stage, World};
use table::Subject;

/// Rows at a time for each core: a row waits more than it computes.
const ROWS_PER_CORE: usize = 2;

/// Ours alone: the other programs take longer, and change less often.
#[test]
fn dormouse_does_with_every_input_what_the_table_says() {
    requires!(Can::BeDormouse, "openssl", "python3");
    try_all(&[Program::Dormouse]);
}

#[test]
#[ignore = "takes a minute or more: every row in each of its programs"]
fn every_program_does_with_every_input_what_the_table_says() {
    requires!(
        Can::BeDormouse,
        "openssl",
        "python3",
        "nginx",
        "haproxy",
        "hitch",
        "stunnel"
    );
    try_all(&Program::ALL);
}

/// Tries all rows with these programs.
fn try_all(programs: &[Program]) {
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
                    let found = stage.run(&world, programs);
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
