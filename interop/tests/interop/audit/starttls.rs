//! `--starttls` with real servers: `bench` and `audit` reach the TLS inside each protocol.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::Command;

use dormouse_interop::certificates::{Files, Kind, authority};
use dormouse_interop::process::Process;
use dormouse_interop::scene::unused_host;
use dormouse_interop::{tools, wait};
use serde_json::Value;

use super::{PATIENCE, audit, read};

const PORT: u16 = 2500;

/// A server in its own folder.
pub(crate) struct StarttlsServer {
    protocol: &'static str,
    process: Process,
    pub(crate) address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl StarttlsServer {
    /// Starts a program; `command` writes its configuration into the folder and returns its arguments.
    fn start(
        protocol: &'static str,
        program: &str,
        command: impl FnOnce(&Path, SocketAddr, &Files) -> Vec<String>,
    ) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        // Servers that drop their privileges read it as other users.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("its mode");
        let address = SocketAddr::new(unused_host(), PORT);
        let files = authority().certificate(Kind::EcdsaP256);
        let own = Files {
            cert: folder.path().join("cert.pem"),
            key: folder.path().join("key.pem"),
            both: files.both.clone(),
        };
        fs::copy(&files.cert, &own.cert).expect("a copy of the certificate");
        fs::copy(&files.key, &own.key).expect("a copy of its key");
        let command = command(folder.path(), address, &own);
        let process = Process::start(program, &command, folder.path());
        wait::until(&format!("{program} to listen"), PATIENCE, || {
            TcpStream::connect(address).ok()
        });
        Self {
            protocol,
            process,
            address,
            _folder: folder,
        }
    }

    /// The options that reach its TLS.
    fn reach(&self) -> [&str; 5] {
        [
            "--starttls",
            self.protocol,
            "--insecure",
            "--sni",
            "localhost",
        ]
    }

    /// Measures the server with `bench`.
    fn bench(&self) {
        self.bench_at(self.address);
    }

    /// Measures it with `bench` at another address.
    pub(crate) fn bench_at(&self, address: SocketAddr) {
        let churn = Command::new(tools::dormouse())
            .args(["bench", "churn", &address.to_string(), "-n", "20"])
            .args(["-c", "4", "--rounds", "1", "--after", "0s"])
            .args(self.reach())
            .args(["-q", "--json", "-"])
            .output()
            .expect("bench");
        let said = String::from_utf8_lossy(&churn.stderr);
        assert_eq!(churn.status.code(), Some(0), "{}: {said}", self.protocol);
        let run: Value = serde_json::from_slice(&churn.stdout).expect("a run");
        assert_eq!(run["failures"], serde_json::json!({}), "{run:#}");
    }

    fn audit(&self) {
        let (protocol, target) = (self.protocol, self.address.to_string());
        let pid = self.process.pid().to_string();
        let words = [
            &["server", &target, "--quick", "-n", "20", "--pid", &pid][..],
            &self.reach(),
            // The time is for audits beside other tests.
            &["--time", "5m", "-q"],
        ];
        let (audit, _) = read(&audit(&words.concat()));
        let server = &audit["server"];
        let offer = &server["offer"]["measured"];
        assert_eq!(offer["versions"]["TLS 1.3"], true, "{protocol}: {audit:#}");
        let trials = server["resumption"][0]["trials"]["measured"].is_object();
        assert!(trials, "{protocol}: {:#}", server["resumption"]);
        let full_us = &server["cpu"]["measured"]["full_us"];
        assert!(full_us.as_f64() > Some(50.0), "{protocol}: {audit:#}");
        let again = audit["settings"]["options"].as_str().unwrap_or_default();
        assert!(again.contains(&format!("--starttls {protocol}")), "{again}");
    }
}

#[test]
fn bench_reaches_smtp_of_postfix() {
    postfix().iter().for_each(StarttlsServer::bench);
}

#[test]
fn bench_reaches_imap_and_pop3_of_dovecot() {
    for service in ["imap", "pop3"] {
        dovecot(service).iter().for_each(StarttlsServer::bench);
    }
}

#[test]
fn bench_reaches_ldap_of_slapd() {
    slapd().iter().for_each(StarttlsServer::bench);
}

#[test]
fn bench_reaches_xmpp_of_prosody() {
    prosody().iter().for_each(StarttlsServer::bench);
}

#[test]
fn bench_reaches_postgres() {
    postgres(PASSWORD_WITH_TLS)
        .iter()
        .for_each(StarttlsServer::bench);
}

#[test]
fn bench_reaches_mysql_of_mariadb() {
    mariadb().iter().for_each(StarttlsServer::bench);
}

#[test]
fn an_audit_reaches_ldap() {
    slapd().iter().for_each(StarttlsServer::audit);
}

