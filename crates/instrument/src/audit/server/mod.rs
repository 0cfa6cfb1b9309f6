//! `audit server`: what a TLS server offers, resumes, keeps and spends.

mod baseline;
mod first;
pub(super) mod hello;
pub(super) mod load;
mod offer;
mod resumption;
mod visit;

use std::time::{Duration, Instant};

use dormouse_engine::{
    ClientContext, ClientSettings, Group, Identity, Protocols, ResumptionSettings, Roots,
};
use dormouse_reactor::OnExec;
use dormouse_reactor::signal::{Signal, Signals};
use dormouse_reactor::socket::{Addr, Attempt};

use self::load::Load;
use self::offer::Questions;
use self::visit::Visit;
use super::again;
use super::model::{Audit, FirstConnection, Measured, Offer, ServerFigures};
use super::software;
use crate::load::{Expect, IdentityFiles, Launcher, Talk, TlsVersion, Trust, is_this_machine};
use crate::server::{Server, ServerSource};
use crate::session::Console;
use crate::trouble::Trouble;

/// Why the parts that need load are missing.
const FOREIGN: &str = "the server is on another machine: no load without --i-own-this-server";
const NO_PROCESS: &str = "the server's process is not known: give --pid or --cmd";

/// What is to be audited, and how.
#[derive(Clone, PartialEq, Debug)]
pub struct ServerSpec {
    /// Address: `127.0.0.1:8443`, `[::1]:8443`, `unix:/path`.
    pub target: String,
    /// The server's name in reports.
    pub label: String,
    /// Where the server comes from.
    pub source: ServerSource,
    /// By what its process was found: `unit` or `container`, and the name.
    pub found_by: Option<(&'static str, String)>,
    /// A command that starts the same server on the same address holding more, to see whether the
    /// first connection takes time in proportion.
    pub larger: Option<String>,
    /// The name in the certificate and the SNI.
    pub server_name: String,
    /// Who is trusted.
    pub trust: Trust,
    /// What is shown to a server which asks for a client certificate.
    pub identity: Option<IdentityFiles>,
    /// What is said; `None`: find out.
    pub talk: Option<Talk>,
    /// How thoroughly.
    pub effort: Effort,
    /// Connections to hold; `None`: by the effort. Twice as many are held at most.
    pub connections: Option<u64>,
    /// Options by which `bench` reaches it as the audit does: trust, name, what is said.
    pub options: Vec<String>,
    /// Whether load on another machine is allowed.
    pub own_server: bool,
}

/// How thorough an audit is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effort {
    /// Some ten seconds.
    Quick,
    /// A couple of minutes.
    Normal,
    /// As long as it takes to be sure.
    Thorough,
}

/// How much of everything.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) n: u64,
    pub(super) rounds: u32,
    pub(super) per_round: u64,
    pub(super) lanes: u32,
    pub(super) tries: usize,
    pub(super) resumed: u64,
    pub(super) quiet: Duration,
    pub(super) settle: Duration,
    pub(super) after: Duration,
    pub(super) bulk_bytes: u64,
}

/// Connections which offer a session to a server that is not ours to load.
const TRIES_POLITE: usize = 4;

impl ServerSpec {
    fn sizes(&self) -> Sizes {
        let sizes = self.effort.sizes();
        Sizes {
            n: self.connections.unwrap_or(sizes.n),
            ..sizes
        }
    }
}

impl Effort {
    fn sizes(self) -> Sizes {
        let s = Duration::from_secs;
        match self {
            Self::Quick => Sizes {
                n: 250,
                rounds: 5,
                per_round: 250,
                lanes: 16,
                tries: 16,
                resumed: 200,
                quiet: s(1),
                settle: Duration::from_millis(250),
                after: Duration::from_millis(500),
                bulk_bytes: 2_000_000,
            },
            Self::Normal => Sizes {
                n: 2000,
                rounds: 5,
                per_round: 3000,
                lanes: 50,
                tries: 40,
                resumed: 1500,
                quiet: s(10),
                settle: s(1),
                after: s(5),
                bulk_bytes: 32_000_000,
            },
            Self::Thorough => Sizes {
                n: 4700,
                rounds: 6,
                per_round: 20_000,
                lanes: 500,
                tries: 200,
                resumed: 10_000,
                quiet: s(60),
                settle: s(2),
                after: s(30),
                bulk_bytes: 128_000_000,
            },
        }
    }
}

/// How connections are made by hand.
#[derive(Clone, Copy)]
pub(super) struct Means<'a> {
    pub(super) target: &'a Addr,
    pub(super) name: &'a str,
    pub(super) trust: &'a Trust,
    pub(super) identity: Option<&'a IdentityFiles>,
    /// Whether there may be more than a handful of connections.
    pub(super) free: bool,
}

