//! Options that a reload turns on and off while their sockets and memory stay.

use std::fs;
use std::os::fd::OwnedFd;

use dormouse_interop::admin::Admin;
use dormouse_interop::peer::{self, Peer, connect_tcp};
use dormouse_interop::scene::Scene;
use dormouse_interop::terminator::{Can, Target};
use rustix::net::sockopt;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use rustls::HandshakeKind;

/// Reloads with these lines in the beginning.
fn reload(scene: &Scene, text: &str, options: &str) {
    let file = scene.folder.path().join("dormouse.toml");
    fs::write(file, format!("{options}\n{text}")).expect("the configuration written");
    Admin::of(scene).order("/reload").expect("a reload");
}

/// A copy of the listening socket.
fn listener(scene: &Scene) -> OwnedFd {
    let main = scene.terminator.pid();
    let pid = Pid::from_raw(main.cast_signed()).expect("a process id");
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).expect("a running process");
    let numbers = fs::read_dir(format!("/proc/{main}/fd")).expect("descriptors");
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let mut sockets = numbers.filter_map(|entry| {
        let number = number(entry.expect("an entry"))?;
        pidfd_getfd(&pidfd, number, PidfdGetfdFlags::empty()).ok()
    });
    let is_listener = |fd: &OwnedFd| {
        let name = rustix::net::getsockname(fd).ok();
        sockopt::socket_acceptconn(fd) == Ok(true)
            && name.and_then(|name| name.try_into().ok()) == Some(scene.address)
    };
    sockets.find(is_listener).expect("the listening socket")
}

#[test]
fn a_listener_gets_options_that_are_turned_off() {
    requires!(Can::BeDormouse);
    let scene = Scene::with(Admin::in_folder);
    let file = scene.folder.path().join("dormouse.toml");
    let text = fs::read_to_string(file).expect("the configuration");
    let on = "keepalive_idle = '60s'\nuser_timeout = '90s'";
    let off = "keepalive_idle = 'off'\nuser_timeout = 'off'";
    for (options, is_kept_alive, timeout_ms) in [(on, true, 90_000), (off, false, 0)] {
        reload(&scene, &text, options);
        let listener = listener(&scene);
        let kept_alive = sockopt::socket_keepalive(&listener).expect("an option");
        assert_eq!(kept_alive, is_kept_alive, "{options}");
        let timeout = sockopt::tcp_user_timeout(&listener).expect("an option");
        assert_eq!(timeout, timeout_ms, "{options}");
    }
}

/// The cache for clients without tickets is there although the program began without tickets.
#[test]
fn a_reload_to_tickets_resumes_clients_without_tickets_too() {
    requires!(Can::BeDormouse);
    let scene = Scene::with(|settings| {
        settings.target = Target::Echo;
        settings.option("tickets", "0");
        Admin::in_folder(settings);
    });
    let config = peer::config_by_id();
    let kind = || {
        let tcp = connect_tcp(scene.address).expect("a connection");
        let mut peer = Peer::over(tcp, peer::client(config.clone())).expect("a handshake");
        peer.echo().expect("an echo");
        peer.end_sending().expect("an end");
        peer.tls.handshake_kind()
    };
    for _ in 0..2 {
        assert_eq!(kind(), Some(HandshakeKind::Full), "nothing is resumed");
    }
    let file = scene.folder.path().join("dormouse.toml");
    let text = fs::read_to_string(file).expect("the configuration");
    let without = text.replace("tickets = 0\n", "");
    assert_ne!(text, without, "{text}");
    reload(&scene, &without, "tickets = 2");
    for expected in [HandshakeKind::Full, HandshakeKind::Resumed] {
        assert_eq!(kind(), Some(expected));
    }
}
