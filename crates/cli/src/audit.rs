//! `dormouse audit`: where memory and CPU time go, and what to change.

mod options;

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use dormouse_audit::{Audit, Thresholds, report};
use dormouse_bench::load::Launcher;
use dormouse_measure::Error;

use crate::bench::console::Terminal;
use crate::terminal;
use options::{ClientArgs, DiffArgs, JudgeArgs, Output, ReportArgs, ServerArgs};

/// Arguments of `audit`.
#[derive(Args, Debug)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "\
An audit reads what the operating system shows the owner of a process, and makes connections; it \
changes nothing.\n\
Exit status: 0 clean, 1 a threshold was breached or a finding is as severe as --fail-on says, 2 usage, \
3 the target or the operating system failed."
)]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// A server: what it offers, whether it resumes, what its connections keep and cost
    #[command(after_help = "\
Examples:\n  \
dormouse audit server 127.0.0.1:443 --pid $(pidof -s nginx) --insecure\n  \
dormouse audit server 127.0.0.1:8443 --cmd 'node server.js' --ca ca.pem --html audit.html\n  \
dormouse audit server example.org:443          a handful of connections, no load\n\n\
With the address alone only what is offered is told; what it costs needs --pid, --unit, --container or --cmd. \
The command after `again` shows one finding once more.")]
    Server(Box<ServerArgs>),
    /// A client: whether it resumes and keeps alive, what it offers and spends
    #[command(after_help = "\
Examples:\n  \
dormouse audit client -- curl -sS {url} {url} {url}\n  \
dormouse audit client -- python3 fetch.py          with DORMOUSE_URL in its environment\n  \
dormouse audit client -- java -jar app.jar {url}   a JVM is handed the authority too\n  \
dormouse audit client --relay 127.0.0.1:8080 -- ./load-test {url}\n  \
dormouse audit client --listen 127.0.0.1:8443 --ca-file ca.pem --limit 60s\n\n\
The client must trust an authority that is made for this run: its certificate is in the variables by which OpenSSL, \
curl, Python, Node.js, Go, Perl, git and JVMs are told; for others, {ca} is its file.")]
    Client(ClientArgs),
    /// Draw a self-contained HTML page of audits that were kept with --json, side by side
    Report(ReportArgs),
    /// Compare two audits that were kept with --json: what changed, beyond what chance does
    Diff(DiffArgs),
    /// Draw the findings of audits that were kept with --json anew, by their figures, and write them back
    Judge(JudgeArgs),
}

/// Carries out `dormouse audit`.
pub(crate) fn run(args: AuditArgs) -> ExitCode {
    let outcome = match args.what {
        What::Server(args) => server(&args),
        What::Client(args) => client(&args),
        What::Report(args) => draw(&args),
        What::Diff(args) => diff(&args),
        What::Judge(args) => judge(&args),
    };
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            terminal::note(format_args!("dormouse audit: {error}"));
            ExitCode::from(error.exit_status())
        }
    }
}

fn server(args: &ServerArgs) -> Result<u8, Error> {
    let spec = args.spec()?;
    let thresholds = args.thresholds();
    let program = std::env::current_exe()
        .map_err(|error| Error::system(format!("finding this program: {error}")))?;
    let launcher = Launcher {
        program,
        arguments: vec!["bench".into(), "generator".into()],
    };
    let audit =
        dormouse_audit::server::run(&spec, &launcher, &mut Terminal::naming(args.output.quiet));
    publish(audit, &thresholds, &args.output)
}

fn client(args: &ClientArgs) -> Result<u8, Error> {
    let spec = args.spec()?;
    let audit = dormouse_audit::client::run(&spec, &mut Terminal::naming(args.output.quiet));
    publish(audit, &args.thresholds(), &args.output)
}

/// Text to the standard output, JSON and HTML where they were asked for. Returns the exit status.
fn publish(mut audit: Audit, thresholds: &Thresholds, output: &Output) -> Result<u8, Error> {
    if audit.outcome.complete {
        let (breached, unknown) = thresholds.breaches(&audit);
        if !unknown.is_empty() {
            // What could not be measured is not clean.
            audit.outcome.exit_status = 3;
            audit.outcome.message = Some(format!("could not be judged: {}", unknown.join("; ")));
        }
        if !breached.is_empty() {
            audit.outcome.exit_status = 1;
            audit.outcome.message = Some(breached.join("; "));
        }
    }
    let to_stdout = |text: &str| {
        std::io::stdout()
            .write_all(text.as_bytes())
            .map_err(|error| Error::system(format!("writing: {error}")))
    };
    match &output.json {
        Some(path) if path.as_os_str() == "-" => to_stdout(&json(&audit)?)?,
        Some(path) => {
            write(path, &json(&audit)?)?;
            to_stdout(&report::text(&audit, form()))?;
        }
        None => to_stdout(&report::text(&audit, form()))?,
    }
    if let Some(path) = &output.html {
        let page = report::page(&report::title(&audit), std::slice::from_ref(&audit));
        write(path, &page)?;
    }
    if let Some(message) = &audit.outcome.message {
        terminal::note(format_args!("dormouse audit {}: {message}", audit.kind));
    }
    Ok(audit.outcome.exit_status)
}

/// What the standard output can show.
fn form() -> report::Form {
    let stdout = std::io::stdout();
    let size = terminal_size::terminal_size_of(&stdout);
    let file = report::Form::default();
    report::Form {
        width: size.map_or(file.width, |(width, _)| width.0.into()),
        colours: terminal::colours_on(&stdout),
    }
}

fn json(audit: &Audit) -> Result<String, Error> {
    let text =
        serde_json::to_string(audit).map_err(|error| Error::system(format!("JSON: {error}")))?;
    Ok(dormouse_printable::json(&text) + "\n")
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text)
        .map_err(|error| Error::system(format!("cannot write {}: {error}", path.display())))
}

fn read(path: &Path) -> Result<Vec<Audit>, Error> {
    let text = fs::read_to_string(path)
        .map_err(|error| Error::usage(format!("cannot read {}: {error}", path.display())))?;
    report::read(&text).map_err(|error| Error::usage(format!("{}: {error}", path.display())))
}

/// One audit per line, as [`read`] takes them.
fn judge(args: &JudgeArgs) -> Result<u8, Error> {
    for path in &args.files {
        let mut text = String::new();
        for mut audit in read(path)? {
            audit.judge_again();
            text += &json(&audit)?;
        }
        write(path, &text)?;
    }
    Ok(0)
}

fn diff(args: &DiffArgs) -> Result<u8, Error> {
    let one = |path: &Path| {
        let mut audits = read(path)?.into_iter();
        match (audits.next(), audits.next()) {
            (Some(audit), None) => Ok(audit),
            _ => Err(Error::usage(format!(
                "{} holds several audits; diff compares one with one",
                path.display()
            ))),
        }
    };
    let (before, after) = (one(&args.before)?, one(&args.after)?);
    let text = report::difference(&before, &after).map_err(Error::usage)?;
    for line in text.lines() {
        terminal::line(format_args!("{}", dormouse_printable::line(line)));
    }
    Ok(0)
}

fn draw(args: &ReportArgs) -> Result<u8, Error> {
    let mut audits = Vec::new();
    for path in &args.files {
        audits.extend(read(path)?);
    }
    write(&args.output, &report::page(&args.title, &audits))?;
    let file = args.output.display();
    terminal::line(format_args!("{} audit(s) drawn: {file}", audits.len()));
    Ok(0)
}
