//! The sessions of originations, in one mapping which all workers and main share.
//!
//! ```text
//! | page: magic, version, places | place | place | …
//! place: key 16 | chain and uses | since | stamp | unused | 8 x slot
//! slot:  state | chain | stamp and used | length | 2,000 bytes
//! ```
//!
//! A *place* belongs to one server of one origination, named by a digest of all that a session
//! depends on: server, name, ALPN, trust, own certificate, versions. Invariants:
//!
//! - Nobody waits for anybody. A slot's bytes are read and written only by who has claimed it
//!   (compare-and-swap of its state to *busy*, with its own number); who finds it busy takes
//!   another, or makes a full handshake.
//! - A worker that dies leaves at most slots which are busy with its number: its successor frees
//!   them ([`ClientSessions::forget_claims`]).
//! - A chain and its uses are one word, so a session is never used more often than allowed,
//!   however many workers take at once.
//! - Everything has its place from the start: nothing grows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::{fmt, io};

use dormouse_engine::{Reuse, Session, SessionStore, UnixTime};
use dormouse_reactor::Fd;
use dormouse_reactor::memory::{PAGE, Words};
use zeroize::Zeroizing;

const MAGIC: u64 = u64::from_le_bytes(*b"dm-sessn");
const VERSION: u64 = 1;

/// Tickets kept per server; servers give one or two per handshake.
const SLOTS: usize = 8;
/// A session with a larger ticket is not kept: such tickets hold chains of client certificates.
const DATA_MAX: usize = 2_000;
const SLOT_LEN: usize = 32 + DATA_MAX;
const PLACE_HEAD: usize = 48;
const PLACE_LEN: usize = 4 * PAGE;
const _: () = assert!(PLACE_HEAD + SLOTS * SLOT_LEN <= PLACE_LEN);

/// Who claims on behalf of main, which writes while there are no workers yet.
pub const MAIN: u16 = u16::MAX;

/// The key of a place.
pub type SessionKey = [u8; 16];

/// The mapping. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ClientSessions {
    words: Arc<Words>,
    places: usize,
    /// Whose claims these are.
    owner: u16,
}

/// The sessions of one server.
#[derive(Clone)]
pub struct SessionPlace {
    sessions: ClientSessions,
    at: usize,
    reuse: Reuse,
}

/// What a place holds, for a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Unix time of the full handshake that the sessions come from.
    pub since_s: u64,
    /// Handshakes that have resumed one of the sessions since then.
    pub uses: u32,
    /// The bytes of each session, the oldest first, and whether it was offered before.
    pub sessions: Vec<(bool, Zeroizing<Vec<u8>>)>,
}

const FREE: u64 = 0;
const READY: u64 = 1;
const BUSY: u64 = 2;

fn kind(state: u64) -> u64 {
    state & 3
}

/// The next state: another version, so that nobody takes it for what it was.
fn next(state: u64, kind: u64, owner: u16) -> u64 {
    let version = (state >> 32).wrapping_add(1) & 0xffff_ffff;
    version << 32 | u64::from(owner) << 8 | kind
}

impl ClientSessions {
    /// With room for so many servers.
    pub fn create(places: usize) -> io::Result<ClientSessions> {
        let words = Arc::new(Words::create("dormouse-sessions", len(places))?);
        let sessions = ClientSessions {
            words,
            places,
            owner: MAIN,
        };
        sessions.word(8).store(VERSION, Ordering::Relaxed);
        sessions.word(16).store(places as u64, Ordering::Relaxed);
        sessions.word(0).store(MAGIC, Ordering::Release);
        Ok(sessions)
    }

    /// What main created, for worker number `worker`.
    pub fn adopt(fd: Fd, places: usize, worker: u32) -> io::Result<ClientSessions> {
        let words = Words::adopt(fd, len(places)).map_err(io::Error::other)?;
        let sessions = ClientSessions {
            words: Arc::new(words),
            places,
            owner: u16::try_from(worker).unwrap_or(MAIN - 1),
        };
        let found = [0, 8, 16].map(|at| sessions.word(at).load(Ordering::Acquire));
        if found == [MAGIC, VERSION, places as u64] {
            Ok(sessions)
        } else {
            Err(io::Error::other("this is no mapping of sessions"))
        }
    }