impl Means<'_> {
    /// Bytes of the client's own chain, without the wrapping of PEM.
    pub(super) fn chain_bytes(&self) -> Option<u32> {
        let text = std::fs::read_to_string(&self.identity?.certificate).ok()?;
        let mut inside = false;
        let mut coded = 0;
        for line in text.lines() {
            match line.trim() {
                "-----BEGIN CERTIFICATE-----" => inside = true,
                line if line.starts_with("-----") => inside = false,
                line if inside => coded += line.trim_end_matches('=').len(),
                _ => {}
            }
        }
        u32::try_from(coded / 4 * 3).ok()
    }

    pub(super) fn context(
        &self,
        protocols: Protocols,
        resumption: Option<ResumptionSettings>,
    ) -> Result<ClientContext, String> {
        let roots = match self.trust {
            Trust::System => Roots::System,
            Trust::Pem(pem) => Roots::Pem(pem.clone().into_bytes()),
            Trust::Insecure => Roots::Insecure,
        };
        let mut settings = ClientSettings::new(roots);
        settings.protocols = protocols;
        settings.resumption = resumption;
        if let Some(files) = self.identity {
            let identity = Identity::from_files(&files.certificate, &files.key);
            settings.identity = Some(identity.map_err(|error| error.to_string())?);
        }
        settings
            .groups
            .retain(|group| *group != Group::X25519MlKem768);
        ClientContext::new(settings).map_err(|error| error.to_string())
    }
}

pub(super) fn version_name(protocols: Protocols) -> &'static str {
    if protocols == Protocols::TLS12 {
        "TLS 1.2"
    } else {
        "TLS 1.3"
    }
}

/// Audits a server. Whatever goes wrong is in its outcome, with the figures so far.
pub fn run(spec: &ServerSpec, launcher: &Launcher, console: &mut dyn Console) -> Audit {
    let mut audit = Audit::begin("server", &spec.label, &spec.target);
    describe(spec, &mut audit);
    let began = Instant::now();
    let end = look(spec, launcher, console, &mut audit, began);
    audit.duration_s = began.elapsed().as_secs_f64();
    audit.conclude(end);
    audit
}

fn describe(spec: &ServerSpec, audit: &mut Audit) {
    let mut put =
        |name: &str, value: serde_json::Value| drop(audit.settings.insert(name.into(), value));
    put("effort", format!("{:?}", spec.effort).to_lowercase().into());
    put("server_name", spec.server_name.clone().into());
    put("options", again::line(&spec.options).into());
    match &spec.source {
        ServerSource::Pid(pid) => put("pid", (*pid).into()),
        ServerSource::Command(command) => put("cmd", command.clone().into()),
        ServerSource::Unknown => {}
    }
    if let Some((what, name)) = &spec.found_by {
        put(what, name.clone().into());
    }
    if let Some(files) = &spec.identity {
        put("cert", files.certificate.display().to_string().into());
    }
    if spec.trust == Trust::Insecure {
        audit
            .notes
            .push("the server's certificate was NOT verified (--insecure)".into());
    }
}

/// Signals which are looked at between the parts; the parts with load look by themselves.
struct Interrupts(Option<Signals>);

impl Interrupts {
    fn check(&self) -> Result<(), Trouble> {
        match self.0.as_ref().map(Signals::receive) {
            Some(Ok(Attempt::Done(_))) => Err(Trouble::lost("interrupted; figures so far")),
            _ => Ok(()),
        }
    }
}

