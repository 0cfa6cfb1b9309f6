//! Connections that are established before the first worker starts, as if a former worker had left them.

use super::scenario::RouteKind;
use super::{World, pairs};
use crate::kernel::{EndId, Family};
use crate::peer::Role;
use crate::peer::codec::Codec;
use dormouse_engine::stream::Connection;
use dormouse_handover::slot::{Flag, Phase, PlainSide, SLOT_LAYOUT_VERSION, Slot};
use dormouse_reactor::Fd;
use dormouse_reactor::slab::Slab;
use std::io;
use zerocopy::IntoBytes as _;

impl World {
    /// Creates the connections of a former worker.
    pub(super) fn establish(&mut self) -> io::Result<()> {
        let count = self.former_connections();
        if count == 0 {
            return Ok(());
        }
        let live = |_: u32, slot: &Slot| slot.phase() != Phase::Free;
        let adopted = Slab::<Slot>::adopt(self.setup.slots, SLOT_LAYOUT_VERSION, live);
        let (mut slots, _) = adopted.map_err(io::Error::other)?;
        slots.header().set_epoll(self.kernel.borrow().poller_fd());
        for n in 0..count {
            self.establish_one(n, &mut slots)?;
        }
        Ok(())
    }

    /// How many connections a former worker has left.
    pub(super) fn former_connections(&self) -> u32 {
        let most = if self.scenario.low_limits {
            3
        } else {
            u32::MAX
        };
        self.scenario.established.min(most)
    }

    fn establish_one(&mut self, n: u32, slots: &mut Slab<Slot>) -> io::Result<()> {
        let route_kind = self.scenario.route_kind;
        let now_s = (self.kernel.borrow().clock_us() / 1_000_000) as u32;
        let (client, server) = pairs::established(n as usize);
        let tls = |state| Codec::tls(Connection::default(), state);
        let front = self.kernel.borrow_mut().open_established(Family::Tcp)?;
        match route_kind {
            RouteKind::Echo => {
                let slot = self.begin_slot(slots, front, server.as_bytes(), n, now_s)?;
                slot.set_plain_side(PlainSide::Echo);
                self.add_peer(Role::Client, front.1.other(), tls(client));
            }
            RouteKind::Terminate
            | RouteKind::TerminateUnix
            | RouteKind::PassThrough
            | RouteKind::Originate => {
                let family = match route_kind {
                    RouteKind::TerminateUnix => Family::Unix,
                    _ => Family::Tcp,
                };
                let back = self.kernel.borrow_mut().open_established(family)?;
                let (tls_side, plain_side, state) = match route_kind {
                    RouteKind::Originate => (back, front, &client),
                    _ => (front, back, &server),
                };
                let cookie = self.cookie(plain_side.0)?;
                let slot = self.begin_slot(slots, tls_side, state.as_bytes(), n, now_s)?;
                slot.attach_plain(plain_side.0, cookie);
                if route_kind == RouteKind::PassThrough {
                    slot.set(Flag::PassThrough);
                    slot.tls.wipe();
                }
                if family == Family::Unix {
                    slot.set_plain_side(PlainSide::Unix);
                }
                let (front_codec, back_codec) = match route_kind {
                    RouteKind::PassThrough => (tls(client), tls(server)),
                    RouteKind::Originate => (Codec::Plain, tls(server)),
                    _ => (tls(client), Codec::Plain),
                };
                self.add_peer(Role::Client, front.1.other(), front_codec);
                self.add_peer(Role::Backend, back.1.other(), back_codec);
            }
            RouteKind::BackendTls => {
                let back = self.kernel.borrow_mut().open_established(Family::Tcp)?;
                let (here, there) = self.kernel.borrow_mut().joint()?;
                let (back_client, back_server) = pairs::established(n as usize + 7);
                for (tls_side, state, end) in [(front, &server, here), (back, &back_client, there)]
                {
                    let cookie = self.cookie(end)?;
                    let number = 2 * n + u32::from(end == there);
                    let slot = self.begin_slot(slots, tls_side, state.as_bytes(), number, now_s)?;
                    slot.attach_plain(end, cookie);
                    slot.set_plain_side(PlainSide::Joint);
                }
                self.add_peer(Role::Client, front.1.other(), tls(client));
                self.add_peer(Role::Backend, back.1.other(), tls(back_server));
            }
        }
        Ok(())
    }

    fn cookie(&self, fd: Fd) -> io::Result<u32> {
        Ok(self.kernel.borrow().cookie(fd)? as u32)
    }

    fn begin_slot<'s>(
        &self,
        slots: &'s mut Slab<Slot>,
        (fd, _): (Fd, EndId),
        state: &[u8],
        n: u32,
        now_s: u32,
    ) -> io::Result<&'s mut Slot> {
        let cookie = self.cookie(fd)?;
        let free = slots.insert();
        let slot = free.and_then(|index| slots.get_mut(index));
        let slot = slot.ok_or_else(|| io::Error::other("no free slot"))?;
        slot.tls.as_mut_bytes().copy_from_slice(state);
        slot.begin(fd, cookie, 0, n + 1, now_s);
        slot.set_phase(Phase::Established);
        Ok(slot)
    }
}
