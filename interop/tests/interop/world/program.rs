//! The programs that a row compares, and the shortest configuration of each for one TLS listener.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use dormouse_interop::tools;

const NGINX_STREAM: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";

/// A program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Program {
    Openssl,
    Nginx,
    Haproxy,
    Hitch,
    Stunnel,
    Dormouse,
}

impl Program {
    /// All of them.
    pub(super) const ALL: [Program; 6] = [
        Program::Openssl,
        Program::Nginx,
        Program::Haproxy,
        Program::Hitch,
        Program::Stunnel,
        Program::Dormouse,
    ];
}

impl fmt::Display for Program {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Program::Openssl => "OpenSSL",
            Program::Nginx => "nginx",
            Program::Haproxy => "HAProxy",
            Program::Hitch => "hitch",
            Program::Stunnel => "stunnel",
            Program::Dormouse => "Dormouse",
        })
    }
}

/// Where a program listens, and what is behind it.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// The program's own address, `LISTEN` in configurations.
    pub(super) listen: SocketAddr,
    /// A plain server that echoes: `BACKEND`.
    pub(super) backend: SocketAddr,
    /// The address of the row's own server: `SERVER`.
    pub(super) server: SocketAddr,
}

impl Place {
    fn fill(&self, text: &str, folder: &Path) -> String {
        let bracketed = |address: SocketAddr| format!("[{}]:{}", address.ip(), address.port());
        text.replace("[LISTEN]", &bracketed(self.listen))
            .replace("[BACKEND]", &bracketed(self.backend))
            .replace("LISTEN", &self.listen.to_string())
            .replace("HOST", &self.listen.ip().to_string())
            .replace("BACKEND", &self.backend.to_string())
            .replace("SERVER", &self.server.to_string())
            .replace("HERE", &folder.to_string_lossy())
    }
}

impl Program {
    /// The name of its configuration, its log and `$PROGRAM`.
    pub(super) fn word(self) -> String {
        self.to_string().to_lowercase()
    }

    /// Writes its configuration, and returns the command that starts it, with errors on standard error.
    pub(super) fn prepare(self, config: &str, place: &Place, folder: &Path) -> Vec<String> {
        let extension = if self == Program::Dormouse {
            "toml"
        } else {
            "conf"
        };
        let file = folder.join(format!("{}.{extension}", self.word()));
        let text = place.fill(&self.configuration(config), folder);
        fs::write(&file, text).expect("written");
        match self {
            Program::Dormouse => vec![
                tools::dormouse().to_string_lossy().into_owned(),
                "serve".into(),
                "-c".into(),
                file.to_string_lossy().into_owned(),
            ],
            Program::Nginx => tools::nginx(&file),
            Program::Haproxy => vec![
                tools::path("haproxy"),
                "-db".into(),
                "-f".into(),
                text_of(&file),
            ],
            Program::Hitch => vec![tools::path("hitch"), format!("--config={}", text_of(&file))],
            Program::Stunnel => vec![tools::path("stunnel"), text_of(&file)],
            Program::Openssl => unreachable!("OpenSSL has commands, and no configuration"),
        }
    }

    /// The whole configuration around what a row has of it.
    fn configuration(self, config: &str) -> String {
        match self {
            Program::Dormouse => {
                let often = match config.contains("reload_certificates") {
                    true => "",
                    false => "reload_certificates = \"100ms\"\n",
                };
                let workers = match config.contains("workers") {
                    true => "",
                    false => "workers = 1\n",
                };
                format!(
                    "admin = \"HERE/admin.sock\"\nlog_handshakes = true\n{workers}{often}{config}"
                )
            }
            Program::Nginx => {
                let blocks = match config.contains("stream {") || config.contains("http {") {
                    true => config.to_owned(),
                    false => format!(
                        "stream {{ server {{\nlisten LISTEN ssl;\nproxy_pass BACKEND;\n{config}\n}} }}"
                    ),
                };
                format!(
                    "load_module {NGINX_STREAM};\ndaemon off;\nuser root;\nworker_processes 1;\npid HERE/nginx.pid;\n\
                     error_log stderr info;\nevents {{}}\n{blocks}\n"
                )
            }
            Program::Haproxy => {
                let sections = match config.contains('\n') {
                    true => config.to_owned(),
                    false => {
                        format!("listen l\n    bind LISTEN ssl {config}\n    server s BACKEND\n")
                    }
                };
                format!(
                    "global\n    maxconn 200\n    nbthread 1\n    log stderr format raw local0\ndefaults\n    mode tcp\n    \
                     log global\n    option tcplog\n    timeout connect 5s\n    timeout client 20s\n    timeout server \
                     20s\n{sections}\n"
                )
            }
            Program::Hitch => format!(
                "frontend = \"[LISTEN]\"\nbackend = \"[BACKEND]\"\nworkers = 1\nuser = \"root\"\n{config}\n"
            ),
            Program::Stunnel => format!(
                "foreground = yes\npid =\nsyslog = no\n[l]\naccept = LISTEN\nconnect = BACKEND\n{config}\n"
            ),
            Program::Openssl => unreachable!("OpenSSL has commands, and no configuration"),
        }
    }
}

fn text_of(file: &Path) -> String {
    file.to_string_lossy().into_owned()
}
