//! `GET /status`: the full status as JSON. docs/guide/status.md describes its fields.

use super::selection::Selection;
use super::view::{View, is_alive};
use super::{backends, routes};
use crate::fleet::StoreState;
use dormouse_handover::control::{Acme, AcmeName, Drain, Spiffe, State};
use dormouse_handover::slot::Slot;
use dormouse_handover::status::{
    AcmeNameStatus, AcmeStatus, AgeFigures, CertificateStatus, ConfigurationStatus,
    ConnectionFigures, ControlStatus, DrainStatus, KeeperStatus, LatencyFigures, LatencyStatus,
    LifePhase, MainStatus, PoolFigures, ProcessFigures, ReloadStatus, SpiffeCertificateStatus,
    SpiffeStatus, Status, TicketKeyStatus, WorkerDeath, WorkerStatus,
};
use dormouse_handover::unix_time;
use dormouse_reactor::process;
use dormouse_tables::counters::{Common, Count, Kind};
use dormouse_tables::latency::Latency;
use std::collections::BTreeMap;

/// The document.
pub(super) fn document(view: &View, selection: &Selection) -> Status {
    let now_ms = process::boottime_ms();
    let now_s = unix_time().as_secs();
    let state = view.state();
    Status {
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        phase: phase(view),
        connections: connections(view, now_ms),
        memory: memory(view),
        main: state.map(|state| MainStatus {
            process: process_figures(state.pid, state.born_ms, now_ms),
            alive: view.main_alive(),
        }),
        control: ControlStatus {
            process: process_figures(process::pid().0, view.born_ms, now_ms),
            restarts: view.restarts.into(),
        },
        workers: (0..view.workers())
            .map(|number| worker(view, number, now_ms))
            .collect(),
        configuration: state.map(|state| configuration(state, now_ms)),
        drain: state
            .and_then(|state| state.drain.as_ref())
            .map(|drain| drain_progress(view, drain, now_ms)),
        listeners: state.map_or_else(Vec::new, |state| state.listeners.clone()),
        routes: routes::document(view, selection),
        backends: backends::document(view, selection),
        ticket_keys: ticket_keys(|common| view.common(common), now_s),
        latency: LatencyStatus {
            backend_connect: latency(view, Latency::BackendConnect),
            handshake: latency(view, Latency::Handshake),
            wake: latency(view, Latency::Wake),
        },
        certificates: state.map(|state| certificates(state, now_s)),
        acme: state
            .and_then(|state| state.acme.as_ref())
            .map(|all| acme(all, now_ms, now_s)),
        spiffe: state
            .and_then(|state| state.spiffe.as_ref())
            .map(|of_agent| spiffe(of_agent, now_ms, now_s)),
        counts: counts(view),
    }
}

/// Phase of the program's life.
pub(super) fn phase(view: &View) -> LifePhase {
    if !view.main_alive() {
        return LifePhase::Orphaned;
    }
    view.state()
        .map_or(LifePhase::Unknown, |state| state.phase.into())
}

fn connections(view: &View, now_ms: u64) -> ConnectionFigures {
    let all = view.sum(Count::Connections);
    let at_rest = view.sum(Count::AtRest).min(all);
    let awake_max = view.state().map(|state| state.bounds.awake);
    let awake_max = awake_max.filter(|most| *most > 0);
    let ages = view.traffic.ages((now_ms / 1000) as u32);
    ConnectionFigures {
        ages: AgeFigures {
            under_1h: ages.under_hour,
            under_1d: ages.under_day,
            under_7d: ages.under_week,
            older: ages.older,
        },
        ages_counted_s_ago: view.ages.counted_s_ago(now_ms),
        awake: awake_max.map(|_| view.sum(Count::Awake)),
        awake_max,
        at_rest,
        pending: all - at_rest,
        handshaking: view.sum(Count::Handshaking),
        max: view.state().map(|state| state.bounds.connections),
    }
}

/// Memory pools with their use and bound.
pub(super) fn memory(view: &View) -> BTreeMap<String, PoolFigures> {
    let bounds = view.state().map(|state| &state.bounds);
    let slot = size_of::<Slot>() as u64;
    let handshake_bytes = bounds.map_or(0, |bounds| bounds.handshake_bytes);
    let pool = |name: &str, used_bytes: u64, bound_bytes: Option<u64>| {
        let figures = PoolFigures {
            used_bytes,
            bound_bytes,
        };
        (name.to_owned(), figures)
    };
    BTreeMap::from([
        pool(
            "slots",
            view.sum(Count::Connections) * slot,
            bounds.map(|bounds| bounds.connections * slot),
        ),
        pool(
            "pending",
            view.sum(Count::PendingBytes),
            bounds.map(|bounds| bounds.pending_bytes),
        ),
        // Upper bound of the bytes that clients have sent. Those that have sent nothing use no memory.
        pool(
            "handshakes",
            view.sum(Count::HandshakesBegun) * handshake_bytes,
            bounds.map(|bounds| bounds.handshakes * handshake_bytes),
        ),
        // Long send queues only.
        pool(
            "kernel",
            view.sum(Count::KernelBytes),
            bounds.map(|bounds| bounds.kernel_bytes),
        ),
    ])
}

fn process_figures(pid: i32, born_ms: u64, now_ms: u64) -> ProcessFigures {
    ProcessFigures {
        pid,
        age_s: age_s(now_ms, born_ms),
        resident_bytes: process::resident_bytes(pid),
        own_bytes: process::own_bytes(pid),
    }
}

