//! `proxy_ssl …`: TLS to the backends.

use super::context::{Server, from as origins_of};
use super::syntax::Directive;
use crate::advice::{
    BACKEND_NEWEST, BACKEND_VERSIONS, BACKENDS_ARE_VERIFIED, COMMAND, PASSPHRASES, SECOND_TLS,
};
use crate::openssl;
use crate::origin::Origins;
use crate::section::{Kind, Section};
use crate::toml::{Certificate, certificates, quoted_list};

/// The settings of TLS to a backend, from the server, its location or around them.
pub(super) struct BackendTls<'a> {
    server: &'a Server<'a>,
    location: Option<&'a Directive>,
}

impl<'a> BackendTls<'a> {
    pub(super) fn of(server: &'a Server<'a>) -> BackendTls<'a> {
        let location = server.own.all("location").next();
        BackendTls {
            server,
            location: location.filter(|_| server.is_http()),
        }
    }

    pub(super) fn find(&self, name: &str) -> Option<&'a Directive> {
        let inner = self.location.and_then(|one| one.find(name));
        inner.or_else(|| self.server.find(name))
    }

    /// Returns all directives of a name: those of the innermost level that has any.
    fn all(&self, name: &'a str) -> Vec<&'a Directive> {
        let inner = self.location.map(|one| one.all(name).collect::<Vec<_>>());
        let inner = inner.filter(|all| !all.is_empty());
        inner.unwrap_or_else(|| self.server.all(name))
    }

    pub(super) fn is_verified(&self) -> bool {
        self.find("proxy_ssl_verify")
            .is_some_and(|one| one.is("on"))
    }

    /// Returns the client certificate.
    pub(super) fn certificate(&self) -> Option<(String, Origins)> {
        let cert = self.find("proxy_ssl_certificate")?;
        let key = self.find("proxy_ssl_certificate_key")?;
        let path = |one: &Directive| self.server.context.path(one.word(1));
        let one = Certificate {
            cert: path(cert),
            key: Some(path(key)),
            ocsp: None,
        };
        Some((certificates(&[one]), origins_of([cert, key])))
    }

    /// Says what becomes of the settings that have no option.
    pub(super) fn rest(&self, section: &mut Section) {
        if let Some(one) = self.find("proxy_ssl_crl") {
            match self.is_verified() {
                true => {
                    let option = match section.kind {
                        Kind::Originate => "crl",
                        _ => "backend_crl",
                    };
                    let file = self.server.context.path(one.word(1));
                    section.set(option, quoted_list(&[file]), one.origin);
                }
                false => section.without_effect(one.origin, "no certificate was verified"),
            }
        }
        if let Some(one) = self.find("proxy_ssl_password_file") {
            section.step(one.origin, PASSPHRASES);
        }
        if let Some(one) = self.find("proxy_ssl_ciphers") {
            section.left_out(one.origin, BACKEND_VERSIONS);
        }
        match self.find("proxy_ssl_protocols") {
            Some(one) if section.kind == Kind::Originate => {
                section.versions(one.values(), one.origin);
            }
            Some(one) if openssl::versions(one.values()) == Some(("1.3", "1.3")) => {
                section.step(one.origin, BACKEND_NEWEST);
            }
            Some(one) => section.left_out(one.origin, BACKEND_VERSIONS),
            None => {}
        }
        for one in self.all("proxy_ssl_conf_command") {
            match one.word(1).to_ascii_lowercase().as_str() {
                "options" | "ciphersuites" | "cipherstring" | "curves" | "groups" => {
                    section.left_out(one.origin, BACKEND_VERSIONS);
                }
                _ => section.step(one.origin, COMMAND),
            }
        }
        for (name, why) in [
            ("proxy_ssl_session_reuse", "sessions are resumed"),
            (
                "proxy_ssl_verify_depth",
                "the depth of chains cannot be set",
            ),
            ("proxy_ssl_server_name", "the server name is always sent"),
        ] {
            if let Some(one) = self.find(name) {
                section.without_effect(one.origin, why);
            }
        }
    }
}

/// Sets TLS to the backends of a route.
pub(super) fn convert(server: &Server<'_>, has_tls: bool, target: &str, section: &mut Section) {
    let tls = BackendTls::of(server);
    let switch = tls.find("proxy_ssl").filter(|_| !server.is_http());
    if !has_tls {
        return section.without_effect(all(server, &tls), "there is no TLS to the backends");
    }
    if section.has("pass_through") {
        return section.step(all(server, &tls), SECOND_TLS);
    }
    let mut from: Origins = origins_of(switch);
    if server.is_http() {
        from = section
            .option("to")
            .map(|one| one.from.clone())
            .unwrap_or_default();
    }
    section.set("backend_tls", "true", &from);
    match (
        tls.find("proxy_ssl_trusted_certificate"),
        tls.find("proxy_ssl_verify"),
    ) {
        (Some(file), verify) => {
            section.set_text(
                "backend_ca",
                &server.context.path(file.word(1)),
                file.origin,
            );
            let always = "backends' certificates are always verified here";
            match verify {
                Some(one) if one.is("on") => section.without_effect(one.origin, always),
                Some(one) => section.left_out(one.origin, always),
                None => {}
            }
        }
        (None, verify) => {
            from.add(origins_of(verify));
            section.step(from, BACKENDS_ARE_VERIFIED);
        }
    }
    match tls.find("proxy_ssl_name") {
        Some(name) if name.word(1).contains('$') => section.left_out(
            name.origin,
            "`backend_name` is one name for all backends; without it, each backend's own host is used",
        ),
        Some(name) => section.set_text("backend_name", name.word(1), name.origin),
        // nginx then asks for the name of the group.
        None if server.context.upstream(target).is_some() && target.contains('.') => {
            section.set_text("backend_name", target, Origins::default());
        }
        None => {}
    }
    if let Some((certificate, from)) = tls.certificate() {
        section.set("backend_certificates", certificate, from);
    }
    if let Some(alpn) = tls.find("proxy_ssl_alpn") {
        let all: Vec<&str> = alpn.values().collect();
        section.set("backend_alpn", quoted_list(&all), alpn.origin);
    }
    tls.rest(section);
}

/// Returns all settings of TLS to the backends.
fn all(server: &Server<'_>, tls: &BackendTls<'_>) -> Origins {
    let location = tls
        .location
        .map(|one| one.block.iter())
        .into_iter()
        .flatten();
    let around = server.own.block.iter().chain(&server.context.block.block);
    origins_of(
        location
            .chain(around)
            .filter(|one| one.name().starts_with("proxy_ssl")),
    )
}
