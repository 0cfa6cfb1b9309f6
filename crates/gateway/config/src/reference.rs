//! The reference of all options, as markdown, generated from the table.

use crate::config::Config;
use crate::mistakes::words::list_of;
use crate::option::group::OptionGroup;
use crate::option::spec::{Applies, OptionDefault, OptionSpec, first_example, in_file, paragraph};
use crate::section::Section;
use std::fmt::{self, Write as _};

const HEAD: &str = "\
# Reference

Every option of the file that `dormouse serve -c FILE` and `dormouse check -c FILE` read.
`dormouse reference` prints this page, from the same definitions that the program itself
uses.

The file is [TOML](https://toml.io). Options of the program are at the top; each
route follows a line `[[route]]`, each origination a line `[[originate]]`. Each option
is also a flag, with `-` for `_` (`--handshake-timeout 5s`): `dormouse serve` takes the options
of a route, `dormouse connect` those of an origination, and both take those of the program, where
a flag overrides the file. A flag for a list may be given several times, or once with commas
between the items, in which `\\,` is a comma. Certificates are given as `--cert FILE --key FILE`.

- A *size* is a number of bytes or a text with a unit: `\"512 KiB\"`, `\"64M\"`, `\"1 GiB\"`.
  All units count by 1024.
- A *duration* is a text with a unit: `\"250ms\"`, `\"10s\"`, `\"5m\"`, `\"12h\"`, `\"7d\"`.
- A *path* is relative to the directory of the file; in a flag, to the current one.
- A list of one may be written without brackets.
- *costs* is what an option costs. An option without this line does not change the cost of a quiet
  connection.
- *applies* is when a change of an option takes effect. Without this line: at a [reload](reload.md).
";

/// The page `docs/guide/reference.md`.
pub fn reference() -> String {
    let mut page = HEAD.to_owned();
    // Writing into a String can't fail.
    for section in Section::ALL {
        let _ = group(&mut page, &section.options());
    }
    for options in Config::PROCESS_OPTIONS {
        let _ = group(&mut page, options);
    }
    page
}

fn group(page: &mut String, group: &OptionGroup) -> fmt::Result {
    write!(page, "\n## {}\n\n{}\n", group.title, paragraph(group.about))?;
    group.options.iter().try_for_each(|spec| option(page, spec))
}

fn option(page: &mut String, spec: &OptionSpec) -> fmt::Result {
    write!(page, "\n### `{}`\n\n{}\n\n", spec.name, spec.explanation())?;
    writeln!(page, "| | |\n|---|---|")?;
    if spec.kind.choices.is_empty() {
        writeln!(page, "| type | {} |", spec.kind.name)?;
    } else {
        writeln!(page, "| one of | {} |", list_of(spec.kind.choices))?;
    }
    match spec.default {
        OptionDefault::Is("" | "none") => writeln!(page, "| default | none |")?,
        OptionDefault::Is(text) => writeln!(page, "| default | `{}` |", in_file(spec, text))?,
        OptionDefault::Required(_) => writeln!(page, "| default | none, must be set |")?,
    }
    if let Some((least, greatest)) = spec.range {
        writeln!(page, "| range | {least} to {greatest} |")?;
    }
    if !spec.cost.is_empty() {
        writeln!(page, "| costs | {} |", spec.cost)?;
    }
    match spec.applies {
        Applies::Reload => {}
        Applies::ReloadIfSameMemory => {
            writeln!(
                page,
                "| applies | at a reload that does not change `memory` |"
            )?;
        }
        Applies::Start => writeln!(page, "| applies | at the next start |")?,
    }
    writeln!(
        page,
        "| example | `{} = {}` |",
        spec.name,
        first_example(spec)
    )
}
