//! `GET /status`: the whole picture as JSON. Its fields are described in docs/guide/status.md.

use super::backends;
use super::view::{View, is_alive};
use crate::fleet::StoreState;
use dormouse_handover::slot::Slot;
use dormouse_handover::talk::{Acme, AcmeName, Drain, State};
use dormouse_handover::unix_time;
use dormouse_reactor::process;
use dormouse_tables::counters::{Common, Count, Kind};
use dormouse_tables::latency::Latency;
use serde_json::{Map, Value, json};
use std::fs;

/// Bytes of a page of memory, as /proc/PID/statm counts.
const PAGE_BYTES: u64 = 4096;

/// The document.
pub(super) fn document(view: &View) -> Value {
    let now_ms = process::boottime_ms();
    let state = view.state();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "phase": phase(view),
        "connections": connections(view),
        "memory": memory(view),
        "main": state.map(|state| json!({
            "pid": state.pid,
            "alive": view.main_alive(),
            "age_s": age_s(now_ms, state.born_ms),
            "resident_bytes": resident_bytes(state.pid),
            "own_bytes": own_bytes(state.pid),
        })),
        "control": {
            "pid": process::pid().0,
            "age_s": age_s(now_ms, view.born_ms),
            "restarts": view.restarts,
            "resident_bytes": resident_bytes(process::pid().0),
            "own_bytes": own_bytes(process::pid().0),
        },
        "workers": (0..view.workers())
            .map(|worker| of_worker(view, worker, now_ms))
            .collect::<Vec<_>>(),
        "configuration": state.map(|state| configuration(state, now_ms)),
        "drain": state
            .and_then(|state| state.drain.as_ref())
            .map(|drain| drain_progress(view, drain, now_ms)),
        "backends": backends::document(view),
        "ticket_keys": ticket_keys(|common| view.common(common), unix_time().as_secs()),
        "latency": Latency::ALL
            .iter()
            .map(|&latency| {
                let (name, _) = latency.name();
                (name.trim_end_matches("_seconds").to_owned(), of_latency(view, latency))
            })
            .collect::<Map<_, _>>(),
        "certificates": state.map(|state| certificates(state, unix_time().as_secs())),
        "acme": state.and_then(|state| state.acme.as_ref()).map(|all| acme(all, now_ms)),
        "counts": counts(view),
    })
}

/// Where the program is in its life, in one word.
pub(super) fn phase(view: &View) -> Value {
    match view.state() {
        Some(state) => json!(state.phase),
        None => json!("unknown"),
    }
}

fn connections(view: &View) -> Value {
    let all = view.sum(Count::Connections);
    let at_rest = view.sum(Count::AtRest).min(all);
    json!({
        "at_rest": at_rest,
        "pending": all - at_rest,
        "handshaking": view.sum(Count::Handshaking),
        "max": view.state().map(|state| state.bounds.connections),
    })
}

/// Each pool with what is used of it and its bound.
pub(super) fn memory(view: &View) -> Value {
    let bounds = view.state().map(|state| &state.bounds);
    let slot = size_of::<Slot>() as u64;
    let handshake_bytes = bounds.map_or(0, |bounds| bounds.handshake_bytes);
    let pool = |used: u64, bound: Option<u64>| json!({ "used_bytes": used, "bound_bytes": bound });
    json!({
        "slots": pool(
            view.sum(Count::Connections) * slot,
            bounds.map(|bounds| bounds.connections * slot),
        ),
        "pending": pool(
            view.sum(Count::PendingBytes),
            bounds.map(|bounds| bounds.pending_bytes),
        ),
        // Of what clients have sent, not more than this.
        "handshakes": pool(
            view.sum(Count::Handshaking) * handshake_bytes,
            bounds.map(|bounds| bounds.handshakes * handshake_bytes),
        ),
        // In long send queues.
        "kernel": pool(
            view.sum(Count::KernelBytes),
            bounds.map(|bounds| bounds.kernel_bytes),
        ),
    })
}

