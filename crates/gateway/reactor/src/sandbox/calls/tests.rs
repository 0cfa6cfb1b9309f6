//! Programs, run as the kernel runs them.

use super::*;

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const NOT_PERMITTED: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;

/// A call with its first three arguments; no rule has others.
type Call = (c_long, [u64; 3]);

/// The answer of a program, with which only the arguments of calls are read.
fn answer(program: &BpfProgram, (number, arguments): Call) -> u32 {
    let mut data = [0_u32; 16];
    data[0] = number as u32;
    // AUDIT_ARCH_X86_64, AUDIT_ARCH_AARCH64.
    data[1] = match std::env::consts::ARCH {
        "x86_64" => 0xc000_003e,
        _ => 0xc000_00b7,
    };
    for (n, argument) in arguments.into_iter().enumerate() {
        data[4 + 2 * n] = argument as u32;
        data[5 + 2 * n] = (argument >> 32) as u32;
    }
    let (mut value, mut at) = (0, 0);
    loop {
        let step = &program[at];
        at += 1;
        let chosen = |is_true: bool| usize::from(if is_true { step.jt } else { step.jf });
        match step.code {
            0x20 => value = data[step.k as usize / 4],
            0x54 => value &= step.k,
            0x05 => at += step.k as usize,
            0x15 => at += chosen(value == step.k),
            0x25 => at += chosen(value > step.k),
            0x35 => at += chosen(value >= step.k),
            0x06 => return step.k,
            other => panic!("an instruction {other:#x}"),
        }
    }
}

/// Arguments on which the rules of a call can decide: their constants, and values beside them.
fn deciding(number: c_long, rules: &[SeccompRule]) -> Vec<u64> {
    let alone = Rules::from([(number, rules.to_vec())]);
    let alone = program(alone, REFUSED, SeccompAction::Allow).unwrap();
    let constants = alone.iter().map(|step| u64::from(step.k));
    let all = constants.chain([0, u64::MAX]);
    let beside = |value: u64| [value, value.wrapping_add(1), value | 1 << 32];
    let mut values: Vec<u64> = all.flat_map(beside).collect();
    values.sort_unstable();
    values.dedup();
    values
}

/// All calls by number, and those with rules with all pairs of deciding arguments.
fn all_calls(rules: &Rules, mut each: impl FnMut(Call)) {
    for number in (0..1_000).chain(0x4000_0000..0x4000_0400) {
        each((number, [0; 3]));
        each((number, [u64::MAX; 3]));
    }
    for (&number, rules) in rules.iter().filter(|(_, rules)| !rules.is_empty()) {
        let values = deciding(number, rules);
        for &one in &values {
            for &other in &values {
                for rest in [0, 1] {
                    each((number, [one, other, rest]));
                    each((number, [one, rest, other]));
                    each((number, [rest, one, other]));
                }
            }
        }
    }
}

/// A worker's program looks for some calls first. Its answers are those of the rules, whatever the order is.
#[test]
fn the_order_changes_no_answer_of_a_worker() {
    for reaches_unix in [false, true] {
        let ordered = worker_program(reaches_unix).unwrap();
        let rules = worker_rules(reaches_unix).unwrap();
        let plain = program(rules.clone(), REFUSED, SeccompAction::Allow).unwrap();
        all_calls(&rules, |call| {
            assert_eq!(answer(&ordered, call), answer(&plain, call), "{call:?}");
        });
    }
}

/// A keeper's answer to each number is that of the list; the calls that come first are in none.
#[test]
fn a_keeper_is_refused_exactly_what_the_list_names() {
    let keeper = keeper_program().unwrap();
    for number in 0..1_000 {
        let is_listed = [NEVER, NEVER_BY_OTHER_NAMES].concat().contains(&number);
        let expected = match number {
            libc::SYS_clone3 => libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32,
            _ if is_listed => NOT_PERMITTED,
            _ => ALLOW,
        };
        assert_eq!(answer(&keeper, (number, [0; 3])), expected, "{number}");
    }
    let clone = |flags: libc::c_int| answer(&keeper, (libc::SYS_clone, [flags as u64, 0, 0]));
    assert_eq!(clone(libc::CLONE_FILES | libc::SIGCHLD), ALLOW);
    for flag in NEW_NAMESPACES {
        assert_eq!(clone(flag | libc::SIGCHLD), NOT_PERMITTED, "{flag:#x}");
    }
    let prctl = |option| answer(&keeper, (libc::SYS_prctl, [option, 0, 0]));
    assert_eq!(
        (prctl(QUESTION), prctl(QUESTION - 1)),
        (NOT_PERMITTED, ALLOW)
    );
    #[cfg(target_arch = "x86_64")]
    for number in [libc::SYS_getpid, libc::SYS_mount, 521] {
        let call = (c_long::from(X32) | number, [0; 3]);
        assert_eq!(answer(&keeper, call), NOT_PERMITTED, "x32 {number}");
    }
}

