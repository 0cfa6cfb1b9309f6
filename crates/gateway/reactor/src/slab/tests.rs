use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The size of the gateway's slot: 64 of them are three pages.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Probe {
    number: u64,
    fill: [u64; 23],
}

const LAYOUT: u32 = 3;
const GROUP_BYTES: usize = 64 * size_of::<Probe>();

fn slab(capacity: u32) -> Slab<Probe> {
    Slab::create("slab test", capacity, LAYOUT).unwrap()
}

fn put(slab: &mut Slab<Probe>, number: u64) -> u32 {
    let index = slab.insert().unwrap();
    let probe = slab.get_mut(index).unwrap();
    assert!(probe.as_bytes().iter().all(|&b| b == 0));
    probe.number = number;
    probe.fill = [number; 23];
    index
}

fn is_live(_: u32, probe: &Probe) -> bool {
    probe.number != 0
}

#[test]
fn unused_capacity_costs_no_memory() {
    let mut slab = slab(20_000);
    assert_eq!(slab.resident_bytes().unwrap(), 0);
    put(&mut slab, 1);
    assert_eq!(slab.resident_bytes().unwrap(), PAGE);
    let fd = slab.fd();
    drop(slab);
    // Searching for live slots must not touch the others.
    let (slab, adopted) = Slab::adopt(fd, LAYOUT, is_live).unwrap();
    assert_eq!(adopted.live, 1);
    // The last slot of the page ends on the next one.
    assert_eq!(slab.resident_bytes().unwrap(), 2 * PAGE);
    fd.close();
}

#[test]
fn pages_are_returned_but_not_at_every_close() {
    let mut slab = slab(64 * 100);
    for number in 1..=64 * 100 {
        put(&mut slab, number);
    }
    assert_eq!(slab.insert(), None);
    assert!(slab.is_full());
    assert_eq!(slab.resident_bytes().unwrap(), 100 * GROUP_BYTES);
    for index in 64..64 * 100 {
        assert!(slab.free(index));
        assert!(!slab.free(index));
    }
    let kept = (1 + SPARE_GROUPS) * GROUP_BYTES;
    assert_eq!(slab.resident_bytes().unwrap(), kept);
    // Churn at the edge of a group uses the kept pages: none is returned, none is new.
    for _ in 0..10 {
        let index = put(&mut slab, 7);
        assert_eq!(index, 64);
        slab.free(index);
        assert_eq!(slab.resident_bytes().unwrap(), kept);
    }
    slab.trim();
    assert_eq!(slab.resident_bytes().unwrap(), GROUP_BYTES);
    // The remaining slots are intact.
    assert!((0..64).all(|i| slab.get(i).unwrap().number == u64::from(i) + 1));
    slab.fd().close();
}

#[test]
fn compaction_moves_the_last_to_the_front() {
    let mut slab = slab(6400);
    for number in 1..=6400 {
        put(&mut slab, number);
    }
    for index in (0..6400).filter(|index| index % 10 != 0) {
        slab.free(index);
    }
    while let Some(last) = slab.highest_live() {
        let number = slab.get(last).unwrap().number;
        let Some(to) = slab.relocate(last) else { break };
        slab.settle_move();
        assert!(to < last && slab.get(last).is_none());
        assert_eq!(slab.get(to).unwrap().fill, [number; 23]);
    }
    assert_eq!(slab.live(), 640);
    assert!(slab.indices().eq(0..640));
    slab.trim();
    assert_eq!(slab.resident_bytes().unwrap(), 10 * GROUP_BYTES);
    slab.fd().close();
}

#[test]
fn an_interrupted_move_is_completed() {
    for step in ["copying", "clearing", "telling"] {
        let copying = step == "copying";
        let mut slab = slab(100);
        let numbers: Vec<u32> = (1..=10).map(|n| put(&mut slab, n)).collect();
        slab.free(numbers[3]);
        let (from, to) = (9, 3);
        // The state of the memory at each step of a move.
        if copying {
            slab.header.set_move(Some(Move::Copying { from, to }));
            let start = Slab::<Probe>::range(from).start;
            let half = start..start + 96;
            let target = Slab::<Probe>::range(to).start;
            slab.slots.bytes_mut().copy_within(half, target);
        } else {
            slab.header.set_move(Some(Move::Clearing { from, to }));
            let source = Slab::<Probe>::range(from);
            let target = Slab::<Probe>::range(to).start;
            slab.slots.bytes_mut().copy_within(source.clone(), target);
            slab.slots.wipe(source.start..source.start + 96);
        }
        if step == "telling" {
            slab.slots.wipe(Slab::<Probe>::range(from));
            slab.header.set_move(Some(Move::Updating { from, to }));
        }
        let fd = slab.fd();
        drop(slab);
        let (mut slab, adopted) = Slab::adopt(fd, LAYOUT, is_live).unwrap();
        assert_eq!(adopted.live, 9);
        assert_eq!(adopted.moved, (!copying).then_some((from, to)));
        let at = if copying { from } else { to };
        assert_eq!(slab.get(at).unwrap().fill, [10; 23]);
        // A process that dies again before the references are updated leaves the same state.
        drop(slab);
        let again;
        (slab, again) = Slab::adopt(fd, LAYOUT, is_live).unwrap();
        assert_eq!((again.moved, again.live), (adopted.moved, 9));
        slab.settle_move();
        assert_eq!(slab.header().unfinished_move(), None);
        fd.close();
    }
}

