//! seccomp: lists of the system calls that a process may make.

mod refused;

use std::collections::BTreeMap;
use std::io;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Is, SeccompCondition,
    SeccompFilter, SeccompRule, apply_filter, apply_filter_all_threads, sock_filter,
};

use refused::{NEVER, NEVER_BY_OTHER_NAMES, OTHER_PROCESSES};

use crate::process;
use crate::socket::SIOCOUTQNSD;

/// Refused calls fail with this error.
const REFUSED: SeccompAction = SeccompAction::Errno(libc::EPERM as u32);

/// Refused in the trial of a new binary, besides the above: what has an effect outside, and is no access to a file that Landlock
/// knows.
const EFFECTS: &[c_long] = &[
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept4,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_send_signal,
    libc::SYS_setpriority,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
];

#[cfg(target_arch = "x86_64")]
const EFFECTS_BY_OTHER_NAMES: &[c_long] = &[
    libc::SYS_accept,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
];
#[cfg(not(target_arch = "x86_64"))]
const EFFECTS_BY_OTHER_NAMES: &[c_long] = &[libc::SYS_accept];

/// Mode of memory files, the only one that the trial of a new binary sets.
const PRIVATE: u64 = 0o600;

/// Flags of `clone` that do what `unshare` does.
const NEW_NAMESPACES: &[libc::c_int] = &[
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// An unknown option of `prctl`: EINVAL means that the filter is not installed yet, EPERM that it is. A filter with more
/// calls has another number, so that it is added to that of an older build.
const QUESTION: u64 = 0x444d_5343;

/// The first number of the x32 ABI, by which some kernels offer each call a second time.
#[cfg(target_arch = "x86_64")]
const X32: u32 = 0x4000_0000;

/// The calls of a worker's loop: events, sockets, descriptors, memory, time and threads, signals, exit. Not
/// looking up files: the cryptographic library must not find a /dev/sysgenid that it cannot open.
const LOOP: &[c_long] = &[
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_shutdown,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_dup3,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_memfd_create,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fchmod,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_futex,
    libc::SYS_membarrier,
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getppid,
    libc::SYS_geteuid,
    libc::SYS_getegid,
    libc::SYS_getuid,
    libc::SYS_getgid,
    libc::SYS_getrusage,
    libc::SYS_uname,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Older names of the same calls, on machines that have them.
#[cfg(target_arch = "x86_64")]
const LOOP_BY_OTHER_NAMES: &[c_long] = &[
    libc::SYS_epoll_wait,
    libc::SYS_accept,
    libc::SYS_poll,
    libc::SYS_dup2,
    libc::SYS_time,
    libc::SYS_getrlimit,
];
#[cfg(not(target_arch = "x86_64"))]
const LOOP_BY_OTHER_NAMES: &[c_long] = &[];

/// Additional calls of control and scout: they inspect files, resolve names, and may start threads.
const LOOKING: &[c_long] = &[
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_getcwd,
    libc::SYS_eventfd2,
    libc::SYS_pipe2,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sysinfo,
    // Whether a process lives.
    libc::SYS_pidfd_open,
    // Refused by a filter of its own, as not implemented.
    libc::SYS_clone3,
];

#[cfg(target_arch = "x86_64")]
const LOOKING_BY_OTHER_NAMES: &[c_long] = &[
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_readlink,
    libc::SYS_access,
];
#[cfg(not(target_arch = "x86_64"))]
const LOOKING_BY_OTHER_NAMES: &[c_long] = &[];

/// Allowed uses of `fcntl`: descriptor flags, copies and seals. Not signals to a chosen process (F_SETOWN,
/// F_SETSIG), leases, locks or pipes.
const FCNTL: &[libc::c_int] = &[
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_SETFL,
    libc::F_DUPFD_CLOEXEC,
    libc::F_GET_SEALS,
    libc::F_ADD_SEALS,
];

/// Calls whose arguments are checked, and that every connection makes.
const OFTEN: &[c_long] = &[
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socket,
    libc::SYS_prlimit64,
];

/// Socket options that a worker sets, those of every connection first. Not those that change what a
/// listener accepts, which it shares with all workers: with SO_ATTACH_FILTER and SO_LOCK_FILTER it
/// could stop a listener forever.
const SOCKET_OPTIONS: &[(libc::c_int, libc::c_int)] = &[
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (libc::IPPROTO_TCP, libc::TCP_QUICKACK),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::SOL_SOCKET, libc::SO_SNDBUF),
    (libc::SOL_SOCKET, libc::SO_RCVBUF),
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_LINGER),
    (libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
    (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT),
];

/// The calls of the tcp-repair process. Not accept, shutdown, reading and writing of streams, or new memory files.
const TCP_REPAIR: &[c_long] = &[
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_close,
    libc::SYS_write,
    // Which records are in use.
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_getrandom,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

#[cfg(target_arch = "x86_64")]
const TCP_REPAIR_BY_OTHER_NAMES: &[c_long] = &[libc::SYS_epoll_wait, libc::SYS_time];
#[cfg(not(target_arch = "x86_64"))]
const TCP_REPAIR_BY_OTHER_NAMES: &[c_long] = &[];

/// Socket options that the tcp-repair process sets.
const TCP_REPAIR_OPTIONS: &[(libc::c_int, libc::c_int)] = &[
    (libc::SOL_SOCKET, libc::SO_ATTACH_BPF),
    (libc::SOL_SOCKET, libc::SO_DETACH_FILTER),
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::IPPROTO_TCP, libc::TCP_REPAIR),
    (libc::IPPROTO_TCP, libc::TCP_REPAIR_QUEUE),
    (libc::IPPROTO_TCP, libc::TCP_QUEUE_SEQ),
    (libc::IPPROTO_TCP, libc::TCP_REPAIR_OPTIONS),
    (libc::IPPROTO_TCP, libc::TCP_REPAIR_WINDOW),
    (libc::IPPROTO_TCP, libc::TCP_TIMESTAMP),
    (libc::IPPROTO_TCP, libc::TCP_MAXSEG),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
];

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Installs the keeper's filter: for this process, everything it executes, and its worker. Installed once.
pub(super) fn refuse_permanently() -> io::Result<()> {
    if is_refused_already() {
        return Ok(());
    }
    apply_filter(&keeper_program()?).map_err(io::Error::other)
}

fn keeper_program() -> io::Result<BpfProgram> {
    let mut rules = always(&[NEVER, NEVER_BY_OTHER_NAMES]);
    rules.insert(
        libc::SYS_prctl,
        vec![rule(vec![argument(0, Len::Dword, Is::Eq, QUESTION)?])?],
    );
    let with = |flag: &libc::c_int| {
        let flag = *flag as u64;
        rule(vec![argument(0, Len::Qword, Is::MaskedEq(flag), flag)?])
    };
    let namespaces = NEW_NAMESPACES.iter().map(with).collect::<io::Result<_>>()?;
    rules.insert(libc::SYS_clone, namespaces);
    let rest = program(rules, SeccompAction::Allow, REFUSED)?;
    let often = program(always(&[OFTEN]), REFUSED, SeccompAction::Allow)?;
    Ok([other_abi(), before(often, before(without_clone3()?, rest))].concat())
}

/// Installs the filter of a process that is about to execute another binary for a trial.
pub(super) fn refuse_effects() -> io::Result<()> {
    apply_filter(&trial_program()?).map_err(io::Error::other)
}

/// Installs the filter of a process with foreign code: besides what no process of ours needs, it refuses other programs
/// and signals.
pub(super) fn refuse_other_processes() -> io::Result<()> {
    apply_filter_all_threads(&signer_program()?).map_err(io::Error::other)
}

fn signer_program() -> io::Result<BpfProgram> {
    let mut rules = always(&[NEVER, NEVER_BY_OTHER_NAMES, OTHER_PROCESSES]);
    rules.insert(libc::SYS_tgkill, vec![rule(vec![other_process()?])?]);
    let rest = program(rules, SeccompAction::Allow, REFUSED)?;
    Ok([other_abi(), rest].concat())
}

/// The first argument is not this process.
fn other_process() -> io::Result<SeccompCondition> {
    argument(0, Len::Dword, Is::Ne, process::pid().0 as u64)
}

/// Requests by which a program types into its terminal. They are `c_int` with musl, of which the static binary is made.
#[allow(clippy::unnecessary_cast)]
const TYPING: [u64; 2] = [libc::TIOCSTI as u64, libc::TIOCLINUX as u64];

fn trial_program() -> io::Result<BpfProgram> {
    let lists = [NEVER, NEVER_BY_OTHER_NAMES, EFFECTS, EFFECTS_BY_OTHER_NAMES];
    let mut rules = always(&lists);
    rules.insert(libc::SYS_tgkill, vec![rule(vec![other_process()?])?]);
    let other_mode = argument(1, Len::Dword, Is::Ne, PRIVATE)?;
    rules.insert(libc::SYS_fchmod, vec![rule(vec![other_mode])?]);
    let types = |request: u64| rule(vec![argument(1, Len::Dword, Is::Eq, request)?]);
    let requests = TYPING.into_iter().map(types).collect::<io::Result<_>>()?;
    rules.insert(libc::SYS_ioctl, requests);
    let rest = program(rules, SeccompAction::Allow, REFUSED)?;
    Ok([other_abi(), rest].concat())
}

/// Refuses the calls of another ABI, whose numbers are in no list.
fn other_abi() -> BpfProgram {
    #[cfg(not(target_arch = "x86_64"))]
    return Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        let step = |code: u32, jf, k| sock_filter {
            code: code as u16,
            jt: 0,
            jf,
            k,
        };
        vec![
            // The number of the call is the first word of what the kernel passes.
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
            step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 1, X32),
            step(libc::BPF_RET | libc::BPF_K, 0, REFUSED.into()),
        ]
    }
}

