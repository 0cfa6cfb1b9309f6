//! Tests of `dormouse` with foreign software and real processes, by subject.
//!
//! The tests run concurrently in one process. A test whose figures depend on other load belongs to
//! `tests/alone`.

#[macro_use(requires)]
extern crate dormouse_interop;

mod audit;
mod backends;
mod certificates;
mod clients;
mod confinement;
mod connect;
mod documents;
mod limits;
mod moving_in;
mod operation;
mod resumption;
mod survival;
mod world;
