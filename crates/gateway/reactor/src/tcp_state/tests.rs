//! Each trap of the kernel's interface, on real sockets. Each test has its own network.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::time::{Duration, Instant};

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use super::*;
use crate::own_network::{alone, counted};

fn sysctl(name: &str, value: &str) {
    let file = format!("/proc/sys/net/ipv4/{name}");
    fs::write(&file, value).unwrap_or_else(|error| panic!("{file}: {error}"));
}

/// A connection whose `server` end goes to rest, and whose `client` end is any peer.
struct Pair {
    client: TcpStream,
    server: Fd,
    listener: TcpListener,
}

impl Pair {
    fn connect(address: &str) -> Pair {
        Pair::of(TcpListener::bind(address).expect("a port"))
    }

    fn of(listener: TcpListener) -> Pair {
        let mut target = listener.local_addr().expect("bound");
        if target.ip().is_unspecified() {
            target.set_ip([127, 0, 0, 1].into());
        }
        let client = TcpStream::connect(target).expect("connected");
        client.set_nodelay(true).expect("an option");
        client
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("an option");
        let (server, _) = listener.accept().expect("accepted");
        server.set_nonblocking(true).expect("an option");
        Pair {
            client,
            server: Fd::from_owned(server.into()),
            listener,
        }
    }

    /// Takes the server's end out of the kernel, once the client has acknowledged everything.
    fn rest(&mut self) -> TcpState {
        let (state, muted) = quiet(self.server);
        muted.unhash().expect("out of the table").close();
        state
    }

    fn wake(&mut self, state: &TcpState) {
        let muted = build(state, Filter::DropAll, OnExec::Close).expect("a socket");
        self.server = muted.release().expect("live");
    }

    /// Sends and compares bytes in both directions.
    fn exchange(&mut self, len: usize) {
        let sent: Vec<u8> = (0..len).map(|i| (i * 7 + i / 251) as u8).collect();
        let mut server = stream(self.server);
        let mut peer = self.client.try_clone().expect("a copy");
        let upload = sent.clone();
        let client = std::thread::spawn(move || {
            peer.write_all(&upload).expect("sent");
            let mut back = vec![0; upload.len()];
            peer.read_exact(&mut back).expect("an answer");
            back
        });
        let mut received = vec![0; len];
        server.read_exact(&mut received).expect("received");
        server.write_all(&received).expect("sent");
        assert!(client.join().expect("a client") == sent, "other bytes");
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.server.close();
    }
}

/// A blocking copy of a socket.
fn stream(fd: Fd) -> TcpStream {
    let copy = fd.duplicate().expect("a copy");
    // SAFETY: nothing else owns the copy.
    let stream = unsafe { TcpStream::from_raw_fd(copy.0) };
    stream.set_nonblocking(false).expect("an option");
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .expect("an option");
    stream
}

/// Takes a checkpoint as soon as the peer has acknowledged everything.
fn quiet(fd: Fd) -> (TcpState, Muted) {
    let start = Instant::now();
    loop {
        match checkpoint(fd, Filter::DropAll) {
            Ok(done) => return done,
            Err(Refusal::Unacknowledged) if start.elapsed() < Duration::from_secs(20) => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(refusal) => panic!("{refusal}"),
        }
    }
}

/// Rests and wakes a connection several times, with bytes in both directions between.
fn cycle(address: &str) {
    let mut pair = Pair::connect(address);
    pair.exchange(10);
    for len in [1, 3_000, 300_000, 5] {
        let state = pair.rest();
        pair.wake(&state);
        pair.exchange(len);
        assert_eq!(counted("OutRsts"), 0);
    }
}

#[test]
fn a_connection_continues_after_any_number_of_cycles() {
    alone(|| {
        cycle("127.0.0.1:0");
        cycle("[::1]:0");
    });
}

#[test]
fn an_ipv4_client_of_an_ipv6_listener_continues() {
    alone(|| {
        let mut pair = Pair::connect("[::]:0");
        let state = pair.rest();
        assert_eq!(state.peer(), pair.client.local_addr().unwrap());
        pair.wake(&state);
        pair.exchange(20_000);
    });
}

