//! `dormouse check`: checks a configuration and all that it names, without starting anything.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use dormouse_config::{
    self as config, Admin, Backend, ByteSize, Config, Count, KeySource, Loaded, LogTarget,
    Originate, Plan, Probe, ProxyProtocol, Route, Section, Server, StapledOcsp, Starttls,
    TlsVersion, Upstream, show_duration, show_number,
};
use dormouse_handover::Pem;
use dormouse_handover::status::Status;
use dormouse_supervisor::{Occasion, Occupied, Purpose, Ready, Source};

use crate::admin::AdminAddress;
use crate::arguments::CheckArgs;
use crate::certificates;
use crate::show::bytes;
use crate::table::{self, Row, row};
use crate::{mistakes, terminal};

/// The consequence of a mistake.
const WOULD_NOT_START: &str = "`serve` would not start";

pub(crate) fn run(args: &CheckArgs) -> ExitCode {
    let file = args.config.as_deref().or(args.file.as_deref());
    let source = Source {
        file: file.map(Path::to_owned),
        section: Section::Route,
        flags: Vec::new(),
    };
    let load = |occupied: &dyn Fn(&Config) -> Occupied| {
        let occasion = Occasion {
            purpose: Purpose::Check,
            look_up: &config::look_up,
            occupied,
        };
        dormouse_supervisor::load(&source, &occasion)
    };
    let show = |ready: &Ready| {
        terminal::print(&dormouse_printable::lines(&page(ready)).to_string());
    };
    match load(&occupied_by_the_running) {
        Ok(ready) => {
            mistakes::show(&ready.loaded.warnings);
            show(&ready);
            ExitCode::SUCCESS
        }
        Err(found) => {
            // The server that this configuration shall replace may still have its addresses.
            if found.are_of_system()
                && let Ok(ready) = load(&all_addresses)
            {
                show(&ready);
            }
            mistakes::refuse(file, &found, WOULD_NOT_START)
        }
    }
}

/// Returns all TCP addresses of the configuration as occupied, so that none is tried.
fn all_addresses(config: &Config) -> Occupied {
    let listeners = config.listeners().map(|listen| listen.address.to_string());
    Occupied {
        listeners: listeners.collect(),
        metrics: config.process.metrics,
        admin: Some(config.process.admin.clone()),
    }
}

/// Returns what the running instance occupies that answers on this configuration's admin socket: a
/// reload would not conflict with it.
fn occupied_by_the_running(config: &Config) -> Occupied {
    let running = AdminAddress::of(&config.process.admin).map(|admin| admin.question("/status"));
    match running {
        Some(Ok(Status { listeners, .. })) => Occupied {
            // The status lists it among the listeners.
            metrics: None,
            listeners,
            admin: Some(config.process.admin.clone()),
        },
        _ => Occupied::default(),
    }
}

/// Returns the page: what `serve` would run with this configuration.
fn page(ready: &Ready) -> String {
    let Loaded { config, plan, .. } = &ready.loaded;
    let mut page = String::new();
    let names = config.route_names();
    let mut names = names.iter();
    for (route, pems) in config.routes.iter().zip(ready.certificates()) {
        // Writing into a String can't fail.
        let _ = writeln!(
            page,
            "Route {} from {} to {}",
            names.next().map_or("", String::as_str),
            listeners(route),
            backends(&route.to)
        );
        let mut rows = route_rows(config, route, pems);
        rows.extend(share_row(route.route_memory_share, plan));
        table::write(&mut page, &rows);
        page.push('\n');
    }
    for originate in &config.originate {
        let listen: Vec<String> = originate.listen.iter().map(ToString::to_string).collect();
        let to: Vec<String> = originate.to.iter().map(server).collect();
        let _ = writeln!(
            page,
            "Origination {} from {} over TLS to {}",
            names.next().map_or("", String::as_str),
            listen.join(", "),
            to.join(", ")
        );
        let mut rows = originate_rows(originate);
        rows.extend(share_row(originate.route_memory_share, plan));
        table::write(&mut page, &rows);
        page.push('\n');
    }
    page.push_str("Program\n");
    table::write(&mut page, &program_rows(config, plan));
    page.push_str("\nMaximum memory\n");
    table::write(&mut page, &memory_rows(config, plan));
    page
}

