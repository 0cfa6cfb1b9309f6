//! The connections of a thread, found by number.
//!
//! A number holds a place in the table and the place's generation, so that a number from before `release` does
//! not find the next connection in the same place. Each connection stays where it was allocated: a table that
//! moved them would leave copies of their secrets behind.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use dormouse_embed::{ClientHello, End, Exporter, Session};

use crate::client_session::OneSession;
use crate::details::Details;
use crate::errors::{self, Result};

/// A connection.
pub(crate) struct Connection {
    pub(crate) session: Session,
    pub(crate) details: Option<Rc<Details>>,
    pub(crate) rare: Option<Box<Rare>>,
    /// Suite, by its number in `suites`.
    pub(crate) suite: u8,
    pub(crate) is_resumed: bool,
    /// What is wrong with the peer's certificate, by its number in `judge`; 0: nothing.
    pub(crate) problem: u8,
}

/// What most connections at rest do not have.
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

/// A place, whose generation counts its connections so far.
#[derive(Default)]
struct Place {
    connection: Option<Box<Connection>>,
    generation: u8,
}

#[derive(Default)]
struct Table {
    places: Vec<Place>,
    free: Vec<u32>,
}

thread_local! {
    static TABLE: RefCell<Table> = RefCell::default();
}

/// Adds a connection and returns its number, which is below 2^30: V8 keeps such a number without an object.
pub(crate) fn insert(connection: Connection) -> Result<u32> {
    let connection = Some(Box::new(connection));
    TABLE.with_borrow_mut(|table| {
        let at = match table.free.pop() {
            Some(at) => at,
            None if table.places.len() < PLACES_MAX => {
                table.places.push(Place::default());
                table.places.len() as u32 - 1
            }
            None => {
                let why = format!("{PLACES_MAX} connections are open, the limit of a thread");
                return Err(errors::Error::new("ERR_DORMOUSE_LIMIT", why));
            }
        };
        let place = table.places.get_mut(at as usize).ok_or_else(errors::gone)?;
        place.connection = connection;
        Ok(u32::from(place.generation) << PLACE_BITS | at)
    })
}

/// Calls `work` with a connection.
pub(crate) fn with<T>(number: u32, work: impl FnOnce(&mut Connection) -> Result<T>) -> Result<T> {
    TABLE.with_borrow_mut(|table| work(table.find(number).ok_or_else(errors::gone)?))
}

/// Drops a connection, which wipes its secrets. Does nothing if it is dropped already.
pub(crate) fn release(number: u32) {
    let dropped = TABLE.with_borrow_mut(|table| {
        let connection = table.place(number)?.connection.take()?;
        let place = table.place(number)?;
        place.generation = place.generation.wrapping_add(1);
        table.free.push(number & PLACE_MASK);
        Some(connection)
    });
    drop(dropped);
}

impl Table {
    fn place(&mut self, number: u32) -> Option<&mut Place> {
        let place = self.places.get_mut((number & PLACE_MASK) as usize)?;
        (u32::from(place.generation) == number >> PLACE_BITS).then_some(place)
    }

    fn find(&mut self, number: u32) -> Option<&mut Connection> {
        self.place(number)?.connection.as_deref_mut()
    }
}
