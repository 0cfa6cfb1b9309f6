//! Tokens of main's poller.

pub(crate) const SIGNALS: u64 = 1;
pub(crate) const CONTROL: u64 = 2;
pub(crate) const TICKET_KEYS: u64 = 3;
pub(crate) const MONITOR: u64 = 4;
pub(crate) const LOOKUP: u64 = 5;
pub(crate) const ERRAND: u64 = 6;
pub(crate) const REDIRECT: u64 = 7;
pub(crate) const LOG_WRITER: u64 = 8;
pub(crate) const REPAIR: u64 = 9;
pub(crate) const SIGNER: u64 = 10;
pub(crate) const SPIFFE: u64 = 11;
/// Token of the first worker; the others follow.
pub(crate) const WORKERS: u64 = 1000;
