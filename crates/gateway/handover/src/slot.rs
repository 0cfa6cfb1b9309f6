//! The slot: the whole state of a connection at rest.
//!
//! A slot is plain old data in shared memory. Between two events it is *everything* that exists of a
//! connection, and after a crash it is everything that the next worker has. So these rules hold:
//!
//! 1. All state that an established connection needs is in the slot, or in a pending chunk to which a
//!    handle in the slot refers.
//! 2. The slot is marked busy (in the slab's header) before a byte is taken from either of its sockets,
//!    and unmarked when everything is sent or stored.
//! 3. The slot is cleared before its descriptors are closed, so that a slot never names a descriptor that
//!    may already be reused.
//!
//! 128 bytes are the TLS state, 64 bytes are ours. Raise neither without a strong reason.

mod rest;

use dormouse_reactor::Fd;
use dormouse_reactor::pending::Handle;
use dormouse_reactor::timer::{Timed, Timer};
use dormouse_record::State;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version of this layout. A worker adopts only slots of its own version.
///
/// A change of [`Slot`] needs a new number here, and a conversion in `layout`.
#[cfg(not(feature = "layout-test"))]
pub const SLOT_LAYOUT_VERSION: u32 = 1;
/// Version of the layout for tests of upgrades, in which two fields are swapped.
#[cfg(feature = "layout-test")]
pub const SLOT_LAYOUT_VERSION: u32 = TRIAL_VERSION;

/// Version of the layout of builds with the feature `layout-test`.
pub(crate) const TRIAL_VERSION: u32 = 1001;

/// The note in the slab's header with the seed of connection ids.
pub const ID_SEED_NOTE: usize = 0;
/// The note in the slab's header with the latest generation of a connection.
pub const GENERATION_NOTE: usize = 1;

/// The slot of a connection. All zeroes: free.
#[repr(C)]
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Slot {
    /// The TLS state: secrets and sequence numbers.
    pub tls: State,
    tls_fd: i32,
    plain_fd: i32,
    /// Low half of the TLS socket's cookie. The descriptor is valid only if its cookie matches.
    pub tls_cookie: u32,
    /// Low half of the plain socket's cookie; 0 without such a socket.
    pub plain_cookie: u32,
    /// The TLS side's interest as epoll has it: see `established::interest` of the data path.
    pub tls_watch: u8,
    /// The plain side's interest as epoll has it.
    pub plain_watch: u8,
    /// Number of the route, which stays valid through reloads (`supervisor::route_numbers`).
    pub route: u16,
    /// Flags (24 bits), then the phase (4 bits), then the purpose of the timer (4 bits).
    bits: u32,
    /// Distinguishes this connection from earlier ones in the same slot.
    pub generation: u32,
    /// Pending chunk of the opening flow: unsent plaintext, then `partial_len` bytes of a record.
    pub opening_pending: Handle,
    /// Pending chunk of the sealing flow: unsent records.
    pub sealing_pending: Handle,
    /// Timer links and deadline, managed by `reactor::timer`.
    pub timer: Timer,
    /// End of the handshake, in seconds of CLOCK_BOOTTIME.
    #[cfg(not(feature = "layout-test"))]
    pub opened_s: u32,
    /// Last event that moved bytes, in seconds of CLOCK_BOOTTIME. While draining, the start of the drain.
    pub active_s: u32,
    /// End of the handshake, in another place.
    #[cfg(feature = "layout-test")]
    pub opened_s: u32,
    /// The backend's place in the table of backends; 0: none.
    pub backend: u16,
    /// Length of the partial record at the end of the opening chunk.
    pub partial_len: u16,
    /// Place in the table of client addresses (24 bits; 0: none), then the backends tried while connecting
    /// (8 bits).
    address: u32,
}

const PHASE_SHIFT: u32 = 24;
const PURPOSE_SHIFT: u32 = 28;

// The bits of the plain side and of the two ends, among the flags.
const ECHO: u32 = 1 << 0;
const RESET_PLAIN: u32 = 1 << 5;
const RESET_TLS: u32 = 1 << 6;
const LINGER_TLS: u32 = 1 << 7;
const PLAIN_IS_UNIX: u32 = 1 << 14;
const JOINED: u32 = 1 << 17;
// A side of which `tls_cookie` and `tls_watch`, or those of the plain side, are a record's number and a `SideRest`.
const TLS_RESTS: u32 = 1 << 22;
const PLAIN_RESTS: u32 = 1 << 23;

