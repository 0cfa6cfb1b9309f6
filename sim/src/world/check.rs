//! What must be true when everything is over.

use super::scenario::{Scenario, Way};
use crate::peer::codec::End;
use crate::peer::plan::{LastAct, Speech};
use crate::peer::{Peer, Role, SaidEnd};
use std::fmt;

/// Something that must not be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// What it is.
    pub what: String,
    /// Whose.
    pub peer: Option<u32>,
}

impl Violation {
    /// Of the gateway as a whole.
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

/// Looks at what all peers have said and heard.
pub(crate) fn peers(scenario: &Scenario, peers: &[Peer]) -> Result<(), Violation> {
    peers.iter().try_for_each(|hearer| {
        let judged = match partner_of(hearer, scenario, peers) {
            Some(speaker) => pair(scenario, speaker, hearer),
            None => alone(hearer),
        };
        judged.map_err(|what| Violation {
            what,
            peer: Some(hearer.id),
        })
    })
}

/// Whom a peer talks to. On an echo it is itself.
fn partner_of<'a>(peer: &'a Peer, scenario: &Scenario, peers: &'a [Peer]) -> Option<&'a Peer> {
    if scenario.way == Way::Echo {
        return Some(peer);
    }
    let hears_itself = |other: &&Peer| other.plan.speech == Speech::Echo;
    let named = peer.partner().filter(|&id| id != peer.id);
    let found = match named {
        Some(id) => peers.iter().find(|other| other.id == id),
        // It has heard nothing, or its own words; but maybe it was heard.
        None => peers.iter().find(|other| {
            other.id != peer.id && other.role != peer.role && other.partner() == Some(peer.id)
        }),
    };
    found.or_else(|| {
        peers
            .iter()
            .filter(hears_itself)
            .find(|other| other.partner() == Some(peer.id))
    })
}

/// What holds for whoever is heard by nobody, and hears nobody.
fn alone(hearer: &Peer) -> Result<(), String> {
    refused_nothing(hearer)
}

fn refused_nothing(hearer: &Peer) -> Result<(), String> {
    if let Some(at) = hearer.wrong_at {
        return Err(format!("wrong bytes at {at}"));
    }
    match &hearer.heard_end {
        Some(End::Refused(why)) => Err(format!("got a record that can't be right: {why}")),
        None if !hearer.is_closed => Err("waits for ever".to_owned()),
        _ => Ok(()),
    }
}

/// What `hearer` has heard of `speaker`.
fn pair(scenario: &Scenario, speaker: &Peer, hearer: &Peer) -> Result<(), String> {
    let is_victim = speaker.is_victim || hearer.is_victim;
    if is_victim {
        // It may have been reset while a record was half sent; but no byte is wrong.
        return match hearer.wrong_at {
            Some(at) => Err(format!(
                "wrong bytes at {at}, of a connection that was reset"
            )),
            None => no_false_end(scenario, speaker, hearer),
        };
    }
    refused_nothing(hearer)?;
    if hearer.heard > speaker.said {
        return Err(format!("heard {} of {} bytes", hearer.heard, speaker.said));
    }
    no_false_end(scenario, speaker, hearer)?;
    let aborts = |peer: &Peer| matches!(peer.said_end, Some(SaidEnd::Aborted(_)));
    let is_abort = matches!(
        hearer.heard_end,
        Some(End::Reset | End::Truncated | End::Alert(_))
    );
    // Where there is little room, those who have not begun give way. A client may believe that it has:
    // its Finished is on its way, and only what it hears says that it has arrived.
    let gave_way = scenario.low_limits && hearer.role == Role::Client && hearer.heard == 0;
    if is_abort && !gave_way && !scenario.gateway_may_close() && !aborts(speaker) && !aborts(hearer)
    {
        return Err(format!(
            "{:?}, and nobody has aborted; heard {} of {}",
            hearer.heard_end, hearer.heard, speaker.said
        ));
    }
    Ok(())
}

/// An end has to be an end: everything has arrived, and the speaker has said that it was all.
fn no_false_end(scenario: &Scenario, speaker: &Peer, hearer: &Peer) -> Result<(), String> {
    if hearer.heard_end != Some(End::Clean) {
        return Ok(());
    }
    if hearer.role == Role::Backend && scenario.way == Way::TerminateUnix {
        // A unix socket has one kind of end only.
        return Ok(());
    }
    match speaker.said_end {
        Some(SaidEnd::Clean) if hearer.heard == speaker.said => Ok(()),
        // The route says that it is to be so.
        Some(SaidEnd::Aborted(_)) if scenario.options.truncation_closes => Ok(()),
        _ if scenario.gateway_may_close() => Ok(()),
        Some(SaidEnd::Clean) => Err(format!(
            "a clean end after {} of {} bytes",
            hearer.heard, speaker.said
        )),
        Some(SaidEnd::Aborted(LastAct::Cut | LastAct::Reset | LastAct::Alert)) => Err(format!(
            "a clean end, but the speaker has aborted: {:?}; heard {} of {}",
            speaker.plan.last, hearer.heard, speaker.said
        )),
        other => Err(format!(
            "a clean end, but the speaker has not ended: {other:?}; heard {} of {}",
            hearer.heard, speaker.said
        )),
    }
}
