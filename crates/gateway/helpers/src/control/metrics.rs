//! `GET /metrics`: the text format of Prometheus (version 0.0.4).
//!
//! The number of series is bounded, whatever clients do: labels are states, reasons, pools, workers,
//! and the certificates, routes and backends of the configuration. A counter without a family is its
//! own series, so every counter appears here.

use super::exposition::Page;
use super::selection::Selection;
use super::view::View;
use super::{backends, routes, status};
use dormouse_reactor::process::{ProcessUse, process_use};
use dormouse_tables::counters::{Common, Count, Kind};
use dormouse_tables::latency::Latency;

/// Counters that form one metric, distinguished by labels. `of` gives the label values of each counter.
struct Family {
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    of: &'static [(&'static [&'static str], Count)],
}

const FAMILIES: &[Family] = &[
    Family {
        name: "connections_closed_total",
        help: "Established connections that were closed, by reason.",
        labels: &["reason"],
        of: &[
            (&["clean"], Count::ClosedClean),
            (&["tls_truncated"], Count::ClosedTlsTruncated),
            (&["tls_failed"], Count::ClosedTlsFailed),
            (&["refused"], Count::ClosedRefused),
            (&["plain_failed"], Count::ClosedPlainFailed),
            (&["backend_down"], Count::ClosedBackendDown),
            (&["limit"], Count::ClosedLimit),
            (&["stopping"], Count::ClosedStopping),
            (&["drained"], Count::ClosedDrained),
            (&["admin"], Count::ClosedByAdmin),
            (&["crash"], Count::ClosedByCrash),
        ],
    },
    Family {
        name: "handshakes_total",
        help: "Handshakes with clients that ended, by result.",
        labels: &["result"],
        of: &[
            (&["full"], Count::HandshakesFull),
            (&["resumed"], Count::HandshakesResumed),
            (&["failed"], Count::HandshakesFailed),
        ],
    },
    Family {
        name: "handshakes_failed_total",
        help: "Failed handshakes with clients, by reason. Handshakes with the reasons timeout, \
                       given_up and silent were ended by dormouse and are not counted in \
                       dormouse_handshakes_total.",
        labels: &["reason"],
        of: &[
            (&["not_tls"], Count::HandshakesNotTls),
            (&["plain_http"], Count::PlainHttp),
            (&["incompatible"], Count::HandshakesIncompatible),
            (&["peer_alert"], Count::HandshakesPeerAlert),
            (&["peer_closed"], Count::HandshakesPeerClosed),
            (&["broken"], Count::HandshakesBroken),
            (&["client_certificate"], Count::ClientCertificatesRefused),
            (&["too_large"], Count::HandshakesTooLarge),
            (&["internal"], Count::HandshakesInternal),
            (&["timeout"], Count::HandshakesTimedOut),
            (&["given_up"], Count::HandshakesGivenUp),
            (&["silent"], Count::HandshakesSilent),
        ],
    },
    Family {
        name: "handshakes_by_version_total",
        help: "Successful handshakes with clients, by TLS version and by whether a session was \
                       resumed.",
        labels: &["version", "resumption"],
        of: &[
            (&["1.3", "full"], Count::HandshakesFull13),
            (&["1.3", "resumed"], Count::HandshakesResumed13),
            (&["1.2", "full"], Count::HandshakesFull12),
            (&["1.2", "resumed"], Count::HandshakesResumed12),
        ],
    },
    Family {
        name: "handshake_bytes_total",
        help: "Bytes of successful handshakes, by direction.",
        labels: &["direction"],
        of: &[
            (&["in"], Count::HandshakeBytesIn),
            (&["out"], Count::HandshakeBytesOut),
        ],
    },
    Family {
        name: "resumptions_refused_total",
        help: "Sessions that clients offered but that were not resumed, by reason.",
        labels: &["reason"],
        of: &[
            (&["unknown_key"], Count::ResumptionUnknownKey),
            (&["damaged"], Count::ResumptionDamaged),
            (&["expired"], Count::ResumptionExpired),
            (&["not_cached"], Count::ResumptionNotCached),
            (&["other_server_name"], Count::ResumptionOtherServerName),
            (&["other_alpn"], Count::ResumptionOtherAlpn),
            (&["other_client_policy"], Count::ResumptionOtherClientPolicy),
            (&["client_certificate"], Count::ResumptionClientCertificate),
            (&["other_suite"], Count::ResumptionOtherSuite),
        ],
    },
    Family {
        name: "connect_handshakes_total",
        help: "Handshakes with servers, by result.",
        labels: &["result"],
        of: &[
            (&["full"], Count::ConnectHandshakesFull),
            (&["resumed"], Count::ConnectHandshakesResumed),
            (&["failed"], Count::ConnectHandshakesFailed),
        ],
    },
    Family {
        name: "connect_handshakes_by_version_total",
        help: "Successful handshakes with servers, by TLS version and by whether a session was \
                       resumed.",
        labels: &["version", "resumption"],
        of: &[
            (&["1.3", "full"], Count::ConnectHandshakesFull13),
            (&["1.3", "resumed"], Count::ConnectHandshakesResumed13),
            (&["1.2", "full"], Count::ConnectHandshakesFull12),
            (&["1.2", "resumed"], Count::ConnectHandshakesResumed12),
        ],
    },
    Family {
        name: "bytes_total",
        help: "Bytes of established connections: ciphertext received, plaintext forwarded, plaintext \
                       received, ciphertext sent.",
        labels: &["direction"],
        of: &[
            (&["tls_in"], Count::TlsBytesIn),
            (&["plain_out"], Count::PlainBytesOut),
            (&["plain_in"], Count::PlainBytesIn),
            (&["tls_out"], Count::TlsBytesOut),
        ],
    },
    Family {
        name: "denied_total",
        help: "Connections closed without an answer, by rule.",
        labels: &["rule"],
        of: &[
            (&["network"], Count::DeniedNetwork),
            (&["connections_per_client"], Count::DeniedConnections),
            (&["handshakes_per_client"], Count::DeniedRate),
            (&["route_max_connections"], Count::DeniedRouteConnections),
            (&["route_handshakes_per_second"], Count::DeniedRouteRate),
            (&["route_memory_share"], Count::DeniedRouteMemory),
        ],
    },
    Family {
        name: "accepting_paused_total",
        help: "Times accepting was paused, by exhausted resource.",
        labels: &["reason"],
        of: &[
            (&["connections"], Count::PausedFull),
            (&["awake"], Count::PausedAwake),
            (&["handshakes"], Count::PausedHandshakes),
            (&["descriptors"], Count::PausedDescriptors),
            (&["ports"], Count::PausedPorts),
            (&["memory"], Count::PausedMemory),
            (&["refused"], Count::PausedRefused),
        ],
    },
    Family {
        name: "reads_deferred_total",
        help: "Times a connection was not read because memory was exhausted, by pool.",
        labels: &["pool"],
        of: &[
            (&["pending"], Count::PendingExhausted),
            (&["kernel"], Count::KernelExhausted),
            (&["route"], Count::ShareExhausted),
        ],
    },
    Family {
        name: "paced_total",
        help: "Times a connection was delayed by a rate limit, by limit.",
        labels: &["limit"],
        of: &[
            (&["bytes_per_client"], Count::PacedClient),
            (&["max_bytes_per_second"], Count::PacedAll),
            (&["route_bytes_per_second"], Count::PacedRoute),
        ],
    },
    Family {
        name: "worker_ends_total",
        help: "Times a worker was replaced: after its death (hangs included), or by an upgrade.",
        labels: &["reason"],
        of: &[
            (&["died"], Count::Restarts),
            (&["upgraded"], Count::Upgrades),
        ],
    },
];

/// Counters that appear inside other gauges.
const WITHIN_OTHERS: &[Count] = &[
    Count::Connections,
    Count::AtRest,
    Count::Handshaking,
    Count::Warm,
    Count::PendingBytes,
    Count::KernelBytes,
    Count::Accepted,
];

/// The whole page.
pub(super) fn page(view: &View, selection: &Selection) -> String {
    let mut page = Page::default();
    connections(&mut page, view);
    for family in FAMILIES {
        page.family(family.name, family.help);
        for (values, count) in family.of {
            let labels = family.labels.iter().copied();
            let labels: Vec<_> = labels.zip(values.iter().copied()).collect();
            page.sample(&labels, view.sum(*count));
        }
    }
    for &latency in Latency::ALL {
        histogram(&mut page, view, latency);
    }
    memory(&mut page, view);
    certificates_and_keys(&mut page, view);
    routes::metrics(view, selection, &mut page);
    backends::metrics(view, selection, &mut page);
    processes(&mut page, view);
    for &count in Count::ALL {
        alone(&mut page, view, count);
    }
    page.finish()
}

fn connections(page: &mut Page, view: &View) {
    let all = view.sum(Count::Connections);
    let at_rest = view.sum(Count::AtRest).min(all);
    page.family("connections", "Connections, by state.");
    page.sample(&[("state", "at_rest")], at_rest);
    page.sample(&[("state", "pending")], all - at_rest);
    page.sample(&[("state", "handshaking")], view.sum(Count::Handshaking));
    page.value(
        "warm_connections",
        "Idle connections established to servers in advance, without a local client yet.",
        view.sum(Count::Warm),
    );
    if let Some(state) = view.state() {
        page.value(
            "connections_max",
            "Limit on connections.",
            state.bounds.connections,
        );
        if state.bounds.awake > 0 {
            page.value(
                "awake_max",
                "Limit on connections that have sockets; the others are in deep rest.",
                state.bounds.awake,
            );
        }
    }
    page.value(
        "connections_accepted_total",
        "TCP connections accepted.",
        view.sum(Count::Accepted),
    );
    let opened = [
        Count::HandshakesFull,
        Count::HandshakesResumed,
        Count::ConnectHandshakesFull,
        Count::ConnectHandshakesResumed,
    ];
    page.value(
        "connections_opened_total",
        "TLS connections established, with clients and with servers.",
        opened
            .into_iter()
            .map(|count| view.sum(count))
            .fold(0, u64::wrapping_add),
    );
}

fn histogram(page: &mut Page, view: &View, latency: Latency) {
    let (name, help) = latency.name();
    let seen = view.latency(latency);
    page.histogram(name, help);
    for (bound_us, count) in seen.up_to {
        let bound = (bound_us as f64 / 1e6).to_string();
        page.sample_of("_bucket", &[("le", &bound)], count);
    }
    page.sample_of("_bucket", &[("le", "+Inf")], seen.count);
    page.sample_of("_sum", &[], seen.sum_us as f64 / 1e6);
    page.sample_of("_count", &[], seen.count);
}

fn memory(page: &mut Page, view: &View) {
    let pools = status::memory(view);
    page.family("memory_used_bytes", "Memory used, by pool.");
    for (pool, figures) in &pools {
        page.sample(&[("pool", pool)], figures.used_bytes);
    }
    page.family("memory_bound_bytes", "Memory limit, by pool.");
    for (pool, figures) in &pools {
        if let Some(bytes) = figures.bound_bytes {
            page.sample(&[("pool", pool)], bytes);
        }
    }
}

fn certificates_and_keys(page: &mut Page, view: &View) {
    let certificates = view.state().map(|state| state.certificates.as_slice());
    page.family(
        "certificate_expiry_timestamp_seconds",
        "Expiry of the first certificate to expire in a chain served to clients, as Unix time; of \
         many chains, those that expire first.",
    );
    let mut files: Vec<&str> = Vec::new();
    for certificate in certificates.unwrap_or_default() {
        // One series per file, whatever the file contains.
        if !files.contains(&certificate.file.as_str()) {
            files.push(&certificate.file);
            let labels = [("file", &*certificate.file), ("name", &*certificate.name)];
            page.sample(&labels, certificate.expires_s);
        }
    }
    if let Some(acme) = view.state().and_then(|state| state.acme.as_ref()) {
        page.family(
            "acme_orders_total",
            "Certificate orders at the ACME server since the main process started, by result.",
        );
        page.sample(&[("result", "issued")], acme.issued);
        page.sample(&[("result", "failed")], acme.failed);
        page.family(
            "acme_failures",
            "Consecutive failed orders for a name at the ACME server; of many names, those that \
             failed and those that are due first.",
        );
        for name in &acme.names {
            page.sample(&[("name", &*name.name)], name.failures);
        }
    }
    let since_s = view.common(Common::KeySince);
    if since_s > 0 {
        page.value(
            "ticket_key_age_seconds",
            "Age of the key that encrypts new session tickets.",
            dormouse_handover::unix_time()
                .as_secs()
                .saturating_sub(since_s),
        );
    }
    page.value(
        "ticket_store_failures_total",
        "Failed requests to the ticket key store.",
        view.common(Common::StoreFailures),
    );
    page.value(
        "connection_log_lost_total",
        "Connection log lines that could not be written to the log file.",
        view.common(Common::LogLinesLost),
    );
}

fn processes(page: &mut Page, view: &View) {
    page.family(
        "build_info",
        "Always 1; the label is the version of dormouse that answers.",
    );
    page.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    let workers_alive = view.workers_alive();
    page.value("workers_alive", "Number of running workers.", workers_alive);
    let main_alive = u8::from(view.main_alive());
    page.value("main_alive", "Whether the main process runs.", main_alive);
    page.value(
        "accepting",
        "Whether new connections are accepted.",
        u8::from(view.is_accepting()),
    );
    page.value(
        "control_restarts_total",
        "Restarts of the control process, which answers this request.",
        view.restarts,
    );
    if let Some(state) = view.state() {
        page.value(
            "configuration_edition",
            "Number of the running configuration: 1 after the start, plus 1 for each change: a reload, \
             changed certificates, `dormouse ctl`.",
            state.configuration.edition,
        );
        let refused = (state.configuration.last_reload.as_ref()).is_some_and(|last| !last.done);
        page.value(
            "configuration_refused",
            "Whether the last reload was rejected.",
            u8::from(refused),
        );
    }
    of_processes(page, view);
}

/// The metrics that every program reports, for each process. A restarted process starts from zero.
fn of_processes(page: &mut Page, view: &View) {
    type Value = fn(&ProcessUse) -> Option<f64>;
    let families: [(&str, &str, Value); 6] = [
        (
            "process_cpu_seconds_total",
            "CPU time used by a process.",
            |used| Some(used.cpu_s),
        ),
        (
            "process_resident_memory_bytes",
            "Resident memory of a process, including shared memory.",
            |used| Some(used.resident_bytes as f64),
        ),
        (
            "process_virtual_memory_bytes",
            "Virtual memory of a process.",
            |used| Some(used.virtual_bytes as f64),
        ),
        (
            "process_start_time_seconds",
            "Start time of a process, as Unix time.",
            |used| Some(used.started_s),
        ),
        (
            "process_open_fds",
            "Open file descriptors of a process. A keeper and its worker share theirs.",
            |used| used.open_descriptors.map(|count| count as f64),
        ),
        (
            "process_max_fds",
            "Limit on open file descriptors of a process.",
            |used| used.descriptors_max.map(|limit| limit as f64),
        ),
    ];
    let known: Vec<_> = all_processes(view)
        .into_iter()
        .filter_map(|(process, worker, pid)| Some((process, worker, process_use(pid)?)))
        .collect();
    for (name, help, value) in families {
        page.family_of_all(name, help);
        for (process, worker, used) in &known {
            let labels = [("process", *process), ("worker", worker.as_str())];
            if let Some(value) = value(used) {
                page.sample(&labels, value);
            }
        }
    }
}

/// The processes of the program: role, worker number and process id.
fn all_processes(view: &View) -> Vec<(&'static str, String, i32)> {
    let mut all = vec![("control", String::new(), dormouse_reactor::process::pid().0)];
    if let Some(state) = view.state() {
        all.push(("main", String::new(), state.pid));
        let keepers = state.keepers.iter().enumerate();
        all.extend(keepers.map(|(number, keeper)| ("keeper", number.to_string(), keeper.pid)));
    }
    let workers = 0..view.workers();
    all.extend(workers.map(|number| ("worker", number.to_string(), view.worker(number).pid)));
    all
}

/// Writes a counter without a family.
fn alone(page: &mut Page, view: &View, count: Count) {
    let in_family = |family: &Family| family.of.iter().any(|&(_, one)| one == count);
    if WITHIN_OTHERS.contains(&count) || FAMILIES.iter().any(in_family) {
        return;
    }
    let suffix = match count.kind() {
        Kind::Counter => "_total",
        Kind::Gauge => "",
        Kind::Note => return,
    };
    let name = format!("{}{suffix}", count.name());
    page.value(&name, count.help(), view.sum(count));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_in_at_most_one_family() {
        let mut all: Vec<&str> = FAMILIES
            .iter()
            .flat_map(|family| family.of.iter().map(|(_, count)| count.name()))
            .collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
