//! The programs in a real kernel. Each test has its own network.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::*;
use crate::own_network::{alone, counted, say, skip};
use crate::tcp_state::{Muted, Refusal, TcpState, build, checkpoint};

/// A network with steering and one connection, whose server's end rests.
struct Scene {
    steering: Steering,
    table: Table,
    ring: Ring,
    listener: TcpListener,
    client: TcpStream,
    state: TcpState,
    digest: Digest,
}

const RECORD: u32 = 77;

impl Scene {
    fn make(address: &str) -> Scene {
        let steering = Steering::create(1000).unwrap();
        let (table, ring) = (
            steering.access().table().unwrap(),
            steering.access().ring().unwrap(),
        );
        let listener = TcpListener::bind(address).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let server = listener.accept().unwrap().0;
        let fd = Fd::from_owned(server.into());
        let (state, muted) = checkpoint(fd, steering.access().mute()).unwrap();
        let digest = table.digest(state.local(), state.peer());
        assert!(table.insert(digest, state.receive_next(), RECORD));
        muted.unhash().unwrap().close();
        Scene {
            steering,
            table,
            ring,
            listener,
            client,
            state,
            digest,
        }
    }

    /// Waits for a packet.
    fn captured(&mut self) -> (Digest, SocketAddr, Vec<u8>, usize) {
        let start = Instant::now();
        loop {
            if let Some(packet) = self.ring.take() {
                return (
                    packet.digest,
                    packet.source,
                    packet.bytes.to_vec(),
                    packet.len,
                );
            }
            assert!(start.elapsed() < Duration::from_secs(20), "no packet");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn wake(&self) -> TcpStream {
        let muted = build(&self.state, self.steering.access().mute(), OnExec::Close).unwrap();
        let live = muted.release().unwrap();
        self.table.remove(self.digest);
        let stream = TcpStream::from(live.into_owned().unwrap());
        stream.set_nonblocking(false).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream
    }

    fn close(self) {
        self.steering.close();
    }
}

#[test]
fn packets_of_a_resting_connection_come_to_the_ring_and_are_never_answered() {
    alone(|| {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let mut scene = Scene::make(address);
            let resets = counted("OutRsts");
            scene.client.write_all(b"hello").unwrap();
            let (digest, source, bytes, len) = scene.captured();
            assert_eq!((digest, len), (scene.digest, bytes.len()));
            assert_eq!(source, scene.client.local_addr().unwrap());
            assert!(bytes.ends_with(b"hello"));
            assert_eq!(scene.table.find(digest), Some(RECORD));
            // The client repeats what nobody answered, and gets no reset.
            assert!(scene.captured().2.ends_with(b"hello"));
            let mut server = scene.wake();
            let mut hello = [0; 5];
            server.read_exact(&mut hello).unwrap();
            server.write_all(&hello).unwrap();
            scene.client.read_exact(&mut hello).unwrap();
            assert_eq!(&hello, b"hello");
            assert_eq!(counted("OutRsts"), resets);
            scene.close();
        }
    });
}

#[test]
fn a_connection_rests_after_its_listener_is_gone() {
    alone(|| {
        let mut scene = Scene::make("127.0.0.1:0");
        let address = scene.listener.local_addr().unwrap();
        scene.listener = TcpListener::bind("127.0.0.1:0").unwrap(); // Closes the old one.
        assert!(TcpStream::connect(address).is_err());
        scene.client.write_all(b"hello").unwrap();
        assert!(scene.captured().2.ends_with(b"hello"));
        scene.close();
    });
}

#[test]
fn other_connections_are_not_touched() {
    alone(|| {
        let scene = Scene::make("127.0.0.1:0");
        let address = scene.listener.local_addr().unwrap();
        let mut other = TcpStream::connect(address).unwrap();
        other.write_all(b"x").unwrap();
        let mut one = [0];
        scene
            .listener
            .accept()
            .unwrap()
            .0
            .read_exact(&mut one)
            .unwrap();
        assert_eq!(scene.steering.counts().steered, 0);
        // A connection that does not rest is refused as always.
        let closed = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        assert!(TcpStream::connect(closed).is_err());
        scene.close();
    });
}

#[test]
fn packets_outside_of_the_window_are_dropped_in_the_kernel() {
    alone(|| {
        let mut scene = Scene::make("127.0.0.1:0");
        // As if the record had another number: all that the client sends is far away.
        for distance in [70_000, 1 << 31, u32::MAX - 80_000] {
            scene.table.remove(scene.digest);
            let far = scene.state.receive_next().wrapping_add(distance);
            assert!(scene.table.insert(scene.digest, far, RECORD));
            let before = scene.steering.counts().outside;
            scene.client.write_all(b"far").unwrap();
            let start = Instant::now();
            while scene.steering.counts().outside == before {
                assert!(start.elapsed() < Duration::from_secs(20), "no packet");
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(scene.ring.take().is_none());
        }
        for near in [60_000, 0, u32::MAX - 60_000] {
            scene.table.remove(scene.digest);
            let near = scene.state.receive_next().wrapping_add(near);
            assert!(scene.table.insert(scene.digest, near, RECORD));
            scene.client.write_all(b"near").unwrap();
            let _ = scene.captured();
            while scene.ring.take().is_some() {}
        }
        scene.close();
    });
}

#[test]
fn a_long_packet_comes_whole() {
    alone(|| {
        let mut scene = Scene::make("127.0.0.1:0");
        scene.client.write_all(&[7; 30_000]).unwrap();
        let (_, _, bytes, len) = scene.captured();
        assert!(len >= 30_000 && bytes.len() == len, "{len} {}", bytes.len());
        assert!(bytes.ends_with(&[7; 30_000]));
        let mut server = scene.wake();
        let mut all = vec![0; 30_000];
        server.read_exact(&mut all).unwrap();
        assert!(all.iter().all(|byte| *byte == 7));
        scene.close();
    });
}

#[test]
fn packets_during_a_wake_come_to_the_ring_too() {
    alone(|| {
        let mut scene = Scene::make("127.0.0.1:0");
        let muted = build(&scene.state, scene.steering.access().mute(), OnExec::Close).unwrap();
        scene.table.remove(scene.digest);
        scene.client.write_all(b"early").unwrap();
        let (digest, _, bytes, _) = scene.captured();
        assert!(digest == scene.digest && bytes.ends_with(b"early"));
        assert!(matches!(
            checkpoint(muted.fd(), scene.steering.access().mute())
                .map(|(_, muted): (_, Muted)| muted.release().is_ok()),
            Ok(true) | Err(Refusal::System(_))
        ));
        scene.close();
    });
}

/// A packet from the peer without data: IP and TCP headers.
fn packet_of_peer(state: &TcpState, flags: u8) -> [u8; 40] {
    let mut bytes = [0u8; 40];
    bytes[..10].copy_from_slice(&[0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6]);
    bytes[12..20].copy_from_slice(&[127, 0, 0, 1, 127, 0, 0, 1]);
    bytes[20..22].copy_from_slice(&state.peer().port().to_be_bytes());
    bytes[22..24].copy_from_slice(&state.local().port().to_be_bytes());
    bytes[24..28].copy_from_slice(&state.receive_next().to_be_bytes());
    bytes[32..34].copy_from_slice(&[5 << 4, flags]);
    let words = bytes[12..].as_chunks::<2>().0;
    let sum: u32 = words
        .iter()
        .map(|word| u32::from(u16::from_be_bytes(*word)))
        .sum();
    let sum = sum + 6 + 20;
    let folded = (sum & 0xffff) + (sum >> 16);
    bytes[36..38].copy_from_slice(&(!folded as u16).to_be_bytes());
    bytes
}

#[test]
fn a_full_ring_drops_and_counts() {
    alone(|| {
        let mut scene = Scene::make("127.0.0.1:0");
        // Resets, which are not limited.
        let packet = packet_of_peer(&scene.state, 0x04);
        let raw = crate::socket::raw(false).unwrap();
        let to = scene.state.local();
        let fits = RING_LEN / (8 + 56 + 200);
        for _ in 0..fits + 100 {
            crate::socket::send_raw(raw, &packet, to.ip()).unwrap();
        }
        let full = scene.steering.counts().ring_full;
        assert!(full >= 100, "{full}");
        let mut count = 0;
        while scene.ring.take().is_some() {
            count += 1;
        }
        assert_eq!(count as u64 + full, fits as u64 + 100);
        // There is room again.
        scene.client.write_all(b"hello").unwrap();
        assert!(scene.captured().2.ends_with(b"hello"));
        raw.close();
        scene.close();
    });
}

#[test]
fn the_end_of_steering_is_the_end_of_resting_connections() {
    alone(|| {
        let mut scene = Scene::make("127.0.0.1:0");
        scene.steering.close();
        scene.client.write_all(b"hello").unwrap();
        let ended = scene.client.read(&mut [0; 5]).expect_err("a reset");
        assert_eq!(ended.kind(), io::ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_table_that_is_four_fifths_full_refuses_few() {
    alone(|| {
        let steering = Steering::create(10_000).unwrap();
        let table = steering.access().table().unwrap();
        let local: SocketAddr = "192.0.2.1:443".parse().unwrap();
        let digests: Vec<Digest> = (0..10_000u32)
            .map(|i| {
                table.digest(
                    local,
                    SocketAddr::from(([10, 0, (i >> 8) as u8, i as u8], 5000)),
                )
            })
            .collect();
        let mut refused = 0;
        for (record, digest) in (0..).zip(&digests) {
            if !table.insert(*digest, 1, record) {
                refused += 1;
            }
            assert!(!table.insert(*digest, 2, 0), "twice");
        }
        // 0.4 on average: some connections stay awake.
        assert!(refused < 20, "{refused}");
        assert_eq!(table.count(), 10_000 - refused);
        for (record, digest) in (0..).zip(&digests) {
            let found = table.find(*digest);
            assert!(found.is_none_or(|found| found == record));
            table.remove(*digest);
            assert_eq!(table.find(*digest), None);
        }
        assert_eq!(table.count(), 0);
        steering.close();
    });
}

#[test]
fn the_instructions_are_those_of_the_source() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/steering");
    if Command::new("clang-14").arg("--version").output().is_err() {
        return skip("no clang-14 to compile programs.c again");
    }
    let output = Command::new("python3").arg(folder.join("compile")).output();
    let output = output.expect("python3");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let committed = std::fs::read(folder.join("instructions.rs")).unwrap();
    assert!(
        output.stdout == committed,
        "differs from what clang-14 makes of programs.c: run `compile > instructions.rs` in {}",
        folder.display()
    );
}

/// `cargo test -p dormouse-reactor --lib -- --ignored --nocapture steering::tests::cost`
#[test]
#[ignore = "a measurement"]
fn cost_of_a_checkpoint_and_of_a_restore() {
    alone(|| {
        const COUNT: usize = 2000;
        let steering = Steering::create(1).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let ends = (0..COUNT).map(|_| {
            let client = TcpStream::connect(address).unwrap();
            (client, Fd::from_owned(listener.accept().unwrap().0.into()))
        });
        let (clients, servers): (Vec<TcpStream>, Vec<Fd>) = ends.unzip();
        for round in 0..3 {
            let start = cpu_ns();
            let states: Vec<TcpState> = servers
                .iter()
                .map(|fd| {
                    let (state, muted) = checkpoint(*fd, steering.access().mute()).unwrap();
                    let _ = muted.unhash().unwrap();
                    state
                })
                .collect();
            let checkpoints = (cpu_ns() - start) / COUNT as i64;
            let start = cpu_ns();
            let live = states.iter().map(|state| {
                let muted = build(state, steering.access().mute(), OnExec::Close).unwrap();
                muted.release().unwrap()
            });
            let live: Vec<Fd> = live.collect();
            let restores = (cpu_ns() - start) / COUNT as i64;
            let text =
                format!("round {round}: checkpoint {checkpoints} ns, restore {restores} ns of CPU");
            say(&text);
            // Back to where the next round finds them.
            for (new, old) in live.iter().zip(&servers) {
                new.move_to(*old).unwrap();
            }
        }
        drop(clients);
        servers.iter().for_each(|fd| fd.close());
        steering.close();
    });
}

/// CPU time of this thread.
fn cpu_ns() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
