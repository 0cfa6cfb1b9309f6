//! Checks that the connections of a simulation leave nothing behind.

use super::check::Violation;
use super::scenario::Command;
use super::{PROXY_CLIENT, World, setup};
use crate::kernel::{Faults, Repair};
use dormouse_tables::clients::ClientLimits;
use dormouse_tables::counters::Count;
use dormouse_tables::traffic::{Row, Tally};
use std::net::IpAddr;

impl World {
    /// Checks what is left of the connections.
    pub(super) fn check_leftovers(&mut self) -> Result<(), Violation> {
        self.report.steps += self.fuse_set.saturating_sub(self.fuse.left());
        self.report.bytes = self.peers.iter().map(|peer| peer.content_received).sum();
        if self.is_stopped {
            return Ok(());
        }
        // The worker releases some resources only in later turns.
        for _ in 0..3 {
            self.turn()?;
        }
        let kernel = self.kernel.borrow();
        let left = kernel.repair.as_ref().and_then(Repair::leftovers);
        if let Some(what) = left {
            return Err(Violation::of_gateway(what));
        }
        let (open, watched) = (kernel.open_descriptors(), kernel.watches());
        let channel = usize::from(kernel.repair.is_some());
        if open > 3 + channel || watched > 2 + channel {
            let what = format!("{open} descriptors are open, {watched} are watched");
            return Err(Violation::of_gateway(what));
        }
        for count in [
            Count::Connections,
            Count::AtRest,
            Count::Handshaking,
            Count::PendingBytes,
        ] {
            let left = self.setup.counters.sum(count as usize);
            if left != 0 {
                let what = format!("{} is {left} at the end, not 0", count.name());
                return Err(Violation::of_gateway(what));
            }
        }
        self.check_tables()?;
        self.check_drain()?;
        for address in setup::backends(self.scenario.route_kind) {
            let place = self.setup.backends.place(&address.to_string());
            let load = self.setup.backends.load(place);
            if load != 0 {
                let what = format!("backend {address} has a load of {load} at the end, not 0");
                return Err(Violation::of_gateway(what));
            }
        }
        Ok(())
    }

    /// Checks that no connection is counted in the shared tables, and that each one was counted when it ended.
    fn check_tables(&self) -> Result<(), Violation> {
        let one = ClientLimits {
            connections_max: Some(1),
            ..ClientLimits::default()
        };
        let addresses = (1..=3).map(|host| IpAddr::from([192, 0, 2, host]));
        for address in addresses.chain([PROXY_CLIENT.ip()]) {
            if self.setup.clients.count_handshake(address, one, 0).is_err() {
                let what = format!("connections of client {address} are counted at the end");
                return Err(Violation::of_gateway(what));
            }
        }
        let sum = |tally: Tally| self.setup.traffic.sum(Row::of_route(0), tally);
        let left = sum(Tally::Connections);
        let closed = Tally::ALL
            .iter()
            .filter(|&&tally| tally as usize >= Tally::ClosedClean as usize);
        let (opened, closed) = (
            sum(Tally::Opened),
            closed.map(|&tally| sum(tally)).sum::<u64>(),
        );
        let opened = opened + u64::from(self.former_connections());
        // A worker that dies may have counted only one of the two.
        let must_agree = self.report.deaths == 0;
        if left != 0 || (must_agree && opened != closed) {
            let what = format!(
                "{left} connections are counted at the end; {opened} opened, {closed} closed"
            );
            return Err(Violation::of_gateway(what));
        }
        Ok(())
    }

    /// Checks that a drain made no connection fail that was about to be established.
    fn check_drain(&self) -> Result<(), Violation> {
        let scenario = &self.scenario;
        let is_calm = scenario.faults == Faults::default() && scenario.aborts == 0;
        if scenario.command.0 != Command::Drain || !is_calm {
            return Ok(());
        }
        for count in [Count::BackendConnectsFailed, Count::ConnectGivenUp] {
            let failed = self.setup.counters.sum(count as usize);
            if failed != 0 {
                let what = format!("{} is {failed} after a drain", count.name());
                return Err(Violation::of_gateway(what));
            }
        }
        Ok(())
    }
}
