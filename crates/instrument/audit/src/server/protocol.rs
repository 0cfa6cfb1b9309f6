//! Detects the application protocol of a server, and its banner.

use std::time::Duration;

use dormouse_engine::Protocols;

use super::dialer::Dialer;
use super::probe_connection::ProbeConnection;
use super::spec::ServerSpec;
use dormouse_bench::load::{Expect, Starttls, Traffic};
use dormouse_measure::Error;

/// Further attempts to connect, and the time before each.
const RETRIES: u32 = 2;
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Maximum length of a banner in characters.
const BANNER_MAX: usize = 80;
/// Maximum wait for a server that speaks first, and for an answer to the first bytes.
const GREETING_WAIT: Duration = Duration::from_millis(300);
const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// Makes one connection and detects the application protocol and the banner. A protocol that the user chose is tried.
///
/// # Errors
/// If the connection fails, or the server does not answer as the user expects: each connection of the load would wait
/// for that answer.
pub(super) fn detect(
    spec: &ServerSpec,
    dialer: &Dialer<'_>,
) -> Result<(Traffic, Option<String>), Error> {
    let mut visit = first(dialer).map_err(|why| {
        Error::target(format!(
            "the first connection to {} failed: {why}",
            dialer.target
        ))
    })?;
    let wait = dialer.patience(spec.sizes().timeout);
    let found = match (&spec.talk, spec.starttls) {
        (Some(talk @ Traffic::Message { .. }), _) => chosen(talk, &mut visit, wait),
        (None, Some(protocol)) => Ok(with_starttls(protocol, dialer.name, &mut visit, wait)),
        _ => Ok(detected(spec, &mut visit)),
    };
    // A server that rejected the client has not answered either; its alert is the reason.
    visit.accepted().map_err(Error::target)?;
    visit.close();
    found
}

/// Connects. A server that limits its connections may still count those that showed what it offers.
fn first(dialer: &Dialer<'_>) -> Result<ProbeConnection, String> {
    let context = dialer.context(Protocols::ALL, None)?;
    let mut made = ProbeConnection::make(dialer, &context);
    for _ in 0..RETRIES {
        if made.is_ok() {
            break;
        }
        std::thread::sleep(RETRY_AFTER);
        made = ProbeConnection::make(dialer, &context);
    }
    made
}

/// Tries the text and the answer that the user gave.
fn chosen(
    talk: &Traffic,
    visit: &mut ProbeConnection,
    wait: Duration,
) -> Result<(Traffic, Option<String>), Error> {
    let Traffic::Message {
        message, expect, ..
    } = talk
    else {
        return Ok((talk.clone(), None));
    };
    let least = match expect {
        Expect::Nothing => return Ok((talk.clone(), None)),
        Expect::Any => 1,
        Expect::Echo => message.len(),
    };
    visit.say(message).map_err(Error::target)?;
    let answer = visit.hear(wait, |heard, _| heard.len() >= least);
    let answer = answer.map_err(Error::target)?;
    if answer.is_empty() {
        return Err(Error::target(format!(
            "the server did not answer the text of --send within {:.1} s: give a text that it answers, or --expect none",
            wait.as_secs_f64()
        )));
    }
    if *expect == Expect::Echo && answer != *message {
        return Err(Error::target(format!(
            "the server answered the text of --send with {} other bytes instead of an echo: give --expect any",
            answer.len()
        )));
    }
    Ok((talk.clone(), None))
}

/// Tries a first message of the protocol. A server that does not answer it gets the message and no time to answer.
fn with_starttls(
    protocol: Starttls,
    name: &str,
    visit: &mut ProbeConnection,
    wait: Duration,
) -> (Traffic, Option<String>) {
    let message = protocol.first_message(name);
    let said = visit.say(&message).is_ok();
    let answer = said.then(|| visit.hear(wait, |heard, _| !heard.is_empty()));
    if answer.is_some_and(|answer| answer.is_ok_and(|heard| !heard.is_empty())) {
        return (Traffic::with_starttls(protocol, name), None);
    }
    let silent = Traffic::Message {
        message,
        expect: Expect::Nothing,
        greeting: false,
    };
    (silent, None)
}

/// Sends bytes that an HTTP server understands and an echo server repeats, and returns the protocol and the banner.
fn detected(spec: &ServerSpec, visit: &mut ProbeConnection) -> (Traffic, Option<String>) {
    let greeting = visit
        .hear(GREETING_WAIT, |heard, _| !heard.is_empty())
        .unwrap_or_default();
    let path = match &spec.talk {
        Some(Traffic::Http { path, .. }) => path.clone(),
        _ => "/".into(),
    };
    let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", spec.server_name);
    let said = visit.say(request.as_bytes()).is_ok();
    let enough = |heard: &[u8], _| {
        heard.len() >= request.len() || heard.windows(4).any(|w| w == b"\r\n\r\n")
    };
    let answer = if said {
        visit.hear(ANSWER_WAIT, enough).unwrap_or_default()
    } else {
        Vec::new()
    };
    let banner = banner(&answer);
    if let Some(talk) = &spec.talk {
        return (talk.clone(), banner);
    }
    if answer.starts_with(b"HTTP/1.") {
        let host = spec.server_name.clone();
        let http = Traffic::Http {
            path,
            host,
            any_status: is_error(&answer),
        };
        return (http, banner);
    }
    let expect = if answer == request.as_bytes() {
        Expect::Echo
    } else if answer.is_empty() {
        Expect::Nothing
    } else {
        Expect::Any
    };
    let talk = Traffic::Message {
        message: b"hello\n".to_vec(),
        expect,
        greeting: !greeting.is_empty(),
    };
    (talk, banner)
}

/// Whether the response has a status of 400 or above: a server need not have the path that the audit chose.
fn is_error(answer: &[u8]) -> bool {
    matches!(answer.get(b"HTTP/1.1 ".len()), Some(b'4' | b'5'))
}

/// Returns the `Server` header.
fn banner(answer: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(answer.get(..answer.len().min(4096))?).into_owned();
    let line = text
        .lines()
        .find(|line| line.to_ascii_lowercase().starts_with("server:"))?;
    let banner = dormouse_printable::line_up_to(line.get(7..)?.trim(), BANNER_MAX);
    Some(banner.to_string())
}