/// `clone3` is not implemented, which makes libraries use `clone`: a filter sees the arguments of that one only.
fn without_clone3() -> io::Result<BpfProgram> {
    let not_implemented = SeccompAction::Errno(libc::ENOSYS as u32);
    let clone3 = always(&[&[libc::SYS_clone3]]);
    program(clone3, SeccompAction::Allow, not_implemented)
}

fn is_refused_already() -> bool {
    // SAFETY: takes numbers; no kernel knows this option.
    let result = unsafe { libc::prctl(QUESTION as libc::c_int, 0, 0, 0, 0) };
    result == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}

/// Installs the worker's filter in all its threads.
pub(super) fn allow_worker(reaches_unix: bool) -> io::Result<()> {
    apply_filter_all_threads(&worker_program(reaches_unix)?).map_err(io::Error::other)
}

fn worker_program(reaches_unix: bool) -> io::Result<BpfProgram> {
    let mut rules = worker_rules(reaches_unix)?;
    let often = OFTEN.iter().filter_map(|call| rules.remove_entry(call));
    let often = program(often.collect(), REFUSED, SeccompAction::Allow)?;
    let rest = program(rules, REFUSED, SeccompAction::Allow)?;
    Ok(before(often, rest))
}

fn worker_rules(reaches_unix: bool) -> io::Result<Rules> {
    let mut rules = answering_rules()?;
    let unix = reaches_unix.then_some(libc::AF_UNIX);
    let new_sockets = [libc::AF_INET, libc::AF_INET6].into_iter().chain(unix);
    let streams = new_sockets.map(|family| socket(family, libc::SOCK_STREAM, 0));
    let streams = streams.collect::<io::Result<_>>()?;
    rules.insert(libc::SYS_socket, streams);
    // The two ends of a pair are connected permanently and lead nowhere else. They are joints, which pass a
    // connection on to a backend with TLS.
    let joints = socket(libc::AF_UNIX, libc::SOCK_STREAM, 0)?;
    rules.insert(libc::SYS_socketpair, vec![joints]);
    Ok(rules)
}

