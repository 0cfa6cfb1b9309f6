//! Attacks by a hijacked worker: a tracer makes it execute the system calls that an attacker would choose.
//! All assertions are made from outside.

use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::path::Path;
use std::time::Duration;

use dormouse_interop::admin::Admin;
use dormouse_interop::backend::Backend;
use dormouse_interop::intruder::{Intruder, Thread, c_long, libc};
use dormouse_interop::peer::Peer;
use dormouse_interop::probe::Probe;
use dormouse_interop::process::{Process, kill_asleep, signal, status};
use dormouse_interop::scene::{Scene, applies};
use dormouse_interop::terminator::{Can, Settings, Target};
use dormouse_interop::wait::{self, PATIENCE};
use rustix::process::Signal;

/// Whether these tests can run here.
pub(super) fn can_run() -> bool {
    applies(Can::BeDormouse) && Intruder::is_possible()
}

/// An echo scene whose first worker is hijacked.
pub(super) fn hijack(change: impl FnOnce(&mut Settings)) -> (Scene, Probe, Intruder) {
    let scene = Scene::with(|settings| {
        settings.target = Target::Echo;
        change(settings);
    });
    let probe = scene.probe();
    let intruder = Intruder::enter_first(&scene.terminator);
    (scene, probe, intruder)
}

/// The current worker.
pub(super) fn worker(scene: &Scene) -> Option<u32> {
    scene.terminator.named("worker-0")
}

pub(super) fn descriptors(pid: u32) -> usize {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors");
    open.count()
}

pub(super) fn is_refused(result: &io::Result<i64>) -> bool {
    let refused = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    result.as_ref().is_err_and(refused)
}

/// A worker cannot choose the sandbox of its successor: a forged handover without a sandbox is rejected.
#[test]
fn a_forged_handover_cannot_disable_the_sandbox() {
    requires!(can_run());
    for keeps_seals in [true, false] {
        let (scene, _probe, mut intruder) = hijack(|settings| {
            settings.option("sandbox", "required");
        });
        let first = intruder.pid();
        let wanted = b"\"sandbox\":\"Required\"";
        let handover = intruder
            .descriptors("/memfd:dormouse-handover")
            .into_iter()
            .find_map(|place| {
                let content = fs::read(format!("/proc/{first}/fd/{place}")).ok()?;
                let is_it = content.windows(wanted.len()).any(|part| part == wanted);
                is_it.then_some((place, content))
            });
        let (place, handover) = handover.expect("the sandbox setting in the handover");
        let forged = replaced(&handover, wanted, b"\"sandbox\":\"Off\"     ");
        let file = intruder.memory_file(&forged).expect("a memory file");
        if keeps_seals {
            // F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE, and no other seals.
            let all = [file, i64::from(libc::F_ADD_SEALS), 0xf];
            intruder.call(libc::SYS_fcntl, &all).expect("seals");
        }
        intruder
            .call(libc::SYS_dup3, &[file, place, 0])
            .expect("its own table");
        intruder.crash();
        let next = wait::until("another worker, or none", PATIENCE, || {
            let next = worker(&scene).filter(|pid| *pid != first);
            match next {
                Some(pid) if status(pid, "Seccomp:") != "0" => Some(Some(pid)),
                // A confined worker becomes ready; one without a sandbox never would.
                Some(_) if scene.terminator.lines_with("ready").len() > 1 => Some(next),
                Some(_) => None,
                None => scene.terminator.named("keeper-0").is_none().then_some(None),
            }
        });
        std::thread::sleep(Duration::from_millis(500));
        for pid in next.into_iter().chain(worker(&scene)) {
            assert_eq!(status(pid, "Seccomp:"), "2", "worker {pid} runs unconfined");
        }
        let said = scene.terminator.logged("a worker has replaced it", 1);
        assert_eq!(said.len(), 1, "{}", scene.terminator.log());
    }
}

fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = bytes.to_vec();
    let mut at = 0;
    while let Some(found) = bytes[at..]
        .windows(from.len())
        .position(|part| part == from)
    {
        bytes[at + found..at + found + to.len()].copy_from_slice(to);
        at += found + to.len();
    }
    bytes
}

