use super::*;
use crate::poller::{Events, Interest, Poller};
use crate::{Fd, OnExec};
use std::net::SocketAddr;

fn loopback() -> Addr {
    "127.0.0.1:0".parse().unwrap()
}

fn open_listener(address: &Addr) -> (Fd, Addr) {
    let listener = listen(address, &ListenOptions::default()).unwrap();
    (listener, Addr::local(listener).unwrap())
}

/// Waits until `fd` is ready for `interest`, as the loop does.
fn ready(fd: Fd, interest: Interest) {
    let poller = Poller::create(OnExec::Close).unwrap();
    poller.add(fd, 1, interest).unwrap();
    let mut events = Events::with_capacity(1);
    while events.is_empty() {
        poller.wait(&mut events, None).unwrap();
    }
    poller.fd().close();
}

fn connected(address: &Addr, options: &ConnectOptions) -> (Fd, Accepted, Fd) {
    let (listener, address) = open_listener(address);
    let client = connect(&address, options).unwrap().fd();
    ready(listener, Interest::READ);
    let accepted = accept(listener, OnExec::Keep).unwrap().done().unwrap();
    ready(client, Interest::WRITE);
    take_error(client).unwrap();
    (client, accepted, listener)
}

fn close_all(fds: &[Fd]) {
    fds.iter().for_each(|fd| fd.close());
}

#[test]
fn scattered_and_gathered_bytes_arrive() {
    let (client, server, listener) = connected(&loopback(), &ConnectOptions::default());
    assert_eq!(Peer::Tcp(address_of(client)), server.peer);
    assert_eq!(server.fd.on_exec().unwrap(), OnExec::Keep);
    assert_eq!(client.on_exec().unwrap(), OnExec::Close);
    assert_eq!(recv(server.fd, &mut [0; 10]).unwrap(), Attempt::WouldBlock);

    let sent: Vec<u8> = (0..=255).collect();
    let ranges = [5..10, 10..10, 100..200, 250..256];
    let count = send_gathered(client, &sent, &ranges).unwrap();
    assert_eq!(count, Attempt::Done(111));
    ready(server.fd, Interest::READ);
    assert_eq!(received_unread(server.fd).unwrap(), 111);

    let mut buf = [0xee; 200];
    let count = recv_scattered(server.fd, &mut buf, &[1..4, 10..12, 50..200]).unwrap();
    assert_eq!(count, Attempt::Done(111));
    let expected: Vec<u8> = [&sent[5..10], &sent[100..200], &sent[250..256]].concat();
    let got: Vec<u8> = [&buf[1..4], &buf[10..12], &buf[50..156]].concat();
    assert_eq!(got, expected);
    assert!([0, 4, 9, 12, 49, 156, 199].iter().all(|&i| buf[i] == 0xee));
    close_all(&[client, server.fd, listener]);
}

fn address_of(fd: Fd) -> SocketAddr {
    match Addr::local(fd).unwrap() {
        Addr::Tcp(address) => address,
        other => panic!("{other}"),
    }
}

