//! Side by side: the other program with its file, and Dormouse with what `import` makes of that file, each in a network
//! namespace of its own with the same backends. Clients of all kinds try both, and every difference in what they see is
//! in the result as a remark or a step.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use dormouse_interop::certificates::{Files, Kind, authority};
use dormouse_interop::namespace::Room;
use dormouse_interop::process::Process;
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};

use super::haproxy_3::{self, HAPROXY_3};
use super::import::{dormouse, ours, ready};
use super::probe::{self, CERTIFIED, Probe, Seen, Shown, Tls, Wallet};
use super::scenarios::{self, Scenario};
use super::telling_backend;

/// How long a client waits for an answer: the first time, and where the programs seem to differ.
const SHORT: Duration = Duration::from_millis(1500);
const LONG: Duration = Duration::from_secs(15);

/// Files and backends that all scenarios share.
struct Scene {
    folder: tempfile::TempDir,
    wallet: Wallet,
    backend: Files,
}

impl Scene {
    fn new() -> Scene {
        let folder = tempfile::tempdir().expect("a folder");
        let here = folder.path();
        for name in CERTIFIED {
            let files = authority().give_out_for(name, Kind::EcdsaP256, &[name], here);
            // A chain of two, with the key in the same file.
            let read = |path: &Path| std::fs::read_to_string(path).expect("a file of this test");
            let chain = read(&files.cert) + &read(&authority().trust());
            std::fs::write(here.join(format!("{name}.chain.pem")), &chain).expect("written");
            let both = chain + &read(&files.key);
            std::fs::write(here.join(format!("{name}.whole.pem")), both).expect("written");
        }
        let good = authority().give_out_for("client", Kind::EcdsaP256, &["client.example"], here);
        let file = |end: &str| here.join(format!("backend.example.{end}"));
        Scene {
            wallet: Wallet {
                good,
                stranger: stranger(here),
            },
            backend: Files {
                cert: file("pem"),
                key: file("key"),
                both: file("both.pem"),
            },
            folder,
        }
    }

