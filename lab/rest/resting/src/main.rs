//! Both far ends of a gateway's connections, which rest like the gateway's own: so millions of connections fit into
//! one machine, and what they cost is seen without the sockets of a load generator.
//!
//! ```text
//! resting backend ADDRESS COUNT     a plain echo server
//! resting clients ADDRESS COUNT     TLS clients; each line of the standard input is an order
//! ```
//!
//! | order | what the clients do |
//! |---|---|
//! | `open N` | N more connections, each with an echo |
//! | `echo N` | N echoes, each on the connection whose turn it is |
//! | `pace RATE SECONDS` | the same at a rate |
//!
//! Each order is answered by a line of JSON. Needs what a gateway with `rest_after` needs at its start.
#![forbid(unsafe_code)]

mod backend;
mod clients;
mod sleepers;

use std::error::Error;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["backend", address, count] => parsed(address, count).and_then(|(a, c)| backend::run(a, c)),
        ["clients", address, count] => parsed(address, count).and_then(|(a, c)| clients::run(a, c)),
        _ => Err("usage: resting backend|clients ADDRESS COUNT".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("resting: {error}");
            ExitCode::from(2)
        }
    }
}

fn parsed(address: &str, count: &str) -> Result<(std::net::SocketAddr, u32), Box<dyn Error>> {
    Ok((address.parse()?, count.parse()?))
}
