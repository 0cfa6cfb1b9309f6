//! Signals as descriptors: no code runs in a signal handler.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;

use crate::outcome::Attempt;
use crate::{Fd, OnExec};

/// The signals that this program handles.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(i32)]
pub enum Signal {
    /// SIGHUP: reload.
    Hangup = libc::SIGHUP,
    /// SIGINT: the user asks the program to end.
    Interrupt = libc::SIGINT,
    /// SIGQUIT: drain, then end.
    Quit = libc::SIGQUIT,
    /// SIGTERM: the system asks the program to end.
    Terminate = libc::SIGTERM,
    /// SIGKILL: sent, never received.
    Kill = libc::SIGKILL,
    /// SIGSTOP: sent, never received.
    Stop = libc::SIGSTOP,
    /// SIGCONT.
    Continue = libc::SIGCONT,
    /// SIGUSR1: drain, then end. Between keepers: wakes a process.
    User1 = libc::SIGUSR1,
    /// SIGUSR2: upgrade.
    User2 = libc::SIGUSR2,
    /// SIGCHLD: a child has ended.
    Child = libc::SIGCHLD,
    /// SIGWINCH: the terminal's size changed.
    Resized = libc::SIGWINCH,
}

impl Signal {
    const ALL: [Signal; 11] = [
        Signal::Hangup,
        Signal::Interrupt,
        Signal::Quit,
        Signal::Terminate,
        Signal::Kill,
        Signal::Stop,
        Signal::Continue,
        Signal::User1,
        Signal::User2,
        Signal::Child,
        Signal::Resized,
    ];

    /// Returns the operating system's number.
    pub fn number(self) -> i32 {
        self as i32
    }

    /// Returns the signal with this number, if the program handles it.
    fn from_number(number: i32) -> Option<Signal> {
        Signal::ALL.into_iter().find(|s| s.number() == number)
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name(self.number()).unwrap_or("unknown signal"))
    }
}

/// Returns the usual name of a signal.
pub fn name(number: i32) -> Option<&'static str> {
    Some(match number {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGCHLD => "SIGCHLD",
        libc::SIGCONT => "SIGCONT",
        libc::SIGSTOP => "SIGSTOP",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGWINCH => "SIGWINCH",
        libc::SIGSYS => "SIGSYS",
        _ => return None,
    })
}

/// Signals that are received by reading a descriptor.
///
/// They are blocked in the thread that creates this, and in every thread and process that it starts later, so
/// create it first. The mask survives an exec; a process that must not inherit it calls [`unblock_all`].
#[derive(Debug)]
pub struct Signals {
    fd: Fd,
}

/// A received signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceivedSignal {
    /// The signal.
    pub signal: Signal,
    /// The sending process; 0 for the kernel.
    pub from_pid: u32,
}

impl Signals {
    /// Blocks the signals and opens the descriptor, which is readable when a signal is pending.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn open(signals: &[Signal], on_exec: OnExec) -> io::Result<Signals> {
        let set = set_of(signals);
        change_mask(libc::SIG_BLOCK, &set)?;
        let flags = libc::SFD_NONBLOCK | libc::SFD_CLOEXEC;
        // SAFETY: the set is initialised and only read.
        let fd = Fd(unsafe { libc::signalfd(-1, &raw const set, flags) });
        if !fd.is_some() {
            return Err(io::Error::last_os_error());
        }
        fd.set_on_exec(on_exec).inspect_err(|_| fd.close())?;
        Ok(Signals { fd })
    }

    /// Returns the descriptor, for a [`crate::poller::Poller`].
    pub fn fd(&self) -> Fd {
        self.fd
    }

    /// Returns the next pending signal. Several signals of one kind may count as one.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn receive(&self) -> io::Result<Attempt<ReceivedSignal>> {
        const LEN: usize = size_of::<libc::signalfd_siginfo>();
        let mut info = [0u8; LEN];
        loop {
            match rustix::io::read(self.fd.borrow()?, &mut info) {
                // ssi_signo and ssi_pid of signalfd(2).
                Ok(LEN) => {
                    let [signo, pid] = [0, 12].map(|at| u32_at(&info, at));
                    if let Some(signal) = Signal::from_number(signo as i32) {
                        let from_pid = pid;
                        return Ok(Attempt::Done(ReceivedSignal { signal, from_pid }));
                    }
                }
                Ok(_) | Err(rustix::io::Errno::AGAIN) => return Ok(Attempt::WouldBlock),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.fd.close();
    }
}

