//! Binds without `ssl`: those whose frontend only redirects clients to https, and all others, which
//! are no longer served when HAProxy stops.

use super::address::{BindAddress, of_bind};
use super::bind::without_effect;
use super::config::Config;
use super::syntax::{HaproxySection, Line};
use crate::advice::{HAPROXY_STAYS, QUIC};
use crate::draft::{Draft, Redirect};
use crate::origin::Origin;
use crate::section::Fate;

/// Reads all binds without TLS of a frontend that does not choose by the ClientHello.
pub(super) fn read(part: &HaproxySection, config: &Config, draft: &mut Draft) {
    let haproxy_stays = draft.has_step(HAPROXY_STAYS);
    let has_tls = part.all("bind").any(|line| line.has_word("ssl"));
    for line in part.all("bind").filter(|line| !line.has_word("ssl")) {
        let title = format!("{} {}, bind {}", part.kind, part.name, line.word(1));
        // The lines of a frontend that also has TLS have been converted.
        let whole: Vec<Origin> = match has_tls {
            true => line.origins().collect(),
            false => part.origins(),
        };
        let redirect = part.lines.iter().find(|line| is_redirect(line));
        match redirect.filter(|_| part.is_http()) {
            _ if haproxy_stays => {
                let why = "is left to HAProxy, which stays behind Dormouse";
                draft
                    .program
                    .say(Fate::Stays, whole, format!("{title} {why}"));
            }
            Some(rule) => redirects(line, rule, &whole, config, draft),
            None => {
                let what =
                    "it does not use TLS: keep HAProxy for it, or this address will not be served";
                draft.program.step(whole, format!("{title}: {what}"));
            }
        }
    }
}

fn redirects(line: &Line, rule: &Line, whole: &[Origin], config: &Config, draft: &mut Draft) {
    let at = rule.words.iter().position(|word| word == "code");
    let status = at.map_or("302", |at| rule.word(at + 1)).to_owned();
    let redirect = Redirect { status, port: 443 };
    let from = [line.origin, rule.origin];
    for (from, why) in without_effect(line) {
        draft.program.without_effect(from, why);
    }
    for (text, address) in of_bind(line, config) {
        match address {
            BindAddress::Tcp(all) => draft.redirect(&all, &redirect, from),
            BindAddress::Quic => draft.program.step(from, format!("{text}: {QUIC}")),
            BindAddress::Other => {
                let what = format!(
                    "Dormouse redirects on TCP addresses, not on {text}: keep HAProxy for it, or this address will not be served"
                );
                draft.program.step(line.origin, what);
            }
        }
    }
    let of_bind: Vec<Origin> = line.origins().chain([rule.origin]).collect();
    let rest = whole.iter().copied().filter(|one| !of_bind.contains(one));
    let rest: Vec<Origin> = rest.collect();
    if whole.len() > line.origins().count() {
        draft
            .program
            .without_effect(rest, "every request is redirected");
    }
}

/// Returns whether the line is `redirect scheme https` for all clients without TLS.
pub(super) fn is_redirect(line: &Line) -> bool {
    let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
    let rest = match words.as_slice() {
        ["http-request", "redirect", "scheme", "https", rest @ ..]
        | ["redirect", "scheme", "https", rest @ ..] => rest,
        _ => return false,
    };
    let condition = rest
        .iter()
        .position(|word| matches!(*word, "if" | "unless"));
    let condition = condition.and_then(|at| rest.get(at..)).unwrap_or_default();
    matches!(
        condition,
        [] | ["unless", "{", "ssl_fc", "}"]
            | ["if", "!{", "ssl_fc", "}"]
            | ["if", "!", "{", "ssl_fc", "}"]
    )
}
