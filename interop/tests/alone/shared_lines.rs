//! An event of one worker writes no cache line that an event of another worker writes: the memory that both have
//! mapped is compared, 64 bytes at a time, before and after their echoes. A change that is undone before the second
//! look is not seen. What a worker does for other reasons meanwhile differs from round to round, and does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use dormouse_interop::peer::Peer;
use dormouse_interop::process::signal;
use dormouse_interop::scene::Scene;
use dormouse_interop::slots;
use dormouse_interop::terminator::Can;
use dormouse_interop::tools;
use rustix::fs::{SeekFrom, seek};
use rustix::process::Signal;

const LINE: usize = 64;
const PAGE: u64 = 4096;
/// Echoes of each measurement.
const ECHOES: usize = 50;
/// Measurements of each worker.
const ROUNDS: usize = 3;

/// A cache line: the inode of a memory file, and the line's number in it.
type Line = (u64, u64);

/// The files that all these processes have mapped writably, by inode.
fn shared_files(pids: &[u32]) -> BTreeMap<u64, File> {
    let mut mapped = pids.iter().map(|&pid| mapped_files(pid));
    let mut shared = mapped.next().unwrap_or_default();
    for others in mapped {
        shared.retain(|inode, _| others.contains_key(inode));
    }
    shared
}

fn mapped_files(pid: u32) -> BTreeMap<u64, File> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("the mappings of a worker");
    // address, permissions, offset, device, inode, name
    let shared = maps.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_shared = words.get(1) == Some(&"rw-s");
        let inode = words.get(4)?.parse().ok().filter(|_| is_shared)?;
        let range = words[0]
            .split('-')
            .map(|address| address.trim_start_matches('0'));
        let range: Vec<&str> = range.collect();
        let file = File::open(format!("/proc/{pid}/map_files/{}", range.join("-"))).ok()?;
        Some((inode, file))
    });
    shared.collect()
}

/// Every page that exists, by inode and offset.
fn contents(files: &BTreeMap<u64, File>) -> BTreeMap<(u64, u64), Vec<u8>> {
    let mut pages = BTreeMap::new();
    for (&inode, file) in files {
        let mut at = 0;
        while let Ok(data) = seek(file, SeekFrom::Data(at)) {
            at = seek(file, SeekFrom::Hole(data)).expect("the end of the data");
            for offset in (data / PAGE * PAGE..at).step_by(PAGE as usize) {
                let mut page = vec![0; PAGE as usize];
                let read = file
                    .read_at(&mut page, offset)
                    .expect("a page of a memory file");
                page.truncate(read);
                pages.insert((inode, offset), page);
            }
        }
    }
    pages
}

/// The lines that `work` and what it causes change.
fn changed_by(files: &BTreeMap<u64, File>, work: impl FnOnce()) -> BTreeSet<Line> {
    let before = contents(files);
    work();
    std::thread::sleep(Duration::from_millis(50));
    let mut changed = BTreeSet::new();
    for ((inode, offset), page) in contents(files) {
        let old = before.get(&(inode, offset));
        for (number, line) in page.chunks(LINE).enumerate() {
            let was = old.and_then(|page| page.chunks(LINE).nth(number));
            if was != Some(line) && (was.is_some() || line.iter().any(|&byte| byte != 0)) {
                changed.insert((inode, offset / LINE as u64 + number as u64));
            }
        }
    }
    changed
}

/// The lines that echoes change in every round.
fn changed_by_echoes(files: &BTreeMap<u64, File>, peer: &mut Peer) -> BTreeSet<Line> {
    let mut round = || {
        changed_by(files, || {
            for _ in 0..ECHOES {
                peer.echo().expect("an echo");
            }
        })
    };
    let first = round();
    (1..ROUNDS).fold(first, |lines, _| &lines & &round())
}

/// Opens a connection of this worker: the others are stopped meanwhile, because on a quiet machine the same worker would
/// accept all of them.
fn peer_of(worker: u32, workers: &[u32], scene: &Scene) -> Peer {
    let others = || workers.iter().copied().filter(|&other| other != worker);
    for other in others() {
        slots::stop(other);
    }
    let peer = Peer::echoing(scene.address);
    others().for_each(|other| signal(other, Signal::CONT));
    peer
}

#[test]
fn two_workers_write_no_common_cache_line_for_their_events() {
    let _alone = crate::alone();
    requires!(Can::BeDormouse);
    if !rustix::process::geteuid().is_root() {
        tools::unavailable("only root may read the memory of workers");
        return;
    }
    let scene = Scene::with(|settings| settings.workers = 2);
    let workers = scene.terminator.workers();
    assert_eq!(workers.len(), 2, "{workers:?}");
    let files = shared_files(&workers);
    assert!(!files.is_empty(), "the workers share tables");

    let mut peers: Vec<Peer> = workers
        .iter()
        .map(|&worker| peer_of(worker, &workers, &scene))
        .collect();
    let written: Vec<BTreeSet<Line>> = peers
        .iter_mut()
        .map(|peer| changed_by_echoes(&files, peer))
        .collect();
    eprintln!("lines of shared files that events changed: {written:x?}");
    // Each worker counts bytes in its own part of the tables.
    assert!(
        written.iter().all(|lines| !lines.is_empty()),
        "{written:x?}"
    );
    let common: Vec<_> = written[0].intersection(&written[1]).collect();
    assert!(common.is_empty(), "both workers write {common:x?}");

    // A connection that begins does change common lines, such as the load of the backend.
    let opened = changed_by(&files, || peers.push(Peer::saying(scene.address, "echo")));
    let own: BTreeSet<_> = written.iter().flatten().collect();
    assert!(opened.iter().any(|line| !own.contains(line)), "{opened:x?}");
}
