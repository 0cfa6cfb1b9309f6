//! Sandboxes, tried from within and checked from outside; a process that keeps privileges can still do what
//! needs them.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::Command;

use dormouse_interop::admin::Admin;
use dormouse_interop::backend::Backend;
use dormouse_interop::certificates::{Kind, authority};
use dormouse_interop::peer::{self, Peer};
use dormouse_interop::process::{kill_asleep, signal, status};
use dormouse_interop::requirement::Root;
use dormouse_interop::scene::{PLAIN_PORT, Scene, TLS_PORT, unused_host};
use dormouse_interop::terminator::{Can, Settings, Target, Terminator};
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};
use rustix::process::Signal;

const NOBODY: u32 = 65_534;

/// Calls refused to every process: those that control other processes or the machine.
const TO_ALL: [&str; 5] = ["ptrace", "process_vm_readv", "mount", "bpf", "unshare"];
/// Calls refused to processes that read untrusted bytes.
const TO_STRANGERS: [&str; 10] = [
    "open",
    "create",
    "execve",
    "fork",
    "kill",
    "executable_memory",
    "packet_socket",
    "listen",
    "setuid",
    "raise_limit",
];

/// The process of this name.
fn named(scene: &Scene, name: &str) -> u32 {
    wait::until(name, PATIENCE, || scene.terminator.named(name))
}

fn kill_worker(scene: &Scene) {
    let worker = named(scene, "worker-0");
    kill_asleep(worker);
    wait::until_true("another worker", || named(scene, "worker-0") != worker);
}

fn trial(settings: &mut Settings) {
    settings.target = Target::Echo;
    settings.trial("forbidden");
    let redirect = SocketAddr::new(settings.listen.ip(), PLAIN_PORT + 1);
    settings.option("redirect", &redirect.to_string());
    settings.option("spiffe_agent", "unix:/run/no-agent-of-dormouse.sock");
    settings.option("client_certificates", "optional");
    settings.option("client_ca", "spiffe://example.org");
    Admin::in_folder(settings);
}

/// The trials of this many processes with this role, each as a list of "what=outcome".
fn trials(scene: &Scene, role: &str, processes: usize) -> Vec<Vec<String>> {
    let lines = wait::until(&format!("{role} to try"), PATIENCE, || {
        let lines = scene.terminator.lines_with("sandbox trial");
        let of_role = lines.into_iter().filter(|line| {
            let value = line.split_once("role=").map_or("", |(_, value)| value);
            value.trim_start_matches('"').starts_with(role)
        });
        let lines: Vec<String> = of_role.collect();
        (lines.len() >= processes).then_some(lines)
    });
    let outcomes = lines.iter().map(|line| {
        let (_, outcomes) = line.split_once("outcomes=\"").expect("the outcomes");
        let outcomes = outcomes.trim_end().trim_end_matches('"');
        outcomes.split(' ').map(str::to_owned).collect()
    });
    outcomes.collect()
}

#[test]
fn forbidden_calls_are_refused() {
    requires!(Can::BeDormouse);
    let scene = Scene::with(trial);
    let mut probe = scene.probe();
    kill_worker(&scene);
    probe.echo(100).expect("an echo after a crash");
    for (role, refused, processes) in [
        (
            "Control",
            [&TO_ALL[..], &TO_STRANGERS, &["connect"]].concat(),
            1,
        ),
        ("Worker", [&TO_ALL[..], &TO_STRANGERS].concat(), 2),
        ("Keeper", TO_ALL.to_vec(), 2),
        (
            "Redirect",
            [&TO_ALL[..], &TO_STRANGERS, &["connect"]].concat(),
            1,
        ),
        (
            "SpiffeClient",
            [&TO_ALL[..], &TO_STRANGERS, &["connect"]].concat(),
            1,
        ),
    ] {
        let trials = trials(&scene, role, processes);
        assert_eq!(
            trials.len(),
            processes,
            "{role}: {}",
            scene.terminator.log()
        );
        for outcomes in trials {
            for what in &refused {
                let expected = format!("{what}=refused");
                assert!(
                    outcomes.contains(&expected),
                    "{role}, {expected}: {outcomes:?}"
                );
            }
            let connects = outcomes.contains(&"connect=POSSIBLE".to_owned());
            let may = !["Control", "Redirect", "SpiffeClient"].contains(&role);
            assert_eq!(connects, may, "{role}");
        }
    }
    // Checked from outside: filters are active, also in a keeper that has executed itself.
    let processes = [
        ("control", 2),
        ("keeper-0", 1),
        ("worker-0", 2),
        ("redirect", 1),
    ];
    for (name, filters) in processes {
        let pid = named(&scene, name);
        assert_eq!(status(pid, "Seccomp:"), "2", "{name}");
        assert_eq!(
            status(pid, "Seccomp_filters:"),
            filters.to_string(),
            "{name}"
        );
        assert_eq!(status(pid, "NoNewPrivs:"), "1", "{name}");
    }
    assert_eq!(status(scene.terminator.pid(), "Seccomp:"), "0", "main");
}