const _: () = assert!(size_of::<State>() <= 128);
const _: () = assert!(size_of::<Slot>() <= 192);
const _: () = assert!(
    size_of::<Slot>().is_multiple_of(64),
    "slots must not straddle cache lines"
);
const _: () = assert!(std::mem::offset_of!(Slot, tls_fd) == 128);

/// Phase of a connection's life. Zero is `Free`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Phase {
    /// The slot is not used.
    Free = 0,
    /// TLS is established; the backend is not connected yet.
    Connecting = 1,
    /// Established on both sides. A connection at rest is in this phase.
    Established = 2,
    /// Over: received bytes are still delivered, then each side is reset or closed according to its flags.
    Draining = 3,
    /// TLS to a server is established, and no local client uses the connection yet.
    Warm = 4,
}

/// Purpose of the slot's timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum TimerPurpose {
    /// The timer is not running.
    None = 0,
    /// Timeout of a connect to a backend.
    Connect = 1,
    /// Retry of a connect for which descriptors or ports had run out.
    RetryConnect = 2,
    /// Timeout of a partial record.
    PartialRecord = 3,
    /// Next check of a draining connection's send queues.
    Drain = 4,
    /// Idle timeout, or maximum age.
    Idle = 5,
    /// Next step of a rest or a wake.
    Rest = 6,
}

/// The two sides of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The TLS peer.
    Tls,
    /// The backend, or the local client.
    Plain,
}

/// The two sides.
pub const SIDES: [Side; 2] = [Side::Tls, Side::Plain];

/// Where the socket of a side is, which may be in deep rest. No value has a bit of an epoll watch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SideRest {
    /// Here, and the side is like any other.
    Awake = 10,
    /// Here, between the two: its cookie is not noted.
    Between = 0,
    /// Here, and the repair process was asked to take it.
    Bedding = 2,
    /// Nowhere: the repair process has the connection.
    Abed = 4,
    /// Here, but it does not speak yet.
    Waking = 6,
    /// Nowhere: the peer has reset the connection, or has vanished.
    Gone = 8,
}

/// What is on the plain side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlainSide {
    /// A TCP socket, or nothing yet.
    Tcp,
    /// A unix socket, which cannot express a reset.
    Unix,
    /// One end of a joint, whose other end is the plain side of another slot.
    Joint,
    /// Nothing: the route echoes plaintext.
    Echo,
}

/// How the TLS side of a draining connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlsEnd {
    /// The socket is closed.
    Close,
    /// The peer closes first, so that a reset does not overtake our last record.
    Linger,
    /// The socket is reset when it has taken everything.
    Reset,
}

/// How the plain side of a draining connection ends, when it has taken everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlainEnd {
    /// The socket is closed.
    Close,
    /// The socket is reset.
    Reset,
}

/// Flags of a [`Slot`], one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Flag {
    /// The plain side has ended properly; close_notify is sealed when `sealing_pending` has room.
    PlainEnded = 1 << 1,
    /// We have closed our direction to the plain side.
    PlainShut = 1 << 2,
    /// We have closed our direction of the TLS side's TCP connection.
    TlsShut = 1 << 3,
    /// The TLS side ended without close_notify, and the route accepts that as a proper end.
    TlsEnded = 1 << 4,
    /// The opening flow waits for memory, or for its destination; the TLS side is not read until then.
    Starved = 1 << 8,
    /// The sealing flow waits for memory, or for the TLS side; the plain side is not read until then.
    SealingStarved = 1 << 9,
    /// TLS is established, and the backend is connected only when the client sends something.
    AwaitsClient = 1 << 10,
    /// The TLS side has sent data before the backend was connected.
    TlsWaits = 1 << 11,
    /// A record was completed since the timer for partial records was last armed.
    RecordCompleted = 1 << 12,
    /// The opening chunk holds plaintext that the plain side did not take; the TLS side is not read.
    OpeningBlocked = 1 << 13,
    /// The connection was warm, and no byte has moved since a local client got it.
    Untouched = 1 << 15,
    /// Pass-through: the TLS state is empty, and bytes are forwarded unchanged.
    PassThrough = 1 << 16,
    /// The connection waits because of a byte rate limit; neither side is read until then.
    Paced = 1 << 18,
    /// While memory is short: a part of a record is in the kernel. The opening flow waits for the rest, or for memory.
    AwaitsRecord = 1 << 19,
    /// The opening flow is starved until its destination has drained, which an event reports.
    OpeningHeld = 1 << 20,
    /// The sealing flow is starved until the TLS side has drained, which an event reports.
    SealingHeld = 1 << 21,
    /// The backend is connected, and its greeting has not arrived as a whole. The phase is still `Connecting`.
    AwaitsGreeting = 1 << 31,
}

