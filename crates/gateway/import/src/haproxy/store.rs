//! `crt-store`: certificates by name; and `acme`: certificates from an ACME server.

use super::syntax::{HaproxySection, Line};
use crate::advice::OCSP;
use crate::draft::Draft;
use crate::origin::Origins;
use crate::section::{Fate, Remark, Section};
use crate::toml::{Certificate, quoted_list};

const NO_TIMESTAMPS: &str = "timestamps (SCT) are sent only if the certificate itself has them";

/// All certificates that a `bind` can name.
#[derive(Default)]
pub(super) struct Store {
    loads: Vec<Load>,
}

/// A line `load crt FILE …`.
pub(super) struct Load {
    /// `@STORE/FILE` and `@STORE/ALIAS`.
    names: Vec<String>,
    pub(super) certificate: Certificate,
    pub(super) from: Origins,
    /// What became of words that are not converted.
    pub(super) remarks: Vec<Remark>,
    /// The `acme` section that obtains it, and for which names.
    acme: Option<(String, Vec<String>)>,
}

impl Store {
    pub(super) fn read(parts: &[HaproxySection]) -> Store {
        let stores = parts.iter().filter(|part| part.kind == "crt-store");
        let loads = stores.flat_map(|part| part.all("load").map(move |line| Load::of(part, line)));
        Store {
            loads: loads.collect(),
        }
    }

    pub(super) fn find(&self, name: &str) -> Option<&Load> {
        let is_it = |load: &&Load| load.names.iter().any(|one| one == name);
        self.loads.iter().find(is_it)
    }
}

impl Load {
    fn of(part: &HaproxySection, line: &Line) -> Load {
        let mut from: Origins = line.origin.into();
        from.add(part.origin);
        let mut path = |base: &str, file: &str| match part.find(&[base]) {
            Some(line) if !file.starts_with('/') => {
                from.add(line.origin);
                format!("{}/{file}", line.word(1).trim_end_matches('/'))
            }
            _ => file.to_owned(),
        };
        let mut load = Load {
            names: Vec::new(),
            certificate: Certificate::whole(""),
            from: Origins::default(),
            remarks: Vec::new(),
            acme: None,
        };
        let (mut acme, mut domains) = (None, Vec::new());
        let mut remarks = Vec::new();
        let mut words = line.keywords();
        let mut of_words = Origins::default();
        while let Some(mut keyword) = words.next() {
            let word = keyword.word;
            match word {
                "crt" => {
                    let file = words.value(&mut keyword);
                    load.names.push(format!("@{}/{file}", part.name));
                    load.certificate.cert = path("crt-base", file);
                }
                "key" => load.certificate.key = Some(path("key-base", words.value(&mut keyword))),
                "ocsp" => load.certificate.ocsp = Some(path("crt-base", words.value(&mut keyword))),
                "alias" => {
                    let name = words.value(&mut keyword);
                    load.names.push(format!("@{}/{name}", part.name));
                }
                "acme" => acme = Some(words.value(&mut keyword).to_owned()),
                "domains" => {
                    let list = words.value(&mut keyword);
                    domains = list.split(',').map(str::to_owned).collect();
                }
                "ocsp-update" | "issuer" | "sctl" => {
                    words.value(&mut keyword);
                    let (fate, why) = match word {
                        "sctl" => (Fate::LeftOut, NO_TIMESTAMPS),
                        _ => (Fate::WithoutEffect, OCSP),
                    };
                    remarks.push(Remark {
                        fate,
                        from: keyword.from,
                        why: why.to_owned(),
                    });
                    continue;
                }
                // Others are not taken, so they are steps to do.
                _ => continue,
            }
            of_words.add(keyword.from);
        }
        from.add(of_words);
        load.from = from;
        load.remarks = remarks;
        load.acme = acme.map(|name| (name, domains));
        load
    }

    /// Sets `acme` if an ACME server is the source of this certificate. Returns `false` if it is a file.
    pub(super) fn automatic(
        &self,
        parts: &[HaproxySection],
        section: &mut Section,
        draft: &mut Draft,
    ) -> bool {
        let Some((name, domains)) = &self.acme else {
            return false;
        };
        section.set("acme", quoted_list(domains), &self.from);
        let is_it = |part: &&HaproxySection| part.kind == "acme" && part.name == *name;
        for line in parts.iter().filter(is_it).flat_map(|part| &part.lines) {
            let (from, value, program) = (line.origin, line.word(1), &mut draft.program);
            match line.word(0) {
                "directory" => program.set_text("acme_server", value, from),
                "contact" => {
                    program.set_text("acme_email", value.trim_start_matches("mailto:"), from)
                }
                "challenge" if value.eq_ignore_ascii_case("http-01") => {
                    program.set_text("acme_challenge", "http-01", from);
                }
                "challenge" | "provider-name" | "acme-vars" => program.left_out(
                    from,
                    "the challenges are tls-alpn-01 and http-01: see `acme_challenge`",
                ),
                "account-key" | "account" => {
                    program.left_out(from, "Dormouse makes an account of its own (`acme_folder`)")
                }
                "keytype" | "bits" | "curves" => program.left_out(from, "keys are ECDSA P-256"),
                "map" | "reuse-key" => {
                    program.without_effect(from, "memory of HAProxy for challenges and keys")
                }
                _ => {}
            }
        }
        true
    }
}
