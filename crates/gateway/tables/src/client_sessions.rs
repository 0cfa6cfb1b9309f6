//! The sessions of originations, in one mapping that all workers and main share.
//!
//! ```text
//! | page: magic, version, places | place | place | …
//! place: key 16 | chain and uses | since | stamp | unused | 8 x slot
//! slot:  state | chain | stamp and used | length | 2,000 bytes
//! ```
//!
//! A *place* belongs to one server of one origination. Its key is a digest of everything on which a
//! session depends: server, name, ALPN, trust, own certificate, versions. Invariants:
//!
//! - No process waits for another. Only the process that has claimed a slot (by a compare-and-swap of
//!   its state to *busy*, with the process's number) reads and writes the slot's bytes. A process that
//!   finds a slot busy takes another, or makes a full handshake.
//! - A worker that dies leaves at most slots that are busy with its number; its successor frees them
//!   ([`ClientSessions::forget_claims`]).
//! - A chain and its uses are one word, so sessions are never used more often than allowed, however many
//!   workers take one at once.
//! - The size is fixed: nothing grows. A new server gets the place with the oldest full handshake. A handle of the former
//!   server looks at the key before and after each use: its sessions never get into another server's chain, nor the other way
//!   round. It looks for another place when it has made a full handshake.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::{fmt, io};

use dormouse_engine::{Reuse, Session, SessionStore, UnixTime};
use dormouse_reactor::Fd;
use dormouse_reactor::memory::{PAGE, Words};
use zeroize::Zeroizing;

const MAGIC: u64 = u64::from_le_bytes(*b"dm-sessn");
const VERSION: u64 = 1;

/// Tickets kept per server; servers send one or two per handshake.
pub const SLOTS: usize = 8;
/// Maximum length of a session. Longer ones, whose tickets contain client certificate chains, are not kept.
pub const DATA_MAX: usize = 2_000;
const SLOT_LEN: usize = 32 + DATA_MAX;
const PLACE_HEAD: usize = 48;
const PLACE_LEN: usize = 4 * PAGE;
const _: () = assert!(PLACE_HEAD + SLOTS * SLOT_LEN <= PLACE_LEN);

/// Place of the time of the full handshake.
const SINCE_AT: usize = 24;
/// First half of the key of a place that is being given to another server.
const GIVEN_AWAY: u64 = u64::MAX;
/// Of a handle that resumes nothing.
const NO_REUSE: Reuse = Reuse {
    uses_max: 0,
    age_max_s: 0,
};
/// How often a place is looked for while other processes take the same ones.
const TRIES: usize = 16;

/// See [`crate::dimensions`].
pub(crate) const DIMENSIONS: [usize; 4] = [SLOTS, SLOT_LEN, PLACE_HEAD, PLACE_LEN];

/// Number of main in claims. Main writes only before there are workers.
pub const MAIN: u16 = u16::MAX;

/// The key of a place.
pub type SessionKey = [u8; 16];

/// The mapping. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ClientSessions {
    words: Arc<Words>,
    places: usize,
    /// Number of this process in claims.
    owner: u16,
}

/// The sessions of one server.
pub struct SessionPlace {
    sessions: ClientSessions,
    /// Offset of the place. If that was given to another server, the next full handshake looks for a place again.
    at: AtomicUsize,
    /// The halves of its key.
    key: [u64; 2],
    reuse: Reuse,
}

impl Clone for SessionPlace {
    fn clone(&self) -> SessionPlace {
        self.sessions.handle(self.at(), self.key, self.reuse)
    }
}

/// The contents of a place, for a session file.
#[derive(PartialEq, Eq)]
pub struct Snapshot {
    /// Unix time of the full handshake from which the sessions come.
    pub since_s: u64,
    /// Number of handshakes that have resumed one of the sessions since then.
    pub uses: u32,
    /// Whether each session was offered before, and its bytes; the oldest first.
    pub sessions: Vec<(bool, Zeroizing<Vec<u8>>)>,
}

/// Without the sessions, which hold secrets.
impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            since_s,
            uses,
            sessions,
        } = self;
        write!(
            f,
            "{} sessions since {since_s}, used {uses} times",
            sessions.len()
        )
    }
}

const FREE: u64 = 0;
const READY: u64 = 1;
const BUSY: u64 = 2;

/// What no sound process has written counts as free, so that the slot can be used again.
fn kind(state: u64) -> u64 {
    match state & 3 {
        kind @ (READY | BUSY) => kind,
        _ => FREE,
    }
}

/// Returns the next state, with a new version, so that a compare-and-swap with the old state fails.
fn next(state: u64, kind: u64, owner: u16) -> u64 {
    let version = (state >> 32).wrapping_add(1) & 0xffff_ffff;
    version << 32 | u64::from(owner) << 8 | kind
}

impl ClientSessions {
    /// Creates a mapping with this number of places.
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

    /// Maps what main has created, for worker number `worker`. The header is not checked, because another worker
    /// may have been compromised and have changed it.
    pub fn adopt(fd: Fd, places: usize, worker: u32) -> io::Result<ClientSessions> {
        let words = Words::adopt(fd, len(places)).map_err(io::Error::other)?;
        Ok(ClientSessions {
            words: Arc::new(words),
            places,
            owner: u16::try_from(worker).unwrap_or(MAIN - 1),
        })
    }

