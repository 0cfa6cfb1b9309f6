//! CPU time of a handshake on the server, compared with stock rustls in the same run.
//!
//! `cargo run --release -p dormouse-engine --example handshake_cost [ROUNDS]`
//!
//! Client and server run in one thread and in memory; the clock (CPU time of the thread) runs only while the
//! server works. For our server that covers everything from the first byte to the connection at rest: the
//! record state is written and every object dropped. Contexts are made beforehand.
//!
//! The first table shows the resident memory of handshakes in flight.

use std::sync::Arc;

use dormouse_engine::{
    ClientContext, ClientSettings, Group, Handshake, HandshakeLimits, Identity, Progress,
    Protocols, Roots, ServerContext, ServerSettings, TicketSettings, UnixTime,
};
use dormouse_record as record;
use dormouse_testkit::Authority;
use rustix::time::{ClockId, clock_gettime};
use rustls::pki_types::pem::PemObject;

const NAME: &str = "dormouse.test";
const SAMPLES: usize = 9;

fn main() {
    let rounds = std::env::args()
        .nth(1)
        .and_then(|rounds| rounds.parse().ok())
        .unwrap_or(400);
    memory();
    println!(
        "\nserver CPU per handshake, µs: median of {SAMPLES} × {rounds} (spread in percent)\n"
    );
    println!(
        "{:<9} {:<8} {:<16} {:>16} {:>16}",
        "version", "kind", "certificate", "ours", "stock rustls"
    );
    let authority = Authority::shared();
    let cases = [
        ("ECDSA P-256", authority.ecdsa(&[NAME]), Group::X25519),
        (
            "P-256, ML-KEM",
            authority.ecdsa(&[NAME]),
            Group::X25519MlKem768,
        ),
        ("RSA-2048", authority.rsa(&[NAME]), Group::X25519),
    ];
    for (label, leaf, group) in cases {
        for (version, protocols) in [("TLS 1.3", Protocols::TLS13), ("TLS 1.2", Protocols::TLS12)] {
            if protocols == Protocols::TLS12 && group == Group::X25519MlKem768 {
                continue;
            }
            for (kind, resumed) in [("full", false), ("resumed", true)] {
                let client = client(protocols, group, resumed);
                let ours = server(leaf.identity(), protocols, true);
                let stock = stock(&leaf, protocols);
                let [ours, stock] = side_by_side(
                    rounds,
                    resumed,
                    [&mut || ours_once(&client, &ours), &mut || {
                        stock_once(&client, &stock)
                    }],
                );
                println!("{version:<9} {kind:<8} {label:<16} {ours:>16} {stock:>16}");
            }
        }
    }
}

/// Prints the resident bytes per handshake in flight at each stage of a server's handshake, and per client that
/// waits for tickets.
fn memory() {
    const COUNT: usize = 2_000;
    let identity = Authority::shared().ecdsa(&[NAME]).identity();
    let server = server(identity, Protocols::TLS13, true);
    let client = client(Protocols::TLS13, Group::X25519, true);
    let limits = HandshakeLimits::default();
    let now = UnixTime::now();
    let begin = || {
        let mut client = Handshake::client(&client, NAME, limits).expect("a name");
        client.handle_input(now, &[]).expect("ClientHello");
        client
    };
    let hello = begin().output().to_vec();
    println!("resident bytes per handshake in flight, {COUNT} at once (TLS 1.3, P-256, X25519)\n");
    // Later stages reuse memory that earlier stages freed, so all are compared with the start; each stage needs
    // more than the one before.
    let before = resident_bytes();
    let stage = |label: &str, make: &mut dyn FnMut() -> Handshake| {
        let kept: Vec<Handshake> = (0..COUNT).map(|_| make()).collect();
        let grown = resident_bytes().saturating_sub(before);
        println!("{:<52} {:>8}", label, grown / COUNT);
        drop(kept);
    };
    stage("server, nothing received", &mut || {
        Handshake::server(&server, limits)
    });
    stage("server, half a ClientHello received", &mut || {
        let mut handshake = Handshake::server(&server, limits);
        let half = &hello[..hello.len() / 2];
        handshake
            .handle_input(now, half)
            .expect("the first half of a ClientHello");
        handshake
    });
    stage("client, ClientHello sent", &mut || {
        let mut handshake = begin();
        handshake.output_sent(handshake.output().len());
        handshake
    });
    stage("server, its flight sent, waiting for Finished", &mut || {
        let mut handshake = Handshake::server(&server, limits);
        handshake.handle_input(now, &hello).expect("ClientHello");
        handshake.output_sent(handshake.output().len());
        handshake
    });
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let kib: usize = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.trim().strip_suffix(" kB"))
        .and_then(|kib| kib.parse().ok())
        .expect("VmRSS");
    kib * 1_024
}

fn client(protocols: Protocols, group: Group, resumption: bool) -> ClientContext {
    let mut settings = ClientSettings::new(Roots::Insecure);
    settings.protocols = protocols;
    settings.groups = vec![group, Group::P256];
    if !resumption {
        settings.resumption = None;
    }
    ClientContext::new(settings).expect("client settings")
}

fn server(identity: Identity, protocols: Protocols, tickets: bool) -> ServerContext {
    let mut settings = ServerSettings::new(vec![identity]);
    settings.protocols = protocols;
    settings.tickets = tickets.then(TicketSettings::default);
    ServerContext::new(settings).expect("server settings")
}

