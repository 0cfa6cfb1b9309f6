//! `dormouse audit`: where memory and CPU time go, and what to change.

mod options;

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use dormouse_audit::{Audit, Thresholds, report};
use dormouse_bench::load::Launcher;
use dormouse_measure::Error;
use dormouse_reactor::file::behind_links;

use crate::bench::console::Terminal;
use crate::results::{JsonOutput, ResultFile, Written};
use crate::terminal;
use options::{ClientArgs, DiffArgs, JudgeArgs, Output, ReportArgs, ServerArgs};

/// Arguments of `audit`.
#[derive(Args, Debug)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "\
An audit reads what the operating system shows to the owner of a process, and makes connections. It \
changes nothing in the process, but may make its runtime collect garbage.\n\
Exit status: 0 clean, 1 a threshold was exceeded or a finding reached --fail-on, 2 wrong usage, \
3 the target or the operating system failed."
)]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    what: AuditCommand,
}

#[derive(Subcommand, Debug)]
enum AuditCommand {
    /// Audit a server: what it offers, whether it resumes sessions, what its connections cost
    #[command(after_help = "\
Examples:\n  \
dormouse audit server 127.0.0.1:443 --pid $(pgrep -o -x nginx) --insecure\n  \
dormouse audit server 127.0.0.1:8443 --cmd 'node server.js' --ca ca.pem --html audit.html\n  \
dormouse audit server example.org:443          a handful of connections, no load\n\n\
With an address alone, the audit shows what the server offers; to measure costs, add --pid, --unit, --container or --cmd. \
The command after `again` reproduces a finding.")]
    Server(Box<ServerArgs>),
    /// Audit a client: whether it resumes sessions and reuses connections, what it offers and costs
    #[command(after_help = "\
Examples:\n  \
dormouse audit client -- curl -sS {url} {url} {url}\n  \
dormouse audit client -- python3 fetch.py          with DORMOUSE_URL in its environment\n  \
dormouse audit client -- java -jar app.jar {url}   a JVM gets the authority too\n  \
dormouse audit client --relay 127.0.0.1:8080 -- ./load-test {url}\n  \
dormouse audit client --listen 127.0.0.1:8443 --ca-file ca.pem --limit 60s\n\n\
The client must trust an authority that is created for this run. Its certificate is in the variables that OpenSSL, \
curl, Python, Node.js, Go, Perl, git and JVMs read; for other clients, {ca} is the path of its file.")]
    Client(ClientArgs),
    /// Write a self-contained HTML page of audits saved with --json, side by side
    Report(ReportArgs),
    /// Compare two audits saved with --json: which figures changed significantly
    Diff(DiffArgs),
    /// Recompute the findings of audits saved with --json from their figures, and replace the files
    Judge(JudgeArgs),
}

/// Carries out `dormouse audit`.
pub(crate) fn run(args: AuditArgs) -> ExitCode {
    let outcome = match args.what {
        AuditCommand::Server(args) => server(&args),
        AuditCommand::Client(args) => client(&args),
        AuditCommand::Report(args) => draw(&args),
        AuditCommand::Diff(args) => diff(&args),
        AuditCommand::Judge(args) => judge(&args),
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
    let outputs = Outputs::open(&args.output)?;
    let audit =
        dormouse_audit::server::run(&spec, &launcher, &mut Terminal::naming(args.output.quiet));
    publish(audit, &thresholds, outputs)
}

fn client(args: &ClientArgs) -> Result<u8, Error> {
    let spec = args.spec()?;
    let outputs = Outputs::open(&args.output)?;
    let audit = dormouse_audit::client::run(&spec, &mut Terminal::naming(args.output.quiet));
    publish(audit, &args.thresholds(), outputs)
}

/// Where the results go.
struct Outputs {
    json: JsonOutput,
    html: Option<ResultFile>,
}

impl Outputs {
    fn open(output: &Output) -> Result<Self, Error> {
        if output.html.is_some() && output.html == output.json {
            return Err(Error::usage("--json and --html need a file each"));
        }
        let html = output.html.as_deref().map(ResultFile::open).transpose()?;
        let json = JsonOutput::open(output.json.as_deref())?;
        Ok(Self { json, html })
    }
}

/// Writes JSON and HTML to their files, and the text to standard output. Returns the exit status.
fn publish(mut audit: Audit, thresholds: &Thresholds, outputs: Outputs) -> Result<u8, Error> {
    if audit.outcome.complete {
        let (mut breached, unknown) = thresholds.breaches(&audit);
        // An audit with unmeasured thresholds is not clean.
        let exit_status = if breached.is_empty() { 3 } else { 1 };
        if !unknown.is_empty() {
            let unknown = unknown.join("; ");
            breached.push(format!("thresholds without a measurement: {unknown}"));
        }
        if !breached.is_empty() {
            audit.outcome.exit_status = exit_status;
            audit.outcome.message = Some(breached.join("; "));
        }
    }
    let mut written = Written::default();
    if let Some(mut file) = outputs.html {
        let page = report::page(&report::title(&audit), std::slice::from_ref(&audit));
        written.save(&mut file, &page);
    }
    let (json, text) = (json(&audit)?, report::text(&audit, form()));
    match outputs.json {
        JsonOutput::Stdout => written.print(&json),
        JsonOutput::File(mut file) => {
            written.save(&mut file, &json);
            written.print(&text);
        }
        JsonOutput::None => written.print(&text),
    }
    if let Some(message) = &audit.outcome.message {
        terminal::note(format_args!("dormouse audit {}: {message}", audit.kind));
    }
    written.end()?;
    Ok(audit.outcome.exit_status)
}

/// Returns what standard output can show.
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

/// Rewrites files with one audit per line, as [`read`] reads them.
fn judge(args: &JudgeArgs) -> Result<u8, Error> {
    for path in &args.files {
        let mut text = String::new();
        for mut audit in read(path)? {
            audit.judge_again();
            text += &json(&audit)?;
        }
        replace(path, &text)?;
    }
    Ok(0)
}

/// Replaces a file as a whole: it may be the only copy of an audit, and the disk may be full.
fn replace(path: &Path, text: &str) -> Result<(), Error> {
    let replaced = || {
        let path = behind_links(path)?;
        let old = fs::metadata(&path)?;
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}.new", std::process::id()));
        let mut options = File::options();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)?;
        // Only root can give a file to its old owner.
        let _ = fchown(&file, Some(old.uid()), Some(old.gid()));
        let written = file
            .write_all(text.as_bytes())
            .and_then(|()| file.set_permissions(old.permissions()))
            .and_then(|()| file.sync_all())
            .and_then(|()| fs::rename(&beside, &path));
        if written.is_err() {
            let _ = fs::remove_file(&beside);
        }
        written
    };
    replaced().map_err(|error: io::Error| {
        Error::system(format!("cannot write {}: {error}", path.display()))
    })
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
    terminal::line(text.trim_end_matches('\n'));
    Ok(0)
}

fn draw(args: &ReportArgs) -> Result<u8, Error> {
    let mut audits = Vec::new();
    for path in &args.files {
        audits.extend(read(path)?);
    }
    write(&args.output, &report::page(&args.title, &audits))?;
    let file = args.output.display();
    terminal::line(format_args!("{} audit(s) written to {file}", audits.len()));
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let [path, other, link] =
            ["a.json", "b.json", "c.json"].map(|name| folder.path().join(name));
        fs::write(&path, "before").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        // The old file itself does not change.
        fs::hard_link(&path, &other).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        replace(&link, "after").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "after");
        assert_eq!(fs::read_to_string(&other).unwrap(), "before");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }
}