/// Installs the filter of a process that accepts connections and makes none.
pub(super) fn allow_answering() -> io::Result<()> {
    let program = program(answering_rules()?, REFUSED, SeccompAction::Allow)?;
    apply_filter_all_threads(&program).map_err(io::Error::other)
}

/// Installs the filter of a process that connects to unix sockets only.
pub(super) fn allow_unix_sockets() -> io::Result<()> {
    let program = program(unix_rules()?, REFUSED, SeccompAction::Allow)?;
    apply_filter_all_threads(&program).map_err(io::Error::other)
}

fn unix_rules() -> io::Result<Rules> {
    let mut rules = answering_rules()?;
    let stream = socket(libc::AF_UNIX, libc::SOCK_STREAM, 0)?;
    rules.insert(libc::SYS_socket, vec![stream]);
    Ok(rules)
}

/// Installs the filter of a process that appends to a file, which must not change what is there already.
pub(super) fn allow_appending() -> io::Result<()> {
    let program = program(appending_rules()?, REFUSED, SeccompAction::Allow)?;
    apply_filter_all_threads(&program).map_err(io::Error::other)
}

fn appending_rules() -> io::Result<Rules> {
    let mut rules = answering_rules()?;
    for call in [
        libc::SYS_ftruncate,
        libc::SYS_fallocate,
        libc::SYS_pwrite64,
        libc::SYS_fchmod,
    ] {
        rules.remove(&call);
    }
    // Without the flag O_APPEND, a write goes to any place.
    let command =
        |command: &libc::c_int| rule(vec![argument(1, Len::Dword, Is::Eq, *command as u64)?]);
    let harmless = FCNTL.iter().filter(|command| **command != libc::F_SETFL);
    let harmless = harmless.map(command).collect::<io::Result<_>>()?;
    rules.insert(libc::SYS_fcntl, harmless);
    Ok(rules)
}

