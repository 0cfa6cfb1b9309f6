//! What stunnel verifies of a peer: `verifyChain`, `verifyPeer`, `verify`, `requireCert`, and what belongs to them.

use super::services::{Service, StunnelSetting};
use crate::advice::{
    CLIENTS_UNCHECKED, NOT_VERIFIED, ONE_CA_FILE, PINNED_CLIENTS, REVOKED_SERVERS,
    SERVER_NAME_UNCHECKED,
};
use crate::origin::Origins;
use crate::section::{Kind, Section};
use crate::toml::quoted_list;

/// What is verified of a peer's certificate.
#[derive(Default)]
struct Verification<'a> {
    /// The chain.
    chain: bool,
    /// The certificate itself, by comparison.
    peer: bool,
    /// The line that requires a certificate.
    required: Option<&'a StunnelSetting>,
    /// All lines about it.
    from: Origins,
}

impl Verification<'_> {
    /// Returns what a service verifies. Each line changes what the lines before it have set.
    fn of(service: &Service) -> Verification<'_> {
        let mut all = Verification::default();
        for one in service.entries.iter().filter(|one| is_part(&one.key)) {
            all.from.add(one.origin);
            let is_on = one.is("yes");
            match one.key.as_str() {
                "verify" => {
                    let level: u8 = one.value.parse().unwrap_or(0);
                    (all.chain, all.peer) = ((1..=3).contains(&level), level >= 3);
                    all.required = (level >= 2).then_some(one);
                }
                "verifychain" => all.chain = is_on,
                "verifypeer" => all.peer = is_on,
                "requirecert" if !is_on => all.required = None,
                _ => {}
            }
            if is_on && matches!(&*one.key, "verifychain" | "verifypeer" | "requirecert") {
                all.required = Some(one);
            }
        }
        all
    }

    fn is_any(&self) -> bool {
        self.chain || self.peer
    }
}

/// Returns whether lines with this key say what is verified, each changing what the lines before it have set.
pub(super) fn is_part(key: &str) -> bool {
    matches!(key, "verify" | "verifychain" | "verifypeer" | "requirecert")
}

/// Returns whether [`convert`] takes all settings with this key.
pub(super) fn takes(key: &str) -> bool {
    is_part(key)
        || matches!(
            key,
            "cafile"
                | "capath"
                | "castore"
                | "crlfile"
                | "crlpath"
                | "checkhost"
                | "checkip"
                | "checkemail"
                | "sni"
                | "psksecrets"
                | "pskidentity"
        )
        || (key.starts_with("ocsp"))
}

pub(super) fn convert(service: &Service, section: &mut Section) {
    let verification = Verification::of(service);
    let has_psk = service.find("psksecrets").is_some();
    match section.kind {
        Kind::Originate => servers(service, &verification, has_psk, section),
        _ => clients(service, &verification, section),
    }
    checks(service, &verification, section);
    for one in service.all("psksecrets").chain(service.all("pskidentity")) {
        section.step(one.origin, PSK);
    }
}

const PSK: &str = "pre-shared keys (PSK) are not supported: keep stunnel for the peers that use \
    them, or give them certificates";

const PINNED: &str = "stunnel accepts only the servers' certificates that are in CAfile: set `ca` to their authority, or to a self-signed certificate itself";

/// Sets the authorities of a client. stunnel trusts any server by default, which is not converted
/// silently.
fn servers(
    service: &Service,
    verification: &Verification<'_>,
    has_psk: bool,
    section: &mut Section,
) {
    let (file, folder) = (
        service.last("cafile", section),
        service.last("capath", section),
    );
    if !verification.is_any() {
        for one in file.into_iter().chain(folder) {
            section.without_effect(one.origin, NOTHING_VERIFIED);
        }
        // A pre-shared key verifies the server, too.
        if !has_psk {
            section.set("insecure", "true", &verification.from);
            section.left_out(service.origin, NOT_VERIFIED);
        } else {
            section.without_effect(&verification.from, "the pre-shared key verifies the server");
        }
    } else {
        match (file, folder) {
            (Some(one), more) => {
                let mut from = verification.from.clone();
                from.add(one.origin);
                section.set_text("ca", &one.value, from);
                if let Some(more) = more {
                    let why = "peers with certificates of these authorities were accepted, too: append them to CAfile";
                    section.left_out(more.origin, why);
                }
            }
            (None, folder) => {
                section.set_text("ca", "system", &verification.from);
                match folder {
                    Some(one) if one.value.trim_end_matches('/') == "/etc/ssl/certs" => {
                        section.also("ca", one.origin);
                    }
                    // Until then authorities are trusted that stunnel did not trust.
                    Some(one) => section.step(one.origin, ONE_CA_FILE),
                    None => {}
                }
            }
        }
        revoked("crl", service, section);
        if verification.peer {
            section.step(&verification.from, PINNED);
        }
    }
    if let Some(one) = service.last("castore", section) {
        section.step(one.origin, "authorities are PEM files here: set `ca`");
    }
    server_name(service, verification, section);
}

const NOTHING_VERIFIED: &str = "it had no effect: no certificate was verified";

