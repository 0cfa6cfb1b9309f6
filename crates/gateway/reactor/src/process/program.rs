//! Running another program, in a child or in place of this one.

use std::convert::Infallible;
use std::ffi::{CString, OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;

use rustix::fs::{Mode, OFlags};

use super::share::exit_at_once;
use super::this::set_close_on_exec_from;
use super::{Pid, Wait, wait};
use crate::{Fd, OnExec};

/// The program to run.
#[derive(Clone, Debug)]
pub enum ProgramFile {
    /// This process's own executable, even if it has been replaced or deleted since.
    This,
    /// A path.
    Path(PathBuf),
    /// An open file, so that the checked file is the one that runs.
    Open(Fd),
}

/// Opens a program to run by descriptor ([`ProgramFile::Open`]), not to read.
///
/// # Errors
/// The operating system's error.
pub fn open_program(path: &Path) -> io::Result<Fd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

/// The descriptors that the program inherits, besides 0, 1 and 2.
#[derive(Clone, Debug)]
pub enum Inherit {
    /// All descriptors without close-on-exec: a keeper that executes itself keeps the connections of its
    /// worker.
    Unmarked,
    /// Only these, with their numbers.
    Only(Vec<Fd>),
}

/// A program with its arguments, environment and descriptors.
#[derive(Clone, Debug)]
pub struct Program {
    /// The file to execute.
    pub file: ProgramFile,
    /// Its arguments, starting with the program's name.
    pub arguments: Vec<OsString>,
    /// Its environment; `None`: the environment of this process.
    pub environment: Option<Vec<(OsString, OsString)>>,
    /// Its descriptors.
    pub inherit: Inherit,
}

impl Program {
    /// Returns this program with other arguments, and without descriptors.
    pub fn this(arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Program {
        Program {
            file: ProgramFile::This,
            arguments: arguments.into_iter().map(Into::into).collect(),
            environment: None,
            inherit: Inherit::Only(Vec::new()),
        }
    }

    /// Returns the program with these descriptors.
    #[must_use]
    pub fn with(mut self, inherit: Inherit) -> Program {
        self.inherit = inherit;
        self
    }

    /// Replaces this process. It keeps its process id, its children and its signal mask. A shared file table is
    /// no longer shared.
    ///
    /// # Errors
    /// It returns only on failure, and this process continues. Close-on-exec flags may have changed if
    /// `inherit` is [`Inherit::Only`].
    pub fn replace_this(&self) -> io::Result<Infallible> {
        let prepared = Prepared::new(self)?;
        Err(prepared.exec())
    }

    /// Starts the program in a child with its own file table. When this returns, the program is running.
    ///
    /// # Errors
    /// The operating system's error, including that of the exec in the child.
    pub fn start(&self) -> io::Result<Pid> {
        let prepared = Prepared::new(self)?;
        let (mut reader, writer) = io::pipe()?;
        // SAFETY: the child makes only system calls on prepared data; it takes no lock and allocates nothing,
        // so it may be forked from a process with threads.
        let pid = match unsafe { libc::fork() } {
            -1 => return Err(io::Error::last_os_error()),
            0 => exec_in_child(&prepared, &OwnedFd::from(writer)),
            pid => Pid(pid),
        };
        drop(writer);
        let mut errno = [0; 4];
        match reader.read_exact(&mut errno) {
            // The exec closed the pipe: it succeeded.
            Err(_) => Ok(pid),
            Ok(()) => {
                let _ = wait(Wait::For(pid));
                Err(io::Error::from_raw_os_error(i32::from_ne_bytes(errno)))
            }
        }
    }
}

/// The data that exec needs, allocated before fork.
struct Prepared {
    file: Fd,
    path: CString,
    _arguments: Vec<CString>,
    argv: Vec<*const libc::c_char>,
    _environment: Vec<CString>,
    envp: Vec<*const libc::c_char>,
    only: Option<Vec<Fd>>,
}

impl Prepared {
    fn new(program: &Program) -> io::Result<Prepared> {
        let (file, path) = match &program.file {
            ProgramFile::This => (Fd::NONE, c_string(OsStr::new("/proc/self/exe"))?),
            ProgramFile::Path(path) => (Fd::NONE, c_string(path.as_os_str())?),
            ProgramFile::Open(fd) => (*fd, CString::default()),
        };
        let arguments = program
            .arguments
            .iter()
            .map(|argument| c_string(argument))
            .collect::<io::Result<Vec<_>>>()?;
        let environment = match &program.environment {
            Some(pairs) => pairs.clone(),
            None => std::env::vars_os().collect(),
        };
        let environment = environment
            .into_iter()
            .map(|(mut key, value)| {
                key.push("=");
                key.push(value);
                c_string(&key)
            })
            .collect::<io::Result<Vec<_>>>()?;
        Ok(Prepared {
            file,
            path,
            argv: pointers(&arguments),
            _arguments: arguments,
            envp: pointers(&environment),
            _environment: environment,
            only: match &program.inherit {
                Inherit::Unmarked => None,
                Inherit::Only(list) => Some(list.clone()),
            },
        })
    }

    /// Executes the program, or returns the error. Allocates nothing.
    fn exec(&self) -> io::Error {
        if let Some(only) = &self.only {
            if let Err(error) = set_close_on_exec_from(3) {
                return error;
            }
            for fd in only {
                if let Err(error) = fd.set_on_exec(OnExec::Keep) {
                    return error;
                }
            }
        }
        let (argv, envp) = (self.argv.as_ptr(), self.envp.as_ptr());
        let (at, flags) = if self.file.is_some() {
            (self.file.0, libc::AT_EMPTY_PATH)
        } else {
            (libc::AT_FDCWD, 0)
        };
        let exec = || {
            // SAFETY: the path ends with a zero byte, and so does every string of the two lists, which
            // end with a null pointer; the strings live in `self`.
            unsafe {
                libc::syscall(
                    libc::SYS_execveat,
                    at,
                    self.path.as_ptr(),
                    argv,
                    envp,
                    flags,
                );
            }
            io::Error::last_os_error()
        };
        let error = exec();
        if error.raw_os_error() != Some(libc::ENOENT) || !self.file.is_some() {
            return error;
        }
        // A script: its interpreter opens it through this descriptor, which must stay open.
        match self.file.set_on_exec(OnExec::Keep) {
            Ok(()) => exec(),
            Err(error) => error,
        }
    }
}

/// In the child: executes the program, or writes the error number to the pipe.
fn exec_in_child(prepared: &Prepared, writer: &OwnedFd) -> ! {
    let error = prepared.exec();
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    let _ = rustix::io::write(writer, &errno.to_ne_bytes());
    exit_at_once(127)
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    Ok(CString::new(text.as_bytes())?)
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings
        .iter()
        .map(|string| string.as_ptr())
        .chain([ptr::null()])
        .collect()
}
