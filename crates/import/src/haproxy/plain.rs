//! Binds without `ssl`: those whose frontend only redirects clients to https, and all others, which
//! are no longer served when HAProxy stops.

use super::bind;
use super::config::Config;
use super::syntax::{HaproxySection, Line};
use crate::advice::HAPROXY_STAYS;
use crate::draft::{Draft, Redirect};

/// Reads all binds without TLS of the frontends that do not choose by the ClientHello.
pub(super) fn read(
    config: &Config,
    passes_through: impl Fn(&HaproxySection) -> bool,
    draft: &mut Draft,
) {
    let haproxy_stays = draft.has_step(HAPROXY_STAYS);
    let is_frontend = |part: &&HaproxySection| matches!(part.kind.as_str(), "frontend" | "listen");
    for part in config.parts.iter().filter(is_frontend) {
        if passes_through(part) || part.is_disabled() {
            continue;
        }
        for line in part.all("bind").filter(|line| !line.has_word("ssl")) {
            let title = format!("{} {}, {}", part.kind, part.name, line.shown());
            let redirect = part.lines.iter().find(|line| is_redirect(line));
            match redirect.filter(|_| part.is_http()) {
                _ if haproxy_stays => {
                    let why = "is left to HAProxy, which stays behind Dormouse";
                    draft.leave_out(&line.position, &title, why);
                }
                Some(rule) => {
                    let at = rule.words.iter().position(|word| word == "code");
                    let status = at.map_or("302", |at| rule.word(at + 1)).to_owned();
                    let redirect = Redirect { status, port: 443 };
                    let addresses = bind::addresses(line, config);
                    if !addresses.is_empty() {
                        draft.redirect(&addresses, &redirect, &rule.position, &rule.shown());
                    }
                    for one in bind::not_of_tcp(line, config) {
                        let what = format!(
                            "{title}: Dormouse redirects on TCP addresses with one port, not on {one}: \
                             keep HAProxy for it, or this address will not be served"
                        );
                        draft.add_to_do(&line.position, &what);
                    }
                }
                None => {
                    let what =
                        "does not use TLS: keep HAProxy for it, or this address will not be served";
                    draft.add_to_do(&line.position, &format!("{title} {what}"));
                }
            }
        }
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
