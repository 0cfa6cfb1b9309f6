//! Starting and supervising processes, and what they keep.

use std::io::{self, Write};
use std::process::abort;
use std::sync::atomic::Ordering;

use dormouse_reactor::memory::Words;
use dormouse_reactor::poller::{Events, Interest, Poller};
use dormouse_reactor::process::{
    self, Ended, Inherit, Life, Pid, Program, ProgramFile, Wait, wait,
};
use dormouse_reactor::signal::{Signal, Signals, block, receive_within, unblock_all};
use dormouse_reactor::socket::{self, Attempt};
use dormouse_reactor::{Fd, OnExec};

use super::share_table;

fn shell(script: &str) -> Program {
    Program {
        file: ProgramFile::Path("/bin/sh".into()),
        arguments: ["sh", "-c", script].map(Into::into).to_vec(),
        environment: Some(vec![("KEY".into(), "the value".into())]),
        inherit: Inherit::Only(Vec::new()),
    }
}

/// Returns this program in one of its roles.
pub(crate) fn role(role: &str, arguments: &[String]) -> Program {
    let head = ["processes", "--child", role].map(String::from);
    Program::this(head.iter().chain(arguments))
}

fn end_of(pid: Pid) -> Ended {
    wait(Wait::For(pid)).unwrap().unwrap().1
}

pub(crate) fn the_end_of_a_child_is_reported() {
    let ended = end_of(
        shell("test \"$KEY\" = 'the value' && exit 7")
            .start()
            .unwrap(),
    );
    assert_eq!(ended, Ended::Exited(7));
    assert_eq!(ended.to_string(), "exited with code 7");

    let pid = shell("exec sleep 1000").start().unwrap();
    assert_eq!(wait(Wait::IfEnded(pid)).unwrap(), None);
    assert!(process::runs(pid));
    assert_eq!(process::peek(pid).unwrap(), None);
    process::send_signal(pid, Signal::Kill).unwrap();
    // Peeking at its end works repeatedly before it is reaped.
    let seen = loop {
        if let Some(ended) = process::peek(pid).unwrap() {
            break ended;
        }
        std::thread::yield_now();
    };
    assert_eq!(process::peek(pid).unwrap(), Some(seen));
    assert!(!process::runs(pid));
    let ended = end_of(pid);
    assert_eq!(ended.to_string(), "killed by SIGKILL (9)");
    assert_eq!(ended, seen);
    assert!(process::peek(pid).is_err());

    assert!(wait(Wait::For(pid)).is_err());
    assert_eq!(wait(Wait::AnyEnded).unwrap(), None);
    // Never signals a process group.
    for pid in [0, -1] {
        assert!(process::send_signal(Pid(pid), Signal::Kill).is_err());
    }
}

pub(crate) fn a_failed_exec_is_reported() {
    let mut program = shell("");
    program.file = ProgramFile::Path("/does/not/exist".into());
    let error = program.start().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    program.file = ProgramFile::Path("/dev/null".into());
    let error = program.replace_this().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    program.inherit = Inherit::Only(vec![Fd(1_000_000)]);
    assert!(program.start().is_err());
    // No zombie remains.
    assert_eq!(wait(Wait::AnyEnded).unwrap(), None);
}

/// Child: exits with 0 if exactly the given descriptors are open, besides the first three.
pub(crate) fn report_descriptors(expected: &[String]) -> i32 {
    let open = |n: &i32| Fd(*n).on_exec().is_ok();
    let found: Vec<String> = (3..1000).filter(open).map(|n| n.to_string()).collect();
    i32::from(found != expected)
}

pub(crate) fn descriptors_are_chosen() {
    let (a, b) = socket::pair(OnExec::Close).unwrap();
    let (c, d) = socket::pair(OnExec::Keep).unwrap();
    let check = |inherit: Inherit, expected: &[Fd]| {
        let arguments: Vec<String> = expected.iter().map(Fd::to_string).collect();
        let program = role("--descriptors", &arguments).with(inherit);
        assert_eq!(end_of(program.start().unwrap()), Ended::Exited(0));
    };
    check(Inherit::Only(vec![]), &[]);
    check(Inherit::Only(vec![a, d]), &[a, d]);
    check(Inherit::Unmarked, &[c, d]);
    // The flags in this process are unchanged.
    let marks = [a, b, c, d].map(|fd| fd.on_exec().unwrap());
    assert_eq!(
        marks,
        [OnExec::Close, OnExec::Close, OnExec::Keep, OnExec::Keep]
    );
    [a, b, c, d].into_iter().for_each(Fd::close);
}

