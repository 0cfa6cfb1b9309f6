//! Notifications to a service manager, and sockets from it, in systemd's protocols.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use rustix::process::Signal;

use dormouse_interop::admin::Admin;
use dormouse_interop::backend::Backend;
use dormouse_interop::machine::Machine;
use dormouse_interop::peer::{self, Peer};
use dormouse_interop::process::{Process, signal};
use dormouse_interop::scene::{self, PLAIN_PORT, TLS_PORT, unused_host};
use dormouse_interop::terminator::{Can, Settings, Target, Terminator};
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};

fn settings() -> (Settings, Backend) {
    let host = unused_host();
    let backend = Backend::tcp(SocketAddr::new(host, PLAIN_PORT));
    let target = Target::Tcp(backend.address());
    (
        Settings::new(SocketAddr::new(host, TLS_PORT), target),
        backend,
    )
}

/// A service manager, which receives notifications.
struct Manager(UnixDatagram);

impl Manager {
    /// Starts the program as a service, with these variables besides the socket for notifications.
    fn start(settings: &mut Settings, folder: &Path, variables: &[&str]) -> (Self, Process) {
        let path = folder.join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let notify = format!("NOTIFY_SOCKET={}", path.display());
        let command = [&["env", &notify][..], variables].concat();
        settings.wrapper = command.into_iter().map(str::to_owned).collect();
        let service = scene::start(Terminator::Dormouse, settings, folder);
        (Self(socket), service)
    }

    fn receive(&self) -> String {
        let mut message = [0; 512];
        let n = self.0.recv(&mut message).expect("a message in time");
        String::from_utf8_lossy(&message[..n]).into_owned()
    }
}

/// Ready when clients are served, watchdog messages in time, stopping when it stops.
#[test]
fn systemd_is_notified_of_start_and_stop() {
    requires!(Can::BeDormouse);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (mut settings, _backend) = settings();
    let watchdog = ["WATCHDOG_USEC=400000"];
    let (manager, mut terminator) = Manager::start(&mut settings, folder.path(), &watchdog);
    let mut first = manager.receive();
    while first.starts_with("WATCHDOG=1") {
        first = manager.receive();
    }
    assert!(first.starts_with("READY=1\n"), "{first}");
    assert!(
        first.contains(&format!("MAINPID={}\n", terminator.pid())),
        "{first}"
    );
    Peer::echoing(settings.listen);
    for _ in 0..3 {
        assert_eq!(manager.receive(), "WATCHDOG=1\n");
    }
    signal(terminator.pid(), Signal::TERM);
    wait::until_true("STOPPING=1", || {
        manager.receive().starts_with("STOPPING=1\n")
    });
    assert!(terminator.wait_for_end(PATIENCE).success());
}

/// `Type=notify-reload`: the start with its time, then the result, for every way to request a reload.
#[test]
fn systemd_is_notified_of_reloads() {
    requires!(Can::BeDormouse);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (mut settings, _backend) = settings();
    let (manager, terminator) = Manager::start(&mut settings, folder.path(), &[]);
    assert!(manager.receive().starts_with("READY=1\n"));
    let file = folder.path().join("dormouse.toml");
    let good = std::fs::read_to_string(&file).expect("the configuration");
    let bad = format!("max_conections = 7\n{good}");
    for (text, status) in [
        (&good, "STATUS=configuration reloaded, edition 2\n"),
        (&bad, "STATUS=last reload rejected: error: "),
        (&good, "STATUS=configuration reloaded, edition 3\n"),
    ] {
        std::fs::write(&file, text).expect("the configuration written");
        let before_us = monotonic_us();
        signal(terminator.pid(), Signal::HUP);
        let begins = manager.receive();
        let at_us = begins.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
        let at_us = at_us.and_then(|rest| rest.trim_end().parse().ok());
        let at_us: u64 = at_us.unwrap_or_else(|| panic!("{begins}"));
        assert!(before_us <= at_us && at_us <= monotonic_us(), "{begins}");
        let ends = manager.receive();
        assert!(ends.starts_with(&format!("READY=1\n{status}")), "{ends}");
    }
}

fn monotonic_us() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}

