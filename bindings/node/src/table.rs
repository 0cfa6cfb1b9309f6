//! The connections of a thread, found by number.
//!
//! A number holds a place in the table and the place's generation, so that a number from before `release` does
//! not find the next connection in the same place. Places are allocated in blocks: a table that moved connections
//! would leave copies of their secrets behind, and single allocations would keep pages from handshakes in use.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use dormouse_embed::{ClientHello, End, Exporter, KeptKeys, Session};

use crate::client_session::OneSession;
use crate::details::Details;
use crate::errors::{self, Result};

/// A connection.
pub(crate) struct Connection {
    pub(crate) session: Session,
    pub(crate) details: Option<Rc<Details>>,
    pub(crate) rare: Option<Box<Rare>>,
    /// The number of its suite ([`dormouse_embed::NamedSuite`]).
    pub(crate) suite: u8,
    pub(crate) is_resumed: bool,
    /// The problem with the peer's certificate, by its number in `judge`; 0: none.
    pub(crate) problem: u8,
}

/// Data that most connections at rest do not have.
#[derive(Default)]
pub(crate) struct Rare {
    pub(crate) end: Option<End>,
    pub(crate) hello: Option<ClientHello>,
    pub(crate) exporter: Option<Arc<Exporter>>,
    pub(crate) resumption: Option<Arc<OneSession>>,
    pub(crate) key_log: Vec<String>,
    pub(crate) plaintext: Vec<u8>,
}

impl Connection {
    pub(crate) fn new(session: Session) -> Connection {
        Connection {
            session,
            details: None,
            rare: None,
            suite: u8::MAX,
            is_resumed: false,
            problem: 0,
        }
    }

    pub(crate) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }
}

const PLACE_BITS: u32 = 22;
const PLACES_MAX: usize = 1 << PLACE_BITS;
const PLACE_MASK: u32 = (1 << PLACE_BITS) - 1;

/// Places that are allocated together.
const BLOCK_LEN: usize = 64;

/// A place. Its generation is the number of connections that it has had.
#[derive(Default)]
struct Place {
    connection: Option<Connection>,
    generation: u8,
}

#[derive(Default)]
struct Blocks(Vec<Box<[Place]>>);

#[derive(Default)]
struct Table {
    blocks: Blocks,
    free: Vec<u32>,
    keys: KeptKeys,
}

thread_local! {
    static TABLE: RefCell<Table> = RefCell::default();
}

/// Adds a connection and returns its number, which is below 2^30: V8 keeps such a number without an object.
pub(crate) fn insert(connection: Connection) -> Result<u32> {
    TABLE.with_borrow_mut(|table| {
        if table.free.is_empty() {
            table.grow()?;
        }
        let at = table.free.pop().ok_or_else(errors::gone)?;
        let place = table.blocks.at(at).ok_or_else(errors::gone)?;
        place.connection = Some(connection);
        Ok(u32::from(place.generation) << PLACE_BITS | at)
    })
}

/// Calls `work` with a connection.
pub(crate) fn with<T>(number: u32, work: impl FnOnce(&mut Connection) -> Result<T>) -> Result<T> {
    with_keys(number, |connection, _| work(connection))
}

/// Calls `work` with a connection and the thread's kept keys.
pub(crate) fn with_keys<T>(
    number: u32,
    work: impl FnOnce(&mut Connection, &mut KeptKeys) -> Result<T>,
) -> Result<T> {
    TABLE.with_borrow_mut(|table| {
        let connection = table.blocks.find(number).ok_or_else(errors::gone)?;
        let result = work(connection, &mut table.keys);
        // Most calls know no kept keys, and may replace a secret.
        table
            .keys
            .forget_replaced(number.into(), &connection.session);
        result
    })
}

/// Drops a connection, which wipes its secrets. Does nothing if it is dropped already.
pub(crate) fn release(number: u32) {
    TABLE.with_borrow_mut(|table| {
        if let Some(place) = table.blocks.place(number)
            && place.connection.is_some()
        {
            place.connection = None;
            place.generation = place.generation.wrapping_add(1);
            table.free.push(number & PLACE_MASK);
            table.keys.forget(number.into());
        }
    });
}

impl Table {
    fn grow(&mut self) -> Result<()> {
        let first = self.blocks.0.len() * BLOCK_LEN;
        if first >= PLACES_MAX {
            let why = format!("{PLACES_MAX} connections are open, the limit of a thread");
            return Err(errors::Error::new("ERR_DORMOUSE_LIMIT", why));
        }
        self.blocks
            .0
            .push((0..BLOCK_LEN).map(|_| Place::default()).collect());
        let places = first as u32..(first + BLOCK_LEN) as u32;
        self.free.extend(places.rev());
        Ok(())
    }
}

impl Blocks {
    fn at(&mut self, at: u32) -> Option<&mut Place> {
        let at = at as usize;
        self.0.get_mut(at / BLOCK_LEN)?.get_mut(at % BLOCK_LEN)
    }

    fn place(&mut self, number: u32) -> Option<&mut Place> {
        let place = self.at(number & PLACE_MASK)?;
        (u32::from(place.generation) == number >> PLACE_BITS).then_some(place)
    }

    fn find(&mut self, number: u32) -> Option<&mut Connection> {
        self.place(number)?.connection.as_mut()
    }
}
