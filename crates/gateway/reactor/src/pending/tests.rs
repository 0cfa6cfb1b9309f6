use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const KIB: usize = 1024;

/// Capacity of the smallest chunk.
const SMALLEST: usize = CHUNK_MIN - HEADER;

fn pool(bytes_max: usize) -> Pending {
    Pending::create("pending test", bytes_max).unwrap()
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + seed * 7 + 1) as u8).collect()
}

#[test]
fn bytes_wait_in_order() {
    let mut pool = pool(1024 * KIB);
    let handle = pool.alloc(200, 5).unwrap();
    assert_eq!(pool.capacity(handle), SMALLEST);
    assert!(pool.append(handle, &[1; 150]));
    pool.consume(handle, 100);
    // Room at the front is reused.
    assert!(pool.append(handle, &[2; 174]));
    assert!(!pool.append(handle, &[3; 1]));
    assert_eq!(pool.data(handle), [vec![1; 50], vec![2; 174]].concat());
    pool.consume(handle, usize::MAX);
    assert!(pool.is_empty(handle));
    let room = pool.room(handle, 10);
    assert_eq!(room.len(), 10);
    room.fill(4);
    pool.filled(handle, 3);
    assert_eq!(pool.data(handle), [4; 3]);
    assert_eq!(pool.owner(handle), Some(5));
    assert!(pool.free(handle) && !pool.free(handle));
    assert_eq!((pool.data(handle), pool.bytes_in_use()), (&[][..], 0));
    pool.fd().close();
}

#[test]
fn store_grows_as_needed_and_fails_without_changes() {
    let mut pool = pool(512 * KIB);
    let mut handle = Handle::NONE;
    let all = pattern(0, LARGEST);
    for part in all.chunks(9973) {
        handle = pool.store(handle, 1, part).unwrap();
        assert_eq!(pool.chunks(), 1);
    }
    assert_eq!(pool.data(handle), all);
    assert_eq!(pool.store(handle, 1, &[0]), None);
    assert_eq!(pool.data(handle), all);
    pool.fd().close();
}

#[test]
fn the_limit_holds_and_can_hold_is_exact() {
    for len in [1, SMALLEST, 1000, 5000, 16_406, 65_000, LARGEST] {
        let mut pool = pool(3000 * KIB);
        let mut handles = Vec::new();
        while pool.can_hold(len) {
            let handle = pool.alloc(len, 1).unwrap();
            pool.room(handle, usize::MAX).fill(0xaa);
            handles.push(handle);
        }
        assert_eq!(pool.alloc(len, 1), None);
        assert!(pool.bytes_in_use() <= 3000 * KIB);
        assert!(pool.bytes_in_use() + 256 * KIB > 3000 * KIB);
        assert_eq!(pool.resident_bytes().unwrap(), pool.bytes_in_use());
        for &handle in &handles {
            pool.free(handle);
        }
        assert_eq!(pool.bytes_in_use(), 0);
        assert!(pool.resident_bytes().unwrap() <= WARM_PAGES_MAX * PAGE);
        pool.trim();
        assert_eq!(pool.resident_bytes().unwrap(), 0);
        assert!(pool.can_hold(len));
        pool.fd().close();
    }
    let pool = pool(KIB);
    assert!(!pool.can_hold(LARGEST + 1) && !pool.can_hold(usize::MAX));
    pool.fd().close();
}