/// Everything that shares the slot's 32 bits.
const BITS: [u32; 27] = [
    0xf << PHASE_SHIFT,
    0x7 << PURPOSE_SHIFT,
    ECHO,
    RESET_PLAIN,
    RESET_TLS,
    LINGER_TLS,
    PLAIN_IS_UNIX,
    JOINED,
    TLS_RESTS,
    PLAIN_RESTS,
    Flag::PlainEnded as u32,
    Flag::PlainShut as u32,
    Flag::TlsShut as u32,
    Flag::TlsEnded as u32,
    Flag::Starved as u32,
    Flag::SealingStarved as u32,
    Flag::AwaitsClient as u32,
    Flag::TlsWaits as u32,
    Flag::RecordCompleted as u32,
    Flag::OpeningBlocked as u32,
    Flag::Untouched as u32,
    Flag::PassThrough as u32,
    Flag::Paced as u32,
    Flag::AwaitsRecord as u32,
    Flag::OpeningHeld as u32,
    Flag::SealingHeld as u32,
    Flag::AwaitsGreeting as u32,
];

const _: () = {
    let (mut all, mut at) = (0, 0);
    while at < BITS.len() {
        assert!(all & BITS[at] == 0, "two meanings of one bit");
        all |= BITS[at];
        at += 1;
    }
};

impl Slot {
    /// Descriptor of the TLS side.
    pub fn tls_fd(&self) -> Fd {
        Fd(self.tls_fd)
    }

    /// Descriptor of the plain side; [`Fd::NONE`] if there is none.
    pub fn plain_fd(&self) -> Fd {
        if self.is_echo() || self.plain_fd == 0 {
            Fd::NONE
        } else {
            Fd(self.plain_fd)
        }
    }

    /// Initializes the slot for a new TLS connection, in the phase [`Phase::Connecting`]: if the worker dies from now on,
    /// its successor ends the connection. The TLS state is written separately, in place.
    pub fn begin(&mut self, tls_fd: Fd, tls_cookie: u32, route: u16, generation: u32, now_s: u32) {
        self.tls_fd = tls_fd.0;
        self.tls_cookie = tls_cookie;
        self.route = route;
        self.generation = generation;
        self.opened_s = now_s;
        self.active_s = now_s;
        self.set_phase(Phase::Connecting);
    }

    /// Whether a flow waits for memory.
    pub fn is_starved(&self) -> bool {
        self.has(Flag::Starved) || self.has(Flag::SealingStarved) || self.has(Flag::AwaitsRecord)
    }

    /// Sets the plain side's descriptor.
    pub fn attach_plain(&mut self, fd: Fd, cookie: u32) {
        self.plain_fd = fd.0;
        self.plain_cookie = cookie;
    }

    /// Removes and returns the plain side's descriptor, which the caller then closes.
    pub fn detach_plain(&mut self) -> Fd {
        let fd = self.plain_fd();
        self.plain_fd = 0;
        self.plain_cookie = 0;
        self.plain_watch = 0;
        fd
    }

    /// The phase. An invalid value counts as free, so that `is_sound` refuses the slot.
    pub fn phase(&self) -> Phase {
        match self.bits >> PHASE_SHIFT & 0xf {
            1 => Phase::Connecting,
            2 => Phase::Established,
            3 => Phase::Draining,
            4 => Phase::Warm,
            _ => Phase::Free,
        }
    }

    /// Sets the phase.
    pub fn set_phase(&mut self, phase: Phase) {
        self.bits = self.bits & !(0xf << PHASE_SHIFT) | (phase as u32) << PHASE_SHIFT;
    }