#[test]
fn only_a_compatible_slab_is_adopted() {
    let slab = slab(100);
    let fd = slab.fd();
    fn mismatch<T>(result: Result<T, AdoptError>) -> &'static str {
        match result {
            Err(AdoptError::Mismatch { field, .. }) => field,
            Err(other) => panic!("{other}"),
            Ok(_) => "adopted",
        }
    }
    let other_layout = Slab::<Probe>::adopt(fd, LAYOUT + 1, is_live);
    assert_eq!(mismatch(other_layout), "layout version");
    let other_size = Slab::<[u8; 128]>::adopt(fd, LAYOUT, |_, _| true);
    // 100 slots of this size need another number of pages.
    assert_eq!(mismatch(other_size), "length");
    let no_slab = Mapping::create("other", 32 * PAGE).unwrap();
    let other_file = Slab::<Probe>::adopt(no_slab.fd(), LAYOUT, is_live);
    assert_eq!(mismatch(other_file), "magic");
    assert!(Slab::<Probe>::adopt(Fd::NONE, LAYOUT, is_live).is_err());
    no_slab.fd().close();
    fd.close();
}

#[test]
fn the_header_is_usable_from_elsewhere_and_while_a_slot_is_borrowed() {
    let mut slab = slab(10);
    let index = put(&mut slab, 1);
    let header = slab.header().clone();
    let keeper = Header::open(slab.fd()).unwrap();
    assert_eq!(keeper.epoll(), Fd::NONE);
    assert_eq!(keeper.busy(), None);
    let probe = slab.get_mut(index).unwrap();
    header.mark_busy(index);
    probe.number = 2;
    assert_eq!(keeper.busy(), Some(index));
    header.clear_busy();
    assert_eq!(keeper.busy(), None);
    header.set_epoll(Fd(7));
    assert_eq!(keeper.epoll(), Fd(7));
    assert_eq!(keeper.pid(), std::process::id());
    assert!(keeper.note(NOTES).is_none());
    for (value, word) in (0..NOTES).filter_map(|i| keeper.note(i)).enumerate() {
        word.store(value as u64 + 1, std::sync::atomic::Ordering::Relaxed);
    }
    // All words are distinct, and none overlaps a field of the header.
    let again = Header::open(slab.fd()).unwrap();
    assert_eq!(
        (again.epoll(), again.busy(), again.layout()),
        (Fd(7), None, LAYOUT)
    );
    let last = again.note(NOTES - 1).unwrap();
    let last = last.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(last as usize, NOTES);
    slab.fd().close();
}

#[derive(Debug, Clone)]
enum Step {
    Insert(u64),
    Free(u32),
    Relocate(u32),
    Trim,
    Crash,
}

proptest! {
    #[test]
    fn agrees_with_a_map_over_crashes(
        capacity in 1u32..700,
        steps in prop::collection::vec(prop_oneof![
            8 => (1u64..).prop_map(Step::Insert),
            5 => any::<u32>().prop_map(Step::Free),
            2 => any::<u32>().prop_map(Step::Relocate),
            1 => Just(Step::Trim),
            1 => Just(Step::Crash),
        ], 1..400),
    ) {
        let mut slab = slab(capacity);
        let fd = slab.fd();
        let mut model: BTreeMap<u32, u64> = BTreeMap::new();
        for step in steps {
            let lowest = (0..capacity).find(|i| !model.contains_key(i));
            match step {
                Step::Insert(number) => {
                    prop_assert_eq!(lowest.is_none(), slab.is_full());
                    if lowest.is_some() {
                        prop_assert_eq!(Some(put(&mut slab, number)), lowest);
                        model.insert(lowest.unwrap(), number);
                    }
                }
                Step::Free(n) => {
                    let index = n % capacity;
                    prop_assert_eq!(slab.free(index), model.remove(&index).is_some());
                }
                Step::Relocate(n) => {
                    let from = n % capacity;
                    let to = lowest.filter(|&to| to < from && model.contains_key(&from));
                    prop_assert_eq!(slab.relocate(from), to);
                    slab.settle_move();
                    if let Some(to) = to {
                        let number = model.remove(&from).unwrap();
                        model.insert(to, number);
                    }
                }
                Step::Trim => slab.trim(),
                Step::Crash => {
                    drop(slab);
                    slab = Slab::adopt(fd, LAYOUT, is_live).unwrap().0;
                }
            }
            prop_assert!(slab.indices().eq(model.keys().copied()));
            prop_assert!(model.iter().all(|(&i, &n)| slab.get(i).unwrap().fill == [n; 23]));
            let free = (0..capacity).find(|i| !model.contains_key(i)).unwrap_or(capacity);
            prop_assert!(slab.get(free).is_none());
        }
        fd.close();
    }
}