fn look(
    spec: &ServerSpec,
    launcher: &Launcher,
    console: &mut dyn Console,
    audit: &mut Audit,
    began: Instant,
) -> Result<(), Trouble> {
    let target = spec.target.parse::<Addr>();
    let target = target.map_err(|error| Trouble::usage(format!("{error}")))?;
    let interrupts =
        Interrupts(Signals::open(&[Signal::Interrupt, Signal::Terminate], OnExec::Close).ok());
    let free = is_near(&target) || spec.own_server;
    let means = Means {
        target: &target,
        name: &spec.server_name,
        trust: &spec.trust,
        identity: spec.identity.as_ref(),
        free,
    };
    stage(console, "starting");
    let more = larger(spec, &means, &interrupts)?;
    let server = Server::open(&spec.source, &target, &mut || interrupts.check().is_ok())?;
    if let Some(server) = &server {
        audit.processes = server.tree.describe()?;
    }
    let first = first(spec, &means, server.as_ref(), more);
    interrupts.check()?;

    stage(console, "what is offered");
    let offered = look_at_offer(spec, &means, free);
    // A server that cannot be reached at all ends the audit.
    let asked = offered
        .value()
        .and_then(|offer| offer.client_certificate_asked);
    let want = asked == Some(true) && spec.identity.is_none();
    let (talk, banner) = probe(spec, &means).map_err(|trouble| with_hint(trouble, want))?;
    keep_talk(spec, &talk, audit);
    interrupts.check()?;
    if let Some(server) = &server {
        audit.processes = server.tree.describe()?;
    }
    audit.software = Measured::from(software::recognise(&audit.processes, banner.as_deref()));

    stage(console, "resumption");
    let sizes = spec.sizes();
    let tries = if free { sizes.tries } else { TRIES_POLITE };
    let learnt = resumption::try_all(&means, &words(&talk), tries);
    console.stage_over();
    interrupts.check()?;
    let key = offered.value().and_then(Offer::key);
    let resuming = resuming(&learnt.resumption);
    let why = server.as_ref().map_or(NO_PROCESS, |_| FOREIGN);
    audit.server = Some(ServerFigures {
        offer: offered,
        resumption: learnt.resumption,
        flights: learnt.flights,
        memory: Measured::not(why),
        census: Measured::not(why),
        cpu: Measured::not(why),
        first,
    });
    let Some(server) = server.filter(|_| free) else {
        return Ok(());
    };
    let mut load = Load {
        spec,
        launcher,
        console,
        root: server.tree.root(),
        talk,
        sizes,
        resuming,
        reference: baseline::measure(key.as_deref()).map_err(Trouble::system)?,
        began,
    };
    let loaded = load.run().map_err(|trouble| with_hint(trouble, want));
    keep(audit, loaded)
}

/// What helps when a server wants a client certificate and got none.
fn with_hint(trouble: Trouble, want: bool) -> Trouble {
    let hint = if want {
        "; it asks for a client certificate: --cert and --key"
    } else {
        ""
    };
    Trouble {
        message: format!("{}{hint}", trouble.message),
        ..trouble
    }
}

/// What is said once.
fn words(talk: &Talk) -> Vec<u8> {
    match talk {
        Talk::Say { message, .. } => message.clone(),
        Talk::Http { path, host } => {
            format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes()
        }
    }
}

/// `bench` does not find out what a server speaks: it is told.
fn keep_talk(spec: &ServerSpec, talk: &Talk, audit: &mut Audit) {
    if let (None, Talk::Http { path, .. }) = (&spec.talk, talk) {
        let given = spec.options.iter().map(String::as_str);
        let options = again::line(given.chain(["--http", path]));
        audit.settings.insert("options".into(), options.into());
    }
}

fn stage(console: &mut dyn Console, name: &str) {
    console.stage_over();
    console.stage(name, None);
}

fn keep(audit: &mut Audit, loaded: Result<load::Loaded, Trouble>) -> Result<(), Trouble> {
    let Some(figures) = &mut audit.server else {
        return loaded.map(drop);
    };
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(trouble) => {
            // What the load did not reach is said as what it is, not as something nobody asked for.
            let why = &trouble.message;
            figures.memory = Measured::not(why.clone());
            figures.census = Measured::not(why.clone());
            figures.cpu = Measured::not(why.clone());
            return Err(trouble);
        }
    };
    audit.samples = loaded.samples;
    figures.memory = Measured::Measured(loaded.memory);
    figures.census = loaded.census;
    figures.cpu = Measured::Measured(loaded.cpu);
    for (version, trials) in loaded.trials {
        let name = match version {
            TlsVersion::V12 => "TLS 1.2",
            TlsVersion::V13 => "TLS 1.3",
        };
        let same = figures
            .resumption
            .iter_mut()
            .find(|entry| entry.version == name && entry.by == "ticket");
        if let Some(Measured::Measured(known)) = same.map(|entry| &mut entry.trials) {
            // Under load it is not known who had a ticket to offer: it only says more of a share
            // that is known to be one.
            if known.share() > 0.9 {
                continue;
            }
            known.offered += trials.offered;
            known.resumed += trials.resumed;
        }
    }
    Ok(())
}

fn is_near(target: &Addr) -> bool {
    match target {
        Addr::Tcp(address) => is_this_machine(address.ip()),
        Addr::Unix(_) => true,
    }
}