    /// The purpose of the timer.
    pub fn timer_purpose(&self) -> TimerPurpose {
        match self.bits >> PURPOSE_SHIFT & 0x7 {
            1 => TimerPurpose::Connect,
            2 => TimerPurpose::RetryConnect,
            3 => TimerPurpose::PartialRecord,
            4 => TimerPurpose::Drain,
            5 => TimerPurpose::Idle,
            6 => TimerPurpose::Rest,
            _ => TimerPurpose::None,
        }
    }

    /// Sets the purpose of the timer.
    pub fn set_timer_purpose(&mut self, purpose: TimerPurpose) {
        self.bits = self.bits & !(0x7 << PURPOSE_SHIFT) | (purpose as u32) << PURPOSE_SHIFT;
    }

    /// Whether the flag is set.
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

    /// What is on the plain side.
    #[inline]
    pub fn plain_side(&self) -> PlainSide {
        if self.is_echo() {
            PlainSide::Echo
        } else if self.is_joined() {
            PlainSide::Joint
        } else if self.bits & PLAIN_IS_UNIX != 0 {
            PlainSide::Unix
        } else {
            PlainSide::Tcp
        }
    }

    /// Sets what is on the plain side.
    pub fn set_plain_side(&mut self, side: PlainSide) {
        let bits = match side {
            PlainSide::Tcp => 0,
            PlainSide::Unix => PLAIN_IS_UNIX,
            PlainSide::Joint => PLAIN_IS_UNIX | JOINED,
            PlainSide::Echo => ECHO,
        };
        self.bits = self.bits & !(ECHO | PLAIN_IS_UNIX | JOINED) | bits;
    }

    /// Whether the route echoes plaintext.
    #[inline]
    pub fn is_echo(&self) -> bool {
        self.bits & ECHO != 0
    }

    /// Whether the plain side is one end of a joint.
    #[inline]
    pub fn is_joined(&self) -> bool {
        self.bits & JOINED != 0
    }

    /// How the TLS side ends, while draining.
    #[inline]
    pub fn tls_end(&self) -> TlsEnd {
        if self.bits & RESET_TLS != 0 {
            TlsEnd::Reset
        } else if self.bits & LINGER_TLS != 0 {
            TlsEnd::Linger
        } else {
            TlsEnd::Close
        }
    }

    /// Sets how the TLS side ends.
    pub fn set_tls_end(&mut self, end: TlsEnd) {
        let bits = match end {
            TlsEnd::Close => 0,
            TlsEnd::Linger => LINGER_TLS,
            TlsEnd::Reset => RESET_TLS,
        };
        self.bits = self.bits & !(RESET_TLS | LINGER_TLS) | bits;
    }

    /// How the plain side ends, while draining.
    #[inline]
    pub fn plain_end(&self) -> PlainEnd {
        match self.bits & RESET_PLAIN {
            0 => PlainEnd::Close,
            _ => PlainEnd::Reset,
        }
    }

    /// Sets how the plain side ends.
    pub fn set_plain_end(&mut self, end: PlainEnd) {
        let bits = match end {
            PlainEnd::Close => 0,
            PlainEnd::Reset => RESET_PLAIN,
        };
        self.bits = self.bits & !RESET_PLAIN | bits;
    }

    /// The client's place in the table of client addresses; 0: none.
    pub fn client(&self) -> u32 {
        self.address & 0x00ff_ffff
    }

    /// Sets the client's place.
    pub fn set_client(&mut self, place: u32) {
        self.address = self.address & 0xff00_0000 | place & 0x00ff_ffff;
    }

    /// The backends tried while connecting: `balance::Tried`.
    pub fn tried(&self) -> u8 {
        (self.address >> 24) as u8
    }

    /// Sets the backends tried.
    pub fn set_tried(&mut self, tried: u8) {
        self.address = u32::from(tried) << 24 | self.client();
    }

    /// Whether the connection is at rest: nothing is pending, so only this slot exists.
    pub fn at_rest(&self) -> bool {
        (matches!(self.phase(), Phase::Established | Phase::Warm) || self.awaits_client())
            && self.opening_pending.is_none()
            && self.sealing_pending.is_none()
    }

    /// Whether no backend is connected, because the client has sent nothing yet.
    pub fn awaits_client(&self) -> bool {
        self.phase() == Phase::Connecting && self.has(Flag::AwaitsClient)
    }

    /// End of the second in which bytes were last moved, so that no timeout counted from there fires early.
    pub fn active_until_ms(&self) -> u64 {
        u64::from(self.active_s) * 1000 + 1000
    }

