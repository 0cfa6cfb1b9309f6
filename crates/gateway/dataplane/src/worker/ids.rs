//! The parts of connection ids that a worker continues from the one before it: the seed, so that connections keep
//! their ids, and the generations, so that no two connections of the same second have one id.

use crate::io::Io;
use crate::workspace::Workspace;
use dormouse_handover::slot::{GENERATION_NOTE, ID_SEED_NOTE};
use dormouse_reactor::slab::Header;
use std::sync::atomic::Ordering;

/// More new connections than one turn can have. A worker that dies has not noted those of its last turn.
const GENERATIONS_PER_TURN: u32 = 1 << 16;

/// Continues the predecessor's ids, if there was one.
pub(super) fn continue_from<I: Io>(header: &Header, work: &mut Workspace<I>) {
    if let Some(note) = header.note(ID_SEED_NOTE) {
        let own = work.id_seed;
        let first = note.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed);
        work.id_seed = first.map_or_else(|former| former, |_| own);
    }
    let noted = header.note(GENERATION_NOTE);
    let noted = noted.map_or(0, |note| note.load(Ordering::Relaxed) as u32);
    if noted > 0 {
        work.note_generation(noted.wrapping_add(GENERATIONS_PER_TURN));
    }
}

/// Notes the latest generation for the next worker. Called once per turn.
pub(super) fn note<I: Io>(header: &Header, work: &Workspace<I>) {
    if let Some(note) = header.note(GENERATION_NOTE) {
        note.store(work.generation().into(), Ordering::Relaxed);
    }
}
