//! The modes: orders to the generators, measurements, and the figures that follow.

mod bulk;
mod churn;
mod figures;
mod hold;
mod request;
mod wake;

use std::time::Instant;

use crate::load::{Cycle, Launcher, Order, Tls, TlsVersion, Traffic, Trust};
use crate::model::{Run, RunOutcome};
use crate::session::{Console, Session};
use crate::spec::{Mode, Spec};
use dormouse_measure::Error;
use dormouse_measure::ServerSource;

/// Makes a run. Its outcome has any failure, and the figures so far.
pub fn run(spec: &Spec, launcher: &Launcher, console: &mut dyn Console) -> Run {
    let began = Instant::now();
    let mut run = Run::begin(spec.mode.name(), &spec.label, &spec.target);
    describe(spec, &mut run);
    let connections = spec.mode.connections_max();
    let opened = ensure_tickets_arrive(spec)
        .and_then(|()| Session::open(spec, launcher, console, connections, &mut run));
    let end = match opened {
        Err(error) => Err(error),
        Ok(mut session) => {
            let end = go(&mut session);
            let early = session.early_end();
            run = session.finish();
            // A server that has died explains everything else.
            early.map_or(end, Err)
        }
    };
    run.duration_s = began.elapsed().as_secs_f64();
    run.outcome = outcome(end, &run);
    run
}

fn go(session: &mut Session<'_>) -> Result<(), Error> {
    probe(session)?;
    match session.spec.mode.clone() {
        Mode::Hold(hold) => hold::run(session, &hold),
        Mode::Churn(churn) => churn::run(session, &churn),
        Mode::Bulk(bulk) => bulk::run(session, &bulk),
        Mode::Wake(wake) => wake::run(session, &wake),
        Mode::Request(request) => request::run(session, &request),
    }
}

/// Refuses a run that would count full handshakes as resumed ones: a server sends tickets of TLS 1.3 after the handshake,
/// when a client without an exchange has closed already.
fn ensure_tickets_arrive(spec: &Spec) -> Result<(), Error> {
    let resumes = |tls: &Tls| tls.resume && tls.version != Some(TlsVersion::V12);
    match &spec.mode {
        Mode::Churn(churn) if !churn.exchange && spec.tls.as_ref().is_some_and(resumes) => {
            Err(Error::usage(
                "without an exchange, no ticket of TLS 1.3 arrives: --resume with --no-exchange needs --tls 1.2",
            ))
        }
        _ => Ok(()),
    }
}

/// Tries one connection, with a message if the mode sends any: a server that refuses it, does not answer or is
/// not trusted ends the run at once.
fn probe(session: &mut Session<'_>) -> Result<(), Error> {
    let sends = sends_messages(&session.spec.mode);
    let order = match sends {
        true => Order::Cycle(Cycle::once(1, 1)),
        false => Order::Open {
            alive: 1,
            per_s: 0.0,
            in_flight_max: 1,
        },
    };
    let harvest = session.order("trying one connection", Some(1), &order, |tally| {
        tally.established
    })?;
    if session.is_over() {
        return Ok(());
    }
    let tally = harvest.of.tally;
    let has_worked = if sends { tally.answers } else { tally.alive };
    if has_worked == 0 {
        let reason = harvest
            .of
            .failures
            .keys()
            .next()
            .cloned()
            .unwrap_or_else(|| "it was lost".into());
        let target = &session.spec.target;
        return Err(Error::target(format!(
            "the first connection to {target} failed: {reason}"
        )));
    }
    for agreed in harvest.of.agreed.keys() {
        session
            .run
            .settings
            .insert("agreed".into(), agreed.clone().into());
    }
    session.order("closing it", None, &Order::Close, |tally| tally.closed)?;
    Ok(())
}

/// Whether the mode needs an answer to each message: without one, it would wait for the timeout again and again.
fn sends_messages(mode: &Mode) -> bool {
    match mode {
        Mode::Churn(churn) => churn.exchange,
        Mode::Wake(_) => true,
        // With HTTP, a connection is established after its first response.
        Mode::Hold(_) | Mode::Bulk(_) | Mode::Request(_) => false,
    }
}

/// Adds every setting to the run, and the remarks that a reader needs.
fn describe(spec: &Spec, run: &mut Run) {
    let mut put =
        |name: &str, value: serde_json::Value| drop(run.settings.insert(name.into(), value));
    if let Ok(serde_json::Value::Object(modes)) = serde_json::to_value(&spec.mode) {
        for (_, options) in modes {
            for (name, value) in options.as_object().cloned().unwrap_or_default() {
                put(&name, value);
            }
        }
    }
    put("timeout_s", spec.timeout.as_secs_f64().into());
    put("settle_s", spec.settle.as_secs_f64().into());
    put("own_server", spec.own_server.into());
    put("per_process", spec.per_process.into());
    let sources: Vec<_> = spec.sources.iter().map(ToString::to_string).collect();
    put("sources", sources.into());
    match &spec.server {
        ServerSource::Unknown | ServerSource::Tree(_) => {}
        ServerSource::Pid(pid) => put("pid", (*pid).into()),
        ServerSource::Command(command) => put("command", command.clone().into()),
    }
    match &spec.talk {
        Traffic::Http {
            path, any_status, ..
        } => {
            put("http", path.clone().into());
            put("any_status", (*any_status).into());
        }
        Traffic::Message {
            message,
            expect,
            greeting,
        } => {
            put("send", String::from_utf8_lossy(message).into());
            put("message_bytes", message.len().into());
            put("expect", serde_json::json!(expect));
            put("greeting", (*greeting).into());
        }
    }
    let Some(tls) = &spec.tls else {
        put("tls", "none".into());
        return run.note("plain TCP, without TLS");
    };
    let version = tls.version.map(|version| serde_json::json!(version));
    put("tls", version.unwrap_or_else(|| "1.2 or 1.3".into()));
    if let Some(suite) = tls.suite {
        put("suite", serde_json::json!(suite));
    }
    let trust = match &tls.trust {
        Trust::System => "the system's store",
        Trust::Pem(_) => "the certificates of --ca",
        Trust::Insecure => "any certificate (--insecure)",
    };
    put("trust", trust.into());
    put("server_name", tls.server_name.clone().into());
    put("resume", tls.resume.into());
    put("post_quantum", tls.post_quantum.into());
    if tls.trust == Trust::Insecure {
        run.note("the server's certificate was NOT verified (--insecure)");
    }
}

fn outcome(end: Result<(), Error>, run: &Run) -> RunOutcome {
    let failures: u64 = run.failures.values().sum();
    match end {
        Err(error) => RunOutcome {
            complete: false,
            exit_status: error.exit_status(),
            message: Some(error.message),
        },
        Ok(()) if failures > 0 => RunOutcome {
            complete: true,
            exit_status: 1,
            message: Some(format!("{failures} connections failed or were lost")),
        },
        Ok(()) => RunOutcome {
            complete: true,
            exit_status: 0,
            message: None,
        },
    }
}
