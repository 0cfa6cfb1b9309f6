//! The class histogram of a JVM, through its own `jcmd`.

use std::fs;
use std::process::{Command, Stdio};

use super::snapshot::ObjectCounts;

/// The classes of a process; `None` when it is no JVM.
///
/// `-all` counts unreachable objects too, and so makes no collection: the process is left as it was.
/// For the `living` alone the JVM makes a full collection first.
pub(super) fn histogram(pid: i32, living: bool) -> Option<Result<ObjectCounts, String>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    if !maps.contains("libjvm.so") {
        return None;
    }
    // The JVM's own, which lies beside its `java`; what is on the PATH may be too old for it.
    let own = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let own = own.with_file_name("jcmd");
    let jcmd = if own.is_file() { own } else { "jcmd".into() };
    let all = if living { None } else { Some("-all") };
    let output = Command::new(jcmd)
        .args([&pid.to_string(), "GC.class_histogram"])
        .args(all)
        .stdin(Stdio::null())
        .output();
    Some(match output {
        Err(error) => Err(format!("jcmd cannot be started: {error}")),
        Ok(output) if !output.status.success() => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!(
                "jcmd failed: {}",
                said.lines().next().unwrap_or("?")
            ))
        }
        Ok(output) => Ok(parse(&String::from_utf8_lossy(&output.stdout))),
    })
}

fn parse(text: &str) -> ObjectCounts {
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
