//! The certificates of a configuration, read as `serve` would read them.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use dormouse_config::{
    AcmeName, Ca, CertificateFiles, Config, Originate, Route, show_duration, show_number,
};
use dormouse_engine::{
    Identity, IdentityError, OcspProblem, TrustStore, UnixTime, ocsp_question, pem_chain,
};
use dormouse_supervisor::{PairFiles, acme_file, certificate_pairs};
use time::OffsetDateTime;

use crate::table::{Row, row};

/// Certificates that expire within this time get a warning.
const SOON_DAYS: u64 = 14;
/// Limit on names shown of a certificate; some have a hundred.
const NAMES_SHOWN_MAX: usize = 4;
const DAY_S: u64 = 86_400;

/// Certificates of a configuration, with errors and warnings.
#[derive(Debug, Default)]
pub(crate) struct CertificateReport {
    /// Table rows about certificates, by route.
    pub(crate) by_route: Vec<Vec<Row>>,
    /// Errors that keep `serve` from starting.
    pub(crate) errors: Vec<String>,
    /// Problems that clients may report.
    pub(crate) warnings: Vec<String>,
}

/// Reads and checks all certificates and keys.
pub(crate) fn read(config: &Config) -> CertificateReport {
    let now_s = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let mut found = CertificateReport::default();
    for route in &config.routes {
        let rows = read_route(config, route, now_s, &mut found);
        found.by_route.push(rows);
    }
    for originate in &config.originate {
        read_origin(originate, now_s, &mut found);
    }
    found.errors.dedup();
    found.warnings.dedup();
    found
}

/// The certificates of a route, and how they are renewed.
fn read_route(
    config: &Config,
    route: &Route,
    now_s: u64,
    found: &mut CertificateReport,
) -> Vec<Row> {
    if route.pass_through {
        return vec![row("certificate", "the backend's", "TLS passes through")];
    }
    let mut rows = Vec::new();
    let mut staples = Staples::default();
    for files in &route.certificates {
        match certificate_pairs(files) {
            Ok(pairs) => rows.extend(read_pairs(&pairs, now_s, found, &mut staples)),
            Err(why) => found.errors.push(why),
        }
    }
    for name in &route.acme {
        rows.push(read_acme(config, name, now_s, found, &mut staples));
    }
    if let Some(name) = &route.self_signed {
        match Identity::self_signed(name) {
            Ok(_) => rows.push(row(
                "certificate",
                "self-signed",
                format!("for {name}; no client trusts it; another one at each start"),
            )),
            Err(IdentityError { problem, .. }) => {
                found.errors.push(format!("self_signed: {problem}"))
            }
        }
    }
    rows.extend(staples.row(config.process.ocsp_fetch));
    if !route.certificates.is_empty() {
        let often = match config.process.reload_certificates {
            Some(every) => format!("looked at every {}", show_duration(every)),
            None => "read again by a reload only".to_owned(),
        };
        rows.push(row("kept fresh", "files", often));
    }
    if !route.acme.is_empty() {
        let when = "renewed when the server says, or two thirds of the time are over";
        rows.push(row("kept fresh", "by ACME", when));
    }
    rows
}

/// The certificate for a name from an ACME server. A file that cannot be read is not an error:
/// `serve` gets another certificate.
fn read_acme(
    config: &Config,
    name: &AcmeName,
    now_s: u64,
    found: &mut CertificateReport,
    staples: &mut Staples,
) -> Row {
    let (file, server) = (acme_file(config, name.as_str()), &config.acme.acme_server);
    let remark = match (file.try_exists(), Identity::from_files(&file, &file)) {
        (Ok(false), _) => format!("still to come from {server}"),
        (_, Ok(identity)) => {
            staples.count(&file, false);
            let shown = file.display();
            found
                .warnings
                .extend(warnings(&identity, &shown.to_string(), now_s));
            format!("{}; from {server}", describe(&identity, now_s))
        }
        (_, Err(error)) => format!("had anew from {server}, unless it can be read then: {error}"),
    };
    row("certificate", name, remark)
}

/// Sources of the OCSP responses that are stapled to a route's certificates.
#[derive(Default)]
struct Staples {
    from_file: usize,
    with_responder: usize,
}

impl Staples {
    fn count(&mut self, cert: &Path, from_file: bool) {
        let has_responder = || {
            let chain = std::fs::read(cert).ok().and_then(|pem| pem_chain(&pem));
            let chain = chain.unwrap_or_default();
            let slices: Vec<&[u8]> = chain.iter().map(Vec::as_slice).collect();
            ocsp_question(&slices).is_some()
        };
        if from_file {
            self.from_file += 1;
        } else if has_responder() {
            self.with_responder += 1;
        }
    }

