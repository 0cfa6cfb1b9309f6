//! Files that a configuration names.

use crate::fd::Fd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Maximum number of symbolic links that lead to a file, as in the kernel.
const LINKS_MAX: usize = 40;

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

/// Opens a file for appending and creates it if necessary. For a pipe, neither this nor a write waits for a
/// reader.
///
/// # Errors
/// The operating system's error, `ENXIO` for a pipe without a reader; that of [`behind_links`]; or that the file has several
/// names: another user may have made one of them.
pub fn open_to_append(path: &Path, mode: u32) -> io::Result<Fd> {
    let path = behind_links(path)?;
    let follow = match is_in_proc(&path) {
        true => OFlags::empty(),
        // Another user may put a link here now.
        false => OFlags::NOFOLLOW,
    };
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NONBLOCK;
    let flags = flags | OFlags::NOCTTY | OFlags::CLOEXEC | follow;
    let file = File::from(rustix::fs::open(&path, flags, Mode::from_raw_mode(mode))?);
    let found = file.metadata()?;
    if found.is_file() && found.nlink() > 1 && follow == OFlags::NOFOLLOW {
        return Err(io::Error::other(format!(
            "{} is one of {} hard links to this file",
            path.display(),
            found.nlink()
        )));
    }
    Ok(OwnedFd::from(file).into())
}

/// Whether the path is in /proc, where a symbolic link may be an open file of a process, perhaps without a name.
fn is_in_proc(path: &Path) -> bool {
    let found = path.parent().map(rustix::fs::statfs);
    matches!(found, Some(Ok(found)) if found.f_type == rustix::fs::PROC_SUPER_MAGIC)
}

/// Replaces a file as a whole, readable only by its owner: the bytes are written to another file beside it, which then
/// takes its name. A symbolic link stays, and the file that it names is replaced, because the link may keep secrets off
/// a disk. Waits for the disk, so that the new file is there after a power failure.
///
/// # Errors
/// The operating system's error, or that of [`behind_links`]. The file has not changed.
pub fn replace_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_with(path, bytes, File::sync_all)
}

/// As [`replace_private`], but without waiting for the disk, which may take seconds. After a power failure the file may be
/// the old one, empty or damaged.
///
/// # Errors
/// As [`replace_private`].
pub fn replace_private_soon(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_with(path, bytes, |_| Ok(()))
}

/// `settle` waits for the disk: for the file, and for the folder with its new name.
fn replace_with(
    path: &Path,
    bytes: &[u8],
    settle: impl Fn(&File) -> io::Result<()>,
) -> io::Result<()> {
    let path = behind_links(path)?;
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    // A leftover may have another mode, or be a symbolic link to another place.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)?;
    let written = file
        .write_all(bytes)
        .and_then(|()| settle(&file))
        .and_then(|()| fs::rename(&beside, &path));
    if written.is_err() {
        // On a full disk, the incomplete file would take up the last room. The first error counts.
        let _ = fs::remove_file(&beside);
        return written;
    }
    // The file is replaced. Not every folder can be opened, and not every file system can wait for one.
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let _ = File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| settle(&folder));
    Ok(())
}