/// The handover of an earlier reload is valid, and so is each that a worker receives later: a crash after a
/// reload is repaired.
#[test]
fn handovers_of_reloads_are_accepted() {
    requires!(can_run());
    let scene = Scene::with(|settings| {
        settings.target = Target::Echo;
        settings.option("sandbox", "required");
        Admin::in_folder(settings);
    });
    let admin = Admin::of(&scene);
    let mut probe = scene.probe();
    for round in 0..3 {
        for _ in 0..round * 20 {
            admin.order("/reload").expect("a reload");
        }
        probe.echo(100).expect("an echo");
        kill_asleep(worker(&scene).expect("a worker"));
        probe.echo(100).expect("an echo after a crash");
        let _newcomer = scene.probe();
        std::thread::sleep(Duration::from_millis(1_100));
    }
}

/// A worker names a foreign process as the new keeper. Main signals only processes that the kernel has named:
/// the foreign process, which SIGUSR2 would kill, survives, and the upgrade succeeds without it.
#[test]
fn main_signals_no_process_that_a_worker_names() {
    requires!(can_run());
    let (mut scene, mut probe, mut intruder) = hijack(|_| {});
    let sleep = ["sleep", "1000"].map(str::to_owned);
    let mut victim = Process::start("victim", &sleep, scene.folder.path());
    let named = victim.pid().to_le_bytes();
    let main = scene.terminator.pid();
    let channel = intruder.channel();
    // As a keeper that names its successor, as this successor, and as a keeper that stays. All are valid, because an
    // invalid message costs the worker.
    for word in [&[b"P", &named[..]].concat()[..], b"p", b"k"] {
        for _ in 0..3 {
            let sent = intruder.send(channel, word, &[]);
            assert_eq!(sent.expect("a message to main"), word.len() as i64);
        }
    }
    drop(intruder);
    probe.echo(100).expect("an echo");
    for _ in 0..2 {
        scene.terminator.upgrade();
        probe.echo(100).expect("an echo after an upgrade");
    }
    let silenced = scene.terminator.lines_with("invalid message from a worker");
    assert_eq!(silenced, Vec::<String>::new(), "the worker was trusted");
    assert!(
        victim.runs(),
        "main has signalled a process that a worker named"
    );
    signal(main, Signal::TERM);
    let status = scene.terminator.wait_for_end(PATIENCE);
    assert!(
        status.success(),
        "main waits for a process that is not its own: {status}"
    );
}

