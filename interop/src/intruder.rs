//! A hijacked process: a test takes the part of an attacker who executes code in it.
//!
//! A tracer stops one of its threads and makes it execute system calls that the test chooses. The process
//! makes these calls itself: with its user, capabilities and descriptors, through its seccomp filter and
//! its Landlock domain. So each call returns what a hijacked process would get. The test asserts from
//! outside what must not happen.
//!
//! Needs root (the processes are closed to tracers), Python, and x86_64.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::process::Process;
use crate::tools;

/// System calls, and constants for their arguments.
pub use libc::{self, c_long};

/// The tracer, a separate program, because this crate has no unsafe code.
const TRACER: &str = include_str!("intruder.py");

/// Memory in the process for the arguments of calls.
const ROOM_BYTES: usize = 1 << 16;

/// Flags of a send that does not wait.
const SEND_FLAGS: i64 = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as i64;

/// A thread under the intruder's control. Dropping this lets the thread continue.
pub struct Intruder {
    tracer: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    pid: u32,
    room: u64,
    used: usize,
}

/// A thread of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Thread {
    /// The first thread of the process.
    First,
    /// The thread that works: in a worker it parses untrusted bytes.
    Last,
}

impl Intruder {
    /// Whether this machine can take over processes; reports it if not.
    pub fn is_possible() -> bool {
        let is_root = rustix::process::geteuid().is_root();
        if !is_root || std::env::consts::ARCH != "x86_64" {
            return tools::unavailable("taking over a process needs root, and x86_64");
        }
        tools::present(&["python3"])
    }

    /// Takes over the working thread.
    ///
    /// # Panics
    /// When that is not possible.
    pub fn enter(pid: u32) -> Self {
        Self::enter_thread(pid, Thread::Last)
    }

    /// Takes over the first worker.
    ///
    /// # Panics
    /// When that is not possible.
    pub fn enter_first(terminator: &Process) -> Self {
        Self::enter(terminator.named("worker-0").expect("a worker"))
    }

