//! The gateway's slot: a connection at rest, whole.
//!
//! A slot is plain old data in shared memory. Between two events it is *all* there is of a
//! connection; after a crash it is all that the next worker has to go on with. So the rules:
//!
//! 1. Every byte of state that an established connection needs is here, or in a pending chunk
//!    that a handle here names.
//! 2. A slot is marked busy (in the slab's header) before a byte is taken from either of its
//!    sockets, and unmarked when everything is sent or stored.
//! 3. A slot is cleared before its descriptors are closed, so that no slot ever names a
//!    descriptor which may already belong to somebody else.
//!
//! 128 bytes are the TLS state, 64 are ours. Think twice before raising either.

use dormouse_reactor::Fd;
use dormouse_reactor::pending::Handle;
use dormouse_reactor::timer::{Timed, Timer};
use dormouse_record::State;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version of this layout; a worker adopts slots of its own version only.
///
/// A change of [`Slot`] needs a new number here, and a conversion in `layout`.
#[cfg(not(feature = "layout-test"))]
pub const SLOT_LAYOUT_VERSION: u32 = 1;
/// The layout of a build which tests upgrades: two fields have changed places.
#[cfg(feature = "layout-test")]
pub const SLOT_LAYOUT_VERSION: u32 = TRIAL_VERSION;

/// The layout of builds with the feature `layout-test`.
#[cfg(any(debug_assertions, feature = "layout-test"))]
pub(crate) const TRIAL_VERSION: u32 = 1001;

/// The note in the slab's header that has the seed of its connections' ids.
pub const ID_SEED_NOTE: usize = 0;

/// A connection. All zeroes means free.
#[repr(C)]
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Slot {
    /// The TLS state: secrets and sequence numbers.
    pub tls: State,
    tls_fd: i32,
    plain_fd: i32,
    /// Low halves of the sockets' cookies: a descriptor is believed only if its cookie matches.
    pub tls_cookie: u32,
    /// As `tls_cookie`, for the plain side; 0 where there is no such socket.
    pub plain_cookie: u32,
    /// What epoll was last told for each side: see `established::interest` of the data path.
    pub tls_watch: u8,
    /// As `tls_watch`, for the plain side.
    pub plain_watch: u8,
    /// Number of its route: it keeps its meaning, whatever reloads do (`supervisor::numbers`).
    pub route: u16,
    /// Flags (24 bits); above them the phase (4 bits), and what the timer runs for (4 bits).
    bits: u32,
    /// Distinguishes this connection from earlier ones in the same slot.
    pub generation: u32,
    /// Pending chunk of the opening flow: plaintext not yet taken, then `partial_len` bytes of a record.
    pub opening_pending: Handle,
    /// Pending chunk of the sealing flow: sealed records not yet taken.
    pub sealing_pending: Handle,
    /// Timer links and deadline, kept by `reactor::timer`.
    pub timer: Timer,
    /// CLOCK_BOOTTIME in seconds when the handshake was done.
    #[cfg(not(feature = "layout-test"))]
    pub opened_s: u32,
    /// CLOCK_BOOTTIME in seconds of the last event that moved bytes.
    /// While draining, when that began.
    pub active_s: u32,
    /// As above, in another place.
    #[cfg(feature = "layout-test")]
    pub opened_s: u32,
    /// The backend's place in the table of backends; 0: none.
    pub backend: u16,
    /// Bytes of a record's beginning at the end of the opening chunk.
    pub partial_len: u16,
    /// Place in the bounded table of client addresses (24 bits; 0: none); above it, which
    /// backends were tried while connecting (8 bits).
    address: u32,
}

const PHASE_SHIFT: u32 = 24;
const PURPOSE_SHIFT: u32 = 28;

const _: () = assert!(size_of::<State>() <= 128);
const _: () = assert!(size_of::<Slot>() <= 192);
const _: () = assert!(
    size_of::<Slot>().is_multiple_of(64),
    "slots must not straddle cache lines"
);
const _: () = assert!(std::mem::offset_of!(Slot, tls_fd) == 128);

/// Where a connection is in its life. Zero is `Free`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Phase {
    /// Nobody's.
    Free = 0,
    /// TLS is established; the backend's connection is not yet.
    Connecting = 1,
    /// Bytes pass both ways; the phase in which a connection rests.
    Established = 2,
    /// Over: what was received is still delivered, then each side is reset or ended as its
    /// flags say.
    Draining = 3,
    /// TLS to a server is established, and no local client has been given it yet. It rests.
    Warm = 4,
}

