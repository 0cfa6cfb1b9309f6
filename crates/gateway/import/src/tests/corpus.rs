//! Configurations as people write them, of all four programs (`corpus/`), and what holds for each.

use std::path::PathBuf;

use super::*;

mod combined;
mod deletion;
mod insertion;
mod judge;

/// A file of the corpus.
#[derive(Clone)]
struct CorpusFile {
    program: Program,
    name: String,
    text: String,
}

impl CorpusFile {
    /// Returns the result, before the checks of `dormouse check`.
    fn unchecked(&self, text: &str) -> Option<String> {
        let file = Path::new("/etc/there/there.conf");
        let draft = parse(self.program, text, &Position::new("there.conf"), file).ok()?;
        Some(draft.unchecked("there.conf").text)
    }
}

fn corpus() -> Vec<CorpusFile> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let programs = [
        (Program::Nginx, "nginx"),
        (Program::Haproxy, "haproxy"),
        (Program::Hitch, "hitch"),
        (Program::Stunnel, "stunnel"),
    ];
    let mut all = Vec::new();
    for (program, folder) in programs {
        for folder in [root.join("corpus").join(folder), root.join("examples")] {
            let entries = folder.read_dir().expect("a folder").flatten();
            let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
            paths.sort();
            for path in paths {
                let name = path
                    .file_name()
                    .expect("a name")
                    .to_string_lossy()
                    .into_owned();
                let is_example = folder.ends_with("examples");
                if is_example
                    && (!name.starts_with(program.name().to_lowercase().as_str())
                        || name.ends_with(".toml"))
                {
                    continue;
                }
                let text = std::fs::read_to_string(&path).expect("a text");
                all.push(CorpusFile {
                    program,
                    name,
                    text,
                });
            }
        }
    }
    all
}

#[test]
fn the_corpus_is_large_enough() {
    let all = corpus();
    assert!(all.len() >= 60, "{}", all.len());
    for program in [
        Program::Nginx,
        Program::Haproxy,
        Program::Hitch,
        Program::Stunnel,
    ] {
        let count = all.iter().filter(|one| one.program == program).count();
        assert!(count >= 8, "{program:?}: {count}");
    }
}

/// Steps keep the result from running, and a result without any runs.
#[test]
fn a_result_runs_exactly_if_nothing_is_left_to_do() {
    for file in corpus() {
        let page = import(file.program, &file.text).expect("a valid configuration");
        let runs = errors(&page.text) == 0;
        assert_eq!(runs, page.to_do == 0, "{}: {}", file.name, page.text);
        // Each step is an error by itself, with its line.
        let said = config::judge(&page.text, Path::new("dormouse.toml"), &Machine::read());
        let said = said.render(false);
        assert!(
            said.matches("still to do:").count() >= page.to_do.min(10),
            "{}: {said}",
            file.name
        );
    }
}