/// Sets the name that is sent to the server, and expected in its certificate.
fn server_name(service: &Service, verification: &Verification<'_>, section: &mut Section) {
    let sni = service
        .last("sni", section)
        .filter(|one| !one.value.is_empty());
    let checked: Vec<&StunnelSetting> = (service.all("checkhost"))
        .chain(service.all("checkip"))
        .collect();
    let mut from: Origins = service.all("sni").map(|one| one.origin).collect();
    if !verification.is_any() {
        for one in &checked {
            section.without_effect(one.origin, NOTHING_VERIFIED);
        }
        if let Some(sni) = sni {
            section.set_text("server_name", &sni.value, sni.origin);
        }
        return;
    }
    from.add(checked.iter().map(|one| one.origin).collect::<Origins>());
    match (sni, checked.as_slice()) {
        (None, []) => section.left_out(service.origin, SERVER_NAME_UNCHECKED),
        (Some(sni), []) => {
            section.set_text("server_name", &sni.value, sni.origin);
            section.left_out(sni.origin, SERVER_NAME_UNCHECKED);
        }
        (sni, [first, others @ ..]) => {
            let is_sent = |one: &&&StunnelSetting| {
                sni.is_some_and(|sni| sni.value.eq_ignore_ascii_case(&one.value))
            };
            let chosen = checked.iter().find(is_sent).unwrap_or(first);
            section.set_text("server_name", &chosen.value, &from);
            let differs = sni.filter(|sni| !sni.value.eq_ignore_ascii_case(&chosen.value));
            if !others.is_empty() || differs.is_some() {
                section.step(from, ONE_NAME);
            }
        }
    }
    if let Some(empty) = service.find("sni").filter(|one| one.value.is_empty()) {
        section.left_out(
            empty.origin,
            "a server name is sent here, if `to` or `server_name` has one",
        );
    }
}

const ONE_NAME: &str = "`server_name` is one name, which is sent to the server and expected in its \
    certificate: set it to a name for which both are right, or make an [[originate]] for each";

/// Converts the verification of client certificates.
fn clients(service: &Service, verification: &Verification<'_>, section: &mut Section) {
    let (file, folder) = (
        service.last("cafile", section),
        service.last("capath", section),
    );
    if let Some(one) = service.last("castore", section) {
        section.step(
            one.origin,
            "authorities are PEM files here: set `client_ca`",
        );
    }
    let hosts: Vec<&StunnelSetting> = service.all("checkhost").collect();
    if !verification.is_any() {
        match verification.required {
            Some(_) => section.step(&verification.from, NOT_REQUESTED),
            None => {
                section.without_effect(&verification.from, "no client certificate is requested")
            }
        }
        for one in file.into_iter().chain(folder).chain(hosts) {
            section.without_effect(one.origin, NOTHING_VERIFIED);
        }
        return;
    }
    let how = match verification.required {
        Some(_) => "required",
        None => "optional",
    };
    section.set_text("client_certificates", how, &verification.from);
    match (file, folder) {
        (Some(file), more) => {
            section.set_text("client_ca", &file.value, file.origin);
            if let Some(more) = more {
                let why = "clients of these authorities were accepted, too: put both into one folder, and set `client_ca` to it";
                section.left_out(more.origin, why);
            }
        }
        (None, Some(folder)) => section.set_text("client_ca", &folder.value, folder.origin),
        (None, None) => {}
    }
    revoked("client_crl", service, section);
    if !hosts.is_empty() {
        let names = hosts.iter().map(|one| format!("dns={}", one.value));
        let names: Vec<String> = names.collect();
        let from: Origins = hosts.iter().map(|one| one.origin).collect();
        section.set("client_allow", quoted_list(&names), from);
    }
    if verification.peer {
        section.step(&verification.from, PINNED_CLIENTS);
    }
}

/// Sets the revocation lists for the peers' certificates.
fn revoked(option: &'static str, service: &Service, section: &mut Section) {
    let crls: Vec<&StunnelSetting> = service
        .all("crlfile")
        .chain(service.all("crlpath"))
        .collect();
    if !crls.is_empty() {
        let files: Vec<&str> = crls.iter().map(|one| &*one.value).collect();
        let from: Origins = crls.iter().map(|one| one.origin).collect();
        section.set(option, quoted_list(&files), from);
    }
}

const NOT_REQUESTED: &str = "certificates were required, but not verified, and none is \
    requested here: set `client_certificates` and `client_ca` to verify them";

/// Checks of a peer's certificate that Dormouse does not make, or not of this side.
fn checks(service: &Service, verification: &Verification<'_>, section: &mut Section) {
    let is_client = section.kind == Kind::Originate;
    for one in &service.entries {
        let (key, from) = (one.key.as_str(), one.origin);
        let is_check = matches!(key, "checkemail" | "checkip" | "crlfile" | "crlpath")
            || key.starts_with("ocsp");
        if !is_check || (key == "checkip" && is_client) {
            continue;
        }
        let is_crl = key.starts_with("crl");
        match (verification.is_any(), is_client) {
            _ if key == "ocspaia" && one.is("no") => {
                section.without_effect(from, "no responder is asked");
            }
            (false, _) => section.without_effect(from, NOTHING_VERIFIED),
            // Converted.
            (true, _) if is_crl => {}
            (true, false) => section.step(from, CLIENTS_UNCHECKED),
            (true, true) if key == "checkemail" => section.step(
                from,
                "the address in the server's certificate is not checked; here the certificate must be for \
                 the host of `to`, or for `server_name`",
            ),
            (true, true) => section.step(from, REVOKED_SERVERS),
        }
    }
}
