//! `audit server`: what a TLS server offers, resumes, keeps and spends.

mod addresses;
mod baseline;
mod dialer;
mod first_connection;
mod garbage;
pub(super) mod load;
mod offer;
mod probe_connection;
pub(super) mod probe_hello;
mod protocol;
mod renegotiation;
mod resumption;
mod spec;
mod ticket_ageing;

use std::time::{Duration, Instant};

use dormouse_engine::{Protocols, ResumptionSettings};
use dormouse_reactor::signal::Signals;
use dormouse_reactor::socket::{Addr, Attempt};

use self::dialer::{Dialer, version_name};
use self::load::Load;
use self::offer::OfferProbe;
use self::probe_connection::{ProbeConnection, Socket};
pub use self::spec::{Effort, ServerSpec};
use super::model::{Audit, FirstConnection, Measured, Offer, ServerFigures};
use super::shell;
use super::software;
use dormouse_bench::load::{Launcher, Talk, TlsVersion, Trust, is_this_machine};
use dormouse_bench::{Console, MeasuredSide, Progress};
use dormouse_measure::Error;
use dormouse_measure::interrupts;
use dormouse_measure::{Server, ServerSource};

/// Why the parts that need load are missing.
const FOREIGN: &str = "the server is on another machine: no load without --i-own-this-server";
const EARLIER: &str = "the audit ended before";
const NO_PROCESS: &str = "the server's process is not known: give --pid or --cmd";