/// New sockets are TCP: other protocols of the same type, such as MPTCP and SCTP, escape Landlock's rule for ports.
#[test]
fn a_socket_has_the_protocol_of_its_family() {
    let looking = |makes_sockets| {
        let rules = looking_rules(makes_sockets).unwrap();
        program(rules, REFUSED, SeccompAction::Allow).unwrap()
    };
    let (control, looking) = (looking(false), looking(true));
    let (worker, with_unix) = (
        worker_program(false).unwrap(),
        worker_program(true).unwrap(),
    );
    let cloexec = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    for (family, kind, protocol, [by_worker, with_unix_backend, by_looking]) in [
        (libc::AF_INET, libc::SOCK_STREAM, 0, [true, true, true]),
        (libc::AF_INET6, cloexec, 0, [true, true, true]),
        (libc::AF_UNIX, cloexec, 0, [false, true, true]),
        (libc::AF_INET, libc::SOCK_DGRAM, 0, [false, false, true]),
        (
            libc::AF_INET6,
            libc::SOCK_DGRAM,
            libc::IPPROTO_UDP,
            [false, false, true],
        ),
        (
            libc::AF_INET,
            libc::SOCK_STREAM,
            libc::IPPROTO_MPTCP,
            [false; 3],
        ),
        (
            libc::AF_INET6,
            libc::SOCK_STREAM,
            libc::IPPROTO_SCTP,
            [false; 3],
        ),
        (
            libc::AF_INET,
            libc::SOCK_DGRAM,
            libc::IPPROTO_ICMP,
            [false; 3],
        ),
        (
            libc::AF_INET,
            libc::SOCK_DGRAM,
            libc::IPPROTO_UDPLITE,
            [false; 3],
        ),
        (libc::AF_INET, libc::SOCK_RAW, 0, [false; 3]),
    ] {
        let call = [family, kind, protocol].map(|argument| argument as u64);
        assert_ne!(answer(&control, (libc::SYS_socket, call)), ALLOW, "control");
        for (program, is_allowed) in [
            (&worker, by_worker),
            (&with_unix, with_unix_backend),
            (&looking, by_looking),
        ] {
            let allowed = answer(program, (libc::SYS_socket, call)) == ALLOW;
            assert_eq!(allowed, is_allowed, "{family} {kind} {protocol}");
        }
    }
}

/// Whatever binary is tried, it affects nothing outside.
#[test]
fn a_trial_is_refused_what_has_an_effect() {
    let trial = trial_program().unwrap();
    #[allow(clippy::unnecessary_cast)] // as in TYPING
    let get_mode = libc::TCGETS as u64;
    let own = u64::from(std::process::id());
    for (call, is_allowed) in [
        ((libc::SYS_execveat, [0; 3]), true),
        ((libc::SYS_openat, [0; 3]), true),
        ((libc::SYS_memfd_create, [0; 3]), true),
        ((libc::SYS_fchmod, [5, 0o600, 0]), true),
        ((libc::SYS_fchmod, [5, 0o4755, 0]), false),
        ((libc::SYS_tgkill, [own, own, 6]), true),
        ((libc::SYS_tgkill, [1, 1, 9]), false),
        ((libc::SYS_kill, [1, 9, 0]), false),
        ((libc::SYS_socket, [libc::AF_UNIX as u64, 1, 0]), false),
        ((libc::SYS_ptrace, [0; 3]), false),
        ((libc::SYS_ioctl, [0, TYPING[0], 0]), false),
        ((libc::SYS_ioctl, [0, get_mode, 0]), true),
    ] {
        assert_eq!(answer(&trial, call) == ALLOW, is_allowed, "{call:?}");
    }
}

/// The library of a token needs files and sockets, and nothing needs another program.
#[test]
fn a_signer_starts_no_program_and_signals_no_process() {
    let signer = signer_program().unwrap();
    let own = u64::from(std::process::id());
    for (call, is_allowed) in [
        ((libc::SYS_openat, [0; 3]), true),
        ((libc::SYS_socket, [libc::AF_UNIX as u64, 1, 0]), true),
        ((libc::SYS_tgkill, [own, own, 6]), true),
        ((libc::SYS_tgkill, [1, 1, 9]), false),
        ((libc::SYS_kill, [1, 9, 0]), false),
        ((libc::SYS_execve, [0; 3]), false),
        ((libc::SYS_execveat, [0; 3]), false),
        ((libc::SYS_ptrace, [0; 3]), false),
        ((libc::SYS_mount, [0; 3]), false),
    ] {
        assert_eq!(answer(&signer, call) == ALLOW, is_allowed, "{call:?}");
    }
}

/// What is in the log cannot be changed: neither with a call, nor after the file's flag is gone.
#[test]
fn a_log_writer_only_appends() {
    let writer = program(appending_rules().unwrap(), REFUSED, SeccompAction::Allow).unwrap();
    for (call, is_allowed) in [
        ((libc::SYS_write, [0; 3]), true),
        ((libc::SYS_writev, [0; 3]), true),
        ((libc::SYS_ftruncate, [0; 3]), false),
        ((libc::SYS_fallocate, [0; 3]), false),
        ((libc::SYS_pwrite64, [0; 3]), false),
        ((libc::SYS_fcntl, [3, libc::F_GETFL as u64, 0]), true),
        ((libc::SYS_fcntl, [3, libc::F_SETFL as u64, 0]), false),
    ] {
        assert_eq!(answer(&writer, call) == ALLOW, is_allowed, "{call:?}");
    }
}