/// Returns the path of a file that is to be written, without symbolic links at its end. The file need not exist. An open file
/// in /proc, such as `/dev/stdout` leads to, is the file.
///
/// # Errors
/// Another user than root and this process's has made a link: that user could have any file replaced.
pub fn behind_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let link = match fs::symlink_metadata(&path) {
            Ok(found) if found.is_symlink() => found,
            _ => return Ok(path),
        };
        if ![0, rustix::process::geteuid().as_raw()].contains(&link.uid()) {
            return Err(io::Error::other(format!(
                "the symbolic link {} belongs to another user",
                path.display()
            )));
        }
        if is_in_proc(&path) {
            return Ok(path);
        }
        let target = fs::read_link(&path)?;
        path = match path.parent() {
            Some(folder) => folder.join(target),
            None => target,
        };
    }
    Err(Errno::LOOP.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_link_stays_when_its_file_is_replaced() {
        let name = format!("dormouse-links-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(folder.join("elsewhere")).expect("a folder");
        let at = |name: &str| folder.join(name);
        symlink("second", at("first")).expect("a link");
        symlink(at("elsewhere/file"), at("second")).expect("a link");
        for text in ["one", "another"] {
            replace_private(&at("first"), text.as_bytes()).expect("written");
            let found = fs::read_to_string(at("elsewhere/file")).expect("the file");
            assert_eq!(found, text);
        }
        assert!(at("first").is_symlink() && at("second").is_symlink());
        let found = fs::metadata(at("first")).expect("the file");
        assert_eq!(found.mode() & 0o777, 0o600);
        let names = fs::read_dir(at("elsewhere")).expect("a folder").count();
        assert_eq!(names, 1, "nothing is left beside the file");

        fs::create_dir(at("folder")).expect("a folder");
        replace_private(&at("folder"), b"").expect_err("a folder cannot be replaced by a file");
        assert!(
            !at("folder.new").exists(),
            "nothing is left after a failure"
        );

        symlink("round", at("round")).expect("a link");
        replace_private(&at("round"), b"").expect_err("a circle");
        if rustix::process::geteuid().is_root() {
            let strange = at("strange");
            symlink(at("elsewhere/file"), &strange).expect("a link");
            std::os::unix::fs::lchown(&strange, Some(1), Some(1)).expect("changed");
            let error = replace_private(&strange, b"").expect_err("another user's");
            assert!(error.to_string().contains("another user"), "{error}");
            let found = fs::read_to_string(at("elsewhere/file")).expect("the file");
            assert_eq!(found, "another");
        }
        fs::remove_dir_all(&folder).expect("removed");
    }

    /// After a power failure, a new name that was not written to the disk is the old one again.
    #[test]
    fn the_folder_of_a_replaced_file_is_written_to_the_disk() {
        let folder = std::env::temp_dir().join(format!("dormouse-disk-{}", std::process::id()));
        fs::create_dir(&folder).expect("a folder");
        let path = folder.join("file");
        let settled = std::cell::RefCell::new(Vec::new());
        let note = |file: &File| {
            let is_there = path.exists();
            settled
                .borrow_mut()
                .push((file.metadata()?.is_dir(), is_there));
            Ok(())
        };
        replace_with(&path, b"text", note).expect("written");
        assert_eq!(settled.into_inner(), [(false, false), (true, true)]);
        fs::remove_dir_all(&folder).expect("removed");
    }

    /// The file of another user's link, or with another user's name, is not ours to write.
    #[test]
    fn nothing_is_appended_to_a_file_of_another_name() {
        let folder = std::env::temp_dir().join(format!("dormouse-append-{}", std::process::id()));
        fs::create_dir(&folder).expect("a folder");
        let at = |name: &str| folder.join(name);
        let append = |path: &Path| {
            let opened = open_to_append(path, 0o600);
            opened.map(|fd| {
                fd.write(b"line\n").expect("written");
                fd.close();
            })
        };
        symlink("log", at("link")).expect("a link");
        append(&at("link")).expect("our own link");
        append(&at("log")).expect("the file");
        assert_eq!(fs::read(at("log")).expect("read"), b"line\nline\n");
        fs::hard_link(at("log"), at("second")).expect("a link");
        let error = append(&at("log")).expect_err("two names").to_string();
        assert!(error.contains("one of 2 hard links"), "{error}");
        fs::remove_file(at("second")).expect("removed");
        if rustix::process::geteuid().is_root() {
            let strange = at("strange");
            symlink(at("log"), &strange).expect("a link");
            std::os::unix::fs::lchown(&strange, Some(1), Some(1)).expect("changed");
            let error = append(&strange).expect_err("another user's").to_string();
            assert!(error.contains("another user"), "{error}");
        }
        // As /dev/stdout is: a pipe has no name that could be opened.
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let number = std::os::fd::AsRawFd::as_raw_fd(&writer);
        symlink(format!("/proc/self/fd/{number}"), at("out")).expect("a link");
        append(&at("out")).expect("an open file");
        drop(writer);
        let text = std::io::read_to_string(reader).expect("the line");
        assert_eq!(text, "line\n");
        assert_eq!(fs::read(at("log")).expect("read").len(), 10);
        fs::remove_dir_all(&folder).expect("removed");
    }

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