pub(crate) fn an_open_file_is_run() {
    let file = Fd::from_owned(std::fs::File::open("/bin/sh").unwrap().into());
    let mut program = shell("exit 3");
    program.file = ProgramFile::Open(file);
    assert_eq!(end_of(program.start().unwrap()), Ended::Exited(3));
    file.close();
}

pub(crate) fn the_table_is_shared() {
    let words = Words::create("test", 4096).unwrap();
    let fd = words.fd();
    let opened = move || {
        let words = Words::adopt(fd, 4096).unwrap();
        let (a, b) = socket::pair(OnExec::Close).unwrap();
        socket::send(a, b"from the child").unwrap().done().unwrap();
        words.word(0).unwrap().store(b.0 as u64, Ordering::Release);
        words.word(8).unwrap().store(a.0 as u64, Ordering::Release);
        process::send_signal(process::pid(), Signal::Kill).unwrap();
        0
    };
    let pid = share_table("worker", opened).unwrap();
    assert_eq!(end_of(pid), Ended::Killed(9));
    // The child is dead, and its descriptors are open here.
    let number = |at: usize| Fd(words.word(at).unwrap().load(Ordering::Acquire) as i32);
    let mut buf = [0; 100];
    assert_eq!(
        socket::recv(number(0), &mut buf).unwrap(),
        Attempt::Done(14)
    );
    assert_eq!(&buf[..14], b"from the child");
    [number(0), number(8), fd].into_iter().for_each(Fd::close);
}

pub(crate) fn a_worker_has_correct_thread_ids() {
    // glibc's data about a thread is used when it signals itself, and when threads join.
    let pid = share_table("worker", || abort()).unwrap();
    assert_eq!(end_of(pid).to_string(), "killed by SIGABRT (6)");
    let work = || {
        let threads = (0..4).map(|n| std::thread::spawn(move || n));
        threads.map(|thread| thread.join().unwrap()).sum()
    };
    let pid = share_table("worker", work).unwrap();
    assert_eq!(end_of(pid), Ended::Exited(6));
}

pub(crate) fn signals_are_read() {
    let signals = Signals::open(&[Signal::User1, Signal::Child], OnExec::Close).unwrap();
    assert_eq!(signals.receive().unwrap(), Attempt::WouldBlock);
    process::send_signal(process::pid(), Signal::User1).unwrap();
    let received = signals.receive().unwrap().done().unwrap();
    assert_eq!(received.signal, Signal::User1);
    assert_eq!(received.from_pid, process::pid().0 as u32);

    let pid = shell("exit 0").start().unwrap();
    let poller = Poller::create(OnExec::Close).unwrap();
    poller.add(signals.fd(), 1, Interest::READ).unwrap();
    let mut events = Events::with_capacity(1);
    poller.wait(&mut events, None).unwrap();
    let received = signals.receive().unwrap().done().unwrap();
    assert_eq!(received.signal, Signal::Child);
    assert_eq!(wait(Wait::AnyEnded).unwrap(), Some((pid, Ended::Exited(0))));
    unblock_all().unwrap();
    poller.fd().close();
}

pub(crate) fn the_sender_of_a_signal_is_known() {
    block(&[Signal::User1, Signal::Child]).unwrap();
    assert_eq!(receive_within(&[Signal::User1], 0).unwrap(), None);
    let parent = process::pid();
    let pid = shell(&format!("kill -USR1 {parent}", parent = parent.0))
        .start()
        .unwrap();
    let received = receive_within(&[Signal::User1], 60_000).unwrap().unwrap();
    assert_eq!(received.signal, Signal::User1);
    assert_eq!(received.from_pid, pid.0 as u32);
    assert_eq!(end_of(pid), Ended::Exited(0));
    let received = receive_within(&[Signal::Child], 60_000).unwrap().unwrap();
    assert_eq!(received.from_pid, pid.0 as u32);
    // With sigqueue a process writes the sender itself.
    let forged = format!(
        "import ctypes, struct\n\
         info = struct.pack('iiiiii', 10, 0, -1, 0, {parent}, 0) + bytes(104)\n\
         ctypes.CDLL(None).syscall(129, {parent}, 10, info)",
        parent = parent.0
    );
    let mut python = shell("");
    python.file = ProgramFile::Path("/usr/bin/python3".into());
    python.arguments = ["python3", "-c", &forged].map(Into::into).to_vec();
    if cfg!(target_arch = "x86_64")
        && let Ok(pid) = python.start()
    {
        let received = receive_within(&[Signal::User1], 60_000).unwrap().unwrap();
        assert_eq!(received.from_pid, 0, "claimed to be {}", parent.0);
        assert_eq!(end_of(pid), Ended::Exited(0));
    }
    unblock_all().unwrap();
}