/// systemd accepts the unit files without a complaint.
#[test]
fn the_unit_files_are_valid() {
    requires!("systemd-analyze");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let units = ["dormouse.service", "dormouse.socket"];
    for unit in units {
        let text = std::fs::read_to_string(tools::home().join("../packaging/systemd").join(unit));
        // The path of the binary does not matter here.
        let binary = tools::dormouse().display().to_string();
        let text = text.expect("a unit").replace("/usr/bin/dormouse", &binary);
        std::fs::write(folder.path().join(unit), text).expect("a copy");
    }
    let checked = std::process::Command::new(tools::path("systemd-analyze"))
        .arg("verify")
        .args(units.map(|unit| folder.path().join(unit)))
        .env("MANPATH", folder.path())
        .output()
        .expect("systemd-analyze");
    let said = String::from_utf8_lossy(&checked.stderr);
    let about_ours = |line: &&str| line.contains(&*folder.path().to_string_lossy());
    let complaints: Vec<&str> = said.lines().filter(about_ours).collect();
    assert!(complaints.is_empty(), "{said}");
}

/// Opens two listeners, passes them as descriptors 3 and 4, and executes the command. A child keeps the first
/// one open for a while, as systemd does.
const HANDING_IN: &str = "
import os, socket, sys, time
for n, at in enumerate(sys.argv[1:3]):
    host, port = at.rsplit(':', 1)
    s = socket.socket()
    s.bind((host, int(port)))
    s.listen(16)
    os.dup2(s.fileno(), 30 + n, inheritable=False)
    s.close()
parent = os.getpid()
if os.fork() == 0:
    os.close(31)
    while os.getppid() == parent:
        time.sleep(0.05)
    time.sleep(3)
    os._exit(0)
os.dup2(30, 3)
os.dup2(31, 4)
os.environ.update(LISTEN_FDS='2', LISTEN_PID=str(os.getpid()))
os.execvp(sys.argv[3], sys.argv[3:])
";

/// A passed listener is used; an unneeded one is closed. It belongs to the service manager and keeps listening
/// after the program has ended, whatever the program did before.
#[test]
fn passed_listeners_are_used() {
    requires!(Can::BeDormouse, "python3");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (mut settings, _backend) = settings();
    let unwanted = SocketAddr::new(settings.listen.ip(), 9999);
    settings.wrapper = vec![
        tools::path("python3"),
        "-c".to_owned(),
        HANDING_IN.to_owned(),
        settings.listen.to_string(),
        unwanted.to_string(),
    ];
    let mut terminator = scene::start(Terminator::Dormouse, &settings, folder.path());
    for _ in 0..10 {
        Peer::echoing(settings.listen);
    }
    let lines = terminator.logged("inherited socket is unused", 1);
    assert_eq!(lines.len(), 1, "{}", terminator.log());
    drop(TcpListener::bind(unwanted).expect("the address of the unused socket"));
    terminator.upgrade();
    assert!(terminator.terminate().success());
    TcpStream::connect(settings.listen).expect("a new connection waits for the next program");
}

/// A reload without a passed listener leaves its clients in the queue of the service manager, which alone could open the
/// address again; the next reload with it serves them, also after an upgrade.
#[test]
fn a_passed_listener_is_used_again_after_a_reload_without_it() {
    requires!(Can::BeDormouse, "python3");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (mut settings, _backend) = settings();
    let listen = settings.listen.to_string();
    let other = SocketAddr::new(settings.listen.ip(), 9999).to_string();
    let passed = ["python3", "-c", HANDING_IN, &listen, "127.0.0.1:0"];
    settings.wrapper = passed.map(str::to_owned).to_vec();
    Admin::in_folder(&mut settings);
    let terminator = scene::start(Terminator::Dormouse, &settings, folder.path());
    let admin = Admin::at(&folder.path().join("admin.sock"));
    let file = folder.path().join("dormouse.toml");
    let with = std::fs::read_to_string(&file).expect("the configuration");
    let without = with.replace(&listen, &other);
    for round in 0..2 {
        std::fs::write(&file, &without).expect("a configuration");
        admin.order("/reload").expect("another address");
        let waiting = TcpStream::connect(settings.listen).expect("a place in the queue");
        if round == 1 {
            terminator.upgrade();
        }
        std::fs::write(&file, &with).expect("a configuration");
        admin
            .order("/reload")
            .expect("the address of systemd again");
        let mut peer = Peer::over(waiting, peer::client(peer::config())).expect("a handshake");
        peer.stream().write_all(b"echo\n").expect("a line");
        peer.echo().expect("an echo");
    }
}

