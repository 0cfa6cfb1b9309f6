//! Tests of the configuration from a user's side: what is written, and which messages it causes.

mod every;
mod fit;
mod flags;
mod fleet;
mod mistakes;
mod originate;
mod properties;
mod right;

use crate::load::Loader;
use crate::option::group::Group as _;
use crate::*;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

/// A machine for tests, the same everywhere.
fn machine() -> Machine {
    Machine {
        cores: 2,
        descriptors_max: 20_000,
        ipv6: true,
        backlog_max: 4096,
        local_ports: 28_232,
        tcp_bytes: 1 << 30,
        watches_max: 5_000_000,
        files_max: 2_000_000,
    }
}

/// Resolves host names for tests, the same everywhere.
fn resolve(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    match name {
        "localhost" => Ok(vec![
            SocketAddr::new([0, 0, 0, 0, 0, 0, 0, 1].into(), port),
            SocketAddr::new([127, 0, 0, 1].into(), port),
        ]),
        "six" => Ok(vec![SocketAddr::new(
            [0xfd00, 0, 0, 0, 0, 0, 0, 6].into(),
            port,
        )]),
        "www.example.com" | "www.example.com." => {
            Ok(vec![SocketAddr::new([192, 0, 2, 7].into(), port)])
        }
        "nowhere" => Ok(Vec::new()),
        _ => Err(io::Error::other(
            "failed to lookup address information: Name or service not known",
        )),
    }
}

pub(crate) fn load_text(text: &str) -> Result<Loaded, Mistakes> {
    load_with(text, &[], &machine())
}

fn load_with(text: &str, flags: &[Flag], machine: &Machine) -> Result<Loaded, Mistakes> {
    Loader {
        flags,
        ..loader(text, machine)
    }
    .load()
}

/// A loader of a file without flags, to be changed by tests.
fn loader<'a>(text: &'a str, machine: &'a Machine) -> Loader<'a> {
    Loader {
        file: Some(Path::new("etc/dormouse.toml")),
        text,
        section: Section::Route,
        flags: &[],
        machine,
        resolve: &resolve,
        environment: &|_| None,
        examine: &|_| Vec::new(),
    }
}

fn load_flags(flags: &[(&str, &str)]) -> Result<Loaded, Mistakes> {
    let flags: Vec<Flag> = flags
        .iter()
        .map(|(name, value)| Flag::new(*name, *value))
        .collect();
    Loader {
        file: None,
        flags: &flags,
        ..loader("", &machine())
    }
    .load()
}

/// Returns the mistakes in a text.
fn errors_of(text: &str) -> String {
    match load_text(text) {
        Ok(loaded) => panic!("this was accepted: {:?}", loaded.config),
        Err(mistakes) => mistakes.to_string(),
    }
}
