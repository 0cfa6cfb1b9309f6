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

use super::site::{Site, can_run};

const PER_DIRECTORY: usize = 600;
const DIRECTORIES: usize = 2;
const ROUTE: &str = "workers = 2\nreload_certificates = '1h'\n[[route]]\nlisten = 'LISTEN'\nto = 'echo:'\n\
     certificates = ['HERE/0', 'HERE/1']\n";
/// Connections for each name, so that both workers have some.
const CONNECTIONS: usize = 12;

fn names(directory: usize) -> Vec<String> {
    let numbers = 0..PER_DIRECTORY;
    numbers
        .map(|n| format!("site{n}.dir{directory}.example"))
        .collect()
}

/// Two workers with 1,200 certificates, and connections to them.
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
}

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
        let path = many.site.folder.path().join("0");
        authority().give_out_many(&names(0), &path);
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