/// The same messages when main expects them: during an upgrade, from a worker that does not exit.
#[test]
fn a_worker_cannot_pose_as_the_new_keeper() {
    requires!(can_run());
    let (mut scene, mut probe, mut intruder) = hijack(|_| {});
    let (main, pid) = (scene.terminator.pid(), intruder.pid());
    let keeper = scene.terminator.named("keeper-0").expect("a keeper");
    let channel = intruder.channel();
    signal(main, Signal::USR2);
    let tried = "checking the new binary";
    scene.terminator.wait_for_line(tried, PATIENCE);
    // It reports that it is quiet, and then, instead of exiting, that it is the new keeper.
    let until = std::time::Instant::now() + Duration::from_secs(8);
    while std::time::Instant::now() < until
        && scene.terminator.lines_with("upgrade failed").is_empty()
    {
        for word in [&b"q"[..], b"p", &[b"P", &pid.to_le_bytes()[..]].concat()] {
            let _ = intruder.send(channel, word, &[]);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let refused = scene.terminator.logged("upgrade failed", 1);
    assert_eq!(refused.len(), 1, "{}", scene.terminator.log());
    drop(intruder);
    probe.echo(100).expect("an echo from the worker");
    // It executes itself again to start another worker, and has no name of its own meanwhile.
    let keeps = wait::until("a keeper", PATIENCE, || scene.terminator.named("keeper-0"));
    assert_eq!(keeps, keeper, "the old keeper was replaced");
}

/// Messages that main refuses: unknown, cut short, empty, and with descriptors, of which main keeps none. Each costs the
/// worker that sent it, and nobody else: main goes on reading its successor's.
#[test]
fn an_invalid_message_costs_only_the_worker_that_sends_it() {
    requires!(can_run());
    let (scene, mut probe, intruder) = hijack(Admin::in_folder);
    drop(intruder);
    let admin = Admin::of(&scene);
    let main = scene.terminator.pid();
    let before = descriptors(main);
    let messages: [(&[u8], usize); 6] = [
        (b"?", 0),
        (b"c123", 0),
        (b"", 0),
        (b"q", 1),
        (b"q", 2),
        (b"q", 128),
    ];
    for (number, (message, some)) in messages.into_iter().enumerate() {
        let mut intruder = Intruder::enter_first(&scene.terminator);
        let (channel, pid) = (intruder.channel(), intruder.pid());
        let attached = vec![channel as i32; some];
        intruder.send_last(channel, message, &attached);
        wait::until_true("another worker", || {
            worker(&scene).is_some_and(|next| next != pid)
        });
        let said = scene.terminator.lines_with("invalid message from a worker");
        assert_eq!(said.len(), number + 1, "{said:?}");
        probe.echo(100).expect("an echo from the next worker");
        // All workers have confirmed it.
        let said = admin.order("/reload").expect("a reload");
        assert_eq!(
            said,
            format!("configuration reloaded, edition {}", number + 2)
        );
    }
    wait::until_true("all descriptors to be closed", || {
        descriptors(main) == before
    });
    scene.terminator.upgrade();
    probe.echo(100).expect("an echo after an upgrade");
}

/// The same from control. Another one starts, and answers.
#[test]
fn an_invalid_message_costs_only_the_control_process_that_sends_it() {
    requires!(can_run());
    let (scene, mut probe, intruder) = hijack(Admin::in_folder);
    drop(intruder);
    let admin = Admin::of(&scene);
    let control = || scene.terminator.named("control");
    for (number, message) in [&b"?"[..], b"{\"id\":", b""].into_iter().enumerate() {
        let pid = control().expect("a control process");
        let mut intruder = Intruder::enter(pid);
        let channel = intruder.channel();
        intruder.send_last(channel, message, &[]);
        wait::until_true("another control process", || {
            control().is_some_and(|next| next != pid)
        });
        let said = admin.order("/reload").expect("a reload");
        assert!(said.ends_with(&format!("edition {}", number + 2)), "{said}");
    }
    scene.terminator.upgrade();
    probe.echo(100).expect("an echo after an upgrade");
}

/// Control names another program of root's as the new binary, which would find a script in main's working directory. Main
/// executes none of it.
#[test]
fn control_cannot_have_another_program_executed() {
    requires!(can_run());
    let (scene, mut probe, intruder) = hijack(Admin::in_folder);
    drop(intruder);
    let executed = scene.folder.path().join("executed");
    let directory = fs::read_link(format!("/proc/{}/cwd", scene.terminator.pid()));
    let script = directory.expect("a directory").join("serve");
    let text = format!("touch {}\nexit 75\n", executed.display());
    fs::write(&script, text).expect("a script");
    let control = scene
        .terminator
        .named("control")
        .expect("a control process");
    let mut intruder = Intruder::enter(control);
    let channel = intruder.channel();
    for (number, program) in ["/bin/bash", "/bin/sh", "/usr/bin/env", "/usr/bin/python3"]
        .iter()
        .enumerate()
    {
        let order = format!(r#"{{"id":{number},"order":{{"Upgrade":{{"binary":"{program}"}}}}}}"#);
        let sent = intruder.send(channel, order.as_bytes(), &[]);
        assert_eq!(sent.expect("a message to main"), order.len() as i64);
        wait::until_true("the upgrade to fail", || {
            scene.terminator.lines_with("is not a Dormouse").len() == number + 1
        });
    }
    drop(intruder);
    fs::remove_file(script).expect("its end");
    assert!(!executed.exists(), "main has executed a script");
    probe.echo(100).expect("an echo");
    assert_eq!(Admin::of(&scene).status()["phase"], "ready");
}

/// Control answers on sockets that main has opened, and makes none: neither for other machines nor for this one's.
#[test]
fn control_opens_no_socket() {
    requires!(can_run());
    let (scene, _probe, intruder) = hijack(Admin::in_folder);
    drop(intruder);
    let control = scene
        .terminator
        .named("control")
        .expect("a control process");
    let mut intruder = Intruder::enter(control);
    for (family, kind) in [
        (libc::AF_UNIX, libc::SOCK_STREAM),
        (libc::AF_UNIX, libc::SOCK_DGRAM),
        (libc::AF_INET, libc::SOCK_STREAM),
        (libc::AF_INET6, libc::SOCK_DGRAM),
        (libc::AF_NETLINK, libc::SOCK_RAW),
    ] {
        let arguments = [i64::from(family), i64::from(kind), 0];
        let opened = intruder.call(libc::SYS_socket, &arguments);
        assert!(is_refused(&opened), "{family} {kind}: {opened:?}");
        let pair = intruder.put(&[0; 8]);
        let [family, kind, _] = arguments;
        let opened = intruder.call(libc::SYS_socketpair, &[family, kind, 0, pair]);
        assert!(is_refused(&opened), "a pair {family} {kind}: {opened:?}");
    }
    drop(intruder);
    assert_eq!(Admin::of(&scene).status()["phase"], "ready");
}

/// Lines that are in the connection log stay there, whoever writes it.
#[test]
fn the_log_writer_takes_no_line_back() {
    requires!(can_run());
    let (scene, mut probe, intruder) = hijack(|settings| {
        settings.option("connection_log", "connections.log");
    });
    drop(intruder);
    probe.echo(100).expect("an echo");
    probe.finish().expect("a clean end");
    let log = scene.folder.path().join("connections.log");
    let text = wait::until("a line", PATIENCE, || {
        fs::read_to_string(&log)
            .ok()
            .filter(|text| text.ends_with('\n'))
    });
    let writer = scene.terminator.named("log-writer").expect("a log writer");
    let mut intruder = Intruder::enter(writer);
    let file = intruder.descriptors(&log.to_string_lossy())[0];
    let junk = intruder.put(b"junk");
    let flags = i64::from(libc::O_WRONLY);
    let punch = i64::from(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE);
    for (call, arguments) in [
        (libc::SYS_ftruncate, [file, 0, 0, 0]),
        (libc::SYS_fallocate, [file, punch, 0, 10]),
        (libc::SYS_pwrite64, [file, junk, 4, 0]),
        (libc::SYS_fcntl, [file, i64::from(libc::F_SETFL), flags, 0]),
        (libc::SYS_fchmod, [file, 0o666, 0, 0]),
    ] {
        let called = intruder.call(call, &arguments);
        assert!(is_refused(&called), "{call}: {called:?}");
    }
    let _ = intruder.call(libc::SYS_lseek, &[file, 0, 0]);
    intruder
        .call(libc::SYS_write, &[file, junk, 4])
        .expect("appended");
    drop(intruder);
    let after = fs::read_to_string(&log).expect("the log");
    assert_eq!(after, text + "junk");
}

/// Other unix sockets of this machine: a bus, a container runtime; by path and abstract.
#[test]
fn a_worker_without_a_unix_backend_reaches_no_unix_socket() {
    requires!(can_run());
    let (scene, _probe, mut intruder) = hijack(|_| {});
    let path = scene.folder.path().join("bus");
    let by_path = UnixListener::bind(&path).expect("a socket");
    let name = format!("dormouse-test-{}", std::process::id());
    let by_name = UnixAddr::from_abstract_name(&name).expect("a name");
    let by_name = UnixListener::bind_addr(&by_name).expect("a socket");
    for thread in [Thread::Last, Thread::First] {
        if thread == Thread::First {
            let pid = intruder.pid();
            drop(intruder);
            intruder = Intruder::enter_thread(pid, thread);
        }
        for listener in [&by_path, &by_name] {
            listener.set_nonblocking(true).expect("a socket");
        }
        let path = path.to_string_lossy().into_owned();
        for address in [path.clone(), format!("\0{name}")] {
            let kind = i64::from(libc::SOCK_STREAM);
            let made = intruder.call(libc::SYS_socket, &[i64::from(libc::AF_UNIX), kind, 0]);
            let Ok(socket) = made else {
                assert!(is_refused(&made), "{thread:?} makes a socket: {made:?}");
                continue;
            };
            let family = (libc::AF_UNIX as u16).to_le_bytes();
            let to = [&family[..], address.as_bytes()].concat();
            let len = to.len() as i64;
            let to = intruder.put(&to);
            let reached = intruder.call(libc::SYS_connect, &[socket, to, len]);
            assert!(
                is_refused(&reached),
                "{thread:?} connects to {address:?}: {reached:?}"
            );
        }
        for (what, listener) in [("path", &by_path), ("name", &by_name)] {
            assert!(
                listener.accept().is_err(),
                "{thread:?} reached a socket by its {what}"
            );
        }
    }
}

/// A reload may add the first backend on a unix socket: workers are replaced by others that can reach it, and
/// no connection notices.
#[test]
fn a_unix_backend_of_a_reload_is_reached() {
    requires!(can_run());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let open = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a file of the test");
    };
    open(folder.path(), 0o755);
    let path = folder.path().join("backend.sock");
    let backend = Backend::unix(&path);
    open(&path, 0o666);
    let scene = Scene::with(|settings| {
        settings.workers = 2;
        Admin::in_folder(settings);
    });
    let mut old: Vec<Peer> = (0..6)
        .map(|_| Peer::saying(scene.address, "echo"))
        .collect();
    let file = scene.folder.path().join("dormouse.toml");
    let text = fs::read_to_string(&file).expect("the configuration");
    let tcp = format!("\"{}\"", scene.backend.address());
    assert!(text.contains(&tcp), "{text}");
    let unix = format!("\"unix:{}\"", path.display());
    fs::write(&file, text.replace(&tcp, &unix)).expect("the configuration");
    Admin::of(&scene).order("/reload").expect("a reload");
    wait::until_true("a connection to the new backend", || {
        let mut peer = Peer::saying(scene.address, "echo");
        peer.echo().is_ok() && backend.accepted() > 0
    });
    for peer in &mut old {
        peer.echo().expect("an echo on an older connection");
    }
    let worker = worker(&scene).expect("a worker");
    assert_eq!(status(worker, "Seccomp:"), "2");
}

/// An attempt, and its system call with arguments.
type Attempt = (&'static str, c_long, Vec<i64>);

fn on_files_and_processes(main: i64, path: i64) -> Vec<Attempt> {
    vec![
        ("open", libc::SYS_open, vec![path, 0]),
        ("openat", libc::SYS_openat, vec![-100, path, 0]),
        ("stat", libc::SYS_newfstatat, vec![-100, path, path, 0]),
        ("unlink", libc::SYS_unlink, vec![path]),
        ("execve", libc::SYS_execve, vec![path, 0, 0]),
        ("execveat", libc::SYS_execveat, vec![-100, path, 0, 0, 0]),
        ("fork", libc::SYS_fork, vec![]),
        ("vfork", libc::SYS_vfork, vec![]),
        (
            "clone",
            libc::SYS_clone,
            vec![i64::from(libc::CLONE_FILES), 0],
        ),
        ("clone3", libc::SYS_clone3, vec![path, 88]),
        ("kill main", libc::SYS_kill, vec![main, 0]),
        ("tgkill main", libc::SYS_tgkill, vec![main, main, 0]),
        ("tkill", libc::SYS_tkill, vec![main, 0]),
        (
            "rt_sigqueueinfo",
            libc::SYS_rt_sigqueueinfo,
            vec![main, 10, path],
        ),
        ("pidfd_open", libc::SYS_pidfd_open, vec![main, 0]),
    ]
}

fn on_the_machine(main: i64, path: i64) -> Vec<Attempt> {
    vec![
        ("ptrace", libc::SYS_ptrace, vec![0x4206, main, 0, 0]),
        (
            "process_vm_readv",
            libc::SYS_process_vm_readv,
            vec![main, 0, 0, 0, 0, 0],
        ),
        ("setuid", libc::SYS_setuid, vec![0]),
        ("capset", libc::SYS_capset, vec![path, path]),
        ("setrlimit", libc::SYS_setrlimit, vec![7, path]),
        (
            "prlimit of main",
            libc::SYS_prlimit64,
            vec![main, 7, 0, path],
        ),
        ("prctl dumpable", libc::SYS_prctl, vec![4, 1]),
        ("unshare", libc::SYS_unshare, vec![0]),
        ("mount", libc::SYS_mount, vec![path, path, path, 0, 0]),
        ("bpf", libc::SYS_bpf, vec![0, path, 0]),
        ("io_uring_setup", libc::SYS_io_uring_setup, vec![8, path]),
        ("userfaultfd", libc::SYS_userfaultfd, vec![0]),
        (
            "perf_event_open",
            libc::SYS_perf_event_open,
            vec![path, 0, -1, -1, 0],
        ),
        ("keyctl", libc::SYS_keyctl, vec![0, -1, 0]),
        ("timer_create", libc::SYS_timer_create, vec![1, path, path]),
        ("setitimer", libc::SYS_setitimer, vec![0, path, 0]),
    ]
}

fn on_sockets(channel: i64, path: i64) -> Vec<Attempt> {
    let family = |family: i32, kind: i32| [i64::from(family), i64::from(kind), 0];
    let (stream, dgram, raw) = (libc::SOCK_STREAM, libc::SOCK_DGRAM, libc::SOCK_RAW);
    vec![
        ("listen", libc::SYS_listen, vec![channel, 1]),
        (
            "unix datagrams",
            libc::SYS_socket,
            family(libc::AF_UNIX, dgram).to_vec(),
        ),
        (
            "a pair of datagrams",
            libc::SYS_socketpair,
            vec![1, i64::from(dgram), 0, path],
        ),
        (
            "datagrams",
            libc::SYS_socket,
            family(libc::AF_INET, dgram).to_vec(),
        ),
        ("raw", libc::SYS_socket, family(libc::AF_INET, raw).to_vec()),
        // Landlock's rule for ports is only for TCP.
        (
            "several paths",
            libc::SYS_socket,
            vec![
                i64::from(libc::AF_INET),
                i64::from(stream),
                i64::from(libc::IPPROTO_MPTCP),
            ],
        ),
        (
            "streams in a datagram protocol",
            libc::SYS_socket,
            vec![
                i64::from(libc::AF_INET6),
                i64::from(stream),
                i64::from(libc::IPPROTO_SCTP),
            ],
        ),
        (
            "packets",
            libc::SYS_socket,
            family(libc::AF_PACKET, raw).to_vec(),
        ),
        (
            "netlink",
            libc::SYS_socket,
            family(libc::AF_NETLINK, raw).to_vec(),
        ),
        (
            "vsock",
            libc::SYS_socket,
            family(libc::AF_VSOCK, stream).to_vec(),
        ),
        ("alg", libc::SYS_socket, family(38, 5).to_vec()),
    ]
}

fn by_arguments(channel: i64, main: i64, path: i64) -> Vec<Attempt> {
    let fcntl = |command: i32, value: i64| [channel, i64::from(command), value];
    vec![
        (
            "F_SETOWN",
            libc::SYS_fcntl,
            fcntl(libc::F_SETOWN, main).to_vec(),
        ),
        ("F_SETOWN_EX", libc::SYS_fcntl, fcntl(15, path).to_vec()),
        ("F_SETSIG", libc::SYS_fcntl, fcntl(10, 9).to_vec()),
        (
            "F_SETLEASE",
            libc::SYS_fcntl,
            fcntl(libc::F_SETLEASE, 0).to_vec(),
        ),
        (
            "F_NOTIFY",
            libc::SYS_fcntl,
            fcntl(libc::F_NOTIFY, 1).to_vec(),
        ),
        (
            "F_SETPIPE_SZ",
            libc::SYS_fcntl,
            fcntl(libc::F_SETPIPE_SZ, 1 << 20).to_vec(),
        ),
        (
            "F_SETLK",
            libc::SYS_fcntl,
            fcntl(libc::F_SETLK, path).to_vec(),
        ),
        ("FIOASYNC", libc::SYS_ioctl, vec![channel, 0x5452, path]),
        ("FIOSETOWN", libc::SYS_ioctl, vec![channel, 0x8901, path]),
        ("TIOCSTI", libc::SYS_ioctl, vec![2, 0x5412, path]),
        (
            "executable memory",
            libc::SYS_mmap,
            vec![0, 4096, 5, 0x22, -1, 0],
        ),
        (
            "memory made executable",
            libc::SYS_mprotect,
            vec![path & !4095, 4096, 5],
        ),
    ]
}

/// System calls that a worker never makes, and those restricted by their arguments.
#[test]
fn a_worker_can_make_no_other_calls() {
    requires!(can_run());
    let (scene, mut probe, mut intruder) = hijack(|_| {});
    let pid = i64::from(intruder.pid());
    let main = i64::from(scene.terminator.pid());
    let channel = intruder.channel();
    let path = intruder.put(b"/etc/passwd\0");
    let attempts = [
        on_files_and_processes(main, path),
        on_the_machine(main, path),
        on_sockets(channel, path),
        by_arguments(channel, main, path),
    ];
    for (what, number, arguments) in attempts.into_iter().flatten() {
        let result = intruder.call(number, &arguments);
        assert!(is_refused(&result), "{what} of {pid}: {result:?}");
    }
    // Proves that allowed calls succeed.
    assert_eq!(intruder.call(libc::SYS_getpid, &[]).expect("allowed"), pid);
    drop(intruder);
    probe.echo(100).expect("an echo");
}

/// A keeper's filter names what is refused, so it must name every way to do it. Each call would fail for another reason.
#[test]
fn a_keeper_cannot_leave_its_namespaces_or_use_other_names() {
    const X32: c_long = 0x4000_0000;
    requires!(can_run());
    let (scene, mut probe, intruder) = hijack(|_| {});
    drop(intruder);
    let keeper = scene.terminator.named("keeper-0").expect("a keeper");
    let mut intruder = Intruder::enter_thread(keeper, Thread::First);
    // Without CLONE_VM, CLONE_SIGHAND is invalid.
    let flags = |new: i32| vec![i64::from(new | libc::CLONE_SIGHAND), 0, 0, 0, 0];
    for (what, number, arguments) in [
        (
            "a user namespace",
            libc::SYS_clone,
            flags(libc::CLONE_NEWUSER),
        ),
        (
            "a network namespace",
            libc::SYS_clone,
            flags(libc::CLONE_NEWNET),
        ),
        ("mknod", libc::SYS_mknod, vec![0, 0, 0]),
        ("kexec", libc::SYS_kexec_file_load, vec![-1, -1, 0, 0, -1]),
        (
            "mount_setattr",
            libc::SYS_mount_setattr,
            vec![-1, 0, -1, 0, 0],
        ),
        ("ports", libc::SYS_iopl, vec![9]),
        ("ptrace of x32", X32 | 521, vec![-1, 0, 0, 0]),
    ] {
        let result = intruder.call(number, &arguments);
        assert!(is_refused(&result), "{what}: {result:?}");
    }
    let clone3 = intruder.call(libc::SYS_clone3, &[0, 0]);
    let errno = clone3.expect_err("no process").raw_os_error();
    assert_eq!(errno, Some(libc::ENOSYS));
    drop(intruder);
    probe.echo(100).expect("an echo");
}

/// Every thread of a worker is confined, even an idle one: an attacker who can write to the memory of one
/// thread can make calls in all of them.
#[test]
fn each_thread_of_a_worker_is_confined() {
    requires!(can_run());
    let (_scene, _probe, intruder) = hijack(|_| {});
    let pid = intruder.pid();
    drop(intruder);
    for thread in [Thread::First, Thread::Last] {
        let mut intruder = Intruder::enter_thread(pid, thread);
        let kind = i64::from(libc::SOCK_STREAM);
        let inet = i64::from(libc::AF_INET);
        let socket = intruder.call(libc::SYS_socket, &[inet, kind, 0]);
        let socket = socket.expect("connections to backends");
        // struct sockaddr_in: a port at 127.0.0.1.
        let mut address = (libc::AF_INET as u16).to_le_bytes().to_vec();
        address.extend(47_123_u16.to_be_bytes());
        address.extend([127, 0, 0, 1]);
        address.resize(16, 0);
        let to = intruder.put(&address);
        let bound = intruder.call(libc::SYS_bind, &[socket, to, 16]);
        assert!(is_refused(&bound), "{thread:?} binds a port: {bound:?}");
    }
}

/// A worker has no capability, whatever its user is.
#[test]
fn a_worker_has_no_capability() {
    requires!(can_run());
    let (scene, _probe, intruder) = hijack(|_| {});
    let keeper = scene.terminator.named("keeper-0").expect("a keeper");
    for pid in [intruder.pid(), keeper] {
        for set in ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"] {
            assert_eq!(status(pid, set), "0000000000000000", "{set} of {pid}");
        }
    }
}
