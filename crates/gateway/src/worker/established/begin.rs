//! The first step of a connection that is a slot from here on: what the handshake has left over, and
//! who is at its other side.

use crate::backend_tls::TICKET_WAIT_MS;
use crate::route::Direction;
use crate::slot::{Flag, Phase, Slot};
use crate::worker::bursts::peer_name;
use crate::worker::door::client::Client;
use crate::worker::established::connect;
use crate::worker::established::flow::{self, Outcome};
use crate::worker::established::opening;
use crate::worker::established::step::Work;
use crate::worker::handshake::log::{self, Whose};
use crate::worker::io::Io;
use crate::worker::memory::backlog;
use crate::worker::outbound::originate::Plain;
use dormouse_engine::Rested;
use std::slice::from_ref;

impl<I: Io> Work<'_, I> {
    /// The handshake with a server is done and the state at rest written. Without a local client
    /// the connection is a warm one.
    pub(crate) fn begin_originated(
        &mut self,
        slot: &mut Slot,
        rested: Rested,
        plain: Option<Plain>,
        took_ms: u64,
    ) -> Outcome {
        slot.set_phase(Phase::Warm);
        let Rested {
            unsent,
            leftover,
            info,
            tickets,
        } = rested;
        log::count_originated(&info, &self.tools.count);
        let (peer, each) = (
            peer_name(&self.tools.io, slot.tls_fd()),
            self.limits.log_handshakes,
        );
        let whose = Whose {
            peer: &peer,
            id: None,
        };
        log::log_done(&info, whose, took_ms, each);
        let wait_ms = match (&self.route.direction, &self.route.backend_tls) {
            (Direction::Originate(origin), _) => Some(origin.ticket_wait_ms),
            (_, Some(_)) => Some(TICKET_WAIT_MS),
            _ => None,
        };
        if let (Some(watch), Some(wait_ms)) = (tickets, wait_ms) {
            let until_ms = self.now_ms + wait_ms;
            self.tools.tickets.expect(slot.generation, watch, until_ms);
        }
        if let Some(plain) = plain {
            attach_plain(slot, &self.tools.io, plain);
            if plain.is_joined
                && let Err(e) = self.tools.io.send(plain.fd, &connect::CONNECTED)
            {
                return Outcome::PlainFailed(e);
            }
        }
        let pending = &mut self.tools.pending;
        if !unsent.is_empty() && !backlog::store_sealed(slot, pending, &unsent) {
            return Outcome::NoPendingMemory;
        }
        if !leftover.is_empty()
            && !backlog::store_opening(slot, pending, &leftover, &[], 0..leftover.len(), 0)
        {
            return Outcome::NoPendingMemory;
        }
        opening::open_stored(slot, self.tools)
    }

    /// A warm connection gets its local client.
    pub(crate) fn attach(&mut self, slot: &mut Slot, plain: Plain) -> Outcome {
        attach_plain(slot, &self.tools.io, plain);
        if !slot.has(Flag::OpeningBlocked) {
            slot.set(Flag::Untouched);
        }
        slot.active_s = self.now_s();
        match flow::flush_opened(slot, &self.tools.io, &mut self.tools.pending) {
            Ok(_) => Outcome::Continues,
            Err(outcome) => outcome,
        }
    }

    /// The handshake is done and the state at rest written: what belongs to the rest of the slot.
    pub(crate) fn begin(
        &mut self,
        slot: &mut Slot,
        rested: Rested,
        client: &Client,
        took_ms: u64,
    ) -> Outcome {
        slot.set_phase(Phase::Connecting);
        let id = client.id(self.tools.id_seed, slot);
        let whose = Whose {
            peer: client,
            id: Some(id),
        };
        let each = self.limits.log_handshakes;
        log::log_done(&rested.info, whose, took_ms, each);
        // Before the first byte of the client the backend hears who that is.
        let mut first = client.introduction(&self.tools.io, self.route, slot, &rested.info, id);
        let introduced = first.len();
        first.extend_from_slice(&rested.leftover);
        let pending = &mut self.tools.pending;
        let unsent = &rested.unsent;
        if !unsent.is_empty() && !backlog::store_sealed(slot, pending, unsent) {
            return Outcome::NoPendingMemory;
        }
        let (introduction, rest) = (0..introduced, introduced..first.len());
        if !first.is_empty()
            && !backlog::store_opening(slot, pending, &first, from_ref(&introduction), rest, 0)
        {
            return Outcome::NoPendingMemory;
        }
        if introduced > 0 {
            slot.set(Flag::OpeningBlocked);
        }
        let connect = self.start_connect(slot, client.ip());
        self.connected(slot, connect)
    }

    /// A connection whose TLS is the backend's: what was received goes there first.
    pub(crate) fn begin_passing_through(
        &mut self,
        slot: &mut Slot,
        received: &[u8],
        client: &Client,
    ) -> Outcome {
        slot.set(Flag::PassThrough);
        slot.set_phase(Phase::Connecting);
        let mut first = client.bare_introduction(&self.tools.io, self.route, slot);
        first.extend_from_slice(received);
        let (all, none) = (0..first.len(), first.len()..first.len());
        let pending = &mut self.tools.pending;
        if !backlog::store_opening(slot, pending, &first, from_ref(&all), none, 0) {
            return Outcome::NoPendingMemory;
        }
        slot.set(Flag::OpeningBlocked);
        let connect = self.start_connect(slot, client.ip());
        self.connected(slot, connect)
    }
}

fn attach_plain(slot: &mut Slot, io: &impl Io, plain: Plain) {
    let cookie = io.cookie(plain.fd).unwrap_or(0) as u32;
    slot.attach_plain(plain.fd, cookie);
    if plain.is_unix {
        slot.set(Flag::PlainIsUnix);
    }
    if plain.is_joined {
        slot.set(Flag::Joined);
    }
    slot.set_phase(Phase::Established);
}
