//! The rows: what the files of `interop/world` contain.

use std::fs;
use std::path::PathBuf;

use dormouse_interop::tools;
use serde::Deserialize;

use super::program::Program;

/// A file of rows about one subject.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Subject {
    /// The heading of its table.
    pub(super) title: String,
    /// Shell lines that run in each row's folder before those of the row.
    #[serde(default)]
    pub(super) make: String,
    /// A command that listens at `$SERVER`.
    pub(super) server: Option<String>,
    /// Shell lines that use the running program at `$AT`, if a row has none.
    #[serde(default)]
    pub(super) client: String,
    /// Whether all rows without a configuration or files of their own share the running programs.
    #[serde(default)]
    pub(super) shared: bool,
    /// Each program's configuration, if a row has none.
    #[serde(default)]
    pub(super) with: Configurations,
    /// The rows.
    #[serde(rename = "case")]
    pub(super) cases: Vec<Case>,
    /// The file's name without `.toml`.
    #[serde(skip)]
    pub(super) name: String,
}

/// A configuration for each program: what differs from [`Program::configuration`], or shell lines for OpenSSL.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Configurations {
    dormouse: Option<String>,
    openssl: Option<String>,
    nginx: Option<String>,
    haproxy: Option<String>,
    hitch: Option<String>,
    stunnel: Option<String>,
}

impl Configurations {
    pub(super) fn of(&self, program: Program) -> Option<&str> {
        match program {
            Program::Dormouse => self.dormouse.as_deref(),
            Program::Openssl => self.openssl.as_deref(),
            Program::Nginx => self.nginx.as_deref(),
            Program::Haproxy => self.haproxy.as_deref(),
            Program::Hitch => self.hitch.as_deref(),
            Program::Stunnel => self.stunnel.as_deref(),
        }
    }
}

/// A row.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    /// The situation in one line.
    pub(super) situation: String,
    /// The public report behind it: `owner/repository#number`, or a title. None: thought up here.
    pub(super) report: Option<String>,
    /// Why the programs differ, or what this row is about.
    pub(super) note: Option<String>,
    /// Shell lines that make the files of the input.
    #[serde(default)]
    pub(super) make: String,
    /// See [`Subject::server`].
    pub(super) server: Option<String>,
    /// See [`Subject::client`].
    pub(super) client: Option<String>,
    /// The reason why Dormouse does not yet do what the row expects. Once it does, the row fails.
    pub(super) waits: Option<String>,
    pub(super) dormouse: Expectation,
    pub(super) openssl: Option<Expectation>,
    pub(super) nginx: Option<Expectation>,
    pub(super) haproxy: Option<Expectation>,
    pub(super) hitch: Option<Expectation>,
    pub(super) stunnel: Option<Expectation>,
}

impl Case {
    /// The programs of this row, ours last.
    pub(super) fn expectations(&self) -> Vec<(Program, &Expectation)> {
        let all = [
            (Program::Openssl, self.openssl.as_ref()),
            (Program::Nginx, self.nginx.as_ref()),
            (Program::Haproxy, self.haproxy.as_ref()),
            (Program::Hitch, self.hitch.as_ref()),
            (Program::Stunnel, self.stunnel.as_ref()),
            (Program::Dormouse, Some(&self.dormouse)),
        ];
        let present = |(program, one): (Program, Option<_>)| one.map(|one| (program, one));
        all.into_iter().filter_map(present).collect()
    }
}

/// What a program does with the input. All texts are fragments.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expectation {
    /// Its configuration, instead of the subject's.
    pub(super) config: Option<String>,
    /// A command to run instead of the program and its client.
    pub(super) run: Option<String>,
    /// It does not start, or the command fails, and says this.
    pub(super) refuses: Option<Vec<String>>,
    /// The client, or the command, prints this.
    pub(super) gives: Option<Vec<String>>,
    /// The client, or the command, does not print this.
    #[serde(default)]
    pub(super) never: Vec<String>,
    /// `dormouse check` accepts the configuration and says this.
    pub(super) warns: Option<Vec<String>>,
    /// The program's log has this.
    #[serde(default)]
    pub(super) logs: Vec<String>,
    /// A few words for the table, instead of these texts.
    pub(super) does: Option<String>,
}

impl Subject {
    /// All files, by name.
    pub(super) fn all() -> Vec<Subject> {
        let entries = fs::read_dir(folder()).expect("interop/world");
        let mut files: Vec<PathBuf> = entries
            .map(|entry| entry.expect("an entry").path())
            .collect();
        files.retain(|file| {
            file.extension()
                .is_some_and(|extension| extension == "toml")
        });
        files.sort();
        files.into_iter().map(Subject::read).collect()
    }

    fn read(file: PathBuf) -> Subject {
        let text = fs::read_to_string(&file).expect("a readable file");
        let mut subject: Subject =
            toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        subject.name = file
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        for case in &subject.cases {
            for (program, expectation) in case.expectations() {
                let says_something = expectation.refuses.is_some()
                    || expectation.gives.is_some()
                    || expectation.warns.is_some();
                assert!(
                    says_something,
                    "{}: {program} has no result",
                    case.situation
                );
            }
        }
        subject
    }
}

/// The folder of the rows and of what they share.
pub(super) fn folder() -> PathBuf {
    tools::home().join("world")
}
