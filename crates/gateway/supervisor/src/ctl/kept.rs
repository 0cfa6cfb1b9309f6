//! Changes by `dormouse ctl --keep`, which outlast reloads and restarts: a file has them, in the words of the commands.
//!
//! ```text
//! dormouse kept changes 1
//! out 10.0.0.7:8080
//! weight app.internal:8080 5 --route shop
//! log-level debug
//! ```
//!
//! A line that cannot be used stays in the file, so that nothing is forgotten silently.

use super::change::{self, is_called};
use dormouse_config::{Backend, Config, Upstream};
use dormouse_handover::control::{BackendChange, KeptChange, RunningChange};
use dormouse_reactor::file::{open_regular, replace_private_soon};
use dormouse_reactor::process;
use std::collections::BTreeSet;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

const FORMAT: &str = "dormouse kept changes 1";
const FILE_BYTES_MAX: u64 = 256 << 10;
/// Maximum number of changes: each is compared with all backends of all routes.
const CHANGES_MAX: usize = 1_000;
const NO_FILE: &str = "`--keep` needs a file for what it keeps: set ctl_file = \"/var/lib/dormouse/kept\" in the configuration, \
                       and reload";

/// The changes that are kept, and their file.
#[derive(Clone, Default)]
pub(crate) struct KeptChanges {
    file: Option<PathBuf>,
    lines: Vec<Line>,
    /// Why the file is not used.
    refused: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
struct Line {
    text: String,
    /// `Err`: it is no change.
    change: Result<RunningChange, String>,
    /// Why the change has no effect.
    problem: Option<String>,
}

impl Line {
    fn read(text: &str) -> Line {
        let change = text.parse();
        // Every other line would be rewritten as another one.
        let change = change.and_then(|change: RunningChange| match change {
            RunningChange::Backend {
                change: BackendChange::In,
                ..
            } => Err("the file keeps no `in`".to_owned()),
            change if change.to_string() == text => Ok(change),
            _ => Err("this is not how dormouse writes it".to_owned()),
        });
        Line {
            text: text.to_owned(),
            change,
            problem: None,
        }
    }
}

impl KeptChanges {
    /// Applies the changes in the file of this configuration to it.
    pub(crate) fn apply_to(config: &mut Config) -> KeptChanges {
        let mut kept = KeptChanges::read(config.process.ctl_file.as_deref());
        for line in &mut kept.lines {
            let applied = line.change.clone();
            let applied = applied.and_then(|change| change::apply(config, &change));
            line.problem = applied.err();
        }
        kept
    }

    /// What in the file of this configuration has no effect, in words.
    pub(crate) fn examine(config: &Config) -> Vec<String> {
        if config.process.ctl_file.is_none() {
            return Vec::new();
        }
        let kept = KeptChanges::apply_to(&mut config.clone());
        let lines = kept.lines.iter();
        let problems = lines.filter_map(|line| {
            let problem = line.problem.as_ref()?;
            Some(format!(
                "the kept change `{}` has no effect: {problem}\nput the backend into the configuration, or forget the \
                 change: `dormouse ctl in`, or remove the line",
                line.text
            ))
        });
        problems.chain(kept.refused.clone()).collect()
    }

    /// Reads the file. What cannot be read has no effect, and is not written over.
    fn read(file: Option<&Path>) -> KeptChanges {
        let mut kept = KeptChanges {
            file: file.map(Path::to_owned),
            ..KeptChanges::default()
        };
        let Some(path) = file else {
            return kept;
        };
        match read_text(path).and_then(|text| text.as_deref().map(lines_of).transpose()) {
            Ok(lines) => kept.lines = lines.unwrap_or_default(),
            Err(why) => {
                let shown = path.display();
                kept.refused = Some(format!(
                    "{shown}: {why}; no kept change is in effect\ncorrect or remove the file, and reload"
                ));
            }
        }
        kept
    }

    /// Notes an order: what it replaces is no longer kept. Returns whether that changes the file.
    pub(crate) fn note(
        &mut self,
        change: &RunningChange,
        is_kept: bool,
        config: &Config,
    ) -> Result<bool, String> {
        if is_kept {
            self.check_usable()?;
        }
        let before = self.lines.clone();
        if let RunningChange::Backend { route: Some(_), .. } = change {
            self.split_by_route(change, config);
        }
        self.lines.retain(|line| {
            let former = line.change.as_ref();
            !former.is_ok_and(|former| replaces(change, former, config))
        });
        if is_kept && !is_in(change) {
            let change = as_configured(change, config);
            let line = Line::read(&change.to_string());
            if line.change.as_ref() != Ok(&change) || line.text.contains(char::is_control) {
                return Err(format!(
                    "`{change}` cannot be kept: a line of the file would mean something else"
                ));
            }
            if self.lines.len() >= CHANGES_MAX {
                return Err(format!(
                    "{CHANGES_MAX} changes are kept already, and not more: write some of them into the configuration"
                ));
            }
            self.lines.push(line);
        }
        Ok(self.lines != before)
    }

