//! Small TLS servers and clients with one fault each, which `dormouse audit` must find, and healthy
//! twins, in which it must not.
//!
//! ```text
//! sick server FAULT ADDRESS [OBJECTS]     an echo server
//! sick client FAULT ADDRESS [TIMES]       requests / this often; trusts SSL_CERT_FILE
//! ```
//!
//! | server's fault | what it does | healthy twin |
//! |---|---|---|
//! | `trust-store` | parses 140 root certificates for every connection and keeps them | `trust-store-shared` |
//! | `buffers` | keeps a buffer of 16 kB in each direction | `buffers-released` |
//! | `session-cache` | keeps every new session forever | `session-cache-bounded` |
//! | `fragments` | has long-lived entries among the garbage of handshakes; nothing leaks | `fragments-apart` |
//! | `leak` | leaks 2,000 bytes when a connection closes | `healthy` |
//! | `no-resumption` | has no tickets | `healthy` |
//! | `one-of-four` | four processes, each with ticket keys of its own | `four-shared` |
//! | `keys-forgotten` | makes new ticket keys after two seconds without a connection, and forgets the former ones | `healthy` |
//! | `compression` | chooses DEFLATE when it is offered | `healthy` |
//! | `first` | walks over OBJECTS objects at the first connection | `first-early`: at the start |
//! | `burn` | uses 3 ms more CPU time per handshake | `healthy` |
//!
//! | client's fault | what it does | healthy twin |
//! |---|---|---|
//! | `never` | a new TLS context for each connection | `renewing` |
//! | `for-ever` | the session of its first connection, for all | `renewing` |
#![forbid(unsafe_code)]

mod client;
mod fault;
mod server;

use std::error::Error;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome: Result<(), Box<dyn Error>> = match words.as_slice() {
        ["server", fault, address, more @ ..] => server::run(fault, address, more),
        ["process", fault] => server::process(fault),
        ["client", fault, address, more @ ..] => client::run(fault, address, more),
        _ => Err("usage: sick server|client FAULT ADDRESS [NUMBER]".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sick: {error}");
            ExitCode::from(2)
        }
    }
}