/// `sandbox = "off"`, which also proves that the test above can fail.
#[test]
fn without_a_sandbox_the_calls_succeed() {
    requires!(Can::BeDormouse, Root);
    let scene = Scene::with(|settings| {
        trial(settings);
        settings.option("sandbox", "off");
        // As root, so that nothing but the sandbox refuses the calls.
        settings.options.push(("user", "\"0\"".to_owned()));
    });
    for role in ["Control", "Worker", "Keeper"] {
        let outcomes = trials(&scene, role, 1).remove(0);
        // Control runs as nobody, who may not mount; root's worker may do everything.
        let possible = match role {
            "Control" => &["open", "execve", "executable_memory", "listen"][..],
            _ => &[
                "ptrace", "mount", "bpf", "open", "create", "execve", "fork", "kill",
            ],
        };
        for what in possible {
            let expected = format!("{what}=POSSIBLE");
            assert!(
                outcomes.contains(&expected),
                "{role}, {expected}: {outcomes:?}"
            );
        }
    }
    assert_eq!(status(named(&scene, "worker-0"), "Seccomp:"), "0");
}

/// Hides Landlock from the command, as on an older kernel, and executes it.
const WITHOUT_LANDLOCK: &str = "
import ctypes, os, sys
class Step(ctypes.Structure):
    _fields_ = [('code', ctypes.c_uint16), ('yes', ctypes.c_uint8), ('no', ctypes.c_uint8), ('k', ctypes.c_uint32)]
class Program(ctypes.Structure):
    _fields_ = [('len', ctypes.c_uint16), ('steps', ctypes.POINTER(Step))]
# The number of the call; landlock_create_ruleset is 444 everywhere; ENOSYS, or what it does.
steps = (Step * 4)(Step(0x20, 0, 0, 0), Step(0x15, 0, 1, 444), Step(6, 0, 0, 0x50000 | 38), Step(6, 0, 0, 0x7fff0000))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(4, steps)), 0, 0) == 0, ctypes.get_errno()
os.execvp(sys.argv[1], sys.argv[1:])
";

#[test]
fn missing_kernel_features_are_logged_or_prevent_the_start() {
    requires!(Can::BeDormouse, "python3");
    let without = |settings: &mut Settings| {
        settings.target = Target::Echo;
        settings.workers = 2;
        settings.wrapper = vec![
            tools::path("python3"),
            "-c".to_owned(),
            WITHOUT_LANDLOCK.to_owned(),
        ];
    };
    let scene = Scene::with(without);
    let _probe = scene.probe();
    let said = scene.terminator.logged("the sandbox is incomplete", 1);
    assert_eq!(said.len(), 1, "{}", scene.terminator.log());
    assert!(said[0].contains("Landlock"), "{said:?}");
    // The features that the kernel has are used.
    assert_eq!(status(named(&scene, "worker-1"), "Seccomp:"), "2");

    let mut settings = Settings::new(SocketAddr::new(unused_host(), TLS_PORT), Target::Echo);
    without(&mut settings);
    settings.option("sandbox", "required");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let launch = Terminator::Dormouse.prepare(&settings, folder.path());
    let refused = Command::new(&launch.command[0])
        .args(&launch.command[1..])
        .output()
        .expect("python3");
    assert_eq!(refused.status.code(), Some(3));
    let words = String::from_utf8_lossy(&refused.stderr);
    assert!(words.contains("this kernel lacks Landlock"), "{words}");
}

