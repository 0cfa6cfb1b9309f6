//! The certificates of a route, as `serve` reads them.

use dormouse_config::{AcmeName, CertificateFiles, Config, Route, show_duration, show_number};
use dormouse_engine::{Identity, ocsp_question, pem_chain};
use dormouse_handover::{Pem, unix_time};
use dormouse_supervisor::acme_file;
use time::OffsetDateTime;

use crate::table::{Row, row};

/// Maximum number of names shown per certificate; some have a hundred.
const NAMES_SHOWN_MAX: usize = 4;
const DAY_S: u64 = 86_400;

/// Returns rows about the certificates of a route and their renewal.
pub(crate) fn rows(config: &Config, route: &Route, pems: &[Pem]) -> Vec<Row> {
    if route.pass_through {
        return vec![row(
            "certificate",
            "on the backend",
            "TLS is passed through",
        )];
    }
    let is_issued = |pem: &&Pem| {
        let mut names = route.acme.iter();
        names.any(|name| pem.name == issued_file(config, name))
    };
    let mut rows: Vec<Row> = Vec::new();
    let of_agent = route
        .certificates
        .iter()
        .filter(|one| one.spiffe().is_some());
    let of_agent: Vec<Row> = of_agent.map(|one| agent_row(config, one)).collect();
    for pem in pems.iter().filter(|pem| !is_issued(pem)) {
        rows.push(match &route.self_signed {
            Some(name) if pem.key_name == pem.name && pem.name.starts_with("self_signed") => row(
                "certificate",
                "self-signed",
                format!("for {name}; not trusted by clients; a new one at each start"),
            ),
            _ => row("certificate", &pem.name, description(pem)),
        });
    }
    rows.extend(route.acme.iter().map(|name| acme_row(config, name, pems)));
    rows.extend(staple_row(pems, config.process.ocsp_fetch));
    let has_files = route.certificates.len() > of_agent.len();
    rows.extend(of_agent);
    if has_files {
        let often = match config.process.reload_certificates {
            Some(every) => format!("checked for changes every {}", show_duration(every)),
            None => "read again only on a reload".to_owned(),
        };
        rows.push(row("renewal", "files", often));
    }
    if !route.acme.is_empty() {
        let when = "in the ACME server's renewal window, or after two thirds of the lifetime";
        rows.push(row("renewal", "by ACME", when));
    }
    rows
}

fn issued_file(config: &Config, name: &AcmeName) -> String {
    acme_file(config, name.as_str()).display().to_string()
}

/// Returns the row of a name's certificate from an ACME server.
fn acme_row(config: &Config, name: &AcmeName, pems: &[Pem]) -> Row {
    let (file, server) = (issued_file(config, name), &config.acme.acme_server);
    let remark = match pems.iter().find(|pem| pem.name == file) {
        Some(pem) => format!("{}; from {server}", description(pem)),
        None => format!("not issued yet by {server}"),
    };
    row("certificate", name, remark)
}

/// Returns the row of a certificate of the SPIFFE agent, which `check` does not ask.
fn agent_row(config: &Config, files: &CertificateFiles) -> Row {
    let agent = config.process.spiffe_agent.as_ref();
    let agent = agent.map_or_else(String::new, ToString::to_string);
    row(
        "certificate",
        files.cert.display(),
        format!("from the SPIFFE agent {agent}, which also renews it"),
    )
}

/// Returns the row about the sources of OCSP responses. `None` if no certificate has a source.
fn staple_row(pems: &[Pem], fetch: bool) -> Option<Row> {
    let from_file = pems.iter().filter(|pem| pem.ocsp_from_file).count();
    let others = pems.iter().filter(|pem| !pem.ocsp_from_file);
    let fetched = match (others.filter(|pem| has_responder(pem)).count(), fetch) {
        (0, _) => None,
        (number, true) => Some(format!("{number} fetched from the authority")),
        (number, false) => Some(format!("{number} not fetched (ocsp_fetch = false)")),
    };
    let read = (from_file > 0).then(|| format!("{from_file} read from a file"));
    let sources: Vec<String> = fetched.into_iter().chain(read).collect();
    (!sources.is_empty()).then(|| row("OCSP", "stapled", sources.join(", ")))
}

fn has_responder(pem: &Pem) -> bool {
    let chain = pem_chain(pem.chain.as_bytes(), &pem.name).unwrap_or_default();
    let slices: Vec<&[u8]> = chain.iter().map(Vec::as_slice).collect();
    ocsp_question(&slices).is_some()
}

fn description(pem: &Pem) -> String {
    let identity = pem.identity();
    identity.map_or_else(|error| error.to_string(), describe)
}

fn describe(identity: &Identity) -> String {
    let until = identity.expires_at_s();
    let left = match until.checked_sub(unix_time().as_secs()) {
        Some(left) => format!("{} days left", show_number(left / DAY_S)),
        None => "expired".to_owned(),
    };
    format!(
        "{}; {}; until {} ({left})",
        names(identity),
        identity.key_kind(),
        date(until)
    )
}

fn names(identity: &Identity) -> String {
    let names = identity.names();
    let shown = names
        .iter()
        .take(NAMES_SHOWN_MAX)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    match names.len().saturating_sub(NAMES_SHOWN_MAX) {
        0 if names.is_empty() => "no names".to_owned(),
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Returns the day of a time, in UTC: `2026-03-01`.
fn date(unix_s: u64) -> String {
    let moment = i64::try_from(unix_s).map(OffsetDateTime::from_unix_timestamp);
    match moment {
        Ok(Ok(moment)) => moment.date().to_string(),
        _ => "after the year 9999".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_dates() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_782_400), "2000-02-29");
        assert_eq!(date(1_709_251_199), "2024-02-29");
        assert_eq!(date(1_709_251_200), "2024-03-01");
        assert_eq!(date(4_102_444_799), "2099-12-31");
    }
}
