//! `stream` or `http`, and what its servers share.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::syntax::Directive;
use crate::origin::{Origin, Origins};
use crate::value::with_ports;

/// `stream` or `http`, and what its servers share.
pub(super) struct Context<'a> {
    pub(super) is_http: bool,
    pub(super) block: &'a Directive,
    /// The folder of the main file, which relative paths start from.
    pub(super) folder: PathBuf,
    addresses: HashMap<String, Listener>,
    /// Whether the directives around the servers leave their requests alone.
    pub(super) leaves_alone: OnceCell<bool>,
}

/// An address of TCP, with what all its servers share.
#[derive(Default)]
struct Listener {
    /// The server for clients that send no name, or an unknown one.
    default: usize,
    /// The server that would be it without a word for it.
    first: usize,
    /// All its servers.
    servers: Vec<usize>,
    /// The words that make all its servers speak TLS, or read a PROXY header.
    tls: Vec<Origin>,
    proxy_protocol: Vec<Origin>,
}

/// A server, with what it inherits.
#[derive(Clone, Copy)]
pub(super) struct Server<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) own: &'a Directive,
    pub(super) number: usize,
}

impl<'a> Context<'a> {
    pub(super) fn new(block: &'a Directive, folder: &Path) -> Context<'a> {
        let mut addresses: HashMap<String, Listener> = HashMap::new();
        for (number, server) in block.all("server").enumerate() {
            let listens = server.all("listen");
            for listen in listens.filter(|one| datagrams(one).is_none()) {
                for key in keys(listen) {
                    let listener = addresses.entry(key).or_insert_with(|| Listener {
                        default: number,
                        first: number,
                        ..Listener::default()
                    });
                    if listen.has_word("default_server") || listen.has_word("default") {
                        listener.default = number;
                    }
                    listener.servers.push(number);
                    listener.tls.extend(listen.part_of("ssl"));
                    listener
                        .proxy_protocol
                        .extend(listen.part_of("proxy_protocol"));
                }
            }
        }
        Context {
            is_http: block.name() == "http",
            block,
            folder: folder.to_owned(),
            addresses,
            leaves_alone: OnceCell::new(),
        }
    }

    pub(super) fn servers(&'a self) -> impl Iterator<Item = Server<'a>> {
        let all = self.block.all("server").enumerate();
        all.map(|(number, own)| Server {
            context: self,
            own,
            number,
        })
    }

    fn listener(&self, listen: &Directive) -> Option<&Listener> {
        keys(listen).iter().find_map(|key| self.addresses.get(key))
    }

    /// Returns the words that make clients speak TLS there. One `listen … ssl` applies to all servers of its address.
    pub(super) fn tls(&self, listen: &Directive) -> &[Origin] {
        self.listener(listen).map_or(&[], |one| &one.tls)
    }

    /// Returns the words for the PROXY protocol, which also apply to all servers.
    pub(super) fn proxy_protocol(&self, listen: &Directive) -> &[Origin] {
        self.listener(listen).map_or(&[], |one| &one.proxy_protocol)
    }

    /// Returns the upstream of this name.
    pub(super) fn upstream(&self, name: &str) -> Option<&'a Directive> {
        self.block.all("upstream").find(|one| one.word(1) == name)
    }

    pub(super) fn path(&self, text: &str) -> String {
        self.folder.join(text).display().to_string()
    }
}

impl<'a> Server<'a> {
    pub(super) fn is_http(&self) -> bool {
        self.context.is_http
    }

    /// Returns the server in words.
    pub(super) fn title(&self) -> String {
        let names: Vec<&str> = self.own.names().into_iter().map(|(name, _)| name).collect();
        let title = format!("{} server {}", self.context.block.name(), names.join(" "));
        title.trim_end().to_owned()
    }

    /// Returns a directive of the server, or of the context around it.
    pub(super) fn find(&self, name: &str) -> Option<&'a Directive> {
        self.own
            .find(name)
            .or_else(|| self.context.block.find(name))
    }

