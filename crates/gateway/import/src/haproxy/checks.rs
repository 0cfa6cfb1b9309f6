//! Checks of servers: `check`, `option httpchk` and what belongs to them.

use super::server_line::{Given, Server};
use super::syntax::{HaproxySection, Line};
use crate::origin::Origins;
use crate::section::{Kind, Section};
use crate::value::time;

/// Sets `check`: a connection or a handshake, unless an option says more.
pub(super) fn checks(part: &HaproxySection, used: &[Server<'_>], section: &mut Section) {
    let of_words = |one: &Given<()>| one.as_ref().map(|(_, from)| from.clone());
    let checked: Vec<Origins> = used
        .iter()
        .filter_map(|one| of_words(&one.settings.check))
        .collect();
    let by_tls: Vec<Origins> = used
        .iter()
        .filter_map(|one| of_words(&one.settings.check_by_tls))
        .collect();
    let timeout = part.find(&["timeout", "check"]);
    let is_of_checks = |line: &&Line| {
        matches!(line.word(0), "http-check" | "tcp-check")
            || line.word(0) == "option" && (is_check(line.word(1)))
    };
    let lines = part.lines.iter().filter(is_of_checks);
    let lines: Vec<&Line> = lines.chain(timeout).collect();
    if checked.is_empty() || section.kind == Kind::Originate {
        let mut from: Origins = lines.iter().map(|line| line.origin).collect();
        let words = checked.iter().chain(&by_tls).flat_map(Origins::iter);
        from.add(words.collect::<Origins>());
        for name in ["check_every", "check_rise", "check_fall"] {
            from.add(section.remove(name));
        }
        if !from.is_empty() {
            let why = match section.kind {
                Kind::Originate => {
                    "servers are not checked; one that failed is skipped for a while"
                }
                _ => "no server has `check`",
            };
            section.without_effect(from, why);
        }
        return;
    }
    let has_tls = used.iter().any(|one| one.settings.tls.is_some());
    let mut from: Origins = checked
        .iter()
        .chain(&by_tls)
        .flat_map(Origins::iter)
        .collect();
    let how = if has_tls || !by_tls.is_empty() {
        "tls"
    } else {
        "connect"
    };
    section.set_text("check", how, &from);
    if let Some(line) = timeout {
        section.time("check_timeout", time(line.word(2), 1), line.origin);
    }
    let (mut http, mut rest) = (Vec::new(), Vec::new());
    for line in &lines {
        match (line.word(0), line.word(1)) {
            ("timeout", _) => {}
            ("option", "httpchk") | ("http-check", _) => http.push(*line),
            ("option", "ssl-hello-chk") => {
                from.add(line.origin);
                section.set_text("check", "tls", &from);
            }
            ("option", "tcp-check") | ("tcp-check", "connect") => {
                section.without_effect(line.origin, "a check connects in any case");
            }
            _ => rest.push(line.origin),
        }
    }
    if !rest.is_empty() {
        section.left_out(rest, "checked only by connecting");
    }
    http_check(&http, from, section);
    for server in used.iter().filter(|one| one.settings.check.is_none()) {
        let why = format!(
            "{} has no `check`: all backends of a route are checked",
            server.line.word(1)
        );
        section.left_out(server.line.origin, why);
    }
}

pub(super) fn is_check(option: &str) -> bool {
    option.ends_with("-check") || matches!(option, "httpchk" | "smtpchk" | "ssl-hello-chk")
}

/// Converts `option httpchk METHOD PATH`, `http-check send` and `http-check expect status`.
fn http_check(lines: &[&Line], from: Origins, section: &mut Section) {
    let find = |name: &str, value: &str| {
        let mut lines = lines.iter().rev();
        lines.find(|line| line.word(0) == name && (line.word(1) == value))
    };
    let Some(line) = find("option", "httpchk") else {
        for line in lines {
            section.without_effect(line.origin, "there is no `option httpchk`");
        }
        return;
    };
    let send = find("http-check", "send");
    let settings = |name: &str| {
        let send = send?;
        let at = send.words.iter().position(|word| word == name)?;
        send.words.get(at + 1).map(String::as_str)
    };
    let (method, path) = match (line.word(2), line.word(3)) {
        ("", _) => ("OPTIONS", "/"),
        (path, "") => ("OPTIONS", path),
        (method, path) => (method, path),
    };
    let (method, path) = (
        settings("meth").unwrap_or(method),
        settings("uri").unwrap_or(path),
    );
    let mut all = from;
    all.add(line.origin);
    all.add(
        send.map(|line| line.origin)
            .into_iter()
            .collect::<Origins>(),
    );
    section.set_text("check", &format!("GET {path}"), &all);
    if method != "GET" {
        section.left_out(line.origin, format!("checked with GET, not with {method}"));
    }
    if let (Some(send), Some(_)) = (send, settings("hdr")) {
        section.left_out(send.origin, "the Host header is the backend's own address");
    }
    let expect = find("http-check", "expect");
    for line in lines {
        let (is_send, is_expect) = (line.word(1) == "send", line.word(1) == "expect");
        match expect {
            Some(last)
                if last.origin == line.origin
                    && line.word(2) == "status"
                    && !line.word(3).contains(',') =>
            {
                section.set_text("check_status", line.word(3), line.origin);
            }
            _ if is_expect => {
                section.left_out(line.origin, "only the status is checked: `check_status`")
            }
            _ if is_send || line.word(0) == "option" => {
                if send.is_some_and(|one| one.origin != line.origin) && is_send {
                    section.replaced(line.origin);
                }
            }
            _ => section.left_out(line.origin, "a check is one request"),
        }
    }
}