    /// Returns the mapping's descriptor, through which other processes adopt it.
    pub fn fd(&self) -> Fd {
        self.words.fd()
    }

    /// Frees what a predecessor had claimed when it died.
    pub fn forget_claims(&self) {
        // Places are taken in their order.
        let is_taken = |place: &usize| self.word(place_at(*place)).load(Ordering::Acquire) != 0;
        for place in (0..self.places).take_while(is_taken) {
            for slot in 0..SLOTS {
                let word = self.word(slot_at(place_at(place), slot));
                let state = word.load(Ordering::Acquire);
                if kind(state) == BUSY && (state >> 8) as u16 == self.owner {
                    word.store(next(state, FREE, 0), Ordering::Release);
                }
            }
        }
    }

    /// The place of this key: the one it has, or a free one. `None`: there is no room.
    pub fn place(&self, key: SessionKey, reuse: Reuse) -> Option<SessionPlace> {
        let [low, high] = halves(key);
        for index in 0..self.places {
            let at = place_at(index);
            let owner = self.word(at);
            let taken = owner
                .compare_exchange(0, low, Ordering::AcqRel, Ordering::Acquire)
                .unwrap_or_else(|taken| taken);
            let second = self.word(at + 8);
            if taken == 0 {
                second.store(high, Ordering::Release);
            }
            // Whoever took it at the same time may not have written the rest yet; the keys are
            // digests, so the first half tells them apart.
            if taken == 0 || taken == low {
                let sessions = self.clone();
                return Some(SessionPlace {
                    sessions,
                    at,
                    reuse,
                });
            }
        }
        None
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        match self.words.word(offset) {
            Some(word) => word,
            None => unreachable!("offset {offset} lies in the mapping by construction"),
        }
    }
}

/// Bytes of a mapping for so many servers.
pub fn len(places: usize) -> usize {
    PAGE + places * PLACE_LEN
}

fn place_at(index: usize) -> usize {
    PAGE + index * PLACE_LEN
}

fn slot_at(place_at: usize, slot: usize) -> usize {
    place_at + PLACE_HEAD + slot * SLOT_LEN
}

/// A key of zeros would look like a free place.
fn halves(key: SessionKey) -> [u64; 2] {
    let (low, high) = key.split_at(8);
    [low, high]
        .map(|half| half.try_into().map_or(1, u64::from_le_bytes))
        .map(|half| half.max(1))
}

/// A slot which this process has claimed.
struct Claim<'a> {
    place: &'a SessionPlace,
    slot: usize,
    state: u64,
}

impl SessionPlace {
    fn head(&self, offset: usize) -> &AtomicU64 {
        self.sessions.word(self.at + offset)
    }

    /// Chain in the high half, its uses in the low one.
    fn chain_and_uses(&self) -> &AtomicU64 {
        self.head(16)
    }

    fn since(&self) -> &AtomicU64 {
        self.head(24)
    }

    /// How often anything was written here.
    pub fn stamp(&self) -> &AtomicU64 {
        self.head(32)
    }

    fn slot_word(&self, slot: usize, offset: usize) -> &AtomicU64 {
        self.sessions.word(slot_at(self.at, slot) + offset)
    }

    fn chain(&self) -> u64 {
        self.chain_and_uses().load(Ordering::Acquire) >> 32
    }

