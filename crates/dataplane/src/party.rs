//! The parties to a connection.

use dormouse_handover::slot::Slot;
use dormouse_record::Role;

/// A party to a connection. Entries of the connection log have its number, which must not change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Party {
    Client = 1,
    Backend = 2,
    Dormouse = 3,
}

impl Party {
    /// The party's name in logs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Party::Client => "client",
            Party::Backend => "backend",
            Party::Dormouse => "dormouse",
        }
    }
}

/// The parties at the two sides of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Sides {
    pub(crate) tls: Party,
    pub(crate) plain: Party,
}

impl Sides {
    pub(crate) fn of(slot: &Slot) -> Sides {
        let (tls, plain) = match slot.tls.role() {
            Role::Client => (Party::Backend, Party::Client),
            Role::Server => (Party::Client, Party::Backend),
        };
        Sides { tls, plain }
    }
}