#[test]
#[allow(
    clippy::reversed_empty_ranges,
    clippy::single_range_in_vec_init,
    reason = "ranges are what is tested"
)]
fn ranges_that_do_not_ascend_are_refused() {
    let (a, b) = pair(OnExec::Close).unwrap();
    let nine: Vec<_> = (0..9).map(|i| i..i + 1).collect();
    for ranges in [&[5..3][..], &[0..5, 4..6], &[0..11], &nine] {
        let error = recv_scattered(a, &mut [0; 10], ranges).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        let error = send_gathered(a, &[0; 10], ranges).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
    close_all(&[a, b]);
}

#[test]
fn each_direction_ends_independently() {
    let (client, server, listener) = connected(&loopback(), &ConnectOptions::default());
    shutdown_write(client).unwrap();
    ready(server.fd, Interest::READ);
    assert_eq!(recv(server.fd, &mut [0; 10]).unwrap(), Attempt::Done(0));
    assert_eq!(send(server.fd, b"still").unwrap(), Attempt::Done(5));
    ready(client, Interest::READ);
    assert_eq!(recv(client, &mut [0; 10]).unwrap(), Attempt::Done(5));
    close_all(&[client, server.fd, listener]);
}

#[test]
fn a_reset_is_reported_and_sending_after_it_raises_no_signal() {
    let (client, server, listener) = connected(&loopback(), &ConnectOptions::default());
    reset(server.fd);
    ready(client, Interest::READ);
    let error = recv(client, &mut [0; 10]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    assert!(Peer::of(client).is_err());
    let error = send(client, b"x").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    close_all(&[client, listener]);
}

/// The kernel sends the acknowledgement by itself after 200 ms, so a busy machine gets several tries.
#[test]
fn first_bytes_carry_the_acknowledgement_of_the_handshake() {
    let (listener, address) = open_listener(&loopback());
    let options = ConnectOptions {
        speaks_first: true,
        ..ConnectOptions::default()
    };
    for _ in 0..20 {
        let client = connect(&address, &options).unwrap().fd();
        let early = accept(listener, OnExec::Close).unwrap();
        if let Attempt::Done(early) = early {
            close_all(&[client, early.fd]);
            continue;
        }
        assert_eq!(send(client, b"hello").unwrap(), Attempt::Done(5));
        ready(listener, Interest::READ);
        let server = accept(listener, OnExec::Close).unwrap().done().unwrap();
        ready(server.fd, Interest::READ);
        assert_eq!(recv(server.fd, &mut [0; 10]).unwrap(), Attempt::Done(5));
        return close_all(&[client, server.fd, listener]);
    }
    panic!("every connection was accepted before its first bytes");
}

#[test]
fn unread_bytes_are_counted() {
    let options = ConnectOptions {
        send_buffer_bytes: Some(16 * 1024),
        ..ConnectOptions::default()
    };
    let (client, server, listener) = connected(&loopback(), &options);
    set_receive_buffer(server.fd, 16 * 1024).unwrap();
    let mut total = 0;
    while let Attempt::Done(count) = send(client, &[7; 65_536]).unwrap() {
        total += count;
    }
    assert!(unsent(client).unwrap() > 0);
    let mut received = 0;
    let mut buf = vec![0; 65_536];
    while received < total {
        ready(server.fd, Interest::READ);
        received += recv(server.fd, &mut buf).unwrap().done().unwrap();
    }
    assert_eq!(received, total);
    // Acknowledgements may still be in transit.
    while unsent(client).unwrap() > 0 {
        std::thread::yield_now();
    }
    close_all(&[client, server.fd, listener]);
}

#[test]
fn options_take_effect() {
    let (client, server, listener) = connected(&loopback(), &ConnectOptions::default());
    for fd in [client, server.fd] {
        set_nodelay(fd, true).unwrap();
        let keepalive = Keepalive {
            idle_s: 100,
            interval_s: 11,
            count: 3,
        };
        set_keepalive(fd, Some(keepalive)).unwrap();
        set_user_timeout(fd, 30_000).unwrap();
        set_send_buffer(fd, 100_000).unwrap();
        let socket = fd.borrow().unwrap();
        use rustix::net::sockopt;
        assert!(sockopt::tcp_nodelay(socket).unwrap());
        assert!(sockopt::socket_keepalive(socket).unwrap());
        assert_eq!(sockopt::tcp_keepidle(socket).unwrap().as_secs(), 100);
        assert_eq!(sockopt::tcp_keepintvl(socket).unwrap().as_secs(), 11);
        assert_eq!(sockopt::tcp_keepcnt(socket).unwrap(), 3);
        assert_eq!(sockopt::tcp_user_timeout(socket).unwrap(), 30_000);
        assert_eq!(sockopt::socket_send_buffer_size(socket).unwrap(), 200_000);
        let sooner = Keepalive {
            idle_s: 90,
            interval_s: 10,
            ..keepalive
        };
        set_keepalive_times(fd, sooner).unwrap();
        assert_eq!(sockopt::tcp_keepidle(socket).unwrap().as_secs(), 90);
        assert_eq!(sockopt::tcp_keepintvl(socket).unwrap().as_secs(), 10);
        assert_eq!(sockopt::tcp_keepcnt(socket).unwrap(), 3);
        set_keepalive(fd, None).unwrap();
        assert!(!sockopt::socket_keepalive(socket).unwrap());
    }
    send(client, b"1234").unwrap().done().unwrap();
    while received_unread(server.fd).unwrap() < 4 {
        std::thread::yield_now();
    }
    assert_ne!(cookie(client).unwrap(), cookie(server.fd).unwrap());
    assert_eq!(cookie(client).unwrap(), cookie(client).unwrap());
    close_all(&[client, server.fd, listener]);
}

#[test]
fn one_source_address_serves_many_targets() {
    let options = ConnectOptions {
        source: Some("127.0.0.77:0".parse().unwrap()),
        ..ConnectOptions::default()
    };
    let (client, server, listener) = connected(&loopback(), &options);
    assert!(server.peer.to_string().starts_with("127.0.0.77:"));
    close_all(&[client, server.fd, listener]);
}

#[test]
fn ipv6_alone_or_with_ipv4() {
    let any: Addr = "[::]:0".parse().unwrap();
    for v6only in [true, false] {
        let options = ListenOptions {
            v6only,
            ..ListenOptions::default()
        };
        let listener = listen(&any, &options).unwrap();
        let port = address_of(listener).port();
        for (target, expected) in [
            (format!("[::1]:{port}"), true),
            (format!("127.0.0.1:{port}"), !v6only),
        ] {
            let target: Addr = target.parse().unwrap();
            let reached = match connect(&target, &ConnectOptions::default()) {
                Ok(connecting) => {
                    ready(connecting.fd(), Interest::WRITE);
                    let result = take_error(connecting.fd());
                    connecting.fd().close();
                    result.is_ok()
                }
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
                    false
                }
            };
            assert_eq!(reached, expected, "{target}");
        }
        listener.close();
    }
}

#[test]
fn unix_sockets_replace_only_stale_ones() {
    let dir = std::env::temp_dir().join(format!("dormouse-reactor-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let address = Addr::Unix(dir.join("s"));
    let (client, server, listener) = connected(&address, &ConnectOptions::default());
    assert_eq!(server.peer, Peer::Unix);
    assert_eq!(Addr::local(listener).unwrap(), address);
    assert_eq!(send(client, b"hello").unwrap(), Attempt::Done(5));
    assert_eq!(recv(server.fd, &mut [0; 9]).unwrap(), Attempt::Done(5));
    // There is a listener.
    let error = listen(&address, &ListenOptions::default()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    // The listener is gone.
    listener.close();
    let (listener, _) = open_listener(&address);
    // The file is not a socket.
    let file = dir.join("file");
    std::fs::write(&file, "precious").unwrap();
    let error = listen(&Addr::Unix(file.clone()), &ListenOptions::default()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    let long = Addr::Unix(dir.join("x".repeat(200)));
    let error = listen(&long, &ListenOptions::default()).unwrap_err();
    assert!(error.to_string().contains("not a valid unix socket path"));
    close_all(&[client, server.fd, listener]);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_full_queue_of_a_local_listener_is_a_shortage() {
    let name = format!("unix:@dormouse-reactor-{}", std::process::id());
    let address: Addr = name.parse().unwrap();
    let options = ListenOptions {
        backlog: 1,
        ..ListenOptions::default()
    };
    let listener = listen(&address, &options).unwrap();
    assert_eq!(Addr::local(listener).unwrap(), address);
    let mut clients = Vec::new();
    let error = loop {
        match connect(&address, &ConnectOptions::default()) {
            Ok(connecting) => clients.push(connecting.fd()),
            Err(error) => break error,
        }
        assert!(clients.len() < 10);
    };
    assert_eq!(Shortage::of(&error), Some(Shortage::Queue));
    close_all(&clients);
    listener.close();
}

#[test]
fn errors_name_the_cause() {
    let (listener, address) = open_listener(&loopback());
    let in_use = listen(&address, &ListenOptions::default()).unwrap_err();
    assert_eq!(in_use.kind(), io::ErrorKind::AddrInUse);
    listener.close();
    let refused = connect(&address, &ConnectOptions::default()).and_then(|connecting| {
        ready(connecting.fd(), Interest::WRITE);
        let result = take_error(connecting.fd());
        connecting.fd().close();
        result
    });
    let kind = refused.unwrap_err().kind();
    assert_eq!(kind, io::ErrorKind::ConnectionRefused);
    let not_ours = ConnectOptions {
        source: Some("192.0.2.1:0".parse().unwrap()),
        ..ConnectOptions::default()
    };
    let error = connect(&address, &not_ours).unwrap_err();
    assert_eq!(Shortage::of(&error), Some(Shortage::Ports));
    assert_eq!(Shortage::of(&io::Error::other("x")), None);
    let bad = recv(Fd::NONE, &mut [0]).unwrap_err();
    assert_eq!(bad.raw_os_error(), Some(libc::EBADF));
    assert!(send(Fd(1_000_000), &[0]).is_err());
    assert!("127.0.0.1".parse::<Addr>().is_err() && "unix:".parse::<Addr>().is_err());
}

#[test]
fn a_paused_listener_keeps_its_address() {
    // A port that the kernel chose (bind to 0) would not be kept.
    let (free, address) = open_listener(&loopback());
    free.close();
    let listener = listen(&address, &ListenOptions::default()).unwrap();
    let come_in = || {
        let client = connect(&address, &ConnectOptions::default()).unwrap().fd();
        ready(listener, Interest::READ);
        let accepted = accept(listener, OnExec::Close).unwrap().done().unwrap();
        (client, accepted.fd)
    };
    let (client, accepted) = come_in();
    let copy = rustix::io::fcntl_dupfd_cloexec(listener.borrow().unwrap(), 3).unwrap();
    pause_listening(Fd::from_owned(copy)).unwrap();
    let connecting = connect(&address, &ConnectOptions::default());
    let refused = connecting.and_then(|connecting| {
        ready(connecting.fd(), Interest::WRITE);
        take_error(connecting.fd())
    });
    let kind = refused.expect_err("there is no listener").kind();
    assert_eq!(kind, io::ErrorKind::ConnectionRefused);
    resume_listening(listener, 16).unwrap();
    let (second, second_accepted) = come_in();
    let _ = send(client, b"still").unwrap();
    ready(accepted, Interest::READ);
    assert_eq!(recv(accepted, &mut [0; 8]).unwrap(), Attempt::Done(5));
    close_all(&[client, accepted, second, second_accepted, listener]);
}

#[test]
fn a_unix_socket_knows_the_user_at_its_other_end() {
    let (a, b) = pair(OnExec::Close).expect("a pair");
    assert_eq!(
        peer_user_id(a).expect("the peer's user id"),
        crate::process::user_id()
    );
    close_all(&[a, b]);
}

#[test]
fn a_descriptor_replaces_another() {
    let (a, b) = pair(OnExec::Keep).expect("a pair");
    let (c, d) = pair(OnExec::Keep).expect("a pair");
    a.move_to(c).expect("the descriptor moved");
    assert!(a.on_exec().is_err(), "the old number is free");
    let _ = send(c, b"x").expect("sent by the new number");
    assert_eq!(recv(b, &mut [0; 2]).expect("received"), Attempt::Done(1));
    assert_eq!(
        recv(d, &mut [0; 2]).expect("its end is closed"),
        Attempt::Done(0)
    );
    assert!(Fd(1_000_000).move_to(c).is_err());
    close_all(&[b, c, d]);
}

/// The kernel reports the process id 0 for a process outside this one's container, and for a socket without a peer.
#[test]
fn an_unknown_process_hides_no_user() {
    let alone = datagrams(DatagramAddress::Unix("unused".as_ref())).expect("a socket");
    assert_eq!(peer_user_id(alone).expect("the kernel's answer"), u32::MAX);
    let unknown = peer_process(alone).expect_err("no process");
    assert_eq!(unknown.kind(), io::ErrorKind::NotFound);
    alone.close();
}
