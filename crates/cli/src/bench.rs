//! `dormouse bench`: arguments in, a table or JSON out.

pub(crate) mod console;
pub(crate) mod options;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use dormouse_bench::Spec;
use dormouse_bench::load::{Launcher, generator};
use dormouse_bench::model::{Run, table};
use dormouse_bench::report;
use dormouse_measure::Error;
use dormouse_printable::lines;

use crate::results::{JsonOutput, Written};
use crate::terminal;
use console::Terminal;
use options::{BulkArgs, ChurnArgs, HoldArgs, Output, RequestArgs, WakeArgs};

/// Load a TLS server and measure what it costs.
#[derive(Args, Debug)]
#[command(after_help = "\
Memory and CPU time are measured for the whole process tree of the server: name it with --pid, or start it \
with --cmd.\n\
Exit status: 0 success, 1 connections failed or were lost (or the run was interrupted), 2 wrong usage, 3 the server or the \
operating system failed.")]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    mode: Mode,
}

#[derive(Subcommand, Debug)]
enum Mode {
    /// Open many connections and hold them: what does a quiet connection cost?
    #[command(after_help = "\
Examples:\n  \
dormouse bench hold 127.0.0.1:8443 -n 10000 --pid $(pgrep -o -x nginx) --insecure\n  \
dormouse bench hold 127.0.0.1:8443 -n 200 --every 5s --greeting --for 60s --ca ca.pem\n  \
dormouse bench hold 127.0.0.1:8443 -n 10000 --insecure \\\n    \
--cmd 'dormouse serve --listen 127.0.0.1:8443 --to echo: --self-signed localhost'")]
    Hold(HoldArgs),
    /// Connect, exchange a message, close, in rounds: what does a handshake cost, and how much
    /// memory is retained?
    #[command(after_help = "\
Example: five rounds of 20,000 handshakes, 500 at a time, to see whether the server grows\n  \
dormouse bench churn 127.0.0.1:8443 -n 20000 -c 500 --rounds 5 --pid 4711 --insecure")]
    Churn(ChurnArgs),
    /// Stream bytes both ways: what does a gigabyte cost?
    #[command(after_help = "\
Example: 8 streams, 512 MB each way on each (with --http, 512 MB of responses on each)\n  \
dormouse bench bulk 127.0.0.1:8443 -c 8 --bytes 512M --pid 4711 --insecure")]
    Bulk(BulkArgs),
    /// Hold quiet connections and wake some: what does waking cost?
    #[command(after_help = "\
Compare with plain TCP:\n  \
dormouse bench wake 127.0.0.1:8443 -n 10000 --per-second 200 --insecure --json tls.json\n  \
dormouse bench wake 127.0.0.1:7000 -n 10000 --per-second 200 --plain --json plain.json\n  \
dormouse bench report tls.json plain.json -o wake.html")]
    Wake(WakeArgs),
    /// Make HTTP/1.1 requests
    Request(RequestArgs),
    /// Write a self-contained HTML page of runs saved with --json
    Report(ReportArgs),
    /// A load generator, which the other modes start.
    #[command(hide = true)]
    Generator,
}

#[derive(Args, Debug)]
struct ReportArgs {
    /// JSON files: one run, a list of runs, or one run per line
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// File for the page
    #[arg(short, long, default_value = "report.html", value_name = "FILE")]
    output: PathBuf,
    /// Headline of the page
    #[arg(long, default_value = "TLS servers, measured")]
    title: String,
}

/// Carries out `dormouse bench`.
pub(crate) fn run(args: BenchArgs) -> ExitCode {
    let outcome = match args.mode {
        Mode::Hold(args) => measure(args.spec()),
        Mode::Churn(args) => measure(args.spec()),
        Mode::Bulk(args) => measure(args.spec()),
        Mode::Wake(args) => measure(args.spec()),
        Mode::Request(args) => measure(args.spec()),
        Mode::Report(args) => draw(&args),
        // The generator has reported its error to the process that started it.
        Mode::Generator => {
            return generator::run().map_or(ExitCode::from(3), |()| ExitCode::SUCCESS);
        }
    };
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            terminal::note(format_args!("dormouse bench: {error}"));
            ExitCode::from(error.exit_status())
        }
    }
}

fn measure(described: Result<(Spec, Output), Error>) -> Result<u8, Error> {
    let (spec, output) = described?;
    let program = std::env::current_exe()
        .map_err(|error| Error::system(format!("finding this program: {error}")))?;
    let launcher = Launcher {
        program,
        arguments: vec!["bench".into(), "generator".into()],
    };
    let json = JsonOutput::open(output.json.as_deref())?;
    let mut run = dormouse_bench::run(&spec, &launcher, &mut Terminal::new(output.quiet));
    for (library, version) in [
        ("rustls", env!("DORMOUSE_RUSTLS")),
        ("aws-lc-rs", env!("DORMOUSE_AWS_LC_RS")),
    ] {
        run.versions.insert(library.into(), version.into());
    }
    let (is_shown, written) = publish(&run, json)?;
    if let Some(message) = run.outcome.message.as_ref().filter(|_| !is_shown) {
        terminal::note(format_args!("dormouse bench {}: {message}", run.mode));
    }
    written.end()?;
    Ok(run.outcome.exit_status)
}

/// Writes the JSON to its file, and the table to the terminal. Returns whether there is a table, which shows how the
/// run ended: there is none if nothing was measured.
fn publish(run: &Run, json: JsonOutput) -> Result<(bool, Written), Error> {
    let text =
        serde_json::to_string(run).map_err(|error| Error::system(format!("JSON: {error}")))?;
    let text = dormouse_printable::json(&text) + "\n";
    let mut written = Written::default();
    match json {
        JsonOutput::Stdout => {
            written.print(&text);
            return Ok((false, written));
        }
        JsonOutput::File(mut file) => written.save(&mut file, &text),
        JsonOutput::None => {}
    }
    let tabled = !run.figures.is_empty();
    if tabled {
        written.print(&lines(&table(run)).to_string());
    }
    Ok((tabled, written))
}

fn draw(args: &ReportArgs) -> Result<u8, Error> {
    let mut runs = Vec::new();
    for path in &args.files {
        let text = fs::read_to_string(path)
            .map_err(|error| Error::usage(format!("cannot read {}: {error}", path.display())))?;
        let read = report::read(&text)
            .map_err(|error| Error::usage(format!("{}: {error}", path.display())))?;
        runs.extend(read);
    }
    let page = report::page(&args.title, &runs);
    fs::write(&args.output, page).map_err(|error| {
        Error::system(format!("cannot write {}: {error}", args.output.display()))
    })?;
    let file = args.output.display();
    terminal::line(format_args!("{} run(s) written to {file}", runs.len()));
    Ok(0)
}
