//! Fuzz targets for every parser.
//!
//! A [`Target`] is a parser with assertions that must hold for any input: no panic, bounded work, and for some
//! parsers that encoding the parsed value gives the same bytes. Each target has seeds in `fuzz/seeds/NAME`.
//! The targets are run in three ways:
//!
//! - `tests/smoke.rs`, in `make test`: the seeds and some mutations of each;
//! - `make fuzz MINUTES=n`: libFuzzer, guided by the coverage of Dormouse's crates;
//! - `dormouse-fuzz NAME SECONDS`, built without libFuzzer: the mutations of [`mutate::run`].
#![forbid(unsafe_code)]

pub mod mutate;
mod targets;

use std::path::PathBuf;

/// A parser under test.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The target's name, which is also the name of the folder with its seeds.
    pub name: &'static str,
    /// Runs the parser on one input. Panics when an assertion fails.
    pub run: fn(&[u8]),
}

const fn target(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run }
}

/// All targets.
pub const TARGETS: &[Target] = &[
    target("open", targets::records::run),
    target("client_hello", targets::tls::client_hello),
    target("handshake_framing", targets::tls::framing),
    target("stream_server", targets::tls::server),
    target("stream_client", targets::tls::client),
    target("session_calls", targets::calls::run),
    target("c_calls", dormouse::fuzzed::run),
    target("server_session", targets::sessions::of_server),
    target("client_session", targets::sessions::of_client),
    target("ticket_keys", targets::sessions::ticket_keys),
    target("proxy_protocol", targets::proxy_protocol::run),
    target("http_request", targets::messages::http_request),
    target("http_response", targets::messages::http_response),
    target("dns", targets::messages::dns),
    target("dns_updates", targets::messages::dns_updates),
    target("resp", targets::messages::resp),
    target("spiffe", targets::messages::spiffe),
    target("ocsp", targets::x509::ocsp),
    target("certificate", targets::x509::certificate),
    target("peer_certificates", targets::peer_certificates::run),
    target("pem", targets::pem::run),
    target("config", targets::configuration::ours),
    target("nginx", targets::configuration::nginx),
    target("haproxy", targets::configuration::haproxy),
    target("hitch", targets::configuration::hitch),
    target("stunnel", targets::configuration::stunnel),
    target("handover", targets::handover::document),
    target("slots", targets::handover::slots),
    target("orders", targets::handover::orders),
    target("proc_files", targets::instrument::proc_files),
    target("tcp_segment", targets::tcp_segment::run),
    target("heap", targets::instrument::heap),
    target("symbols", targets::instrument::symbols),
    target("server_replies", targets::instrument::server_replies),
    target("audited_client", targets::instrument::audited_client),
    target("starttls", targets::instrument::starttls),
    target("mqtt", targets::mqtt::run),
    target("starttls_clients", targets::starttls_clients::run),
    target("starttls_servers", targets::starttls_servers::run),
    target("printable", targets::messages::printable),
];

impl Target {
    /// The target with this name.
    pub fn named(name: &str) -> Option<Target> {
        TARGETS.iter().copied().find(|target| target.name == name)
    }

    /// The folder with its seeds.
    pub(crate) fn seeds_folder(&self) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("seeds")
            .join(self.name)
    }

    /// The seeds, in the order of their file names.
    ///
    /// # Errors
    /// When a seed can't be read.
    pub fn seeds(&self) -> std::io::Result<Vec<Vec<u8>>> {
        let mut files: Vec<PathBuf> = std::fs::read_dir(self.seeds_folder())?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()?;
        files.sort();
        files.iter().map(std::fs::read).collect()
    }
}