    /// Takes over this thread.
    ///
    /// # Panics
    /// When that is not possible.
    pub fn enter_thread(pid: u32, thread: Thread) -> Self {
        let tasks =
            fs::read_dir(format!("/proc/{pid}/task")).expect("a running process of the test");
        let ids = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let id = match thread {
            Thread::First => Some(pid),
            Thread::Last => ids.max(),
        };
        let mut tracer = Command::new(tools::path("python3"))
            .args(["-c", TRACER, &pid.to_string()])
            .arg(id.expect("a thread").to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let answers = BufReader::new(tracer.stdout.take().expect("a pipe"));
        let commands = tracer.stdin.take();
        let mut intruder = Self {
            tracer,
            commands,
            answers,
            pid,
            room: 0,
            used: 0,
        };
        assert_eq!(intruder.answer(), "in", "{pid} cannot be taken over");
        let protection = i64::from(libc::PROT_READ | libc::PROT_WRITE);
        let flags = i64::from(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let room = intruder.call(
            libc::SYS_mmap,
            &[0, ROOM_BYTES as i64, protection, flags, -1],
        );
        intruder.room = room.expect("memory for arguments") as u64;
        intruder
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Makes a call.
    ///
    /// # Errors
    /// The kernel's error for the process.
    ///
    /// # Panics
    /// When the process has ended.
    pub fn call(&mut self, number: c_long, arguments: &[i64]) -> io::Result<i64> {
        let mut six = [0; 6];
        six[..arguments.len()].copy_from_slice(arguments);
        let words: Vec<String> = six.iter().map(i64::to_string).collect();
        let answer = self.command(&format!("call {number} {}", words.join(" ")));
        match answer.parse::<i64>().expect("a number") {
            errno @ -4095..=-1 => Err(io::Error::from_raw_os_error(-errno as i32)),
            result => Ok(result),
        }
    }

    /// Ends the process with status 1, as a crash would.
    pub fn crash(mut self) {
        let commands = self.commands.as_mut().expect("open until the end");
        let _ = writeln!(commands, "call {} 1 0 0 0 0 0", libc::SYS_exit_group);
        let _ = self.tracer.wait();
    }

    /// Writes bytes to the process's memory, and returns their address.
    ///
    /// # Panics
    /// When the bytes exceed the reserved memory.
    pub fn put(&mut self, bytes: &[u8]) -> i64 {
        assert!(bytes.len() <= ROOM_BYTES, "too many bytes");
        if self.used + bytes.len() > ROOM_BYTES {
            // Arguments of earlier calls are no longer needed.
            self.used = 0;
        }
        let address = self.room + self.used as u64;
        self.used = (self.used + bytes.len()).next_multiple_of(16);
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        if !bytes.is_empty() {
            self.command(&format!("write {address} {digits}"));
        }
        address as i64
    }

    /// Reads the process's memory.
    pub fn look(&mut self, address: i64, len: usize) -> Vec<u8> {
        let digits = self.command(&format!("read {address} {len}"));
        let pairs = digits.as_bytes().chunks(2);
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        pairs.filter_map(byte).collect()
    }

    /// Descriptors of the process whose targets begin with `target`.
    pub fn descriptors(&self, target: &str) -> Vec<i64> {
        let links = fs::read_dir(format!("/proc/{}/fd", self.pid)).expect("its descriptors");
        let mut found: Vec<i64> = links
            .flatten()
            .filter(|link| {
                let to = fs::read_link(link.path()).unwrap_or_default();
                to.to_string_lossy().starts_with(target)
            })
            .filter_map(|link| link.file_name().to_str()?.parse().ok())
            .collect();
        found.sort_unstable();
        found
    }

    /// Writes to one of its files at this offset.
    ///
    /// # Errors
    /// The kernel's error for the process.
    pub fn overwrite(&mut self, fd: i64, at: usize, content: &[u8]) -> io::Result<()> {
        for (n, part) in content.chunks(ROOM_BYTES / 2).enumerate() {
            let from = self.put(part);
            let at = (at + n * ROOM_BYTES / 2) as i64;
            self.call(libc::SYS_pwrite64, &[fd, from, part.len() as i64, at])?;
        }
        Ok(())
    }

    /// The file behind one of its descriptors, as root sees it.
    ///
    /// # Panics
    /// When there is none.
    pub fn metadata(&self, fd: i64) -> fs::Metadata {
        fs::metadata(format!("/proc/{}/fd/{fd}", self.pid)).expect("an open descriptor")
    }

    /// Its unix stream sockets.
    pub fn unix_streams(&self) -> Vec<i64> {
        let mut sockets = self.descriptors("socket:");
        sockets.retain(|fd| self.socket_kind(*fd) == libc::SOCK_STREAM);
        sockets
    }

    /// The channel to main: the only socket that preserves message boundaries.
    ///
    /// # Panics
    /// When there is none.
    pub fn channel(&mut self) -> i64 {
        let sockets = self.descriptors("socket:");
        let is_it = |fd: &i64| self.socket_kind(*fd) == libc::SOCK_SEQPACKET;
        sockets.into_iter().find(is_it).expect("a channel to main")
    }

    /// The type of a unix socket; -1 for other sockets.
    fn socket_kind(&self, fd: i64) -> i32 {
        // /proc/net/unix has type and inode of each socket.
        let link = fs::read_link(format!("/proc/{}/fd/{fd}", self.pid)).unwrap_or_default();
        let inode = link
            .to_string_lossy()
            .replace("socket:[", "")
            .replace(']', "");
        let table = fs::read_to_string(format!("/proc/{}/net/unix", self.pid)).unwrap_or_default();
        let line = table
            .lines()
            .find(|line| line.split_whitespace().nth(6) == Some(&inode));
        let kind = line.and_then(|line| line.split_whitespace().nth(4));
        kind.and_then(|kind| i32::from_str_radix(kind, 16).ok())
            .unwrap_or(-1)
    }

    /// Creates a memory file with this content, like a handover.
    ///
    /// # Errors
    /// The kernel's error for the process.
    pub fn memory_file(&mut self, content: &[u8]) -> io::Result<i64> {
        let name = self.put(b"dormouse-handover\0");
        let flags = i64::from(libc::MFD_ALLOW_SEALING);
        let fd = self.call(libc::SYS_memfd_create, &[name, flags])?;
        self.overwrite(fd, 0, content)?;
        Ok(fd)
    }

    /// Sends a message with descriptors over one of its sockets.
    ///
    /// # Errors
    /// The kernel's error for the process.
    pub fn send(&mut self, socket: i64, bytes: &[u8], descriptors: &[i32]) -> io::Result<i64> {
        let message = self.message(bytes, descriptors);
        self.call(libc::SYS_sendmsg, &[socket, message, SEND_FLAGS])
    }

    /// Sends a message for which the process may be killed before the call returns.
    pub fn send_last(mut self, socket: i64, bytes: &[u8], descriptors: &[i32]) {
        let message = self.message(bytes, descriptors);
        let commands = self.commands.as_mut().expect("open until the end");
        let call = libc::SYS_sendmsg;
        writeln!(
            commands,
            "call {call} {socket} {message} {SEND_FLAGS} 0 0 0"
        )
        .expect("the tracer listens");
    }

    /// Writes a message with descriptors to the process's memory, and returns its address.
    fn message(&mut self, bytes: &[u8], descriptors: &[i32]) -> i64 {
        let len = bytes.len() as u64;
        let at = self.put(bytes) as u64;
        let part = self.put(&[at.to_le_bytes(), len.to_le_bytes()].concat()) as u64;
        let control = rights(descriptors);
        let control_at = match control.is_empty() {
            true => 0,
            false => self.put(&control) as u64,
        };
        // struct msghdr: name, its length, the parts, their number, control, its length, flags.
        let message = [0, 0, part, 1, control_at, control.len() as u64, 0];
        self.put(&message.map(u64::to_le_bytes).concat())
    }

    fn command(&mut self, line: &str) -> String {
        let commands = self.commands.as_mut().expect("open until the end");
        writeln!(commands, "{line}").expect("the tracer listens");
        self.answer()
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line).unwrap_or(0);
        assert!(read > 0, "process {} has ended", self.pid);
        line.trim_end().to_owned()
    }
}

impl Drop for Intruder {
    fn drop(&mut self) {
        // At the end of its input the tracer releases the thread and exits.
        drop(self.commands.take());
        let _ = self.tracer.wait();
    }
}

/// A control message with these descriptors (SCM_RIGHTS).
fn rights(descriptors: &[i32]) -> Vec<u8> {
    if descriptors.is_empty() {
        return Vec::new();
    }
    let len = 16 + 4 * descriptors.len();
    let mut control = (len as u64).to_le_bytes().to_vec();
    control.extend(libc::SOL_SOCKET.to_le_bytes());
    control.extend(libc::SCM_RIGHTS.to_le_bytes());
    control.extend(descriptors.iter().flat_map(|fd| fd.to_le_bytes()));
    control.resize(len.next_multiple_of(8), 0);
    control
}