#[test]
fn every_combination_of_tcp_options_continues() {
    alone(|| {
        for options in 0..16 {
            let on = |bit: u32| if options & 1 << bit == 0 { "0" } else { "1" };
            sysctl("tcp_timestamps", on(0));
            sysctl("tcp_sack", on(1));
            sysctl("tcp_window_scaling", on(2));
            sysctl("tcp_ecn", on(3));
            cycle("127.0.0.1:0");
        }
    });
}

#[test]
fn resting_and_waking_send_nothing() {
    alone(|| {
        // The trap: TCP_REPAIR off by 0 sends a probe of the window.
        let mut pair = Pair::connect("127.0.0.1:0");
        pair.exchange(10);
        std::thread::sleep(Duration::from_millis(50)); // The last ACK is delayed by 40 ms.
        let before = counted("OutSegs");
        let state = pair.rest();
        pair.wake(&state);
        assert_eq!(counted("OutSegs"), before);
        pair.exchange(10);
    });
}

#[test]
fn the_receive_window_keeps_its_scale() {
    alone(|| {
        // The trap: without TCPOPT_WINDOW, connect leaves its own scale, and a peer without one gets a window
        // that is smaller by that factor.
        sysctl("tcp_window_scaling", "0");
        let mut pair = Pair::connect("127.0.0.1:0");
        sysctl("tcp_window_scaling", "1");
        pair.exchange(1000);
        let before = pair.rest();
        pair.wake(&before);
        let after = pair.rest();
        assert_eq!(after.scales, 0);
        assert!(after.receive_window >= before.receive_window);
        pair.wake(&after);
        pair.exchange(1 << 20);
    });
}

#[test]
fn segments_keep_their_size() {
    alone(|| {
        // The trap: set after connect, the size stays at 524 bytes.
        let largest = |fd| Info::of(fd).unwrap().segments[0];
        for mss in [600, 1440, 9000, MAXSEG_MAX, u16::MAX] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            if mss <= MAXSEG_MAX {
                options::set_maximum_segment(Fd(listener.as_raw_fd()), mss).unwrap();
            }
            let mut pair = Pair::of(listener);
            let before = largest(pair.server);
            let state = pair.rest();
            pair.wake(&state);
            let after = largest(pair.server);
            pair.exchange(100_000);
            // Time stamps take 12 bytes.
            assert!(
                after >= before.min(u32::from(MAXSEG_MAX) - 12),
                "{after} after {before}"
            );
        }
    });
}

#[test]
fn the_port_of_a_restored_connection_can_be_listened_on() {
    alone(|| {
        // The trap: repair mode ends with SO_REUSEADDR off.
        let mut pair = Pair::connect("127.0.0.1:0");
        let state = pair.rest();
        pair.wake(&state);
        let address = pair.listener.local_addr().unwrap();
        pair.listener = TcpListener::bind("127.0.0.1:0").unwrap(); // Closes the old one.
        pair.listener = TcpListener::bind(address).expect("the port of a live connection");
        pair.exchange(10);
    });
}

#[test]
fn the_socket_leaves_the_table_while_others_have_a_descriptor() {
    alone(|| {
        // The trap: `close` in repair mode leaves the socket in the table while another descriptor is open.
        let mut pair = Pair::connect("127.0.0.1:0");
        let (state, muted) = quiet(pair.server);
        let copy = muted.fd().duplicate().unwrap();
        muted.fd().close();
        let taken = build(&state, Filter::DropAll, OnExec::Close).expect_err("a second socket");
        assert_eq!(taken.kind(), ErrorKind::AddrNotAvailable);
        let unhashed = Muted::of(copy).unhash().unwrap();
        pair.wake(&state);
        pair.exchange(10);
        unhashed.close();
        pair.exchange(10);
    });
}