/// Connections which offer a session to a server that is not ours to load.
const TRIES_POLITE: usize = 4;

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
    put("options", shell::command_line(&spec.options).into());
    if let Some(named) = &spec.named {
        put("named", named.clone().into());
    }
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
    fn check(&self) -> Result<(), Error> {
        match self.0.as_ref().map(Signals::receive) {
            Some(Ok(Attempt::Done(_))) => Err(Error::lost("interrupted; figures so far")),
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
) -> Result<(), Error> {
    let interrupts = Interrupts(interrupts::open());
    let (target, addresses) = addresses(spec, audit)?;
    let spec = &ServerSpec {
        target: target.to_string(),
        ..spec.clone()
    };
    let free = addresses.iter().all(is_near) || spec.own_server;
    let means = Dialer {
        target: &target,
        name: &spec.server_name,
        trust: &spec.trust,
        identity: spec.identity.as_ref(),
        words: &[],
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
    let (talk, banner) = protocol::detect(spec, &means).map_err(|error| with_hint(error, want))?;
    keep_talk(spec, &talk, audit);
    interrupts.check()?;
    if let Some(server) = &server {
        audit.processes = server.tree.describe()?;
    }
    audit.software = Measured::from(software::recognise(&audit.processes, banner.as_deref()));

    let why = server.as_ref().map_or(NO_PROCESS, |_| FOREIGN);
    let key = offered.value().and_then(Offer::key);
    audit.server = Some(so_far(offered, first, why));
    let words = words(&talk);
    let means = Dialer {
        words: &words,
        ..means
    };
    let set_aside = sessions(spec, &means, &addresses, &interrupts, console, audit)?;
    let server = server.filter(|_| free);
    if let Some(server) = &server {
        let figures = audit.server.as_ref();
        let software = audit.software.value();
        let mut load = Load {
            spec,
            launcher,
            console: &mut *console,
            root: server.tree.root(),
            talk,
            sizes: spec.sizes(),
            collects: software.is_some_and(|software| software.kind.collects()),
            resuming: figures.map_or_else(Vec::new, |figures| resuming(&figures.resumption)),
            reference: baseline::measure(key.as_deref()).map_err(Error::system)?,
            began,
        };
        let loaded = load.run().map_err(|error| with_hint(error, want));
        keep(audit, loaded)?;
    }
    let load_between = server.is_some();
    age(&means, set_aside, load_between, &interrupts, console, audit)
}

/// What is known before the rest is looked at. `why`: why there will be no load, if there is none.
fn so_far(offer: Measured<Offer>, first: Measured<FirstConnection>, why: &str) -> ServerFigures {
    ServerFigures {
        offer,
        resumption: Vec::new(),
        addresses: Measured::not(EARLIER),
        aged: Measured::not(EARLIER),
        flights: Vec::new(),
        memory: Measured::not(why),
        census: Measured::not(why),
        cpu: Measured::not(why),
        first,
    }
}

/// Tickets which wait to be old enough, or why there are none.
type Waiting = Result<Vec<ticket_ageing::AgeingTicket>, String>;

/// Whether sessions are resumed, here and at the other addresses; and some are set aside.
fn sessions(
    spec: &ServerSpec,
    means: &Dialer<'_>,
    addresses: &[Addr],
    interrupts: &Interrupts,
    console: &mut dyn Console,
    audit: &mut Audit,
) -> Result<Waiting, Error> {
    stage(console, "resumption");
    let tries = if means.free {
        spec.sizes().tries
    } else {
        TRIES_POLITE
    };
    let Some(figures) = &mut audit.server else {
        return Ok(Err(EARLIER.into()));
    };
    let versions = versions(figures.offer.value());
    let learnt = resumption::try_all(means, tries, &versions);
    if let Measured::Measured(offer) = &mut figures.offer {
        offer::add_tickets_13(offer, &learnt.tickets_13);
    }
    (figures.resumption, figures.flights) = (learnt.resumption, learnt.flights);
    interrupts.check()?;
    figures.addresses = addresses::try_all(means, addresses, &versions);
    interrupts.check()?;
    let set_aside = ticket_ageing::set_aside(means, spec.effort, &versions);
    console.stage_over();
    Ok(set_aside)
}

/// The server's address, and all of its name's. Of several it is the first which answers.
fn addresses(spec: &ServerSpec, audit: &mut Audit) -> Result<(Addr, Vec<Addr>), Error> {
    let read = |text: &String| {
        text.parse::<Addr>()
            .map_err(|error| Error::usage(format!("{error}")))
    };
    let target = read(&spec.target)?;
    let mut all = spec
        .addresses
        .iter()
        .map(read)
        .collect::<Result<Vec<_>, _>>()?;
    if all.len() < 2 || matches!(spec.source, ServerSource::Command(_)) {
        return Ok((target.clone(), vec![target]));
    }
    let answering = all
        .iter()
        .find(|address| Socket::connect(address).is_ok())
        .cloned()
        .unwrap_or(target);
    if answering.to_string() != spec.target {
        let note = format!(
            "{} does not answer; all but resumption across addresses is about {answering}",
            spec.target
        );
        audit.notes.push(note);
        audit.target = answering.to_string();
    }
    all.dedup();
    Ok((answering, all))
}

/// The versions that are offered, the newest first.
fn versions(offer: Option<&Offer>) -> Vec<Protocols> {
    let offered = |protocols: &Protocols| {
        offer.is_some_and(|offer| offer.versions.get(version_name(*protocols)) == Some(&true))
    };
    let both = [Protocols::TLS13, Protocols::TLS12];
    both.into_iter().filter(offered).collect()
}

/// Offers the tickets that were set aside, each when it has its age.
fn age(
    means: &Dialer<'_>,
    set_aside: Waiting,
    load_between: bool,
    interrupts: &Interrupts,
    console: &mut dyn Console,
    audit: &mut Audit,
) -> Result<(), Error> {
    let mut keep = |aged| {
        if let Some(figures) = &mut audit.server {
            figures.aged = aged;
        }
    };
    let mut waiting = match set_aside {
        Ok(waiting) => waiting,
        Err(why) => {
            keep(Measured::not(why));
            return Ok(());
        }
    };
    let (began, all) = (Instant::now(), waiting.len() as u64);
    console.stage_over();
    console.stage("tickets age", Some(all));
    let mut aged = Vec::new();
    let mut outcome = Ok(());
    while let Some(due) = ticket_ageing::due(&waiting) {
        outcome = interrupts.check();
        if outcome.is_err() {
            break;
        }
        console.progress(&Progress {
            done: aged.len() as u64,
            total: Some(all),
            alive: 0,
            failed: 0,
            pss_bytes: None,
            elapsed: began.elapsed(),
            whose: MeasuredSide::Server,
            left: ticket_ageing::last(&waiting).checked_duration_since(Instant::now()),
        });
        match due.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => {
                std::thread::sleep(left.min(Duration::from_millis(50)));
            }
            _ => aged.push(ticket_ageing::offer(
                means,
                &waiting.remove(0),
                load_between,
            )),
        }
    }
    console.stage_over();
    keep(Measured::Measured(aged));
    outcome
}

/// What helps when a server wants a client certificate and got none.
fn with_hint(error: Error, want: bool) -> Error {
    let hint = if want {
        "; it asks for a client certificate: --cert and --key"
    } else {
        ""
    };
    Error {
        message: format!("{}{hint}", error.message),
        ..error
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
        let options = shell::command_line(given.chain(["--http", path]));
        audit.settings.insert("options".into(), options.into());
    }
}

fn stage(console: &mut dyn Console, name: &str) {
    console.stage_over();
    console.stage(name, None);
}

fn keep(audit: &mut Audit, loaded: Result<load::LoadFigures, Error>) -> Result<(), Error> {
    let Some(figures) = &mut audit.server else {
        return loaded.map(drop);
    };
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(error) => {
            // What the load did not reach is said as what it is, not as something nobody asked for.
            let why = &error.message;
            figures.memory = Measured::not(why.clone());
            figures.census = Measured::not(why.clone());
            figures.cpu = Measured::not(why.clone());
            return Err(error);
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

fn look_at_offer(spec: &ServerSpec, means: &Dialer<'_>, free: bool) -> Measured<Offer> {
    // An address is no server name (RFC 6066 §3).
    let name = spec.server_name.parse::<std::net::IpAddr>().is_err();
    let questions = OfferProbe {
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
                .and_then(|context| ProbeConnection::make(means.target, &context, means.name));
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
    if let Ok(offer) = &mut offered
        && let Some(announced) = offer.secure_renegotiation
    {
        match renegotiation::attempt(means, questions.name, announced) {
            Ok(answer) => {
                offer.client_renegotiation = Some(answer.accepted);
                offer.client_renegotiation_answer = Some(answer.words);
            }
            Err(why) => drop(
                offer
                    .not_measured
                    .insert("client_renegotiation".into(), why),
            ),
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
    means: &Dialer<'_>,
    server: Option<&Server>,
    larger: Option<FirstConnection>,
) -> Measured<FirstConnection> {
    let (ServerSource::Command(_), Some(server)) = (&spec.source, server) else {
        return Measured::not("the server ran already: only with --cmd it is the first connection");
    };
    let measured = first_connection::measure(means, server).map(|first| FirstConnection {
        larger: larger.map(Box::new),
        ..first
    });
    Measured::from(measured)
}

/// The first connection to the server that holds more, which is started before the other one and
/// stopped again.
fn larger(
    spec: &ServerSpec,
    means: &Dialer<'_>,
    interrupts: &Interrupts,
) -> Result<Option<FirstConnection>, Error> {
    let Some(command) = &spec.larger else {
        return Ok(None);
    };
    let source = ServerSource::Command(command.clone());
    let server = Server::open(&source, means.target, &mut || interrupts.check().is_ok())?;
    let Some(server) = server else {
        return Ok(None);
    };
    let measured = first_connection::measure(means, &server);
    measured
        .map(Some)
        .map_err(|why| Error::target(format!("--cmd-larger: {why}")))
}
