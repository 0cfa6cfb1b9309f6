//! Whether the addresses of one name accept each other's tickets.
//!
//! Each address gives tickets, which are offered to itself and to the others. Tickets that only the address which
//! gave them accepts mean machines that do not share their ticket keys.

use dormouse_engine::Protocols;
use dormouse_reactor::socket::Addr;

use super::dialer::{Dialer, version_name};
use super::offer::TICKET_WAIT;
use super::resumption::{context, visit};
use crate::model::{AddressTrials, Measured, Trials};

/// Most addresses that are tried.
const ADDRESSES_MAX: usize = 8;
/// Tickets for each pair of addresses where one may ask as often as it takes.
const TICKETS: usize = 3;

/// Offers tickets of all addresses to all addresses; on machines which are not ours to load, one
/// ticket of each to itself and to the next one, in the newest version alone.
pub(super) fn try_all(
    dialer: &Dialer<'_>,
    addresses: &[Addr],
    versions: &[Protocols],
) -> Measured<Vec<AddressTrials>> {
    if addresses.len() < 2 {
        return Measured::not("there is one address only");
    }
    let addresses = addresses.get(..ADDRESSES_MAX).unwrap_or(addresses);
    let mut all = Vec::new();
    for &protocols in dialer.versions(versions) {
        for (place, from) in addresses.iter().enumerate() {
            let next = (place + 1) % addresses.len();
            let to = addresses.iter().enumerate();
            let to = to.filter(|(other, _)| dialer.free || *other == place || *other == next);
            let at = Dialer {
                target: from,
                ..*dialer
            };
            let to: Vec<&Addr> = to.map(|(_, to)| to).collect();
            from_one(&at, &to, protocols, &mut all);
        }
    }
    Measured::Value(all)
}

fn from_one(from: &Dialer<'_>, to: &[&Addr], protocols: Protocols, all: &mut Vec<AddressTrials>) {
    let mut none = None;
    for &to in to {
        let trials = match &none {
            Some(none) => Measured::clone(none),
            None => Measured::from(pair(from, to, protocols)),
        };
        // An address that gave no ticket, or was not reached, is not tried again.
        let given = trials.value().is_some_and(|trials| trials.offered > 0);
        if to == from.target && !given {
            none = Some(trials.clone());
        }
        all.push(AddressTrials {
            version: version_name(protocols).into(),
            from: from.target.to_string(),
            to: to.to_string(),
            trials,
        });
    }
}

fn pair(from: &Dialer<'_>, to: &Addr, protocols: Protocols) -> Result<Trials, String> {
    let at = Dialer {
        target: to,
        ..*from
    };
    let mut trials = Trials::default();
    for _ in 0..if from.free { TICKETS } else { 1 } {
        let context = context(from, protocols, "ticket")?;
        let giver = visit(from, &context, TICKET_WAIT)?;
        giver.accepted()?;
        let given = !giver.tickets.is_empty();
        giver.close();
        if !given {
            break;
        }
        let taker = visit(&at, &context, std::time::Duration::ZERO)?;
        trials.offered += 1;
        trials.resumed += u64::from(taker.info.resumed);
        trials.outcomes.push(taker.info.resumed);
        taker.close();
    }
    Ok(trials)
}
