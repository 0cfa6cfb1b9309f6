//! nginx.conf and what it includes.
//!
//! Servers of `stream` with a `listen … ssl` are carried over as they are, and those which choose by
//! the name in the ClientHello (`ssl_preread`) as routes that pass TLS through. Of `http` the TLS is
//! carried over: where a server only hands everything on, connections go where it hands them;
//! otherwise nginx stays behind us, without TLS, for what is done with requests.

mod options;
mod syntax;
mod target;

use super::said::{HTTP2, PROXY_FROM_WHOM};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::draft::{Draft, Section, list, quoted, quoted_list};
use super::fault::{Fault, Spot};
use super::words::time;
use syntax::Directive;
use target::Case;

/// `stream` or `http`, and what its servers share.
struct Context<'a> {
    is_http: bool,
    block: &'a Directive,
    /// The folder of the main file, from which relative paths count.
    folder: PathBuf,
    /// For each address, the server for clients which ask for no name that is there.
    defaults: HashMap<String, usize>,
    /// Addresses that several servers share.
    shared: HashMap<String, usize>,
}

impl<'a> Context<'a> {
    fn new(block: &'a Directive, folder: &Path) -> Context<'a> {
        let mut defaults = HashMap::new();
        let mut shared: HashMap<String, usize> = HashMap::new();
        for (number, server) in block.all("server").enumerate() {
            for listen in server.all("listen") {
                let address = address(listen.word(1)).unwrap_or_default();
                *shared.entry(address.clone()).or_default() += 1;
                let is_said = listen.says("default_server") || listen.says("default");
                if is_said || !defaults.contains_key(&address) {
                    defaults.insert(address, number);
                }
            }
        }
        Context {
            is_http: block.name() == "http",
            block,
            folder: folder.to_owned(),
            defaults,
            shared,
        }
    }

    /// A directive of a server, or of the context around it.
    fn find(&self, server: &'a Directive, name: &str) -> Option<&'a Directive> {
        server.find(name).or_else(|| self.block.find(name))
    }

    /// The same where there may be several: the server's replace those around it.
    fn all(&self, server: &'a Directive, name: &'a str) -> Vec<&'a Directive> {
        let own: Vec<&Directive> = server.all(name).collect();
        if own.is_empty() {
            return self.block.all(name).collect();
        }
        own
    }

    fn is_on(&self, server: &'a Directive, name: &str) -> bool {
        self.find(server, name)
            .is_some_and(|one| one.word(1) == "on")
    }

    fn path(&self, text: &str) -> String {
        self.folder.join(text).display().to_string()
    }
}

pub(super) fn read(text: &str, spot: &Spot, file: &Path) -> Result<Draft, Fault> {
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let (whole, missing) = syntax::parse(text, spot, &file)?;
    let mut draft = Draft::default();
    for (spot, what) in &missing {
        draft.leave_out(spot, what, "this file is not there");
    }
    let folder = file.parent().unwrap_or(Path::new(""));
    for block in &whole.block {
        if matches!(block.name(), "stream" | "http") {
            let context = Context::new(block, folder);
            for (number, server) in block.all("server").enumerate() {
                read_server(&context, number, server, &mut draft);
            }
            if !draft.is_empty() {
                options::of_context(&context, &mut draft);
            }
        }
    }
    if !draft.is_empty() {
        options::of_program(&whole, &mut draft);
    }
    Ok(draft)
}

/// A server may become several routes: for the addresses where it is the default and those where it
/// is not, and for each backend that a name leads to.
fn read_server(context: &Context<'_>, number: usize, server: &Directive, draft: &mut Draft) {
    let old_switch = context.is_on(server, "ssl");
    let is_preread = !context.is_http && context.is_on(server, "ssl_preread");
    let speaks_tls = |listen: &&Directive| listen.says("ssl") || old_switch;
    let (ours, plain): (Vec<&Directive>, Vec<&Directive>) =
        server.all("listen").partition(speaks_tls);
    for (listens, passes_through) in [(ours, false), (plain, true)] {
        if passes_through && !is_preread {
            continue;
        }
        let is_default = |listen: &&Directive| {
            let address = address(listen.word(1)).unwrap_or_default();
            context.shared.get(&address) == Some(&1)
                || context.defaults.get(&address) == Some(&number)
        };
        let (default, others): (Vec<&Directive>, Vec<&Directive>) =
            listens.into_iter().partition(is_default);
        for (listens, is_default) in [(default, true), (others, false)] {
            if !listens.is_empty() {
                routes(context, server, &listens, is_default, passes_through, draft);
            }
        }
    }
}

fn routes(
    context: &Context<'_>,
    server: &Directive,
    listens: &[&Directive],
    is_default: bool,
    passes_through: bool,
    draft: &mut Draft,
) {
    let names: Vec<&str> = server
        .find("server_name")
        .map_or(Vec::new(), |one| one.values().collect());
    let title = format!("{} server {}", context.block.name(), names.join(" "));
    if context.is_on(server, "ssl_reject_handshake") {
        let why = "clients that ask for no name of the others are refused here anyway";
        draft.leave_out(&server.spot, &title, why);
        return;
    }
    let mut base = Section::new(false, title.trim_end());
    listen(context, server, listens, &mut base, draft);
    if !is_default && !names_of(server, &names, &mut base) {
        let why = "no client comes here: another server has its address, and it has no name";
        draft.leave_out(&server.spot, &base.title, why);
        return;
    }
    if passes_through {
        base.set("pass_through", "true");
    } else {
        options::show(context, server, &mut base);
        options::crypto(context, server, &mut base, draft);
        options::clients(context, server, &mut base);
    }
    options::networks(context, server, &mut base);
    options::times(context, server, draft);
    let cases = target::cases(context, server, &mut base);
    // What stays with nginx needs no words.
    let stays = context.is_http && cases.iter().all(|case| case.target.is_empty());
    if !stays {
        options::left_out(context, server, passes_through, &mut base, draft);
    }
    for (n, case) in cases.into_iter().enumerate() {
        let Case {
            names,
            protocols,
            target,
            spot,
        } = case;
        let mut section = if n == 0 { base.clone() } else { base.again() };
        if !names.is_empty() {
            section.set("server_names", quoted_list(&names));
        }
        if !protocols.is_empty() {
            section.set("alpn", quoted_list(&protocols));
        }
        target::set(context, server, &target, &spot, &mut section);
        draft.sections.push(section);
    }
}

/// Names as we have them. False: none, so that nobody would come here.
fn names_of(server: &Directive, names: &[&str], section: &mut Section) -> bool {
    let spot = server
        .find("server_name")
        .map_or(&server.spot, |one| &one.spot);
    let mut ours = Vec::new();
    for name in names {
        ours.extend(target::name(name, spot, section));
    }
    section.set("server_names", quoted_list(&ours));
    !ours.is_empty()
}

/// Addresses, and what is said with them.
fn listen(
    context: &Context<'_>,
    server: &Directive,
    listens: &[&Directive],
    section: &mut Section,
    draft: &mut Draft,
) {
    let mut addresses = Vec::new();
    for one in listens {
        match address(one.word(1)) {
            Some(address) if one.says("ipv6only=off") && address.starts_with("[::]:") => {
                addresses.push(quoted(&address.replace("[::]:", ":")));
            }
            Some(address) => addresses.push(quoted(&address)),
            None => section.do_this(
                &one.spot,
                "we listen on TCP addresses only: give one to `listen`",
            ),
        }
        for word in one.values().skip(1) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            match name {
                "backlog" => draft.number("backlog", value, &one.spot, &one.shown()),
                "so_keepalive" => keepalive(value, draft),
                "http2" => section.leave_out(&one.spot, word, HTTP2),
                "udp" | "quic" => section.leave_out(&one.spot, word, "there is TCP only here"),
                "fastopen" | "setfib" | "accept_filter" => {
                    section.leave_out(&one.spot, word, "no counterpart")
                }
                "rcvbuf" | "sndbuf" => {
                    section.leave_out(&one.spot, word, "see `receive_buffer` and `socket_buffer`")
                }
                _ => {}
            }
        }
    }
    section.set("listen", list(&addresses));
    if listens.iter().any(|one| one.says("proxy_protocol")) {
        let trusted: Vec<&str> = context
            .all(server, "set_real_ip_from")
            .iter()
            .map(|one| one.word(1))
            .filter(|network| *network != "unix:")
            .collect();
        if trusted.is_empty() {
            section.do_this(&listens[0].spot, PROXY_FROM_WHOM);
        } else {
            section.set("accept_proxy_from", quoted_list(&trusted));
        }
    }
}