    fn check_usable(&self) -> Result<(), String> {
        match (&self.file, &self.refused) {
            (None, _) => Err(NO_FILE.to_owned()),
            (_, Some(why)) => Err(why.clone()),
            _ => Ok(()),
        }
    }

    /// An order for one route replaces a kept change for all routes only in part: the change is kept for each other
    /// route then.
    fn split_by_route(&mut self, order: &RunningChange, config: &Config) {
        let RunningChange::Backend {
            route: Some(of_order),
            ..
        } = order
        else {
            return;
        };
        let lines = std::mem::take(&mut self.lines);
        for line in lines {
            let Ok(RunningChange::Backend {
                address,
                route: None,
                change,
            }) = &line.change
            else {
                self.lines.push(line);
                continue;
            };
            if !is_about_the_same(order, address, *change, config) {
                self.lines.push(line);
                continue;
            }
            let routes = config.route_names().into_iter().zip(&config.routes);
            for (name, of_route) in routes {
                if name != *of_order && of_route.to.iter().any(|one| is_called(one, address)) {
                    let one = RunningChange::Backend {
                        address: address.clone(),
                        route: Some(name),
                        change: *change,
                    };
                    self.lines.push(Line::read(&one.to_string()));
                }
            }
        }
    }

    /// Writes the file.
    pub(crate) fn save(&self) -> Result<(), String> {
        let Some(path) = &self.file else {
            return Ok(());
        };
        let lines = self.lines.iter().map(|line| line.text.as_str());
        let lines: Vec<&str> = [FORMAT].into_iter().chain(lines).collect();
        let text = lines.join("\n") + "\n";
        let saved = match text.len() as u64 > FILE_BYTES_MAX {
            true => Err(io::Error::other(format!(
                "longer than {FILE_BYTES_MAX} bytes"
            ))),
            false => replace_private_soon(path, text.as_bytes()),
        };
        saved.map_err(|error| {
            let shown = path.display();
            format!("what is kept in {shown} could not be changed: {error}")
        })
    }