pub(crate) fn the_end_of_any_process_is_seen() {
    let pid = shell("exec sleep 1000").start().unwrap();
    let life = Life::of(pid);
    assert!(!life.is_over());
    process::send_signal(pid, Signal::Terminate).unwrap();
    while !life.is_over() {
        std::thread::yield_now();
    }
    assert_eq!(end_of(pid).to_string(), "killed by SIGTERM (15)");
    assert!(life.is_over() && Life::of(pid).is_over());
    assert!(Life::of(Pid(0)).is_over(), "a process group");
}

pub(crate) fn a_sleeper_is_woken() {
    let words = Words::create("test", 4096).unwrap();
    let fd = words.fd();
    let sleeper = move || {
        let words = Words::adopt(fd, 4096).unwrap();
        let word = words.word32(0).unwrap();
        words.word32(64).unwrap().store(1, Ordering::SeqCst);
        while word.load(Ordering::SeqCst) == 0 {
            process::futex_wait(word, 0, None).unwrap();
        }
        5
    };
    let pid = share_table("sleeper", sleeper).unwrap();
    let word = words.word32(0).unwrap();
    while words.word32(64).unwrap().load(Ordering::SeqCst) == 0 {
        process::futex_wait(words.word32(64).unwrap(), 0, Some(1)).unwrap();
    }
    word.store(1, Ordering::SeqCst);
    process::futex_wake(word, 1).unwrap();
    assert_eq!(end_of(pid), Ended::Exited(5));
    fd.close();
}

pub(crate) fn secrets_are_not_dumped() {
    let work = || {
        process::forbid_core_dumps().unwrap();
        process::set_name("dormouse-x").unwrap();
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
        let core = limits
            .lines()
            .find(|line| line.starts_with("Max core file size"));
        let zero = core.is_some_and(|line| line.split_whitespace().nth(4) == Some("0"));
        i32::from(!zero)
    };
    assert_eq!(
        end_of(share_table("worker", work).unwrap()),
        Ended::Exited(0)
    );
}

/// Child: the program that replaces a process.
pub(crate) fn successor(arguments: &[String]) -> i32 {
    let [fd, pid, child] = arguments else {
        return 1;
    };
    let words = Words::adopt(Fd(fd.parse().unwrap()), 4096).unwrap();
    assert_eq!(pid.parse(), Ok(process::pid().0));
    assert_eq!(words.word(0).unwrap().load(Ordering::Acquire), 42);
    // The process keeps its child.
    let child = Pid(child.parse().unwrap());
    process::send_signal(child, Signal::Kill).unwrap();
    assert_eq!(end_of(child), Ended::Killed(9));
    12
}

pub(crate) fn an_exec_keeps_the_process() {
    let words = Words::create("test", 4096).unwrap();
    words.word(0).unwrap().store(42, Ordering::Release);
    let fd = words.fd();
    let work = move || {
        // Exec from a thread: the process id stays, and the thread becomes the process.
        let child = shell("exec sleep 1000").start().unwrap();
        let arguments = [fd.0, process::pid().0, child.0].map(|n| n.to_string());
        let Err(error) = role("--successor", &arguments)
            .with(Inherit::Only(vec![fd]))
            .replace_this();
        panic!("{error}");
    };
    assert_eq!(end_of(share_table("old", work).unwrap()), Ended::Exited(12));
    fd.close();
}

pub(crate) fn threads_forbid_sharing() {
    io::stdout().flush().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || receiver.recv());
    let error = share_table("worker", || 0).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
    drop(sender);
    let _ = thread.join();
}