fn worker(view: &View, number: usize, now_ms: u64) -> WorkerStatus {
    let worker = view.worker(number);
    let keeper = view.state().and_then(|state| state.keepers.get(number));
    let at_rest = view.of_worker(number, Count::AtRest);
    WorkerStatus {
        process: process_figures(worker.pid, worker.born_ms, now_ms),
        alive: worker.alive,
        restarts: view.of_worker(number, Count::Restarts),
        at_rest,
        pending: view
            .of_worker(number, Count::Connections)
            .saturating_sub(at_rest),
        handshaking: view.of_worker(number, Count::Handshaking),
        last_death: worker.last_death.map(|(reason, at_ms)| WorkerDeath {
            reason,
            ago_s: age_s(now_ms, at_ms),
        }),
        keeper: keeper.map(|keeper| KeeperStatus {
            process: process_figures(keeper.pid, keeper.born_ms, now_ms),
            alive: keeper.ended.is_none() && is_alive(keeper.pid),
            ended: keeper.ended.clone(),
        }),
    }
}

/// Number of observations, and upper bounds of the median and the 99th percentile.
fn latency(view: &View, latency: Latency) -> LatencyFigures {
    let seen = view.latency(latency);
    let ms = |share| seen.quantile_us(share).map(|us| us as f64 / 1000.0);
    LatencyFigures {
        count: seen.count,
        p50_ms_max: ms(0.5),
        p99_ms_max: ms(0.99),
    }
}

fn certificates(state: &State, now_s: u64) -> Vec<CertificateStatus> {
    let all = state.certificates.iter();
    all.map(|certificate| CertificateStatus {
        file: certificate.file.clone(),
        name: certificate.name.clone(),
        expires_in_s: certificate.expires_s as i64 - now_s as i64,
        pushed: certificate.is_pushed,
    })
    .collect()
}

/// Certificates from an ACME server: results so far, and the next attempt for each name.
fn acme(all: &Acme, now_ms: u64, now_s: u64) -> AcmeStatus {
    let name = |name: &AcmeName| AcmeNameStatus {
        name: name.name.clone(),
        expires_in_s: name.expires_s.map(|at_s| at_s as i64 - now_s as i64),
        next_in_s: name.next_ms.saturating_sub(now_ms) / 1000,
        failures: name.failures,
        last_error: name.why.clone(),
    };
    AcmeStatus {
        issued: all.issued,
        failed: all.failed,
        names: all.names.iter().map(name).collect(),
    }
}

fn spiffe(of_agent: &Spiffe, now_ms: u64, now_s: u64) -> SpiffeStatus {
    let certificates = of_agent.certificates.iter();
    let certificates = certificates.map(|one| SpiffeCertificateStatus {
        id: one.id.clone(),
        expires_in_s: one.expires_s as i64 - now_s as i64,
    });
    SpiffeStatus {
        agent: of_agent.agent.clone(),
        away: of_agent.away.clone(),
        for_s: age_s(now_ms, of_agent.since_ms),
        responses: of_agent.responses,
        certificates: certificates.collect(),
        trust_domains: of_agent.trust_domains.clone(),
    }
}

fn configuration(state: &State, now_ms: u64) -> ConfigurationStatus {
    let configuration = &state.configuration;
    let file = configuration.file.as_ref();
    ConfigurationStatus {
        file: file.map(|file| file.display().to_string()),
        edition: configuration.edition,
        loaded_ago_s: age_s(now_ms, configuration.loaded_ms),
        last_reload: configuration
            .last_reload
            .as_ref()
            .map(|reload| ReloadStatus {
                done: reload.done,
                words: reload.words.clone(),
                ago_s: age_s(now_ms, reload.at_ms),
            }),
        waits_for_restart: configuration.waits_for_restart.clone(),
        kept_changes: configuration.kept_changes.clone(),
    }
}

fn drain_progress(view: &View, drain: &Drain, now_ms: u64) -> DrainStatus {
    let passed_ms = now_ms.saturating_sub(drain.begun_ms).min(drain.over_ms);
    let counted = view
        .sum(Count::Connections)
        .wrapping_add(view.sum(Count::Handshaking));
    // Every worker can write the counters, and an operator stops the program at zero: so that needs the word of
    // each worker, until all connections were told to close.
    let left = match drain.is_empty {
        true => 0,
        false if passed_ms < drain.over_ms => counted.max(1),
        false => counted,
    };
    let drained = view.sum(Count::ClosedDrained);
    DrainStatus {
        order: drain.order,
        over_s: drain.over_ms as f64 / 1000.0,
        passed_s: passed_ms as f64 / 1000.0,
        connections: drain.connections,
        // A connection with TLS to its backend is not counted as drained: its backend ends it. None is accepted
        // meanwhile, so those that are gone have ended.
        closed: (drained.saturating_sub(drain.closed_before))
            .max(drain.connections.saturating_sub(left)),
        left,
    }
}

fn counts(view: &View) -> BTreeMap<String, u64> {
    let all = Count::ALL.iter().filter(|count| count.kind() != Kind::Note);
    all.map(|&count| (count.name().to_owned(), view.sum(count)))
        .collect()
}

/// Ticket keys: age, time until rotation, and the state of the store.
fn ticket_keys(read: impl Fn(Common) -> u64, now_s: u64) -> TicketKeyStatus {
    let since = |common: Common| match read(common) {
        0 => None,
        at_s => Some(now_s.saturating_sub(at_s)),
    };
    TicketKeyStatus {
        age_s: since(Common::KeySince),
        rotates_in_s: match read(Common::KeyRotates) {
            0 => None,
            at_s => Some(at_s.saturating_sub(now_s)),
        },
        store: StoreState::word(read(Common::StoreState)).to_owned(),
        store_seen_s_ago: since(Common::StoreSeen),
        store_failures: read(Common::StoreFailures),
    }
}

fn age_s(now_ms: u64, since_ms: u64) -> u64 {
    now_ms.saturating_sub(since_ms) / 1000
}

#[cfg(test)]
mod tests;
