//! Checks at the end of a simulation.

use super::scenario::{RouteKind, Scenario};
use crate::peer::codec::End;
use crate::peer::plan::{Ending, Source};
use crate::peer::{Peer, Role, SentEnd};
use std::fmt;

/// A failed check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The description.
    pub what: String,
    /// The number of the peer whose check failed, if the check was about a peer.
    pub peer: Option<u32>,
}

impl Violation {
    /// A violation that is not about a single peer.
    pub(crate) fn of_gateway(what: impl Into<String>) -> Violation {
        Violation {
            what: what.into(),
            peer: None,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.peer {
            Some(peer) => write!(f, "peer {peer}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

/// Checks what all peers have sent and received.
pub(crate) fn peers(scenario: &Scenario, peers: &[Peer]) -> Result<(), Violation> {
    peers.iter().try_for_each(|receiver| {
        let checked = match partner_of(receiver, scenario, peers) {
            Some(sender) => pair(scenario, sender, receiver),
            None => single(receiver),
        };
        checked.map_err(|what| Violation {
            what,
            peer: Some(receiver.id),
        })
    })
}

/// The peer at the other end of a peer's connection; on an echo route the peer itself.
fn partner_of<'a>(peer: &'a Peer, scenario: &Scenario, peers: &'a [Peer]) -> Option<&'a Peer> {
    if scenario.route_kind == RouteKind::Echo {
        return Some(peer);
    }
    let echoes = |other: &&Peer| other.plan.source == Source::Echo;
    let named = peer.partner().filter(|&id| id != peer.id);
    let found = match named {
        Some(id) => peers.iter().find(|other| other.id == id),
        // The peer received nothing, or its own content from an echo: search for a peer that received
        // this peer's content.
        None => peers.iter().find(|other| {
            other.id != peer.id && other.role != peer.role && other.partner() == Some(peer.id)
        }),
    };
    found.or_else(|| {
        peers
            .iter()
            .filter(echoes)
            .find(|other| other.partner() == Some(peer.id))
    })
}

/// Checks a peer, whatever its partner did: every received byte and record is valid, and the connection
/// has ended.
fn single(receiver: &Peer) -> Result<(), String> {
    if let Some(at) = receiver.wrong_at {
        return Err(format!("wrong bytes at {at}"));
    }
    match &receiver.received_end {
        Some(End::Refused(reason)) => Err(format!("received an invalid record: {reason}")),
        None if !receiver.is_closed => Err("waits forever".to_owned()),
        _ => Ok(()),
    }
}

/// Checks what `receiver` received from `sender`.
fn pair(scenario: &Scenario, sender: &Peer, receiver: &Peer) -> Result<(), String> {
    if sender.may_be_reset || receiver.may_be_reset {
        // A reset may cut a record, but must not change a byte.
        return match receiver.wrong_at {
            Some(at) => Err(format!("wrong bytes at {at} of a reset connection")),
            None => no_false_end(scenario, sender, receiver),
        };
    }
    single(receiver)?;
    let received = receiver.content_received;
    if received > sender.content_sent {
        return Err(format!(
            "received {received} of {} bytes",
            sender.content_sent
        ));
    }
    no_false_end(scenario, sender, receiver)?;
    let aborts = |peer: &Peer| matches!(peer.sent_end, Some(SentEnd::Aborted(_)));
    let is_abort = matches!(
        receiver.received_end,
        Some(End::Reset | End::Truncated | End::Alert(_))
    );
    // At low limits the gateway closes handshaking connections to make space. A client may regard its
    // handshake as complete while its Finished is in transit; received content proves that it arrived.
    let may_be_closed = scenario.low_limits && receiver.role == Role::Client && received == 0;
    if is_abort
        && !may_be_closed
        && !scenario.gateway_may_close()
        && !aborts(sender)
        && !aborts(receiver)
        && !is_closed_by_client(scenario, sender, receiver)
    {
        return Err(format!(
            "{:?}, but neither peer aborted; received {received} of {} bytes",
            receiver.received_end, sender.content_sent
        ));
    }
    Ok(())
}

/// Whether the gateway ends the backend's direction, because the client has ended its own.
fn is_closed_by_client(scenario: &Scenario, one: &Peer, other: &Peer) -> bool {
    let client = [one, other]
        .into_iter()
        .find(|peer| peer.role == Role::Client);
    scenario.options.closes_both && client.is_some_and(|client| client.sent_end.is_some())
}

/// Checks a clean end: everything has arrived, and the sender ended cleanly.
fn no_false_end(scenario: &Scenario, sender: &Peer, receiver: &Peer) -> Result<(), String> {
    if receiver.received_end != Some(End::Clean) {
        return Ok(());
    }
    if receiver.role == Role::Backend && scenario.route_kind == RouteKind::TerminateUnix {
        // A unix socket cannot tell an abort from an end.
        return Ok(());
    }
    if receiver.role == Role::Client && is_closed_by_client(scenario, sender, receiver) {
        return Ok(());
    }
    let (received, sent) = (receiver.content_received, sender.content_sent);
    match sender.sent_end {
        Some(SentEnd::Clean) if received == sent => Ok(()),
        // The route has `truncation = "close"`.
        Some(SentEnd::Aborted(_)) if scenario.options.truncation_closes => Ok(()),
        _ if scenario.gateway_may_close() => Ok(()),
        Some(SentEnd::Clean) => Err(format!("a clean end after {received} of {sent} bytes")),
        Some(SentEnd::Aborted(Ending::Truncate | Ending::Reset | Ending::Alert)) => Err(format!(
            "a clean end, but the sender aborted: {:?}; received {received} of {sent} bytes",
            sender.plan.ending
        )),
        other => Err(format!(
            "a clean end, but the sender has not ended: {other:?}; received {received} of {sent} bytes"
        )),
    }
}
