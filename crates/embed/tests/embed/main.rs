//! Sessions as hosts use them. One program, so that it is linked once.

mod at_rest;
mod export;
mod hooks;
mod pair;
mod session;
