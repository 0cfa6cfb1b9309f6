//! The class histogram of a JVM, obtained through `jcmd`.

use std::time::{Duration, Instant};

use dormouse_measure::proc_files;

use crate::snapshot::{ObjectCounts, add_objects, class_name};
use crate::tool::{Tool, ToolError};

/// Commands of `jcmd`, a line each. Objects with a finalizer, such as the JDK's TLS sockets, survive the collection that
/// finds them unreachable, with everything that they refer to: the collection after their finalizers have run frees them.
const AFTER_FINALIZERS: &str = "GC.class_histogram\nGC.run_finalization\nGC.class_histogram";
/// The same for a JVM without finalizers.
const AFTER_COLLECTION: &str = "GC.class_histogram";

/// Makes a JVM collect its garbage and returns the classes of the objects that survive; `None` if the process is no JVM.
///
/// A JVM's own `jcmd` lies beside its `java`, but that path is under the audited process's control. So the `jcmd` in
/// the `PATH` is run, as the process's user: a JVM answers no other user.
pub(super) fn living(pid: i32, patience: Duration) -> Option<Result<ObjectCounts, String>> {
    if !proc_files::maps(pid).ok()?.contains("libjvm.so") {
        return None;
    }
    let (id, until) = (pid.to_string(), Instant::now() + patience);
    let said = Tool::find("jcmd").and_then(|jcmd| {
        let run = |commands| {
            let left = until.saturating_duration_since(Instant::now());
            jcmd.run_for(pid, &[&id, commands], left)
        };
        run(AFTER_FINALIZERS).or_else(|why| run(AFTER_COLLECTION).map_err(|_| why))
    });
    Some(match said {
        Ok(text) => Ok(parse(&text)),
        Err(ToolError::Missing) => Err(
            "jcmd is not in the PATH of this program; add the folder of a JDK at least as new as the JVM".into(),
        ),
        Err(ToolError::Refused(why)) => Err(why),
    })
}

/// Reads the last histogram of the text.
pub(super) fn parse(text: &str) -> ObjectCounts {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        words.next()?.strip_suffix(':')?.parse::<u64>().ok()?;
        let (instances, bytes) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some((class_name(words.next()?), instances, bytes))
    };
    let last = text
        .rsplit_once("#instances")
        .map_or(text, |(_, last)| last);
    // Each class loader has a class of its own, and a line for it.
    let mut classes = ObjectCounts::new();
    for (class, instances, bytes) in last.lines().filter_map(line) {
        add_objects(&mut classes, class, instances, bytes);
    }
    classes
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
        // What the second collection freed is not in the last histogram.
        let twice =
            format!("{text} num     #instances         #bytes  class name\n   1:  10  240  [B\n");
        assert_eq!(parse(&twice).len(), 1);
        assert_eq!(parse(&twice)["[B"], (10, 240));
    }

    /// A web server has a class loader for each application, and so several classes with the same name.
    #[test]
    fn classes_of_one_name_are_added() {
        let text = "#instances\n   1:  100  6400  org.example.Session\n   2:  7  448  org.example.Session\n";
        assert_eq!(parse(text)["org.example.Session"], (107, 6_848));
    }

    /// The text comes from the audited process.
    #[test]
    fn a_name_of_any_length_is_shortened() {
        let text = format!("#instances\n 1: 1 8 {}\n", "x".repeat(1 << 20));
        let (name, counts) = parse(&text).pop_first().unwrap();
        assert!(name.len() < 300 && counts == (1, 8), "{}", name.len());
    }
}