/// `on`, or `30m::10`.
fn keepalive(value: &str, draft: &mut Draft) {
    let mut parts = value.split(':');
    for name in ["keepalive_idle", "keepalive_interval"] {
        let seconds = parts
            .next()
            .and_then(|part| time(part, 1000))
            .map(|ms| ms / 1000);
        if let Some(seconds) = seconds.filter(|seconds| *seconds > 0) {
            draft.say(name, &format!("{seconds}s"));
        }
    }
    if let Some(count) = parts.next().and_then(|part| part.parse::<u32>().ok()) {
        draft.set("keepalive_count", count.to_string());
    }
}

/// `443`, `*:443`, `[::]:443`, `127.0.0.1:443`, `127.0.0.1`. `None`: it is no TCP address.
fn address(text: &str) -> Option<String> {
    if text.starts_with("unix:") {
        return None;
    }
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return Some(format!("0.0.0.0:{text}"));
    }
    if let Some(port) = text.strip_prefix("*:") {
        return Some(format!("0.0.0.0:{port}"));
    }
    let has_port = text
        .rsplit_once(':')
        .is_some_and(|(host, _)| !host.contains(':') || host.ends_with(']'));
    Some(if has_port {
        text.to_owned()
    } else {
        format!("{text}:80")
    })
}