/// With dropped privileges and the sandbox on, a reload still reaches what only root may: a renewed key, a
/// privileged port; and a new backend.
#[test]
fn a_reload_still_reaches_what_only_root_may() {
    requires!(Can::BeDormouse, Root);
    let host = unused_host();
    let backend = Backend::tcp(SocketAddr::new(host, PLAIN_PORT));
    let other = Backend::tcp(SocketAddr::new(host, PLAIN_PORT + 1));
    let keys = tempfile::tempdir().expect("a temporary folder");
    let only_root = |path: &std::path::Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("permissions");
    };
    only_root(keys.path(), 0o700);
    let files = authority().give_out("localhost", Kind::EcdsaP256, 2040, keys.path());
    only_root(&files.key, 0o600);
    assert_eq!(fs::metadata(&files.key).expect("the key").uid(), 0);
    let mut settings = Settings::new(
        SocketAddr::new(host, TLS_PORT),
        Target::Tcp(backend.address()),
    );
    settings.certificate = files.clone();
    settings.options.push(("user", format!("\"{NOBODY}\"")));
    settings.option("sandbox", "required");
    Admin::in_folder(&mut settings);
    let scene = Scene::of(Terminator::Dormouse, backend, &settings);
    let admin = Admin::of(&scene);
    let shown = |address: SocketAddr| {
        // A resumed session would show its original certificate.
        let [config, _] = peer::configs_by_version();
        let tcp = peer::connect_tcp(address).expect("a connection");
        let peer = Peer::over(tcp, peer::client(config)).expect("a handshake");
        let shown = peer.tls.peer_certificates().map(<[_]>::to_vec);
        shown.expect("a certificate").remove(0)
    };
    let mut old = Peer::echoing(scene.address);
    let first = shown(scene.address);
    assert_eq!(status(named(&scene, "worker-0"), "Seccomp:"), "2");

    let renewed = authority().give_out("localhost", Kind::EcdsaP256, 2041, keys.path());
    assert_eq!(renewed.key, files.key, "in the same place");
    only_root(&renewed.key, 0o600);
    let privileged = SocketAddr::new(host, 443);
    let file = scene.folder.path().join("dormouse.toml");
    let text = fs::read_to_string(&file).expect("the configuration");
    let text = text
        .replace(
            &format!("listen = [\"{}\"]", scene.address),
            &format!("listen = [\"{}\", \"{privileged}\"]", scene.address),
        )
        .replace(
            &scene.backend.address().to_string(),
            &other.address().to_string(),
        );
    fs::write(&file, text).expect("the configuration written");
    admin.order("/reload").expect("a reload");

    old.echo().expect("an echo on an older connection");
    assert_ne!(shown(scene.address), first, "the renewed certificate");
    Peer::echoing(privileged);
    assert!(other.accepted() >= 1, "the new backend is used");
    let worker = named(&scene, "worker-0");
    let owner = fs::read_to_string(format!("/proc/{worker}/status")).expect("the worker");
    assert!(
        owner.contains(&format!("Uid:\t{NOBODY}\t{NOBODY}")),
        "{owner}"
    );
    kill_worker(&scene);
    Peer::echoing(privileged);
}

