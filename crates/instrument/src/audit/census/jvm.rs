//! The class histogram of a JVM, through its own `jcmd`.

use std::fs;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

/// Classes that are kept.
const CLASSES_MAX: usize = 20;

/// Objects of one class.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClassCount {
    /// Its name, as the JVM writes it: `[B` is an array of bytes.
    pub class: String,
    /// How many.
    pub instances: u64,
    /// Bytes of them.
    pub bytes: u64,
}

/// The classes by bytes; `None` when the process is no JVM.
///
/// `-all` counts unreachable objects too, and so makes no collection: the process is left as it was.
pub(super) fn histogram(pid: i32) -> Option<Result<Vec<ClassCount>, String>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    if !maps.contains("libjvm.so") {
        return None;
    }
    let output = Command::new("jcmd")
        .args([&pid.to_string(), "GC.class_histogram", "-all"])
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

fn parse(text: &str) -> Vec<ClassCount> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        words.next()?.strip_suffix(':')?.parse::<u64>().ok()?;
        Some(ClassCount {
            instances: words.next()?.parse().ok()?,
            bytes: words.next()?.parse().ok()?,
            class: words.next()?.to_owned(),
        })
    };
    text.lines().filter_map(line).take(CLASSES_MAX).collect()
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
        assert_eq!(
            (classes[0].class.as_str(), classes[0].bytes),
            ("[B", 338_584_920)
        );
    }
}
