//! Man pages and shell completions, generated from the definition of the command line.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::{Command, CommandFactory as _};

use crate::arguments::{Arguments, CompletionsArgs, ManArgs};
use crate::exit_status::ExitStatus;
use crate::terminal;

/// Writes a page for the program and one for each of its commands and subcommands.
pub(crate) fn man(args: &ManArgs) -> ExitCode {
    match pages(&args.directory) {
        Ok(count) => {
            terminal::note(format_args!(
                "{count} pages in {}",
                args.directory.display()
            ));
            ExitCode::SUCCESS
        }
        Err(error) => {
            terminal::error(format_args!("{}: {error}", args.directory.display()));
            ExitStatus::Failed.into()
        }
    }
}

fn pages(directory: &Path) -> io::Result<usize> {
    std::fs::create_dir_all(directory)?;
    let mut count = 0;
    let mut left = vec![command()];
    while let Some(command) = left.pop() {
        page(&command, directory)?;
        count += 1;
        let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
        left.extend(verbs.map(|verb| named_below(&command, verb)));
    }
    Ok(count)
}

/// Returns a command under the name of its page: `dormouse-audit-server` for `dormouse audit
/// server`.
fn named_below(parent: &Command, verb: &Command) -> Command {
    // clap keeps names forever; there are as many as there are commands.
    let name: &'static str =
        Box::leak(format!("{}-{}", parent.get_name(), verb.get_name()).into_boxed_str());
    let above = parent.get_bin_name().unwrap_or(parent.get_name());
    let typed = format!("{above} {}", verb.get_name());
    // `help` would be a command without a page.
    verb.clone()
        .name(name)
        .display_name(name)
        .bin_name(typed)
        .disable_help_subcommand(true)
}

fn page(command: &Command, directory: &Path) -> io::Result<()> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut text)?;
    std::fs::write(directory.join(format!("{}.1", command.get_name())), text)
}

/// Returns the command line without `help`, which only the parser needs.
fn command() -> Command {
    Arguments::command().disable_help_subcommand(true)
}

/// Prints the completions.
pub(crate) fn completions(args: &CompletionsArgs) -> ExitCode {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command(), "dormouse", &mut text);
    terminal::print(&String::from_utf8_lossy(&text));
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap_complete::Shell;

    #[test]
    fn every_command_has_a_page_and_the_options_are_in_it() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        pages(folder.path()).expect("pages");
        for verb in command()
            .get_subcommands()
            .filter(|verb| !verb.is_hide_set())
        {
            let file = folder
                .path()
                .join(format!("dormouse-{}.1", verb.get_name()));
            let text = std::fs::read_to_string(&file).expect("a page");
            assert!(text.contains(".SH SYNOPSIS"), "{}", file.display());
            let typed = format!("\\fBdormouse {}\\fR", verb.get_name());
            assert!(text.contains(&typed), "{}", file.display());
        }
        let serve =
            std::fs::read_to_string(folder.path().join("dormouse-serve.1")).expect("a page");
        for option in ["listen", "connections\\-per\\-client", "proxy\\-protocol"] {
            assert!(serve.contains(option), "{option}");
        }
        for page in std::fs::read_dir(folder.path()).expect("pages") {
            let page = page.expect("a page").path();
            let text = std::fs::read_to_string(&page).expect("a page");
            for named in pages_named_in(&text) {
                let there = folder.path().join(format!("{named}.1")).exists();
                assert!(there, "{} points to {named}(1)", page.display());
            }
        }
        let hidden = folder.path().join("dormouse-keeper.1");
        assert!(!hidden.exists(), "an internal command has no page");
    }

    /// The pages that a page points to, as `name(1)`.
    fn pages_named_in(page: &str) -> Vec<String> {
        let plain = page.replace("\\-", "-").replace("\\fR", "");
        let before = plain.split("(1)").collect::<Vec<_>>();
        let named = before[..before.len() - 1].iter().filter_map(|text| {
            text.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '-')
                .next()
        });
        named.map(str::to_owned).collect()
    }

    #[test]
    fn completions_know_commands_and_options() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut command(), "dormouse", &mut text);
            let text = String::from_utf8_lossy(&text);
            for word in ["serve", "import", "handshake-timeout"] {
                assert!(text.contains(word), "{shell}: {word}");
            }
        }
    }
}
