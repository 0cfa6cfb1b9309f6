//! `stream` or `http`, and what its servers share.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::syntax::Directive;

/// `stream` or `http`, and what its servers share.
pub(super) struct Context<'a> {
    pub(super) is_http: bool,
    pub(super) block: &'a Directive,
    /// The folder of the main file, which relative paths start from.
    pub(super) folder: PathBuf,
    addresses: HashMap<String, Listener>,
}

/// An address of TCP, with what all its servers share.
struct Listener {
    /// The server for clients that send no name, or an unknown one.
    default: usize,
    has_tls: bool,
    has_proxy_protocol: bool,
}

impl<'a> Context<'a> {
    pub(super) fn new(block: &'a Directive, folder: &Path) -> Context<'a> {
        let mut addresses: HashMap<String, Listener> = HashMap::new();
        for (number, server) in block.all("server").enumerate() {
            let listens = server.all("listen");
            for listen in listens.filter(|one| datagrams(one).is_none()) {
                let listener = addresses.entry(key(listen)).or_insert(Listener {
                    default: number,
                    has_tls: false,
                    has_proxy_protocol: false,
                });
                if listen.has_word("default_server") || listen.has_word("default") {
                    listener.default = number;
                }
                listener.has_tls |= listen.has_word("ssl");
                listener.has_proxy_protocol |= listen.has_word("proxy_protocol");
            }
        }
        Context {
            is_http: block.name() == "http",
            block,
            folder: folder.to_owned(),
            addresses,
        }
    }

    fn listener(&self, listen: &Directive) -> Option<&Listener> {
        self.addresses.get(&key(listen))
    }

    /// Returns whether the server of this number is for clients that send no name, or an unknown one.
    pub(super) fn is_default(&self, number: usize, listen: &Directive) -> bool {
        self.listener(listen)
            .is_some_and(|one| one.default == number)
    }

    /// Returns whether clients speak TLS there. One `listen … ssl` applies to all servers of its address.
    pub(super) fn has_tls(&self, listen: &Directive) -> bool {
        self.listener(listen).is_some_and(|one| one.has_tls)
    }

    /// Returns whether clients send the PROXY protocol there, which also applies to all servers.
    pub(super) fn has_proxy_protocol(&self, listen: &Directive) -> bool {
        self.listener(listen)
            .is_some_and(|one| one.has_proxy_protocol)
    }

    /// Returns a directive of a server, or of the context around it.
    pub(super) fn find(&self, server: &'a Directive, name: &str) -> Option<&'a Directive> {
        server.find(name).or_else(|| self.block.find(name))
    }

    /// Returns all directives of a name: the server's replace those around it.
    pub(super) fn all(&self, server: &'a Directive, name: &'a str) -> Vec<&'a Directive> {
        let own: Vec<&Directive> = server.all(name).collect();
        if own.is_empty() {
            return self.block.all(name).collect();
        }
        own
    }

    pub(super) fn is_on(&self, server: &'a Directive, name: &str) -> bool {
        self.find(server, name).is_some_and(|one| one.is("on"))
    }

    /// Returns whether clients that ask for a name of no server are served on one of these addresses.
    pub(super) fn serves_others(&self, listens: &[&Directive]) -> bool {
        let servers: Vec<&Directive> = self.block.all("server").collect();
        let defaults = listens.iter().filter_map(|listen| {
            let listener = self.listener(listen)?;
            servers.get(listener.default)
        });
        let mut defaults = defaults.copied();
        defaults.any(|server| !self.is_on(server, "ssl_reject_handshake"))
    }

    /// Returns the other servers that have one of these addresses.
    pub(super) fn others(
        &self,
        server: &Directive,
        listens: &[&Directive],
    ) -> impl Iterator<Item = &'a Directive> {
        let ours: Vec<_> = listens.iter().map(|one| key(one)).collect();
        self.block.all("server").filter(move |other| {
            let is_shared = |listen: &Directive| ours.contains(&key(listen));
            !std::ptr::eq(*other, server) && other.all("listen").any(is_shared)
        })
    }

    /// Returns the names of a server that are under a wildcard name of another one with the same
    /// address.
    pub(super) fn under_wildcards<'s>(
        &self,
        server: &'s Directive,
        listens: &[&Directive],
    ) -> Vec<&'s str> {
        let ends: Vec<&str> = self
            .others(server, listens)
            .flat_map(Directive::names)
            .filter_map(|name| name.strip_prefix("*.").or(name.strip_prefix('.')))
            .collect();
        let is_under = |name: &&str| match name.split_once('.') {
            Some((first, end)) => {
                let is_end = |one: &&str| one.eq_ignore_ascii_case(end);
                !matches!(first, "" | "*") && ends.iter().any(is_end)
            }
            None => false,
        };
        server.names().into_iter().filter(is_under).collect()
    }

    pub(super) fn path(&self, text: &str) -> String {
        self.folder.join(text).display().to_string()
    }
}

/// Returns what the `listen` lines of one address have in common.
fn key(listen: &Directive) -> String {
    let text = listen.word(1);
    address(text).unwrap_or_else(|| text.to_owned())
}

/// Returns the word of a `listen` for datagrams.
pub(super) fn datagrams(listen: &Directive) -> Option<&'static str> {
    ["udp", "quic"]
        .into_iter()
        .find(|word| listen.has_word(word))
}

/// Converts `443`, `*:443`, `[::]:443`, `127.0.0.1:443` or `127.0.0.1`. `None`: not a TCP address.
pub(super) fn address(text: &str) -> Option<String> {
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
