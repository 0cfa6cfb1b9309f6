//! The configuration's own file and the files that it includes, as one.

use crate::input::environment::{Environment, Expansion};
use crate::input::flags::Flag;
use crate::input::toml_file::{self, Parsed};
use crate::mistakes::location::Location;
use crate::mistakes::problem::Problem;
use crate::mistakes::texts::Texts;
use crate::mistakes::words::shortened;
use crate::option::option_type::ITEMS_MAX;
use crate::option::value::{Key, RawData, RawValue};
use crate::section::Section;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

/// The option that names files to include.
const INCLUDE: &str = "include";
/// Maximum size of all files together: far more than a real configuration needs.
const INCLUDED_BYTES_MAX: usize = 16 << 20;

/// The contents of all files.
pub(crate) struct Files {
    pub(crate) texts: Texts,
    /// The entries of all files, those of the configuration's own first.
    pub(crate) entries: Vec<(Key, RawValue)>,
    /// False if a part could not be read: an option that seems to be missing may be in that part.
    pub(crate) complete: bool,
    /// Problems of the files themselves.
    pub(crate) problems: Vec<(Location, Problem)>,
}

impl Files {
    /// Reads the configuration's own file.
    pub(crate) fn of(file: Option<&Path>, text: &str, environment: Environment<'_>) -> Self {
        let mut files = Self {
            texts: Texts::of(file, text),
            entries: Vec::new(),
            complete: true,
            problems: Vec::new(),
        };
        if file.is_some() {
            files.entries = files.parse_last(environment);
        }
        files
    }

    /// Adds the files that the option `include` names, in flags or else in the configuration's own file.
    pub(crate) fn include(&mut self, flags: &[Flag], environment: Environment<'_>) {
        let flags = flags.iter().filter(|flag| flag.name == INCLUDE);
        let mut items: Vec<RawValue> = flags
            .map(|flag| RawValue::flag("--include", &flag.value))
            .collect();
        let written = self.entries.iter().find(|(key, _)| key.name == INCLUDE);
        if let (true, Some((_, value))) = (items.is_empty(), written) {
            items = match &value.data {
                RawData::List(items) => items.clone(),
                _ => vec![value.clone()],
            };
        }
        for item in &items {
            let Some(text) = item.as_text().filter(|text| !text.is_empty()) else {
                // The problem is reported where all options are read.
                continue;
            };
            let base = self.texts.base(item.location.offset());
            match files_of(&base.unwrap_or(Path::new("")).join(text)) {
                Ok(paths) => {
                    for path in paths {
                        self.add(&path, &item.location, environment);
                    }
                }
                Err(problem) => self.refuse(&item.location, problem),
            }
        }
    }

    fn add(&mut self, path: &Path, location: &Location, environment: Environment<'_>) {
        let text = match toml_file::read_text(path) {
            Ok(text) => text,
            Err((what, help)) => {
                let shown = shortened(&path.display().to_string());
                let problem = Problem::new(format!("{shown} {what}")).help(help);
                return self.refuse(location, problem);
            }
        };
        if self.texts.bytes() + text.len() > INCLUDED_BYTES_MAX {
            let problem = Problem::new("the included files together are larger than 16 MiB");
            return self.refuse(location, problem);
        }
        self.texts.add(path, text);
        for (key, value) in self.parse_last(environment) {
            let is_section = Section::named(&key.name).is_some();
            let earlier = self
                .entries
                .iter()
                .find(|(other, _)| other.name == key.name);
            if key.name == INCLUDE {
                let problem = Problem::new("an included file cannot include others")
                    .help("list all of them, or their directory, in the configuration's own file");
                self.refuse(&key.location, problem);
            } else if let (Some((earlier, _)), false) = (earlier, is_section) {
                let problem = Problem::new(format!("`{}` is given twice", key.name))
                    .label(format!(
                        "it is set already in {}",
                        self.place(&earlier.location)
                    ))
                    .help("remove one of the two: options of the program are set once");
                self.refuse(&key.location, problem);
            } else {
                self.entries.push((key, value));
            }
        }
    }

    /// Parses the text that was added last.
    fn parse_last(&mut self, environment: Environment<'_>) -> Vec<(Key, RawValue)> {
        let Some(text) = self.texts.last() else {
            return Vec::new();
        };
        let Parsed {
            mut entries,
            mut problems,
        } = toml_file::parse(&text.text, text.start);
        let mut expansion = Expansion {
            environment,
            written: &text.text,
            start: text.start,
            problems: Vec::new(),
        };
        expansion.fill_in(&mut entries);
        problems.append(&mut expansion.problems);
        self.complete &= problems.is_empty();
        self.problems.append(&mut problems);
        entries
    }

    fn refuse(&mut self, location: &Location, problem: Problem) {
        self.complete = false;
        self.problems.push((location.clone(), problem));
    }

    /// Describes a location in words.
    fn place(&self, location: &Location) -> String {
        let Location::File(span) = location else {
            return "a flag".to_owned();
        };
        let text = self.texts.at(span.start);
        let line = text.map_or(0, |text| text.line(span.start));
        match text.and_then(|text| text.included.as_deref()) {
            Some(path) => format!("{}, line {line}", path.display()),
            None => format!("the configuration's own file, line {line}"),
        }
    }
}

/// Returns the file itself, or a directory's files that end in `.toml`, in the order of their
/// names.
fn files_of(path: &Path) -> Result<Vec<PathBuf>, Problem> {
    let shown = shortened(&path.display().to_string());
    let unreadable = |error: io::Error| {
        let words = toml_file::os_words(&error);
        Problem::new(format!("{shown} cannot be read: {words}")).help(
            "name a file, or a directory with files that end in .toml; paths are relative to this file",
        )
    };
    if !fs::metadata(path).map_err(unreadable)?.is_dir() {
        refuse_pipe(path)?;
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        // Kubernetes and editors keep files of their own whose names begin with a dot.
        if name.ends_with(".toml") && !name.starts_with('.') {
            refuse_pipe(&file)?;
            files.push(file);
        }
        if files.len() > ITEMS_MAX {
            return Err(Problem::new(format!(
                "{shown} has more than {ITEMS_MAX} files"
            )));
        }
    }
    files.sort();
    Ok(files)
}

/// Refuses a pipe: it could not be read again by a reload, which would wait for another writer.
fn refuse_pipe(path: &Path) -> Result<(), Problem> {
    match fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo()) {
        true => {
            let shown = shortened(&path.display().to_string());
            let problem = Problem::new(format!("{shown} is a pipe, which can be read only once"));
            Err(problem.help("include regular files"))
        }
        false => Ok(()),
    }
}
