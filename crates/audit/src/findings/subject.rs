//! The software that findings are about, and the commands that show a finding again.

use super::catalogue::FindingId;
use crate::model::Audit;
use crate::shell;
use crate::software::SoftwareKind;

/// The audited software, and how to reach it on a command line.
pub(super) struct AuditSubject {
    pub(super) kind: SoftwareKind,
    pub(super) target: String,
    /// The name that the target is one address of, as `audit` takes it.
    named: Option<String>,
    /// `--pid 4711`, `--cmd '…'`, or nothing.
    which: String,
    /// Options that `bench` takes too.
    options: String,
}

impl AuditSubject {
    pub(super) fn new(audit: &Audit) -> Self {
        let setting = |name: &str| audit.settings.get(name);
        let named = ["unit", "container"]
            .iter()
            .find_map(|what| Some(format!(" --{what} {}", setting(what)?.as_str()?)));
        let which = match (setting("pid"), setting("cmd").and_then(|cmd| cmd.as_str())) {
            (Some(pid), _) => named.unwrap_or_else(|| format!(" --pid {pid}")),
            (None, Some(cmd)) => format!(" --cmd {}", shell::quote(cmd)),
            (None, None) => String::new(),
        };
        let options = setting("options").and_then(|options| options.as_str());
        Self {
            kind: audit
                .software
                .value()
                .map_or(SoftwareKind::Unknown, |software| software.kind),
            target: audit.target.clone(),
            named: setting("named")
                .and_then(|named| named.as_str())
                .map(str::to_owned),
            which,
            options: options.map_or_else(String::new, |options| format!(" {options}")),
        }
    }

    pub(super) fn advice(&self, id: FindingId) -> String {
        id.advice(self.kind)
    }

    /// A command of the bench that shows a figure again.
    pub(super) fn bench(&self, mode: &str, options: &str) -> String {
        let Self {
            target,
            which,
            options: reach,
            ..
        } = self;
        format!("dormouse bench {mode} {target} {options}{which}{reach}")
    }

    /// The audit again, of all addresses if there are several.
    pub(super) fn audit(&self) -> String {
        let Self {
            target,
            named,
            which,
            options,
            ..
        } = self;
        let target = named.as_ref().unwrap_or(target);
        format!("dormouse audit server {target} --quick{which}{options}")
    }
}