fn answering_rules() -> io::Result<Rules> {
    let mut rules = always(&[LOOP, LOOP_BY_OTHER_NAMES]);
    rules.extend(memory_and_self()?);
    rules.extend(sockets_that_others_share()?);
    Ok(rules)
}

/// Installs the filter of the process that uses TCP_REPAIR.
pub(super) fn allow_tcp_repair() -> io::Result<()> {
    let program = program(tcp_repair_rules()?, REFUSED, SeccompAction::Allow)?;
    apply_filter_all_threads(&program).map_err(io::Error::other)
}

fn tcp_repair_rules() -> io::Result<Rules> {
    let mut rules = always(&[TCP_REPAIR, TCP_REPAIR_BY_OTHER_NAMES]);
    rules.extend(memory_and_self()?);
    let families = [libc::AF_INET, libc::AF_INET6].into_iter();
    let streams = families.map(|family| socket(family, libc::SOCK_STREAM, 0));
    rules.insert(libc::SYS_socket, streams.collect::<io::Result<_>>()?);
    rules.insert(libc::SYS_setsockopt, options(TCP_REPAIR_OPTIONS)?);
    Ok(rules)
}

/// Rules that allow these options of sockets.
fn options(list: &[(libc::c_int, libc::c_int)]) -> io::Result<Vec<SeccompRule>> {
    let one = |&(level, option): &(libc::c_int, libc::c_int)| {
        rule(vec![
            argument(1, Len::Dword, Is::Eq, level as u64)?,
            argument(2, Len::Dword, Is::Eq, option as u64)?,
        ])
    };
    list.iter().map(one).collect()
}

/// Installs the filter of control and scout in all their threads. Control makes no sockets.
pub(super) fn allow_looking(makes_sockets: bool) -> io::Result<()> {
    let program = program(looking_rules(makes_sockets)?, REFUSED, SeccompAction::Allow)?;
    apply_filter_all_threads(&without_clone3()?).map_err(io::Error::other)?;
    apply_filter_all_threads(&program).map_err(io::Error::other)
}

fn looking_rules(makes_sockets: bool) -> io::Result<Rules> {
    let mut rules = always(&[LOOP, LOOP_BY_OTHER_NAMES, LOOKING, LOOKING_BY_OTHER_NAMES]);
    rules.extend(memory_and_self()?);
    if makes_sockets {
        rules.extend(new_sockets()?);
    }
    let to_write = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u64;
    let to_read = |flags| {
        rule(vec![argument(
            flags,
            Len::Dword,
            Is::MaskedEq(to_write),
            0,
        )?])
    };
    rules.insert(libc::SYS_openat, vec![to_read(2)?]);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_open, vec![to_read(1)?]);
    let thread = libc::CLONE_THREAD as u64;
    let threads = rule(vec![argument(0, Len::Qword, Is::MaskedEq(thread), thread)?])?;
    rules.insert(libc::SYS_clone, vec![threads]);
    Ok(rules)
}

/// Rules for the sockets of a process that resolves names and connects to servers.
fn new_sockets() -> io::Result<Rules> {
    let mut sockets = Vec::new();
    for family in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6] {
        sockets.push(socket(family, libc::SOCK_STREAM, 0)?);
        sockets.push(socket(family, libc::SOCK_DGRAM, 0)?);
    }
    // musl's resolver states the protocol.
    for family in [libc::AF_INET, libc::AF_INET6] {
        sockets.push(socket(family, libc::SOCK_DGRAM, libc::IPPROTO_UDP)?);
    }
    // The resolver asks for the machine's addresses.
    sockets.push(rule(vec![
        argument(0, Len::Dword, Is::Eq, libc::AF_NETLINK as u64)?,
        argument(2, Len::Dword, Is::Eq, libc::NETLINK_ROUTE as u64)?,
    ])?);
    Ok(Rules::from([
        (libc::SYS_socket, sockets),
        (libc::SYS_socketpair, Vec::new()),
    ]))
}