fn stock(leaf: &dormouse_testkit::Leaf, protocols: Protocols) -> Arc<rustls::ServerConfig> {
    let versions: &[&rustls::SupportedProtocolVersion] = if protocols == Protocols::TLS13 {
        &[&rustls::version::TLS13]
    } else {
        &[&rustls::version::TLS12]
    };
    let chain = rustls::pki_types::CertificateDer::pem_slice_iter(leaf.certificate_pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .expect("a certificate");
    let key =
        rustls::pki_types::PrivateKeyDer::from_pem_slice(leaf.key_pem.as_bytes()).expect("a key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("certificate and key");
    config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new().expect("a ticketer");
    Arc::new(config)
}

/// One handshake: its CPU time on the server, and whether it resumed a session.
struct Once {
    spent_ns: u64,
    resumed: bool,
}

/// One handshake with our server.
fn ours_once(client: &ClientContext, server: &ServerContext) -> Once {
    let now = UnixTime::now();
    let limits = HandshakeLimits::default();
    let mut client = Handshake::client(client, NAME, limits).expect("a name");
    client.handle_input(now, &[]).expect("ClientHello");
    let mut spent = 0;
    let mut server = timed(&mut spent, || Handshake::server(server, limits));
    loop {
        let hello = client.output().to_vec();
        client.output_sent(hello.len());
        let (progress, answer) = timed(&mut spent, || {
            let progress = server.handle_input(now, &hello).expect("server");
            let answer = server.output().to_vec();
            server.output_sent(answer.len());
            (progress, answer)
        });
        let done = client.handle_input(now, &answer).expect("client");
        if progress == Progress::Established {
            assert_eq!(done, Progress::Established);
            break;
        }
    }
    let resumed = timed(&mut spent, || {
        let mut state = record::State::empty();
        server.rest(&mut state).expect("at rest").info.resumed
    });
    take_tickets(client, now);
    Once {
        spent_ns: spent,
        resumed,
    }
}

/// One handshake with rustls' buffered connection, the usual way to use rustls.
fn stock_once(client: &ClientContext, config: &Arc<rustls::ServerConfig>) -> Once {
    let now = UnixTime::now();
    let limits = HandshakeLimits::default();
    let mut client = Handshake::client(client, NAME, limits).expect("a name");
    client.handle_input(now, &[]).expect("ClientHello");
    let mut spent = 0;
    let mut server = timed(&mut spent, || {
        rustls::ServerConnection::new(Arc::clone(config)).expect("a connection")
    });
    loop {
        let hello = client.output().to_vec();
        client.output_sent(hello.len());
        let answer = timed(&mut spent, || {
            server.read_tls(&mut hello.as_slice()).expect("read");
            server.process_new_packets().expect("server");
            let mut answer = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut answer).expect("written");
            }
            answer
        });
        client.handle_input(now, &answer).expect("client");
        if !server.is_handshaking() {
            break;
        }
    }
    let resumed = server.handshake_kind() == Some(rustls::HandshakeKind::Resumed);
    take_tickets(client, now);
    timed(&mut spent, || drop(server));
    Once {
        spent_ns: spent,
        resumed,
    }
}

/// Gives the client its tickets, so that the next handshake resumes.
fn take_tickets(client: Handshake, now: UnixTime) {
    let mut state = record::State::empty();
    let mut rested = client.rest(&mut state).expect("at rest");
    let Some(watch) = &mut rested.tickets else {
        return;
    };
    let mut key = record::OpenKey::new(&state);
    let mut at = 0;
    while at < rested.leftover.len() {
        match record::open(&mut state, &mut key, &mut rested.leftover[at..]) {
            Ok(record::Opened::Ticket { consumed, fragment }) => {
                let fragment = rested.leftover[at..][fragment].to_vec();
                watch.handle_fragment(now, &fragment).expect("a ticket");
                at += consumed;
            }
            other => panic!("not a ticket: {other:?}"),
        }
    }
}

/// Returns medians of samples taken in turn, so that other load on the machine affects all equally. Every
/// counted handshake must be of the expected kind.
fn side_by_side<const N: usize>(
    rounds: usize,
    resumed: bool,
    mut kinds: [&mut dyn FnMut() -> Once; N],
) -> [String; N] {
    let mut samples = [const { Vec::new() }; N];
    for _ in 0..SAMPLES {
        for (once, samples) in kinds.iter_mut().zip(&mut samples) {
            // The first handshakes after a change of servers only fetch tickets.
            for _ in 0..3 {
                once();
            }
            let total: u64 = (0..rounds)
                .map(|_| {
                    let once = once();
                    assert_eq!(
                        once.resumed, resumed,
                        "full and resumed handshakes are mixed up"
                    );
                    once.spent_ns
                })
                .sum();
            samples.push(total as f64 / rounds as f64 / 1_000.0);
        }
    }
    samples.map(|mut samples: Vec<f64>| {
        samples.sort_by(f64::total_cmp);
        let median = samples[SAMPLES / 2];
        let spread = (samples[SAMPLES - 1] - samples[0]) / median * 100.0;
        format!("{median:.1} (±{spread:.0}%)")
    })
}

fn timed<R>(spent: &mut u64, work: impl FnOnce() -> R) -> R {
    let before = cpu_ns();
    let result = work();
    *spent += cpu_ns() - before;
    result
}

fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
