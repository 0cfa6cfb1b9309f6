//! Many certificates: a reload reads only what has changed, while established connections are served.

use std::fs;
use std::path::PathBuf;
use std::thread;

use dormouse_interop::certificates::authority;
use dormouse_interop::peer::{self, Peer};
use dormouse_interop::process::signal;
use dormouse_interop::wait::{self, PATIENCE};
use rustix::process::Signal;
use rustls::client::Resumption;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, HandshakeKind};

use super::site::{Site, can_run};

const PER_DIRECTORY: usize = 600;
const DIRECTORIES: usize = 2;
const ROUTE: &str = "workers = 2\nhang_timeout = 'off'\nreload_certificates = '1h'\n[[route]]\nlisten = 'LISTEN'\nto = 'echo:'\n\
     certificates = ['HERE/0', 'HERE/1']\n";
/// Connections for each name, so that both workers have some.
const CONNECTIONS: usize = 12;

fn names(directory: usize) -> Vec<String> {
    let numbers = 0..PER_DIRECTORY;
    numbers
        .map(|n| format!("site{n}.dir{directory}.example"))
        .collect()
}

/// Two workers with 1,200 certificates, and connections to them. Tests stop the workers for as long as a reload takes.
struct Many {
    site: Site,
    peers: Vec<Peer>,
}

impl Many {
    fn new() -> Many {
        let site = Site::new(ROUTE, |folder| {
            for directory in 0..DIRECTORIES {
                let path = folder.join(directory.to_string());
                fs::create_dir(&path).expect("a directory");
                authority().give_out_many(&names(directory), &path);
            }
        });
        let mut many = Many {
            site,
            peers: Vec::new(),
        };
        many.peers = (0..CONNECTIONS)
            .map(|n| many.connect(&format!("site{n}.dir0.example")))
            .collect();
        many
    }

    fn connect(&self, name: &str) -> Peer {
        let tcp = peer::connect_tcp(self.site.address).expect("a connection");
        let mut config = peer::config();
        // A resumed session shows the certificate of its first handshake.
        config.resumption = Resumption::disabled();
        Peer::over(tcp, peer::client_for(config, name)).expect("a handshake")
    }

    /// Makes a handshake of this kind with each of these configurations.
    #[track_caller]
    fn connect_with(&self, configs: &[ClientConfig], kind: HandshakeKind) {
        for config in configs {
            let tcp = peer::connect_tcp(self.site.address).expect("a connection");
            let client = peer::client_for(config.clone(), "site0.dir0.example");
            let mut peer = Peer::over(tcp, client).expect("a handshake");
            // Tickets follow the handshake.
            peer.echo().expect("an echo");
            assert_eq!(peer.tls.handshake_kind(), Some(kind));
        }
    }

    /// Issues another certificate for this site.
    fn renew(&self, n: usize, directory: usize) {
        let name = format!("site{n}.dir{directory}.example");
        let path = self.site.folder.path().join(directory.to_string());
        authority().give_out_many(&[name], &path);
    }

    /// Both workers serve the certificates that are in the files, and all connections are established.
    #[track_caller]
    fn check(&mut self) {
        for (n, directory) in [(0, 0), (7, 0), (500, 0), (3, 1), (PER_DIRECTORY - 1, 1)] {
            let name = format!("site{n}.dir{directory}.example");
            let file = format!("{directory}/{name}.pem");
            let file: PathBuf = self.site.folder.path().join(file);
            let expected = CertificateDer::from_pem_file(file).expect("a certificate");
            for _ in 0..CONNECTIONS {
                let served = self.connect(&name);
                let shown = served.tls.peer_certificates().expect("certificates");
                assert!(shown[0] == expected, "{name}: another certificate");
            }
        }
        for peer in &mut self.peers {
            peer.echo().expect("an echo");
        }
    }

    fn reload(&self) {
        self.site.admin.order("/reload").expect("a reload");
    }

    /// Issues other certificates for all sites of a directory.
    fn renew_all(&self, directory: usize) {
        let path = self.site.folder.path().join(directory.to_string());
        authority().give_out_many(&names(directory), &path);
    }

    fn edition(&self) -> u64 {
        let status = self.site.admin.status();
        status["configuration"]["edition"]
            .as_u64()
            .expect("a number")
    }

    /// Reloads, and returns the result later: when the workers have loaded all certificates. Now the order is on its way to
    /// them.
    fn begin_reload<'a>(&self, scope: &'a thread::Scope<'a, '_>) -> Reload<'a> {
        let before = self.edition();
        let admin = self.site.admin.clone();
        let reload = scope.spawn(move || admin.order("/reload"));
        wait::until_true("the next edition", || self.edition() > before);
        reload
    }

    /// Stops the workers, so that they get all orders of main at once, the reload first.
    fn hold_workers(&self) {
        for worker in self.site.process.workers() {
            signal(worker, Signal::STOP);
        }
    }

    fn release_workers(&self) {
        for worker in self.site.process.workers() {
            signal(worker, Signal::CONT);
        }
    }
}