#[test]
#[ignore = "six audits: two minutes"]
fn an_audit_reaches_every_other_protocol() {
    let servers = [
        postfix,
        || dovecot("imap"),
        || dovecot("pop3"),
        prosody,
        || postgres(PASSWORD_WITH_TLS),
        mariadb,
    ];
    for start in servers {
        start().iter().for_each(StarttlsServer::audit);
    }
}

/// Whether these programs are installed and this user may start them.
fn can_run(programs: &[&str]) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    (is_root || tools::unavailable("these servers are started by root")) && tools::present(programs)
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// The number of a user or group in `/etc/passwd` or `/etc/group`.
fn id_of(file: &str, name: &str) -> u32 {
    let text = fs::read_to_string(file).expect("it can be read");
    let line = text
        .lines()
        .find(|line| line.split(':').next() == Some(name));
    let id = line.and_then(|line| line.split(':').nth(2)?.parse().ok());
    id.unwrap_or_else(|| panic!("{name} is not in {file}"))
}

pub(crate) fn postfix() -> Option<StarttlsServer> {
    const MASTER: &str = "/usr/lib/postfix/sbin/master";
    if !can_run(&["postfix"]) {
        return None;
    }
    let server = StarttlsServer::start("smtp", "postfix", |folder, address, files| {
        let here = folder.display();
        let (conf, queue) = (folder.join("conf"), folder.join("queue"));
        let (user, group) = (
            id_of("/etc/passwd", "postfix"),
            id_of("/etc/group", "postdrop"),
        );
        fs::create_dir_all(&conf).expect("a folder");
        let private = ["active", "deferred", "incoming", "private", "pid", "public"];
        for name in private {
            fs::create_dir_all(queue.join(name)).expect("a folder");
        }
        for (name, group) in [("private", None), ("public", Some(group))] {
            chown(queue.join(name), Some(user), group).expect("its owner");
        }
        fs::create_dir(folder.join("data")).expect("a folder");
        chown(folder.join("data"), Some(user), None).expect("its owner");
        let main = format!(
            "compatibility_level = 3.6\nqueue_directory = {here}/queue\ndata_directory = {here}/data\n\
             mail_owner = postfix\ninet_interfaces = loopback-only\ninet_protocols = ipv4\n\
             myhostname = localhost.localdomain\nmynetworks = 127.0.0.0/8\nalias_maps =\n\
             maillog_file = {here}/log\nmaillog_file_prefixes = {here}\n\
             smtpd_tls_security_level = may\nsmtpd_tls_cert_file = {}\nsmtpd_tls_key_file = {}\n",
            files.cert.display(),
            files.key.display()
        );
        fs::write(conf.join("main.cf"), main).expect("written");
        let services = format!(
            "{address} inet n - n - - smtpd\nanvil unix - - n - 1 anvil\ntlsmgr unix - - n 1000? 1 tlsmgr\n\
             rewrite unix - - n - - trivial-rewrite\nproxymap unix - - n - - proxymap\n\
             postlog unix-dgram n - n - 1 postlogd\n"
        );
        fs::write(conf.join("master.cf"), services).expect("written");
        words(&format!("{MASTER} -d -c {}", conf.display()))
    });
    Some(server)
}

/// Whether it is older than 2.4, the version of Debian 13.
fn dovecot_is_old() -> bool {
    let said = Command::new(tools::path("dovecot"))
        .arg("--version")
        .output();
    said.expect("dovecot").stdout.starts_with(b"2.3")
}

pub(crate) fn dovecot(protocol: &'static str) -> Option<StarttlsServer> {
    if !can_run(&["dovecot"]) {
        return None;
    }
    let server = StarttlsServer::start(protocol, "dovecot", |folder, address, files| {
        let here = folder.display();
        // Since 2.4 the settings have other names, after the version for which they are written.
        let (first, cert, key) = match dovecot_is_old() {
            true => ("", "ssl_cert = <", "ssl_key = <"),
            false => (
                "dovecot_config_version = 2.4.0\ndovecot_storage_version = 2.4.0\n",
                "ssl_server_cert_file = ",
                "ssl_server_key_file = ",
            ),
        };
        let users = match dovecot_is_old() {
            true => "passdb {\n  driver = static\n}\nuserdb {\n  driver = static\n}\n",
            false => "passdb static {\n}\nuserdb static {\n}\n",
        };
        let conf = format!(
            "{first}base_dir = {here}/run\nstate_dir = {here}/state\nlog_path = {here}/log\n\
                 protocols = {protocol}\nlisten = {}\nssl = yes\n{cert}{}\n{key}{}\n\
                 service {protocol}-login {{\n  inet_listener {protocol} {{\n    port = {}\n  }}\n\
                   inet_listener {protocol}s {{\n    port = 0\n  }}\n}}\n{users}",
            address.ip(),
            files.cert.display(),
            files.key.display(),
            address.port()
        );
        let file = folder.join("dovecot.conf");
        fs::write(&file, conf).expect("written");
        words(&format!(
            "{} -F -c {}",
            tools::path("dovecot"),
            file.display()
        ))
    });
    Some(server)
}

