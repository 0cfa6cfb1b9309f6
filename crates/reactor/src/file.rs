//! Files that a configuration names.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::path::Path;

/// Opens a regular file for reading. To open or read a pipe or a device can wait forever, and it gives other bytes the
/// second time; so those are errors.
///
/// # Errors
/// The operating system's error, or that the file is not a regular one.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let found = file.metadata()?;
    if found.is_dir() {
        return Err(Errno::ISDIR.into());
    }
    if !found.is_file() {
        return Err(io::Error::other(
            "this is a pipe or a device, not a regular file",
        ));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn only_regular_files_are_opened() {
        let folder = std::env::temp_dir().join(format!("dormouse-files-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder");
        let at = |name: &str| folder.join(name);
        std::fs::write(at("file"), "text").expect("written");
        let mut text = String::new();
        let mut file = open_regular(&at("file")).expect("a regular file");
        file.read_to_string(&mut text).expect("read");
        assert_eq!(text, "text");
        // Nobody writes to this pipe: an ordinary open would wait.
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("pipe"),
            rustix::fs::FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .expect("a pipe");
        for (path, says) in [
            (at("pipe"), "not a regular file"),
            ("/dev/zero".into(), "not a regular file"),
            (folder.clone(), "Is a directory"),
            (at("none"), "No such file"),
        ] {
            let error = open_regular(&path).expect_err("refused").to_string();
            assert!(error.contains(says), "{}: {error}", path.display());
        }
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