/// As with the unit file: the user nobody, with capabilities from the service manager. Main uses them to read
/// a renewed key of root's and to open privileged ports; no other process keeps any.
#[test]
fn only_main_keeps_capabilities() {
    requires!(Can::BeDormouse, Root, "setpriv");
    let keys = tempfile::tempdir().expect("a temporary folder");
    let only_root = |path: &std::path::Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("permissions");
    };
    only_root(keys.path(), 0o700);
    let files = authority().give_out("localhost", Kind::EcdsaP256, 2042, keys.path());
    only_root(&files.key, 0o600);
    let host = unused_host();
    let backend = Backend::tcp(SocketAddr::new(host, PLAIN_PORT));
    let target = Target::Tcp(backend.address());
    let mut settings = Settings::new(SocketAddr::new(host, 443), target);
    settings.certificate = files.clone();
    settings.option("admin", "none");
    settings.option("sandbox", "off");
    settings.wrapper = [
        &tools::path("setpriv"),
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--inh-caps=-all,+net_bind_service,+dac_read_search",
        "--ambient-caps=-all,+net_bind_service,+dac_read_search",
    ]
    .map(str::to_owned)
    .to_vec();
    let mut scene = Scene::of(Terminator::Dormouse, backend, &settings);
    let main = scene.terminator.pid();
    // CAP_DAC_READ_SEARCH is bit 2, CAP_NET_BIND_SERVICE bit 10.
    let both = format!("{:016x}", 1 << 2 | 1 << 10);
    for what in ["start", "reload", "crash", "upgrade"] {
        match what {
            "reload" => {
                let renewed = authority().give_out("localhost", Kind::EcdsaP256, 2043, keys.path());
                only_root(&renewed.key, 0o600);
                signal(main, Signal::HUP);
                let reloaded = "configuration reloaded";
                scene.terminator.wait_for_line(reloaded, PATIENCE);
            }
            "crash" => kill_worker(&scene),
            "upgrade" => {
                scene.terminator.upgrade();
            }
            _ => {}
        }
        Peer::saying(scene.address, "echo").echo().expect(what);
        assert_eq!(status(main, "CapEff:"), both, "main after {what}");
        for name in ["keeper-0", "worker-0"] {
            let pid = named(&scene, name);
            assert_eq!(status(pid, "NoNewPrivs:"), "1", "{name} after {what}");
            for set in ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"] {
                let left = status(pid, set);
                assert_eq!(left, "0000000000000000", "{name}'s {set} after {what}");
            }
        }
    }
}

/// When memory runs out, the kernel kills workers before main; core dumps contain no mapping of ours.
#[test]
fn the_kernel_kills_workers_first_and_dumps_nothing() {
    requires!(Can::BeDormouse, Root);
    let scene = Scene::with(|settings| {
        settings.target = Target::Echo;
        settings.options.push(("user", format!("\"{NOBODY}\"")));
    });
    let mut probe = scene.probe();
    let score = |pid: u32| -> i32 {
        let score = fs::read_to_string(format!("/proc/{pid}/oom_score_adj"));
        score.expect("a score").trim().parse().expect("a number")
    };
    let main = score(scene.terminator.pid());
    for what in ["start", "crash", "crash", "upgrade"] {
        match what {
            "crash" => kill_worker(&scene),
            "upgrade" => {
                scene.terminator.upgrade();
            }
            _ => {}
        }
        probe
            .echo(100)
            .unwrap_or_else(|fault| panic!("after {what}: {fault:?}"));
        let (keeper, worker) = (named(&scene, "keeper-0"), named(&scene, "worker-0"));
        for pid in [keeper, worker] {
            assert_eq!(score(pid), (main + 300).min(1000), "{pid} after {what}");
        }
        for pid in [keeper, worker] {
            are_not_dumped(pid);
        }
    }
}

/// Asserts that every mapping of our memory files is excluded from core dumps ("dd" in smaps).
fn are_not_dumped(pid: u32) {
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps")).expect("its mappings");
    let (mut ours, mut seen) = (false, 0);
    for line in smaps.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            if ours {
                assert!(flags.split(' ').any(|flag| flag == "dd"), "{pid}: {flags}");
                seen += 1;
            }
        } else if line
            .split(' ')
            .next()
            .is_some_and(|range| range.contains('-'))
        {
            ours = line.contains("memfd:dormouse");
        }
    }
    assert!(seen >= 2, "{pid} has {seen} mappings of ours");
}