#[test]
fn reused_pages_stay_warm_and_idle_pages_cool() {
    const CHUNK: usize = 60_000;
    let mut pool = pool(64 * 1024 * KIB);
    let resident = |pool: &Pending| pool.resident_bytes().unwrap();
    let handles: Vec<_> = (0..10).map(|_| pool.alloc(CHUNK, 1).unwrap()).collect();
    for &handle in &handles {
        assert!(pool.append(handle, &pattern(1, CHUNK)));
        pool.free(handle);
    }
    let all = resident(&pool);
    assert!(pool.is_warm() && all >= 10 * CHUNK);
    // All of them were in use at the same time since the last call.
    pool.cool();
    assert_eq!(resident(&pool), all);
    // Since then, one was.
    let handle = pool.alloc(CHUNK, 1).unwrap();
    assert!(pool.append(handle, &pattern(2, CHUNK)));
    pool.free(handle);
    pool.cool();
    let left = resident(&pool);
    assert!((CHUNK..4 * CHUNK).contains(&left), "{left} bytes are left");
    pool.cool();
    assert_eq!((resident(&pool), pool.is_warm()), (0, false));
    pool.fd().close();
}

#[test]
fn warm_pages_respect_the_limit() {
    const BOUND: usize = 1024 * KIB;
    let mut pool = pool(BOUND);
    let large = pool.alloc(LARGEST, 1).unwrap();
    for len in [LARGEST, 60_000, 16_000, 4000, 200] {
        let mut handles = Vec::new();
        while let Some(handle) = pool.alloc(len, 1) {
            pool.room(handle, usize::MAX).fill(1);
            handles.push(handle);
            let resident = pool.resident_bytes().unwrap();
            assert!(resident <= BOUND + WARM_PAGES_MIN * PAGE, "{resident}");
        }
        for handle in handles {
            pool.free(handle);
            let resident = pool.resident_bytes().unwrap();
            assert!(resident <= BOUND + WARM_PAGES_MIN * PAGE, "{resident}");
        }
    }
    pool.free(large);
    pool.fd().close();
}

#[test]
fn one_remaining_chunk_per_span_frees_all_other_pages() {
    let mut pool = pool(64 * 1024 * KIB);
    let handles: Vec<_> = (0..1000).map(|i| pool.alloc(16_406, i).unwrap()).collect();
    for &handle in &handles {
        assert!(pool.append(handle, &pattern(1, 16_406)));
    }
    for (i, &handle) in handles.iter().enumerate() {
        if i % 8 != 0 {
            pool.free(handle);
        }
    }
    pool.trim();
    // 125 chunks, each with header and bytes on five pages.
    assert_eq!(pool.resident_bytes().unwrap(), 125 * 5 * PAGE);
    pool.fd().close();
}

#[test]
fn freed_chunks_are_wiped() {
    let mut pool = pool(KIB * 64);
    let keep = pool.alloc(100, 1).unwrap();
    let handle = pool.alloc(200, 1).unwrap();
    assert!(pool.append(handle, b"the secret plaintext"));
    // Written, but not reported as filled.
    pool.room(handle, 100).fill(0x55);
    pool.consume(handle, 20);
    pool.free(handle);
    let live = pool.find(keep).unwrap().offset();
    let mut bytes = pool.memory.bytes().to_vec();
    bytes[live..live + HEADER].fill(0);
    assert!(bytes.iter().all(|&b| b == 0));
    pool.fd().close();
}

#[test]
fn invalid_handles_are_refused_on_adoption() {
    let mut pool = pool(KIB * 1024);
    let good = pool.alloc(1000, 1).unwrap();
    assert!(pool.append(good, &pattern(3, 900)));
    let others = pool.alloc(1000, 2).unwrap();
    let forgotten = pool.alloc(1000, 4).unwrap();
    assert!(pool.append(forgotten, b"secret"));
    let corrupt = pool.alloc(30_000, 3).unwrap();
    let place = pool.find(corrupt).unwrap();
    pool.header_mut(place).unwrap().end = 40_000;
    let fd = pool.fd();
    drop(pool);
    let named = [
        (good, 1),
        (good, 1),
        (others, 9),
        (corrupt, 3),
        (Handle(u32::MAX), 3),
        (Handle(good.0 + 1), 1),
        (Handle::NONE, 1),
    ];
    let (mut pool, refused) = Pending::adopt(fd, KIB * 1024, named).unwrap();
    assert_eq!(refused, named[1..]);
    assert_eq!(pool.data(good), pattern(3, 900));
    assert_eq!(pool.chunks(), 1);
    assert!(
        !pool
            .memory
            .bytes()
            .windows(6)
            .any(|bytes| bytes == b"secret")
    );
    pool.free(good);
    assert!(pool.memory.bytes().iter().all(|&b| b == 0));
    assert!(Pending::adopt(fd, KIB * 2048, []).is_err());
    fd.close();
}

