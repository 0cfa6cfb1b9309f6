//! Man pages and shell completions, generated from the definition of the command line.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::{Command, CommandFactory as _};

use crate::arguments::{Arguments, CompletionsArgs, ManArgs};
use crate::exit_status::ExitStatus;
use crate::terminal;

/// Writes a page for the program and one for each of its commands.
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
    let program = command();
    page(&program, directory)?;
    let mut count = 1;
    for verb in program.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        let name = format!("{}-{}", program.get_name(), verb.get_name());
        // clap keeps names for ever; there are as many as there are commands.
        let name: &'static str = Box::leak(name.into_boxed_str());
        // The page has a hyphen in its name; what is typed has none.
        let typed = format!("{} {}", program.get_name(), verb.get_name());
        let verb = verb.clone().name(name).display_name(name).bin_name(typed);
        page(&verb, directory)?;
        count += 1;
    }
    Ok(count)
}

fn page(command: &Command, directory: &Path) -> io::Result<()> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut text)?;
    std::fs::write(directory.join(format!("{}.1", command.get_name())), text)
}

/// The command line without `help`, which only the parser needs.
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
        let hidden = folder.path().join("dormouse-keeper.1");
        assert!(!hidden.exists(), "what people do not start has no page");
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
