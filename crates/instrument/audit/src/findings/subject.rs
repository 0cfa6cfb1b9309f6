//! The software that findings are about, and the commands that reproduce a finding.

use super::baseline::Baseline;
use super::hot_spots;
use super::quoted;
use crate::catalogue::{FindingId, Severity};
use crate::model::Audit;
use crate::model::Finding;
use crate::shell;
use crate::software::openssl::{Library, WORK_OF_LIBRARY};
use crate::software::{ASYNCIO, Case, Facts, Program, SoftwareKind};
use dormouse_census::HotSpot;

/// Share of a handshake's CPU time spent on parsing certificates, below which no connection parses its own.
const PARSES: f64 = 0.1;
/// Share in cryptography from which the library matters more than anything else, if no part is larger.
const CRYPTO_SHARE: f64 = 0.3;

/// The audited software and the command-line options that reach it.
pub(super) struct AuditSubject {
    pub(super) kind: SoftwareKind,
    is_client: bool,
    pub(super) target: String,
    /// The name given to `audit`, of which the target is one address.
    named: Option<String>,
    /// How the process is given: `--unit nginx`, `--pid 4711`, `--cmd '…'`, or nothing.
    which: String,
    /// The same for `bench`, which knows no units and containers.
    process: String,
    /// Options that `bench` accepts too.
    options: String,
    /// Options of a client's audit.
    reach: String,
    /// Address to which the user sends clients, without a command.
    listen: Option<String>,
    pub(super) library: Library,
    /// When the audit began, in seconds since 1970.
    pub(super) at_s: u64,
    facts: Facts,
    /// Whether handshakes include a client certificate.
    pub(super) sends_certificate: bool,
    /// Share of a handshake's CPU time that was seen to parse certificates; 0 if it was not sampled.
    pub(super) parsing_share: f64,
}

fn facts(audit: &Audit) -> Facts {
    let server = audit.server.as_ref();
    let key = server.and_then(|server| server.offer.value()?.key());
    let census = server.and_then(|server| server.census.value());
    Facts {
        signs_quickly: key.is_some_and(|key| !key.starts_with("RSA")),
        buffers_released: census.is_some_and(|census| {
            let mut large = census.classes.iter();
            !large.any(|class| class.size_bytes >= 16_384 && class.per_connection > 0.3)
        }),
        asyncio: (audit.software.value())
            .is_some_and(|software| software.evidence.iter().any(|sign| sign == ASYNCIO)),
    }
}

impl AuditSubject {
    pub(super) fn new(audit: &Audit) -> Self {
        let setting = |name: &str| audit.settings.get(name);
        let text = |name: &str| Some(setting(name)?.as_str()?.to_owned());
        let option = |name: &str| {
            let value = shell::quote(&text(name)?);
            Some(format!(" --{} {value}", name.replace('_', "-")))
        };
        let pid = setting("pid").map(|pid| format!(" --pid {pid}"));
        let process = pid.or_else(|| option("cmd")).unwrap_or_default();
        let server = audit.server.as_ref();
        let software = audit.software.value();
        let profile = server.and_then(|server| server.cpu.value()?.profile.value());
        // A server that asks for a certificate may accept clients without it.
        let asks = server.and_then(|server| server.offer.value()?.client_certificate_asked);
        Self {
            kind: software.map_or(SoftwareKind::Unknown, |software| software.kind),
            is_client: audit.kind == "client",
            target: audit.target.clone(),
            named: text("named"),
            which: ["unit", "container"]
                .into_iter()
                .find_map(option)
                .unwrap_or_else(|| process.clone()),
            process,
            options: text("options").map_or_else(String::new, |options| format!(" {options}")),
            reach: ["relay", "ca_file"]
                .into_iter()
                .filter_map(option)
                .collect(),
            listen: text("listen"),
            library: Library::of(software.and_then(|software| software.library.as_deref())),
            at_s: audit.started_at_s,
            facts: facts(audit),
            sends_certificate: setting("cert").is_some() && asks == Some(true),
            parsing_share: profile.map_or(0.0, |profile| hot_spots::parsing_share(profile)),
        }
    }