    /// Returns a text with the paths of this scene.
    fn placed(&self, text: &str) -> String {
        let here = self.folder.path().display().to_string();
        let authority = authority().trust().display().to_string();
        text.replace("HERE", &here).replace("AUTHORITY", &authority)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// A client certificate that nobody here has signed.
fn stranger(folder: &Path) -> Files {
    let key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new(vec!["stranger.example".to_owned()]);
    let cert = params
        .expect("a valid name")
        .self_signed(&key)
        .expect("a certificate");
    let file = |end: &str| folder.join(format!("stranger.{end}"));
    std::fs::write(file("pem"), cert.pem()).expect("written");
    std::fs::write(file("key"), key.serialize_pem()).expect("written");
    Files {
        cert: file("pem"),
        key: file("key"),
        both: file("both"),
    }
}

/// Returns the backends that listen in both rooms: plain ones and one with TLS.
fn start_backends(room: &Room, scene: &Scene) {
    for (name, port) in [("A", 8001), ("B", 8002), ("C", 8003)] {
        telling_backend::start(room, name, local(port), None);
    }
    telling_backend::start(room, "S", local(8443), Some(&scene.backend));
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

/// Returns all kinds of clients, or enough of them that each two properties meet.
fn probes(scenario: &Scenario, is_whole: bool) -> Vec<Probe> {
    let names = [
        None,
        Some("a.example"),
        Some("b.example"),
        Some("x.b.example"),
        Some("other.example"),
    ];
    let protocols: [&[&str]; 4] = [&[], &["h2", "http/1.1"], &["http/1.1"], &["mqtt"]];
    let shown = [Shown::None, Shown::Good, Shown::Stranger];
    let mut all = Vec::new();
    for port in scenario.ports {
        let at = local(*port);
        let mut n = 0;
        if scenario.is_plain {
            all.push(Probe {
                at,
                tls: None,
                with_header: false,
            });
            continue;
        }
        for with_header in [false, true] {
            all.push(Probe {
                at,
                tls: None,
                with_header,
            });
            for name in names {
                for protocols in protocols {
                    for is_tls12 in [false, true] {
                        for certificate in shown {
                            let tls = Tls {
                                name,
                                protocols,
                                is_tls12,
                                certificate,
                            };
                            n += 1;
                            // A seventh shares no factor with the numbers above.
                            if is_whole || n % 7 == 0 {
                                all.push(Probe {
                                    at,
                                    tls: Some(tls),
                                    with_header,
                                });
                            }
                        }
                    }
                }
            }
        }
    }
    all
}

/// Runs all probes inside of a room.
fn see(room: &Room, probes: &[Probe], wallet: &Wallet, patience: Duration) -> Vec<Seen> {
    let (probes, wallet) = (probes.to_vec(), wallet.clone());
    let one = move |probe: &Probe| probe::run(probe, &wallet, patience);
    room.run(move || probes.iter().map(one).collect())
}

/// Compares both programs, and asserts that the result of the import explains each difference.
fn compare(scenario: &Scenario, is_whole: bool) {
    let scene = Scene::new();
    let (Some(theirs), Some(ours)) = (Room::make(), Room::make()) else {
        return;
    };
    let probes = probes(scenario, is_whole);
    let file = scene.at("old.conf");
    scenarios::files(scene.folder.path());
    std::fs::write(&file, scene.placed(scenario.text)).expect("written");
    let page = imported(scenario, &file);
    let _theirs = start(
        &theirs,
        scenario,
        &former(scenario, &file.display().to_string()),
        &scene,
    );
    let _ours = start(
        &ours,
        scenario,
        &dormouse_with(&page, &scene, &ours),
        &scene,
    );
    let both = |probes: &[Probe], patience| {
        [&theirs, &ours].map(|room| see(room, probes, &scene.wallet, patience))
    };
    let [of_theirs, of_ours] = both(&probes, SHORT);
    let all = probes.iter().zip(of_theirs.iter().zip(&of_ours));
    let differ = |(probe, (theirs, ours)): &(&Probe, (&Seen, &Seen))| {
        explained(scenario, probe, theirs, ours, &page).is_err()
    };
    // On a busy machine, an answer may have come too late.
    let again: Vec<Probe> = all.filter(differ).map(|(probe, _)| probe.clone()).collect();
    let [late_theirs, late_ours] = both(&again, LONG);
    let mut said = Vec::new();
    for (probe, (theirs, ours)) in again.iter().zip(late_theirs.iter().zip(&late_ours)) {
        said.extend(explained(scenario, probe, theirs, ours, &page).err());
    }
    let theirs = of_theirs;
    let served = theirs.iter().filter(|seen| !seen.is_refused()).count();
    assert!(
        served * 10 >= theirs.len(),
        "{}: only {served} of {} were served",
        scenario.name,
        theirs.len()
    );
    assert!(
        said.is_empty(),
        "{}: {} of {} differ:\n{}\n{page}",
        scenario.name,
        said.len(),
        probes.len(),
        said.join("\n")
    );
}

/// Starts a program and its backends in a room.
fn start(room: &Room, scenario: &Scenario, command: &[String], scene: &Scene) -> Process {
    start_backends(room, scene);
    let name = Path::new(&command[0]).file_name();
    let name = name.map_or(String::new(), |name| name.to_string_lossy().into_owned());
    let process = Process::start(&name, &room.command(command), scene.folder.path());
    for port in scenario.ports {
        let at = local(*port);
        wait::until(&name, PATIENCE, || {
            room.run(move || std::net::TcpStream::connect(at).ok())
        });
    }
    process
}

/// Returns the result of the import.
fn imported(scenario: &Scenario, file: &Path) -> String {
    let program = match scenario.program {
        HAPROXY_3 => "haproxy",
        program => program,
    };
    let ran = dormouse(&["import", program, &file.display().to_string()]);
    let page = String::from_utf8_lossy(&ran.stdout).into_owned();
    let status = if page.contains("\ntodo = ") { 1 } else { 0 };
    assert_eq!(
        ran.status.code(),
        Some(status),
        "{page}{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    page
}

/// Returns the command that serves the result, without the steps to do.
fn dormouse_with(page: &str, scene: &Scene, room: &Room) -> Vec<String> {
    let file = ours(page, scene.folder.path());
    // On this machine another program may have one of its addresses.
    let checked = {
        let file = file.clone();
        room.run(move || dormouse(&["check", &file]))
    };
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(checked.status.success(), "{said}\n{page}");
    let binary = tools::dormouse().display().to_string();
    vec![binary, "serve".to_owned(), "-c".to_owned(), file]
}

fn former(scenario: &Scenario, file: &str) -> Vec<String> {
    let words: &[&str] = match scenario.program {
        "haproxy" | HAPROXY_3 => &["-db", "-f", file],
        "nginx" => &["-e", "stderr", "-c", file],
        "hitch" => &["--config", file],
        _ => &[file],
    };
    let words = words.iter().map(ToString::to_string);
    let program = match scenario.program {
        HAPROXY_3 => tools::haproxy_3(),
        program => vec![tools::path(program)],
    };
    program.into_iter().chain(words).collect()
}

/// Returns what differs and is explained by nothing in the result.
fn explained(
    scenario: &Scenario,
    probe: &Probe,
    theirs: &Seen,
    ours: &Seen,
    page: &str,
) -> Result<(), String> {
    let is_same = theirs == ours
        // Programs refuse with different alerts; a client is refused in any case.
        || theirs.is_refused() && ours.is_refused();
    if is_same {
        return Ok(());
    }
    let reasons = scenario.differences.iter();
    let mut reasons = reasons.filter(|reason| (reason.applies)(probe, theirs, ours));
    if reasons.any(|reason| page.contains(reason.words)) {
        return Ok(());
    }
    Err(format!(
        "{probe:?}\n  {}: {theirs}\n  dormouse: {ours}",
        scenario.program
    ))
}

fn compare_all(program: &str, is_whole: bool) {
    let is_ready = match program {
        HAPROXY_3 => ready("haproxy") && tools::has_haproxy_3(),
        program => ready(program),
    };
    if !is_ready {
        return;
    }
    let all = scenarios::ALL.iter().chain(haproxy_3::ALL);
    for scenario in all.filter(|one| one.program == program) {
        compare(scenario, is_whole);
    }
}

#[test]
fn haproxy() {
    compare_all("haproxy", false);
}

#[test]
fn haproxy_of_version_3() {
    compare_all(HAPROXY_3, false);
}

#[test]
fn nginx() {
    compare_all("nginx", false);
}

#[test]
fn hitch() {
    compare_all("hitch", false);
}

#[test]
fn stunnel() {
    compare_all("stunnel", false);
}

#[test]
#[ignore = "takes a minute or more: seven times as many clients"]
fn every_kind_of_client() {
    for program in ["haproxy", HAPROXY_3, "nginx", "hitch", "stunnel"] {
        compare_all(program, true);
    }
}
