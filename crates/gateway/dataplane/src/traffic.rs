//! Counters of connections by route and by backend.
//!
//! Each step adds its bytes once, at its end, to the worker's counters and to the rows of the slot's
//! route and backend. A TLS connection to a backend (`backend_tls`) has a slot of its own; only the
//! client's slot is counted.

use crate::close_reason::CloseReason;
use crate::io::Io;
use crate::outcome::StepBytes;
use crate::traced_end;
use crate::workspace::Workspace;
use dormouse_handover::slot::{Phase, Slot};
use dormouse_record::Role;
use dormouse_tables::counters::{Count, Counters};
use dormouse_tables::traffic::{Row, Tally, Traffic};

/// Counts the bytes of a finished step.
pub(crate) fn count_step<I>(slot: &Slot, bytes: &StepBytes, work: &Workspace<I>) {
    if bytes.is_none() {
        return;
    }
    let of_all = [
        (Count::TlsBytesIn, bytes.tls_in),
        (Count::TlsBytesOut, bytes.tls_out),
        (Count::PlainBytesIn, bytes.plain_in),
        (Count::PlainBytesOut, bytes.plain_out),
    ];
    add_to_worker(&work.count, &of_all);
    let Rows { route, backend } = Rows::of(slot);
    let traffic = &work.traffic;
    traffic.add(route, Tally::TlsBytesIn, bytes.tls_in);
    traffic.add(route, Tally::TlsBytesOut, bytes.tls_out);
    for row in [route, backend] {
        traffic.add(row, Tally::PlainBytesIn, bytes.plain_in);
        traffic.add(row, Tally::PlainBytesOut, bytes.plain_out);
    }
}

fn add_to_worker(count: &Counters, all: &[(Count, u64)]) {
    for &(what, bytes) in all.iter().filter(|(_, bytes)| *bytes > 0) {
        count.add(what, bytes);
    }
}

/// Counts a connection that has just got its slot.
pub(crate) fn enter(slot: &Slot, traffic: &Traffic) {
    traffic.enter(Rows::of(slot).route, slot.opened_s);
}

/// Counts a connection that was established.
pub(crate) fn count_opened(slot: &Slot, traffic: &Traffic) {
    traffic.add(Rows::of(slot).route, Tally::Opened, 1);
}

/// Counts a successful connect to the slot's backend.
pub(crate) fn count_connected(slot: &Slot, traffic: &Traffic) {
    traffic.add(Rows::of(slot).backend, Tally::Opened, 1);
}

/// Counts a failed connect to the slot's backend.
pub(crate) fn count_connect_failed(slot: &Slot, traffic: &Traffic) {
    traffic.add(Rows::of(slot).backend, Tally::Failed, 1);
}

/// Stops counting a connection whose slot is about to be freed.
pub(crate) fn leave(slot: &Slot, traffic: &Traffic) {
    traffic.leave(Rows::of(slot).route, slot.opened_s);
}

/// Counts the reason for which a connection ends, and logs it if its client is traced.
pub(crate) fn count_close<I: Io>(slot: &Slot, reason: CloseReason, work: &Workspace<I>) {
    traced_end::log(slot, reason, work);
    let (count, tally) = reason.counts();
    work.count.add(count, 1);
    let Rows { route, backend } = Rows::of(slot);
    for row in [route, backend] {
        work.traffic.add(row, tally, 1);
    }
}

/// Counts the end of a connection between two steps. The reason of a draining one is counted already.
pub(crate) fn count_sudden_close<I: Io>(slot: &Slot, reason: CloseReason, work: &Workspace<I>) {
    if slot.phase() != Phase::Draining {
        count_close(slot, reason, work);
    }
}

/// Counts the handshake of an established connection.
pub(crate) fn count_handshake(slot: &Slot, was_resumed: bool, traffic: &Traffic) {
    let tally = match was_resumed {
        true => Tally::HandshakesResumed,
        false => Tally::HandshakesFull,
    };
    traffic.add(Rows::of(slot).route, tally, 1);
}

/// Counts a handshake that failed, if its route is known.
pub(crate) fn count_handshake_failed(route: Option<u16>, traffic: &Traffic) {
    traffic.add(route.and_then(Row::of_route), Tally::Failed, 1);
}

/// Counts a wait because of the route's byte rate.
pub(crate) fn count_paced(slot: &Slot, traffic: &Traffic) {
    traffic.add(Row::of_route(slot.route), Tally::Paced, 1);
}

/// The rows in which a connection is counted.
struct Rows {
    route: Option<Row>,
    backend: Option<Row>,
}

impl Rows {
    fn of(slot: &Slot) -> Rows {
        if slot.is_joined() && slot.tls.role() == Role::Client {
            return Rows {
                route: None,
                backend: None,
            };
        }
        Rows {
            route: Row::of_route(slot.route),
            backend: Row::of_backend(slot.backend),
        }
    }
}