    /// What the audit knows about the software.
    pub(super) fn software(&self) -> &'static Program {
        self.kind.program()
    }

    /// Returns a finding with its usual texts. The caller fills in the figures, and changes what differs.
    pub(super) fn finding(
        &self,
        id: FindingId,
        severity: Severity,
        measured: impl Into<String>,
    ) -> Finding {
        let row = id.row();
        let again = row.again.and_then(|again| again.split_once(' '));
        Finding {
            id,
            severity,
            title: row.title.into(),
            measured: measured.into(),
            reference: quoted::filled(row.good),
            cause: row.cause.into(),
            confidence: row.confidence,
            advice: self.advice(id),
            command: again
                .map_or_else(|| self.audit(), |(mode, options)| self.bench(mode, options)),
        }
    }

    /// Returns what to change in this software; only the general advice if the audit saw that the change is already
    /// made.
    pub(super) fn advice(&self, id: FindingId) -> String {
        let software = self.software();
        let of_http = software
            .advice(id, Case::Http)
            .filter(|_| self.speaks_http());
        let advice = match of_http.or_else(|| software.advice(id, Case::Usual)) {
            _ if of_http.is_none() && self.is_done(id) => return self.advice_for_any(id),
            // An operator cannot call a function of its library.
            Some(advice) if software.is_library => {
                format!(
                    "{}, in its source unless it has a setting for this: {advice}",
                    software.name
                )
            }
            None if self.kind == SoftwareKind::Unknown => return self.advice_for_any(id),
            advice => format!("{}: {}", software.name, advice.unwrap_or(id.row().change)),
        };
        self.finished(&advice)
    }

    fn is_done(&self, id: FindingId) -> bool {
        let software = self.software();
        match id {
            // The advice for both recommends a key that signs faster.
            FindingId::HandshakeCpu | FindingId::ResumptionNotCheaper
                if !software.is_interpreted =>
            {
                self.facts.signs_quickly
            }
            _ => (software.is_done)(id, &self.facts),
        }
    }

    /// Returns what to change in any software.
    pub(super) fn advice_for_any(&self, id: FindingId) -> String {
        self.finished(id.row().change)
    }

    /// Returns the advice on handshakes that cost much CPU time, by where it was seen to be spent: what helps against
    /// certificates that each connection parses does not help where none are parsed.
    pub(super) fn advice_on_handshakes(&self, profile: Option<&[HotSpot]>) -> String {
        let id = FindingId::HandshakeCpu;
        let Some(profile) = profile.filter(|_| self.parsing_share < PARSES) else {
            return self.advice(id);
        };
        let crypto = hot_spots::largest_is_cryptography(profile).unwrap_or(0.0);
        let is_quick = self.facts.signs_quickly && self.library == Library::OpenSsl3;
        if is_quick && crypto > CRYPTO_SHARE {
            return self.finished(WORK_OF_LIBRARY);
        }
        let unparsed = self.software().advice(id, Case::NothingParsed);
        unparsed.map_or_else(|| self.advice(id), |advice| self.finished(advice))
    }

    /// Returns the advice on buffers that are not the TLS library's, which a setting of the library does not change.
    pub(super) fn advice_for_own_buffers(&self) -> String {
        let id = FindingId::RecordBuffersKept;
        match self.software().is_library {
            true => self.advice_for_any(id),
            false => self.advice(id),
        }
    }

    /// Fills in the lab's figures, and adds to advice for Dormouse that it cannot begin TLS within another protocol.
    fn finished(&self, advice: &str) -> String {
        let advice = quoted::filled(advice);
        let is_starttls = self.options.contains(" --starttls ");
        if is_starttls && advice.contains("`dormouse serve`") {
            return format!(
                "{advice}. `dormouse serve` has no STARTTLS: it helps only clients that begin with TLS"
            );
        }
        advice
    }

    /// Whether the audit's connections send requests of HTTP.
    pub(super) fn speaks_http(&self) -> bool {
        self.options.contains(" --http ")
    }

    /// Returns the lab's figures for this software.
    pub(super) fn baseline(&self) -> Option<Baseline> {
        Baseline::of((self.software().lab)(&self.facts)?)
    }

    /// Returns the `bench` command that reproduces a figure.
    pub(super) fn bench(&self, mode: &str, options: &str) -> String {
        let Self {
            target,
            process,
            options: reach,
            ..
        } = self;
        let target = shell::quote(target);
        format!("dormouse bench {mode} {target} {options}{process}{reach}")
    }

    /// Returns the command that repeats the audit, of all addresses of a server if there are several.
    pub(super) fn audit(&self) -> String {
        let Self {
            target,
            named,
            which,
            options,
            reach,
            listen,
            ..
        } = self;
        if !self.is_client {
            let target = named.clone().unwrap_or_else(|| shell::quote(target));
            return format!("dormouse audit server {target} --quick{which}{options}");
        }
        match listen {
            Some(listen) => format!("dormouse audit client{reach} --listen {listen}"),
            None => format!("dormouse audit client{reach} -- {target}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_fits_the_software() {
        let advice = |id, kind| {
            let mut subject = AuditSubject::new(&Audit::begin("server", "s", "127.0.0.1:1"));
            subject.kind = kind;
            subject.advice(id)
        };
        let growing = advice(FindingId::SessionCacheGrows, SoftwareKind::Nginx);
        assert!(growing.contains("shared:SSL"));
        let client = advice(FindingId::ClientNeverResumes, SoftwareKind::Perl);
        assert!(client.contains("SSL_reuse_ctx"));
        let slow = advice(FindingId::FirstConnectionSlow, SoftwareKind::Unknown);
        assert!(!slow.contains("unknown"));
    }

    /// Recorded: the advice for Caddy and for a server on net/http was to copy with a smaller buffer than io.Copy's.
    #[test]
    fn a_server_of_http_copies_nothing() {
        let advice = |options: &str| {
            let mut audit = Audit::begin("server", "s", "127.0.0.1:1");
            audit.settings.insert("options".into(), options.into());
            let mut subject = AuditSubject::new(&audit);
            subject.kind = SoftwareKind::Go;
            subject.advice(FindingId::BytesPerConnection)
        };
        assert!(advice("--insecure --http /").contains("IdleTimeout"));
        assert!(advice("--insecure").contains("io.Copy"));
    }

    /// `bench` has no `--unit`, and a path may contain anything.
    #[test]
    fn commands_are_those_of_the_program_and_of_a_shell() {
        let mut audit = Audit::begin("server", "s", "unix:/run/a b");
        audit.settings.insert("pid".into(), 4711.into());
        audit
            .settings
            .insert("unit".into(), "a\\x2db.service".into());
        let subject = AuditSubject::new(&audit);
        assert_eq!(
            subject.bench("hold", "-n 2000"),
            "dormouse bench hold 'unix:/run/a b' -n 2000 --pid 4711"
        );
        assert_eq!(
            subject.audit(),
            "dormouse audit server 'unix:/run/a b' --quick --unit 'a\\x2db.service'"
        );
    }

    #[test]
    fn the_command_for_a_client_is_the_one_that_was_given() {
        let mut audit = Audit::begin("client", "c", "curl '{url}'");
        let command = |audit: &Audit| AuditSubject::new(audit).audit();
        assert_eq!(command(&audit), "dormouse audit client -- curl '{url}'");
        audit.settings.insert("relay".into(), "127.0.0.1:80".into());
        audit.settings.insert("ca_file".into(), "a b".into());
        assert_eq!(
            command(&audit),
            "dormouse audit client --relay 127.0.0.1:80 --ca-file 'a b' -- curl '{url}'"
        );
        audit
            .settings
            .insert("listen".into(), "127.0.0.1:8443".into());
        assert_eq!(
            command(&audit),
            "dormouse audit client --relay 127.0.0.1:80 --ca-file 'a b' --listen 127.0.0.1:8443"
        );
    }

    /// Recorded: Tornado, which runs on asyncio's loop and has a TLS of its own, was to shrink asyncio's buffers.
    #[test]
    fn buffers_that_are_not_there_need_not_shrink() {
        let mut subject = AuditSubject::new(&Audit::begin("server", "s", "127.0.0.1:1"));
        subject.kind = SoftwareKind::Python;
        subject.facts.asyncio = true;
        let advice = |subject: &AuditSubject| subject.advice(FindingId::BytesPerConnection);
        assert!(advice(&subject).contains("SSLProtocol.max_size"));
        subject.facts.buffers_released = true;
        assert!(
            !advice(&subject).contains("SSLProtocol"),
            "{}",
            advice(&subject)
        );
    }

    /// Recorded: for nginx, whose CPU time is OpenSSL's, the advice was to find out what else it does; for uvicorn, which has one
    /// context, to create one context.
    #[test]
    fn advice_on_handshakes_follows_the_samples() {
        let advice = |kind, spots: &[(&str, Option<&str>, f64)]| {
            let spots = spots.iter().map(|&(object, function, share)| HotSpot {
                object: object.into(),
                function: function.map(str::to_owned),
                share,
            });
            let spots: Vec<_> = spots.collect();
            let mut subject = AuditSubject::new(&Audit::begin("server", "s", "127.0.0.1:1"));
            (subject.kind, subject.library) = (kind, Library::OpenSsl3);
            subject.facts.signs_quickly = true;
            subject.parsing_share = hot_spots::parsing_share(&spots);
            subject.advice_on_handshakes(Some(&spots))
        };
        let of_library = [("libcrypto.so.3", None, 0.46), ("kernel", None, 0.2)];
        let nginx = advice(SoftwareKind::Nginx, &of_library);
        assert!(nginx.starts_with("the largest part is OpenSSL"), "{nginx}");
        let of_python = [
            (
                "libpython3.11.so.1.0",
                Some("_PyEval_EvalFrameDefault"),
                0.3,
            ),
            ("libcrypto.so.3", None, 0.18),
        ];
        let uvicorn = advice(SoftwareKind::Python, &of_python);
        assert!(!uvicorn.contains("load_verify_locations"), "{uvicorn}");
        let parses = [("libcrypto.so.3", Some("X509_NAME_cmp"), 0.5)];
        let each = advice(SoftwareKind::Python, &parses);
        assert!(each.contains("load_verify_locations"), "{each}");
    }

    /// Recorded: the advice for MariaDB, whose clients begin in plaintext, was to put `dormouse serve` in front.
    #[test]
    fn advice_knows_that_dormouse_has_no_starttls() {
        let mut audit = Audit::begin("server", "s", "127.0.0.1:1");
        let advice = |audit: &Audit| AuditSubject::new(audit).advice(FindingId::RecordBuffersKept);
        assert!(!advice(&audit).contains("STARTTLS"));
        let options = "--insecure --starttls mysql";
        audit.settings.insert("options".into(), options.into());
        assert!(advice(&audit).contains("no STARTTLS"), "{}", advice(&audit));
    }
}
