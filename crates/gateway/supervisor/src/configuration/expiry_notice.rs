//! A log line a day for each certificate that nears its end while the program runs: `check`, the start and a reload have
//! named only those that were near it then.

use crate::configuration::edition::Edition;
use crate::material::acme;
use crate::material::workload::is_of_agent;
use dormouse_engine::{IdentityWarning, UnixTime};
use dormouse_handover::{Pem, unix_time};
use dormouse_reactor::process;
use std::collections::BTreeSet;

const EVERY_MS: u64 = 86_400_000;
/// Maximum number of lines at once.
const LINES_MAX: usize = 20;

/// The next time at which the log gets its lines.
pub(crate) struct ExpiryNotice {
    due_ms: u64,
}

impl ExpiryNotice {
    pub(crate) fn begin() -> ExpiryNotice {
        let due_ms = process::boottime_ms() + EVERY_MS;
        ExpiryNotice { due_ms }
    }

    pub(crate) fn next_deadline_ms(&self) -> u64 {
        self.due_ms
    }

    /// Writes the lines if they are due.
    pub(crate) fn write_if_due(&mut self, edition: &Edition) {
        let now_ms = process::boottime_ms();
        if self.due_ms > now_ms {
            return;
        }
        self.due_ms = now_ms + EVERY_MS;
        let lines = lines(edition, unix_time());
        for warning in lines.iter().take(LINES_MAX) {
            tracing::warn!(warning, "certificate warning");
        }
        if let Some(more) = lines.len().checked_sub(LINES_MAX).filter(|&more| more > 0) {
            let warning = format!("{more} more certificates; see dormouse ctl certificates");
            tracing::warn!(warning, "certificate warning");
        }
    }
}

/// The warnings about dates of all certificates that are shown to a peer, except those that are renewed by ACME: a failure
/// to renew one has its own line.
fn lines(edition: &Edition, now: UnixTime) -> Vec<String> {
    let names = edition.config.acme_names().into_iter();
    let issued = names.map(|name| acme::file_of(&edition.config, name).display().to_string());
    let issued: BTreeSet<String> = issued.collect();
    let current = &edition.material;
    let of_servers = current.certificates.iter().flatten();
    let of_servers = of_servers.filter(|pem| !issued.contains(&pem.name));
    let origins = current.origins.iter();
    let of_client = origins.chain(current.backend_tls.iter().flatten());
    let of_client = of_client.filter_map(|origin| origin.identity.as_ref());
    let all = of_servers.chain(of_client).chain(current.of_helpers.iter());
    // Those of a SPIFFE agent last for an hour or so, and are replaced in time.
    let all = all.filter(|pem| !is_of_agent(pem));
    let mut lines: Vec<String> = all.flat_map(|pem| about(pem, now)).collect();
    // Several routes may have one certificate.
    lines.sort();
    lines.dedup();
    lines
}

fn about(pem: &Pem, now: UnixTime) -> impl Iterator<Item = String> {
    let warnings = IdentityWarning::of_dates(pem.chain.as_bytes(), now).into_iter();
    warnings.map(|warning| format!("{}: {warning}", pem.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::load;
    use crate::configuration::occasion::{Occasion, Occupied, Purpose};
    use crate::configuration::source::Source;
    use dormouse_config::Section;
    use dormouse_testkit::Authority;
    use std::fs;
    use std::time::Duration;

    #[test]
    fn each_certificate_that_nears_its_end_has_one_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let leaf = Authority::shared().ecdsa(&["a.example"]);
        for (name, text) in [
            ("a.pem", leaf.certificate_pem.clone() + &leaf.key_pem),
            ("ca.pem", Authority::shared().certificate_pem()),
        ] {
            fs::write(folder.path().join(name), text).expect("written");
        }
        let text = "[[route]]\nlisten = '127.0.0.1:5001'\nto = 'echo:'\ncertificates = 'a.pem'\n\
                    [[route]]\nlisten = '127.0.0.1:5002'\nto = '127.0.0.1:5003'\ncertificates = 'a.pem'\n\
                    backend_tls = true\nbackend_ca = 'ca.pem'\nbackend_certificates = 'a.pem'\n";
        let file = folder.path().join("dormouse.toml");
        fs::write(&file, text).expect("written");
        let source = Source {
            file: Some(file),
            section: Section::Route,
            flags: Vec::new(),
        };
        let occasion = Occasion {
            purpose: Purpose::Check,
            look_up: &|_, _| Ok(Vec::new()),
            occupied: &|_| Occupied::default(),
        };
        let ready = load::load(&source, &occasion).unwrap_or_else(|wrong| panic!("{wrong}"));
        let load::Ready {
            loaded, material, ..
        } = ready;
        let edition = Edition::new(1, 0, loaded.config, loaded.plan, material);
        let ends_s = leaf.identity().expires_at_s();
        let at = |s| lines(&edition, UnixTime::since_unix_epoch(Duration::from_secs(s)));
        assert_eq!(at(ends_s - 20 * 86_400), [""; 0]);
        let lines = at(ends_s - 3 * 86_400);
        assert!(
            lines.len() == 1 && lines[0].ends_with("a.pem: expires within 3 days; renew it"),
            "{lines:?}"
        );
        assert!(at(ends_s + 1)[0].contains("a.pem: the certificate expired at"));
    }
}
