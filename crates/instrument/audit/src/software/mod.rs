//! The software that the audit knows: a file for each runtime or program, with its signs, its traits, the lab's figures for
//! it, and what to change in it for each finding.

mod apache;
mod dormouse;
mod go;
mod haproxy;
mod hitch;
pub(crate) mod jvm;
mod nginx;
mod node;
pub(crate) mod openssl;
mod others;
mod perl;
mod program;
mod python;
mod rustls;
mod signs;
mod stunnel;

use serde::{Deserialize, Serialize};

use dormouse_measure::ProcessInfo;
pub(crate) use program::{Case, Facts, LabServer, Program};
pub(crate) use python::ASYNCIO;
use signs::Signs;

/// Lists all software. Of several whose signs are there, the first one counts.
macro_rules! software {
    ($($kind:ident: $program:path;)+) => {
        /// Kinds of software that the audit recognises.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum SoftwareKind {
            $(#[doc = stringify!($kind)] $kind,)+
        }

        impl SoftwareKind {
            pub(crate) const ALL: &[Self] = &[$(Self::$kind),+];

            /// Returns what the audit knows about it.
            pub(crate) fn program(self) -> &'static Program {
                match self {
                    $(Self::$kind => &$program,)+
                }
            }
        }
    };
}

software! {
    Dormouse: dormouse::PROGRAM;
    Nginx: nginx::PROGRAM;
    Apache: apache::PROGRAM;
    Haproxy: haproxy::PROGRAM;
    Hitch: hitch::PROGRAM;
    Stunnel: stunnel::PROGRAM;
    Node: node::PROGRAM;
    NettyTcnative: jvm::NETTY_TCNATIVE;
    NettyJdk: jvm::NETTY_JDK;
    Jvm: jvm::PROGRAM;
    Twisted: python::TWISTED;
    Python: python::PROGRAM;
    Perl: perl::PROGRAM;
    Envoy: others::ENVOY;
    Deno: others::DENO;
    Bun: others::BUN;
    Erlang: others::ERLANG;
    Lua: others::LUA;
    Ruby: others::RUBY;
    Curl: others::CURL;
    Wget: others::WGET;
    Ab: others::AB;
    Git: others::GIT;
    Psql: others::PSQL;
    Mysql: others::MYSQL;
    Go: go::PROGRAM;
    Rustls: rustls::PROGRAM;
    OpenSsl: openssl::PROGRAM;
    Unknown: others::UNKNOWN;
}

/// The recognised software.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Software {
    /// Its kind.
    pub kind: SoftwareKind,
    /// The file name of its program. Missing in audits by older versions.
    #[serde(default)]
    pub program: Option<String>,
    /// Its version, if it announces one.
    pub version: Option<String>,
    /// The mapped TLS library.
    pub library: Option<String>,
    /// Evidence for the kind.
    pub evidence: Vec<String>,
}

impl Software {
    /// Returns name and version for reports.
    pub fn title(&self) -> String {
        let known = self.kind.program();
        let mut title = known.name.to_owned();
        if let Some(program) = self.program.as_ref().filter(|_| known.is_general) {
            title = format!("{program}, {title}");
        }
        if let Some(version) = &self.version {
            title = format!("{title} {version}");
        }
        match &self.library {
            Some(library) => format!("{title} ({library})"),
            None => title,
        }
    }
}

/// Recognises the software of these processes; `banner` is the server's description of itself.
pub(crate) fn recognise(
    processes: &[ProcessInfo],
    banner: Option<&str>,
) -> Result<Software, String> {
    let signs = Signs::of(processes)?;
    if signs.programs.is_empty() && banner.is_none() {
        return Err("the server's process is not known: give --pid or --cmd".into());
    }
    Ok(conclude(&signs, banner))
}

/// Parses a text as information about a process and as a server's banner; for fuzzing.
pub(crate) fn read_texts(text: &str) {
    let _ = conclude(&signs::read(text), Some(text)).title();
}

/// Draws the conclusion from the signs; `banner` is the server's description of itself.
fn conclude(signs: &Signs, banner: Option<&str>) -> Software {
    let kind = kind_of(signs, banner);
    let library = signs.library();
    let mut evidence: Vec<String> = signs
        .programs
        .iter()
        .map(|program| format!("program {program}"))
        .collect();
    evidence.extend(library.iter().map(|library| format!("mapped {library}")));
    evidence.extend(python::is_asyncio(signs).then(|| ASYNCIO.to_owned()));
    evidence.extend(banner.iter().map(|banner| format!("banner {banner:?}")));
    Software {
        kind,
        program: signs.first.clone(),
        version: banner.and_then(|banner| version_of(kind, banner)),
        library,
        evidence,
    }
}

fn kind_of(signs: &Signs, banner: Option<&str>) -> SoftwareKind {
    let announced = banner.unwrap_or_default().to_ascii_lowercase();
    let announces = |word: &str| announced.contains(word);
    let mut all = SoftwareKind::ALL.iter();
    let by_signs = all.find(|kind| (kind.program().is)(signs));
    let mut all = SoftwareKind::ALL.iter();
    let by_banner = || all.find(|kind| kind.program().banner.is_some_and(announces));
    by_signs
        .or_else(by_banner)
        .copied()
        .unwrap_or(SoftwareKind::Unknown)
}

/// Returns the version if the banner belongs to this software; behind a proxy it may be another program's.
fn version_of(kind: SoftwareKind, banner: &str) -> Option<String> {
    let of_kind = kind
        .program()
        .name
        .split([' ', '/'])
        .next()?
        .to_ascii_lowercase();
    let products = banner.split_whitespace();
    let mut versions = products.filter_map(|product| product.split_once('/'));
    let own = versions.find(|(name, _)| name.to_ascii_lowercase().starts_with(&of_kind));
    own.map(|(_, version)| version.to_owned())
}

#[cfg(test)]
mod tests;