#[derive(Debug, Clone)]
enum Step {
    Store { owner: u32, len: usize },
    Consume { owner: u32, len: usize },
    Free { owner: u32 },
    Cool,
    Trim,
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let len = || prop_oneof![0usize..300, 0usize..5000, 0usize..40_000, 0usize..300_000];
    let step = prop_oneof![
        10 => (0u32..30, len()).prop_map(|(owner, len)| Step::Store { owner, len }),
        4 => (0u32..30, len()).prop_map(|(owner, len)| Step::Consume { owner, len }),
        4 => (0u32..30).prop_map(|owner| Step::Free { owner }),
        1 => Just(Step::Cool),
        1 => Just(Step::Trim),
        1 => Just(Step::Crash),
    ];
    prop::collection::vec(step, 1..150)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Chunks of many sizes are allocated and freed, and the process crashes in between: every owner finds its
    /// bytes, the limit holds, and free memory is zero and returned.
    #[test]
    fn agrees_with_a_map_over_crashes(steps in steps()) {
        const BOUND: usize = 700 * KIB;
        let mut pool = pool(BOUND);
        let fd = pool.fd();
        let mut model: BTreeMap<u32, (Handle, Vec<u8>)> = BTreeMap::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Store { owner, len } => {
                    let bytes = pattern(number, len);
                    let (handle, waiting) = model.entry(owner).or_default();
                    if let Some(new) = pool.store(*handle, owner, &bytes) {
                        *handle = new;
                        waiting.extend(bytes);
                    }
                    if handle.is_none() {
                        model.remove(&owner);
                    }
                }
                Step::Consume { owner, len } => {
                    if let Some((handle, waiting)) = model.get_mut(&owner) {
                        pool.consume(*handle, len);
                        waiting.drain(..len.min(waiting.len()));
                    }
                }
                Step::Free { owner } => {
                    if let Some((handle, _)) = model.remove(&owner) {
                        prop_assert!(pool.free(handle));
                    }
                }
                Step::Cool => pool.cool(),
                Step::Trim => {
                    pool.trim();
                    prop_assert!(pool.resident_bytes().unwrap() <= pool.bytes_in_use());
                }
                Step::Crash => {
                    let in_use = pool.bytes_in_use();
                    drop(pool);
                    let live = model.iter().map(|(&owner, &(handle, _))| (handle, owner));
                    let (adopted, refused) = Pending::adopt(fd, BOUND, live).unwrap();
                    prop_assert!(refused.is_empty());
                    prop_assert_eq!(adopted.bytes_in_use(), in_use);
                    pool = adopted;
                }
            }
            prop_assert_eq!(pool.chunks(), model.len());
            prop_assert!(pool.bytes_in_use() <= BOUND);
            for (&owner, (handle, waiting)) in &model {
                prop_assert_eq!(pool.data(*handle), waiting.as_slice());
                prop_assert_eq!(pool.owner(*handle), Some(owner));
            }
        }
        for (handle, _) in model.into_values() {
            prop_assert!(pool.free(handle));
        }
        prop_assert_eq!(pool.bytes_in_use(), 0);
        let data = pool.memory.data().unwrap();
        prop_assert!(data.into_iter().all(|r| pool.memory.bytes()[r].iter().all(|&b| b == 0)));
        pool.trim();
        prop_assert_eq!(pool.resident_bytes().unwrap(), 0);
        fd.close();
    }
}
