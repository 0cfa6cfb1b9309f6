//! Services and their settings, with the files that are included.

use std::path::Path;

use crate::draft::Draft;
use crate::error::{ImportError, Position};
use crate::source::{files_matching, read as read_file};

/// Maximum number of included files.
const INCLUDES_MAX: usize = 200;

#[derive(Clone, Debug)]
pub(super) struct StunnelSetting {
    pub(super) position: Position,
    /// In lower case: case does not matter.
    pub(super) key: String,
    written_key: String,
    pub(super) value: String,
}

impl StunnelSetting {
    pub(super) fn shown(&self) -> String {
        format!("{} = {}", self.written_key, self.value)
    }

    /// Returns whether this is the value. stunnel ignores the case of all words that it knows.
    pub(super) fn is(&self, value: &str) -> bool {
        self.value.eq_ignore_ascii_case(value)
    }
}

pub(super) struct Service {
    pub(super) name: String,
    pub(super) position: Position,
    pub(super) entries: Vec<StunnelSetting>,
}

impl Service {
    /// Returns the last setting with this key: it wins.
    pub(super) fn find(&self, key: &str) -> Option<&StunnelSetting> {
        self.entries.iter().rev().find(|one| one.key == key)
    }

    pub(super) fn value(&self, key: &str) -> Option<&str> {
        self.find(key).map(|one| one.value.as_str())
    }

    pub(super) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a StunnelSetting> {
        self.entries.iter().filter(move |one| one.key == key)
    }

    pub(super) fn is_on(&self, key: &str) -> bool {
        self.find(key).is_some_and(|one| one.is("yes"))
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
                    position,
                    entries: Vec::new(),
                });
                continue;
            }
            let Some((key, value)) = line.split_once('=') else {
                self.draft
                    .leave_out(&position, line, "this is not `key = value`");
                continue;
            };
            let (written_key, value) = (key.trim().to_owned(), value.trim().to_owned());
            let key = written_key.to_ascii_lowercase();
            if key == "include" {
                self.include(&value, &position, folder, depth)?;
                continue;
            }
            let entry = StunnelSetting {
                position,
                key,
                written_key,
                value,
            };
            match self.services.last_mut() {
                Some(service) => service.entries.push(entry),
                None => self.defaults.push(entry),
            }
        }
        Ok(())
    }

    /// Reads all files of a folder, in the order of their names.
    fn include(
        &mut self,
        value: &str,
        position: &Position,
        folder: &Path,
        depth: usize,
    ) -> Result<(), ImportError> {
        let path = folder.join(value);
        if !path.is_dir() {
            self.draft.leave_out(
                position,
                &format!("include = {value}"),
                "this folder does not exist",
            );
            return Ok(());
        }
        for file in files_matching(&path, "*") {
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
            self.text(&read_file(&file, &position)?, &position, folder, depth + 1)?;
        }
        Ok(())
    }
}
