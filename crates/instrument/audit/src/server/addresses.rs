//! Whether the addresses of one name accept each other's tickets.
//!
//! The tickets of each address are offered to that address and to the others. If only the issuing address accepts its
//! tickets, the machines do not share their ticket keys.

use dormouse_engine::Protocols;
use dormouse_reactor::socket::Addr;

use super::dialer::{Dialer, version_name};
use super::offer::TICKET_WAIT;
use super::resumption::{context, visit};
use crate::model::{AddressTrials, Measured, Trials};

/// Maximum number of addresses tried.
const ADDRESSES_MAX: usize = 8;
/// Tickets for each pair of addresses, if the number of connections is not limited.
const TICKETS: usize = 3;

/// Offers the tickets of every address to every address. On a server that must not be loaded, offers one ticket of
/// each address to itself and to the next address, in the newest version only.
pub(super) fn try_all(
    dialer: &Dialer<'_>,
    addresses: &[Addr],
    versions: &[Protocols],
) -> Measured<Vec<AddressTrials>> {
    if addresses.len() < 2 {
        return Measured::not("the server's name has only one address");
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
        // An address that issued no ticket or was unreachable is not tried again.
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
