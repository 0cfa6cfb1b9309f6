//! Version of the state's layout, and the bits of its flags.

/// First byte of every [`State`](crate::State) that is in use. A state with another version needs a conversion.
pub const LAYOUT_VERSION: u8 = 1;

/// close_notify received, or a fatal alert: nothing more is opened.
pub(crate) const PEER_CLOSED: u8 = 1;
/// close_notify or a fatal alert sent (or a fatal one received): nothing more is sealed.
pub(crate) const CLOSED: u8 = 1 << 1;
/// A fatal alert was received or sent, or a record refused: only our own alert may still go out.
pub(crate) const FAILED: u8 = 1 << 2;
/// The peer's KeyUpdate said update_requested, and ours is still to be sent.
pub(crate) const KEY_UPDATE_REQUESTED: u8 = 1 << 3;
/// Our KeyUpdate said update_requested, and the peer's is still to come.
pub(crate) const KEY_UPDATE_ASKED: u8 = 1 << 4;
/// A secret is being replaced. Seen only by whoever comes after a crash.
pub(crate) const REPLACING: u8 = 1 << 5;
/// TLS 1.2: the level byte of an alert has come (warning), its description has not.
pub(crate) const HALF_WARNING: u8 = 1 << 6;
/// TLS 1.2: the level byte of an alert has come (fatal), its description has not.
pub(crate) const HALF_FATAL: u8 = 1 << 7;