fn of_worker(view: &View, number: usize, now_ms: u64) -> Value {
    let worker = view.worker(number);
    let keeper = view.state().and_then(|state| state.keepers.get(number));
    let at_rest = view.of_worker(number, Count::AtRest);
    json!({
        "pid": worker.pid,
        "alive": worker.alive,
        "age_s": age_s(now_ms, worker.born_ms),
        "restarts": view.of_worker(number, Count::Restarts),
        "resident_bytes": resident_bytes(worker.pid),
        "own_bytes": own_bytes(worker.pid),
        "at_rest": at_rest,
        "pending": view.of_worker(number, Count::Connections).saturating_sub(at_rest),
        "handshaking": view.of_worker(number, Count::Handshaking),
        "last_death": worker.last_death.map(|(reason, at_ms)| json!({
            "reason": reason,
            "ago_s": age_s(now_ms, at_ms),
        })),
        "keeper": keeper.map(|keeper| json!({
            "pid": keeper.pid,
            "alive": keeper.ended.is_none() && is_alive(keeper.pid),
            "age_s": age_s(now_ms, keeper.born_ms),
            "resident_bytes": resident_bytes(keeper.pid),
            "own_bytes": own_bytes(keeper.pid),
            "ended": keeper.ended,
        })),
    })
}

/// How often, and the bounds under which half and 99 of 100 were.
fn of_latency(view: &View, latency: Latency) -> Value {
    let seen = view.latency(latency);
    let ms = |share| seen.quantile_us(share).map(|us| us as f64 / 1000.0);
    json!({ "count": seen.count, "p50_ms_max": ms(0.5), "p99_ms_max": ms(0.99) })
}

fn certificates(state: &State, now_s: u64) -> Vec<Value> {
    let all = state.certificates.iter();
    all.map(|certificate| {
        json!({
            "file": certificate.file,
            "name": certificate.name,
            "expires_in_s": certificate.expires_s as i64 - now_s as i64,
        })
    })
    .collect()
}

/// Certificates from an ACME server: what became of attempts, and what is next for each name.
fn acme(all: &Acme, now_ms: u64) -> Value {
    let now_s = unix_time().as_secs();
    let name = |name: &AcmeName| {
        json!({
            "name": name.name,
            "expires_in_s": name.expires_s.map(|at_s| at_s as i64 - now_s as i64),
            "next_in_s": name.next_ms.saturating_sub(now_ms) / 1000,
            "failures": name.failures,
            "last_error": name.why,
        })
    };
    json!({
        "issued": all.issued,
        "failed": all.failed,
        "names": all.names.iter().map(name).collect::<Vec<_>>(),
    })
}

fn configuration(state: &State, now_ms: u64) -> Value {
    let configuration = &state.configuration;
    json!({
        "file": configuration.file,
        "edition": configuration.edition,
        "loaded_ago_s": age_s(now_ms, configuration.loaded_ms),
        "last_reload": configuration.last_reload.as_ref().map(|reload| json!({
            "done": reload.done,
            "words": reload.words,
            "ago_s": age_s(now_ms, reload.at_ms),
        })),
        "waits_for_restart": configuration.waits_for_restart,
    })
}

fn drain_progress(view: &View, drain: &Drain, now_ms: u64) -> Value {
    let passed_ms = now_ms.saturating_sub(drain.begun_ms).min(drain.over_ms);
    json!({
        "order": drain.order,
        "over_s": drain.over_ms as f64 / 1000.0,
        "passed_s": passed_ms as f64 / 1000.0,
        "connections": drain.connections,
        "closed": view.sum(Count::ClosedDrained).saturating_sub(drain.closed_before),
        "left": view.sum(Count::Connections) + view.sum(Count::Handshaking),
    })
}

fn counts(view: &View) -> Value {
    let all = Count::ALL.iter().filter(|count| count.kind() != Kind::Note);
    all.map(|&count| (count.name().to_owned(), view.sum(count).into()))
        .collect::<Map<_, _>>()
        .into()
}

fn age_s(now_ms: u64, since_ms: u64) -> u64 {
    now_ms.saturating_sub(since_ms) / 1000
}

/// Resident memory of a process, what it shares with others included. Everybody may read that.
pub(super) fn resident_bytes(pid: i32) -> Option<u64> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * PAGE_BYTES)
}

/// The part of it that is no file's: heap, stack and shared memory, but not the program.
fn own_bytes(pid: i32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kilobytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    Some((kilobytes("RssAnon:")? + kilobytes("RssShmem:")?) * 1024)
}

/// What `status` tells of the keys: how old, how long still, and how it stands with the store.
fn ticket_keys(read: impl Fn(Common) -> u64, now_s: u64) -> Value {
    let since = |common: Common| match read(common) {
        0 => None,
        at_s => Some(now_s.saturating_sub(at_s)),
    };
    let until_s = match read(Common::KeyRotates) {
        0 => None,
        at_s => Some(at_s.saturating_sub(now_s)),
    };
    json!({
        "age_s": since(Common::KeySince),
        "rotates_in_s": until_s,
        "store": StoreState::word(read(Common::StoreState)),
        "store_seen_s_ago": since(Common::StoreSeen),
        "store_failures": read(Common::StoreFailures),
    })
}