    /// Counts one more use. `None`: a full handshake is due.
    fn count_use(&self, now_s: u64) -> Option<u64> {
        let word = self.chain_and_uses();
        let since_s = self.since().load(Ordering::Acquire);
        let counted = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |both| {
            let uses = both as u32;
            let allowed = both >> 32 != 0 && self.reuse.allows(uses, since_s, now_s);
            allowed.then(|| both + 1)
        });
        counted.ok().map(|both| both >> 32)
    }

    fn claim(&self, slot: usize, from: u64) -> Option<Claim<'_>> {
        let word = self.slot_word(slot, 0);
        let state = word.load(Ordering::Acquire);
        if kind(state) != from {
            return None;
        }
        let busy = next(state, BUSY, self.sessions.owner);
        word.compare_exchange(state, busy, Ordering::AcqRel, Ordering::Relaxed)
            .ok()
            .map(|_| Claim {
                place: self,
                slot,
                state: busy,
            })
    }

    /// The ready slots of a chain: index, stamp, whether it was offered; the newest first.
    fn ready(&self, chain: u64) -> Vec<(usize, u64, bool)> {
        let mut ready: Vec<_> = (0..SLOTS)
            .filter(|&slot| {
                kind(self.slot_word(slot, 0).load(Ordering::Acquire)) == READY
                    && self.slot_word(slot, 8).load(Ordering::Relaxed) == chain
            })
            .map(|slot| {
                let mark = self.slot_word(slot, 16).load(Ordering::Relaxed);
                (slot, mark >> 1, mark & 1 == 1)
            })
            .collect();
        ready.sort_unstable_by_key(|&(_, stamp, _)| std::cmp::Reverse(stamp));
        ready
    }

    /// One of the chain's sessions. A ticket of TLS 1.3 is offered once if there is another that
    /// never was; the last one stays, and is offered again.
    fn pick(&self, chain: u64, now_s: u64) -> Option<Session> {
        let ready = self.ready(chain);
        let unused = ready.iter().filter(|(.., used)| !used).count();
        let in_order = ready
            .iter()
            .filter(|(.., used)| !used)
            .chain(ready.iter().filter(|(.., used)| *used));
        for &(slot, _, used) in in_order {
            let Some(claim) = self.claim(slot, READY) else {
                continue;
            };
            let session = claim.read();
            let good = session.filter(|session| session.expires_at_s() > now_s);
            match good {
                None => claim.release(FREE),
                Some(session) => {
                    if !used && unused > 1 && session.is_for_one_use() {
                        claim.release(FREE);
                    } else {
                        claim.mark_used();
                        claim.release(READY);
                    }
                    return Some(session);
                }
            }
        }
        None
    }

    /// The slot for a new ticket: a free one, one of an older chain, one that was offered, else
    /// the oldest.
    fn room(&self, chain: u64) -> Option<Claim<'_>> {
        let value = |slot: usize| {
            let mark = self.slot_word(slot, 16).load(Ordering::Relaxed);
            let of_chain = self.slot_word(slot, 8).load(Ordering::Relaxed) == chain;
            match kind(self.slot_word(slot, 0).load(Ordering::Acquire)) {
                FREE => (0, 0),
                READY if !of_chain => (1, 0),
                READY => (if mark & 1 == 1 { 2 } else { 3 }, mark >> 1),
                _ => (4, 0),
            }
        };
        let mut slots: Vec<usize> = (0..SLOTS).collect();
        slots.sort_by_key(|&slot| value(slot));
        slots
            .into_iter()
            .find_map(|slot| self.claim(slot, FREE).or_else(|| self.claim(slot, READY)))
    }

    /// `false`: it is too large, or all places are being worked on.
    fn store(&self, chain: u64, used: bool, bytes: &[u8]) -> bool {
        let room = (bytes.len() <= DATA_MAX).then(|| self.room(chain));
        let Some(claim) = room.flatten() else {
            return false;
        };
        let stamp = self.stamp().fetch_add(1, Ordering::Relaxed);
        claim.write(chain, stamp << 1 | u64::from(used), bytes);
        claim.release(READY);
        true
    }

    /// What is here, without claiming anything: what changes meanwhile is left out.
    pub fn snapshot(&self) -> Option<Snapshot> {
        let both = self.chain_and_uses().load(Ordering::Acquire);
        let chain = both >> 32;
        let mut ready = self.ready(chain);
        ready.reverse();
        let sessions: Vec<_> = ready
            .into_iter()
            .filter_map(|(slot, _, used)| {
                let word = self.slot_word(slot, 0);
                let before = word.load(Ordering::Acquire);
                let bytes = self.bytes(slot);
                fence(Ordering::Acquire);
                let same = kind(before) == READY && word.load(Ordering::Relaxed) == before;
                same.then_some((used, bytes))
            })
            .collect();
        (chain != 0 && !sessions.is_empty()).then(|| Snapshot {
            since_s: self.since().load(Ordering::Relaxed),
            uses: both as u32,
            sessions,
        })
    }

    /// Puts a snapshot back, while nobody else is here yet.
    pub fn restore(&self, snapshot: &Snapshot) {
        self.since().store(snapshot.since_s, Ordering::Relaxed);
        let both = 1 << 32 | u64::from(snapshot.uses);
        self.chain_and_uses().store(both, Ordering::Release);
        for (used, bytes) in &snapshot.sessions {
            if Session::from_bytes(bytes).is_some() {
                self.store(1, *used, bytes);
            }
        }
    }

    fn bytes(&self, slot: usize) -> Zeroizing<Vec<u8>> {
        let len = self.slot_word(slot, 24).load(Ordering::Relaxed) as usize;
        let len = len.min(DATA_MAX);
        let mut bytes = Zeroizing::new(Vec::with_capacity(len.next_multiple_of(8)));
        for word in 0..len.div_ceil(8) {
            let word = self.slot_word(slot, 32 + 8 * word).load(Ordering::Relaxed);
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}

impl Claim<'_> {
    fn read(&self) -> Option<Session> {
        Session::from_bytes(&self.place.bytes(self.slot))
    }

    fn write(&self, chain: u64, mark: u64, bytes: &[u8]) {
        let word = |offset: usize| self.place.slot_word(self.slot, offset);
        word(8).store(chain, Ordering::Relaxed);
        word(16).store(mark, Ordering::Relaxed);
        word(24).store(bytes.len() as u64, Ordering::Relaxed);
        for (at, chunk) in bytes.chunks(8).enumerate() {
            let mut whole = [0; 8];
            whole[..chunk.len()].copy_from_slice(chunk);
            word(32 + 8 * at).store(u64::from_le_bytes(whole), Ordering::Relaxed);
        }
    }

    fn mark_used(&self) {
        let word = self.place.slot_word(self.slot, 16);
        word.fetch_or(1, Ordering::Relaxed);
    }

    /// What is not kept is wiped.
    fn release(self, kind: u64) {
        if kind == FREE {
            for word in 0..DATA_MAX / 8 {
                let word = self.place.slot_word(self.slot, 32 + 8 * word);
                word.store(0, Ordering::Relaxed);
            }
        }
        let word = self.place.slot_word(self.slot, 0);
        word.store(next(self.state, kind, 0), Ordering::Release);
    }
}

impl SessionStore for SessionPlace {
    fn take(&self, now: UnixTime) -> Option<(u64, Session)> {
        // Counted first: if there is nothing to take, a full handshake sets the count back.
        let chain = self.count_use(now.as_secs())?;
        self.stamp().fetch_add(1, Ordering::Relaxed);
        let session = self.pick(chain, now.as_secs())?;
        Some((chain, session))
    }

    fn begin(&self, now: UnixTime) -> u64 {
        self.since().store(now.as_secs(), Ordering::Release);
        // Zero is no chain.
        let after = |both: u64| u64::from(((both >> 32) as u32).wrapping_add(1).max(1));
        let begun =
            self.chain_and_uses()
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |both| {
                    Some(after(both) << 32)
                });
        self.stamp().fetch_add(1, Ordering::Relaxed);
        let (Ok(before) | Err(before)) = begun;
        after(before)
    }

    fn put(&self, chain: u64, session: &Session) -> bool {
        chain == self.chain() && self.store(chain, false, session.bytes())
    }
}

impl fmt::Debug for SessionPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionPlace").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