#[test]
fn a_delayed_acknowledgement_is_a_refusal() {
    alone(|| {
        let mut pair = Pair::connect("127.0.0.1:0");
        // After some exchanges a peer delays its ACKs by 40 ms.
        pair.exchange(100);
        let delay = |client: &TcpStream| {
            sockopt::set_tcp_quickack(client, false).unwrap();
        };
        delay(&pair.client);
        stream(pair.server).write_all(b"one").unwrap();
        let refused = checkpoint(pair.server, Filter::DropAll);
        assert!(
            matches!(refused, Err(Refusal::Unacknowledged)),
            "{refused:?}"
        );
        let mut three = [0; 3];
        pair.client.read_exact(&mut three).unwrap();
        let state = pair.rest();
        pair.wake(&state);
        pair.exchange(100);
    });
}

#[test]
fn a_connection_that_is_not_quiet_is_as_before() {
    alone(|| {
        let mut pair = Pair::connect("127.0.0.1:0");
        pair.client.write_all(b"two").unwrap();
        let refused = checkpoint(pair.server, Filter::DropAll);
        assert!(matches!(refused, Err(Refusal::Unread)), "{refused:?}");
        assert!(!is_muted(pair.server).unwrap());
        let mut bytes = [0; 3];
        stream(pair.server).read_exact(&mut bytes).unwrap();
        pair.exchange(1000);
        pair.client.shutdown(std::net::Shutdown::Write).unwrap();
        let refused = checkpoint(pair.server, Filter::DropAll);
        assert!(
            matches!(refused, Err(Refusal::NotEstablished)),
            "{refused:?}"
        );
        stream(pair.server).write_all(b"still").unwrap();
        let mut rest = String::new();
        pair.server.close();
        pair.server = Fd::NONE;
        pair.client.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "still");
    });
}

#[test]
fn a_listener_is_refused_and_keeps_listening() {
    alone(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let refused = checkpoint(Fd(listener.as_raw_fd()), Filter::DropAll);
        assert!(
            matches!(refused, Err(Refusal::NotEstablished)),
            "{refused:?}"
        );
        Pair::of(listener).exchange(10);
    });
}

#[test]
fn bytes_for_a_mute_socket_are_repeated_by_the_peer() {
    alone(|| {
        let mut pair = Pair::connect("127.0.0.1:0");
        let (_, muted) = quiet(pair.server);
        assert!(is_muted(pair.server).unwrap());
        pair.client.write_all(b"early").unwrap();
        assert_eq!(socket::received_unread(pair.server).unwrap(), 0);
        let live = muted.release().unwrap();
        let mut bytes = [0; 5];
        stream(live).read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"early");
        let state = pair.rest();
        let half = build(&state, Filter::DropAll, OnExec::Close).unwrap();
        pair.client.write_all(b"again").unwrap();
        pair.server = half.release().unwrap();
        stream(pair.server).read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"again");
    });
}

#[test]
fn a_half_made_socket_dies_silently() {
    alone(|| {
        // So a helper that dies between build and release loses nothing.
        let mut pair = Pair::connect("127.0.0.1:0");
        let state = pair.rest();
        let before = ["OutSegs", "OutRsts"].map(counted);
        let half = build(&state, Filter::DropAll, OnExec::Close).unwrap();
        half.fd().close();
        assert_eq!(["OutSegs", "OutRsts"].map(counted), before);
        pair.wake(&state);
        pair.exchange(10);
    });
}

#[test]
fn time_stamps_never_decrease() {
    alone(|| {
        sysctl("tcp_timestamps", "1");
        let mut pair = Pair::connect("127.0.0.1:0");
        pair.exchange(10);
        let mut last = options::timestamp(pair.server).unwrap();
        for _ in 0..20 {
            let state = pair.rest();
            for next in [state.timestamp().unwrap(), {
                pair.wake(&state);
                options::timestamp(pair.server).unwrap()
            }] {
                assert!(next.wrapping_sub(last) < 60_000, "{next} after {last}");
                last = next;
            }
        }
        sysctl("tcp_timestamps", "0");
        assert_eq!(Pair::connect("127.0.0.1:0").rest().timestamp(), None);
    });
}