    /// Whether the TLS side has ended: by close_notify, or by a FIN that its route accepts.
    #[inline]
    pub fn has_tls_ended(&self) -> bool {
        self.tls.peer_closed() || self.has(Flag::TlsEnded)
    }

    /// Whether we have ended our direction of TLS, or passed on the backend's end.
    pub fn sealing_over(&self) -> bool {
        if self.has(Flag::PassThrough) {
            self.has(Flag::PlainEnded)
        } else {
            self.tls.closed()
        }
    }

    /// End of the second in which the handshake was done.
    pub fn opened_by_ms(&self) -> u64 {
        u64::from(self.opened_s) * 1000 + 1000
    }

    /// Whether a new worker can continue with this slot of a former one.
    ///
    /// This checks only the slot itself. Whether the descriptors are still the same sockets is checked
    /// separately, by their cookies.
    pub fn is_sound(&self) -> bool {
        let has_state = self.has(Flag::PassThrough) || self.tls.validate().is_ok();
        let has_socket = match self.side_rest(Side::Tls) {
            SideRest::Abed | SideRest::Gone => true,
            _ => self.tls_fd > 2,
        };
        self.phase() != Phase::Free && has_socket && has_state
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
        assert!(!slot.is_sound(), "without a TLS state");
        slot.set(Flag::PassThrough);
        assert!(slot.is_sound());
    }

    #[test]
    fn a_warm_connection_is_at_rest() {
        let mut slot = Slot::new_zeroed();
        slot.begin(Fd(5), 0, 0, 1, 0);
        for (phase, rests) in [(Phase::Connecting, false), (Phase::Warm, true)] {
            slot.set_phase(phase);
            assert_eq!(slot.at_rest(), rests, "{phase:?}");
        }
    }

    #[test]
    fn a_timeout_counts_from_the_end_of_the_second() {
        let mut slot = Slot::new_zeroed();
        // Bytes moved at 10.9 s: a timeout of one second must not fire at 11.0 s.
        slot.active_s = 10;
        assert!(slot.active_until_ms() >= 10_900);
    }

    #[test]
    fn flags_are_independent() {
        let mut slot = Slot::new_zeroed();
        slot.set(Flag::TlsShut);
        slot.set(Flag::PlainShut);
        slot.clear(Flag::TlsShut);
        assert!(slot.has(Flag::PlainShut));
        assert!(!slot.has(Flag::TlsShut));
    }

    /// The bits are those of version 1 of the layout.
    #[test]
    fn a_plain_side_and_two_ends_have_their_bits_among_the_flags() {
        let mut slot = Slot::new_zeroed();
        slot.set(Flag::PassThrough);
        let flags = slot.bits;
        for (side, bits) in [
            (PlainSide::Joint, 0x2_4000),
            (PlainSide::Unix, 0x4000),
            (PlainSide::Echo, 1),
            (PlainSide::Tcp, 0),
        ] {
            slot.set_plain_side(side);
            assert_eq!(slot.plain_side(), side);
            assert_eq!(slot.bits, flags | bits);
        }
        for (end, bits) in [
            (TlsEnd::Linger, 0x80),
            (TlsEnd::Reset, 0x40),
            (TlsEnd::Close, 0),
        ] {
            slot.set_tls_end(end);
            assert_eq!(slot.tls_end(), end);
            assert_eq!(slot.bits, flags | bits);
        }
        for (end, bits) in [(PlainEnd::Reset, 0x20), (PlainEnd::Close, 0)] {
            slot.set_plain_end(end);
            assert_eq!(slot.plain_end(), end);
            assert_eq!(slot.bits, flags | bits);
        }
    }

    #[test]
    fn phase_purpose_and_flags_are_independent() {
        let mut slot = Slot::new_zeroed();
        slot.set(Flag::TlsShut);
        slot.set_timer_purpose(TimerPurpose::Idle);
        for phase in [Phase::Warm, Phase::Connecting, Phase::Established] {
            slot.set_phase(phase);
            assert_eq!(slot.phase(), phase);
        }
        slot.clear(Flag::TlsShut);
        assert_eq!(slot.timer_purpose(), TimerPurpose::Idle);
        slot.set_timer_purpose(TimerPurpose::None);
        assert_eq!(slot.phase(), Phase::Established);
    }
}