/// Opens the sockets of a socket unit (standard input), as systemd does, and executes the command, which may not
/// open a port below 1024 itself.
const BY_THE_UNIT: &str = "
import os, socket, sys
unit = [line.split('=', 1) for line in open(sys.argv[1]).read().splitlines() if '=' in line and line[0] != '#']
only = {'both': 0, 'ipv6-only': 1}[dict(unit)['BindIPv6Only']]
streams = [value for name, value in unit if name == 'ListenStream']
for n, at in enumerate(streams):
    host, port = ('::', at) if at.isdigit() else at.rsplit(':', 1)
    host = host.strip('[]')
    s = socket.socket(socket.AF_INET6 if ':' in host else socket.AF_INET)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if ':' in host:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only)
    s.bind((host, int(port)))
    s.listen(16)
    os.dup2(s.fileno(), 30 + n)
for n in range(len(streams)):
    os.dup2(30 + n, 3 + n)
    os.close(30 + n)
os.environ.update(LISTEN_FDS=str(len(streams)), LISTEN_PID=str(os.getpid()))
os.execvp('setpriv', ['setpriv', '--bounding-set=-net_bind_service'] + sys.argv[2:])
";

/// The service without CAP_NET_BIND_SERVICE, on its own machine whose service manager has read this unit.
fn served_by(machine: &Machine, unit: &str, listen: &str) -> Process {
    machine.write("by_the_unit.py", BY_THE_UNIT);
    machine.write("dormouse.socket", unit);
    machine.write(
        "dormouse.toml",
        &format!("[[route]]\nlisten = {listen}\nto = \"echo:\"\nself_signed = \"localhost\"\n"),
    );
    machine.start_in(
        &machine.home(),
        "exec python3 by_the_unit.py dormouse.socket dormouse serve dormouse.toml",
    )
}

fn our_socket_unit() -> String {
    let unit = tools::home().join("../packaging/systemd/dormouse.socket");
    std::fs::read_to_string(unit).expect("the unit")
}

/// The shipped unit, then one socket for each family: clients of both reach `listen = ":443"`, also after a
/// reload and an upgrade. Limits and logs use an IPv4 client's IPv4 address.
#[test]
fn a_socket_unit_serves_both_families() {
    requires!(Can::BeDormouse, "python3", "setpriv", "openssl");
    let one_each = "BindIPv6Only=ipv6-only\nListenStream=0.0.0.0:443\nListenStream=[::]:443\n";
    for unit in [our_socket_unit().as_str(), one_each] {
        let Some(machine) = Machine::start() else {
            return;
        };
        let mut service = served_by(&machine, unit, "\":443\"\ndeny = \"127.0.0.9\"");
        service.wait_for_line("ready", PATIENCE);
        for order in ["status", "reload", "upgrade"] {
            machine.run(&format!("dormouse {order}"));
            for host in ["127.0.0.1", "[::1]"] {
                let said = machine.echoes(&format!("{host}:443"), "hello");
                assert_eq!(
                    said.trim(),
                    "hello",
                    "{host} after {order}\n{}",
                    service.log()
                );
            }
            let denied = "openssl s_client -bind 127.0.0.9 -connect 127.0.0.1:443 </dev/null";
            let (refused, log) = machine.run_in(&machine.home(), denied, PATIENCE);
            assert!(!refused.success(), "after {order}: {log}");
        }
        assert!(service.lines_with(" WARN ").is_empty(), "{}", service.log());
        machine.stop(service);
    }
}

/// If the unit does not pass what the configuration needs, the error lists what it passed.
#[test]
fn a_socket_unit_without_a_needed_address_is_an_error() {
    requires!(Can::BeDormouse, "python3", "setpriv");
    let Some(machine) = Machine::start() else {
        return;
    };
    let unit = "BindIPv6Only=ipv6-only\nListenStream=443\n";
    let mut service = served_by(&machine, unit, "\":443\"");
    let status = service.wait_for_end(PATIENCE);
    assert_eq!(status.code(), Some(3), "{}", service.log());
    let words = "cannot listen on 0.0.0.0:443: Permission denied (os error 13); systemd passed no socket for it, only [::]:443";
    assert_eq!(service.logged(words, 1).len(), 1, "{}", service.log());
}