fn look_at_offer(spec: &ServerSpec, means: &Means<'_>, free: bool) -> Measured<Offer> {
    // An address is no server name (RFC 6066 §3).
    let name = spec.server_name.parse::<std::net::IpAddr>().is_err();
    let questions = Questions {
        target: means.target,
        name: name.then_some(spec.server_name.as_str()),
        all: free,
    };
    let mut offered = offer::offer(&questions);
    if let Ok(offer) = &mut offered {
        for protocols in [Protocols::TLS13, Protocols::TLS12] {
            if offer.versions.get(version_name(protocols)) != Some(&true) {
                continue;
            }
            let resumption = Some(ResumptionSettings::default());
            let visit = means
                .context(protocols, resumption)
                .and_then(|context| Visit::make(means.target, &context, means.name));
            match visit {
                Ok(mut visit) => {
                    offer::add_visit(offer, &mut visit, protocols == Protocols::TLS13);
                    visit.close();
                }
                Err(why) => drop(
                    offer
                        .not_measured
                        .insert(format!("a handshake with {}", version_name(protocols)), why),
                ),
            }
        }
    }
    Measured::from(offered)
}

fn resuming(resumption: &[super::model::Resumption]) -> Vec<TlsVersion> {
    let mut versions = Vec::new();
    for entry in resumption.iter().filter(|entry| entry.by == "ticket") {
        let some = entry
            .trials
            .value()
            .is_some_and(|trials| trials.resumed > 0);
        if some {
            versions.push(if entry.version == "TLS 1.3" {
                TlsVersion::V13
            } else {
                TlsVersion::V12
            });
        }
    }
    versions
}

/// The first connection, while it is still to be had.
fn first(
    spec: &ServerSpec,
    means: &Means<'_>,
    server: Option<&Server>,
    larger: Option<FirstConnection>,
) -> Measured<FirstConnection> {
    let (ServerSource::Command(_), Some(server)) = (&spec.source, server) else {
        return Measured::not("the server ran already: only with --cmd it is the first connection");
    };
    let measured = first::measure(means, server).map(|first| FirstConnection {
        larger: larger.map(Box::new),
        ..first
    });
    Measured::from(measured)
}

/// The first connection to the server that holds more, which is started before the other one and
/// stopped again.
fn larger(
    spec: &ServerSpec,
    means: &Means<'_>,
    interrupts: &Interrupts,
) -> Result<Option<FirstConnection>, Trouble> {
    let Some(command) = &spec.larger else {
        return Ok(None);
    };
    let source = ServerSource::Command(command.clone());
    let server = Server::open(&source, means.target, &mut || interrupts.check().is_ok())?;
    let Some(server) = server else {
        return Ok(None);
    };
    let measured = first::measure(means, &server);
    measured
        .map(Some)
        .map_err(|why| Trouble::target(format!("--cmd-larger: {why}")))
}

/// One connection: how it is talked to, and what it says of itself.
fn probe(spec: &ServerSpec, means: &Means<'_>) -> Result<(Talk, Option<String>), Trouble> {
    let context = means.context(Protocols::ALL, None);
    let visit = context.and_then(|context| Visit::make(means.target, &context, means.name));
    let mut visit = visit.map_err(|why| {
        Trouble::target(format!(
            "the first connection to {} failed: {why}",
            means.target
        ))
    })?;
    let found = talk(spec, &mut visit);
    visit.accepted().map_err(Trouble::target)?;
    visit.close();
    Ok(found)
}

/// What the server speaks, found out by saying something that an HTTP server understands and an
/// echo server repeats; and what it says of itself.
fn talk(spec: &ServerSpec, visit: &mut Visit) -> (Talk, Option<String>) {
    let greeting = visit
        .hear(Duration::from_millis(300), |heard, _| !heard.is_empty())
        .unwrap_or_default();
    let path = match &spec.talk {
        Some(Talk::Http { path, .. }) => path.clone(),
        _ => "/".into(),
    };
    let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", spec.server_name);
    let said = visit.say(request.as_bytes()).is_ok();
    let enough = |heard: &[u8], _| {
        heard.len() >= request.len() || heard.windows(4).any(|w| w == b"\r\n\r\n")
    };
    let answer = if said {
        visit
            .hear(Duration::from_secs(2), enough)
            .unwrap_or_default()
    } else {
        Vec::new()
    };
    let banner = banner(&answer);
    if let Some(talk) = &spec.talk {
        return (talk.clone(), banner);
    }
    if answer.starts_with(b"HTTP/1.") {
        let host = spec.server_name.clone();
        return (Talk::Http { path, host }, banner);
    }
    let expect = if answer == request.as_bytes() {
        Expect::Echo
    } else if answer.is_empty() {
        Expect::Nothing
    } else {
        Expect::Any
    };
    let talk = Talk::Say {
        message: b"hello\n".to_vec(),
        expect,
        greeting: !greeting.is_empty(),
    };
    (talk, banner)
}

/// The `Server` header.
fn banner(answer: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(answer.get(..answer.len().min(4096))?).into_owned();
    let line = text
        .lines()
        .find(|line| line.to_ascii_lowercase().starts_with("server:"))?;
    let banner: String = line.get(7..)?.trim().chars().take(80).collect();
    Some(banner)
}