/// What the slot's one timer is running for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum TimerPurpose {
    /// Not running.
    None = 0,
    /// The backend has so long to accept.
    Connect = 1,
    /// The connect is tried again then: descriptors or ports had run out.
    RetryConnect = 2,
    /// The peer has so long to complete a record it began.
    PartialRecord = 3,
    /// The send queues of a draining connection are looked at again then.
    Drain = 4,
    /// Nothing moved for so long, or it is so old.
    Idle = 5,
}

/// One bit of [`Slot`] each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Flag {
    /// The route answers by itself: there is no plain side.
    Echo = 1 << 0,
    /// The plain side has ended cleanly; close_notify is sealed once `sealing_pending` has room.
    PlainEnded = 1 << 1,
    /// We have ended our sending to the plain side.
    PlainShut = 1 << 2,
    /// We have ended our sending on the TLS side's TCP connection.
    TlsShut = 1 << 3,
    /// The TLS side ended without close_notify and the route takes that for an end.
    TlsEnded = 1 << 4,
    /// While draining: reset the plain side when it has taken everything.
    ResetPlain = 1 << 5,
    /// While draining: reset the TLS side when it has taken everything.
    ResetTls = 1 << 6,
    /// While draining: all is said to the TLS peer; its end is awaited, so that our last record
    /// is not overtaken by a reset.
    LingerTls = 1 << 7,
    /// The opening flow waits for memory: the TLS side is not read until there is some.
    Starved = 1 << 8,
    /// The sealing flow waits for memory: the plain side is not read until there is some.
    SealingStarved = 1 << 9,
    /// The TLS side had something to say before the backend was there.
    TlsWaits = 1 << 11,
    /// A record was completed since the timer for partial ones was last looked at.
    RecordCompleted = 1 << 12,
    /// The opening chunk holds plaintext that the plain side did not take: do not read on.
    OpeningBlocked = 1 << 13,
    /// The plain side is a unix socket, which cannot express a reset.
    PlainIsUnix = 1 << 14,
    /// It was a warm connection, and nothing has passed since a local client was given it.
    Untouched = 1 << 15,
    /// TLS is between client and backend: the record state is empty, bytes pass untouched.
    PassThrough = 1 << 16,
    /// The plain side is one end of a joint, whose other end is the plain side of another slot:
    /// TLS goes in and out.
    Joined = 1 << 17,
    /// It has passed as many bytes as it may for now: neither side is read until then.
    Paced = 1 << 18,
}

impl Slot {
    /// Descriptor of the TLS side.
    pub fn tls_fd(&self) -> Fd {
        Fd(self.tls_fd)
    }

    /// Descriptor of the plain side; [`Fd::NONE`] where there is none.
    pub fn plain_fd(&self) -> Fd {
        if self.has(Flag::Echo) || self.plain_fd == 0 {
            Fd::NONE
        } else {
            Fd(self.plain_fd)
        }
    }

    /// Takes a new TLS connection in. The record state is written separately, in place, before.
    pub fn begin(&mut self, tls_fd: Fd, tls_cookie: u32, route: u16, generation: u32, now_s: u32) {
        self.tls_fd = tls_fd.0;
        self.tls_cookie = tls_cookie;
        self.route = route;
        self.generation = generation;
        self.opened_s = now_s;
        self.active_s = now_s;
    }

    /// Whether a flow waits for memory.
    pub fn is_starved(&self) -> bool {
        self.has(Flag::Starved) || self.has(Flag::SealingStarved)
    }

    /// Notes the plain side's descriptor.
    pub fn attach_plain(&mut self, fd: Fd, cookie: u32) {
        self.plain_fd = fd.0;
        self.plain_cookie = cookie;
    }

    /// Forgets the plain side's descriptor, which the caller closes after that.
    pub fn detach_plain(&mut self) -> Fd {
        let fd = self.plain_fd();
        self.plain_fd = 0;
        self.plain_cookie = 0;
        self.plain_watch = 0;
        fd
    }

    /// The phase; a value nobody wrote counts as free, and `validate` tells it apart.
    pub fn phase(&self) -> Phase {
        match self.bits >> PHASE_SHIFT & 0xf {
            1 => Phase::Connecting,
            2 => Phase::Established,
            3 => Phase::Draining,
            4 => Phase::Warm,
            _ => Phase::Free,
        }
    }

    /// Moves on to `phase`.
    pub fn set_phase(&mut self, phase: Phase) {
        self.bits = self.bits & !(0xf << PHASE_SHIFT) | (phase as u32) << PHASE_SHIFT;
    }

    /// What the timer runs for.
    pub fn timer_purpose(&self) -> TimerPurpose {
        match self.bits >> PURPOSE_SHIFT {
            1 => TimerPurpose::Connect,
            2 => TimerPurpose::RetryConnect,
            3 => TimerPurpose::PartialRecord,
            4 => TimerPurpose::Drain,
            5 => TimerPurpose::Idle,
            _ => TimerPurpose::None,
        }
    }

