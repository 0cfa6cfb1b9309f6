//! Access to this crate's parsers of untrusted bytes, for `fuzz/` only.

use crate::layout;
use crate::orders::{Order, WorkerReport};
use crate::parts;
use crate::stored::{Packed, RouteToStore, Stored};
use dormouse_reactor::memory::{Mapping, PAGE};
use std::io;

/// Decodes an order of main to a worker, and encodes it again.
///
/// # Errors
/// The bytes are not an order.
pub fn order(kind: u8, body: &[u8]) -> io::Result<Vec<u8>> {
    Order::decode(kind, body, &[]).map(|order| order.encode().to_vec())
}

/// Decodes a worker's report, and encodes it again.
///
/// # Errors
/// The bytes are not a report.
pub fn worker_report(kind: u8, body: &[u8]) -> io::Result<Vec<u8>> {
    WorkerReport::decode(kind, body).map(|report| report.encode().to_vec())
}

/// Converts a slot of the given layout. Returns whether it is a consistent slot.
pub fn is_sound_slot(version: u32, bytes: &[u8]) -> bool {
    layout::convert_slot(version, bytes).is_some_and(|slot| {
        // The methods that a worker calls on each slot that it takes over.
        let _ = (
            slot.phase(),
            slot.timer_purpose(),
            slot.at_rest(),
            slot.client(),
            slot.tried(),
        );
        let _ = (
            slot.active_until_ms(),
            slot.sealing_over(),
            slot.opened_by_ms(),
        );
        slot.is_sound()
    })
}

/// Reads the parts of a memory file with this content, and the routes in it.
///
/// # Errors
/// The content is not in this format.
pub fn parts_of(content: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    let mut file = Mapping::create("dormouse-fuzz", content.len().max(1).next_multiple_of(PAGE))?;
    let fd = file.fd();
    if let Some(room) = file.bytes_mut().get_mut(..content.len()) {
        room.copy_from_slice(content);
    }
    let read = parts::locate(fd).and_then(|parts| {
        let part = |part| parts::read(fd, part).map(|bytes| bytes.to_vec());
        parts.into_iter().map(part).collect()
    });
    if let Ok(stored) = Stored::locate(fd)
        && let Ok(routes) = stored.read_all()
    {
        // Packed again, they are the same.
        let to_store = routes.iter().map(|(one, certificates)| RouteToStore {
            name: &one.name,
            route: &one.route,
            clients: one.clients.as_ref(),
            backend_tls: one.backend_tls.as_ref(),
            certificates,
        });
        let packed = Packed::of(&[], to_store, [])?;
        let (table, texts) = (&packed.table, &packed.texts);
        let file = parts::write_all([&[], &[], &[], table, &packed.certificates, texts])?;
        let again = Stored::locate(file).and_then(|stored| stored.read_all());
        file.close();
        assert!(again? == routes);
    }
    fd.close();
    read
}