#[test]
fn a_segment_lost_after_a_wake_is_repeated() {
    alone(|| {
        let mut pair = Pair::connect("127.0.0.1:0");
        let state = pair.rest();
        pair.wake(&state);
        let client = Fd(pair.client.as_raw_fd());
        Filter::DropAll.attach(client).unwrap();
        stream(pair.server).write_all(b"lost").unwrap();
        options::detach(client).unwrap();
        let mut bytes = [0; 4];
        pair.client.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"lost");
    });
}

#[test]
fn the_port_of_a_resting_connection_is_free_for_the_kernel() {
    alone(|| {
        // The trap: the kernel gives the port of a connection that we originated to the next one, whose SYN would
        // end the resting connection. Only a port outside of its range is safe.
        sysctl("ip_local_port_range", "40000 40001");
        let listener = TcpListener::bind("127.0.0.1:9100").unwrap();
        let address = listener.local_addr().unwrap();
        let originate = |port: u16| {
            let socket =
                rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            sockopt::set_socket_reuseaddr(&socket, true).unwrap();
            rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
            rustix::net::connect(&socket, &address)?;
            let server = listener.accept().unwrap().0;
            io::Result::Ok((Fd::from_owned(socket), server))
        };
        let port = |fd: Fd| {
            SocketAddr::try_from(rustix::net::getsockname(fd.borrow().unwrap()).unwrap())
                .unwrap()
                .port()
        };
        let chosen = TcpStream::connect(address).unwrap();
        let far = listener.accept().unwrap().0;
        let (state, muted) = quiet(Fd(chosen.as_raw_fd()));
        let _ = muted.unhash().unwrap();
        drop(chosen);
        let ports: Vec<u16> = (0..2)
            .map_while(|_| TcpStream::connect(address).ok())
            .map(|next| next.local_addr().unwrap().port())
            .collect();
        assert!(ports.contains(&state.local().port()), "{ports:?}");
        drop(far);
        listener.set_nonblocking(true).unwrap();
        while listener.accept().is_ok() {}
        listener.set_nonblocking(false).unwrap();
        // Ours: bound to a port outside, which the kernel never chooses.
        let (ours, mut far) = originate(30_000).unwrap();
        assert_eq!(port(ours), 30_000);
        let (state, muted) = quiet(ours);
        muted.unhash().unwrap().close();
        let live = build(&state, Filter::DropAll, OnExec::Close)
            .unwrap()
            .release()
            .unwrap();
        stream(live).write_all(b"hello").unwrap();
        let mut bytes = [0; 5];
        far.read_exact(&mut bytes).unwrap();
        live.close();
    });
}

#[test]
fn a_low_port_needs_one_more_capability() {
    alone(|| {
        // The trap: repair mode does not spare bind the check of ports below 1024.
        let mut pair = Pair::connect("127.0.0.1:443");
        let state = pair.rest();
        let had = capabilities(None).unwrap();
        let only = |left| CapabilitySets {
            effective: left,
            ..had
        };
        set_capabilities(None, only(CapabilitySet::NET_ADMIN)).unwrap();
        let refused = build(&state, Filter::DropAll, OnExec::Close).expect_err("a low port");
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        let both = CapabilitySet::NET_ADMIN | CapabilitySet::NET_BIND_SERVICE;
        set_capabilities(None, only(both)).unwrap();
        pair.wake(&state);
        set_capabilities(None, had).unwrap();
        pair.exchange(10);
    });
}

#[test]
fn a_worker_may_not_do_any_of_this() {
    alone(|| {
        let mut pair = Pair::connect("127.0.0.1:0");
        let had = capabilities(None).unwrap();
        let none = CapabilitySets {
            effective: CapabilitySet::empty(),
            ..had
        };
        set_capabilities(None, none).unwrap();
        let refused = checkpoint(pair.server, Filter::DropAll);
        assert!(matches!(refused, Err(Refusal::System(_))), "{refused:?}");
        set_capabilities(None, had).unwrap();
        pair.exchange(10);
    });
}
