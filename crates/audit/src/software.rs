//! Recognises software by its program, its mapped libraries, and its banner.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, Read as _};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use dormouse_measure::{ProcessInfo, proc_files};

/// Maximum bytes of a program that are searched for the marks of its language and library.
const PROGRAM_MAX: u64 = 96 << 20;
const BLOCK: usize = 1 << 20;
/// Maximum time of reading all processes: a program may be on a file system that does not answer.
const SEARCH_FOR: Duration = Duration::from_secs(10);

/// Evidence that a Python program runs asyncio.
pub(crate) const ASYNCIO: &str = "mapped _asyncio";

const ASYNCIO_FILE: &str = "/_asyncio.";

/// What is true of a kind of software.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trait {
    /// Its runtime collects garbage.
    Collects,
    /// An interpreter or runtime accounts for much of its CPU time.
    Interpreted,
    /// Its runtime compiles code while it serves.
    Compiles,
    /// Its name is that of a library or language, so that the program's own name says more.
    General,
}

/// Defines the kinds of software: name in reports, and traits.
macro_rules! kinds {
    ($($kind:ident = $name:literal $(: $($of:ident)+)?;)+) => {
        /// Kinds of software that the audit recognises.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum SoftwareKind {
            $(#[doc = $name] $kind,)+
        }

        impl SoftwareKind {
            /// Returns its name for reports.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                }
            }

            fn traits(self) -> &'static [Trait] {
                match self {
                    $(Self::$kind => &[$($(Trait::$of),+)?],)+
                }
            }
        }
    };
}

kinds! {
    Dormouse = "dormouse";
    Node = "Node.js": Collects Interpreted;
    Nginx = "nginx";
    Apache = "Apache";
    Haproxy = "HAProxy";
    Hitch = "hitch";
    Stunnel = "stunnel";
    NettyJdk = "Netty (JDK SSLEngine)": Collects Interpreted Compiles;
    NettyTcnative = "Netty (tcnative)": Collects Interpreted Compiles;
    Jvm = "JVM program": Collects Interpreted Compiles;
    Twisted = "Twisted/pyOpenSSL": Interpreted;
    // Including asyncio.
    Python = "Python ssl": Interpreted;
    // Including LWP.
    Perl = "Perl IO::Socket::SSL": Interpreted;
    Go = "Go crypto/tls": Collects Interpreted General;
    Rustls = "rustls program": General;
    Envoy = "Envoy";
    Deno = "Deno": Collects Interpreted;
    Bun = "Bun": Collects Interpreted;
    Erlang = "Erlang program": Collects Interpreted;
    Lua = "Lua program": Collects Interpreted;
    Ruby = "Ruby program": Collects Interpreted;
    Curl = "curl";
    Wget = "wget";
    Ab = "ApacheBench";
    Git = "git";
    Psql = "psql";
    Mysql = "MySQL client";
    OpenSsl = "OpenSSL program": General;
    Unknown = "unknown software": General;
}

impl SoftwareKind {
    /// Whether its runtime collects garbage.
    pub(crate) fn collects(self) -> bool {
        self.traits().contains(&Trait::Collects)
    }

    /// Whether an interpreter or runtime accounts for much of its CPU time.
    pub(crate) fn is_interpreted(self) -> bool {
        self.traits().contains(&Trait::Interpreted)
    }

    /// Whether its runtime compiles code while it serves.
    pub(crate) fn compiles(self) -> bool {
        self.traits().contains(&Trait::Compiles)
    }

