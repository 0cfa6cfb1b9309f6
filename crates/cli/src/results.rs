//! The outputs of `bench` and `audit`: standard output, and files.
//!
//! A run takes minutes, so a file that cannot be written is refused before the run, and an output that fails at the
//! end does not take the others with it.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use dormouse_measure::Error;

/// A file that is open for the results of a run.
pub(crate) struct ResultFile {
    path: PathBuf,
    file: File,
}

impl ResultFile {
    /// Opens a file without changing its content: an earlier result stays until there is a new one.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(|error| Error::usage(cannot_write(path, &error)))?;
        let path = path.to_owned();
        Ok(Self { path, file })
    }

    fn write(&mut self, text: &str) -> Result<(), Error> {
        // A pipe or a device has no length.
        let is_file = self.file.metadata().is_ok_and(|data| data.is_file());
        let emptied = if is_file {
            self.file.set_len(0)
        } else {
            Ok(())
        };
        emptied
            .and_then(|()| self.file.write_all(text.as_bytes()))
            .map_err(|error| Error::system(cannot_write(&self.path, &error)))
    }
}

/// Where the JSON goes.
pub(crate) enum JsonOutput {
    None,
    /// Standard output, which then has nothing else.
    Stdout,
    File(ResultFile),
}

impl JsonOutput {
    /// Opens the output of `--json`.
    ///
    /// # Errors
    /// If its file cannot be written.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, Error> {
        Ok(match path {
            None => Self::None,
            Some(path) if path.as_os_str() == "-" => Self::Stdout,
            Some(path) => Self::File(ResultFile::open(path)?),
        })
    }
}

/// What could not be written.
#[derive(Default)]
pub(crate) struct Written {
    failures: Vec<String>,
}

impl Written {
    pub(crate) fn print(&mut self, text: &str) {
        let mut out = io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        // A reader that has seen enough (`| head`) is no failure.
        match written {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                self.failures
                    .push(format!("cannot write to standard output: {error}"));
            }
            _ => {}
        }
    }

    pub(crate) fn save(&mut self, file: &mut ResultFile, text: &str) {
        self.failures
            .extend(file.write(text).err().map(|error| error.message));
    }

    /// # Errors
    /// If an output failed.
    pub(crate) fn end(self) -> Result<(), Error> {
        if self.failures.is_empty() {
            return Ok(());
        }
        Err(Error::system(self.failures.join("; ")))
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> String {
    format!("cannot write {}: {error}", path.display())
}
