//! libdormouse from C and Go, with foreign peers and under the eyes of valgrind and AddressSanitizer.

mod build;
mod examples;
mod misuse;
mod peers;
mod process;
