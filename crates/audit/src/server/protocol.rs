//! Detects the application protocol of a server, and its banner.

use std::time::Duration;

use dormouse_engine::Protocols;

use super::dialer::Dialer;
use super::probe_connection::ProbeConnection;
use super::spec::ServerSpec;
use dormouse_bench::load::{Expect, Traffic};
use dormouse_measure::Error;

/// Maximum length of a banner in characters.
const BANNER_MAX: usize = 80;

/// Makes one connection and detects the application protocol and the banner.
pub(super) fn detect(
    spec: &ServerSpec,
    dialer: &Dialer<'_>,
) -> Result<(Traffic, Option<String>), Error> {
    let context = dialer.context(Protocols::ALL, None);
    let visit =
        context.and_then(|context| ProbeConnection::make(dialer.target, &context, dialer.name));
    let mut visit = visit.map_err(|why| {
        Error::target(format!(
            "the first connection to {} failed: {why}",
            dialer.target
        ))
    })?;
    let found = talk(spec, &mut visit);
    visit.accepted().map_err(Error::target)?;
    visit.close();
    Ok(found)
}

/// Sends bytes that an HTTP server understands and an echo server repeats, and returns the protocol and the banner.
fn talk(spec: &ServerSpec, visit: &mut ProbeConnection) -> (Traffic, Option<String>) {
    let greeting = visit
        .hear(Duration::from_millis(300), |heard, _| !heard.is_empty())
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
        return (Traffic::Http { path, host }, banner);
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

/// Returns the `Server` header.
fn banner(answer: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(answer.get(..answer.len().min(4096))?).into_owned();
    let line = text
        .lines()
        .find(|line| line.to_ascii_lowercase().starts_with("server:"))?;
    let banner = dormouse_printable::line_up_to(line.get(7..)?.trim(), BANNER_MAX);
    Some(banner.to_string())
}
