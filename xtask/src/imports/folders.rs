//! The folder to which each file belongs.

use crate::tree::directory_of;
use std::collections::BTreeSet;

pub(super) struct Folders(BTreeSet<String>);

impl Folders {
    pub(super) fn of<'a>(files: impl Iterator<Item = &'a str>) -> Folders {
        let mut folders = BTreeSet::new();
        for file in files {
            let mut folder = directory_of(file);
            while !folder.is_empty() && folders.insert(folder.to_string()) {
                folder = directory_of(folder);
            }
        }
        Folders(folders)
    }

    /// Returns the innermost folder around two different files, and its two parts that contain them.
    pub(super) fn parting(&self, one: &str, other: &str) -> (String, String, String) {
        let (one, other) = (self.steps(one), self.steps(other));
        let is_common = |(one, other): &(&String, &String)| one == other;
        let common = one.iter().zip(&other).take_while(is_common).count();
        let folder = common.checked_sub(1).map(|last| one[last].clone());
        (
            folder.unwrap_or_default(),
            one[common].clone(),
            other[common].clone(),
        )
    }

    /// Returns the folders around `file`, outermost first, then `file` itself. `a.rs` is in the
    /// folder `a` if there is one, as `a/mod.rs` is.
    fn steps(&self, file: &str) -> Vec<String> {
        let mut steps = vec![file.to_string()];
        let own = file.strip_suffix(".rs").filter(|own| self.0.contains(*own));
        let mut folder = own.unwrap_or_else(|| directory_of(file));
        while !folder.is_empty() {
            steps.push(folder.to_string());
            folder = directory_of(folder);
        }
        steps.reverse();
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_part_in_the_innermost_common_folder() {
        let files = [
            "a/src/b.rs",
            "a/src/b/c.rs",
            "a/src/b/d/mod.rs",
            "a/src/b/d/e.rs",
            "a/src/f.rs",
        ];
        let folders = Folders::of(files.into_iter());
        let parting = |one, other| {
            let (folder, one, other) = folders.parting(one, other);
            format!("{folder}: {one} {other}")
        };
        assert_eq!(
            parting(files[0], files[1]),
            "a/src/b: a/src/b.rs a/src/b/c.rs"
        );
        assert_eq!(
            parting(files[3], files[1]),
            "a/src/b: a/src/b/d a/src/b/c.rs"
        );
        assert_eq!(
            parting(files[2], files[3]),
            "a/src/b/d: a/src/b/d/mod.rs a/src/b/d/e.rs"
        );
        assert_eq!(parting(files[4], files[2]), "a/src: a/src/f.rs a/src/b");
        assert_eq!(parting("x.js", "y/z.js"), ": x.js y");
    }
}