    /// None if no certificate has a source of responses.
    fn row(&self, fetch: bool) -> Option<Row> {
        let fetched = match (self.with_responder, fetch) {
            (0, _) => None,
            (number, true) => Some(format!("{number} fetched from the authority")),
            (number, false) => Some(format!("{number} not fetched (ocsp_fetch = false)")),
        };
        let read = (self.from_file > 0).then(|| format!("{} read from a file", self.from_file));
        let said: Vec<String> = fetched.into_iter().chain(read).collect();
        (!said.is_empty()).then(|| row("OCSP", "stapled", said.join(", ")))
    }
}

/// In a directory, bad pairs are warnings as long as one pair is good.
fn read_pairs(
    pairs: &[PairFiles],
    now_s: u64,
    found: &mut CertificateReport,
    staples: &mut Staples,
) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut left_out = Vec::new();
    for PairFiles {
        cert,
        key,
        ocsp,
        found: in_directory,
    } in pairs
    {
        let name = cert.display().to_string();
        match Identity::from_files(cert, key) {
            Ok(mut identity) => {
                if let Some(path) = ocsp {
                    read_staple(path, &mut identity, now_s, found);
                }
                staples.count(cert, ocsp.is_some());
                rows.push(row("certificate", &name, describe(&identity, now_s)));
                found.warnings.extend(warnings(&identity, &name, now_s));
            }
            Err(error) if *in_directory => left_out.push(error.to_string()),
            Err(error) => found.errors.push(error.to_string()),
        }
    }
    if rows.is_empty() {
        found.errors.append(&mut left_out);
    }
    let words = left_out.into_iter().map(|why| format!("left out: {why}"));
    found.warnings.extend(words);
    rows
}

/// The OCSP response beside a certificate.
fn read_staple(path: &Path, identity: &mut Identity, now_s: u64, found: &mut CertificateReport) {
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now_s));
    let shown = path.display();
    match std::fs::read(path) {
        Ok(response) => match identity.staple(&response, now) {
            Ok(_) => {}
            Err(problem @ OcspProblem::NotNow(_)) => {
                found.warnings.push(format!("{shown}: {problem}"));
            }
            Err(problem) => found.errors.push(format!("{shown}: {problem}")),
        },
        Err(error) => found
            .errors
            .push(format!("{shown}: cannot be read: {error}")),
    }
}

/// Trusted CAs and the client certificate of an origination.
fn read_origin(originate: &Originate, now_s: u64, found: &mut CertificateReport) {
    if let (Ca::File(path), false) = (&originate.ca, originate.insecure) {
        let read = std::fs::read(path).map_err(|error| error.to_string());
        let store = read.and_then(|pem| TrustStore::from_pem(&pem).map_err(|e| e.to_string()));
        if let Err(why) = store {
            found.errors.push(format!("{}: {why}", path.display()));
        }
    }
    for CertificateFiles { cert, key, .. } in &originate.certificates {
        match Identity::from_files(cert, key) {
            Ok(identity) => {
                let name = cert.display().to_string();
                found.warnings.extend(warnings(&identity, &name, now_s));
            }
            Err(error) => found.errors.push(error.to_string()),
        }
    }
}

fn describe(identity: &Identity, now_s: u64) -> String {
    let until = identity.expires_at_s();
    let left = match until.checked_sub(now_s) {
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
        0 if names.is_empty() => "for no name".to_owned(),
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn warnings(identity: &Identity, name: &str, now_s: u64) -> Vec<String> {
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now_s));
    let mut warnings: Vec<String> = identity
        .warnings(now)
        .iter()
        .map(|warning| format!("{name}: {warning}"))
        .collect();
    let left_s = identity.expires_at_s().saturating_sub(now_s);
    if (1..SOON_DAYS * DAY_S).contains(&left_s) {
        warnings.push(format!(
            "{name}: expires on {}: renew it soon",
            date(identity.expires_at_s())
        ));
    }
    warnings
}

/// The day of a time, in UTC: `2026-03-01`.
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
    fn days_have_their_dates() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_782_400), "2000-02-29");
        assert_eq!(date(1_709_251_199), "2024-02-29");
        assert_eq!(date(1_709_251_200), "2024-03-01");
        assert_eq!(date(4_102_444_799), "2099-12-31");
    }
}
