//! libdormouse from C and Go, with foreign peers, under valgrind and AddressSanitizer.

mod build;
mod examples;
mod installed;
mod misuse;
mod peers;
mod process;