    /// Returns the mapping's descriptor, through which other processes adopt it.
    pub fn fd(&self) -> Fd {
        self.words.fd()
    }

    /// Frees the slots that a dead predecessor had claimed.
    pub fn forget_claims(&self) {
        // Places are taken in order.
        let is_taken = |place: &usize| self.word(place_at(*place)).load(Ordering::Acquire) != 0;
        for place in (0..self.places).take_while(is_taken) {
            for slot in 0..SLOTS {
                let at = slot_at(place_at(place), slot);
                let word = self.word(at);
                let state = word.load(Ordering::Acquire);
                if kind(state) == BUSY && (state >> 8) as u16 == self.owner {
                    self.wipe(at);
                    word.store(next(state, FREE, 0), Ordering::Release);
                }
            }
        }
    }

    /// Returns the place with this key. If there is none, takes a free one, or else the one with the oldest full handshake:
    /// renewed certificates leave places that nobody uses any more. `None`: other processes take places all the time.
    pub fn place(&self, key: SessionKey, reuse: Reuse) -> Option<SessionPlace> {
        let key = halves(key);
        Some(self.handle(self.look_up(key)?, key, reuse))
    }

    fn handle(&self, at: usize, key: [u64; 2], reuse: Reuse) -> SessionPlace {
        SessionPlace {
            sessions: self.clone(),
            at: AtomicUsize::new(at),
            key,
            reuse,
        }
    }

    fn look_up(&self, key: [u64; 2]) -> Option<usize> {
        let found = |_| self.find(key).or_else(|| self.evict(key));
        (0..TRIES).find_map(found)
    }

    /// Returns the place with this key, or takes a free one.
    fn find(&self, [low, high]: [u64; 2]) -> Option<usize> {
        (0..self.places).map(place_at).find(|&at| {
            let owner = self.word(at);
            let taken = owner
                .compare_exchange(0, low, Ordering::AcqRel, Ordering::Acquire)
                .unwrap_or_else(|taken| taken);
            if taken == 0 {
                self.word(at + 8).store(high, Ordering::Release);
                // Not the next one to be given away.
                self.word(at + SINCE_AT)
                    .store(self.newest(), Ordering::Release);
            }
            // A process that took the place at the same time may not have written the second half yet.
            // Keys are digests, so the first half identifies them.
            taken == 0 || taken == low
        })
    }

    /// Gives the place with the oldest full handshake to this key. Handles for its former key then do nothing.
    fn evict(&self, [low, high]: [u64; 2]) -> Option<usize> {
        let owner = |at: usize| self.word(at);
        // One that a dead process was giving away comes first.
        let rank = |&at: &usize| {
            let is_given = owner(at).load(Ordering::Acquire) == GIVEN_AWAY;
            (!is_given, self.word(at + SINCE_AT).load(Ordering::Acquire))
        };
        let at = (0..self.places).map(place_at).min_by_key(rank)?;
        let former = owner(at).load(Ordering::Acquire);
        let swap = |from: u64, to: u64| {
            let swapped = owner(at).compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
            swapped.ok()
        };
        swap(former, GIVEN_AWAY)?;
        // While the place has no key, nobody uses what is in it, and a use that has begun sees another chain.
        let place = self.handle(at, [GIVEN_AWAY, high], NO_REUSE);
        place.begin_chain();
        for slot in 0..SLOTS {
            if let Some(claim) = place.claim(slot, READY) {
                claim.release(FREE);
            }
        }
        self.word(at + 8).store(high, Ordering::Release);
        place.since().store(self.newest(), Ordering::Release);
        swap(GIVEN_AWAY, low).map(|_| at)
    }

    /// The time of the newest full handshake.
    fn newest(&self) -> u64 {
        let since = |at: usize| self.word(at + SINCE_AT).load(Ordering::Acquire);
        (0..self.places).map(place_at).map(since).max().unwrap_or(0)
    }

    /// Overwrites the session in the slot at this offset.
    fn wipe(&self, slot_at: usize) {
        let words = (slot_at + 32..slot_at + SLOT_LEN).step_by(8);
        words.for_each(|at| self.word(at).store(0, Ordering::Relaxed));
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        self.words.word_at(offset)
    }
}

/// Length of a mapping with this number of places.
pub fn len(places: usize) -> usize {
    PAGE + places * PLACE_LEN
}

fn place_at(index: usize) -> usize {
    PAGE + index * PLACE_LEN
}

fn slot_at(place_at: usize, slot: usize) -> usize {
    place_at + PLACE_HEAD + slot * SLOT_LEN
}

/// The halves of a key as numbers, never 0: a key of zeros would look like a free place.
fn halves(key: SessionKey) -> [u64; 2] {
    let (low, high) = key.split_at(8);
    [low, high]
        .map(|half| half.try_into().map_or(1, u64::from_le_bytes))
        .map(|half| half.max(1))
}

