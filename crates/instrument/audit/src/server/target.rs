//! Selects the addresses to audit and tells whether they are on this machine.

use dormouse_bench::load::is_this_machine;
use dormouse_measure::{Error, ServerSource};
use dormouse_reactor::socket::Addr;

use super::probe_connection::{PATIENCE, Socket};
use super::spec::ServerSpec;
use crate::model::Audit;

/// The server's address and all addresses of its name. Among several, the first that answers is audited.
pub(super) fn addresses(spec: &ServerSpec, audit: &mut Audit) -> Result<(Addr, Vec<Addr>), Error> {
    let read = |text: &String| {
        text.parse::<Addr>()
            .map_err(|error| Error::usage(format!("{error}")))
    };
    let target = read(&spec.target)?;
    let mut all = spec
        .addresses
        .iter()
        .map(read)
        .collect::<Result<Vec<_>, _>>()?;
    if all.len() < 2 || matches!(spec.source, ServerSource::Command(_)) {
        return Ok((target.clone(), vec![target]));
    }
    let answering = all
        .iter()
        .find(|address| Socket::connect(address, PATIENCE).is_ok())
        .cloned()
        .unwrap_or(target);
    if answering.to_string() != spec.target {
        let note = format!(
            "{} does not answer; everything except resumption across addresses was measured at {answering}",
            spec.target
        );
        audit.notes.push(note);
        audit.target = answering.to_string();
    }
    all.dedup();
    Ok((answering, all))
}

/// Whether load on this address stays on this machine.
pub(super) fn is_near(target: &Addr) -> bool {
    match target {
        Addr::Tcp(address) => is_this_machine(address.ip()),
        Addr::Unix(_) => true,
    }
}