    /// Whether its name is that of a library or language, so that the program's own name says more.
    fn is_general(self) -> bool {
        self.traits().contains(&Trait::General)
    }
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
        let mut title = self.kind.name().to_owned();
        if let Some(program) = self.program.as_ref().filter(|_| self.kind.is_general()) {
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

/// Signs by which the audit recognises software.
#[derive(Default)]
struct Signs {
    programs: BTreeSet<String>,
    /// The program of the first process.
    first: Option<String>,
    words: String,
    files: BTreeSet<String>,
    go: bool,
    rustls: bool,
}

/// Recognises the software of these processes; `banner` is the server's description of itself.
pub(crate) fn recognise(
    processes: &[ProcessInfo],
    banner: Option<&str>,
) -> Result<Software, String> {
    let pids: Vec<i32> = processes.iter().map(|process| process.pid).collect();
    let signs = dormouse_census::limited(SEARCH_FOR, move || {
        let mut signs = Signs::default();
        pids.iter().for_each(|&pid| collect(pid, &mut signs));
        signs
    })?;
    if signs.programs.is_empty() && banner.is_none() {
        return Err("the server's process is not known: give --pid or --cmd".into());
    }
    Ok(conclude(&signs, banner))
}

fn collect(pid: i32, signs: &mut Signs) {
    if let Ok(program) = fs::read_link(format!("/proc/{pid}/exe")) {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let name = dormouse_printable::line(name.trim_end_matches(" (deleted)")).to_string();
        let called = proc_files::read_beginning(pid, "comm").unwrap_or_default();
        let called = String::from_utf8_lossy(&called);
        signs
            .first
            .get_or_insert_with(|| called_name(called.trim_end(), &name));
        if signs.programs.insert(name) {
            search(pid, signs);
        }
    }
    let words = proc_files::read_beginning(pid, "cmdline").unwrap_or_default();
    signs.words += &String::from_utf8_lossy(&words).replace('\0', " ");
    signs.words.push('\n');
    let maps = proc_files::maps(pid).unwrap_or_default();
    for line in maps.lines() {
        if let Some(at) = line.find('/') {
            let path = line.get(at..).unwrap_or_default();
            signs
                .files
                .insert(path.trim_end_matches(" (deleted)").to_owned());
        }
    }
    // A JVM opens its archives as files instead of mapping them.
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten()
    {
        if let Ok(path) = fs::read_link(entry.path()) {
            let path = path.to_string_lossy();
            if path.ends_with(".jar") {
                signs.files.insert(path.into_owned());
            }
        }
    }
}

/// Returns the name by which a program was started, or the file's where that begins with it: the kernel shortens the first.
fn called_name(called: &str, file: &str) -> String {
    if called.is_empty() || file.starts_with(called) {
        file.to_owned()
    } else {
        dormouse_printable::line(called).to_string()
    }
}

/// Parses a text as information about a process and as a server's banner; for fuzzing.
pub(crate) fn read_texts(text: &str) {
    let signs = Signs {
        programs: text.lines().take(3).map(str::to_owned).collect(),
        words: text.to_owned(),
        files: text.lines().map(str::to_owned).collect(),
        ..Signs::default()
    };
    let _ = conclude(&signs, Some(text)).title();
    let _ = holds(text.as_bytes(), b"rustls::");
}

/// Searches a program for the marks of Go and rustls.
fn search(pid: i32, signs: &mut Signs) {
    let Ok(file) = proc_files::open_program(pid) else {
        return;
    };
    let mut file = file.take(PROGRAM_MAX);
    let mut block = vec![0; BLOCK];
    // The mark is in two pieces so that this program does not contain it.
    let go = [" Go build", "inf:"].concat();
    while let Ok(count @ 1..) = file.read(&mut block) {
        let text = block.get(..count).unwrap_or_default();
        signs.go |= holds(text, go.as_bytes());
        signs.rustls |= holds(text, b"rustls::") || holds(text, b"/rustls-0.");
        if signs.go || signs.rustls {
            return;
        }
    }
}

/// Whether `mark` occurs in a text of up to about a hundred megabytes. The search jumps from one possible end of the
/// mark to the next.
fn holds(text: &[u8], mark: &[u8]) -> bool {
    let Some(last) = mark.last() else {
        return true;
    };
    let (mut rest, mut at) = (text, 0);
    while let Ok(count @ 1..) = rest.skip_until(*last) {
        at += count;
        if text.get(..at).is_some_and(|seen| seen.ends_with(mark)) {
            return true;
        }
    }
    false
}

/// Whether the program `file` is `name`, maybe with a version (`python3.11`) or a variant (`nginx-debug`). Programs in Go
/// have no such variants, but names like `node_exporter`.
fn is_called(file: &str, name: &str, is_go: bool) -> bool {
    let rest = file.strip_prefix(name);
    rest.is_some_and(|rest| !is_go || rest.is_empty())
}

fn kind_of(signs: &Signs, banner: Option<&str>) -> SoftwareKind {
    let program = |name: &str| {
        signs
            .programs
            .iter()
            .any(|it| is_called(it, name, signs.go))
    };
    let file = |part: &str| signs.files.iter().find(|file| file.contains(part));
    let announces =
        |word: &str| banner.is_some_and(|banner| banner.to_ascii_lowercase().contains(word));
    let word = |word: &str| signs.words.to_ascii_lowercase().contains(word);
    let jvm = file("libjvm.so").is_some();
    let rules = [
        (program("dormouse"), SoftwareKind::Dormouse),
        (
            program("nginx") || program("openresty"),
            SoftwareKind::Nginx,
        ),
        (program("apache2") || program("httpd"), SoftwareKind::Apache),
        (program("haproxy"), SoftwareKind::Haproxy),
        (program("hitch"), SoftwareKind::Hitch),
        (program("stunnel"), SoftwareKind::Stunnel),
        (program("node"), SoftwareKind::Node),
        (
            jvm && file("netty_tcnative").is_some(),
            SoftwareKind::NettyTcnative,
        ),
        (
            jvm && (file("netty").is_some() || word("netty")),
            SoftwareKind::NettyJdk,
        ),
        (jvm, SoftwareKind::Jvm),
        (
            // Programs of asyncio, too, map the Rust part of the package cryptography.
            program("python")
                && (file("/OpenSSL/").is_some()
                    || (file("_rust.abi3").is_some() && file(ASYNCIO_FILE).is_none())
                    || word("twist")),
            SoftwareKind::Twisted,
        ),
        (program("python"), SoftwareKind::Python),
        (program("perl"), SoftwareKind::Perl),
        // Its program contains some rustls, which it does not serve with.
        (program("envoy"), SoftwareKind::Envoy),
        (program("deno"), SoftwareKind::Deno),
        (signs.programs.contains("bun"), SoftwareKind::Bun),
        (program("beam"), SoftwareKind::Erlang),
        (program("lua"), SoftwareKind::Lua),
        (program("ruby"), SoftwareKind::Ruby),
        (program("curl"), SoftwareKind::Curl),
        (program("wget"), SoftwareKind::Wget),
        (signs.programs.contains("ab"), SoftwareKind::Ab),
        (program("git"), SoftwareKind::Git),
        (signs.programs.contains("psql"), SoftwareKind::Psql),
        (
            signs.programs.contains("mysql") || signs.programs.contains("mariadb"),
            SoftwareKind::Mysql,
        ),
        (signs.go, SoftwareKind::Go),
        (signs.rustls, SoftwareKind::Rustls),
        (file("libssl.so").is_some(), SoftwareKind::OpenSsl),
        (announces("nginx"), SoftwareKind::Nginx),
        (announces("apache"), SoftwareKind::Apache),
        (announces("twisted"), SoftwareKind::Twisted),
    ];
    let holds = rules.iter().find(|(holds, _)| *holds);
    holds.map_or(SoftwareKind::Unknown, |rule| rule.1)
}

fn conclude(signs: &Signs, banner: Option<&str>) -> Software {
    let kind = kind_of(signs, banner);
    let is_asyncio = signs.files.iter().any(|file| file.contains(ASYNCIO_FILE));
    let library = library(signs);
    let mut evidence: Vec<String> = Vec::new();
    evidence.extend(
        signs
            .programs
            .iter()
            .map(|program| format!("program {program}")),
    );
    evidence.extend(library.iter().map(|library| format!("mapped {library}")));
    evidence.extend(is_asyncio.then(|| ASYNCIO.to_owned()));
    evidence.extend(banner.iter().map(|banner| format!("banner {banner:?}")));
    let version = banner.and_then(|banner| version_of(kind, banner));
    Software {
        kind,
        program: signs.first.clone(),
        version,
        library,
        evidence,
    }
}

/// Returns the version if the banner belongs to this software; behind a proxy it may be another program's.
fn version_of(kind: SoftwareKind, banner: &str) -> Option<String> {
    let of_kind = kind.name().split([' ', '/']).next()?.to_ascii_lowercase();
    let products = banner.split_whitespace();
    let mut versions = products.filter_map(|product| product.split_once('/'));
    let own = versions.find(|(name, _)| name.to_ascii_lowercase().starts_with(&of_kind));
    own.map(|(_, version)| version.to_owned())
}

/// Returns the mapped TLS library.
fn library(signs: &Signs) -> Option<String> {
    let known = [
        "libssl.so",
        "netty_tcnative",
        "libgnutls.so",
        "libwolfssl",
        "libmbedtls",
        "libnss3.so",
    ];
    let file = |part: &str| signs.files.iter().find(|file| file.contains(part));
    let name = known
        .iter()
        .find_map(|name| file(name))?
        .rsplit('/')
        .next()?;
    // Netty extracts it to a file name with a random number.
    Some(if name.contains("netty_tcnative") {
        "netty-tcnative".to_owned()
    } else {
        dormouse_printable::line(name).to_string()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signs(program: &str, files: &[&str], words: &str) -> Signs {
        Signs {
            programs: BTreeSet::from([program.to_owned()]),
            words: words.into(),
            files: files.iter().map(|file| (*file).to_owned()).collect(),
            ..Signs::default()
        }
    }

    #[test]
    fn programs_in_go_are_not_what_their_names_begin_with() {
        for name in [
            "node_exporter",
            "gitea",
            "nginx-prometheus-exporter",
            "curlie",
        ] {
            let go = Signs {
                go: true,
                ..signs(name, &[], "")
            };
            assert_eq!(kind_of(&go, None), SoftwareKind::Go, "{name}");
        }
    }

    #[test]
    fn the_package_cryptography_alone_does_not_make_it_twisted() {
        let rust = "/x/cryptography/hazmat/bindings/_rust.abi3.so";
        let found = |files: &[&str]| kind_of(&signs("python3.11", files, ""), None);
        assert_eq!(found(&[rust]), SoftwareKind::Twisted);
        let asyncio = "/x/lib-dynload/_asyncio.cpython-311.so";
        assert_eq!(found(&[rust, asyncio]), SoftwareKind::Python);
    }

    #[test]
    fn software_is_recognised_by_its_signs() {
        let kind =
            |program, files: &[&str], words| conclude(&signs(program, files, words), None).kind;
        assert_eq!(
            kind("nginx", &["/lib/libssl.so.3"], "nginx: worker"),
            SoftwareKind::Nginx
        );
        assert_eq!(
            kind(
                "java",
                &["/jvm/libjvm.so", "/tmp/libnetty_tcnative_linux_x86_64.so"],
                ""
            ),
            SoftwareKind::NettyTcnative
        );
        assert_eq!(
            kind("java", &["/jvm/libjvm.so"], "java -jar lab-netty.jar"),
            SoftwareKind::NettyJdk
        );
        assert_eq!(
            kind("python3.11", &["/lib/libssl.so.3"], "python3 echo.py"),
            SoftwareKind::Python
        );
        assert_eq!(
            kind(
                "python3.11",
                &["/x/cryptography/hazmat/bindings/_rust.abi3.so"],
                ""
            ),
            SoftwareKind::Twisted
        );
        assert_eq!(
            kind("something", &["/lib/libssl.so.3"], ""),
            SoftwareKind::OpenSsl
        );
        assert_eq!(
            kind("git-remote-http", &["/lib/libcurl-gnutls.so.4"], ""),
            SoftwareKind::Git
        );
        assert_eq!(
            kind("abc", &["/lib/libssl.so.3"], ""),
            SoftwareKind::OpenSsl
        );
        assert_eq!(kind("something", &[], ""), SoftwareKind::Unknown);
        let mut envoy = signs("envoy-linux", &[], "");
        envoy.rustls = true;
        assert_eq!(conclude(&envoy, None).kind, SoftwareKind::Envoy);
        assert_eq!(
            kind("beam.smp", &["/lib/crypto.so"], ""),
            SoftwareKind::Erlang
        );
        assert_eq!(kind("lua5.4", &["/lib/libssl.so.3"], ""), SoftwareKind::Lua);
    }

    #[test]
    fn a_program_that_only_its_library_describes_is_called_by_its_name() {
        let mut postgres = signs("postgres", &["/lib/libssl.so.3"], "");
        postgres.first = Some("postgres".into());
        let title = conclude(&postgres, None).title();
        assert_eq!(title, "postgres, OpenSSL program (libssl.so.3)");
        let mut nginx = signs("nginx", &["/lib/libssl.so.3"], "");
        nginx.first = Some("nginx".into());
        assert_eq!(conclude(&nginx, None).title(), "nginx (libssl.so.3)");
    }

    /// Recorded: Debian's redis-server is a symbolic link to redis-check-rdb.
    #[test]
    fn a_program_has_the_name_by_which_it_was_started() {
        assert_eq!(
            called_name("redis-server", "redis-check-rdb"),
            "redis-server"
        );
        let long = "postgres-exporter";
        assert_eq!(called_name("postgres-export", long), long);
        assert_eq!(called_name("", "slapd"), "slapd");
    }

    #[test]
    fn a_banner_gives_the_version() {
        let software = conclude(&Signs::default(), Some("nginx/1.22.1"));
        assert_eq!(
            (software.kind, software.version.as_deref()),
            (SoftwareKind::Nginx, Some("1.22.1"))
        );
        let behind = conclude(&signs("dormouse", &[], ""), Some("Apache/2.4.71 (Debian)"));
        assert_eq!(
            (behind.kind, behind.version),
            (SoftwareKind::Dormouse, None)
        );
        let python = version_of(SoftwareKind::Python, "SimpleHTTP/0.6 Python/3.11.7");
        assert_eq!(python.as_deref(), Some("3.11.7"));
        let twisted = version_of(SoftwareKind::Twisted, "TwistedWeb/26.10.0");
        assert_eq!(twisted.as_deref(), Some("26.10.0"));
        assert!(recognise(&[], None).is_err());
    }

    #[test]
    fn this_program_is_recognised() {
        let own = ProcessInfo {
            pid: i32::try_from(std::process::id()).unwrap(),
            command: "test".into(),
        };
        let software = recognise(&[own], None).unwrap();
        assert!(
            matches!(software.kind, SoftwareKind::Rustls | SoftwareKind::Dormouse),
            "{software:?}"
        );
    }
}
