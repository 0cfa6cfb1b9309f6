//! The commands of the README and the guide, as written: the first example of each page, and all of the
//! README.
//!
//! Every block runs on its own [`Machine`](dormouse_interop::machine::Machine), with what a reader has: a
//! certificate, a configuration, a backend. A server that a block starts gets a request and is stopped.
//! `<!-- not run: REASON -->` before a block skips it.

mod configurations;
mod neighbours;
mod page;
mod run;

use page::{Block, blocks, guide, repository};
use std::process::Command;

/// Runs the examples of a page that `choose` selects. Every block must be run or say why not.
fn examples(page: &str, choose: impl Fn(usize) -> bool) {
    let examples = blocks(page).into_iter().filter(Block::is_example);
    for (number, block) in examples.enumerate() {
        match &block.not_run {
            Some(reason) => println!("{page}:{}: not run: {reason}", block.line),
            None if choose(number) => run::block(page, &block),
            None => {}
        }
    }
}

macro_rules! pages {
    ($($test:ident: $page:literal,)*) => {
        $(#[test]
        fn $test() {
            examples(concat!("docs/guide/", $page, ".md"), |number| number == 0);
        })*

        const RUN: &[&str] = &[$(concat!("docs/guide/", $page, ".md"),)*];
    };
}

pages! {
    acme: "acme",
    audit: "audit",
    backends: "backends",
    bench: "bench",
    certificates: "certificates",
    client_certificates: "client-certificates",
    configuration: "configuration",
    connect: "connect",
    connection_log: "connection-log",
    connections: "connections",
    deep_rest: "deep-rest",
    containers: "containers",
    drain: "drain",
    fleets: "fleets",
    installing: "installing",
    embedding: "embedding",
    limits: "limits",
    metrics: "metrics",
    moving_from_ghostunnel: "moving-from-ghostunnel",
    moving_from_haproxy: "moving-from-haproxy",
    moving_from_hitch: "moving-from-hitch",
    moving_from_nginx: "moving-from-nginx",
    moving_from_stunnel: "moving-from-stunnel",
    moving_in: "moving-in",
    protection: "protection",
    proxy_protocol: "proxy-protocol",
    recipes: "recipes",
    redirect: "redirect",
    reload: "reload",
    resumption: "resumption",
    runtime: "runtime",
    serve: "serve",
    spiffe: "spiffe",
    starttls: "starttls",
    status: "status",
    syslog: "syslog",
    systemd: "systemd",
    upgrade: "upgrade",
}

#[test]
#[ignore = "three whole audits: three minutes"]
fn audit_at_length() {
    examples("docs/guide/audit.md", |number| number == 1);
}

#[test]
fn readme() {
    examples("README.md", |_| true);
}

#[test]
fn every_page_with_examples_is_run() {
    for page in guide() {
        let has_examples = blocks(&page).iter().any(Block::is_example);
        assert_eq!(has_examples, RUN.contains(&page.as_str()), "{page}");
    }
}

/// `cargo build --release`, as the README has it, builds the program alone: `capi` refuses the release profile. The
/// tests replace the profile, because that build takes minutes; `make test-full` runs it.
#[test]
fn cargo_builds_the_program_alone() {
    let mut cargo = Command::new(env!("CARGO"));
    let arguments = ["tree", "--locked", "--depth=0", "--edges=normal"];
    let printed = cargo
        .args(arguments)
        .args(["--format={p}"])
        .current_dir(repository())
        .output()
        .expect("cargo starts");
    let packages = String::from_utf8_lossy(&printed.stdout);
    let names: Vec<_> = packages
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(names, ["dormouse"], "{printed:?}");
}
