//! Simulations with every cut, every flipped bit and random orders of events. They are one program, so
//! that it is linked once and its tests run in parallel.

mod connections;
mod engine;
mod fairness;
mod record;
mod stream;