    /// Notes what the timer runs for.
    pub fn set_timer_purpose(&mut self, purpose: TimerPurpose) {
        self.bits = self.bits & !(0xf << PURPOSE_SHIFT) | (purpose as u32) << PURPOSE_SHIFT;
    }

    /// Is the flag set?
    pub fn has(&self, flag: Flag) -> bool {
        self.bits & flag as u32 != 0
    }

    /// Sets the flag.
    pub fn set(&mut self, flag: Flag) {
        self.bits |= flag as u32;
    }

    /// Clears the flag.
    pub fn clear(&mut self, flag: Flag) {
        self.bits &= !(flag as u32);
    }

    /// The client's place in the table of addresses; 0: none.
    pub fn client(&self) -> u32 {
        self.address & 0x00ff_ffff
    }

    /// Notes the client's place.
    pub fn set_client(&mut self, place: u32) {
        self.address = self.address & 0xff00_0000 | place & 0x00ff_ffff;
    }

    /// Which backends were tried while connecting: `balance::Tried`.
    pub fn tried(&self) -> u8 {
        (self.address >> 24) as u8
    }

    /// Notes which backends were tried.
    pub fn set_tried(&mut self, tried: u8) {
        self.address = u32::from(tried) << 24 | self.client();
    }

    /// Established with nothing pending: nothing but this slot is kept for the connection.
    pub fn at_rest(&self) -> bool {
        self.phase() == Phase::Established
            && self.opening_pending.is_none()
            && self.sealing_pending.is_none()
    }

    /// The end of the second in which bytes were moved last: no timeout that is counted from there
    /// comes too early.
    pub fn active_until_ms(&self) -> u64 {
        u64::from(self.active_s) * 1000 + 1000
    }

    /// Has our last word to the TLS side been said, or been passed on?
    pub fn sealing_over(&self) -> bool {
        if self.has(Flag::PassThrough) {
            self.has(Flag::PlainEnded)
        } else {
            self.tls.closed()
        }
    }

    /// The end of the second in which the handshake was done.
    pub fn opened_by_ms(&self) -> u64 {
        u64::from(self.opened_s) * 1000 + 1000
    }

    /// Can a new worker go on with what a former one left here?
    ///
    /// Looks at the slot alone; whether the descriptors are what they were is asked of the kernel.
    pub fn is_sound(&self) -> bool {
        let has_state = self.has(Flag::PassThrough) || self.tls.validate().is_ok();
        self.phase() != Phase::Free && self.tls_fd > 2 && has_state
    }
}

impl Timed for Slot {
    fn timer(&self) -> &Timer {
        &self.timer
    }

    fn timer_mut(&mut self) -> &mut Timer {
        &mut self.timer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros as _;

    #[test]
    fn a_zeroed_slot_is_free_and_not_sound() {
        let slot = Slot::new_zeroed();
        assert_eq!(slot.phase(), Phase::Free);
        assert!(!slot.at_rest());
        assert!(!slot.is_sound());
        assert_eq!(slot.plain_fd(), Fd::NONE);
        let mut slot = Slot::new_zeroed();
        slot.begin(Fd(5), 0, 0, 1, 0);
        slot.set_phase(Phase::Established);
        assert!(!slot.is_sound(), "TLS of ours needs its secrets");
        slot.set(Flag::PassThrough);
        assert!(slot.is_sound());
    }

    #[test]
    fn a_timeout_counts_from_the_end_of_the_second() {
        let mut slot = Slot::new_zeroed();
        // Bytes at 10.9 s: a second later is 11.9 s, and nothing may be due at 11.0 s.
        slot.active_s = 10;
        assert!(slot.active_until_ms() >= 10_900);
    }

    #[test]
    fn flags_are_independent() {
        let mut slot = Slot::new_zeroed();
        slot.set(Flag::Echo);
        slot.set(Flag::PlainShut);
        slot.clear(Flag::Echo);
        assert!(slot.has(Flag::PlainShut));
        assert!(!slot.has(Flag::Echo));
    }

    #[test]
    fn phase_purpose_and_flags_do_not_touch_each_other() {
        let mut slot = Slot::new_zeroed();
        slot.set(Flag::Echo);
        slot.set_timer_purpose(TimerPurpose::Idle);
        for phase in [Phase::Warm, Phase::Connecting, Phase::Established] {
            slot.set_phase(phase);
            assert_eq!(slot.phase(), phase);
        }
        slot.clear(Flag::Echo);
        assert_eq!(slot.timer_purpose(), TimerPurpose::Idle);
        slot.set_timer_purpose(TimerPurpose::None);
        assert_eq!(slot.phase(), Phase::Established);
    }
}
