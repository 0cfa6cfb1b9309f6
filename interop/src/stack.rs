//! TLS libraries besides those of the languages, each in a program with the interface of `stacks/stack.c`.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::certificates::{Kind, authority};
use crate::client::Version;
use crate::requirement::Requirement;
use crate::tools;

/// A TLS library. docs/internals/conformance.md has a table of what each of them does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// Bouncy Castle, in Java.
    BouncyCastle,
    /// Botan 2.
    Botan,
    /// Erlang/OTP's ssl.
    Erlang,
    /// GnuTLS.
    GnuTls,
    /// Mbed TLS 2.
    MbedTls,
    /// NSS, of Firefox.
    Nss,
    /// wolfSSL.
    WolfSsl,
}

/// Abilities of a library, as a client of `serve` or as a server of `connect`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// It resumes sessions as a client.
    pub client_resumes: bool,
    /// It resumes sessions as a server.
    pub server_resumes: bool,
    /// It can start a KeyUpdate.
    pub updates: bool,
    /// It can close its own direction and continue to receive.
    pub half_closes: bool,
}

/// Everything that the library needs is installed.
impl Requirement for Stack {
    fn is_met(&self) -> bool {
        match self {
            Self::BouncyCastle => {
                let jars = tools::home().join(".cache/bouncycastle");
                let missing = "Bouncy Castle is not installed: run interop/install";
                tools::present(&["java", "javac"]) && (jars.is_dir() || tools::unavailable(missing))
            }
            Self::Erlang => tools::present(&["escript"]),
            Self::Botan | Self::GnuTls | Self::MbedTls | Self::Nss | Self::WolfSsl => {
                let header = Path::new("/usr/include").join(self.header());
                let missing = format!("{} is missing: run interop/install", header.display());
                tools::present(&["cc", "c++"]) && (header.exists() || tools::unavailable(&missing))
            }
        }
    }
}

impl Stack {
    /// Its abilities with this version. `None`: it does not support the version.
    pub fn abilities(self, version: Version) -> Option<Abilities> {
        let is_tls13 = version == Version::Tls13;
        let all = Abilities {
            client_resumes: true,
            server_resumes: true,
            updates: is_tls13,
            half_closes: true,
        };
        match self {
            Self::GnuTls | Self::Nss | Self::WolfSsl => Some(all),
            Self::Botan => (!is_tls13).then_some(Abilities {
                half_closes: false,
                ..all
            }),
            Self::MbedTls => (!is_tls13).then_some(all),
            // OTP 25 does not offer psk_key_exchange_modes before it has a ticket, so it never gets one.
            Self::Erlang => Some(Abilities {
                client_resumes: false,
                half_closes: false,
                ..all
            }),
            Self::BouncyCastle => Some(Abilities {
                client_resumes: !is_tls13,
                server_resumes: !is_tls13,
                updates: false,
                half_closes: false,
            }),
        }
    }

    /// The command that starts it, as a client of this address or as a server on it. It has its own certificate
    /// and trusts the tests' CA.
    pub fn command(self, role: &str, address: SocketAddr, version: Version) -> Vec<String> {
        let own = authority().certificate(Kind::EcdsaP256);
        let files = [&own.cert, &own.key, &authority().trust()].map(|file| text(file));
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        let words = [role, &host, &port, version.number()].map(str::to_owned);
        let mut command = self.program();
        command.extend(words);
        command.extend(files);
        command
    }

    fn program(self) -> Vec<String> {
        match self {
            Self::BouncyCastle => {
                let jars = tools::home().join(".cache/bouncycastle/*");
                let class_path = format!("{}:{}", jars.display(), text(java_classes(&jars)));
                let words = ["-cp", &class_path, "Stack"].map(str::to_owned);
                tools::java().into_iter().chain(words).collect()
            }
            Self::Erlang => vec!["escript".to_owned(), text(&source("erlang.escript"))],
            Self::Botan | Self::GnuTls | Self::MbedTls | Self::Nss | Self::WolfSsl => {
                vec![text(&self.compiled())]
            }
        }
    }

    fn header(self) -> &'static str {
        match self {
            Self::Botan => "botan-2/botan/tls_client.h",
            Self::GnuTls => "gnutls/gnutls.h",
            Self::MbedTls => "mbedtls/ssl.h",
            Self::Nss => "nss/ssl.h",
            Self::WolfSsl => "wolfssl/ssl.h",
            Self::BouncyCastle | Self::Erlang => "",
        }
    }

    /// The program of a C library, compiled once per test.
    fn compiled(self) -> PathBuf {
        let folder = tempfile::tempdir_in(folder()).expect("a folder").keep();
        let program = folder.join("stack");
        let (compiler, file, flags): (_, _, &[&str]) = match self {
            Self::Botan => ("c++", "botan.cpp", &["-I/usr/include/botan-2", "-lbotan-2"]),
            Self::GnuTls => ("cc", "gnutls.c", &["-lgnutls"]),
            Self::MbedTls => (
                "cc",
                "mbedtls.c",
                &["-lmbedtls", "-lmbedx509", "-lmbedcrypto"],
            ),
            Self::Nss => ("cc", "nss.c", &["-lssl3", "-lnss3", "-lnspr4"]),
            _ => ("cc", "wolfssl.c", &["-lwolfssl"]),
        };
        let main = folder.join("stack.o");
        let mut compile = Command::new("cc");
        compile.args(["-O1", "-c", "-o"]).arg(&main);
        build(compile.arg(source("stack.c")));
        let mut link = Command::new(compiler);
        link.args(["-O1", "-I/usr/include/nss", "-I/usr/include/nspr", "-o"]);
        link.arg(&program).arg(source(file)).arg(&main);
        build(link.args(flags));
        program
    }
}

impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

fn source(name: &str) -> PathBuf {
    tools::home().join("stacks").join(name)
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Folder for compiled programs; it is removed after the test program.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    FOLDER
        .get_or_init(|| tempfile::tempdir().expect("a temporary folder"))
        .path()
}

fn java_classes(jars: &Path) -> &'static Path {
    static CLASSES: OnceLock<PathBuf> = OnceLock::new();
    CLASSES.get_or_init(|| {
        let classes = folder().join("java");
        let mut compile = Command::new("javac");
        compile.arg("-cp").arg(jars).arg("-d").arg(&classes);
        build(compile.arg(source("bouncycastle/Stack.java")));
        classes
    })
}

fn build(command: &mut Command) {
    let built = command.output().expect("a compiler starts");
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{command:?} says:\n{said}");
}