/// Rules for calls whose arguments are checked, in every list: no executable memory, and no effect on other
/// processes.
fn memory_and_self() -> io::Result<Rules> {
    let executable = libc::PROT_EXEC as u64;
    let data = || rule(vec![argument(2, Len::Dword, Is::MaskedEq(executable), 0)?]);
    let own_pid = process::pid().0 as u64;
    let first_is = |value: u64| rule(vec![argument(0, Len::Dword, Is::Eq, value)?]);
    #[allow(clippy::unnecessary_cast, reason = "an ioctl is an i32 for musl")]
    let asks = |request: libc::Ioctl| rule(vec![argument(1, Len::Dword, Is::Eq, request as u64)?]);
    // Reading limits, not setting them.
    let limits = rule(vec![
        argument(0, Len::Dword, Is::Eq, 0)?,
        argument(2, Len::Qword, Is::Eq, 0)?,
    ])?;
    let command =
        |command: &libc::c_int| rule(vec![argument(1, Len::Dword, Is::Eq, *command as u64)?]);
    let of_descriptors = FCNTL.iter().map(command).collect::<io::Result<_>>()?;
    Ok(Rules::from([
        (libc::SYS_fcntl, of_descriptors),
        (libc::SYS_mmap, vec![data()?]),
        (libc::SYS_mprotect, vec![data()?]),
        (libc::SYS_tgkill, vec![first_is(own_pid)?]),
        (libc::SYS_prlimit64, vec![limits]),
        (
            libc::SYS_prctl,
            vec![
                first_is(libc::PR_SET_NAME as u64)?,
                first_is(libc::PR_SET_VMA as u64)?,
            ],
        ),
        (
            libc::SYS_ioctl,
            vec![
                asks(libc::FIONREAD)?,
                asks(libc::TIOCOUTQ)?,
                asks(SIOCOUTQNSD)?,
                asks(libc::FIONBIO)?,
            ],
        ),
    ]))
}

/// Rules for calls that could end a listener or change it for all processes that share it. To end the sending
/// direction has no effect on a listener.
fn sockets_that_others_share() -> io::Result<Rules> {
    let sending = argument(1, Len::Dword, Is::Eq, libc::SHUT_WR as u64)?;
    Ok(Rules::from([
        (libc::SYS_setsockopt, options(SOCKET_OPTIONS)?),
        (libc::SYS_shutdown, vec![rule(vec![sending])?]),
    ]))
}

/// A socket of this family, type and protocol; flags such as close-on-exec are ignored. Protocol 0 is the family's own
/// for the type: TCP, UDP. Others have much more code in the kernel, and Landlock does not know their ports.
fn socket(family: i32, kind: i32, protocol: i32) -> io::Result<SeccompRule> {
    rule(vec![
        argument(0, Len::Dword, Is::Eq, family as u64)?,
        argument(1, Len::Dword, Is::MaskedEq(0xf), kind as u64)?,
        argument(2, Len::Dword, Is::Eq, protocol as u64)?,
    ])
}

/// Rules that allow any arguments.
fn always(lists: &[&[c_long]]) -> Rules {
    let calls = lists.iter().copied().flatten();
    calls.map(|&call| (call, Vec::new())).collect()
}

fn rule(conditions: Vec<SeccompCondition>) -> io::Result<SeccompRule> {
    SeccompRule::new(conditions).map_err(io::Error::other)
}

fn argument(number: u8, len: Len, is: Is, value: u64) -> io::Result<SeccompCondition> {
    SeccompCondition::new(number, len, is, value).map_err(io::Error::other)
}

fn program(rules: Rules, other: SeccompAction, listed: SeccompAction) -> io::Result<BpfProgram> {
    let machine = std::env::consts::ARCH
        .try_into()
        .map_err(io::Error::other)?;
    let filter = SeccompFilter::new(rules, other, listed, machine);
    filter
        .and_then(BpfProgram::try_from)
        .map_err(io::Error::other)
}

/// One program that looks for these calls first. A program compares a call with each of its own in turn, some hundred
/// jumps, and the kernel keeps no result for a call whose arguments decide. The last instruction of a program is its
/// answer for all other calls; here it is what follows.
fn before(mut often: BpfProgram, rest: BpfProgram) -> BpfProgram {
    often.pop();
    often.extend(rest);
    often
}

pub(super) fn supported() -> bool {
    let action: u32 = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the kernel reads the number behind the pointer.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_GET_ACTION_AVAIL,
            0,
            &raw const action,
        )
    };
    result == 0
}

#[cfg(test)]
mod tests;
