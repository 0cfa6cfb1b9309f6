//! The binary `dormouse`.
#![forbid(unsafe_code)]

mod bench;

use clap::Parser;

/// TLS connections that sleep.
#[derive(Parser)]
#[command(version)]
enum Command {
    /// Load a TLS server and measure what it costs
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Bench(bench::BenchArgs),
}

fn main() -> std::process::ExitCode {
    match Command::parse() {
        Command::Bench(args) => bench::run(args),
    }
}
