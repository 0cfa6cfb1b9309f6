//! `audit server`: what a TLS server offers and resumes, how much memory it retains, and how much CPU time it uses.

mod addresses;
mod deadline;
mod dialer;
mod first_connection;
mod listeners;
pub(super) mod load;
mod offer;
mod probe_connection;
pub(super) mod probe_hello;
mod protocol;
mod records;
mod renegotiation;
mod resumption;
mod silent_clients;
mod spec;
mod target;
mod ticket_ageing;

use std::time::{Duration, Instant};

use dormouse_engine::Protocols;
use dormouse_reactor::socket::Addr;

use self::deadline::Deadline;
use self::dialer::{Dialer, version_name};
use self::load::{Budget, Load};
use self::probe_connection::ProbeConnection;
pub use self::spec::{Effort, ServerSpec};
use crate::model::{Audit, FirstConnection, Measured, Offer, Resumption, ServerFigures};
use crate::reference;
use crate::shell;
use crate::software::{self, Software};
use dormouse_bench::Console;
use dormouse_bench::load::{Expect, Launcher, TlsVersion, Traffic, Trust};
use dormouse_measure::{Error, Interrupts, ProcessInfo, Server, ServerSource, parent_of_same_name};

/// Why the parts that need load are missing: the server is on another machine.
const FOREIGN: &str = "the server is on another machine: no load without --i-own-this-server";
const EARLIER: &str = "the audit ended before this part";
const NO_PROCESS: &str = "the server's process is not known: give --pid or --cmd";

/// Connections that offer a session to a server that must not be loaded.
const TRIES_POLITE: usize = 4;
/// Handshakes that show how fast the server is.
const HANDSHAKES: usize = 3;

/// Share of the time left by which parts before the load end that can be cut short on a slow server.
const OFFER_SHARE: f64 = 0.15;
const RESUMPTION_SHARE: f64 = 0.25;
const FIRST_SHARE: f64 = 0.2;

/// Whether the bytes parse as a server's answer to a handmade ClientHello, or as its handshake messages.
pub(crate) fn understands(bytes: &[u8]) -> bool {
    probe_hello::read_answer(bytes).is_some() | probe_hello::read_messages(bytes).is_some()
}