/// A slot that this process has claimed.
struct Claim<'a> {
    place: &'a SessionPlace,
    slot: usize,
    state: u64,
}

impl SessionPlace {
    fn at(&self) -> usize {
        self.at.load(Ordering::Relaxed)
    }

    fn head(&self, offset: usize) -> &AtomicU64 {
        self.sessions.word(self.at() + offset)
    }

    /// The chain in the high half, its uses in the low half.
    fn chain_and_uses(&self) -> &AtomicU64 {
        self.head(16)
    }

    fn since(&self) -> &AtomicU64 {
        self.head(SINCE_AT)
    }

    /// Whether the place still belongs to the server of this handle.
    fn is_own(&self) -> bool {
        self.head(0).load(Ordering::Acquire) == self.key[0]
    }

    /// Begins the next chain, which ends the one before. Returns its number.
    fn begin_chain(&self) -> u64 {
        // Zero means that there is no chain.
        let after = |both: u64| u64::from(((both >> 32) as u32).wrapping_add(1).max(1));
        let word = self.chain_and_uses();
        let begun = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |both| {
            Some(after(both) << 32)
        });
        let (Ok(before) | Err(before)) = begun;
        after(before)
    }

    /// Number of writes to this place.
    pub fn stamp(&self) -> &AtomicU64 {
        self.head(32)
    }

    fn slot_word(&self, slot: usize, offset: usize) -> &AtomicU64 {
        self.sessions.word(slot_at(self.at(), slot) + offset)
    }

    fn chain(&self) -> u64 {
        self.chain_and_uses().load(Ordering::Acquire) >> 32
    }

    /// Counts a use. `None`: the limit is reached, so a full handshake is needed.
    fn count_use(&self, now_s: u64) -> Option<u64> {
        let word = self.chain_and_uses();
        let since_s = self.since().load(Ordering::Acquire);
        let counted = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |both| {
            let uses = both as u32;
            let allowed = both >> 32 != 0 && self.reuse.allows(uses, since_s, now_s);
            allowed.then(|| both.wrapping_add(1))
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

    /// The ready slots of a chain, the newest first: index, stamp, and whether it was offered.
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

    /// Picks one of the chain's sessions. A TLS 1.3 ticket is offered only once while there are others
    /// that were not offered; the last one stays, and is offered again.
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
            let valid = session.filter(|session| session.expires_at_s() > now_s);
            match valid {
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

    /// Claims a slot for a new ticket: a free one, else one of an older chain, else one that was offered,
    /// else the oldest.
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

    /// Stores a session. Returns `false` if it is too long, or if all slots are busy.
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

    /// Copies the sessions without claiming their slots. Slots that change meanwhile are left out.
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
        let is_same = self.chain() == chain && self.is_own();
        (chain != 0 && is_same && !sessions.is_empty()).then(|| Snapshot {
            since_s: self.since().load(Ordering::Relaxed),
            uses: both as u32,
            sessions,
        })
    }

    /// Restores a snapshot, if the place has never had a session: what has one is newer.
    pub fn restore(&self, snapshot: &Snapshot) {
        let both = 1 << 32 | u64::from(snapshot.uses);
        let word = self.chain_and_uses();
        let is_unused = word.compare_exchange(0, both, Ordering::AcqRel, Ordering::Relaxed);
        if is_unused.is_err() {
            return;
        }
        self.since().store(snapshot.since_s, Ordering::Release);
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
        // The session that was here may have been longer.
        self.wipe();
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

    /// Ends the claim. A slot that becomes free is wiped.
    fn release(self, kind: u64) {
        if kind == FREE {
            self.wipe();
        }
        let word = self.place.slot_word(self.slot, 0);
        word.store(next(self.state, kind, 0), Ordering::Release);
    }

    fn wipe(&self) {
        let place = self.place;
        place.sessions.wipe(slot_at(place.at(), self.slot));
    }
}

impl SessionStore for SessionPlace {
    fn take(&self, now: UnixTime) -> Option<(u64, Session)> {
        // One place throughout the call.
        let place = self.clone();
        if !place.is_own() {
            return None;
        }
        // The use is counted first. If there is no session, the full handshake resets the count.
        let chain = place.count_use(now.as_secs())?;
        place.stamp().fetch_add(1, Ordering::Relaxed);
        let session = place.pick(chain, now.as_secs())?;
        // Checked again: the place may have been given away meanwhile.
        (place.chain() == chain && place.is_own()).then_some((chain, session))
    }

    fn begin(&self, now: UnixTime) -> u64 {
        if !self.is_own() {
            match self.sessions.look_up(self.key) {
                Some(at) => self.at.store(at, Ordering::Relaxed),
                None => return 0,
            }
        }
        let chain = self.begin_chain();
        // After the new chain: if this worker dies in between, the old chain must not seem new.
        self.since().store(now.as_secs(), Ordering::Release);
        self.stamp().fetch_add(1, Ordering::Relaxed);
        chain
    }

    fn put(&self, chain: u64, session: &Session) -> bool {
        let place = self.clone();
        place.is_own() && chain == place.chain() && place.store(chain, false, session.bytes())
    }
}

impl fmt::Debug for SessionPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionPlace").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
