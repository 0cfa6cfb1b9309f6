//! Sessions as hosts use them. One test program, to link only once.

mod at_rest;
mod export;
mod hooks;
mod in_place;
mod pair;
mod session;
