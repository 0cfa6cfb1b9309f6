//! The software that findings are about, and the commands that reproduce a finding.

use super::advice::{handshakes, memory};
use super::baseline::Baseline;
use super::catalogue::FindingId;
use super::finding::{Confidence, Finding, Severity};
use super::hot_spots;
use super::known_blocks::Library;
use super::quoted;
use crate::model::Audit;
use crate::shell;
use crate::software::{ASYNCIO, SoftwareKind};
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
}

/// Observations that advice depends on.
#[derive(Clone, Copy, Default)]
struct Facts {
    /// The certificate's key signs quickly.
    signs_quickly: bool,
    /// No connection keeps a buffer as large as a record.
    buffers_released: bool,
    /// The process runs asyncio's event loop.
    asyncio: bool,
    /// The audit's clients sent a certificate.
    sends_certificate: bool,
    /// Share of a handshake's CPU time spent on parsing certificates; 0 if it was not sampled.
    parsing_share: f64,
}

impl Facts {
    fn of(audit: &Audit) -> Self {
        let server = audit.server.as_ref();
        let key = server.and_then(|server| server.offer.value()?.key());
        let census = server.and_then(|server| server.census.value());
        let software = audit.software.value();
        Self {
            parsing_share: server
                .and_then(|server| server.cpu.value()?.profile.value())
                .map_or(0.0, |profile| hot_spots::parsing_share(profile)),
            // A server that asks for one may accept clients without it.
            sends_certificate: audit.settings.contains_key("cert")
                && server.and_then(|server| server.offer.value()?.client_certificate_asked)
                    == Some(true),
            signs_quickly: key.is_some_and(|key| !key.starts_with("RSA")),
            buffers_released: census.is_some_and(|census| {
                let mut large = census.classes.iter();
                !large.any(|class| class.size_bytes >= 16_384 && class.per_connection > 0.3)
            }),
            asyncio: software
                .is_some_and(|software| software.evidence.iter().any(|sign| sign == ASYNCIO)),
        }
    }
}

impl AuditSubject {
    pub(super) fn new(audit: &Audit) -> Self {
        let setting = |name: &str| audit.settings.get(name);
        let named = ["unit", "container"].iter().find_map(|what| {
            let name = shell::quote(setting(what)?.as_str()?);
            Some(format!(" --{what} {name}"))
        });
        let process = match (setting("pid"), setting("cmd").and_then(|cmd| cmd.as_str())) {
            (Some(pid), _) => format!(" --pid {pid}"),
            (None, Some(cmd)) => format!(" --cmd {}", shell::quote(cmd)),
            (None, None) => String::new(),
        };
        let options = setting("options").and_then(|options| options.as_str());
        let reach = [("relay", "--relay"), ("ca_file", "--ca-file")];
        let reach = reach.iter().filter_map(|(name, option)| {
            let value = shell::quote(setting(name)?.as_str()?);
            Some(format!(" {option} {value}"))
        });
        let listen = setting("listen").and_then(|listen| listen.as_str());
        Self {
            reach: reach.collect(),
            listen: listen.map(str::to_owned),
            kind: audit
                .software
                .value()
                .map_or(SoftwareKind::Unknown, |software| software.kind),
            is_client: audit.kind == "client",
            target: audit.target.clone(),
            at_s: audit.started_at_s,
            named: setting("named")
                .and_then(|named| named.as_str())
                .map(str::to_owned),
            which: named.unwrap_or_else(|| process.clone()),
            process,
            library: Library::of(
                audit
                    .software
                    .value()
                    .and_then(|software| software.library.as_deref()),
            ),
            facts: Facts::of(audit),
            options: options.map_or_else(String::new, |options| format!(" {options}")),
        }
    }

    /// Returns a finding with the advice for it. The caller adds the texts, and what differs from the usual.
    pub(super) fn finding(&self, id: FindingId, severity: Severity) -> Finding {
        Finding {
            id,
            severity,
            title: String::new(),
            measured: String::new(),
            reference: String::new(),
            cause: String::new(),
            confidence: Confidence::High,
            advice: self.advice(id),
            command: self.audit(),
        }
    }

    /// Returns what to change in this software; only the general advice if the audit saw that the change is already
    /// made.
    pub(super) fn advice(&self, id: FindingId) -> String {
        let facts = self.facts;
        let is_done = match (id, self.kind) {
            // The advice for both recommends a key that signs faster.
            (FindingId::HandshakeCpu | FindingId::ResumptionNotCheaper, kind) => {
                facts.signs_quickly && !kind.is_interpreted()
            }
            (FindingId::BytesPerConnection, SoftwareKind::OpenSsl | SoftwareKind::Perl) => {
                facts.buffers_released
            }
            // The advice for Python concerns the buffers of asyncio's TLS.
            (
                FindingId::BytesPerConnection | FindingId::RecordBuffersKept,
                SoftwareKind::Python,
            ) => !facts.asyncio || facts.buffers_released,
            // Threads make jemalloc, which the advice recommends, keep a cache each.
            (FindingId::HeapFragmented, SoftwareKind::Python) => !facts.asyncio,
            _ => false,
        };
        let of_http = match id {
            FindingId::BytesPerConnection | FindingId::RecordBuffersKept if self.speaks_http() => {
                memory::retained_http(self.kind)
            }
            _ => None,
        };
        let advice = match of_http {
            Some(advice) => format!("{}: {}", self.kind.name(), quoted::filled(advice)),
            None if is_done => id.advice_for_any(),
            None => id.advice(self.kind),
        };
        self.for_protocol(advice)
    }

    /// Returns the advice on handshakes that cost much CPU time, by where it was seen to be spent: what helps against
    /// certificates that each connection parses does not help where none are parsed.
    pub(super) fn advice_on_handshakes(&self, profile: Option<&[HotSpot]>) -> String {
        let advice = self.advice(FindingId::HandshakeCpu);
        let Some(profile) = profile.filter(|_| self.facts.parsing_share < PARSES) else {
            return advice;
        };
        let crypto = hot_spots::largest_is_cryptography(profile).unwrap_or(0.0);
        let is_quick = self.facts.signs_quickly && self.library == Library::OpenSsl3;
        if is_quick && crypto > CRYPTO_SHARE {
            return self.for_protocol(quoted::filled(handshakes::OPENSSL_3));
        }
        match self.kind {
            SoftwareKind::Python | SoftwareKind::Twisted | SoftwareKind::Node => {
                self.for_protocol(handshakes::INTERPRETED.to_owned())
            }
            _ => advice,
        }
    }

    /// Returns the advice on buffers that are not the TLS library's, which a setting of the library does not change.
    pub(super) fn advice_for_own_buffers(&self) -> String {
        let id = FindingId::RecordBuffersKept;
        match self.kind {
            SoftwareKind::OpenSsl => self.for_protocol(id.advice_for_any()),
            _ => self.advice(id),
        }
    }

    /// Adds to advice for Dormouse that Dormouse cannot begin TLS within another protocol.
    fn for_protocol(&self, advice: String) -> String {
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

    /// Whether handshakes include a client certificate.
    pub(super) fn sends_client_certificate(&self) -> bool {
        self.facts.sends_certificate
    }

    /// Share of a handshake's CPU time that was seen to parse certificates.
    pub(super) fn parsing_share(&self) -> f64 {
        self.facts.parsing_share
    }

    /// Returns the lab's figures for this software.
    pub(super) fn baseline(&self) -> Option<Baseline> {
        Baseline::of(self.kind, self.facts.asyncio)
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
            subject.facts.parsing_share = hot_spots::parsing_share(&spots);
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
