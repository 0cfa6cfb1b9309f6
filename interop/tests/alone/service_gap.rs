//! Gaps in service when a worker is killed and when the binary is replaced. These are figures, not
//! assertions on time: `lab/speed/kill` runs them with the release build and stores the output.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use dormouse_interop::peer;
use dormouse_interop::probe::Probe;
use dormouse_interop::process::signal;
use dormouse_interop::scene::{Scene, applies};
use dormouse_interop::slots::{self, Slots};
use dormouse_interop::terminator::{Can, Target};
use dormouse_interop::tools;
use dormouse_interop::wait::{self, PATIENCE};
use rustix::process::Signal;

/// Connections that probe, each ten times a second, one after the other.
const PROBES: u32 = 100;
const PERIOD: Duration = Duration::from_millis(100);
const ROUNDS: usize = 5;

/// One echo: the time of the request, and the time of the answer.
type Echo = (Instant, Instant);

/// Probes continuously until it is dropped.
struct Probing {
    stop: Arc<AtomicBool>,
    echoes: Receiver<Echo>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Probing {
    fn start(address: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, echoes) = channel();
        let began = Instant::now();
        let configs = peer::configs_by_version();
        let threads = (0..PROBES)
            .map(|number| {
                let (stop, sender) = (Arc::clone(&stop), sender.clone());
                let config = configs[number as usize % 2].clone();
                thread::spawn(move || {
                    let mut probe = Probe::open(address, config, "").expect("a connection");
                    let mut due = began + Duration::from_secs(1) + PERIOD * number / PROBES;
                    while !stop.load(Ordering::Relaxed) {
                        thread::sleep(due.saturating_duration_since(Instant::now()));
                        // Measured from the due time, so that a probe that waits for its thread counts as late.
                        probe.echo(64).expect("an echo");
                        let _ = sender.send((due, Instant::now()));
                        due += PERIOD;
                        due = due.max(Instant::now().checked_sub(PERIOD).unwrap_or(due));
                    }
                })
            })
            .collect();
        Self {
            stop,
            echoes,
            threads,
        }
    }

    /// Waits for a second, and returns the echoes since the last call.
    fn look(&self) -> Vec<Echo> {
        thread::sleep(Duration::from_secs(1));
        self.echoes.try_iter().collect()
    }

    fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("no probe lost its connection");
        }
    }
}

/// The longest wait of a single probe.
fn longest(echoes: &[Echo]) -> Duration {
    let waits = echoes.iter().map(|(due, done)| done.duration_since(*due));
    waits.max().unwrap_or_default()
}

/// The longest time without an answer to any probe.
fn silence(echoes: &[Echo]) -> Duration {
    let mut done: Vec<Instant> = echoes.iter().map(|(_, done)| *done).collect();
    done.sort_unstable();
    let gaps = done.windows(2).map(|pair| pair[1].duration_since(pair[0]));
    gaps.max().unwrap_or_default()
}

/// Time from `when` to the first answer to a later request.
fn first_after(echoes: &[Echo], when: Instant) -> Duration {
    let after = echoes.iter().filter(|(due, _)| *due >= when);
    let first = after.map(|(_, done)| done.duration_since(when)).min();
    first.unwrap_or(Duration::MAX)
}

fn crowd(address: SocketAddr, count: usize) -> Vec<Probe> {
    let configs = peer::configs_by_version();
    (0..count)
        .map(|number| {
            let config = configs[number % 2].clone();
            let mut probe = Probe::open(address, config, "").expect("a connection");
            probe.echo(64).expect("an echo");
            probe
        })
        .collect()
}

fn print(what: &str, mut values: Vec<Duration>) {
    values.sort_unstable();
    let ms = |value: &Duration| format!("{:.1}", value.as_secs_f64() * 1e3);
    let all: Vec<String> = values.iter().map(ms).collect();
    println!("FIGURE {what}: {} ms", all.join(" "));
}

/// The lab's plain echo server, which easily holds ten thousand connections.
struct LabEcho(Child);

impl LabEcho {
    fn start(port: u16) -> Self {
        let lab = tools::home().join("../lab/tools/echo");
        let child = Command::new(lab)
            .arg(port.to_string())
            .stdout(Stdio::null())
            .spawn()
            .expect("lab/tools/echo starts");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        wait::until_listening("lab/tools/echo", address);
        Self(child)
    }
}

impl Drop for LabEcho {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn measure(connections: usize, target: Target, what: &str) {
    let scene = Scene::with(|settings| {
        settings.workers = 1;
        settings.target = target;
    });
    let mut crowd = crowd(scene.address, connections);
    let probing = Probing::start(scene.address);
    probing.look();
    let quiet = probing.look();
    print(
        &format!("{what}: longest wait of a probe, undisturbed"),
        vec![longest(&quiet)],
    );

    let (mut first, mut waits, mut gaps) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let worker = wait::until("the worker", PATIENCE, || {
            let leaves = scene.terminator.leaves();
            leaves.into_iter().find(|pid| Slots::of(*pid).is_some())
        });
        let slots = Slots::of(worker).expect("its slots");
        loop {
            slots::stop(worker);
            if !slots.is_busy() {
                break;
            }
            signal(worker, Signal::CONT);
            // Stopped again at once it would never get on with its connection, and be killed as hanging.
            thread::sleep(Duration::from_millis(1));
        }
        let when = Instant::now();
        signal(worker, Signal::KILL);
        let echoes = probing.look();
        first.push(first_after(&echoes, when));
        waits.push(longest(&echoes));
        gaps.push(silence(&echoes));
        thread::sleep(Duration::from_millis(200));
    }
    print(&format!("{what}: kill -9, first echo after it"), first);
    print(&format!("{what}: kill -9, longest wait of a probe"), waits);
    print(
        &format!("{what}: kill -9, longest silence of all probes"),
        gaps,
    );

    let (mut waits, mut gaps) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        signal(scene.terminator.pid(), Signal::USR2);
        wait::until_true("the new binary to continue", || {
            let done = scene.terminator.lines_with("new binary running").len();
            done > round
        });
        let echoes = probing.look();
        waits.push(longest(&echoes));
        gaps.push(silence(&echoes));
    }
    print(&format!("{what}: upgrade, longest wait of a probe"), waits);
    print(
        &format!("{what}: upgrade, longest silence of all probes"),
        gaps,
    );
    for line in scene.terminator.lines_with("paused_ms") {
        println!("{}", line.split("took_ms").nth(1).unwrap_or(&line));
    }

    probing.finish();
    for probe in &mut crowd {
        probe.echo(300).expect("an echo on every connection");
    }
    println!(
        "FIGURE {what}: {} of {connections} connections echo in the end",
        crowd.len()
    );
}

#[test]
#[ignore = "figures: lab/speed/kill"]
fn fifteen_thousand_with_echo() {
    let _alone = crate::alone();
    if applies(Can::BeDormouse) {
        measure(15_000, Target::Echo, "15,000 connections, echo:");
    }
}

#[test]
#[ignore = "figures: lab/speed/kill"]
fn nine_thousand_five_hundred_proxied() {
    let _alone = crate::alone();
    if applies(Can::BeDormouse) {
        let port = 18_231;
        let _echo = LabEcho::start(port);
        let target = Target::Tcp(SocketAddr::from(([127, 0, 0, 1], port)));
        measure(9_500, target, "9,500 connections, proxied");
    }
}
