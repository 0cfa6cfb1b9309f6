//! The class histogram of a JVM, obtained through `jcmd`.

use std::time::Duration;

use dormouse_measure::proc_files;

use crate::snapshot::ObjectCounts;
use crate::tool::{Tool, ToolError};

/// Returns the classes of a process; `None` if it is not a JVM.
///
/// `-all` also counts unreachable objects, so the JVM makes no collection and the process is left as it was.
/// To count only `living` objects the JVM makes a full collection first.
///
/// A JVM's own `jcmd` lies beside its `java`, but that path is under the audited process's control. So the `jcmd` in
/// the `PATH` is run, as the process's user: a JVM answers no other user.
pub(super) fn histogram(
    pid: i32,
    living: bool,
    patience: Duration,
) -> Option<Result<ObjectCounts, String>> {
    if !proc_files::maps(pid).ok()?.contains("libjvm.so") {
        return None;
    }
    let id = pid.to_string();
    let words = [id.as_str(), "GC.class_histogram", "-all"];
    let words = words.get(..if living { 2 } else { 3 }).unwrap_or_default();
    let said = Tool::find("jcmd").and_then(|jcmd| jcmd.run_for(pid, words, patience));
    Some(match said {
        Ok(text) => Ok(parse(&text)),
        Err(ToolError::Missing) => Err(
            "jcmd is not in the PATH of this program; add the folder of a JDK at least as new as the JVM".into(),
        ),
        Err(ToolError::Refused(why)) => Err(why),
    })
}

pub(super) fn parse(text: &str) -> ObjectCounts {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        words.next()?.strip_suffix(':')?.parse::<u64>().ok()?;
        let counts = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some((words.next()?.to_owned(), counts))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_a_histogram() {
        let text = "4711:\n num     #instances         #bytes  class name (module)\n\
                    -------------------------------------------------------\n   \
                    1:         20010      338584920  [B (java.base@17)\n   2:  12  480  java.lang.String\nTotal 3 4\n";
        let classes = parse(text);
        assert_eq!(classes.len(), 2);
        assert_eq!(classes["[B"], (20_010, 338_584_920));
    }
}