type Reload<'a> = thread::ScopedJoinHandle<'a, Result<String, String>>;

#[test]
fn a_reload_serves_the_changed_certificate_and_all_others() {
    requires!(can_run());
    let mut many = Many::new();
    many.check();
    many.renew(7, 0);
    many.reload();
    many.check();
    // Two at once: the later one has read what is in the files.
    many.renew(3, 1);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| many.reload());
        }
    });
    many.check();
    // A new binary and its workers have parsed nothing.
    many.renew(500, 0);
    many.site.admin.order("/upgrade").expect("an upgrade");
    many.reload();
    many.check();
    many.renew(0, 0);
    many.reload();
    many.check();
}

/// Hundreds of certificates are new, so the reload takes many turns of the loop.
#[test]
fn a_worker_that_dies_during_a_reload_has_a_successor_with_the_new_certificates() {
    requires!(can_run());
    let mut many = Many::new();
    for kills in [1, 2] {
        many.renew_all(0);
        thread::scope(|scope| {
            let reload = scope.spawn(|| many.reload());
            for _ in 0..kills {
                // Main answers when it has sent the handover to the workers.
                many.site.admin.status();
                for worker in many.site.process.workers() {
                    signal(worker, Signal::KILL);
                }
                wait::until("both workers", PATIENCE, || {
                    (many.site.process.workers().len() == 2).then_some(())
                });
            }
            reload.join().expect("the reload ends");
        });
        many.check();
    }
}

#[test]
fn a_drain_does_not_wait_for_a_reload() {
    requires!(can_run());
    let mut many = Many::new();
    (0..DIRECTORIES).for_each(|directory| many.renew_all(directory));
    many.hold_workers();
    thread::scope(|scope| {
        let reload = many.begin_reload(scope);
        many.site.admin.order("/drain?over=1ms").expect("a drain");
        many.release_workers();
        for peer in &mut many.peers {
            peer.receive_all().expect("close_notify");
        }
        assert!(!reload.is_finished(), "the certificates are still loaded");
        reload.join().expect("no panic").expect("a reload");
    });
    many.site.admin.order("/drain/stop").expect("its end");
    many.peers.clear();
    many.check();
}

#[test]
fn a_stop_gives_a_reload_up() {
    requires!(can_run());
    let mut many = Many::new();
    (0..DIRECTORIES).for_each(|directory| many.renew_all(directory));
    many.hold_workers();
    let (first, second) = thread::scope(|scope| {
        let first = many.begin_reload(scope);
        let second = many.begin_reload(scope);
        signal(many.site.process.pid(), Signal::TERM);
        many.site.process.logged("stopping;", 1);
        many.release_workers();
        let result = |reload: Reload<'_>| {
            reload
                .join()
                .expect("no panic")
                .expect_err("it is given up")
        };
        (result(first), result(second))
    });
    for why in [first, second] {
        assert!(why.contains("the worker is stopping"), "{why}");
    }
    let status = many.site.process.wait_for_end(PATIENCE);
    assert!(status.success(), "{status}");
    for peer in &mut many.peers {
        peer.receive_all().expect("close_notify");
    }
}

/// Ticket keys that come after two reloads are those of the second, too, and its certificates serve.
#[test]
fn the_last_reload_and_the_last_ticket_keys_count() {
    requires!(can_run());
    let mut many = Many::new();
    let admin = many.site.admin.clone();
    let rotate = || admin.order("/ticket-keys/rotate").expect("other keys");
    for workers_die in [false, true] {
        many.renew_all(0);
        many.hold_workers();
        thread::scope(|scope| {
            let first = many.begin_reload(scope);
            many.renew_all(1);
            many.renew(7, 0);
            let second = many.begin_reload(scope);
            rotate();
            let held = many.site.process.workers();
            many.release_workers();
            if workers_die {
                held.into_iter()
                    .for_each(|worker| signal(worker, Signal::KILL));
            }
            for reload in [first, second] {
                reload.join().expect("no panic").expect("a reload");
            }
        });
        many.check();
        let sessions: Vec<ClientConfig> = (0..CONNECTIONS)
            .flat_map(|_| peer::configs_by_version())
            .collect();
        many.connect_with(&sessions, HandshakeKind::Full);
        // Tickets with the keys from before the reloads would be refused now.
        rotate();
        many.connect_with(&sessions, HandshakeKind::Resumed);
    }
}
