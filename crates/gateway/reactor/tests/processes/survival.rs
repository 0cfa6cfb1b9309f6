//! Shared memory after its process was killed.

use std::sync::atomic::Ordering;

use dormouse_reactor::process::{self, Ended, Pid, Wait, wait};
use dormouse_reactor::shared::Shared;
use dormouse_reactor::signal::Signal;
use dormouse_reactor::slab::{Header, Slab};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::share_table;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Probe {
    words: [u64; 24],
}

fn is_live(_: u32, probe: &Probe) -> bool {
    probe.words[0] != 0
}

fn kill(pid: Pid) {
    process::send_signal(pid, Signal::Kill).unwrap();
    assert_eq!(wait(Wait::For(pid)).unwrap(), Some((pid, Ended::Killed(9))));
}

pub(crate) fn killed_while_busy() {
    let slab = Slab::<Probe>::create("test", 1000, 1).unwrap();
    let (fd, header) = (slab.fd(), slab.header().clone());
    drop(slab);
    let work = move || {
        let (mut slab, _) = Slab::<Probe>::adopt(fd, 1, is_live).unwrap();
        let header = slab.header().clone();
        for number in 1..=300 {
            let index = slab.insert().unwrap();
            slab.get_mut(index).unwrap().words = [number; 24];
        }
        slab.free(10);
        header.mark_busy(123);
        slab.get_mut(123).unwrap().words[5] = 0;
        header.heartbeat().store(1, Ordering::Release);
        loop {
            std::thread::park();
        }
    };
    let pid = share_table("worker", work).unwrap();
    while header.heartbeat().load(Ordering::Acquire) == 0 {
        std::thread::yield_now();
    }
    assert_eq!(header.pid() as i32, pid.0);
    kill(pid);

    let (mut slab, adopted) = Slab::<Probe>::adopt(fd, 1, is_live).unwrap();
    assert_eq!((adopted.busy, adopted.live), (Some(123), 299));
    assert_eq!(slab.header().adoptions(), 2);
    assert!(slab.get(10).is_none());
    for index in slab.indices().filter(|&index| index != 123) {
        assert_eq!(slab.get(index).unwrap().words, [u64::from(index) + 1; 24]);
    }
    // The mark stays until it is cleared.
    slab.free(123);
    assert_eq!(slab.header().busy(), Some(123));
    slab.header().clear_busy();
    assert_eq!(slab.insert(), Some(10));
    fd.close();
}

/// A worker that only changes slots is killed at arbitrary instructions, repeatedly. The header must name the
/// one slot that may be torn.
pub(crate) fn killed_anywhere() {
    const SLOTS: u32 = 200;
    const ROUNDS: u64 = 300;
    let slab = Slab::<Probe>::create("test", SLOTS, 1).unwrap();
    let (fd, header) = (slab.fd(), slab.header().clone());
    drop(slab);
    let work = move |seed: u64| {
        let (mut slab, _) = Slab::<Probe>::adopt(fd, 1, is_live).unwrap();
        let header = slab.header().clone();
        let mut random = seed;
        loop {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(99);
            let index = (random >> 33) as u32 % SLOTS;
            let number = random | 1;
            if !slab.is_live(index) {
                // A new slot is handled like any other: marked first.
                let Some(index) = slab.insert() else { continue };
                header.mark_busy(index);
                slab.get_mut(index).unwrap().words = [number; 24];
            } else if random.is_multiple_of(7) {
                header.mark_busy(index);
                slab.free(index);
            } else {
                header.mark_busy(index);
                for word in &mut slab.get_mut(index).unwrap().words {
                    *word = number;
                }
            }
            header.clear_busy();
            header.heartbeat().fetch_add(1, Ordering::Relaxed);
        }
    };
    let (mut busy, mut torn) = (0, 0);
    for round in 0..ROUNDS {
        let before = header.heartbeat().load(Ordering::Relaxed);
        let pid = share_table("worker", move || work(round)).unwrap();
        // A different number of turns of the loop each time.
        while header.heartbeat().load(Ordering::Relaxed) < before + 1 + round * 13 % 1000 {
            std::hint::spin_loop();
        }
        kill(pid);
        let (mut slab, adopted) = Slab::<Probe>::adopt(fd, 1, is_live).unwrap();
        let is_whole = |probe: &Probe| probe.words.iter().all(|&word| word == probe.words[0]);
        for index in slab.indices() {
            let whole = is_whole(slab.get(index).unwrap());
            if Some(index) == adopted.busy {
                torn += usize::from(!whole);
            } else {
                assert!(whole, "slot {index} is torn in round {round}: {adopted:?}");
            }
        }
        if let Some(index) = adopted.busy {
            busy += 1;
            slab.free(index);
        }
        slab.header().clear_busy();
    }
    print!("({ROUNDS} kills, {busy} while busy, {torn} slots torn) ");
    // With fewer, the test would prove nothing.
    assert!(busy >= ROUNDS / 10);
    fd.close();
}

pub(crate) fn killed_while_counting() {
    let shared = Shared::create("test", 2).unwrap();
    let fd = shared.fd();
    let work = move || {
        let shared = Shared::adopt(fd, 2).unwrap();
        let block = shared.block(1).unwrap();
        loop {
            block.add(3, 1);
        }
    };
    let block = shared.block(0).unwrap();
    for _ in 0..10 {
        let before = shared.sum(3);
        let pid = share_table("worker", work).unwrap();
        while shared.sum(3) < before + 100 {
            std::hint::spin_loop();
        }
        kill(pid);
        // No process is blocked, and nothing is lost.
        let after = shared.sum(3);
        assert!(after >= before + 100);
        block.add(3, 1);
        assert_eq!(shared.sum(3), after + 1);
    }
    fd.close();
}

/// Returns the header of a slab that another process uses.
pub(crate) fn header_of(fd: dormouse_reactor::Fd) -> Header {
    Header::open(fd).unwrap()
}
