//! What a system manager is told, and what it hands in, by the protocol that systemd speaks.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixDatagram;

use rustix::process::Signal;

use dormouse_interop::backend::Backend;
use dormouse_interop::peer::Peer;
use dormouse_interop::process::signal;
use dormouse_interop::scene::{self, PLAIN_PORT, TLS_PORT, applies, unused_host};
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

/// Ready when clients are served, alive as often as asked for, stopping when it stops.
#[test]
fn it_is_told_how_it_goes() {
    if !applies(Can::BeDormouse) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("a socket");
    manager.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let hear = || {
        let mut message = [0; 512];
        let n = manager.recv(&mut message).expect("a message in time");
        String::from_utf8_lossy(&message[..n]).into_owned()
    };
    let (mut settings, _backend) = settings();
    settings.wrapper = vec![
        "env".to_owned(),
        format!("NOTIFY_SOCKET={}", path.display()),
        "WATCHDOG_USEC=400000".to_owned(),
    ];
    let mut terminator = scene::start(Terminator::Dormouse, &settings, folder.path());
    let mut first = hear();
    while first.starts_with("WATCHDOG=1") {
        first = hear();
    }
    assert!(first.starts_with("READY=1\n"), "{first}");
    assert!(
        first.contains(&format!("MAINPID={}\n", terminator.pid())),
        "{first}"
    );
    Peer::saying(settings.listen, "echo")
        .echo()
        .expect("an echo when it says that it is ready");
    for _ in 0..3 {
        assert_eq!(hear(), "WATCHDOG=1\n");
    }
    signal(terminator.pid(), Signal::TERM);
    wait::until("STOPPING=1", PATIENCE, || {
        hear().starts_with("STOPPING=1\n").then_some(())
    });
    assert!(terminator.wait_for_end(PATIENCE).success());
}

/// Opens two listeners, and becomes the command with them as descriptors 3 and 4.
const HANDING_IN: &str = "
import os, socket, sys
for n, at in enumerate(sys.argv[1:3]):
    host, port = at.rsplit(':', 1)
    s = socket.socket()
    s.bind((host, int(port)))
    s.listen(16)
    os.dup2(s.fileno(), 30 + n, inheritable=False)
os.dup2(30, 3)
os.dup2(31, 4)
os.environ.update(LISTEN_FDS='2', LISTEN_PID=str(os.getpid()))
os.execvp(sys.argv[3], sys.argv[3:])
";

/// A listener that was handed in is used; one that nobody wants is closed.
#[test]
fn listeners_are_handed_in() {
    if !applies(Can::BeDormouse) || !tools::present(&["python3"]) {
        return;
    }
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
    let terminator = scene::start(Terminator::Dormouse, &settings, folder.path());
    for _ in 0..10 {
        Peer::saying(settings.listen, "echo")
            .echo()
            .expect("an echo");
    }
    let lines = terminator.lines_with("no route listens on this address");
    assert_eq!(lines.len(), 1, "{}", terminator.log());
    drop(TcpListener::bind(unwanted).expect("the unwanted one is closed"));
}