pub(crate) fn slapd() -> Option<StarttlsServer> {
    if !can_run(&["slapd"]) {
        return None;
    }
    let server = StarttlsServer::start("ldap", "slapd", |folder, address, files| {
        let file = folder.join("slapd.conf");
        let conf = format!(
            "TLSCertificateFile {}\nTLSCertificateKeyFile {}\n",
            files.cert.display(),
            files.key.display()
        );
        fs::write(&file, conf).expect("written");
        let slapd = tools::path("slapd");
        words(&format!(
            "{slapd} -d 0 -h ldap://{address} -f {}",
            file.display()
        ))
    });
    Some(server)
}

pub(crate) fn prosody() -> Option<StarttlsServer> {
    if !can_run(&["prosody"]) {
        return None;
    }
    let server = StarttlsServer::start("xmpp", "prosody", |folder, address, files| {
        let here = folder.display();
        let conf = format!(
            "pidfile = '{here}/pid'\ndata_path = '{here}'\nrun_as_root = true\n\
             interfaces = {{ '{}' }}\nc2s_ports = {{ {} }}\ns2s_ports = {{ }}\n\
             modules_enabled = {{ 'tls', 'saslauth' }}\nmodules_disabled = {{ 's2s' }}\n\
             ssl = {{ certificate = '{}', key = '{}' }}\nlog = {{ info = '*console' }}\nVirtualHost 'localhost'\n",
            address.ip(),
            address.port(),
            files.cert.display(),
            files.key.display()
        );
        let file = folder.join("prosody.cfg.lua");
        fs::write(&file, conf).expect("written");
        let prosody = tools::path("prosody");
        words(&format!("{prosody} -F --root --config {}", file.display()))
    });
    Some(server)
}

/// The rule demands a password, so the server asks for one and waits.
const PASSWORD_WITH_TLS: &str = "hostssl all all all scram-sha-256\n";

/// `rules` say who may log in how.
pub(crate) fn postgres(rules: &str) -> Option<StarttlsServer> {
    let Some(programs) = postgres_programs() else {
        tools::unavailable("`postgres` is not installed: run interop/install");
        return None;
    };
    if !can_run(&["setpriv"]) {
        return None;
    }
    let server = StarttlsServer::start("postgres", "postgres", |folder, address, files| {
        let user = id_of("/etc/passwd", "postgres");
        let as_user = format!("setpriv --reuid={user} --clear-groups");
        let data = folder.join("data");
        for path in [folder, &files.key] {
            chown(path, Some(user), None).expect("its owner");
        }
        fs::set_permissions(&files.key, fs::Permissions::from_mode(0o600)).expect("its mode");
        let init = words(&format!(
            "{as_user} {}/initdb -D {} -A trust -N",
            programs.display(),
            data.display()
        ));
        let made = Command::new(&init[0]).args(&init[1..]).output();
        let made = made.expect("initdb");
        assert!(made.status.success(), "{made:?}");
        fs::write(data.join("pg_hba.conf"), rules).expect("written");
        words(&format!(
            "{as_user} {}/postgres -D {} -h {} -p {} -k {} -c ssl=on -c ssl_cert_file={} -c ssl_key_file={}",
            programs.display(),
            data.display(),
            address.ip(),
            address.port(),
            folder.display(),
            files.cert.display(),
            files.key.display()
        ))
    });
    Some(server)
}

/// The folder of PostgreSQL's programs, which Debian keeps out of the search path.
pub(crate) fn postgres_programs() -> Option<std::path::PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut folders = versions.flatten().map(|entry| entry.path().join("bin"));
    folders.find(|folder| folder.join("postgres").exists())
}

fn mariadb() -> Option<StarttlsServer> {
    if !can_run(&["mariadbd"]) {
        return None;
    }
    let server = StarttlsServer::start("mysql", "mariadbd", |folder, address, files| {
        let here = folder.display();
        fs::create_dir(folder.join("data")).expect("a folder");
        words(&format!(
            "{} --no-defaults --user=root --skip-grant-tables --skip-networking=0 --skip-innodb \
             --default-storage-engine=MyISAM --datadir={here}/data --socket={here}/socket --pid-file={here}/pid \
             --bind-address={} --port={} --ssl-cert={} --ssl-key={}",
            tools::path("mariadbd"),
            address.ip(),
            address.port(),
            files.cert.display(),
            files.key.display()
        ))
    });
    Some(server)
}