    /// Returns all directives of a name: the server's replace those around it.
    pub(super) fn all(&self, name: &'a str) -> Vec<&'a Directive> {
        let own: Vec<&Directive> = self.own.all(name).collect();
        if own.is_empty() {
            return self.context.block.all(name).collect();
        }
        own
    }

    pub(super) fn is_on(&self, name: &str) -> bool {
        self.find(name).is_some_and(|one| one.is("on"))
    }

    /// Returns whether it is for clients that send no name, or an unknown one.
    pub(super) fn is_default(&self, listen: &Directive) -> bool {
        let listener = self.context.listener(listen);
        listener.is_some_and(|one| one.default == self.number)
    }

    /// Returns whether it would be that without a word for it.
    pub(super) fn is_first(&self, listen: &Directive) -> bool {
        let listener = self.context.listener(listen);
        listener.is_some_and(|one| one.first == self.number)
    }

    /// Returns whether clients that ask for a name of no server are served on one of these addresses.
    pub(super) fn serves_others(&self, listens: &[&Directive]) -> bool {
        let servers: Vec<Server<'_>> = self.context.servers().collect();
        let mut defaults = listens.iter().filter_map(|listen| {
            let listener = self.context.listener(listen)?;
            servers.get(listener.default)
        });
        defaults.any(|server| !server.is_on("ssl_reject_handshake"))
    }

    /// Returns the other servers that have one of these addresses.
    pub(super) fn others(&self, listens: &[&Directive]) -> impl Iterator<Item = Server<'a>> {
        let keys = listens.iter().flat_map(|one| keys(one));
        let found = keys.filter_map(|key| self.context.addresses.get(&key));
        let numbers: BTreeSet<usize> = found.flat_map(|one| one.servers.iter().copied()).collect();
        let number = self.number;
        let all = self.context.servers();
        all.filter(move |other| other.number != number && numbers.contains(&other.number))
    }

    /// Returns its names that are under a wildcard name of another server with the same address.
    pub(super) fn under_wildcards(&self, listens: &[&Directive]) -> Vec<&'a str> {
        let names = self.others(listens).flat_map(|one| one.own.names());
        let ends: HashSet<String> = names
            .filter_map(|(name, _)| name.strip_prefix("*.").or(name.strip_prefix('.')))
            .map(str::to_ascii_lowercase)
            .collect();
        let is_under = |name: &&str| match name.split_once('.') {
            Some((first, end)) => {
                !matches!(first, "" | "*") && ends.contains(&end.to_ascii_lowercase())
            }
            None => false,
        };
        let own = self.own.names().into_iter().map(|(name, _)| name);
        own.filter(is_under).collect()
    }

    /// Returns what a section of this server has to account for: its own directives, except other `listen` lines, and
    /// those that it inherits.
    pub(super) fn owes(&self, listens: &[&Directive]) -> Vec<Origin> {
        let is_own = |one: &&Directive| {
            one.name() != "listen" || listens.iter().any(|listen| std::ptr::eq(*listen, *one))
        };
        let own = self.own.block.iter().filter(is_own);
        // `allow` and `deny` are one list, which replaces the one around it.
        let names_of = |name: &'a str| match name {
            "allow" | "deny" => ["allow", "deny"],
            name => [name, name],
        };
        let has_own = |name: &'a str| {
            names_of(name)
                .iter()
                .any(|one| self.own.find(one).is_some())
        };
        let is_inherited = |one: &&'a Directive| is_inherited(one.name()) && !has_own(one.name());
        let around = self.context.block.block.iter().filter(is_inherited);
        own.chain(around).flat_map(Directive::origins).collect()
    }
}

/// Returns whether a directive around the servers applies to each of them, and concerns their connections.
pub(super) fn is_inherited(name: &str) -> bool {
    const NAMES: [&str; 15] = [
        "access_log",
        "allow",
        "deny",
        "http2",
        "limit_conn",
        "preread_timeout",
        "proxy_bind",
        "proxy_connect_timeout",
        "proxy_download_rate",
        "proxy_half_close",
        "proxy_pass",
        "proxy_protocol",
        "proxy_timeout",
        "proxy_upload_rate",
        "set_real_ip_from",
    ];
    NAMES.contains(&name) || name.starts_with("ssl_") || name.starts_with("proxy_ssl")
}

/// Returns what the `listen` lines of one address have in common.
fn keys(listen: &Directive) -> Vec<String> {
    let text = listen.word(1);
    addresses(text).unwrap_or_else(|| vec![text.to_owned()])
}

/// Returns the word of a `listen` for datagrams.
pub(super) fn datagrams(listen: &Directive) -> Option<&'static str> {
    ["udp", "quic"]
        .into_iter()
        .find(|word| listen.has_word(word))
}

/// Converts `443`, `*:443`, `[::]:443`, `127.0.0.1:443`, `127.0.0.1` or `10000-10009`. `None`: not a TCP address, or
/// too many.
pub(super) fn addresses(text: &str) -> Option<Vec<String>> {
    if text.starts_with("unix:") {
        return None;
    }
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let is_port = |text: &str| match text.split_once('-') {
        Some((first, last)) => is_number(first) && is_number(last),
        None => is_number(text),
    };
    let (host, port) = match text.rsplit_once(':') {
        _ if is_port(text) => ("0.0.0.0", text),
        Some(("*", port)) => ("0.0.0.0", port),
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, port),
        _ => (text, "80"),
    };
    let host = if host == "*" { "0.0.0.0" } else { host };
    with_ports(host, port)
}

/// Returns the origins of directives, without what is in their blocks.
pub(super) fn from<'a>(all: impl IntoIterator<Item = &'a Directive>) -> Origins {
    all.into_iter().map(|one| one.origin).collect()
}