/// Audits a server. The audit's outcome reports any error, and the figures up to it stay.
pub fn run(spec: &ServerSpec, launcher: &Launcher, console: &mut dyn Console) -> Audit {
    let mut audit = Audit::begin("server", &spec.label, &spec.target);
    describe(spec, &mut audit);
    let began = Instant::now();
    let end = examine(spec, launcher, console, &mut audit, began);
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
    if let Some(connections) = spec.connections {
        put("connections", connections.into());
    }
    if let Some(time) = spec.time_max {
        put("time_s", time.as_secs_f64().into());
    }
    if let Some(bytes) = spec.memory_max_bytes {
        put("memory_bytes", bytes.into());
    }
    if let Some(named) = &spec.named {
        put("named", named.clone().into());
    }
    match &spec.source {
        ServerSource::Pid(pid) => {
            put("pid", (*pid).into());
            audit.notes.extend(parent_of_same_name(*pid));
        }
        ServerSource::Command(command) => put("cmd", command.clone().into()),
        ServerSource::Unknown | ServerSource::Tree(_) => {}
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

/// Runs all parts of the audit, in order.
fn examine(
    spec: &ServerSpec,
    launcher: &Launcher,
    console: &mut dyn Console,
    audit: &mut Audit,
    began: Instant,
) -> Result<(), Error> {
    let interrupts = Interrupts::open();
    let (target, addresses) = target::addresses(spec, audit)?;
    let spec = &ServerSpec {
        target: target.to_string(),
        ..spec.clone()
    };
    let free = addresses.iter().all(target::is_near) || spec.own_server;
    let dialer = Dialer::new(spec, &target, free, &interrupts);
    stage(console, "starting");
    let larger = first_connection::measure_larger(spec, &dialer, &interrupts)?;
    let server = Server::open(&spec.source, &target, &mut || interrupts.check().is_ok())?;
    describe_processes(server.as_ref(), audit)?;
    // The time limit is for the audit, not for the start of the server.
    let deadline = Deadline::after(Instant::now(), spec.time_max());
    let dialer = dialer.until(deadline);
    let part = |share| deadline.share(Instant::now(), share);
    let until = part(FIRST_SHARE);
    let first = first_connection::measure(spec, &dialer, server.as_ref(), larger, until);
    interrupts.check()?;

    stage(console, "what is offered");
    let offered = offer::examine(&dialer, part(OFFER_SHARE));
    // An unreachable server ends the audit.
    let asks = |offer: &Offer| offer.client_certificate_asked == Some(true);
    let want = offered.value().is_some_and(asks) && spec.identity.is_none();
    let (talk, banner) = detect(spec, &dialer, want)?;
    keep_talk(spec, &talk, audit);
    describe_processes(server.as_ref(), audit)?;
    audit.software = software_of(&audit.processes, &target, banner.as_deref());

    let why = server.as_ref().map_or(NO_PROCESS, |_| FOREIGN);
    let key = offered.value().and_then(Offer::key);
    audit.server = Some(so_far(offered, first, why));
    let words = words(&talk);
    let dialer = Dialer {
        words: &words,
        ..dialer
    };
    let set_aside = sessions(spec, &dialer, &addresses, &interrupts, console, audit)?;
    single_connections(&dialer, &talk, &interrupts, console, audit)?;
    let server = server.filter(|_| free);
    if let Some(server) = &server {
        let figures = audit.server.as_ref();
        let collects = audit.collects();
        let load = Load {
            spec,
            launcher,
            console: &mut *console,
            tree: server.tree.clone(),
            talk,
            sizes: spec.sizes(),
            budget: Budget::of(spec, &server.tree, deadline),
            collects,
            renews_tickets: figures.is_none_or(renews_tickets),
            resuming: figures.map_or_else(Vec::new, |figures| resuming(&figures.resumption)),
            handshake_took: handshake_took(&dialer),
            reference: reference::measure(key.as_deref()).map_err(Error::system)?,
            began,
        };
        keep(audit, load.run())?;
    }
    age(
        &dialer,
        set_aside,
        server.is_some(),
        &interrupts,
        console,
        audit,
    )
}

/// Finds out what the server speaks. `want`: it asks for a client certificate that the audit does not have.
fn detect(
    spec: &ServerSpec,
    dialer: &Dialer<'_>,
    want: bool,
) -> Result<(Traffic, Option<String>), Error> {
    dialer.interrupts.check()?;
    let detected = protocol::detect(spec, dialer);
    // An interrupted connection fails, but the server is not to blame.
    dialer.interrupts.check()?;
    detected.map_err(|error| with_hint(error, want))
}

fn describe_processes(server: Option<&Server>, audit: &mut Audit) -> Result<(), Error> {
    if let Some(server) = server {
        audit.processes = server.tree.describe()?;
    }
    Ok(())
}

/// Recognises the software of the processes that listen.
fn software_of(all: &[ProcessInfo], target: &Addr, banner: Option<&str>) -> Measured<Software> {
    let listening = listeners::among(all, target);
    Measured::from(software::recognise(&listening, banner))
}

/// Offers the tickets that were set aside, each when it reaches its age.
fn age(
    dialer: &Dialer<'_>,
    set_aside: SetAside,
    load_between: bool,
    interrupts: &Interrupts,
    console: &mut dyn Console,
    audit: &mut Audit,
) -> Result<(), Error> {
    let (aged, end) = match set_aside {
        Ok(tickets) => {
            console.stage_over();
            let (aged, end) =
                ticket_ageing::offer_all(dialer, tickets, load_between, interrupts, console);
            (Measured::Value(aged), end)
        }
        Err(why) => (Measured::not(why), Ok(())),
    };
    if let Some(figures) = &mut audit.server {
        figures.aged = aged;
    }
    end
}

/// Figures before resumption and load are measured. `why` is the reason if there will be no load.
fn so_far(offer: Measured<Offer>, first: Measured<FirstConnection>, why: &str) -> ServerFigures {
    ServerFigures {
        offer,
        memory: Measured::not(why),
        census: Measured::not(why),
        cpu: Measured::not(why),
        first,
        ..ServerFigures::default()
    }
}

/// Tickets that were set aside to age, or the reason why there are none.
type SetAside = Result<Vec<ticket_ageing::AgeingTicket>, String>;

/// Tests whether sessions are resumed, at this address and at the others, and sets tickets aside.
fn sessions(
    spec: &ServerSpec,
    dialer: &Dialer<'_>,
    addresses: &[Addr],
    interrupts: &Interrupts,
    console: &mut dyn Console,
    audit: &mut Audit,
) -> Result<SetAside, Error> {
    stage(console, "resumption");
    let tries = if dialer.free {
        spec.sizes().tries
    } else {
        TRIES_POLITE
    };
    let Some(figures) = &mut audit.server else {
        return Ok(Err(EARLIER.into()));
    };
    let versions = versions(figures.offer.value());
    let until = dialer.deadline.share(Instant::now(), RESUMPTION_SHARE);
    let learnt = resumption::try_all(dialer, tries, &versions, until);
    if let Measured::Value(offer) = &mut figures.offer {
        offer::add_tickets_13(offer, &learnt.tickets_13);
        offer.tickets_13_resumed = learnt.tickets_13_resumed;
    }
    (figures.resumption, figures.flights) = (learnt.resumption, learnt.flights);
    interrupts.check()?;
    figures.addresses = addresses::try_all(dialer, addresses, &versions);
    interrupts.check()?;
    let set_aside = ticket_ageing::set_aside(dialer, spec.effort, &versions);
    console.stage_over();
    Ok(set_aside)
}

/// Measures what a few single connections show: the records of answers, and whether silent clients block others.
fn single_connections(
    dialer: &Dialer<'_>,
    talk: &Traffic,
    interrupts: &Interrupts,
    console: &mut dyn Console,
    audit: &mut Audit,
) -> Result<(), Error> {
    stage(console, "records and silent clients");
    if let Some(figures) = &mut audit.server {
        figures.records = records::count(dialer, talk);
        figures.silent_clients = silent_clients::examine(dialer);
    }
    console.stage_over();
    interrupts.check()
}

/// Time of one handshake: the longest of a few, because the first ones may include work that later ones share.
fn handshake_took(dialer: &Dialer<'_>) -> Option<Duration> {
    let context = dialer.context(Protocols::ALL, None).ok()?;
    let took = (0..HANDSHAKES).map(|_| {
        let visit = ProbeConnection::make(dialer, &context).ok()?;
        let took = visit.took;
        visit.close();
        Some(took)
    });
    took.flatten().max()
}

/// The versions that the server offers, the newest first.
fn versions(offer: Option<&Offer>) -> Vec<Protocols> {
    let offered = |protocols: &Protocols| {
        offer.is_some_and(|offer| offer.versions.get(version_name(*protocols)) == Some(&true))
    };
    let both = [Protocols::TLS13, Protocols::TLS12];
    both.into_iter().filter(offered).collect()
}

/// Adds the remedy for a server that requested a client certificate and received none.
fn with_hint(error: Error, want: bool) -> Error {
    let hint = if want {
        "; the server asks for a client certificate: give --cert and --key"
    } else {
        ""
    };
    Error {
        message: format!("{}{hint}", error.message),
        ..error
    }
}

/// Returns the bytes of one message or request.
fn words(talk: &Traffic) -> Vec<u8> {
    match talk {
        Traffic::Message { message, .. } => message.clone(),
        Traffic::Http { path, host, .. } => {
            format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes()
        }
    }
}

/// Records the detected protocol: `bench` does not detect it, and awaits an echo unless it is told otherwise.
fn keep_talk(spec: &ServerSpec, talk: &Traffic, audit: &mut Audit) {
    if spec.talk.is_some() || spec.starttls.is_some() {
        return;
    }
    let detected = options_of(talk);
    let given = spec.options.iter().map(String::as_str);
    let options = shell::command_line(given.chain(detected.iter().map(String::as_str)));
    audit.settings.insert("options".into(), options.into());
}

/// Returns the options of `bench` and `audit` for what the audit has detected.
fn options_of(talk: &Traffic) -> Vec<String> {
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    match talk {
        Traffic::Http {
            path,
            any_status: true,
            ..
        } => owned(&["--http", path, "--any-status"]),
        Traffic::Http { path, .. } => owned(&["--http", path]),
        Traffic::Message {
            expect: Expect::Echo,
            ..
        } => Vec::new(),
        Traffic::Message {
            message, expect, ..
        } => {
            let text = String::from_utf8_lossy(message).replace('\n', "\\n");
            let expect = match expect {
                Expect::Any => "any",
                _ => "none",
            };
            owned(&["--send", &text, "--expect", expect])
        }
    }
}

fn stage(console: &mut dyn Console, name: &str) {
    console.stage_over();
    console.stage(name, None);
}

fn keep(audit: &mut Audit, loaded: load::LoadFigures) -> Result<(), Error> {
    audit.samples = loaded.samples;
    audit.incomplete.extend(loaded.incomplete);
    for note in loaded.notes {
        // Parts with different numbers of connections say the same about the server's limit.
        let about = |note: &str| note.split(", too few").next().map(str::to_owned);
        if audit.notes.iter().all(|known| about(known) != about(&note)) {
            audit.notes.push(note);
        }
    }
    let Some(figures) = &mut audit.server else {
        return loaded.end;
    };
    figures.memory = loaded.memory;
    figures.census = loaded.census;
    figures.cpu = loaded.cpu;
    for (version, trials) in loaded.trials {
        let same = figures
            .resumption
            .iter_mut()
            .find(|entry| entry.version == version.name() && entry.by == "ticket");
        if let Some(Measured::Value(known)) = same.map(|entry| &mut entry.trials) {
            // Under load it is unknown which connections had a ticket to offer, so the count only refines a share of
            // at most 0.9. Where the server sends no ticket, they offered session ids.
            if known.share() > 0.9 || known.offered == 0 {
                continue;
            }
            known.offered += trials.offered;
            known.resumed += trials.resumed;
        }
    }
    loaded.end
}

/// Whether resumed connections of TLS 1.3 get new tickets, as far as is known.
fn renews_tickets(figures: &ServerFigures) -> bool {
    let offer = figures.offer.value();
    offer.and_then(|offer| offer.tickets_13_resumed) != Some(0)
}

fn resuming(resumption: &[Resumption]) -> Vec<TlsVersion> {
    let best = Resumption::best_shares(resumption).into_iter();
    let resumed = best.filter(|(_, share)| *share > 0.0);
    let is_13 = |version: &str| version == TlsVersion::V13.name();
    let version = |name| {
        if is_13(name) {
            TlsVersion::V13
        } else {
            TlsVersion::V12
        }
    };
    resumed.map(|(name, _)| version(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bench_is_told_what_the_audit_has_detected() {
        let message = |expect| Traffic::Message {
            message: b"hello\n".to_vec(),
            expect,
            greeting: true,
        };
        let http = |any_status| Traffic::Http {
            path: "/".into(),
            host: "h".into(),
            any_status,
        };
        let options = |talk: &Traffic| shell::command_line(options_of(talk));
        assert_eq!(options(&http(false)), "--http /");
        assert_eq!(options(&http(true)), "--http / --any-status");
        assert_eq!(options(&message(Expect::Echo)), "");
        let silent = options(&message(Expect::Nothing));
        assert_eq!(silent, "--send 'hello\\n' --expect none");
    }
}