/// Ignores every signal that would end the process without a meaning for it: SIGALRM, SIGIO, limits on CPU time
/// and file size, real-time signals and the like. Does not ignore signals for faults of the program itself.
pub fn ignore_meaningless() {
    let others = [
        libc::SIGALRM,
        libc::SIGVTALRM,
        libc::SIGPROF,
        libc::SIGIO,
        libc::SIGPWR,
        libc::SIGSTKFLT,
        libc::SIGPIPE,
        libc::SIGXCPU,
        libc::SIGXFSZ,
    ];
    let real_time = libc::SIGRTMIN()..=libc::SIGRTMAX();
    for number in others.into_iter().chain(real_time) {
        // SAFETY: sets no handler, so no code of ours runs in one.
        unsafe { libc::signal(number, libc::SIG_IGN) };
    }
}

/// Blocks signals in this thread and those that it starts, so that [`wait_for`] receives them.
///
/// # Errors
/// The operating system's error.
pub fn block(signals: &[Signal]) -> io::Result<()> {
    change_mask(libc::SIG_BLOCK, &set_of(signals))
}

/// Sleeps until one of these signals is pending (they must be blocked), or for `timeout_ms`. For a process that
/// reads no descriptor.
///
/// # Errors
/// The operating system's error.
pub fn wait_for(signals: &[Signal], timeout_ms: u64) -> io::Result<Option<Signal>> {
    Ok(receive_within(signals, timeout_ms)?.map(|received| received.signal))
}

/// Like [`wait_for`], but also returns the sender. The kernel fills it in; it is 0 if the sender could have
/// written it itself (sigqueue).
///
/// # Errors
/// The operating system's error.
pub fn receive_within(signals: &[Signal], timeout_ms: u64) -> io::Result<Option<ReceivedSignal>> {
    let set = set_of(signals);
    let timeout = libc::timespec {
        tv_sec: (timeout_ms / 1000) as _,
        tv_nsec: (timeout_ms % 1000 * 1_000_000) as libc::c_long,
    };
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: the set and the time are initialised and only read; the kernel writes to `info`.
    let number =
        unsafe { libc::sigtimedwait(&raw const set, info.as_mut_ptr(), &raw const timeout) };
    if number < 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => Ok(None),
            _ => Err(error),
        };
    }
    // SAFETY: zero is a valid siginfo_t, and the kernel has written to it.
    let info = unsafe { info.assume_init() };
    // The codes of kill, and of the kernel for the end of a child: both come with a process id.
    let is_named = info.si_code == libc::SI_USER || number == libc::SIGCHLD && info.si_code > 0;
    // SAFETY: signals with these codes have the field.
    let from_pid = is_named.then(|| unsafe { info.si_pid() } as u32);
    Ok(Signal::from_number(number).map(|signal| ReceivedSignal {
        signal,
        from_pid: from_pid.unwrap_or(0),
    }))
}

/// Unblocks every signal in this thread.
///
/// # Errors
/// The operating system's error.
pub fn unblock_all() -> io::Result<()> {
    change_mask(libc::SIG_SETMASK, &set_of(&[]))
}

/// Makes a command start with no signal blocked, as from a shell. Masks are inherited, and a program must
/// receive the signals that ask it to end.
pub fn unblocked(command: &mut std::process::Command) -> &mut std::process::Command {
    use std::os::unix::process::CommandExt as _;
    // SAFETY: before its exec the child makes one system call; it takes no lock and allocates nothing.
    unsafe { command.pre_exec(unblock_all) }
}

fn set_of(signals: &[Signal]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the whole set, and sigaddset changes bits of it; both fail only for
    // invalid numbers.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal.number());
        }
        set.assume_init()
    }
}

fn change_mask(how: libc::c_int, set: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: the set is initialised and only read; the old mask is not requested.
    match unsafe { libc::pthread_sigmask(how, set, std::ptr::null_mut()) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(word)
}
