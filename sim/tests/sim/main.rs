//! What must hold for every byte boundary, every flipped bit and every order of events, by seed: one
//! program, so that it is linked once and its tests run beside each other.

mod connections;
mod engine;
mod record;
mod stream;
