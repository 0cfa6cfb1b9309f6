//! `dormouse status`: asks a running `serve` how it is doing.
//!
//! The status socket answers whoever connects with one JSON object and closes.

use std::fmt::Write as _;
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use dormouse_gateway::config::{self, Machine, Purpose, Section};
use serde_json::Value;

use crate::arguments::StatusArgs;
use crate::outcome::Outcome;
use crate::{serve, terminal};

/// More than any status; who answers more is not `serve`.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// Longer than the main process ever needs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) fn run(args: &StatusArgs) -> ExitCode {
    let path = match socket(args) {
        Ok(path) => path,
        Err(code) => return code,
    };
    match ask(&path) {
        Ok(answer) if args.json => {
            terminal::print(&format!("{answer}\n"));
            ExitCode::SUCCESS
        }
        Ok(answer) => {
            let mut page = String::new();
            render(&mut page, &answer, 0);
            terminal::print(&page);
            ExitCode::SUCCESS
        }
        Err(what) => {
            terminal::error(what);
            Outcome::Failed.into()
        }
    }
}

/// Where to ask.
fn socket(args: &StatusArgs) -> Result<PathBuf, ExitCode> {
    if let Some(path) = &args.socket {
        return Ok(path.clone());
    }
    let file = args.config.as_deref();
    let loaded = config::load(file, Section::Route, &[], &Machine::read(), Purpose::Check)
        .map_err(|mistakes| serve::refuse(file, &mistakes, "nobody was asked"))?;
    loaded.config.process.status.ok_or_else(|| {
        terminal::error("this configuration has the status turned off");
        terminal::note("   = help: set status = \"/run/dormouse/status.sock\" and restart");
        Outcome::Misused.into()
    })
}

fn ask(path: &Path) -> Result<Value, String> {
    let shown = path.display();
    let stream = UnixStream::connect(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!(
            "{shown}: there is no such socket: is `dormouse serve` running with this `status`?"
        ),
        std::io::ErrorKind::ConnectionRefused => {
            format!("{shown}: nobody answers: `dormouse serve` is not running any more")
        }
        std::io::ErrorKind::PermissionDenied => {
            format!("{shown}: only the user who runs `dormouse serve` may ask")
        }
        _ => format!("{shown}: {error}"),
    })?;
    let mut answer = Vec::new();
    stream
        .set_read_timeout(Some(ANSWER_TIMEOUT))
        .and_then(|()| stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer))
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
                format!("{shown}: no answer within {} s", ANSWER_TIMEOUT.as_secs())
            }
            _ => format!("{shown}: {error}"),
        })?;
    serde_json::from_slice(&answer)
        .map_err(|_| format!("{shown}: what answers there is not `dormouse serve`"))
}

/// An object as lines of name and value, nested ones indented under their name.
fn render(page: &mut String, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(fields) => {
            let plain = |value: &Value| !value.is_object() && !holds_objects(value);
            let width = fields
                .iter()
                .filter(|(_, value)| plain(value))
                .map(|(name, _)| name.chars().count())
                .max();
            for (name, value) in fields {
                let shown = name.replace('_', " ");
                if plain(value) {
                    let _ = writeln!(
                        page,
                        "{indent}{shown:<width$}  {}",
                        scalar(value),
                        width = width.unwrap_or(0)
                    );
                } else {
                    let _ = writeln!(page, "{indent}{shown}");
                    render(page, value, depth + 1);
                }
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    page.push('\n');
                }
                render(page, item, depth);
            }
        }
        _ => {
            let _ = writeln!(page, "{indent}{}", scalar(value));
        }
    }
}

fn holds_objects(value: &Value) -> bool {
    value
        .as_array()
        .is_some_and(|items| items.iter().any(Value::is_object))
}

/// A value in one line, without anything that would move the cursor.
fn scalar(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(scalar).collect::<Vec<_>>().join(", "),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    };
    text.chars().filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_becomes_an_aligned_page() {
        let answer = serde_json::json!({
            "version": "0.1.0",
            "at_rest": 12,
            "addresses": ["a", "b"],
            "workers": [{ "pid": 1, "ok": true }, { "pid": 2, "note": "x\u{1b}[31m" }],
        });
        let mut page = String::new();
        render(&mut page, &answer, 0);
        assert_eq!(
            page,
            "addresses  a, b\n\
             at rest    12\n\
             version    0.1.0\n\
             workers\n  ok   true\n  pid  1\n\n  note  x[31m\n  pid   2\n"
        );
    }
}
