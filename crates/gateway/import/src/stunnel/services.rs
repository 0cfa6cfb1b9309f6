//! Services and their settings, with the files that are included.

use std::path::Path;

use crate::draft::Draft;
use crate::error::{ImportError, Position};
use crate::origin::{Origin, Origins};
use crate::section::Section;
use crate::source::files_matching;

/// Maximum number of included files.
const INCLUDES_MAX: usize = 200;

#[derive(Clone, Debug)]
pub(super) struct StunnelSetting {
    pub(super) origin: Origin,
    /// In lower case: case does not matter.
    pub(super) key: String,
    pub(super) value: String,
}

impl StunnelSetting {
    /// Returns whether this is the value. stunnel ignores the case of all words that it knows.
    pub(super) fn is(&self, value: &str) -> bool {
        self.value.eq_ignore_ascii_case(value)
    }
}

pub(super) struct Service {
    pub(super) name: String,
    pub(super) origin: Origin,
    pub(super) entries: Vec<StunnelSetting>,
}

impl Service {
    /// Returns the last setting with this key: it wins.
    pub(super) fn find(&self, key: &str) -> Option<&StunnelSetting> {
        self.entries.iter().rev().find(|one| one.key == key)
    }

    /// Returns the same, and says of the others that it replaces them.
    pub(super) fn last(&self, key: &str, section: &mut Section) -> Option<&StunnelSetting> {
        let last = self.find(key)?;
        let others = self.all(key).filter(|one| one.origin != last.origin);
        section.replaced(others.map(|one| one.origin).collect::<Origins>());
        Some(last)
    }

    pub(super) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a StunnelSetting> {
        self.entries.iter().filter(move |one| one.key == key)
    }

    pub(super) fn is_on(&self, key: &str) -> bool {
        self.find(key).is_some_and(|one| one.is("yes"))
    }

    /// Returns everything that belongs to it.
    pub(super) fn origins(&self) -> Vec<Origin> {
        let own = self.entries.iter().map(|one| one.origin);
        [self.origin].into_iter().chain(own).collect()
    }
}

/// Reads services.
#[derive(Default)]
pub(super) struct ServiceReader {
    pub(super) services: Vec<Service>,
    /// Settings above all services.
    pub(super) defaults: Vec<StunnelSetting>,
    pub(super) draft: Draft,
    included: usize,
}

impl ServiceReader {
    pub(super) fn read(
        text: &str,
        position: &Position,
        folder: &Path,
    ) -> Result<ServiceReader, ImportError> {
        let mut reader = ServiceReader::default();
        reader.text(text, position, folder, 0)?;
        Ok(reader)
    }

    fn text(
        &mut self,
        text: &str,
        position: &Position,
        folder: &Path,
        depth: usize,
    ) -> Result<(), ImportError> {
        for (n, line) in text.lines().enumerate() {
            let position = position.at(n + 1);
            let line = line.trim();
            if line.is_empty() || line.starts_with([';', '#']) {
                continue;
            }
            if let Some(inner) = line.strip_prefix('[') {
                let Some(name) = inner.strip_suffix(']') else {
                    return Err(ImportError::new(
                        &position,
                        n + 1,
                        "the `[` in this line is not closed",
                        "a service begins with [NAME]",
                    ));
                };
                self.services.push(Service {
                    name: name.to_owned(),
                    origin: self.draft.ledger.enter(&position, line)?,
                    entries: Vec::new(),
                });
                continue;
            }
            // No converter takes a line without a value, so it is a step to do.
            let origin = self.draft.ledger.enter(&position, line)?;
            let Some((key, value)) = line.split_once('=') else {
                continue;
            };
            let (key, value) = (key.trim().to_ascii_lowercase(), value.trim().to_owned());
            if key == "include" {
                self.include(origin, &value, &position, folder, depth)?;
                continue;
            }
            let entry = StunnelSetting { origin, key, value };
            match self.services.last_mut() {
                Some(service) => {
                    self.draft.ledger.is_head(service.origin);
                    service.entries.push(entry);
                }
                None => self.defaults.push(entry),
            }
        }
        Ok(())
    }

    /// Reads all files of a folder, in the order of their names.
    fn include(
        &mut self,
        origin: Origin,
        value: &str,
        position: &Position,
        folder: &Path,
        depth: usize,
    ) -> Result<(), ImportError> {
        let path = folder.join(value);
        let Ok(files) = files_matching(&path, "*") else {
            self.draft
                .program
                .step(origin, "there are too many files in this folder");
            return Ok(());
        };
        let program = &mut self.draft.program;
        match (path.is_dir(), files.len()) {
            (false, _) => program.step(
                origin,
                "this folder is not on this machine: its services are missing here",
            ),
            (true, 0) => program.without_effect(origin, "there is no file in this folder"),
            (true, n) => {
                program.without_effect(origin, format!("{n} included: see their own lines"))
            }
        }
        for file in files {
            self.included += 1;
            if depth >= 10 || self.included > INCLUDES_MAX {
                let what = format!(
                    "{} is one file too many: the limits are 200 files, 10 deep",
                    file.display()
                );
                return Err(ImportError::new(
                    position,
                    position.line,
                    what,
                    "do they include each other?",
                ));
            }
            let position = Position::included(&file.display().to_string());
            let text = self.draft.ledger.read(&file, &position)?;
            self.text(&text, &position, folder, depth + 1)?;
        }
        Ok(())
    }
}
