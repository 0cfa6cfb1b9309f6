//! libdormouse from C and Go, with foreign peers, under valgrind and AddressSanitizer.

mod build;
mod examples;
mod misuse;
mod peers;
mod process;