/// Returns the addresses of a route, with the configured text where it differs.
fn listeners(route: &Route) -> String {
    let items = route.listen.chunk_by(|a, b| a.given == b.given);
    let shown = items.map(|item| {
        let addresses: Vec<String> = item
            .iter()
            .map(|listen| listen.address.to_string())
            .collect();
        let addresses = addresses.join(" and ");
        match item.first() {
            Some(listen) if listen.given != addresses => format!("{} ({addresses})", listen.given),
            _ => addresses,
        }
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn backends(upstreams: &[Upstream]) -> String {
    let shown = upstreams.iter().map(|upstream| {
        let mut shown = backend(&upstream.backend);
        if upstream.weight != 1 {
            let _ = write!(shown, " x {}", upstream.weight);
        }
        if upstream.backup {
            shown.push_str(" as backup");
        }
        shown
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn backend(backend: &Backend) -> String {
    match backend {
        Backend::Tcp { given, addresses } if addresses.is_empty() => {
            format!("{given} (unresolved)")
        }
        Backend::Tcp { given, .. } if backend.to_string() != *given => {
            let addresses: Vec<String> = backend.addresses().map(|a| a.to_string()).collect();
            format!("{given} ({})", addresses.join(", "))
        }
        other => other.to_string(),
    }
}

/// Returns a server, with its addresses where they differ from the configured text.
fn server(server: &Server) -> String {
    let addresses: Vec<String> = server.addresses.iter().map(ToString::to_string).collect();
    let addresses = match addresses.as_slice() {
        [] => "unresolved".to_owned(),
        all => all.join(" and "),
    };
    if addresses == server.given {
        addresses
    } else {
        format!("{} ({addresses})", server.given)
    }
}

/// Returns what refuses servers' certificates of trusted authorities, to be appended to these.
fn revocation(lists: &[PathBuf], ocsp: StapledOcsp) -> String {
    let lists: Vec<String> = lists
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let mut words = String::new();
    if !lists.is_empty() {
        let _ = write!(words, "; except those revoked in {}", lists.join(", "));
    }
    if ocsp == StapledOcsp::Required {
        words += "; only with a stapled OCSP response";
    }
    words
}

fn originate_rows(originate: &Originate) -> Vec<Row> {
    let trust = if originate.insecure {
        "ANY certificate (insecure)".to_owned()
    } else {
        let revoked = revocation(&originate.crl, originate.ocsp);
        format!("{}{revoked}", originate.ca)
    };
    let ids = list(&originate.server_ids);
    let names: Vec<&str> = originate
        .to
        .iter()
        .map(|to| originate.server_name.as_deref().unwrap_or(&to.host))
        .collect();
    let own = originate.certificates.first();
    let own = own.map_or("none".to_owned(), |own| own.cert.display().to_string());
    let alpn = if originate.alpn.is_empty() {
        "not offered".to_owned()
    } else {
        originate.alpn.join(", ")
    };
    let file = originate.session_file.as_ref();
    let kept = file.map_or("in memory".to_owned(), |file| {
        format!("in {}", file.display())
    });
    let mut rows = Vec::new();
    if originate.starttls != Starttls::Off {
        rows.push(row(
            "STARTTLS",
            originate.starttls,
            "servers begin in plaintext",
        ));
    }
    rows.extend([
        row("trust", trust, ""),
        row(
            "server name",
            names.join(", "),
            match originate.server_ids.is_empty() {
                true => String::new(),
                false => format!("only sent; the certificate must be of {ids}"),
            },
        ),
        row("certificate", own, ""),
        row(
            "versions",
            versions(originate.min_version, originate.max_version),
            "",
        ),
        row("ALPN", alpn, ""),
        row("truncation", originate.truncation, ""),
        row(
            "sessions",
            format!(
                "resumed up to {} times",
                show_number(originate.resume_uses.into())
            ),
            format!(
                "within {}, kept {kept}",
                show_duration(originate.resume_age)
            ),
        ),
        row("warm", show_number(originate.warm.into()), ""),
    ]);
    rows
}

fn versions(min: TlsVersion, max: TlsVersion) -> String {
    if min == max {
        format!("TLS {min} only")
    } else {
        format!("TLS {min} to {max}")
    }
}

fn route_rows(config: &Config, route: &Route, pems: &[Pem]) -> Vec<Row> {
    let names = match route.server_names.as_slice() {
        [] => "any".to_owned(),
        names => list(names),
    };
    let mut rows = vec![row("server names", names, "")];
    if route.starttls != Starttls::Off {
        rows.push(row(
            "STARTTLS",
            route.starttls,
            "clients begin in plaintext",
        ));
    }
    rows.extend(certificates::rows(config, route, pems));
    if !route.pass_through {
        let versions = versions(route.oldest_version(), route.max_version);
        let alpn = match route.alpn.as_slice() {
            [] => "off".to_owned(),
            protocols => protocols.join(", "),
        };
        rows.push(row("versions", versions, ""));
        rows.push(row("ALPN", alpn, ""));
        rows.push(client_row(route));
    }
    if !route.allow.is_empty() || !route.deny.is_empty() {
        let allowed = match route.allow.as_slice() {
            [] => "all".to_owned(),
            networks => list(networks),
        };
        let denied = match route.deny.as_slice() {
            [] => String::new(),
            networks => format!("except {}", list(networks)),
        };
        rows.push(row("networks", allowed, denied));
    }
    let from = match route.accept_proxy_from.as_slice() {
        [] => "not accepted from clients".to_owned(),
        networks => format!("required from {}", list(networks)),
    };
    let sent = match route.proxy_protocol {
        ProxyProtocol::Off => "not sent".to_owned(),
        version => format!("sent as {version}"),
    };
    rows.push(row("PROXY protocol", sent, from));
    if !route.is_echo() {
        rows.extend(backend_rows(route));
    }
    rows.extend(route.rest_after.map(|after| deep_rest_row(route, after)));
    rows.push(row("truncation", route.truncation, ""));
    rows
}

/// Returns the row about a route's share of the memory for connections.
fn share_row(share: Option<u32>, plan: &Plan) -> Option<Row> {
    let percent = share?;
    let of = |limit: ByteSize| bytes(config::share_of(limit.0, percent));
    let connections = config::share_of(plan.connections_max.into(), percent);
    Some(row(
        "memory share",
        format!("{percent} %"),
        format!(
            "at most {} connections, {} of kernel_memory and {} of pending_memory",
            show_number(connections),
            of(plan.kernel_memory),
            of(plan.pending_memory)
        ),
    ))
}

/// Returns the row about client certificates: whether they are requested, and which are accepted.
fn client_row(route: &Route) -> Row {
    let Some(ca) = &route.client_ca else {
        return row("client certificates", route.client_certificates, "");
    };
    let mut remark = format!("signed by {ca}");
    if !route.client_crl.is_empty() {
        let lists: Vec<String> = (route.client_crl.iter())
            .map(|path| path.display().to_string())
            .collect();
        let _ = write!(remark, "; except those revoked in {}", lists.join(", "));
    }
    if !route.client_allow.is_empty() {
        let _ = write!(remark, "; only {}", list(&route.client_allow));
    }
    row("client certificates", route.client_certificates, remark)
}

/// Returns the row about deep rest: which sides of a connection leave the kernel.
fn deep_rest_row(route: &Route, after: Duration) -> Row {
    const STAYS: &str = "its connection stays awake and counts in max_awake";
    let is_unix = |to: &Upstream| matches!(to.backend, Backend::Unix(_));
    let remark = if route.is_echo() {
        "the client's side".to_owned()
    } else if route.backend_tls {
        format!("the client's side; the backend's has TLS of its own: {STAYS}")
    } else if route.to.iter().all(is_unix) {
        format!("the client's side; the backend's is a unix socket: {STAYS}")
    } else if route.to.iter().any(is_unix) {
        format!("both sides; to a unix socket the client's only: {STAYS}")
    } else {
        "both sides".to_owned()
    };
    row(
        "deep rest",
        format!("after {}", show_duration(after)),
        remark,
    )
}

/// Returns the rows about backends: TLS, choice and health checks.
fn backend_rows(route: &Route) -> Vec<Row> {
    let mut rows = Vec::new();
    rows.push(match route.backend_tls {
        false => row("backend TLS", "no", ""),
        true => {
            let name = match &route.backend_name {
                Some(name) => name.clone(),
                None => "its host in `to`".to_owned(),
            };
            let own = route.backend_certificates.first();
            let own = own.map_or(String::new(), |own| {
                format!("; sends {}", own.cert.display())
            });
            let revoked = revocation(&route.backend_crl, route.backend_ocsp);
            let expected = match route.backend_ids.is_empty() {
                true => format!("name: {name}"),
                false => format!("ids: {}", list(&route.backend_ids)),
            };
            let trust = format!(
                "authorities: {}{revoked}; {expected}{own}",
                route.backend_ca
            );
            row("backend TLS", "yes", trust)
        }
    });
    if route.to.len() > 1 {
        rows.push(row("balance", route.balance, ""));
    }
    rows.push(match &route.check {
        Probe::Off => row(
            "checks",
            "off",
            "only failed connects mark a backend as down",
        ),
        check => row(
            "checks",
            check,
            format!(
                "every {}, within {}; down after {}, up after {}",
                show_duration(route.check_every),
                show_duration(route.check_timeout),
                route.check_fall,
                route.check_rise
            ),
        ),
    });
    rows
}

/// Joins items with commas; shows only the first ones of a long list.
fn list(items: &[impl ToString]) -> String {
    const SHOWN_MAX: usize = 6;
    let mut shown: Vec<String> = items
        .iter()
        .take(SHOWN_MAX)
        .map(ToString::to_string)
        .collect();
    if items.len() > SHOWN_MAX {
        shown.push(format!("and {} more", items.len() - SHOWN_MAX));
    }
    shown.join(", ")
}

fn program_rows(config: &Config, plan: &Plan) -> Vec<Row> {
    let auto = |count: Count, remark: &str| match count {
        Count::Auto => format!("auto: {remark}"),
        Count::Exactly(_) => String::new(),
    };
    let timeouts = &config.timeouts;
    let idle = timeouts
        .idle_timeout
        .map_or("off".to_owned(), show_duration);
    let mut rows = vec![
        row(
            "workers",
            plan.workers,
            auto(
                config.process.workers,
                "one per core, or as many as the connections need",
            ),
        ),
        row(
            "connections",
            format!("at most {}", show_number(plan.connections_max.into())),
            auto(
                config.limits.max_connections,
                "as many as descriptors, local ports and memory allow",
            ),
        ),
    ];
    if config.rests() {
        rows.push(row(
            "awake",
            format!("at most {}", show_number(plan.awake_max.into())),
            auto(
                config.limits.max_awake,
                "as many as descriptors and memory allow; the others are in deep rest",
            ),
        ));
    }
    rows.extend([
        row(
            "per worker",
            show_number(plan.connections_per_worker.into()),
            format!(
                "needs {} descriptors",
                show_number(plan.descriptors_per_worker)
            ),
        ),
        row(
            "handshakes",
            format!("at most {}", show_number(plan.handshakes_max.into())),
            format!("each within {}", show_duration(timeouts.handshake_timeout)),
        ),
        row("idle timeout", idle, ""),
        row(
            "tickets",
            config.tickets.tickets,
            format!(
                "valid for {}",
                show_duration(config.tickets.ticket_lifetime)
            ),
        ),
        row(
            "log",
            format!("{}, as {}", config.log.log_level, config.log.log_format),
            "",
        ),
        match (&config.process.admin, Admin::usual_path()) {
            (Admin::Auto, Some(path)) => row("admin", "auto", path.display()),
            (admin, _) => row("admin", admin, ""),
        },
        match config.process.metrics {
            Some(address) => row("metrics", address, "also health checks and the status page"),
            None => row("metrics", "off", "on the admin socket only"),
        },
    ]);
    rows.extend(program_rows_if_set(config));
    rows
}

/// Rows of options that are off by default.
fn program_rows_if_set(config: &Config) -> impl Iterator<Item = Row> {
    let redirect = &config.redirect;
    let per_client = [
        config
            .limits
            .connections_per_client
            .map(|n| format!("{n} connections")),
        config
            .limits
            .handshakes_per_client
            .map(|n| format!("{n} handshakes per minute")),
        config
            .limits
            .bytes_per_client
            .map(|size| format!("{size} per second")),
    ];
    let per_client: Vec<String> = per_client.into_iter().flatten().collect();
    let keys = &config.tickets.ticket_keys;
    let keeps_keys = keys.iter().any(|source| *source != KeySource::Memory);
    let log = &config.log.connection_log;
    [
        config
            .timeouts
            .total_timeout
            .map(|total| row("total timeout", show_duration(total), "")),
        (!per_client.is_empty()).then(|| row("each client", list(&per_client), "at most")),
        keeps_keys.then(|| row("ticket keys", list(keys), "")),
        config
            .tickets
            .session_cache
            .map(|size| row("sessions", size, "session_cache")),
        (!redirect.redirect.is_empty()).then(|| {
            let remark = format!(
                "plain HTTP, redirected to https with status {}",
                redirect.redirect_status
            );
            row("redirect", list(&redirect.redirect), remark)
        }),
        (*log != LogTarget::Off).then(|| row("connection log", log, "")),
    ]
    .into_iter()
    .flatten()
}

fn memory_rows(config: &Config, plan: &Plan) -> Vec<Row> {
    let mut rows: Vec<Row> = plan
        .costs
        .iter()
        .map(|cost| row(cost.what, about(cost.bytes.0), &cost.how))
        .collect();
    let sum = plan
        .costs
        .iter()
        .fold(0_u64, |sum, cost| sum.saturating_add(cost.bytes.0));
    let remark = match config.limits.memory {
        Some(budget) => format!("of memory ({budget})"),
        None => "while all sockets are idle; set `memory` for an upper bound".to_owned(),
    };
    rows.push(row("sum", about(sum), remark));
    rows
}

/// Returns a number of bytes, rounded, with a unit.
fn about(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] = [
        ("TiB", 1 << 40),
        ("GiB", 1 << 30),
        ("MiB", 1 << 20),
        ("KiB", 1 << 10),
    ];
    match UNITS.iter().find(|(_, size)| bytes >= *size) {
        Some((_, size)) if bytes.is_multiple_of(*size) => ByteSize(bytes).to_string(),
        Some((unit, size)) => {
            let tenths = (u128::from(bytes) * 10 + u128::from(*size) / 2) / u128::from(*size);
            format!("{}.{} {unit}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_bytes_to_units() {
        assert_eq!(about(100), "100 bytes");
        assert_eq!(about(64 << 20), "64 MiB");
        assert_eq!(about(1_900_000), "1.8 MiB");
        assert_eq!(about(u64::MAX), "16777216.0 TiB");
    }
}
