//! Version of the state's layout, and its flag bits.

/// First byte of every [`State`](crate::State) that is in use. A state with another version needs a conversion.
pub const LAYOUT_VERSION: u8 = 1;

/// close_notify or a fatal alert received: nothing more is opened.
pub(crate) const PEER_CLOSED: u8 = 1;
/// close_notify or a fatal alert sent (or a fatal one received): nothing more is sealed.
pub(crate) const CLOSED: u8 = 1 << 1;
/// A fatal alert was received or sent, or a record refused: only our own alert can still be sent.
pub(crate) const FAILED: u8 = 1 << 2;
/// The peer's KeyUpdate said update_requested, and ours is not sent yet.
pub(crate) const KEY_UPDATE_REQUESTED: u8 = 1 << 3;
/// Our KeyUpdate said update_requested, and the peer's has not arrived yet.
pub(crate) const KEY_UPDATE_ASKED: u8 = 1 << 4;
/// A secret is being replaced. Only a process that recovers states after a crash ever sees it.
pub(crate) const REPLACING: u8 = 1 << 5;
/// TLS 1.2: the level byte of a warning alert was received, but not its description.
pub(crate) const HALF_WARNING: u8 = 1 << 6;
/// TLS 1.2: the level byte of a fatal alert was received, but not its description.
pub(crate) const HALF_FATAL: u8 = 1 << 7;