    /// The changes, for control.
    pub(crate) fn reported(&self) -> Vec<KeptChange> {
        let refused = self.refused.iter().map(|why| KeptChange {
            change: "(file)".to_owned(),
            problem: Some(why.lines().next().unwrap_or_default().to_owned()),
        });
        let lines = self.lines.iter().map(|line| KeptChange {
            change: line.text.clone(),
            problem: line.problem.clone(),
        });
        refused.chain(lines).collect()
    }
}

/// Reads a file that no other user could have written. `None`: there is none yet.
fn read_text(path: &Path) -> Result<Option<String>, String> {
    let file = match open_regular(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let found = file.metadata().map_err(|error| error.to_string())?;
    let is_own = [0, process::user_id()].contains(&found.uid());
    if !is_own || found.mode() & 0o022 != 0 {
        return Err(format!(
            "another user can write it (owner {}, mode {:o})",
            found.uid(),
            found.mode() & 0o777
        ));
    }
    let mut text = String::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(|error| error.to_string())?;
    match text.len() as u64 > FILE_BYTES_MAX {
        true => Err(format!("longer than {FILE_BYTES_MAX} bytes")),
        false => Ok(Some(text)),
    }
}

fn lines_of(text: &str) -> Result<Vec<Line>, String> {
    let mut lines = text.lines();
    if lines.next() != Some(FORMAT) || !text.ends_with('\n') {
        return Err(format!(
            "damaged, or written by another version: it does not begin with `{FORMAT}`, or its end is missing"
        ));
    }
    let lines: Vec<Line> = lines
        .filter(|line| !line.is_empty())
        .map(Line::read)
        .collect();
    match lines.len() > CHANGES_MAX {
        true => Err(format!("more than {CHANGES_MAX} changes")),
        false => Ok(lines),
    }
}

fn is_in(change: &RunningChange) -> bool {
    let RunningChange::Backend { change, .. } = change else {
        return false;
    };
    *change == BackendChange::In
}

/// Whether an order replaces a former one: it sets the same of the same backend, in all routes of the former.
fn replaces(order: &RunningChange, former: &RunningChange, config: &Config) -> bool {
    match (order, former) {
        (RunningChange::LogLevel(_), RunningChange::LogLevel(_)) => true,
        (
            RunningChange::Backend { route, .. },
            RunningChange::Backend {
                address,
                route: of_former,
                change,
            },
        ) => {
            (route.is_none() || route == of_former)
                && is_about_the_same(order, address, *change, config)
        }
        _ => false,
    }
}

/// Whether an order sets the same of a backend as another change of the backend `address`.
fn is_about_the_same(
    order: &RunningChange,
    address: &str,
    change: BackendChange,
    config: &Config,
) -> bool {
    let RunningChange::Backend {
        address: of_order,
        change: ordered,
        ..
    } = order
    else {
        return false;
    };
    let is_weight = |change| matches!(change, BackendChange::Weight(_));
    let is_both = |one: &Upstream| is_called(one, address) && is_called(one, of_order);
    is_weight(*ordered) == is_weight(change)
        && (address == of_order || config.upstreams().any(is_both))
}

/// The order with the backend's address as the configuration writes it, if that is the same in all routes: a name may
/// have other addresses later.
fn as_configured(order: &RunningChange, config: &Config) -> RunningChange {
    let mut order = order.clone();
    if let RunningChange::Backend { address, .. } = &mut order {
        let called = config.upstreams().filter(|one| is_called(one, address));
        let mut written: BTreeSet<String> = called.map(written).collect();
        if let (Some(only), true) = (written.pop_first(), written.is_empty()) {
            *address = only;
        }
    }
    order
}

/// A backend as the configuration writes it.
fn written(upstream: &Upstream) -> String {
    match &upstream.backend {
        Backend::Tcp { given, .. } => given.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_config::{LogLevel, Machine, Section};
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    /// A configuration with two routes, and a file for what is kept.
    fn config(folder: &Path, backends: [&str; 2]) -> Config {
        let [first, second] = backends;
        let path = folder.join("dormouse.toml");
        let text = format!(
            "ctl_file = 'kept'\n\
             [[route]]\nname = 'a'\nlisten = '127.0.0.1:5001'\nself_signed = 'x'\nto = [{first}]\n\
             [[route]]\nname = 'b'\nlisten = '127.0.0.1:5004'\nself_signed = 'x'\nto = [{second}]\n"
        );
        fs::write(&path, text).expect("written");
        let app = |_: &str, port: u16| Ok(vec![([10, 0, 0, 1], port).into()]);
        let machine = Machine::read();
        let loaded =
            dormouse_config::load_with(Some(&path), Section::Route, &[], &machine, &app, &|_| {
                Vec::new()
            });
        loaded
            .unwrap_or_else(|mistakes| panic!("{mistakes}"))
            .config
    }

    const BOTH: [&str; 2] = ["'127.0.0.1:1', 'app:2'", "'127.0.0.1:1', 'app:2'"];

    /// Gives an order as the supervisor does, and returns what the file has then.
    fn order(text: &str, is_kept: bool, config: &Config) -> Vec<String> {
        let mut kept = KeptChanges::apply_to(&mut config.clone());
        let change: RunningChange = text.parse().expect("an order");
        if kept.note(&change, is_kept, config).expect("accepted") {
            kept.save().expect("a folder");
        }
        let path = config.process.ctl_file.as_ref().expect("a file");
        let text = fs::read_to_string(path).expect("a file");
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some(FORMAT));
        lines.map(str::to_owned).collect()
    }

    #[test]
    fn what_is_kept_outlasts_a_restart_until_another_order() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = config(folder.path(), BOTH);
        assert_eq!(order("log-level debug", true, &config), ["log-level debug"]);
        order("out 127.0.0.1:1", true, &config);
        // A name with one address may have another one after the restart.
        let all = order("weight 10.0.0.1:2 7 --route b", true, &config);
        let expected = [
            "log-level debug",
            "out 127.0.0.1:1",
            "weight app:2 7 --route b",
        ];
        assert_eq!(all, expected);
        let path = folder.path().join("kept");
        let mode = fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        let mut started = config.clone();
        let kept = KeptChanges::apply_to(&mut started);
        assert!(kept.reported().iter().all(|one| one.problem.is_none()));
        assert_eq!(started.log.log_level, LogLevel::Debug);
        assert!(started.routes.iter().all(|route| route.to[0].out));
        let weights = started.routes.iter().map(|route| route.to[1].weight);
        assert_eq!(weights.collect::<Vec<_>>(), [1, 7]);

        assert_eq!(order("log-level info", false, &config), expected[1..]);
        // The order is for one route, and the other one keeps what it has.
        let left = order("in 127.0.0.1:1 --route b", true, &config);
        assert_eq!(
            left,
            ["out 127.0.0.1:1 --route a", "weight app:2 7 --route b"]
        );
        let left = order("out 127.0.0.1:1", false, &config);
        assert_eq!(left, ["weight app:2 7 --route b"]);
        assert_eq!(order("weight app:2 9", true, &config), ["weight app:2 9"]);
        assert_eq!(order("in app:2", false, &config), ["weight app:2 9"]);
        assert_eq!(order("weight app:2 1", false, &config), [""; 0]);
    }

    #[test]
    fn every_line_is_used_or_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = config(folder.path(), BOTH);
        let lines = [
            "out 127.0.0.1:1 --route a",
            "out 10.9.9.9:1",
            "out app:2",
            "weight app:2 0",
            "weight app:2 three",
            "in app:2",
            "drop app:2",
            "log-level  debug",
            "log-level off",
        ];
        let path = folder.path().join("kept");
        fs::write(&path, format!("{FORMAT}\n{}\n", lines.join("\n"))).expect("written");
        let mut started = config.clone();
        let kept = KeptChanges::apply_to(&mut started);
        let named = kept.reported();
        for (one, (line, expected)) in named.iter().zip(lines.iter().zip([
            "",
            "no backend 10.9.9.9:1; the configuration has: ",
            "route a would have no backend left",
            "`0` is not a valid weight",
            "the weight is not a number",
            "the file keeps no `in`",
            "no order `drop`",
            "no log level ` debug`",
            "",
        ])) {
            assert_eq!(one.change, *line);
            let problem = one.problem.as_deref().unwrap_or_default();
            assert!(problem.starts_with(expected), "{line}: {problem}");
            assert_eq!(problem.is_empty(), expected.is_empty(), "{line}: {problem}");
        }
        assert_eq!(named.len(), lines.len());
        let outs = started.upstreams().map(|one| one.out);
        assert_eq!(outs.collect::<Vec<_>>(), [true, false, false, false]);
        assert_eq!(KeptChanges::examine(&config).len(), 7);
        // They stay, and a backend that the configuration has lost can be forgotten.
        assert_eq!(order("log-level warn", true, &config).len(), lines.len());
        let left = order("in 10.9.9.9:1", false, &config);
        assert!(!left.contains(&lines[1].to_owned()), "{left:?}");
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named_and_not_written_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = config(folder.path(), BOTH);
        let path = folder.path().join("kept");
        let out = "out 127.0.0.1:1\n";
        let many = "log-level info\n".repeat(CHANGES_MAX + 1);
        for (contents, mode, expected) in [
            (String::new(), 0o600, "damaged"),
            (
                format!("dormouse kept changes 2\n{out}"),
                0o600,
                "another version",
            ),
            (format!("{FORMAT}\nout 127.0.0.1"), 0o600, "damaged"),
            (
                format!("{FORMAT}\n{out}"),
                0o620,
                "another user can write it",
            ),
            (
                format!("{FORMAT}\n{out}"),
                0o602,
                "another user can write it",
            ),
            (format!("{FORMAT}\n{many}"), 0o600, "more than 1000 changes"),
            (
                " ".repeat(FILE_BYTES_MAX as usize + 1),
                0o600,
                "longer than",
            ),
        ] {
            fs::write(&path, &contents).expect("written");
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("changed");
            let mut started = config.clone();
            let mut kept = KeptChanges::apply_to(&mut started);
            assert!(started.upstreams().all(|one| !one.out));
            let problem = kept.reported()[0].problem.clone().expect("a problem");
            assert!(problem.contains(expected), "{problem}");
            assert_eq!(KeptChanges::examine(&config).len(), 1);
            let change = out.trim_end().parse().expect("an order");
            let why = kept.note(&change, true, &config).expect_err("refused");
            assert!(why.contains(expected), "{why}");
            // Without `--keep`, orders are carried out as ever.
            assert_eq!(kept.note(&change, false, &config), Ok(false));
        }
        let mut without = config.clone();
        without.process.ctl_file = None;
        let mut kept = KeptChanges::apply_to(&mut without);
        let change = "log-level debug".parse().expect("an order");
        let why = kept.note(&change, true, &without).expect_err("no file");
        assert!(why.contains("set ctl_file = "), "{why}");
    }

    #[test]
    fn what_does_not_fit_a_line_or_the_file_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = config(folder.path(), BOTH);
        let mut kept = KeptChanges::read(config.process.ctl_file.as_deref());
        let out = |address: String| RunningChange::Backend {
            address,
            route: None,
            change: BackendChange::Out,
        };
        for address in ["unix:/run/a\nlog-level off", "unix:/run/a --route b"] {
            let why = kept.note(&out(address.to_owned()), true, &config);
            assert!(why.expect_err("ambiguous").contains("cannot be kept"));
        }
        for n in 0..CHANGES_MAX {
            kept.note(&out(format!("127.0.0.2:{n}")), true, &config)
                .expect("there is room");
        }
        let why = kept.note(&out("app:2".to_owned()), true, &config);
        assert!(why.expect_err("full").contains("1000 changes"));
    }
}
